"""The wheel: what is in it, and what it asks for.  No network is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def built(project: Path, out: Path) -> Path:
    """The wheel of a project, made as `pip wheel --no-build-isolation` makes it."""
    command = [sys.executable, "-c", BUILD, str(out)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def about(wheel: Path) -> Message:
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(file.read(name).decode())


def files(folder: Path, under: str) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"{under}/{path.relative_to(folder).as_posix()}" for path in found}


def test_the_package_with_its_recipes_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        held = set(file.namelist())
    own = {name for name in held if ".dist-info/" not in name}
    assert own == files(ROOT / "src" / "factrl", "factrl")
    assert {
        "factrl/py.typed",
        "factrl/recipes/small/questions.jsonl",
        "factrl/studies/picture.svg",
        "factrl/text/chart.css",
        "factrl/text/page.css",
        "factrl/text/page.html",
    } <= own
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in held)


def test_the_core_asks_for_no_torch_and_the_command_is_there(wheel: Path) -> None:
    told = about(wheel)
    core = [need for need in told.get_all("Requires-Dist") or [] if "extra ==" not in need]
    assert len(core) > 5
    assert not {"torch", "transformers", "trl"} & {re.split(r"[^\w-]", need)[0] for need in core}
    assert {"train", "local", "serve", "verl"} <= {*(told.get_all("Provides-Extra") or [])}
    with zipfile.ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith("/entry_points.txt"))
        assert "factrl = factrl.__main__:main" in file.read(name).decode()


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A project with this one's way to find its version, and hardly a file."""
    project = tmp_path / "project"
    package = project / "src" / "factrl"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, project)
    return project


def git(project: Path, *words: str) -> None:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", *words]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
