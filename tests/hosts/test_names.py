"""Where a host has moved a name that factrl uses, this fails; the other tests here would be skipped."""

from __future__ import annotations

import ast
import importlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOSTS = {"inspect_ai": "inspect-ai", "openenv": "openenv", "verifiers": "verifiers"}  # package: distribution
PLACES = ("src/factrl/bridges/*.py", "examples/*.py", "examples/*/__init__.py", "tests/hosts/*.py")


def used(package: str) -> set[tuple[str, str]]:
    """Module and name of whatever these files take from a package."""
    names = set[tuple[str, str]]()
    for file in (file for place in PLACES for file in ROOT.glob(place)):
        nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
        modules = {
            alias.asname: alias.name
            for node in nodes
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.asname and alias.name.partition(".")[0] == package
        }
        for node in nodes:
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == package:
                names |= {(node.module or "", alias.name) for alias in node.names}
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                names |= {(modules[node.value.id], node.attr)} if node.value.id in modules else set()
    return names


@pytest.mark.parametrize("package", HOSTS)
def test_a_host_still_has_the_names_that_factrl_uses(package: str) -> None:
    try:
        version(HOSTS[package])
    except PackageNotFoundError:
        pytest.skip("needs tests/hosts/requirements.txt")
    names = used(package)
    assert names
    moved = [
        f"{module}.{name}" for module, name in names if not hasattr(importlib.import_module(module), name)
    ]
    assert not moved, f"{HOSTS[package]} {version(HOSTS[package])} has no {', '.join(moved)}"
