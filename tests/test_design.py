"""docs/design.md says which module may import which, and where torch is: the imports say the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "factrl"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}
WITH_TORCH = re.compile(r"(train|demo|lab)\.|bridges\.verl_(agent|plugin)$")


def layers(page: str) -> dict[str, int]:
    """Module -> number of its layer, from the table of the page."""
    section = page.partition("\n## Layers\n")[2].partition("\n## ")[0]
    rows = [row.split("|")[3] for row in re.findall(r"^\|.*`.*\|$", section, re.M)]
    found = [(name, number) for number, row in enumerate(rows) for name in re.findall(r"`(\w+)`", row)]
    assert len(found) == len(dict(found)), "a module is in two layers"
    return dict(found)


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


def test_every_module_has_a_layer() -> None:
    layer = layers((ROOT / "docs" / "design.md").read_text("utf-8"))
    assert {*layer} == {name.split(".")[0] for name in MODULES}


def test_no_module_imports_a_later_layer() -> None:
    layer = layers((ROOT / "docs" / "design.md").read_text("utf-8"))
    found = {
        name: upward(layer, name, path.read_text("utf-8"), package_of(path)) for name, path in MODULES.items()
    }
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_torch_is_imported_where_the_page_says() -> None:
    heavy = {"torch", "transformers", "trl", "peft", "accelerate", "datasets"}
    found = [
        name
        for name, path in MODULES.items()
        if heavy & {top.split(".")[0] for top in imported(path.read_text("utf-8"), package_of(path))}
    ]
    assert found
    assert [name for name in found if not WITH_TORCH.match(name)] == []


def test_what_is_not_allowed_is_found() -> None:
    layer = {"types": 0, "rewards": 1, "train": 2}
    assert upward(layer, "types", "from .rewards import Reward", "factrl") == ["rewards.Reward"]
    assert upward(layer, "types", "from factrl.train.model import x", "factrl") == ["train.model.x"]
    assert upward(layer, "rewards", "from . import train, types", "factrl") == ["train"]
    assert upward(layer, "rewards", "def f():\n    from .train import x", "factrl") == []
    assert upward(layer, "train.model", "from .. import types\nfrom ..rewards import x", "factrl.train") == []
    assert list(imported("import torch\nfrom torch.nn import f", "factrl")) == ["torch", "torch.nn"]
