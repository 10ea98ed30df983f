"""MIGRATION.md names what the command line says is gone, and where what was in Python is now."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from factrl.cli import FORMER, GONE, _parsers

PAGE = (Path(__file__).parents[1] / "MIGRATION.md").read_text("utf-8")
MOVED = re.findall(r"^\| `(factrl\.[\w.]+)` \| `(factrl\.[\w.]+)` \|$", PAGE, re.M)


def find(name: str) -> object:
    """A module, or a name in one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)


@pytest.mark.parametrize("what", [*FORMER, *GONE])
def test_what_the_command_line_says_is_gone_is_on_the_page(what: str) -> None:
    verb, _, option = what.partition(" ")
    verb = verb if option else what
    rows = [row for row in PAGE.split("\n") if row.startswith("| ") and f"factrl {verb.split()[0]}" in row]
    last = what.split()[-1] if option else ""
    assert any(last in row.partition(" | ")[0] for row in rows), f"{what} is in none of {rows}"


def test_what_is_gone_is_gone() -> None:
    _, verbs = _parsers()
    table = PAGE.partition("\n## Commands\n")[2].partition("\n## ")[0]
    gone = re.findall(r"^\| `factrl ([a-z]+) (--[a-z-]+)`", table, re.M)
    assert len(gone) > 15
    for verb, option in gone:
        assert option not in verbs[verb].format_help().split() if verb in verbs else verb in FORMER


def test_python_names_are_where_the_page_says() -> None:
    assert len(MOVED) > 20
    for was, now in MOVED:
        assert find(now) is not None
        with pytest.raises((ImportError, AttributeError)):
            find(was)
