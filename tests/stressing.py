"""`factrl stress` as a test calls it."""

from __future__ import annotations

import argparse

from factrl.cli import stress as verb


def run(*words: str) -> int:
    """The exit code of the command with these words."""
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers()
    verb.add_verbs(verbs)
    args = verbs.choices["stress"].parse_intermixed_args(words)
    return args.run(args)
