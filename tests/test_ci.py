"""`.ci/run`: which tests it runs depends on the files and the Python, and on no date."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = ["make test", "make check"]
GIT, BASH = (shutil.which(name) or name for name in ("git", "bash"))
SLOW, HOSTS = "python slow and torch", "make test-hosts"
# In the place of make: says what it was called for, and makes the environment whose Python is called later.
MAKE = """#!/bin/sh
echo "make $*" >> "$LOG"
mkdir -p "$VENV/bin"
printf '#!/bin/sh\\nfor last; do :; done\\necho "python $last" >> "$LOG"\\n' > "$VENV/bin/python"
chmod +x "$VENV/bin/python"
"""
OLD = "#!/bin/sh\nexit 1\n"  # a Python before 3.11, asked whether it is one


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    done = subprocess.run([GIT, *identity, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with `.ci/run` and a file of each kind; its programs write down that they were called."""
    folder = tmp_path / "clone"
    for name in (
        "src/factrl/train/a.py",
        "src/factrl/bridges/a.py",
        "tests/hosts/a.py",
        "docs/a.md",
        ".ci/run",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("old")
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    for name, text in (("make", MAKE), ("old-python", OLD)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "old")
    return folder


def calls(clone: Path, *words: str, python: str = sys.executable) -> list[str]:
    log = clone.parent / "log"
    log.unlink(missing_ok=True)
    path = f"{clone.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "LOG": str(log), "PYTHON": python}
    subprocess.run([BASH, ".ci/run", *words], cwd=clone, env=env, capture_output=True, check=True)
    return log.read_text().split("\n")[:-1]


@pytest.mark.parametrize(
    ("changed", "extra"),
    [
        ("docs/a.md", []),
        ("src/factrl/train/a.py", [SLOW]),
        ("tests/hosts/a.py", [HOSTS]),
        ("src/factrl/bridges/a.py", [SLOW, HOSTS]),
    ],
)
@pytest.mark.parametrize("committed", [True, False])
def test_slow_tests_run_where_what_they_test_differs_from_the_commit(
    clone: Path, changed: str, extra: list[str], committed: bool
) -> None:
    if sys.version_info < (3, 11):
        pytest.skip("training needs 3.11")
    base = git(clone, "rev-parse", "HEAD")
    (clone / changed).write_text("new")
    if committed:  # years ago
        git(clone, "commit", "-qam", "new", "--date=2001-01-01T00:00:00")
    assert calls(clone, base) == TESTS + extra
    assert calls(clone) == [*TESTS, SLOW, HOSTS]
    assert calls(clone, "0" * 40) == [*TESTS, SLOW, HOSTS]


def test_before_python_3_11_all_but_training_is_tested(clone: Path) -> None:
    assert calls(clone, python=str(clone.parent / "bin" / "old-python")) == ["make test-core"]
    goals = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert {"test", "test-core", "check", "test-hosts"} <= {*goals}


def test_the_workflow_runs_it_on_every_python_that_the_package_takes() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    assert re.search(r"^ +(?:- )?run: \.ci/run ", workflow, re.M)
    versions = re.findall(r'"(3\.\d+)"', workflow)
    least = re.search(r'requires-python = ">=(3\.\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert least is not None
    assert versions[0] == least[1]
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert f"on Python {versions[0]} to {versions[-1]}" in " ".join(page.split())
