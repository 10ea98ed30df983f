"""Every fault and every attack that the project was built to has a test, or a reason why it has none."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TESTS = Path(__file__).parent
ROOT = TESTS.parent
IDS = {
    "fault": [f"F{number:02}" for number in range(1, 33)],
    "security": [f"S{number:02}" for number in range(1, 51)],
}


def table(mark: str) -> dict[str, Any]:
    """`tested` and `untested`, id -> one line."""
    name = "faults" if mark == "fault" else mark
    return tomllib.loads((TESTS / f"{name}.toml").read_text("utf-8"))


def marked(mark: str) -> set[str]:
    """The ids that tests are marked with, as they are written there."""
    found = set[str]()
    for path in TESTS.rglob("test_*.py"):
        for ids in re.findall(rf"mark\.{mark}\(([^()]+)\)", path.read_text("utf-8")):
            found |= {*re.findall(r'"(\w+)"', ids)}
    return found


@pytest.mark.parametrize("mark", IDS)
def test_every_id_has_a_line_and_every_tested_one_a_test(mark: str) -> None:
    ids = table(mark)
    assert sorted([*ids["tested"], *ids["untested"]]) == IDS[mark], "each id once, in one of the tables"
    assert sorted(marked(mark)) == sorted(ids["tested"]), "marked tests, and what the table says of them"
    for one, what in ids["untested"].items():
        assert re.search(r": \S", what), f"{one}: say what it is, a colon, and why there is no test"


@cache
def functions_of(path: Path) -> set[str]:
    """The tests that a file defines."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_every_goal_names_what_shows_it() -> None:
    goals = table("fault")["goals"]
    assert list(goals) == [f"G{number}" for number in range(1, 22)]
    for goal, entry in goals.items():
        assert set(entry) - {"but"} == {"what", "shown"}, goal
        assert entry["shown"] or entry.get("but"), f"{goal}: a test, a benchmark, or a reason"
        for place in entry["shown"]:
            name, _, test = place.partition("::")
            assert (ROOT / name).is_file(), f"{goal}: there is no {name}"
            assert name.startswith("benchmarks/") or test in functions_of(ROOT / name), f"{goal}: no {place}"


def test_every_mutation_names_tests_that_are_there() -> None:
    mutations = tomllib.loads((ROOT / "benchmarks" / "mutations.toml").read_text("utf-8"))
    for place in {place for one in mutations["mutation"] for place in one["tests"]}:
        name, _, test = place.partition("::")
        assert (ROOT / name).is_file(), f"there is no {name}"
        assert not test or test.partition("[")[0] in functions_of(ROOT / name), f"no {place}"
