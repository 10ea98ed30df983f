"""What CONTRIBUTING.md promises about every file, checked."""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import factrl

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "factrl"
FILES = sorted(PACKAGE.rglob("*.py"))
NO_WORDS = {"utils", "util", "common", "helpers", "helper", "base", "core", "misc"}
HEAVY = {"torch", "transformers", "trl", "datasets", "aiohttp", "pyarrow", "numpy", "pydantic"}
EVERYTHING = r"\b(everything|Exception|BaseException)\b"
Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def of_each_file(rule: Callable[[Path], None]) -> Callable[[], None]:
    """A test that holds every file to a rule and names all that break it."""

    def test() -> None:
        broken = []
        for path in FILES:
            try:
                rule(path)
            except AssertionError as error:  # noqa: PERF203  # all of them are named
                broken.append(f"{path.relative_to(PACKAGE)}: {error}")
        assert not broken, "\n".join(broken)

    test.__name__ = rule.__name__
    return test


def undocumented(source: str) -> Iterator[str]:
    """The module, and its public functions and classes, that have no docstring."""
    tree = ast.parse(source)
    for node in (tree, *tree.body):
        name = getattr(node, "name", "")
        public = isinstance(node, (*Function, ast.ClassDef, ast.Module)) and not name.startswith("_")
        overload = any(ast.unparse(d) == "overload" for d in getattr(node, "decorator_list", ()))
        if public and not overload and not ast.get_docstring(node):
            yield name or "the module"


def swallowing(source: str) -> Iterator[str]:
    """Handlers that would swallow every error."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            if re.search(EVERYTHING, ast.unparse(node)):
                yield ast.unparse(node)
        elif isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else "everything"
            last = node.body[-1]
            goes_on = isinstance(last, ast.Raise) and last.exc is None
            if re.search(EVERYTHING, caught) and not goes_on:
                yield f"except {caught}"


@of_each_file
def test_a_module_is_a_word_that_a_user_would_say(path: Path) -> None:
    assert not NO_WORDS & {*path.relative_to(PACKAGE).with_suffix("").parts}


@of_each_file
def test_what_is_public_is_explained(path: Path) -> None:
    assert list(undocumented(path.read_text("utf-8"))) == []


@of_each_file
def test_nothing_swallows_errors(path: Path) -> None:
    # The boundary around the user's reward: what it catches becomes an error that names reward and sample.
    allowed = ["except Exception"] if path == PACKAGE / "rewards" / "__init__.py" else []
    assert list(swallowing(path.read_text("utf-8"))) == allowed


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("with suppress(OSError, Exception): x", "suppress(OSError, Exception)"),
        ("try: x\nexcept: pass", "except everything"),
        ("try: x\nexcept (OSError, Exception): pass", "except (OSError, Exception)"),
        ("try: x\nexcept BaseException as e: raise ValueError from e", "except BaseException"),
    ],
)
def test_the_scan_finds(source: str, found: str) -> None:
    assert list(swallowing(source)) == [found]


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


def test_import_takes_less_than_300_milliseconds_of_cpu() -> None:
    code = "import time; t = time.process_time(); import factrl; print(time.process_time() - t)"
    assert min(float(run(code)) for _ in range(5)) < 0.3


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


def test_no_path_of_one_machine() -> None:
    files = [
        ROOT / "Makefile",
        *(path for end in ("toml", "txt", "md", "yaml") for path in ROOT.glob(f"*.{end}")),
    ]
    for folder in (".ci", "src", "tests", "docs", "notebook", "recipes"):
        files += (path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc")
    here = re.compile(rb"(?<![\w.~-])/(work|root|tmp/\w)\b")
    found = [str(path) for path in files if here.search(path.read_bytes())]
    assert found == []


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
