"""What only the user can give `factrl reproduce`, and what its steps will ask a judge, told first.

A step's own `--dry-run` needs the files that earlier steps make.  Here questions that are not there yet are
stood in for, and a reward's requests, tokens and dollars are bounded as `factrl train --dry-run` does.
"""

from __future__ import annotations

import argparse
import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

from factrl.papers import Pipeline, asked_of
from factrl.runs.data import load_examples
from factrl.runs.settings import AskSettings
from factrl.train.plan import Plan, bare_reward, estimate, run_settings
from factrl.train.tuning.labelled import LABELLED
from factrl.train.tuning.settings import tune_settings
from factrl.types import Example, Passage

STAND_INS = 1000
_CITY = "Which city is the capital of a country in Europe?"
_AT = {"threshold": 0.5, "penalty": "1"}
_ABSENT = [Example(_CITY, ("Reykjavik",), "absent", evidence=(Passage(_CITY),), meta=_AT)] * STAND_INS
_FLAGS = {"--model": "model.name", "--data": "data.train", "--rule": "tune.rule", "--judge": "judge.url"}

Read = Callable[[str], Sequence[Example]]


def to_be_given(pipeline: Pipeline, args: argparse.Namespace) -> list[str]:
    """What only the user can give and has not given, at full scale; lost values of papers among it."""
    given = {word.partition("=")[0] for word in args.settings}
    settings = {name: why for name, why in pipeline.asks.items() if "." in name}
    needed = {name: why for name, why in settings.items() if not given & {*name.split(" or ")}}
    for step in pipeline.steps:
        words = [word.partition("=") for word in f"{step.words} {step.full or ''}".split()]
        told = given | {name for name, _, _ in words}
        lost = (asked_of(spec).items() for name, _, spec in words if name == "paper")
        needed |= {key: why for each in lost for key, why in each if key not in told}
    options = {name: why for name, why in pipeline.asks.items() if name not in settings}
    return [
        *(f"--{name.replace('_', '-')}: {options[name]}" for name in options if getattr(args, name) is None),
        *(f"{key}=…: {why}" for key, why in needed.items()),
    ]


def reader() -> Read:
    """Reads the questions of a file, `STAND_INS` of ours where it is not there yet."""

    @functools.cache  # many steps read the same questions
    def read(name: str) -> Sequence[Example]:
        return load_examples(name, require_answers=False) if Path(name).is_file() else _ABSENT

    return read


def asks(words: Sequence[str], recipe: Path, read: Read) -> str:
    """One line on what a step asks the judge, and what that may cost; "" where no judge is asked.

    Args:
        words: what stands behind `factrl`.
        recipe: what the step's `--config` holds.
        read: the questions of a file.
    """
    verb = words[0]
    told = [f"{_FLAGS[a]}={b}" for a, b in itertools.pairwise(words) if a in _FLAGS]
    told += [word for word in words if "=" in word and not word.startswith("-")]
    if verb == "train":
        settings = run_settings(recipe, told)
        plan = Plan(settings, bare_reward(settings), None, read(settings.data.train), [], "")
        found = estimate(plan) if settings.judge.url else {}
        about = "; ".join(f"{name}: {value}" for name, value in found.items())
        return about and f"{plan.steps:,} steps; {plan.completions:,} answers; {about}"
    if verb == "tune":
        return _of_tuning(words, recipe, told, read)
    if verb not in ("probe", "eval"):
        return ""
    given = words[words.index("--samples") + 1] if "--samples" in words else "1"
    long = "--long" in words
    sets = [*itertools.takewhile(lambda word: not word.startswith("-"), words[2 if long else 1 :])]
    limit = int(words[words.index("--limit") + 1]) if "--limit" in words else None
    answers = sum(len(read(one)[:limit]) for one in sets) * int(given)
    model = [] if "--model" in words else ["model.name=any"]  # stored answers are evaluated without one
    settings = run_settings(recipe, [f"data.train={sets[0]}", *model, *told], AskSettings)
    asked = "one request a claim and more" if long else f"at most {answers:,} requests"
    return f"{answers:,} answers; the judge: {asked}" if settings.judge.url else ""


def _of_tuning(words: Sequence[str], recipe: Path, told: Sequence[str], read: Read) -> str:
    method, file = words[1:3]
    if method in LABELLED or "--probe" in words:
        return ""
    flags = [f"tune.method={method}", f"data.train={file}", *told]
    settings = tune_settings(recipe if "--config" in words else None, flags)
    if settings.measure is None or not settings.judge.url:
        return ""
    questions = len(read(file)[: settings.data.limit])
    answers = questions * settings.sampling.num_samples * settings.tune.rounds
    graded = f"at most {answers:,} requests"
    rewarded = "what the reward asks, once an answer"
    return f"{answers:,} answers; the judge: {graded if settings.measure == 'grade' else rewarded}"
