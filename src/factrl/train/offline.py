"""`factrl tune` by given rows: what a model wrote itself is measured, made into rows, and learnt from.

    data/samples.jsonl     what the model wrote, question by question
    data/measured.jsonl    what became of it
    data/train.jsonl       the rows that it learns from: `prompt` and `completion`, or `chosen` and `rejected`
    data/left_out.json     how many questions gave none, and why
    evaluation.json        the held-out questions before and after
    iterates/N             the model after round N of several, the reference of the next; the last is `model`

With several rounds each has its own `data/round_N`.  A stage that is on disk is not repeated, so a run that
was killed goes on with the same rows and the same weights.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError
from factrl.llm import preflight
from factrl.runs.config import dump_toml
from factrl.runs.disk import write_whole
from factrl.runs.folder import Run
from factrl.runs.rows import json_lines
from factrl.runs.settings import DataSettings, ModelSettings
from factrl.train.card import write_tuning_card
from factrl.train.tuning.outcome import Outcome
from factrl.train.tuning.pairs import Limits, Sample, rule_of
from factrl.train.tuning.plan import TunePlan, demonstrated
from factrl.train.tuning.samples import (
    check_masked,
    floored,
    grading,
    measure_samples,
    measurement,
    write_samples,
)
from factrl.train.tuning.settings import TUNE
from factrl.train.tuning.targets import SOURCES, Form
from factrl.types import Example

from .callbacks import check_trackers
from .model import check_model
from .offline_trl import TrainingRow, learn
from .prompts import beginning, encode, render_prompts
from .writing import PolicyWriter

MODEL, EVALUATION, ROWS, LEFT_OUT = "model", "evaluation.json", "train.jsonl", "left_out.json"
Tell = Callable[[str], None]


def tune(plan: TunePlan, tell: Tell = lambda text: None) -> tuple[Path, Outcome | None]:
    """Carry out a plan; returns the run folder and, with held-out questions, what changed on them.

    Args:
        tell: gets a line for a person after each stage.

    Raises:
        SetupError: something the user must change.
        TooManyMasked: so many samples could not be measured; what is there is kept.
        Interrupted: SIGINT or SIGTERM while training; a checkpoint was written.
    """
    settings = plan.settings
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("factrl tune runs in one process; start it without accelerate or torchrun")
    check_model(settings.model.name)
    check_trackers(settings.train.report_to)
    if plan.judge is not None:
        preflight(plan.judge)
    with _run_folder(plan) as run:
        done = 0
        for number in range(1, settings.tune.rounds + 1):
            done = _round(plan, run, number, done, tell)
        outcome = _outcome(plan, run) if plan.held_out else None
        write_tuning_card(plan, run.path, outcome)
    return run.path, outcome


def make_rows(
    plan: TunePlan, samples: Sequence[Sequence[Sample]], prompts: Sequence[str], seed: int
) -> tuple[list[TrainingRow], Mapping[str, int]]:
    """The rows to learn from, and how many questions gave none by the reason.

    Args:
        samples: those of each question, measured; empty where the method needs none.
        prompts: the full text before a completion, one per question.
        seed: decides where chance does, for each question apart.
    """
    rows: list[TrainingRow] = []
    left_out: Counter[str] = Counter()
    for example, group, prompt in zip(plan.examples, samples, prompts, strict=True):
        found = _found(plan, example, group, random.Random(f"{seed}:{example.id}"))
        if isinstance(found, str):
            left_out[found] += 1
            continue
        rows += [{"id": example.id, "prompt": prompt, **row} for row in found]
    return rows, dict(left_out.most_common())


def _found(
    plan: TunePlan, example: Example, group: Sequence[Sample], draw: random.Random
) -> list[Mapping[str, Any]] | str:
    told = plan.settings.tune
    if told.rule is None:
        form = Form(plan.settings.written, told.abstention, draw)
        target = SOURCES[told.method].find(example, group, form)
        if isinstance(target, str):
            return target
        row = {"completion": target.completion.text, "truncated": target.completion.truncated}
        return [{**row, "why": target.why}]
    limits = Limits(
        ook=example.ook,
        abstention=plan.settings.written(told.abstention),
        draw=draw,
        margin=told.margin,
        length_tolerance=told.length_tolerance,
    )
    pairs = rule_of(told.rule).pairs(group, limits)
    if isinstance(pairs, str):
        return pairs
    return [
        {
            "chosen": pair.chosen.text,
            "rejected": pair.rejected.text,
            "chosen_truncated": pair.chosen.truncated,
            "rejected_truncated": pair.rejected.truncated,
            "why": pair.why,
        }
        for pair in pairs
    ]


def _round(plan: TunePlan, run: Run, number: int, before: int, tell: Tell) -> int:
    """One round, from the model of the round before to its own; returns the steps done by then."""
    settings, rounds = plan.settings, plan.settings.tune.rounds
    data = run.path / "data" / (f"round_{number}" if rounds > 1 else "")
    start = settings.model if number == 1 else _iterate(settings.model, run.path, number - 1)
    target = run.path / MODEL if number == rounds else run.path / "iterates" / str(number)
    marker = data / "done.json"
    data.mkdir(parents=True, exist_ok=True)
    if target.exists() and marker.exists():
        return json.loads(marker.read_text("utf-8"))["steps"]
    rows = _rows(plan, run, start, data, number, tell)
    target.parent.mkdir(exist_ok=True)
    if rows:
        checkpoints = run.checkpoints / (f"round_{number}" if rounds > 1 else "")
        before = learn(settings, start, rows, run, checkpoints, target, before=before, whole=rounds > 1)
    elif number == 1:
        about = json.loads((data / LEFT_OUT).read_text("utf-8"))
        raise DataError(
            f"no question gives a row to learn from ({_summed(about)}); take more samples "
            "(sampling.num_samples), other questions or another rule, or ask so that the form is kept "
            "(data.prompt, data.prefill)"
        )
    else:  # every question's samples are alike by now
        tell(f"round {number}: no rows; its model is that of round {number - 1}")
        shutil.copytree(start.name, target, dirs_exist_ok=True)
    write_whole(marker, json.dumps({"steps": before}).encode())
    return before


def _rows(
    plan: TunePlan, run: Run, start: ModelSettings, data: Path, number: int, tell: Tell
) -> list[TrainingRow]:
    """The rows of a round: those on disk, or new ones."""
    file, told = data / ROWS, plan.settings
    if not file.exists():
        writer = PolicyWriter.load(told.model_copy(update={"model": start}))
        told.check_closed(_begun(told.data, writer))
        samples: list[list[Sample]] = [[] for _ in plan.examples]
        if told.measure is not None:
            samples = _samples(plan, run, writer, data, number)
        causes = check_masked(samples, told.train.max_masked_share, run.path)
        prompts = render_prompts(plan.examples, writer.tokenizer, told.data)
        rows, left_out = make_rows(plan, samples, prompts, told.run.seed + number)
        kept = _short_enough(plan, rows, writer.tokenizer)
        about = {
            "questions": len(plan.examples),
            "probe": told.tune.probe,
            "rows": len(kept),
            "left_out": left_out,
            "prompt_too_long": len(rows) - len(kept),
            "unmeasured_samples": causes,
            "floored_samples": floored(samples),
        }
        write_whole(data / LEFT_OUT, json.dumps(about, indent=2).encode())
        write_whole(file, "".join(json.dumps(row) + "\n" for row in kept).encode())
        tell(_summed(about))
    return json_lines(file.read_bytes())


def _samples(plan: TunePlan, run: Run, writer: PolicyWriter, data: Path, number: int) -> list[list[Sample]]:
    """Measured samples: those of the probe in the first round, else fresh ones of the round's model."""
    told = plan.settings
    graded = told.measure == "grade"
    if plan.probed and number == 1:
        samples = [list(plan.probed[example.id]) for example in plan.examples]
        if graded:
            return samples
        count = told.sampling.num_samples
        samples = [[_bare(sample) for sample in group[:count]] for group in samples]
    else:
        count = told.sampling.num_samples
        own = writer.asked(demonstrated(told))
        samples = write_samples(
            own,
            plan.examples,
            data / "samples.jsonl",
            numbers=range((number - 1) * count, number * count),
            temperature=told.sampling.temperature,
            top_p=told.sampling.top_p,
            seed=told.run.seed,
            model=_identity(own, run),
            label="sample",
        )
    measure, about = measurement(plan)
    path, begun = data / "measured.jsonl", _begun(told.data, writer)
    return measure_samples(measure, about, plan.examples, samples, path, prefill=begun, label="measure")


