"""Every guard and invariant switched off once: does a test notice?

    python benchmarks/mutations.py [ID ...] [--list]

`mutations.toml` says what is switched off, by which replacement in which file, and which tests must fail
then.  It happens in a copy of the tree, so the working tree is never touched.  The chosen tests first have to
pass as they are, all together.  A row survives when its tests pass; what it replaces has to stand in its file
exactly once.  Ends with 1 when a row survived, no longer applies or could not be run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

ROOT = Path(__file__).parents[1]
COPIED = ("src", "tests", "recipes", "docs", "benchmarks", "pyproject.toml", "README.md", "Makefile")
SECONDS = 600  # for the tests of one row; a hang shows nothing on a busy machine, so it is no success
SLOW = ("hypothesis.strategies", "numpy", "pyarrow.parquet", "pydantic", "aiohttp", "rich.console", "fastapi")
_FAILED = re.compile(r"^FAILED (\S+?)(?:\[.*)?(?: - .*)?$", re.M)


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()  # else a fork writes it again


@dataclass(frozen=True)
class Mutation:
    """One thing that is switched off.

    Attributes:
        id: one word.
        off: what is so then.
        file: where, from the root of the tree.
        old, new: what is replaced, by what; `old` stands there exactly once.
        tests: what must notice, as pytest names it.
    """

    id: str
    off: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def trains(self) -> bool:
        """Whether its tests need torch."""
        return any(name.startswith("tests/training/") for name in self.tests)

    def apply(self, tree: Path) -> str:
        """Replace it; returns what the file was before.

        Raises:
            ValueError: `old` does not stand there exactly once.
        """
        path = tree / self.file
        text = path.read_text("utf-8")
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.old.strip()!r} stands {found} times in {self.file}")
        path.write_text(text.replace(self.old, self.new), "utf-8")
        return text


def declared() -> list[Mutation]:
    """The rows of `mutations.toml`."""
    rows = tomllib.loads((Path(__file__).parent / "mutations.toml").read_text("utf-8"))["mutation"]
    return [Mutation(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def run_tests(tree: Path, tests: Sequence[str], seconds: float = SECONDS) -> tuple[str, list[str]]:
    """How tests ended (`passed`, `failed` or what went wrong), and those that failed.

    They run in a fork of this process, which has imported what is slow to import and never factrl itself.
    """
    with tempfile.TemporaryFile("w+") as log:
        child = os.fork()
        if child == 0:
            _be_pytest(tree, tests, log.fileno())
        ends = time.monotonic() + seconds
        while (found := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > ends:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return f"not done within {seconds:.0f} s", []
            time.sleep(0.05)
        log.seek(0)
        said = log.read()
    code = os.waitstatus_to_exitcode(found[1])
    failed = list(dict.fromkeys(_FAILED.findall(said)))
    if code == 0:
        return "passed", []
    if code == 1 and failed:
        return "failed", failed
    return f"pytest ended with {code}: {said[-400:].strip()}", []


def _be_pytest(tree: Path, tests: Sequence[str], log: int) -> None:
    """Become a test run; never returns."""
    code = 70
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(tree)
        sys.path.insert(0, str(tree / "src"))
        sys.dont_write_bytecode = True
        # Subprocesses of a test find the copy too.  Without plugins: they cost a second, and none is needed.
        os.environ.update(PYTHONPATH=str(tree / "src"), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
        code = pytest.main(["-q", "--tb=no", "-p", "no:cacheprovider", "-rf", *tests])
    finally:
        sys.stdout.flush()
        os._exit(int(code))


def check(tree: Path, mutation: Mutation) -> tuple[bool, str]:
    """Whether a row was noticed, and by which tests; or why not."""
    try:
        before = mutation.apply(tree)
    except ValueError as error:
        return False, f"NO LONGER APPLIES: {error}"
    try:
        ended, failed = run_tests(tree, mutation.tests)
    finally:
        (tree / mutation.file).write_text(before, "utf-8")
    if ended == "failed":
        return True, ", ".join(dict.fromkeys(name.partition("::")[2] for name in failed))
    return False, "SURVIVED" if ended == "passed" else ended


def copied(target: Path) -> Path:
    """A copy of what tests read."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, target / name)
    return target


def main() -> int:
    """Check the rows; prints a table."""
    parser = argparse.ArgumentParser(description="Every guard and invariant switched off once.")
    parser.add_argument("ids", nargs="*", help="rows to check; all by default")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    told = parser.parse_args()
    chosen = [row for row in declared() if not told.ids or row.id in told.ids]
    unknown = {*told.ids} - {row.id for row in chosen}
    if unknown or not chosen:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    if told.list:
        say("\n".join(f"{row.id:<22} {row.off}" for row in chosen))
        return 0
    if find_spec("torch") is None:
        left = [row.id for row in chosen if row.trains]
        chosen = [row for row in chosen if not row.trains]
        say(f"without torch these are left out: {', '.join(left) or 'none'}\n")
    for name in SLOW:
        if find_spec(name.partition(".")[0]) is not None:
            import_module(name)
    with tempfile.TemporaryDirectory(prefix="factrl-mutations-") as folder:
        tree = copied(Path(folder))
        every = sorted({name for row in chosen for name in row.tests})
        ended, failing = run_tests(tree, every, SECONDS + 10 * len(every))
        if ended not in ("passed", "failed"):
            say(f"the tests do not run as they are: {ended}")
            return 1
        say("| id | switched off | tests that fail |\n| --- | --- | --- |")
        noticed = 0
        for row in chosen:
            already = [name for name in failing if name.startswith(row.tests)]
            good, by = (False, f"fails as it is: {already[0]}") if already else check(tree, row)
            noticed += good
            say(f"| {row.id} | {row.off} | {by if good else f'**{by}**'} |")
    say(f"\n{noticed} of {len(chosen)} noticed")
    return 0 if noticed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
