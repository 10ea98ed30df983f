"""Samples of many questions, written and measured, each on disk as soon as it exists; no torch here.

Questions are asked in parts of a fixed size, and a part is repeated as a whole when it was cut off: texts can
depend on what is sampled beside them, by rounding, and a resumed run is to have the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from factrl.errors import TooManyMasked, Unscored
from factrl.evals.shortqa import grade_completions
from factrl.llm.writers import Writer, digest_of
from factrl.rewards.grading import graded_by
from factrl.rewards.resources import supply
from factrl.runs.disk import Journal
from factrl.runs.progress import Progress
from factrl.text import Slice, think_answer
from factrl.train.tuning.pairs import Sample
from factrl.train.tuning.plan import TunePlan, unmeasured
from factrl.types import Completion, Example
from factrl.verifier.report import Report

PART = 128  # samples that are written, and measured, together
MEASURED = ("label", "value", "cause", "floored")  # what a measure says of a sample
THEIR_OWN = ("no_answer", "declines")  # causes for which the text itself is to blame
Measure = Callable[[Sequence[Example], Sequence[Completion]], list[Sample]]
T = TypeVar("T")


def write_samples(
    writer: Writer,
    examples: Sequence[Example],
    path: Path,
    *,
    numbers: Sequence[int],
    temperature: float,
    top_p: float,
    seed: int,
    model: str,
    label: str,
) -> list[list[Sample]]:
    """The samples with these numbers, for every example; those of `path` are not written again.

    Args:
        model: which model writes, and how it is asked.
    """
    about = {
        "model": model,
        "questions": _digest(examples),
        "numbers": [numbers[0], numbers[-1]],
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
    }
    told: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "seed": seed}
    with Journal(path, about) as journal, Progress(label, len(examples), already=journal.found) as progress:
        for part in parts_of(examples, max(1, PART // len(numbers))):
            if all(example.id in journal for example in part):
                continue
            new = [example for example in part if example.id not in journal]
            groups = writer.write(part, numbers, **told)
            for example, group in zip(part, groups, strict=True):
                if example.id not in journal:
                    journal.add(example.id, {"samples": [_plain(sample) for sample in group]})
            progress.advance(len(new))
        return [[Sample(**row) for row in journal[example.id]["samples"]] for example in examples]


def measure_samples(
    measure: Measure,
    about: Mapping[str, Any],
    examples: Sequence[Example],
    samples: Sequence[Sequence[Sample]],
    path: Path,
    *,
    prefill: str,
    label: str,
) -> list[list[Sample]]:
    """The same samples with a label or a value each; those of `path` are not measured again.

    A question with a sample that our side could not measure is not kept, so that a resumed run tries again.

    Args:
        about: what decides the outcome beside the samples and what is known of the questions.
    """
    texts_of = ([s.text for s in group] for group in samples)
    told = {**about, "known": _digest_of_known(examples), "samples": digest_of(*texts_of)}
    done: dict[str, Sequence[Mapping[str, Any]]] = {}
    groups = list(zip(examples, samples, strict=True))
    size = max(1, PART // max(1, *(len(group) for group in samples)))
    with Journal(path, told) as journal, Progress(label, len(examples), already=journal.found) as progress:
        for part in parts_of([group for group in groups if group[0].id not in journal], size):
            flat = [(e, s) for e, group in part for s in group if s.cause is None]
            texts = [
                Completion(s.text, prefill=prefill, truncated=s.truncated, tokens=s.length) for _, s in flat
            ]
            found = iter(measure([e for e, _ in flat], texts))
            for example, group in part:
                measured = [sample if sample.cause else next(found) for sample in group]
                rows = [{name: getattr(s, name) for name in MEASURED} for s in measured]
                done[example.id] = rows
                if not any(_ours(row["cause"]) for row in rows):
                    journal.add(example.id, {"samples": rows})
            progress.advance(len(part))
        for example, _ in groups:
            if example.id in journal:
                done[example.id] = journal[example.id]["samples"]
        return [[replace(s, **row) for s, row in zip(group, done[e.id], strict=True)] for e, group in groups]


def check_masked(samples: Sequence[Sequence[Sample]], share: float, folder: Path) -> Mapping[str, int]:
    """How many samples could not be used, by cause.

    Raises:
        TooManyMasked: our side failed for more than this share of them.
    """
    flat = [sample for group in samples for sample in group]
    causes = Counter(sample.cause for sample in flat if sample.cause)
    ours = {cause: count for cause, count in causes.most_common() if _ours(cause)}
    if flat and sum(ours.values()) > share * len(flat):
        tally = ", ".join(f"{count} {cause}" for cause, count in ours.items())
        raise TooManyMasked(
            f"{sum(ours.values())} of {len(flat)} samples could not be measured ({tally}), more than "
            f"train.max_masked_share = {share:g}; mend the judge, then: factrl tune --resume {folder}"
        )
    return dict(causes.most_common())


def floored(samples: Sequence[Sequence[Sample]]) -> Mapping[str, int]:
    """How many samples were worth the least for their own form, by cause."""
    causes = (sample.floored for group in samples for sample in group if sample.floored)
    return dict(Counter(causes).most_common())


def grading(plan: TunePlan) -> tuple[Measure, Mapping[str, Any]]:
    """Grades short answers; and what decides the grades."""
    grader, extract = plan.supplier().grade(), plan.settings.extract

    def grade(examples: Sequence[Example], texts: Sequence[Completion]) -> list[Sample]:
        rows = grade_completions(list(zip(examples, texts, strict=True)), grader, extract)
        return [
            replace(unmeasured(text), label=row.grade and row.grade.label, cause=row.cause)
            for text, row in zip(texts, rows, strict=True)
        ]

    return grade, {"measure": "grade", "judge": graded_by(plan.judge), "extract": extract}


def measurement(plan: TunePlan) -> tuple[Measure, Mapping[str, Any]]:
    """What the plan's method measures samples by; and what decides the outcome.

    Raises:
        SetupError: a model, a file or a server that is not there.
    """
    if plan.settings.measure == "grade":
        return grading(plan)
    tuned = {"reward_model", "truthfulness_model", "extractor_model", "checklist_model"}
    models = plan.settings.judge.model_dump(include=tuned)
    told = digest_of(plan.settings.verifier.model_dump(exclude={"deadline", "cache"}), models)
    about = {"measure": plan.settings.measure, "judge": graded_by(plan.judge), "settings": told}
    if plan.reward is None:
        return _precision(plan), about
    reward = supply(plan.reward, supplier=plan.supplier())

    def rank(examples: Sequence[Example], texts: Sequence[Completion]) -> list[Sample]:
        found = []
        for text, result in zip(texts, reward.batch(examples, texts), strict=True):
            why = "cause" if result.value is None else "floored"
            found.append(replace(unmeasured(text), value=result.value, **{why: result.cause}))
        return found

    return rank, {**about, "reward": plan.settings.paper, "knobs": dict(plan.reward.knobs)}


def _precision(plan: TunePlan) -> Measure:
    """The share of the claims that are supported: of the answer block, where the prompt asks for one.

    There a text that is not `<think>…</think><answer>…</answer>` has none, or it would be taught.
    """
    verify, tagged = plan.supplier().verify(), plan.settings.extract == "answer"

    def measure(examples: Sequence[Example], texts: Sequence[Completion]) -> list[Sample]:
        forms = [think_answer(text, text.prefill) if tagged else None for text in texts]
        answers = [
            form.answer if form else Slice(text, 0, len(text))
            for form, text in zip(forms, texts, strict=True)
        ]
        some = [(index, answer.text) for index, answer in enumerate(answers) if answer is not None]
        reports = verify.batch(
            [text for _, text in some],
            [examples[index].question for index, _ in some],
            topics=[examples[index].topic for index, _ in some],
            evidence=[examples[index].evidence or None for index, _ in some],
        )
        samples = [
            replace(unmeasured(text), cause=form.malformed if form else None)
            for form, text in zip(forms, texts, strict=True)
        ]
        for (index, _), report in zip(some, reports, strict=True):
            samples[index] = replace(samples[index], **_value(report))
        return samples

    return measure


def _value(report: Report) -> Mapping[str, Any]:
    try:
        value = report.precision
    except Unscored as error:
        return {"cause": error.cause}
    return {"value": value, "cause": "declines" if value is None else None}


def _ours(cause: str | None) -> bool:
    return cause is not None and cause not in THEIR_OWN


def _plain(written: Completion | Unscored) -> Mapping[str, Any]:
    if isinstance(written, Unscored):
        return {"text": "", "cause": written.cause}
    sample = unmeasured(written)
    return {"text": sample.text, "length": sample.length, "truncated": sample.truncated}


def _digest(examples: Sequence[Example]) -> str:
    return digest_of(*((example.id, example.question) for example in examples))


def _digest_of_known(examples: Sequence[Example]) -> str:
    """Of everything that a grader, a verifier or a paper's reward holds a text against."""
    return digest_of(
        *(
            (e.id, e.question, e.answers, e.topic, e.ook, e.false_premise, e.evidence, e.checklist)
            for e in examples
        )
    )


def parts_of(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in their order, `size` at a time."""
    for start in range(0, len(items), size):
        yield items[start : start + size]
