"""What `factrl tune` will do, checked without torch: its questions, what a probe found, judge and reward."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from factrl.errors import ConfigError, DataError
from factrl.job import Job
from factrl.papers import settings_of
from factrl.runs.data import (
    ColumnName,
    load_held_out,
    load_training,
    read_completion,
    render_prompt,
    to_example,
    unpacked,
)
from factrl.runs.rows import read_rows
from factrl.train.tuning.labelled import LABELLED, load_lessons
from factrl.train.tuning.rules import Candidate, TargetFormat, given_text
from factrl.train.tuning.settings import VERIFIED, TuneSettings, measuring_job
from factrl.types import Example

ELICITED = ("sft-seed", "margin-length")
"""The method and the rule whose samples are asked for with two worked examples."""


@dataclass(frozen=True)
class TunePlan:
    """A run that was checked as far as possible without its model.

    Attributes:
        examples: the questions to learn from, with what a probe found of them.
        probed: id -> samples that a probe wrote, graded; empty without a probe.
        notes: what a person should know before it starts, one line each.
    """

    job: Job[TuneSettings]
    examples: Sequence[Example]
    held_out: Sequence[Example] = ()
    probed: Mapping[str, Sequence[Candidate]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def settings(self) -> TuneSettings:
        """Of the job."""
        return self.job.settings

    @property
    def samples(self) -> int:
        """Samples that are written for rows, over all rounds."""
        settings = self.settings
        rounds = settings.tune.rounds - bool(self.probed)
        return 0 if settings.measure is None else rounds * len(self.examples) * settings.sampling.num_samples


def plan_tuning(job: Job[TuneSettings]) -> TunePlan:
    """Check what can be checked without the model; nobody is asked."""
    settings, data, tune = job.settings, job.settings.data, job.settings.tune
    measuring = measuring_job(job)
    notes: list[str] = []
    if tune.method in LABELLED:
        examples, left_out = load_lessons(tune.method, data.train, data.limit)
        notes += [f"{count} rows left out: {why}" for why, count in left_out.most_common()]
    else:
        rule = measuring.reward if measuring and settings.measure == "reward" else settings.rule
        examples = load_training(data, require_answers=rule.needs_answers)
    render_prompt(examples[0], data.prompt)
    probed: Mapping[str, Sequence[Candidate]] = {}
    if tune.probe is not None:
        examples, probed = _probed(examples, tune.probe, data.columns.get("question"))
        notes += _check_same_prompt(job, tune.probe)
    if (name := tune.rule or tune.method) in ELICITED and demonstrated(settings) is settings:
        notes.append(
            f"{name} learns from samples that were asked for without worked examples, unlike its paper, "
            "as data.prompt is not factreason's; name a file of them with tune.demonstrations"
        )
    if settings.rule.needs_ook and all(example.ook is None for example in examples):
        raise DataError(
            f"{tune.rule or tune.method} needs to know which questions the model knows, and none of "
            f"{len(examples)} has a flag `ook`; find out with: factrl probe QUESTIONS --model NAME "
            "--output probed.jsonl, and give --probe probed.jsonl"
        )
    if tune.rule == "given" and not any("rejected" in example.meta for example in examples):
        raise DataError(
            f"{data.train} has no column of the worse completions; say which one it is with "
            "data.columns.rejected=…, and that of the better ones with data.columns.answers=…"
        )
    if tune.rule == "given":
        every = [_with_worse(one, f"{data.train}, row {n}") for n, one in enumerate(examples, start=1)]
        rows = [settings.rule.rows(example, (), TargetFormat()) for example in every]
        examples = [one for one, row in zip(every, rows, strict=True) if not isinstance(row, str)]
        left_out = Counter(row for row in rows if isinstance(row, str))
        notes += [f"{count} rows left out: {why}" for why, count in left_out.most_common()]
        if not examples:
            raise DataError(f"{data.train}: no row has a pair to learn from; {'; '.join(notes)}")
    if tune.chosen is not None and not any(given_text(example, tune.chosen) for example in examples):
        raise DataError(
            f"tune.chosen = {tune.chosen!r}: none of {len(examples)} rows of {data.train} has a text in that "
            "column; give it the completions that are preferred, such as DeepSeek-R1's, reasoning and answer"
        )
    if tune.claims_of == "reasoning" and (settings.measure, job.extract) != ("precision", "answer"):
        raise ConfigError(
            "tune.claims_of = 'reasoning' needs a rule that measures precision, such as factscore, and a "
            "paper whose answers stand in <answer>, such as paper=knowrl"
        )
    if measuring is not None:
        measuring.check_examples(examples)
        measuring.checked()
    demonstrated(settings)
    return TunePlan(job, examples, _held_out(settings), probed, notes)


def _with_worse(example: Example, at: str) -> Example:
    """The example with its worse completion as text, which may be a conversation's last message."""
    cell = example.meta.get("rejected")
    value = listed if isinstance(listed := unpacked(cell), list) else cell
    worse = read_completion(value, f"{at}: the worse completion")
    return replace(example, meta={**example.meta, "rejected": worse})


def _held_out(settings: TuneSettings) -> Sequence[Example]:
    data, method = settings.data, settings.tune.method
    if not data.eval:
        return []
    if method == "truthfulness":
        return load_lessons(method, data.eval)[0]
    if method in LABELLED:
        raise ConfigError(
            f"data.eval={data.eval!r}: replies of {method} are not right or wrong as a whole; "
            "leave it out, and serve the model to try it"
        )
    return load_held_out(data)


