"""`factrl demo`."""

from __future__ import annotations

import argparse

from factrl.lab.demo.settings import demo_settings

from .options import Verbs, add_settings, add_verb, as_overrides, needs_extra


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
    parser.add_argument("--steps", metavar="N", help="optimizer steps of the main reward")
    parser.add_argument("--seed", metavar="N", help="seed of everything that is random")
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that everything works")
    parser.add_argument("--output", metavar="DIR", help="folder for the run folder (default: runs)")
    add_settings(parser)


def _demo(args: argparse.Namespace) -> int:
    overrides = as_overrides(args, {"steps": "train.steps", "seed": "run.seed", "output": "run.dir"})
    # Mistakes come before torch is loaded.
    reward = demo_settings(overrides, args.reward, quick=args.quick).paper
    needs_extra("train.quiet", "demo").quiet_libraries()
    needs_extra("lab.demo.show", "demo").play(reward, overrides, quick=args.quick)
    return 0
