"""Every fault and every attack that the project was built to has a test, or a reason why it has none."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from marked_ids import TABLES, TESTS, files_with, lines, marked, table

ROOT = TESTS.parent
IDS = {
    "fault": [f"F{number:02}" for number in range(1, 33)],
    "security": [f"S{number:02}" for number in range(1, 51)],
}


@pytest.mark.parametrize("mark", TABLES)
def test_every_id_has_a_line_and_every_tested_one_a_test(mark: str) -> None:
    told = table(mark)
    assert sorted([*told["tested"], *told["untested"]]) == IDS[mark], "each id once, in one of the tables"
    assert sorted(files_with(mark)) == sorted(told["tested"]), "marked tests, and what the table says of them"
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


def test_a_mark_must_be_written_out() -> None:
    assert list(marked("@pytest.mark.fault('F01', 'F02')\ndef test_x(): ...")) == [("fault", ["F01", "F02"])]
    assert list(marked("p = pytest.param(1, marks=pytest.mark.security('S01'))")) == [("security", ["S01"])]
    assert list(marked("@pytest.mark.torch\ndef test_x(fault): fault('F01')")) == []
    for bad in ("pytest.mark.fault(*ids)", "pytest.mark.fault(name)", "pytest.mark.fault()"):
        with pytest.raises(ValueError, match="line 1: write the ids out"):
            list(marked(bad))


def test_the_summary_has_a_line_for_each_id() -> None:
    told = {"tested": {"F01": "one", "F03": "three", "F04": "four"}, "untested": {"F02": "two: no such disk"}}
    counts = {"F01": Counter(passed=3, failed=1)}
    files = {"F01": ["a.py"], "F03": ["training/b.py"], "F04": ["c.py"]}
    assert [re.sub(" {2,}", "|", line) for line in lines(told, counts, files)] == [
        "F01|3 passed, 1 failed|one",
        "F02|not tested|two: no such disk",
        "F03|in the run with torch|three",
        "F04|not in this run|four",
    ]
    assert len(list(lines(told, counts, files, only_torch=True))) == 1