def _outcome(plan: TunePlan, run: Run) -> Outcome:
    """The held-out questions before and after, and `evaluation.json`."""
    first = plan.settings.model
    # The rest stays as it was, so that both are loaded in one precision and an adapter finds its model.
    trained = first.model_copy(update={"name": str(run.path / MODEL)})
    before = _answers(plan, run, first, "before")
    after = _answers(plan, run, trained, "after")
    outcome = Outcome(plan.held_out, before, after)
    about = {
        "file": plan.settings.data.eval,
        "judge": getattr(plan.judge, "identity", None),
        "extract": plan.settings.extract,
    }
    write_whole(run.path / EVALUATION, json.dumps({**about, **outcome.to_json()}, indent=2).encode())
    return outcome


def _answers(plan: TunePlan, run: Run, model: ModelSettings, when: str) -> list[Sample]:
    """Greedy answers to the held-out questions, graded."""
    told = plan.settings
    data = run.path / "data"
    writer = PolicyWriter.load(told.model_copy(update={"model": model}))
    groups = write_samples(
        writer,
        plan.held_out,
        data / f"{when}.jsonl",
        numbers=(0,),
        temperature=0.0,
        top_p=1.0,
        seed=0,
        model=_identity(writer, run),
        label=f"answer {when}",
    )
    measure, about = grading(plan)
    path, begun = data / f"{when}_graded.jsonl", _begun(told.data, writer)
    found = measure_samples(measure, about, plan.held_out, groups, path, prefill=begun, label="grade")
    return [group[0] for group in found]


