"""`factrl models`: the models that factrl knows by name, and where they are on this machine."""

from __future__ import annotations

import argparse

from factrl.errors import ConfigError, nearest
from factrl.llm import models

from .options import Verbs, add_verb
from .terminal import say, show_table, tell

_ACTIONS = ("list", "get", "path")


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "models",
        _models,
        about="list the models known by name, download one and check it, or say where it is",
        example="examples:\n"
        "  factrl models list\n"
        "  factrl models get Qwen2.5-Coder-1.5B-Instruct\n"
        "  factrl models path cross-encoder/nli-deberta-v3-small",
    )
    parser.add_argument("action", metavar="ACTION", nargs="?", default="list", help="list, get or path")
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="a name from the list, or of the Hugging Face hub"
    )


def _models(args: argparse.Namespace) -> int:
    if args.action not in _ACTIONS:
        raise ConfigError(f"factrl models does not know {args.action!r}{nearest(args.action, _ACTIONS)}")
    if (args.action == "list") != (args.name is None):
        wanted = "takes no NAME" if args.action == "list" else "needs a NAME; factrl models list has them"
        raise ConfigError(f"factrl models {args.action} {wanted}")
    if args.action == "list":
        _list()
    elif args.action == "get":
        say(str(models.get(args.name, check=True)))
    else:
        say(str(models.path(args.name)))
    return 0


def _list() -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("model", "role", "size", "licence", "here"):
        table.add_column(column, no_wrap=True, justify="right" if column == "size" else "left")
    for model in models.known():
        here = "no" if models.cached(model.name) is None else "yes"
        table.add_row(model.name, model.role, f"{model.size / 1e6:,.0f} MB", model.licence, here)
    show_table(table)
    for model in models.known():
        say(f"\n{model.name}: {model.about}\n    from {model.source}")
    tell(f"\nThey are kept in {models.cache_folder() / 'models'}; FACTRL_CACHE names another place.")
