"""`factrl show`: what the papers are, and where each of their values is from."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from factrl.errors import ConfigError
from factrl.papers import (
    declared,
    load_paper,
    load_reward,
    paper_names,
    rewards_of,
    settings_of,
    split_spec,
)
from factrl.rewards import Reward
from factrl.runs.config import flat, settable
from factrl.runs.settings import RunSettings

from .describe import shown
from .options import RECIPES, Verbs, add_verb
from .terminal import say, show_rows

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]


_KINDS = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    dict: "table",
    tuple: "list",
}


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "show",
        _show,
        about="list the papers, or one paper's settings with their sources, variants and published numbers",
        example="examples:\n  factrl show truthrl:binary\n  factrl show --settings",
    )
    parser.add_argument("paper", nargs="?", metavar="PAPER", help="truthrl, truthrl:binary or my.py:reward")
    parser.add_argument("--settings", action="store_true", help="list every setting of train")


def _show(args: argparse.Namespace) -> int:
    if args.settings and args.paper is not None:
        raise ConfigError("--settings stands alone; factrl show PAPER lists the knobs of a reward")
    if args.settings:
        _list_settings()
    elif args.paper is None:
        for name in paper_names():
            say(f"{name:<12}{(load_paper(name).__doc__ or '').partition(chr(10))[0]}")
    else:
        _explain(args.paper)
    return 0


def kind(annotation: Any) -> str:
    """What a setting takes, in words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind(inner[0])
    if origin is Literal:
        return " | ".join(map(str, inner))
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(kind(part) for part in inner if part is not NoneType))
    return _KINDS.get(origin or annotation, "any value")


def _explain(spec: str) -> None:
    module, reward = load_paper(split_spec(spec)[0]), load_reward(spec)
    rewards = rewards_of(module)
    main = next(iter(rewards.values()))
    say((module.__doc__ or inspect.getdoc(reward.fn) or "").strip())
    path = recipe_path(spec)
    if path is not None:
        rows = [(key, shown(value), source) for key, value, source in sourced(path.read_text("utf-8"))]
        show_rows(("setting", "value", "source"), rows, lines=False)
    elif own := flat(settings_of(spec)):
        show_rows(("setting", "value"), [(key, shown(value)) for key, value in own.items()], lines=False)
    own = declared(spec, "VARIANT_SETTINGS", {})
    differ = [(n, ", ".join(differences(other, main, own.get(n, {})))) for n, other in rewards.items()]
    show_rows(("variant", "what differs"), differ, lines=False)
    published: Mapping[tuple[str, str, str], float] = getattr(module, "PUBLISHED", {})
    if published:
        rows = [(where, row, metric, f"{value:g}") for (where, row, metric), value in published.items()]
        show_rows(("published", "", "metric", ""), rows, lines=False)
    say(f"\nWhat it pays, its knobs and what it needs: factrl describe {spec}")


def differences(reward: Reward, main: Reward, settings: Mapping[str, Any]) -> list[str]:
    """What of a variant is not as in the main one; `settings` are those of its own, of prompts the name."""
    changed = [f"{k}={shown(v)}" for k, v in reward.knobs.items() if v != main.knobs.get(k)]
    changed += [k if k.startswith("data.") else f"{k}={shown(v)}" for k, v in flat(settings).items()]
    return [*([reward.name] if reward.fn is not main.fn else []), *changed]


def recipe_path(spec: str) -> Path | None:
    """The recipe of a paper; None for a file of one's own."""
    name, _ = split_spec(spec)
    paths = (folder / f"{name}.toml" for folder in RECIPES)
    return next((path for path in paths if path.is_file()), None) if name in paper_names() else None


def sourced(recipe: str) -> Iterator[tuple[str, Any, str]]:
    """The settings of a recipe with the comment behind each, which says where its value is from.

    Texts of several lines are left out: they are prompts.

    Args:
        recipe: TOML.

    Yields:
        `train.beta`, its value, and the comment without its `#`.
    """
    document, section = tomllib.loads(recipe), ""
    for line in recipe.split("\n"):
        if line.startswith("["):
            section = line.partition("]")[0].strip("[")
        try:
            here = tomllib.loads(line)
        except tomllib.TOMLDecodeError:  # one of several lines
            continue
        table = document.get(section, {}) if section else document
        for key, value in here.items():
            if table.get(key) == value:
                yield f"{section}.{key}" if section else key, value, line.partition(" #")[2].strip()


def _list_settings() -> None:
    for key, field in settable(RunSettings).items():
        default = field.get_default(call_default_factory=True)
        usual = (
            "required" if field.is_required() else f"default {'none' if default is None else shown(default)}"
        )
        say(f"{key}: {kind(field.annotation)}, {usual}")
        say(f"    {' '.join((field.description or '').split())}")