def _begun(data: DataSettings, writer: PolicyWriter) -> str:
    return beginning(writer.tokenizer, data.prefill, chat=data.chat)


def _identity(writer: PolicyWriter, run: Run) -> str:
    """The same wherever the run folder is named from."""
    return writer.identity.replace(str(run.path), "RUN")


def _iterate(first: ModelSettings, run: Path, number: int) -> ModelSettings:
    """The model of a round; an adapter of the next one sits on it in the precision of the first."""
    return first.model_copy(update={"name": str(run / "iterates" / str(number)), "revision": None})


def _short_enough(plan: TunePlan, rows: Sequence[TrainingRow], tokenizer: Any) -> list[TrainingRow]:
    limit, chat = plan.settings.train.max_prompt_length, plan.settings.data.chat
    if limit is None or not rows:
        return list(rows)
    lengths = map(len, encode([row["prompt"] for row in rows], tokenizer, chat=chat))
    return [row for row, length in zip(rows, lengths, strict=True) if length <= limit]


def _bare(sample: Sample) -> Sample:
    """As it was written, whatever a grader made of it."""
    return replace(sample, label=None, cause=sample.cause if not sample.text else None)


def _summed(about: Mapping[str, Any]) -> str:
    told = [f"{about['rows']} rows from {about['questions']} questions"]
    told += [f"{count} left out: {reason}" for reason, count in about["left_out"].items()]
    told += [f"{about['prompt_too_long']} prompts too long"] * bool(about["prompt_too_long"])
    told += [f"{count} samples not used: {cause}" for cause, count in about["unmeasured_samples"].items()]
    told += [f"{count} samples floored: {cause}" for cause, count in about["floored_samples"].items()]
    return "; ".join(told)


def _run_folder(plan: TunePlan) -> Run:
    settings = plan.settings
    if settings.run.resume:
        return Run.open(settings.run.resume)
    told = settings.tune
    name = settings.run.name or "-".join(filter(None, (told.method, told.rule)))
    run = Run.create(settings.run.dir, name, settings.asking())
    write_whole(run.path / TUNE, dump_toml(settings).encode())
    return run