def demonstrated(settings: TuneSettings) -> TuneSettings:
    """The settings for sampling: demonstrations, when there are any, in front of the question.

    Without any of the user's, factreason's samples are asked for with a 2-shot prompt as in arXiv:2508.05618,
    Figures 7 and 8: the model thinks first about what it knows, with care for dates, names and numbers,
    checks again and leaves out what it is unsure of; then it answers with as many specific details as
    possible.  The words and the two subjects are ours.  The model is trained with the prompt of `[data]`.
    """
    tune, own = settings.tune, settings_of(VERIFIED)["data"]["prompt"]
    if tune.demonstrations is None:
        two_shot = (tune.rule or tune.method) in ELICITED and settings.data.prompt == own
        if not two_shot:
            return settings
        return _with_prompt(settings, Path(__file__).with_name("two_shot.txt").read_text("utf-8").rstrip())
    shown = []
    for number, row in zip(range(tune.shots), read_rows(tune.demonstrations), strict=False):
        prompt, response = row.get("prompt"), row.get("response")
        if not isinstance(prompt, str) or not isinstance(response, str):
            raise DataError(f"{tune.demonstrations}, row {number + 1} needs a prompt and a response, as text")
        request = render_prompt(Example(prompt, meta={"prompt": prompt}), settings.data.prompt)
        shown.append(f"{request}\n{response}".replace("{", "{{").replace("}", "}}"))
    if len(shown) < tune.shots:
        raise DataError(f"{tune.demonstrations} has {len(shown)} rows, fewer than tune.shots = {tune.shots}")
    return _with_prompt(settings, "\n\n".join([*shown, settings.data.prompt]))


def _with_prompt(settings: TuneSettings, prompt: str) -> TuneSettings:
    return settings.model_copy(update={"data": settings.data.model_copy(update={"prompt": prompt})})


def _probed(
    examples: Sequence[Example], file: str, column: str | None
) -> tuple[list[Example], Mapping[str, Sequence[Candidate]]]:
    """The questions with what a probe found of each, and its samples.

    Args:
        column: of the questions, where it is given; a file without it is read by its ids alone.
    """
    probed: dict[str, tuple[Example, Sequence[Candidate]]] = {}
    for number, row in enumerate(read_rows(file), start=1):
        if "id" not in row or "ook" not in row:
            raise ConfigError(f"--probe {file} is no output of factrl probe: a row without `id` or `ook`")
        at = f"--probe {file}, row {number}"
        left_out = {*get_args(ColumnName)} - {"id", "question", "ook"}
        columns: dict[ColumnName, str] = dict.fromkeys(left_out, "")
        if column is not None:
            columns["question"] = column if column.partition(".")[0] in row else ""
        one = to_example(row, columns, at)
        cells = unpacked(row.get("samples")) or []
        if not isinstance(cells, list):
            raise DataError(f"{at}: samples is {str(cells)[:80]!r}, not a list of tables with a text")
        if one.id in probed:
            raise DataError(f"{at} has the id {one.id!r} of an earlier row; leave one of them out")
        probed[one.id] = one, [_sample(cell, at) for cell in cells]
    missing = [example for example in examples if example.id not in probed]
    if missing:
        raise DataError(
            f"--probe {file} says nothing of {len(missing)} of {len(examples)} questions, first "
            f"{missing[0].id!r}; probe the same questions, or take its output as the questions"
        )
    others = [e for e in examples if probed[e.id][0].question not in ("", e.question)]
    if others:
        first, other = others[0], probed[others[0].id][0].question
        raise DataError(
            f"--probe {file} asked something else under {len(others)} of {len(examples)} ids, first "
            f"{first.id!r}: {other[:80]!r}, and here it is {first.question[:80]!r}; probe the same "
            "questions, or take its output as the questions"
        )
    flagged = [replace(example, ook=probed[example.id][0].ook) for example in examples]
    samples = {example.id: probed[example.id][1] for example in examples}
    return flagged, samples if any(samples.values()) else {}


def _sample(row: Any, at: str) -> Candidate:
    if not isinstance(row, Mapping) or not isinstance(row.get("text"), (str, NoneType)):
        raise DataError(f"{at}: samples holds {str(row)[:80]!r}, not a table with a text")
    text, cause, length = row.get("text"), row.get("cause"), row.get("tokens")
    if text is None:
        return Candidate("", cause=cause or "no_completion")
    length = length if isinstance(length, int) else len(text.split())
    return Candidate(text, length, bool(row.get("truncated")), label=row.get("label"), cause=cause)


def _check_same_prompt(job: Job[TuneSettings], file: str) -> list[str]:
    """Refuse a probe that asked in other words or read answers elsewhere; another model is only told."""
    settings, path = job.settings, Path(file).with_suffix(".about.json")
    try:
        about = json.loads(path.read_text("utf-8"))["about"]
    except FileNotFoundError:
        return [f"--probe {file}: how it asked and read answers is unknown, as {path} is not there"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read; move it away, or run factrl probe again") from error
    data = (settings if settings.measure is None else demonstrated(settings)).data
    wanted = {name: getattr(data, name) for name in ("prompt", "system", "prefill", "chat")}
    problems = [
        f"--probe {file} was made with {name} = {about[name]!r}, and here it is {value!r}"
        for name, value in {**wanted, "extract": job.extract}.items()
        if name in about and about[name] != value
    ]
    if problems:
        problems.append("probe again with the same paper and [data], or give here what the probe was given")
        raise ConfigError(*problems)
    policy = about.get("policy", settings.model.name)
    if policy == settings.model.name:
        return []
    return [f"--probe {file}: it asked the model {policy}, and {settings.model.name} is trained"]
