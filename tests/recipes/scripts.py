"""Scripts of a recipe's folder, run in this process."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any


def load(path: Path) -> Any:
    """A script as a module of its own; other folders have scripts of the same name."""
    spec: Any = importlib.util.spec_from_file_location(f"recipe_{path.parent.name}_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def script(path: Path, *words: str) -> None:
    """Run its `main` with these words."""
    load(path).main(list(words))
