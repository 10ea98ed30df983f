"""MIGRATION.md says where what was in Python is now."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "MIGRATION.md").read_text("utf-8")
MOVED = re.findall(r"^\| `(factrl\.[\w.]+)` \| `(factrl\.[\w.]+)` \|$", PAGE, re.M)


def find(name: str) -> object:
    """A module, or a name in one."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)


def test_python_names_are_where_the_page_says() -> None:
    assert len(MOVED) > 20
    for was, now in MOVED:
        assert find(now) is not None
        with pytest.raises((ImportError, AttributeError)):
            find(was)
