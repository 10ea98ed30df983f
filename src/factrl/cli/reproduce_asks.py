"""What the steps of `factrl reproduce` will write and ask, told before any of them runs.

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
from factrl.runs.settings import AskSettings, RunSettings
from factrl.train.plan import Plan, bare_reward, estimate, run_settings
from factrl.train.tuning.labelled import LABELLED
from factrl.train.tuning.settings import TuneSettings, tune_settings
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


def reader(made: Path) -> Read:
    """Reads a step's questions: the file itself, what stands in for it in `made`, or `STAND_INS` of ours."""

    @functools.cache  # many steps read the same questions
    def read(name: str) -> Sequence[Example]:
        for path in (Path(name), made / Path(name).name):
            if path.is_file():
                return load_examples(str(path), require_answers=False)
        return _ABSENT

    return read


def asks(words: Sequence[str], recipe: Path, read: Read) -> str:
    """One line on a step: what the model writes, what the judge is asked, what that costs; "" for neither.

    Args:
        words: what stands behind `factrl`.
        recipe: what the step's `--config` holds.
        read: the questions of a file.
    """
    verb, told = words[0], _settings(words)
    if verb == "train":
        return _of_training(run_settings(recipe, told), read)
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
    return _line(
        answers, settings, "one request a claim and more" if long else f"at most {answers:,} requests"
    )


def _of_training(settings: RunSettings, read: Read) -> str:
    examples = read(settings.data.train)
    plan = Plan(settings, bare_reward(settings), None, examples, [], "")
    wrote = f"{plan.steps:,} steps; {plan.completions:,} answers"
    if not settings.judge.url:
        return f"{wrote}; no judge is asked"
    found = estimate(plan)
    return f"{wrote}; calls: {found['calls']}; tokens: {found['tokens']}; cost: {found['cost']}"


def _of_tuning(words: Sequence[str], recipe: Path, told: Sequence[str], read: Read) -> str:
    method, file = words[1:3]
    if method in LABELLED:
        return f"learns the rows of {Path(file).name}"
    flags = [f"tune.method={method}", f"data.train={file}", *told]
    settings = tune_settings(recipe if "--config" in words else None, flags)
    tuned, train = settings.tune, settings.train
    examples = read(file)[: settings.data.limit]
    learnt = f"learns {train.steps:,} steps" if train.steps else f"epochs: {train.epochs:g}"
    if settings.measure is None or "--probe" in words:
        return f"{learnt} of {len(examples):,} questions"
    answers = len(examples) * settings.sampling.num_samples * tuned.rounds
    graded = (
        f"at most {answers:,} requests"
        if settings.measure == "grade"
        else "what the reward asks, once an answer"
    )
    return f"{learnt}; {_line(answers, settings, graded)}"


def _line(answers: int, settings: AskSettings | TuneSettings, asked: str) -> str:
    judge = f"the judge: {asked}" if settings.judge.url else "no judge is asked"
    return f"{answers:,} answers; {judge}"


def _settings(words: Sequence[str]) -> list[str]:
    """The settings among the words, those that an option stands for included."""
    options = [f"{_FLAGS[a]}={b}" for a, b in itertools.pairwise(words) if a in _FLAGS]
    return options + [word for word in words if "=" in word and not word.startswith("-")]
