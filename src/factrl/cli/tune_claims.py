"""`factrl tune truthfulness`, `tune checklist-verifier` and `tune extractor`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from factrl.cli.options import as_overrides, needs_extra
from factrl.cli.terminal import say, show_table, tell
from factrl.errors import ConfigError
from factrl.runs.config import dump_toml, load_settings
from factrl.train.tuning.labelled_settings import LabelledSettings, Method

METHODS = get_args(Method)

_SETTING = re.compile(r"[A-Za-z_][\w.]*\s*=")
_OPTIONS = {"model": "model.name", "steps": "train.steps", "seed": "run.seed", "output": "run.dir"}
_OF_OTHERS = ("rule", "judge", "probe", "evaluate", "resume")  # options of the parser for the other methods


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
    numbers = needs_extra("train.labelled", "train").tune_labelled(args.method, settings, tell)
    from rich.table import Table

    from factrl.train.tuning.labelled_numbers import table, told_of

    head, *rows = table(numbers)
    shown = Table(*head, box=None, pad_edge=False)
    for row in rows:
        shown.add_row(*row)
    show_table(shown)
    folder = Path(settings.run.dir)
    tell(told_of(numbers, folder))
    say(str(folder / "model"))
    return 0


def _settings(args: argparse.Namespace) -> LabelledSettings:
    for name in _OF_OTHERS:
        if getattr(args, name, None) is not None:
            again = "; the same command goes on where it stopped" if name == "resume" else ""
            raise ConfigError(f"--{name} is not an option of factrl tune {args.method}{again}")
    words: Sequence[str] = [*([args.file] if args.file else []), *args.settings]
    files = [word for word in words if not _SETTING.match(word)]
    named = argparse.Namespace(**{**dict.fromkeys(_OPTIONS), **vars(args)})
    named.settings = [word for word in words if _SETTING.match(word)]
    named.output = named.output or f"runs/{args.method}"
    overrides = [f"data.files={files!r}"] if files else []
    source = getattr(args, "config", None)
    return load_settings(LabelledSettings, source, [*overrides, *as_overrides(named, _OPTIONS)])
