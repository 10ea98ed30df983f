"""`factrl demo`: TruthRL's study on a small real model, its picture, and answers before and after."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from factrl.studies import CALIBRATED, MODEL, RANDOM, add_row, load_study
from factrl.text.escape import one_line

from .options import Verbs, add_option, add_seed, add_settings, add_verb, needs_extra
from .study import hold, render, run
from .terminal import say, show_table

_STUDY = "truthrl"
_USUAL = (
    *("known.questions=320", "calibrate.steps=24", "train.steps=12"),
    *("size.test=200", "size.sampled=false"),
)
_QUICK = (
    *("start.steps=27", "calibrate.steps=4", "known.questions=32", "size.test=60"),
    *("train.steps=4", "train.prompts_per_step=8", "train.micro_batch_size=64"),
)
_LEFT_OUT = (RANDOM, "binary")  # rows of `factrl study truthrl`
_SHOWN = 5
_NEXT = "your own  factrl train small/truthrl --model FOLDER --data FILE (columns: question, answers)"


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verb to the command line."""
    parser = add_verb(
        verbs,
        "demo",
        _demo,
        about="teach a small model to say when it does not know, on two CPU cores",
        example=(
            "examples:\n"
            "  factrl demo --quick\n"
            "  factrl demo my.py:reward     # yours beside TruthRL's\n"
            f"It is factrl study {_STUDY}, smaller and with one of its rewards.\n"
            "The same command again goes on where it was stopped."
        ),
    )
    parser.add_argument("reward", metavar="REWARD", nargs="?", help="a further reward, such as my.py:mine")
    add_option(parser, "--quick", "a few steps, to see that everything works")
    add_seed(parser, "of the split and of all training")
    add_option(parser, "--output DIR", "folder of everything that is made (default: runs/demo)")
    add_settings(parser, "any setting of the study's file, such as train.steps=30")


def _demo(args: argparse.Namespace) -> int:
    study = load_study(_STUDY, (*(_QUICK if args.quick else _USUAL), *args.settings))
    rows = {name: row for name, row in study.rows.items() if name not in _LEFT_OUT}
    study = study.model_copy(update={"rows": rows})
    if args.reward:
        study = add_row(study, args.reward, like="ternary")
    out = Path(args.output or f"runs/demo{'-quick' * args.quick}")
    seeds, last = [args.seed], f"{_STUDY}/{[*study.rows][-1]}"
    with hold(out):
        results = run({_STUDY: study}, out, seeds, model=MODEL, keep=last)
        needs_extra("studies.picture", "demo").write_picture({_STUDY: study}, results, out / "demo.svg")
    say(render({_STUDY: study}, results))
    show_table(answers_table(results[args.seed], [CALIBRATED, *study.rows]))
    if args.quick:
        say("This was --quick: it shows that everything works, not what training does.")
    say(f"picture   {out / 'demo.svg'}\n{_NEXT}")
    models = out / f"seed-{args.seed}" / "models"
    after = models / last.replace("/", "-")
    if after.is_dir():  # what was trained before models were kept has none
        words = [models / "start", after, "--config", after / "config.toml"]
        say(f"talk to it  factrl ask {shlex.join(map(str, words))}")
    return 0


def answers_table(held: Mapping[str, Any], rows: Sequence[str]) -> Table:
    """Held-out questions whose greedy answer the last row changed, with the start's and every row's."""
    start = held["start-short"]
    table = Table("question", "accepted", "start", *rows, title="Changed answers", title_justify="left")
    texts = zip(
        start["greedy_texts"], *(held[f"{_STUDY}/{row}"]["greedy_texts"] for row in rows), strict=True
    )
    changed = [
        (asked, said) for asked, said in zip(start["shown"], texts, strict=True) if said[0] != said[-1]
    ]
    for asked, said in changed[:_SHOWN]:
        table.add_row(*(Text(one_line(text)) for text in (*asked, *said)))
    return table
