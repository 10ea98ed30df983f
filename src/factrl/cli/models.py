"""`factrl models` and `factrl doctor`: the models known by name, and what this machine has and lacks."""

from __future__ import annotations

import argparse
import json

from factrl.doctor import Diagnostic, examine, megabytes
from factrl.errors import ConfigError, nearest
from factrl.llm import models
from factrl.llm.local.classifiers import VERIFIERS
from factrl.text.escape import one_line

from .options import Verbs, add_options, add_verb
from .terminal import say, show_rows, tell

_ACTIONS = ("list", "get", "path")


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "models",
        _models,
        about="list the models known by name, or download one and check it",
        example="examples:\n"
        "  factrl models list\n"
        "  factrl models get Qwen2.5-Coder-1.5B-Instruct\n"
        "  factrl models path cross-encoder/nli-deberta-v3-small",
    )
    parser.add_argument("action", metavar="ACTION", nargs="?", default="list", help="list, get or path")
    parser.add_argument(
        "name", metavar="NAME", nargs="?", help="a name from the list, or of the Hugging Face hub"
    )
    parser = add_verb(
        verbs,
        "doctor",
        _doctor,
        about="look at this machine: packages, models, cache, keys, judge",
        example=(
            "example:\n  factrl doctor\n"
            "exit code: 0 nothing is wrong, whatever optional parts are missing; 1 otherwise"
        ),
    )
    add_options(parser, json="print JSON instead of lines")


def _models(args: argparse.Namespace) -> int:
    if args.action not in _ACTIONS:
        raise ConfigError(f"factrl models does not know {args.action!r}{nearest(args.action, _ACTIONS)}")
    if (args.action == "list") != (args.name is None):
        wanted = "takes no NAME" if args.action == "list" else "needs a NAME; factrl models list has them"
        raise ConfigError(f"factrl models {args.action} {wanted}")
    if args.action == "list":
        _list_models()
    else:
        say(str(models.get(args.name, check=True) if args.action == "get" else models.path(args.name)))
    return 0


def _list_models() -> None:
    rows = [
        (
            model.name,
            model.role,
            megabytes(model.size),
            model.licence,
            "no" if models.cached(model.name) is None else "yes",
        )
        for model in models.MODELS
    ]
    show_rows(("model", "role", "size", "licence", "here"), rows, lines=False)
    for model in models.MODELS:
        say(f"\n{model.name}: {model.about}\n    from {model.source}")
    say("\nVerifiers of the field, as --judge NAME or NAME:FOLDER (balanced accuracy on LLM-AggreFact):")
    for row in VERIFIERS.values():
        agrees = "not known" if row.aggrefact is None else f"{row.aggrefact} %"
        code = "runs code of its own, which trust_remote_code=true allows" if row.code else ""
        say(f"\n{row.name}: {'; '.join(filter(None, (agrees, row.licence, code, row.note)))}")
        say(f"    factrl models get {row.address}")
    tell(f"\nThey are kept in {models.cache_folder() / 'models'}; FACTRL_CACHE names another place.")


def _doctor(args: argparse.Namespace) -> int:
    diagnostics: list[Diagnostic] = []
    for one in examine():
        diagnostics.append(one)
        if not args.json:
            say(f"{one.state:<9}{one_line(one.what):<14} {one_line(one.detail)}")
    if args.json:
        say(json.dumps([one._asdict() for one in diagnostics], indent=2))
    return int(any(one.state == "wrong" for one in diagnostics))
