"""`factrl report`: a training run as one HTML page, or two evaluations side by side."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..bench.metrics import Interval
from ..bench.paired import Paired, compare_outputs
from ..bench.paired_page import side_names, write_paired_page
from ..bench.results import PAGE as EVALUATION_PAGE
from ..bench.results import Output, is_output, read_output
from ..errors import ConfigError
from ..escape import one_line
from ..run_page import PAGE, write_run_page
from .options import Verbs, add_verb
from .terminal import say, show_table, tell

if TYPE_CHECKING:
    from rich.table import Table

COMPARISON = "comparison.html"


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "report",
        _report,
        about="write a training run as one HTML page, or compare two evaluations of the same questions",
        example=(
            "examples:\n"
            "  factrl report runs/knowrl-20260101-120000\n"
            "  factrl report before after --output changes.html"
        ),
    )
    parser.add_argument("folder", metavar="RUN", help="run folder; the run may still go on")
    parser.add_argument("other", metavar="AFTER", nargs="?", help="RUN and AFTER are folders of factrl eval")
    parser.add_argument(
        "--output",
        metavar="FILE.html",
        help=f"where to (default: RUN/{PAGE}, for two evaluations AFTER/{COMPARISON})",
    )
    parser.add_argument("--json", action="store_true", help="print a comparison as JSON")


def _report(args: argparse.Namespace) -> int:
    if args.other is not None:
        return _compare(args)
    if args.json:
        raise ConfigError("--json prints a comparison; name two folders of factrl eval")
    if is_output(args.folder):
        raise ConfigError(
            f"{args.folder} is an evaluation, whose page is {Path(args.folder) / EVALUATION_PAGE}; name a "
            "second one to compare it with"
        )
    say(str(write_run_page(args.folder, args.output)))
    return 0


def _compare(args: argparse.Namespace) -> int:
    before, after = read_output(args.folder), read_output(args.other)
    pairs = compare_outputs(before, after)
    path = Path(args.output) if args.output is not None else after.folder / COMPARISON
    write_paired_page(path, before, after, pairs)
    if args.json:
        say(json.dumps({pair.name: pair.to_json() for pair in pairs}, indent=2, ensure_ascii=False))
    else:
        show_table(_table(before, after, pairs))
    tell(f"page: {path}")
    return 0


def _table(before: Output, after: Output, pairs: Sequence[Paired]) -> Table:
    from rich.table import Table
    from rich.text import Text

    # Names are others' words: as Text they cannot carry console markup.
    title = Text(one_line(" → ".join(side_names(before, after))))
    table = Table("benchmark", "metric", "change", "95 % interval", "", "questions", title=title)
    for pair in pairs:
        first = Text(one_line(pair.name))
        numbers = {**before.numbers(pair.name), **after.numbers(pair.name)}
        for metric, change in pair.differences.items():
            if change is not None:
                share = metric not in numbers or numbers[metric].percent
                value, limits = (change.signed() if share else _counted(change)).split(" ", 1)
                clear = "clear" if change.excludes_zero else ""
                named = Text(one_line(metric.replace("_", " ")))
                table.add_row(first, named, value, limits, clear, str(pair.n))
                first = Text()
        if pair.p is not None:
            told = f"{pair.fixed} became right, {pair.broken} stopped being right"
            table.add_row(first, "McNemar p", f"{pair.p:.3f}", told, "", "")
        for note in pair.notes:
            table.add_row("", Text(one_line(note)), "", "", "", "")
        table.add_section()
    return table


def _counted(change: Interval) -> str:
    """A difference of numbers that are no shares, such as supported claims."""
    return f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
