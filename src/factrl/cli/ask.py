"""`factrl ask`: questions to one model, or to two side by side, with what the reward makes of each answer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress

from factrl.errors import ConfigError, DataError, Unscored
from factrl.evals.grade import Extract, GradeAnswer, grade_completions
from factrl.job import Job, read_job, unread, unread_in_asking
from factrl.llm.writers import Written
from factrl.rewards import Reward
from factrl.runs.config import Unused
from factrl.runs.data import render_prompt
from factrl.runs.settings import AskSettings
from factrl.text.escape import one_line
from factrl.train.answering import open_writer
from factrl.types import Example

from .options import (
    Verbs,
    add_options,
    add_settings,
    add_verb,
    as_overrides,
    check_judge,
    quiet_policy,
)
from .terminal import say

_PROMPT = "question | accepted answer | another: "


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verb to the command line."""
    parser = add_verb(
        verbs,
        "ask",
        _ask,
        about="talk to a model, or to two, and see what a reward pays each answer",
        example=(
            "examples:\n"
            "  factrl ask runs/R/model --config runs/R/config.toml\n"
            "  factrl ask Qwen/Qwen2.5-0.5B-Instruct runs/R/model --config runs/R/config.toml\n"
            '  echo "Capital of Peru? | Lima" | factrl ask SmolLM2-135M-Instruct --paper truthrl\n'
            "A line of stdin is a question; what rules or the judge accept may follow it, each behind a |.\n"
            "Without accepted answers there is no label, and no reward that needs them."
        ),
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a folder, a hub id, a policy of `factrl doctor`, `local` or http://host:8000/v1#model",
    )
    parser.add_argument(
        "after", metavar="MODEL", nargs="?", help="another, shown beneath it, as before and after a training"
    )
    add_options(parser, "paper", "config", "judge")
    add_settings(parser, "how both are asked, e.g. data.prompt=... train.max_completion_length=64")


def _ask(args: argparse.Namespace) -> int:
    overrides = ["data.train=-", f"model.name={args.model}", *as_overrides(args)]
    job = read_job(args.config, overrides, AskSettings, _unread)
    settings = job.settings
    job.checked()
    render_prompt(Example("?"), settings.data.prompt)  # a column that no line of stdin has
    check_judge(job)
    grade, reward = job.supplier.grade(), job.supplied
    names = {"before": args.model, "after": args.after} if args.after else {"answer": args.model}
    writers = {}
    for name, model in names.items():
        named = settings.model.model_copy(update={"name": model})
        quiet_policy(named)
        writers[name] = open_writer(settings.model_copy(update={"model": named}))
    for example in _examples():
        for name, writer in writers.items():
            [[text]] = writer.write([example], **settings.draw)
            line = f"no answer: {text}"
            if not isinstance(text, Unscored):
                label, paid = _label(example, text, grade, job.extract), _reward(job, reward, example, text)
                line = f"{text}  [{label}, {paid}]"
            say(f"  {name:<6}  {one_line(line)}")
    return 0


def _unread(job: Job) -> Unused:
    """The settings that asking, grading and the reward do not read."""
    if not job.settings.paper:
        raise ConfigError(
            "factrl ask needs a reward: --paper truthrl (or my.py:reward), or the --config of a run"
        )
    trained = {key: why for key, why in unread_in_asking(job).items() if key.startswith("train.")}
    return {**trained, **unread(job.settings, [*job.reward.missing, "grade"])}


def _examples() -> Iterator[Example]:
    """The questions of stdin: in a terminal asked for, else shown before their answers."""
    for number, line in enumerate(_lines(), start=1):
        question, *answers = (part.strip() for part in line.split("|"))
        if question:
            yield Example(question, tuple(filter(None, answers)), id=f"line {number}")
        elif answers:
            error = f"line {number} of stdin has no question before its |: {one_line(line)[:60]!r}"
            if not sys.stdin.isatty():
                raise DataError(error)
            say(error)  # a slip of the hand ends no talk


def _lines() -> Iterator[str]:
    if sys.stdin.isatty():
        with suppress(EOFError):
            while True:
                yield input(_PROMPT)
        say("")
        return
    try:
        for line in sys.stdin:
            line = line.removeprefix("\ufeff")  # a file of Windows begins with it
            say(one_line(line.strip()))
            yield line
    except UnicodeDecodeError as error:
        raise DataError(f"stdin is not UTF-8 text: {error.reason} at byte {error.start:,}") from None


def _label(example: Example, text: Written, grade: GradeAnswer, extract: Extract) -> str:
    """What became of the answer, or why that cannot be told."""
    if not example.answers:
        return "no label: no accepted answers"
    [row] = grade_completions([(example, text)], grade, extract)
    if row.label is None:
        return f"no label: {row.cause}"
    return f"{row.label} ({row.floored})" if row.floored else row.label


def _reward(job: Job, reward: Reward, example: Example, text: str) -> str:
    """What the reward pays, or why it pays nothing."""
    if reward.needs_answers and not example.answers:
        return "no reward: it needs accepted answers"
    try:
        job.check_examples([example])
    except DataError as error:
        return f"no reward: {error}"
    [result] = reward.batch([example], [text])
    if result.value is None:
        return f"no reward: {result.cause}"
    return f"reward {result.value:+.2f}" + (f" ({result.cause})" if result.cause else "")
