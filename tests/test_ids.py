"""Every fault and every attack that the project was built to has a test, or a reason why it has none."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TESTS = Path(__file__).parent
TABLES = {"fault": TESTS / "faults.toml", "security": TESTS / "security.toml"}
ROOT = TESTS.parent
IDS = {
    "fault": [f"F{number:02}" for number in range(1, 33)],
    "security": [f"S{number:02}" for number in range(1, 51)],
}


def table(mark: str) -> dict[str, Any]:
    """The table of a mark: `tested` and `untested`, id -> one line."""
    return tomllib.loads(TABLES[mark].read_text("utf-8"))


def marked(source: str) -> Iterator[tuple[str, list[str]]]:
    """Every use of the marks in a test file: the mark and its ids, as they are written there.

    Raises:
        ValueError: an id that is not written out, which a reader could not search for.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TABLES:
            owner = node.func.value
            if isinstance(owner, ast.Attribute) and owner.attr == "mark":
                ids = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                if not ids or len(ids) < len(node.args) + len(node.keywords):
                    raise ValueError(f"line {node.lineno}: write the ids out, as strings")
                yield node.func.attr, [str(one) for one in ids]


@pytest.mark.parametrize("mark", TABLES)
def test_every_id_has_a_line_and_every_tested_one_a_test(mark: str) -> None:
    told = table(mark)
    assert sorted([*told["tested"], *told["untested"]]) == IDS[mark], "each id once, in one of the tables"
    sources = [path.read_text("utf-8") for path in TESTS.rglob("test_*.py")]
    found = {one for source in sources for kind, ids in marked(source) if kind == mark for one in ids}
    assert sorted(found) == sorted(told["tested"]), "marked tests, and what the table says of them"
    for one, what in {**told["tested"], **told["untested"]}.items():
        assert len(what) <= 160, one
        assert "\n" not in what
    for one, what in told["untested"].items():
        assert re.search(r": \S", what), f"{one}: say what it is, a colon, and why there is no test"


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
    for goal, told in goals.items():
        assert set(told) - {"but"} == {"what", "shown"}, goal
        assert told["shown"] or told.get("but"), f"{goal}: a test, a benchmark, or a reason"
        for place in told["shown"]:
            name, _, test = place.partition("::")
            assert (ROOT / name).is_file(), f"{goal}: there is no {name}"
            assert name.startswith("benchmarks/") or test in functions_of(ROOT / name), f"{goal}: no {place}"


def test_every_mutation_names_tests_that_are_there() -> None:
    told = tomllib.loads((ROOT / "benchmarks" / "mutations.toml").read_text("utf-8"))
    for place in {place for one in told["mutation"] for place in one["tests"]}:
        name, _, test = place.partition("::")
        assert (ROOT / name).is_file(), f"there is no {name}"
        assert not test or test.partition("[")[0] in functions_of(ROOT / name), f"no {place}"
