"""`factrl doctor`: what this machine has and lacks; it gets models, too."""

from __future__ import annotations

import argparse
import json

from factrl.doctor import Diagnostic, examine
from factrl.llm import models
from factrl.text.escape import one_line

from .options import Verbs, add_option, add_options, add_verb
from .terminal import say


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "doctor",
        _doctor,
        about="look at this machine: packages, models, cache, keys, judge",
        example=(
            "examples:\n  factrl doctor\n  factrl doctor --get Qwen2.5-Coder-1.5B-Instruct\n"
            "exit code: 0 nothing is wrong, whatever optional parts are missing; 1 otherwise"
        ),
    )
    add_options(parser, json="print JSON instead of lines")
    add_option(parser, "--get MODEL", "download a model of the list, or of the hub, and check it")


def _doctor(args: argparse.Namespace) -> int:
    if args.get:
        say(str(models.get(args.get, check=True)))
        return 0
    diagnostics: list[Diagnostic] = []
    for one in examine():
        diagnostics.append(one)
        if not args.json:
            say(f"{one.state:<9}{one_line(one.what):<14} {one_line(one.detail)}")
    if args.json:
        say(json.dumps([one._asdict() for one in diagnostics], indent=2))
    return int(any(one.state == "wrong" for one in diagnostics))
