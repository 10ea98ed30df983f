"""`factrl study`: rewards compared from one start on the small world of real entities, and the table."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError
from factrl.runs.disk import FileLock, check_free, write_whole
from factrl.studies import ALL, CALIBRATED, StudySettings, add_row, load_study, steps_of, study_names
from factrl.verifier.judges import Table

from .options import Verbs, a_seed, add_settings, add_verb, at_least_one, needs_extra
from .terminal import say, tell

_TABLE = "table.md"
_MARK = "In brackets the change against the start with its 95 % interval"
_HOW = {"greedy": "greedy answers", "sampled": "one sample at the training temperature"}


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "study",
        _study,
        about="compare rewards on a small real model and real entities, beside a random one",
        example=(
            "examples:\n"
            "  factrl study knowrl --output out --dry-run\n"
            "  factrl study knowrl --output out --seeds 3\n"
            "  factrl study factreason --output out --add my.py:reward\n"
            "  factrl study klcf --output out --table facts.csv   # entity,relation,value\n"
            f"studies: {', '.join(study_names())}, {ALL}, or a TOML file\n"
            "The same command again goes on where it was stopped."
        ),
    )
    parser.add_argument(
        "study", metavar="STUDY", help="a name, a TOML file, or `all`: every row from one start"
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="folder of everything that is made")
    parser.add_argument(
        "--seeds", metavar="N", type=at_least_one, default=1, help="seeds 0 to N-1 (default: 1)"
    )
    parser.add_argument(
        "--first-seed", metavar="N", type=a_seed, default=0, help="begin with this seed instead of 0"
    )
    parser.add_argument(
        "--only", metavar="STEP", action="append", default=[], help="`start`, or a row as STUDY/ROW"
    )
    parser.add_argument(
        "--add", metavar="SPEC", action="append", default=[], help="a reward as a further row"
    )
    parser.add_argument("--table", metavar="FILE", help="your own facts: entity,relation,value")
    parser.add_argument("--model", metavar="NAME", help="start from this model")
    parser.add_argument(
        "--gpu", action="store_true", help="the sizes of a GPU: larger steps, more held-out texts"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the steps and settings; train nothing")
    add_settings(parser, "any setting of the studies, such as train.steps=30")


def _study(args: argparse.Namespace) -> int:
    names = study_names() if args.study == ALL else [args.study]
    if args.table is not None:
        Table.read(args.table)  # mistakes come before torch is loaded
    words = (*args.settings, *([] if args.table is None else [f"table={args.table}"]))
    studies = {Path(name).stem: load_study(name, words, gpu=args.gpu) for name in names}
    for spec in args.add:
        studies = {name: add_row(study, spec) for name, study in studies.items()}
    steps_of(studies, args.only)
    out, seeds = Path(args.output), range(args.first_seed, args.first_seed + args.seeds)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--output {out} is a file; name a folder")
    check_free(out / _TABLE, _is_ours)
    if args.dry_run:
        for name, study in studies.items():
            say(f"{name}: {study.title}")
            for row, settings in study.rows.items():
                train = {**study.train.model_dump(exclude_unset=True), **settings.train}
                say(f"  {name}/{row}: {settings.reward} {settings.knobs or ''} {train}")
        return 0
    needs_extra("train.model", "demo").for_command_line()
    engine = needs_extra("studies.engine", "demo")
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / ".lock", f"--output {out}")
    try:
        engine.run_studies(studies, out, seeds, only=args.only, model=args.model or engine.MODEL, tell=tell)
        if args.only:
            return 0
        text = render(studies, engine.read_results(out, seeds))
        say(text)
        write_whole(out / _TABLE, (text + "\n").encode(), _is_ours)
    finally:
        lock.release()
    return 0


def _is_ours(path: Path) -> bool:
    return _MARK.encode() in path.read_bytes()


def render(studies: Mapping[str, StudySettings], results: Mapping[int, Any]) -> str:
    """The tables as markdown."""
    from factrl.studies.measure import COLUMNS, lines

    parts: list[str] = []
    for name, study in studies.items():
        parts += [f"## {study.title}", ""]
        for how, title in _HOW.items():
            rows = lines(results, name, study.task, [CALIBRATED, *study.rows], how)
            parts += [f"{title.capitalize()}, {len(results)} seed{'s'[: len(results) > 1]}:", ""]
            parts += [*_markdown([study.task, *COLUMNS[study.task]], rows), ""]
        parts += [f"- {note}" for note in study.notes]
    parts += [
        "",
        f"{_MARK}: over entities with one seed, over seeds (Student's t) with several.",
    ]
    return "\n".join(parts)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|---|{'--:|' * (len(head) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
