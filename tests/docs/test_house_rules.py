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

ROOT = Path(__file__).parents[2]
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


NEED_TORCH = {
    *("bridges.openrlhf", "bridges.verl_agent", "bridges.verl_plugin", "llm.local.int8", "studies.engine"),
}
"""Beside what trains."""
IMPORTED = """
import importlib, pkgutil, sys
for name in ("torch", "transformers", "trl", "peft", "accelerate", "safetensors", "xllamacpp"):
    sys.modules[name] = None  # as where it is not installed
import factrl
for module in pkgutil.walk_packages(factrl.__path__, "factrl."):
    try:
        importlib.import_module(module.name)
    except ImportError as error:
        if error.name == "torch":
            print(module.name.removeprefix("factrl."))
"""


def test_without_torch_every_module_loads_but_those_that_train() -> None:
    """So one environment, with torch, can run the tests of what needs none."""
    lacking = {*run(IMPORTED).split()}
    assert "train.grpo" in lacking
    assert {module for module in lacking if not module.startswith("train.")} <= NEED_TORCH


COUNTED = """
import re, sys
first, compiled, make = len(sys.modules), [], re._compile
def _compile(pattern, flags):
    if sys._getframe(2).f_globals["__name__"].startswith("factrl"):
        compiled.append(pattern)
    return make(pattern, flags)
re._compile = _compile
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()):
    {code}
print(len(sys.modules) - first, sum(name.startswith("factrl") for name in sys.modules), len(compiled))
"""


@pytest.mark.parametrize(
    ("code", "most"),
    [
        ("import factrl", (40, 1, 0)),
        ("from factrl.cli import main; main(['--help'])", (180, 8, 8)),
    ],
)
def test_few_modules_and_regular_expressions_are_made_at_the_start(code: str, most: tuple[int, ...]) -> None:
    """Loading costs what is loaded: .02 and .08 CPU seconds with so many modules, all, ours, and patterns."""
    counts = [int(count) for count in run(COUNTED.replace("{code}", code)).split()]
    assert all(count <= limit for count, limit in zip(counts, most, strict=True)), counts


def run(code: str, **environment: str) -> str:
    environment = {**os.environ, **environment}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


# The repository


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
