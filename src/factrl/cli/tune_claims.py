"""`factrl tune truthfulness`, `tune checklist-verifier` and `tune extractor`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from ..config import dump_toml, load_settings
from ..errors import ConfigError
from ..tuning.claim_settings import ClaimSettings, Head
from .options import as_overrides, needs_extra
from .terminal import say, show_table, tell

METHODS = ("truthfulness", "checklist-verifier", "extractor")

_SETTING = re.compile(r"[A-Za-z_][\w.]*\s*=")
_OPTIONS = {
    "model": "model.name",
    "head": "head",
    "steps": "train.steps",
    "seed": "run.seed",
    "output": "run.dir",
}
_OF_OTHERS = ("rule", "judge", "probe", "evaluate", "resume")  # options of the parser for the other methods


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that only these methods have."""
    parser.add_argument(
        "--with-evidence",
        action="store_true",
        help="truthfulness: show each claim's evidence beside it (default: the claim alone)",
    )
    parser.add_argument(
        "--head", choices=get_args(Head), help="truthfulness: odds of two words, or a classifier's output"
    )


def run(args: argparse.Namespace) -> int:
    """Carry out `args.method` on the files among `args.file` and `args.settings`.

    Raises:
        SetupError: what the user must change.
    """
    settings = _settings(args)
    if getattr(args, "dry_run", False):
        say(dump_toml(settings).rstrip())
        return 0
    needs_extra("train.quiet", "train").quiet_libraries()
    if args.method == "truthfulness":
        module = needs_extra("train.truthfulness_run", "train")
        found = module.tune_truthfulness(settings, tell)
    else:
        module = needs_extra("train.reply_models", "train")
        found = module.tune_replies(args.method, settings, tell)
    folder = Path(settings.run.dir)
    show_table(_rich(module.table(found)))
    tell(module.told_of(found, folder))
    say(str(folder / "model"))
    return 0


def _settings(args: argparse.Namespace) -> ClaimSettings:
    for name in _OF_OTHERS:
        if getattr(args, name, None) is not None:
            again = "; the same command goes on where it stopped" if name == "resume" else ""
            raise ConfigError(f"--{name} is not an option of factrl tune {args.method}{again}")
    words: Sequence[str] = [*([args.file] if args.file else []), *args.settings]
    files = [word for word in words if not _SETTING.match(word)]
    told = argparse.Namespace(**{**dict.fromkeys(_OPTIONS), **vars(args)})
    told.settings = [word for word in words if _SETTING.match(word)]
    if told.output is None:
        told.output = f"runs/{args.method}"
    named = [f"data.files={files!r}"] if files else []
    evidence = ["data.with_evidence=true"] if getattr(args, "with_evidence", False) else []
    source = getattr(args, "config", None)
    return load_settings(ClaimSettings, source, [*named, *evidence, *as_overrides(told, _OPTIONS)])


def _rich(rows: Sequence[Sequence[str]]) -> Any:
    from rich.table import Table

    head, *rest = rows
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(head):
        table.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rest:
        table.add_row(*row)
    return table
