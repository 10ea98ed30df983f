"""What CONTRIBUTING.md promises about every file, checked."""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import factrl

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "factrl"
HEAVY = {"torch", "transformers", "trl", "datasets", "aiohttp", "pyarrow", "numpy", "pydantic"}


@pytest.mark.parametrize("folder", ["src", "benchmarks", "examples", "docs"])
def test_lines_end_at_a_line_feed_alone(folder: str) -> None:
    # `splitlines` also cuts at U+2028 and at eight other characters that JSON and people leave in texts.
    cuts = re.compile(r"\.(?:splitlines|readlines)\(|map\(json\.loads|loads\(line\) for line in (?!_?whole_)")
    files = [path for path in (ROOT / folder).rglob("*.py") if path != PACKAGE / "runs" / "rows.py"]
    found = [f"{path.name}: {cut[0]}" for path in files for cut in cuts.finditer(path.read_text("utf-8"))]
    assert found == []


# The package


def test_public_names() -> None:
    # Loading a submodule sets it as an attribute of the package, over a function of the same name.
    assert not {*factrl.__all__} & {module.name for module in pkgutil.iter_modules(factrl.__path__)}
    assert sorted(factrl.__all__) == sorted(set(factrl.__all__))
    for name in factrl.__all__:
        assert getattr(factrl, name).__name__ == name
    assert {*factrl.__all__} <= {*dir(factrl)}
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        factrl.no_such_name  # noqa: B018


def test_type_checkers_see_the_names_that_are_loaded_lazily() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == factrl._HOME
    assert {*seen} == {*factrl.__all__}


def test_import_loads_nothing_heavy() -> None:
    loaded = run("import factrl, sys; print(*{name.split('.')[0] for name in sys.modules})").split()
    assert "factrl" in loaded
    assert not HEAVY & {*loaded}


def run(code: str, **environment: str) -> str:
    environment = {**os.environ, **environment}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


# The repository


@pytest.mark.security("S48")
def test_every_dependency_is_pinned() -> None:
    if sys.version_info < (3, 11):
        import tomli as tomllib
    else:
        import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = {
        name(requirement)
        for group in (project["dependencies"], *project["optional-dependencies"].values())
        for requirement in group
    }
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    marker = r'; (python_version (<|>=) "3\.11"|python_full_version (<|>=) "3\.11\.5")'
    assert all(re.fullmatch(rf"[\w-]+==[\w.]+({marker})?", pin) for pin in pins)
    assert wanted - {"factrl"} <= {name(pin) for pin in pins}


def name(requirement: str) -> str:
    return re.split(r"[^\w-]", requirement, maxsplit=1)[0].lower()


# The tests themselves


def test_tests_have_no_network() -> None:
    with pytest.raises(RuntimeError, match="no network"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    with pytest.raises(RuntimeError, match="no network"):
        socket.getaddrinfo("example.com", 80)
    with socket.socket() as probe, pytest.raises(RuntimeError, match="no network"):
        probe.connect_ex(("192.0.2.1", 80))
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1]), timeout=1).close()
