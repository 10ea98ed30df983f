"""What `factrl tune` will do, checked without torch: its questions, what a probe found, judge and reward."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from factrl.errors import ConfigError, DataError
from factrl.job import Job
from factrl.runs.data import (
    ColumnName,
    load_training,
    render_prompt,
    to_example,
    unpacked,
)
from factrl.runs.rows import read_rows
from factrl.train.tuning.given import Given, load_given
from factrl.train.tuning.rules import Candidate
from factrl.train.tuning.settings import TuneSettings
from factrl.types import Example


@dataclass(frozen=True)
class TunePlan:
    """A run that was checked as far as possible without its model.

    Attributes:
        examples: the questions to learn from, with what a probe found of them.
        given: rows that say themselves what is learned; empty where rows are made from questions.
        probed: id -> samples that a probe wrote, graded; empty without a probe.
        notes: what a person should know before it starts, one line each.
    """

    job: Job[TuneSettings]
    examples: Sequence[Example]
    given: Sequence[Given] = ()
    probed: Mapping[str, Sequence[Candidate]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def settings(self) -> TuneSettings:
        """Of the job."""
        return self.job.settings

    @property
    def samples(self) -> int:
        """Samples that are written for rows."""
        writes = self.settings.samples and not self.probed
        return len(self.examples) * self.settings.sampling.num_samples if writes else 0


def plan_tuning(job: Job[TuneSettings]) -> TunePlan:
    """Check what can be checked without the model; nobody is asked."""
    settings, data, tune = job.settings, job.settings.data, job.settings.tune
    notes, given = list[str](), None
    if tune.method == "sft" or tune.rule == "given":
        given = load_given(data, pairs=tune.rule == "given")
    if given is not None:
        rows, left_out = given
        notes += [f"{count} rows left out: {why}" for why, count in left_out.most_common()]
        examples = [row.example for row in rows]
        for row in rows:
            if row.prompt is None:
                render_prompt(row.example, data.prompt)
        return TunePlan(job, examples, rows, {}, notes)
    if problems := [*settings.unclosed(data.prefill)]:
        raise ConfigError(*problems)
    examples = load_training(data)
    for example in examples:
        render_prompt(example, data.prompt)
    probed: Mapping[str, Sequence[Candidate]] = {}
    if tune.probe is not None:
        examples, probed = _probed(examples, tune.probe, data.columns.get("question"))
        notes += _check_same_prompt(job, tune.probe)
    if settings.rule and settings.rule.needs_ook and all(example.ook is None for example in examples):
        raise DataError(
            f"{tune.rule or tune.method} needs to know which questions the model knows, and none of "
            f"{len(examples)} has a flag `ook`; find out with: factrl eval QUESTIONS --model NAME "
            "--output probed.jsonl, and give tune.probe=probed.jsonl"
        )
    return TunePlan(job, examples, (), probed, notes)


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
            raise ConfigError(
                f"tune.probe={file} is no output of factrl eval --samples: a row without `id` or `ook`"
            )
        at = f"tune.probe={file}, row {number}"
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
            f"tune.probe={file} says nothing of {len(missing)} of {len(examples)} questions, first "
            f"{missing[0].id!r}; probe the same questions, or take its output as the questions"
        )
    others = [e for e in examples if probed[e.id][0].question not in ("", e.question)]
    if others:
        first, other = others[0], probed[others[0].id][0].question
        raise DataError(
            f"tune.probe={file} asked something else under {len(others)} of {len(examples)} ids, first "
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
        return [f"tune.probe={file}: how it asked and read answers is unknown, as {path} is not there"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read; move it away, or run factrl eval again") from error
    asks = {name: getattr(settings.data, name) for name in ("prompt", "system", "prefill", "chat")}
    problems = [
        f"tune.probe={file} was made with {name} = {about[name]!r}, and here it is {value!r}"
        for name, value in {**asks, "extract": job.extract}.items()
        if name in about and about[name] != value
    ]
    if problems:
        problems.append("probe again with the same paper and [data], or give here what the probe was given")
        raise ConfigError(*problems)
    policy = about.get("policy", settings.model.name)
    if policy == settings.model.name:
        return []
    return [f"tune.probe={file}: it asked the model {policy}, and {settings.model.name} is trained"]
