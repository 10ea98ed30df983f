"""The calls that docstrings show give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import factrl
from factrl.errors import MissingExtra

PACKAGE = Path(__file__).parents[2] / "src" / "factrl"
SHOWN = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


@pytest.mark.parametrize("name", SHOWN)
def test_calls_in_docstrings(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except (ModuleNotFoundError, MissingExtra) as error:  # torch, in the environment without
        pytest.skip(str(error))
    assert doctest.testmod(module, extraglobs={"fx": factrl}).failed == 0
