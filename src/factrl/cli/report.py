"""`factrl report`: the folder of a training run as one HTML page."""

from __future__ import annotations

import argparse

from ..run_page import PAGE, write_run_page
from .options import Verbs, add_verb
from .terminal import say


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "report",
        _report,
        about="write a training run as one HTML page: curves by step, and what the policy wrote",
        example="example:\n  factrl report runs/knowrl-20260101-120000",
    )
    parser.add_argument("folder", metavar="RUN", help="run folder; the run may still go on")
    parser.add_argument("--output", metavar="FILE.html", help=f"where to (default: RUN/{PAGE})")


def _report(args: argparse.Namespace) -> int:
    say(str(write_run_page(args.folder, args.output)))
    return 0
