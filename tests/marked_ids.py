"""Which fault or attack a test is about: the marks `fault` and `security`, and what is printed of them.

`tests/faults.toml` and `tests/security.toml` list every id once: under `[tested]` with what it is, or under
`[untested]` with what it is and why no test shows it.  Under `-m fault` or `-m security` pytest's summary has
a line for each id.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

TESTS = Path(__file__).parent
TABLES = {"fault": TESTS / "faults.toml", "security": TESTS / "security.toml"}
TORCH = "training"  # the folder whose tests need torch, and so run in an environment of their own

_IDS = pytest.StashKey[dict[str, dict[str, list[str]]]]()  # mark -> node id -> ids
_SHOWN = ("passed", "failed", "error", "skipped", "xfailed")


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


@functools.cache
def files_with(mark: str) -> Mapping[str, set[str]]:
    """Id -> the test files that are marked with it, relative to the tests' folder."""
    found = defaultdict[str, set[str]](set)
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text("utf-8")
        for kind, ids in marked(source) if f"mark.{mark}" in source else ():
            for one in ids if kind == mark else ():
                found[one].add(path.relative_to(TESTS).as_posix())
    return dict(found)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remember which test is about which ids."""
    config.stash[_IDS] = {
        mark: {
            item.nodeid: [one for found in item.iter_markers(mark) for one in found.args] for item in items
        }
        for mark in TABLES
    }


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """A line for each id: what it is, and what became of its tests."""
    chosen = str(config.getoption("markexpr"))
    for mark, file in TABLES.items():
        if not re.search(rf"\b(?<!not ){mark}\b", chosen) or not file.exists():
            continue
        of_test = config.stash.get(_IDS, {}).get(mark, {})
        counts = defaultdict[str, Counter[str]](Counter)
        for outcome in _SHOWN:
            for report in terminalreporter.stats.get(outcome, ()):
                for one in of_test.get(getattr(report, "nodeid", ""), ()):
                    counts[one][outcome] += 1
        terminalreporter.section(f"{mark}: by id")
        only_torch = re.search(r"\b(?<!not )torch\b", chosen) is not None
        for line in lines(table(mark), counts, files_with(mark), only_torch):
            terminalreporter.write_line(line)


def lines(
    told: Mapping[str, Any],
    counts: Mapping[str, Counter[str]],
    files: Mapping[str, Iterable[str]],
    only_torch: bool = False,
) -> Iterator[str]:
    """The summary, id by id.

    Args:
        told: a table.
        counts: id -> outcome -> tests of this run.
        files: id -> the files that have tests of it, whether or not they were in this run.
        only_torch: leave out ids without a test in this run; the run without torch has told of them.
    """
    for one, what in sorted({**told["tested"], **told["untested"]}.items()):
        count = counts.get(one, Counter())
        if only_torch and not count:
            continue
        result = ", ".join(f"{count[outcome]} {outcome}" for outcome in _SHOWN if count[outcome])
        if one in told["untested"]:
            result = "not tested"
        elif not count:
            with_torch = all(file.startswith(f"{TORCH}/") for file in files.get(one, ()))
            result = "in the run with torch" if with_torch else "not in this run"
        yield f"{one}  {result:<22} {what}"
