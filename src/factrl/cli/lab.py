"""`factrl lab`: what a reward teaches a tiny model."""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from factrl.lab import tables
from factrl.lab.rewards import REWARDS, rewards_table
from factrl.lab.tables import find_table, table_names, table_of
from factrl.runs.disk import write_whole
from factrl.runs.folder import new_folder

from .options import Verbs, add_options, add_verb, at_least_one, needs_extra
from .terminal import say, show_table

if TYPE_CHECKING:
    from factrl.lab.tables import Outcome


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "lab",
        _lab,
        about="see what a reward teaches, in minutes: a tiny model in a made-up world, no GPU, no key",
        example=(
            "examples:\n"
            "  factrl lab\n"
            "  factrl lab --table truthrl --seeds 3\n"
            "  factrl lab truthrl:ternary knowrl knowrl:no-refusal r-tuning --seeds 3\n"
            "  factrl lab my_reward.py:mine\n"
            "  factrl lab --table rewards --seeds 3          # every paper's reward, from one start\n"
            f"tables: {', '.join([*table_names(), REWARDS])}; docs/lab.md says how to "
            "read them, and what carries over"
        ),
    )
    parser.add_argument(
        "arms",
        nargs="*",
        metavar="SPEC",
        help="rewards (truthrl:binary, my.py:mine) or methods (sft, rft, r-tuning, dpo)",
    )
    parser.add_argument(
        "--table", metavar="NAME", help="a named table; with SPECs, the one whose world shows them"
    )
    parser.add_argument("--seeds", metavar="N", type=at_least_one, help="seeds 0 to N-1, and means over them")
    parser.add_argument("--steps", metavar="N", type=at_least_one, help="optimizer steps of each arm")
    parser.add_argument(
        "--output", metavar="DIR", default="runs", help="folder for the run folder (default: %(default)s)"
    )
    add_options(parser, "json")


def _lab(args: argparse.Namespace) -> int:
    name = args.table
    if name == REWARDS:
        table = rewards_table(args.arms)
    else:
        table = table_of(args.arms, name) if args.arms else find_table(name or "default")
    Path(args.output).mkdir(parents=True, exist_ok=True)
    folder = new_folder(Path(args.output), f"lab-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}")
    needs_extra("train.model", "train").for_command_line()
    arms = needs_extra("lab.arms", "train")  # what is missing is said before anything is trained
    outcome = arms.run_table(table, range(args.seeds or table.seeds), args.steps)
    _show(outcome, folder, as_json=args.json)
    return 0


def _show(outcome: Outcome, folder: Path, *, as_json: bool) -> None:
    path, document = folder / "lab.json", tables.document(outcome)
    write_whole(path, (json.dumps(document, indent=2) + "\n").encode())
    if as_json:
        say(json.dumps({**document, "folder": str(folder)}, indent=2))
        return
    say("\n".join([*tables.headline(outcome), ""]))
    show_table(tables.results_table(outcome))
    say("")
    show_table(tables.signs_table(outcome))
    say("\n".join(["", *tables.remarks(outcome), f"every number and curve   {path}"]))
