"""What the verbs' command lines have in common: how they look, and options that stand for settings."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import MissingExtra

Verbs = Any  # argparse names the type of add_subparsers() only privately


def add_verb(
    verbs: Verbs, name: str, run: Callable[[argparse.Namespace], int], *, about: str, example: str
) -> argparse.ArgumentParser:
    """A parser for one verb, with a description and an epilog."""
    parser = verbs.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog=example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    return parser


def add_settings(parser: argparse.ArgumentParser, about: str = "any other setting") -> None:
    """Free `key=value` words, last."""
    parser.add_argument(
        "settings", nargs="*", metavar="key=value", help=f"{about}; factrl show --settings lists them"
    )


def as_overrides(args: argparse.Namespace, keys: Mapping[str, str]) -> list[str]:
    """Options as the settings they stand for, then the `key=value` words, which win.

    Args:
        keys: option -> setting; options that were not given are left out.
    """
    given = {key: getattr(args, option) for option, key in keys.items()}
    return [*(f"{key}={value}" for key, value in given.items() if value is not None), *args.settings]


def at_least_one(text: str) -> int:
    """An argparse type."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def needs_extra(module: str, extra: str) -> Any:
    """A module of factrl that needs an optional extra.

    Raises:
        MissingExtra: a package that it imports is not installed.
    """
    try:
        return importlib.import_module(f"factrl.{module}")
    except ModuleNotFoundError as error:
        package = (error.name or "factrl").partition(".")[0]
        if package == "factrl":
            raise
        raise MissingExtra(package, extra) from error
