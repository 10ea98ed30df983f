"""docs/design.md says which wing imports which, where torch is and what a verb runs: the code does so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "factrl"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py" and "recipes" not in path.parts  # scripts, which nobody imports
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
    TopologicalSorter(known).prepare()  # its CycleError names the circle


def module_of(top: str) -> str | None:
    """The module of factrl that an import names, or a name of which it has; None for another package's."""
    return next((name for name in (top, top.rpartition(".")[0]) if name in MODULES), None)


def test_torch_is_imported_where_the_page_says() -> None:
    heavy = {"torch", "transformers", "trl", "peft", "accelerate", "datasets"}
    found = [
        name
        for name, path in MODULES.items()
        if heavy & {top.split(".")[0] for top in imported(path.read_text("utf-8"), package_of(path))}
    ]
    assert found
    assert [name for name in found if not WITH_TORCH.match(name)] == []
