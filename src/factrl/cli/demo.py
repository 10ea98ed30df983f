"""`factrl demo`: what a reward teaches a small real model."""

from __future__ import annotations

import argparse

from factrl.lab.demo import demo_settings

from .options import Verbs, add_options, add_settings, add_verb, as_overrides, needs_extra


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "demo",
        _demo,
        about="teach a small real model to say when it does not know: ten minutes, no GPU, no key",
        example="example:\n  factrl demo --quick",
    )
    parser.add_argument("--reward", default="", metavar="PAPER", help="the reward (default: the recipe's)")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that everything works")
    parser.add_argument("--retrieval", action="store_true", help="with passages, some of which help")
    add_options(parser, "steps", "seed", "runs")
    add_settings(parser)


def _demo(args: argparse.Namespace) -> int:
    overrides = as_overrides(args)
    # Mistakes come before torch is loaded.
    scale = {"quick": args.quick, "retrieval": args.retrieval}
    reward = demo_settings(overrides, args.reward, **scale).paper
    needs_extra("train.model", "demo").for_command_line()
    needs_extra("lab.demo.run", "demo").play(reward, overrides, **scale)
    return 0
