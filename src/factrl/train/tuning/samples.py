"""Samples of many questions, written and graded, each on disk as soon as it exists; no torch here.

Questions are asked in parts of a fixed size, and a part is repeated as a whole when it was cut off: texts can
depend on what is sampled beside them, by rounding, and a resumed run is to have the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from factrl.errors import TooManyMasked, Unscored
from factrl.evals.grade import grade_completions
from factrl.job import Job
from factrl.llm.writers import Writer, Written, digest_of
from factrl.rewards.grading import graded_by
from factrl.runs.disk import Journal
from factrl.runs.progress import Progress
from factrl.runs.settings import SamplingSettings
from factrl.text import MALFORMED
from factrl.train.tuning.rules import Candidate
from factrl.types import Completion, Example

PART = 128  # samples that are written, and measured, together
THEIR_OWN = MALFORMED  # causes for which the text itself is to blame
Measure = Callable[[Sequence[Example], Sequence[Completion]], Sequence[Mapping[str, Any]]]
"""What becomes of each text: `label` and `cause`, as `Candidate` has them."""


def write_samples(
    writer: Writer,
    examples: Sequence[Example],
    path: Path,
    settings: SamplingSettings,
    *,
    seed: int,
    model: str,
) -> list[list[Candidate]]:
    """The model's samples of every example; those of `path` are not written again.

    Args:
        model: which weights write, and asked how.
    """
    numbers = range(settings.num_samples)
    sampling: dict[str, Any] = {"temperature": settings.temperature, "top_p": settings.top_p, "seed": seed}
    questions = digest_of(*((example.id, example.question) for example in examples))
    about = {"model": model, "questions": questions, "numbers": [numbers[0], numbers[-1]], **sampling}
    size = max(1, PART // len(numbers))
    with (
        Journal(path, about) as journal,
        Progress("sample", len(examples), already=journal.resumed) as progress,
    ):
        for start in range(0, len(examples), size):
            part = examples[start : start + size]
            new = {example.id for example in part} - journal.keys()
            groups = writer.write(part, numbers, **sampling) if new else ()
            for example, group in zip(part, groups, strict=False):
                if example.id in new:
                    journal.add(example.id, {"samples": [_row_of(sample) for sample in group]})
            progress.advance(len(new))
        return [[Candidate(**row) for row in journal[example.id]["samples"]] for example in examples]


def _row_of(completion: Written) -> Mapping[str, Any]:
    if isinstance(completion, Unscored):
        return {"text": "", "cause": completion.cause}
    length = len(completion.split()) if completion.tokens is None else completion.tokens
    return {"text": str(completion), "length": length, "truncated": completion.truncated}


def measure_samples(
    measure: Measure,
    about: Mapping[str, Any],
    examples: Sequence[Example],
    samples: Sequence[Sequence[Candidate]],
    path: Path,
    *,
    prefill: str,
) -> list[list[Candidate]]:
    """The same samples with a label each; those of `path` are not measured again.

    A question with a sample that our side could not measure is not kept, so that a resumed run tries again.
    What decides the outcome is `about`, the samples and what is known of the questions.
    """
    questions = (
        (e.id, e.question, e.answers, e.topic, e.ook, e.false_premise, e.evidence, e.checklist)
        for e in examples
    )
    texts_of = ([s.text for s in group] for group in samples)
    header = {**about, "questions": digest_of(*questions), "samples": digest_of(*texts_of)}
    groups = list(zip(examples, samples, strict=True))
    size = max(1, PART // max(1, *(len(group) for group in samples)))
    with (
        Journal(path, header) as journal,
        Progress("grade", len(examples), already=journal.resumed) as progress,
    ):
        rows_of: dict[str, Sequence[Mapping[str, Any]]] = {
            key: row["samples"] for key, row in journal.items()
        }
        left = [group for group in groups if group[0].id not in rows_of]
        for start in range(0, len(left), size):
            part = left[start : start + size]
            flat = [(e, s) for e, group in part for s in group if s.cause is None]
            texts = [
                Completion(s.text, prefill=prefill, truncated=s.truncated, tokens=s.length) for _, s in flat
            ]
            measured = iter(measure([e for e, _ in flat], texts))
            for example, group in part:
                rows = [{"cause": s.cause} if s.cause else next(measured) for s in group]
                rows_of[example.id] = rows
                if not any(_ours(row.get("cause")) for row in rows):
                    journal.add(example.id, {"samples": rows})
            progress.advance(len(part))
    return [[replace(s, **row) for s, row in zip(group, rows_of[e.id], strict=True)] for e, group in groups]


def check_masked(samples: Sequence[Sequence[Candidate]], share: float, folder: Path) -> Mapping[str, int]:
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


def _ours(cause: str | None) -> bool:
    return cause is not None and cause not in THEIR_OWN


def grading(job: Job) -> tuple[Measure, Mapping[str, Any]]:
    """How short answers are graded, and what decides the grades."""
    grader, extract = job.supplier.grade(), job.extract

    def grade(examples: Sequence[Example], texts: Sequence[Completion]) -> list[Mapping[str, Any]]:
        rows = grade_completions(list(zip(examples, texts, strict=True)), grader, extract)
        return [{"label": row.grade and row.grade.label, "cause": row.cause} for row in rows]

    return grade, {"measure": "grade", "judge": graded_by(job.judge), "extract": extract}
