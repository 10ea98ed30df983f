"""`factrl show`: the papers, and of one what its reward pays, its knobs, its variants and what it needs."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from factrl.errors import ConfigError, RewardBug
from factrl.job import REWARD_ALONE, read_job
from factrl.papers import Paper, load_paper, paper_names, split_spec
from factrl.rewards import Reward
from factrl.rewards.needs import RESOURCES
from factrl.runs import recipe_of
from factrl.runs.config import flat, settable
from factrl.runs.settings import RunSettings
from factrl.stress.payoffs import OUTCOMES, Payoff, payoffs
from factrl.types import Result

from .options import Verbs, add_option, add_settings, add_verb
from .terminal import complain, say, show_rows

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
        about="list the papers, or what one's reward pays, its knobs, variants",
        example="examples:\n  factrl show truthrl:binary\n  factrl show truthrl reward.wrong=-3\n"
        "  factrl show --settings\n"
        "exit code: 0 all is shown; 1 what the reward pays is not known;\n"
        "2 the reward is broken",
    )
    parser.add_argument("paper", nargs="?", metavar="SPEC", help="truthrl, truthrl:binary or my.py:reward")
    add_option(parser, "--settings", "list every setting of train and eval", dest="list_settings")
    add_settings(parser, "knobs, e.g. reward.wrong=-3")


def _show(args: argparse.Namespace) -> int:
    if args.list_settings and (args.paper is not None or args.settings):
        raise ConfigError("--settings stands alone; factrl show SPEC lists the knobs of a reward")
    if args.settings and args.paper is None:
        raise ConfigError(f"{args.settings[0]}: of which reward? Give factrl show SPEC {args.settings[0]}")
    if args.list_settings:
        _list_settings()
    elif args.paper is None:
        for name in paper_names():
            say(f"{name:<12}{load_paper(name).about.partition(chr(10))[0]}")
    else:
        return _explain(args.paper, args.settings)
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


def _explain(spec: str, words: Sequence[str]) -> int:
    """Everything about one reward; 1 where nobody can tell what it pays, 2 where it is broken."""
    paper = load_paper(split_spec(spec)[0])
    reward = read_job(None, [f"paper={spec}", *REWARD_ALONE, *words]).reward
    if paper.about:
        say(f"{paper.about}\n")
    about = " ".join((inspect.getdoc(reward.fn) or "").partition("\n\n")[0].split())
    say(f"{spec}: {about}" if about else spec)
    unknown, broken = "", False
    try:
        paid = payoffs(reward)
        _show_payoffs(paid)
        if not any(payoff.value(name) is not None for payoff in paid for name in OUTCOMES):
            unknown = "none of the probes could be graded"
    except (ConfigError, RewardBug) as error:
        unknown, broken = str(error), isinstance(error, RewardBug)
    helps = knob_help(reward, paper)
    knobs = [(name, shown(value), helps.get(name, "")) for name, value in reward.knobs.items()]
    needs = [
        (name, RESOURCES[name].source if name in RESOURCES else "Python alone: .with_()")
        for name in reward.missing
    ]
    differ = [(name, ", ".join(differences(paper, name))) for name in paper.variants]
    for columns, rows in (
        (("knob", "value", ""), knobs),
        (("it needs", "which comes from"), needs),
        (("variant", "what differs"), differ),
    ):
        if rows:
            show_rows(columns, rows, lines=False)
    if (path := recipe_path(spec)) is not None:
        say(f"\nits settings, with the source of each: {path}")
    if unknown:
        complain(f"what {spec} pays is not known: {unknown}")
    return 2 if broken else int(bool(unknown))


def _show_payoffs(paid: Sequence[Payoff]) -> None:
    rows = [(name, *(_cell(payoff.results[name]) for payoff in paid)) for name in OUTCOMES]
    show_rows(("it pays", *(payoff.when for payoff in paid)), rows, lines=False)
    if len(paid) > 1:
        say("\nall else: claims, reasoning, preference; scripted judges find all of it good, or all bad")
    facts = paid[0].results[OUTCOMES[0]].facts
    if given := [f"{name} {facts[name]:g}" for name in ("confidence", "threshold") if facts.get(name)]:
        say(f"\nall of it at {' and '.join(given)}")
    say("")
    order = "correct > abstained > wrong >= malformed"
    for payoff in paid:
        broken = f"does not hold: {', '.join(payoff.broken)}" if payoff.broken else "holds"
        lines = [_when_answering_pays(payoff), f"{order} {broken}"]
        if masked := [name for name in OUTCOMES[:3] if payoff.value(name) is None]:
            lines = [f"when answering pays is not known: {', '.join(masked)} could not be graded"]
        for line in lines:
            say(f"{payoff.when}: {line}" if payoff.when else line)


def _when_answering_pays(payoff: Payoff) -> str:
    above = payoff.answering_pays_above
    if above is None:
        return "a right answer pays no more than a wrong one"
    if 0 < above < 1:
        return f"answering pays above {above:.0%} confidence"
    return "answering always pays" if above <= 0 else "answering never pays more than abstaining"


def _cell(result: Result) -> str:
    if result.value is None:
        return f"masked ({result.cause})"
    terms = " + ".join(f"{name} {value:g}" for name, value in result.terms.items())
    return f"{result.value:g} = {terms}" + (f" (floored: {result.cause})" if result.cause else "")


def knob_help(reward: Reward, paper: Paper) -> dict[str, str]:
    """What the docstrings say about the knobs; the reward's own comes before that of its siblings."""
    helps: dict[str, str] = {}
    for other in (reward, *paper.variants.values()):
        for name, text in _args_of(inspect.getdoc(other.fn) or "").items():
            helps.setdefault(name, text)
    return {name: helps[name] for name in reward.knobs if name in helps}


