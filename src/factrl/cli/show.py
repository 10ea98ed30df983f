"""`factrl show` and `factrl check`: what the papers' rewards are, and that they do what they say."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tomli_w

from ..config import settable
from ..errors import ConfigError
from ..escape import one_line
from ..papers import (
    check_gold,
    gold_of,
    load_paper,
    load_reward,
    paper_names,
    rewards_of,
    settings_of,
    split_spec,
)
from ..rewards import Reward
from ..settings import RunSettings
from .options import Verbs, add_verb
from .terminal import say, show_table

_KINDS = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    dict: "table",
    tuple: "list",
}
# What a recipe usually says; the rest keeps its default.
_USUAL = (
    "epochs",
    "prompts_per_step",
    "num_generations",
    "micro_batch_size",
    "max_completion_length",
    "learning_rate",
)


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "show",
        _show,
        about="list the papers, or explain one: its reward, knobs, variants and published numbers",
        example="examples:\n  factrl show truthrl:binary\n  factrl show truthrl --toml > recipe.toml",
    )
    parser.add_argument("paper", nargs="?", metavar="PAPER", help="truthrl, truthrl:binary or my.py:reward")
    parser.add_argument("--toml", action="store_true", help="print a recipe for it")
    parser.add_argument("--settings", action="store_true", help="list everything that train can be told")
    parser = add_verb(
        verbs,
        "check",
        _check,
        about="run a reward on its worked cases, with the real grader and a scripted judge",
        example="example:\n  factrl check truthrl",
    )
    parser.add_argument(
        "paper", metavar="PAPER", help="truthrl, truthrl:binary or my.py:reward with a GOLD list"
    )


def _show(args: argparse.Namespace) -> int:
    if args.settings and (args.paper is not None or args.toml):
        raise ConfigError("--settings stands alone; factrl show PAPER lists the knobs of a reward")
    if args.toml and args.paper is None:
        raise ConfigError("--toml needs a paper, e.g. factrl show truthrl --toml")
    if args.settings:
        _list_settings()
    elif args.paper is None:
        for name in paper_names():
            say(f"{name:<12}{(load_paper(name).__doc__ or '').partition(chr(10))[0]}")
    elif args.toml:
        say(recipe(args.paper))
    else:
        _explain(args.paper)
    return 0


def _check(args: argparse.Namespace) -> int:
    failed = 0
    cases = gold_of(args.paper)
    for variant, reward, case in cases:
        problem = check_gold(reward, case)
        failed += bool(problem)
        say(f"{'FAIL' if problem else 'ok':<6}{variant:<26}{one_line(case.why)}")
        if problem:
            say(f"{'':<6}{one_line(problem)}")
    say(f"{len(cases) - failed} of {len(cases)} cases pass")
    return 1 if failed else 0


def recipe(spec: str) -> str:
    """A recipe that `load_settings` accepts: the reward's knobs, the usual settings, and what each means."""
    reward = load_reward(spec)
    fields = settable(RunSettings)
    values: dict[str, Any] = {
        "paper": spec,
        "model": {"name": "Qwen/Qwen2.5-0.5B-Instruct"},
        "data": {"train": "questions.jsonl", "prompt": fields["data.prompt"].default},
        "reward": {name: value for name, value in reward.knobs.items() if value is not None},
        "train": {key: fields[f"train.{key}"].default for key in _USUAL},
    }
    for section, told in settings_of(spec).items():  # a recipe wins over them, so it repeats them
        values[section] = {**values.get(section, {}), **told}
    helps = {key: field.description or "" for key, field in fields.items()}
    helps |= {
        f"reward.{name}": text for name, text in knob_help(reward, load_paper(split_spec(spec)[0])).items()
    }
    lines, section = ["# factrl train recipe.toml", ""], ""
    for line in tomli_w.dumps(values).splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        about = helps.get(section + line.partition(" = ")[0], "")
        lines.append(f"{line}  # {about}" if about and not line.endswith("[") else line)
    url = 'url = "http://localhost:8000/v1#Qwen/Qwen3-8B"'
    return "\n".join([*lines, "", "[judge]", f"# {url}  # {helps['judge.url']}"])


def answering_pays_above(knobs: Mapping[str, Any]) -> float | None:
    """The confidence above which answering is worth more than abstaining; None where that is undefined.

    With confidence p an answer is worth `p correct + (1 - p) wrong`, which equals `abstain` at
    (abstain - wrong) / (correct - wrong).
    """
    values = [knobs.get(name) for name in ("correct", "abstain", "wrong")]
    if not all(isinstance(value, (int, float)) for value in values):
        return None
    correct, abstain, wrong = (float(value) for value in values if value is not None)
    return (abstain - wrong) / (correct - wrong) if correct > wrong else None


def knob_help(reward: Reward, module: ModuleType) -> dict[str, str]:
    """What the docstrings say about the knobs; the reward's own comes before that of its siblings."""
    found: dict[str, str] = {}
    for other in (reward, *rewards_of(module).values()):
        for name, text in _args_of(inspect.getdoc(other.fn) or "").items():
            found.setdefault(name, text)
    return {name: found[name] for name in reward.knobs if name in found}


def _args_of(docstring: str) -> dict[str, str]:
    """`name, other: help` entries of the section `Args:`; deeper lines go on with the entry above."""
    _, _, section = docstring.partition("\nArgs:\n")
    entries: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        match = re.fullmatch(r" {4}(\w+(?:, \w+)*): (.*)", line)
        if match:
            names = match[1].split(", ")
            entries |= dict.fromkeys(names, match[2])
        elif line.startswith("     ") and names:
            entries |= dict.fromkeys(names, f"{entries[names[0]]} {line.strip()}")
        else:
            break
    return entries


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
    say(f"\n{spec}")
    if _advice(reward):
        say(f"Its outcome alone: {_advice(reward)}, by (abstain - wrong) / (correct - wrong).")
    if reward.resources:
        say(f"It needs {' and '.join(reward.resources)}, which --judge supplies.")
    helps = knob_help(reward, module)
    _table(("knob", "value", ""), [(name, _toml(v), helps.get(name, "")) for name, v in reward.knobs.items()])
    _table(
        ("variant", "what differs", "its outcome alone"),
        [(name, _difference(other, main), _advice(other)) for name, other in rewards.items()],
    )
    published: Mapping[tuple[str, str, str], float] = getattr(module, "PUBLISHED", {})
    if published:
        rows = [(where, row, metric, f"{value:g}") for (where, row, metric), value in published.items()]
        _table(("published", "", "metric", ""), rows)


def _advice(reward: Reward) -> str:
    above = answering_pays_above(reward.knobs)
    if above is None:
        return ""
    if not 0 < above < 1:
        return "answering always pays" if above <= 0 else "answering never pays more than abstaining"
    return f"answering pays above {above:.0%} confidence"


def _difference(reward: Reward, main: Reward) -> str:
    """What of a variant is not as in the main one."""
    changed = [f"{k}={_toml(v)}" for k, v in reward.knobs.items() if v != main.knobs.get(k)]
    return ", ".join([*([reward.name] if reward.fn is not main.fn else []), *changed])


def _list_settings() -> None:
    for key, field in settable(RunSettings).items():
        default = field.get_default(call_default_factory=True)
        usual = (
            "required" if field.is_required() else f"default {'none' if default is None else _toml(default)}"
        )
        say(f"{key}: {kind(field.annotation)}, {usual}")
        say(f"    {' '.join((field.description or '').split())}")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(one_line, row))
    say("")
    show_table(table)


def _toml(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=repr)
