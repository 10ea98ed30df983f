"""docs/design.md says which wing imports which, where torch is and what a verb runs: the code does so."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "factrl"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}
WITH_TORCH = re.compile(r"train\.|studies\.engine$|bridges\.verl_(agent|plugin)$|llm\.local\.int8$")


def wings(page: str) -> dict[str, int]:
    """Package or module at the top -> its place, from the table of the page."""
    section = page.partition("\n## The wings\n")[2].partition("\n## ")[0]
    names = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert len(names) == len({*names}), "a wing is listed twice"
    return {name: number for number, name in enumerate(names)}


def imported(source: str, package: str) -> Iterator[str]:
    """What the top of a file imports: factrl's modules without `factrl.`, and the names of other packages.

    Args:
        package: the package that the file is in, `factrl` or `factrl.train`.
    """
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            start = ".".join([*up, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{start}.{alias.name}"
                yield name.removeprefix("factrl.") if name.startswith("factrl.") else start


def package_of(path: Path) -> str:
    return ".".join(("factrl", *path.relative_to(PACKAGE).parent.parts))


def upward(layer: Mapping[str, int], name: str, source: str, package: str) -> list[str]:
    """Imports of a module that its layer does not allow."""
    own = layer[name.split(".")[0]]
    return [top for top in imported(source, package) if layer.get(top.split(".")[0], -1) > own]


PAGE = (ROOT / "docs" / "design.md").read_text("utf-8")


def imports() -> dict[str, list[str]]:
    """Every module with what is imported at its top."""
    return {name: [*imported(path.read_text("utf-8"), package_of(path))] for name, path in MODULES.items()}


def test_every_module_has_a_wing() -> None:
    assert {*wings(PAGE)} == {name.split(".")[0] for name in MODULES}


def test_no_module_imports_a_later_wing() -> None:
    order = wings(PAGE)
    found = {
        name: upward(order, name, path.read_text("utf-8"), package_of(path)) for name, path in MODULES.items()
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = {name: {module_of(top) for top in tops} - {None, name} for name, tops in imports().items()}
    assert circles(known) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == ["a", "b", "c"]


def module_of(top: str) -> str | None:
    """The module of factrl that an import names, or a name of which it has; None for another package's."""
    return next((name for name in (top, top.rpartition(".")[0]) if name in MODULES), None)


def circles(known: Mapping[str, set]) -> list[str]:
    """The modules that reach themselves."""
    left = dict(known)
    while free := [name for name, tops in left.items() if not tops & left.keys()]:
        for name in free:
            del left[name]
    reached = {name: {*tops} & left.keys() for name, tops in left.items()}
    for _ in left:
        reached = {name: tops.union(*(reached[top] for top in tops)) for name, tops in reached.items()}
    return sorted(name for name, tops in reached.items() if name in tops)


def test_torch_is_imported_where_the_page_says() -> None:
    heavy = {"torch", "transformers", "trl", "peft", "accelerate", "datasets"}
    found = [
        name
        for name, path in MODULES.items()
        if heavy & {top.split(".")[0] for top in imported(path.read_text("utf-8"), package_of(path))}
    ]
    assert found
    assert [name for name in found if not WITH_TORCH.match(name)] == []


def test_the_picture_has_the_order_of_the_table() -> None:
    order = wings(PAGE)
    picture = PAGE.partition("```text\n")[2].partition("```")[0].splitlines()
    rows = [[order[word] for word in line.split() if word in order] for line in picture]
    assert sorted(chain(*rows)) == sorted({*order.values()} - {order["__main__"]})
    assert all(min(above) > max(below) for above, below in pairwise(rows))


def steps(verb: str) -> list[tuple[str, str]]:
    """The files of a walk with the function or class that the page names of each, in order."""
    walk = PAGE.partition(f"\n### {verb}\n")[2].partition("\n#")[0]
    return re.findall(r"`([\w/]+\.py)` `(\w+)`", walk)


@pytest.mark.parametrize("verb", ["train", "verify", "eval"])
def test_a_walk_names_what_there_is(verb: str) -> None:
    assert len(steps(verb)) > 5
    for file, name in steps(verb):
        source = (PACKAGE / file).read_text("utf-8")
        assert re.search(rf"(?:def|class) {name}\b", source), f"{file} has no {name}"


@pytest.mark.parametrize(
    "command", ["verify text.txt --docs curie.txt --judge weak --no-cache", "eval answers.jsonl"]
)
def test_a_walk_runs_the_files_that_it_names(command: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Marie Curie was born in 1868.", "utf-8")
    (tmp_path / "curie.txt").write_text((ROOT / "examples" / "curie.txt").read_text("utf-8"), "utf-8")
    row = {"question": "Where was she born?", "answers": ["Warsaw"], "completion": "She was born in Warsaw."}
    (tmp_path / "answers.jsonl").write_text(json.dumps(row), "utf-8")
    words = [sys.executable, str(ROOT / "benchmarks" / "walk.py"), *command.split()]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    named = [file for file, _ in steps(command.split()[0])]
    assert [file for file in named if f"\n{file}: " not in f"\n{ran}"] == []


def test_what_is_not_allowed_is_found() -> None:
    layer = {"types": 0, "rewards": 1, "train": 2}
    assert upward(layer, "types", "from .rewards import Reward", "factrl") == ["rewards.Reward"]
    assert upward(layer, "rewards", "from . import train, types", "factrl") == ["train"]
    assert upward(layer, "rewards", "def f():\n    from .train import x", "factrl") == []
    assert upward(layer, "train.model", "from .. import types\nfrom ..rewards import x", "factrl.train") == []