def differences(paper: Paper, variant: str) -> list[str]:
    """What of a variant is not as in the main one; of a prompt of its own the setting's name."""
    reward, main = paper.variants[variant], next(iter(paper.variants.values()))
    settings = paper.settings.get(variant, {})
    changed = [f"{k}={shown(v)}" for k, v in reward.knobs.items() if v != main.knobs.get(k)]
    changed += [k if k.startswith("data.") else f"{k}={shown(v)}" for k, v in flat(settings).items()]
    return [*([reward.name] if reward.fn is not main.fn else []), *changed]


def recipe_path(spec: str) -> Path | None:
    """The recipe of a paper; None for a file of one's own."""
    path = recipe_of(split_spec(spec)[0])
    return path if path.is_file() else None


def _list_settings() -> None:
    from factrl.evals.ask import EvalSettings

    for key, field in {**settable(RunSettings), **settable(EvalSettings)}.items():
        default = field.get_default(call_default_factory=True)
        usual = (
            "required" if field.is_required() else f"default {'none' if default is None else shown(default)}"
        )
        say(f"{key}: {kind(field.annotation)}, {usual}")
        say(f"    {' '.join((field.description or '').split())}")


def shown(value: Any) -> str:
    """A value as a recipe has it; nothing for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=repr)


def _args_of(docstring: str) -> dict[str, str]:
    """`name, other: help` entries of the section `Args:`; deeper lines go on with the entry above."""
    _, _, section = docstring.partition("\nArgs:\n")
    entries: dict[str, str] = {}
    names: list[str] = []
    for line in section.split("\n"):
        match = re.fullmatch(r" {4}(\w+(?:, \w+)*): (.*)", line)
        if match:
            names = match[1].split(", ")
            entries |= dict.fromkeys(names, match[2])
        elif line.startswith("     ") and names:
            entries |= dict.fromkeys(names, f"{entries[names[0]]} {line.strip()}")
        else:
            break
    return entries
