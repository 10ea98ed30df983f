"""A run: its settings, data, folder, journal and progress."""

from __future__ import annotations

from pathlib import Path

RECIPES = Path(__file__).parents[1] / "recipes"
"""The recipes that come with factrl, one a paper, with the source of every value."""


def recipe_of(name: str) -> Path:
    """factrl's own recipe of a name: `truthrl` has a folder, `rlcr` is a file, as is `small/truthrl`."""
    own = RECIPES / name / "recipe.toml"
    return own if own.is_file() else RECIPES / f"{name}.toml"


def located(path: Path | str) -> Path:
    """The file that a path means: `recipes/rlcr.toml` is factrl's own where there is no other."""
    path = Path(path).expanduser()
    own = RECIPES.parent / path
    is_own = path.parts[:1] == ("recipes",) and not path.exists()
    return own if is_own and (own.exists() or not path.parent.is_dir()) else path
