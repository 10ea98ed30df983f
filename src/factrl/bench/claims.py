"""Long answers of a benchmark, checked claim by claim (`factrl.bench.longform`) and resumable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from factrl.bench.asking import Texts
from factrl.bench.benchmark import Benchmark
from factrl.bench.judge_quality import JudgeQuality
from factrl.bench.longform import ChecksTexts, LongRow, score_batch, summarise_long
from factrl.bench.numbers import Better, Number, Numbers
from factrl.bench.outcomes import sample_of
from factrl.bench.samples import Sample
from factrl.errors import Unscored
from factrl.journal import Journal
from factrl.types import Example

AT_ONCE = 8  # answers whose claims are checked together
ROW = "claims"  # where a sample's `marks` hold its row

_KINDS = {"raw": "as the judge has it", "corrected": "without the judge's errors (Rogan and Gladen)"}
_COUNTED = ("detail", "claims")
_ABOUT: Mapping[str, tuple[str, Better]] = {
    "respond_ratio": ("answers with a claim / answers", "neither"),
    "factscore": ("supported / claims, lowered below 10 claims", "higher"),
    "factscore_unpenalised": ("supported / claims, without that", "higher"),
    "precision": ("supported / claims, 0 without claims", "higher"),
    "precision_micro": ("supported / claims of all answers together", "higher"),
    "detail": ("supported claims of an answer", "higher"),
    "claims": ("claims of an answer", "neither"),
}


@dataclass(frozen=True)
class ClaimChecker:
    """A verifier, what it is, and how often its judge is right where that was measured."""

    verifier: ChecksTexts
    identity: str
    quality: JudgeQuality | None = None


def check_texts(
    benchmark: Benchmark,
    examples: Sequence[Example],
    texts: Texts,
    checker: ClaimChecker,
    journal: Journal,
    on_done: Callable[[int], None] = lambda count: None,
) -> list[Sample]:
    """A `Sample` for every text; its label is None, as a long answer is neither right nor wrong.

    What could not be checked is masked and not kept, so that the next run tries again.
    """
    numbers = sorted({number for _, number in texts})
    pairs = [(example, n) for example in examples for n in numbers if (example.id, n) in texts]
    samples = []
    for start in range(0, len(pairs), AT_ONCE):
        block = pairs[start : start + AT_ONCE]
        missing = [pair for pair in block if _key(pair) not in journal and not _failed(texts, pair)]
        rows = score_batch(
            [example for example, _ in missing],
            [str(texts[example.id, n]) for example, n in missing],
            checker.verifier,
        )
        found = {_key(pair): row for pair, row in zip(missing, rows, strict=True)}
        for key, row in found.items():
            if row.cause is None:
                journal.add(key, row.to_json())
        for pair in block:
            text = texts[pair[0].id, pair[1]]
            if isinstance(text, Unscored):
                row = LongRow(pair[0].id, cause=text.cause, detail=text.detail)
            else:
                kept = journal.get(_key(pair))
                row = LongRow.from_json(kept) if kept is not None else found[_key(pair)]
            samples.append(_sample(benchmark, pair, text, row))
        on_done(len(block))
    return samples


def rows_of(samples: Sequence[Sample]) -> list[LongRow]:
    """The rows that `check_texts` put into the samples."""
    return [LongRow.from_json(one.marks[ROW]) for one in samples if ROW in one.marks]


def claim_numbers(samples: Sequence[Sample], recall_at: int, quality: JudgeQuality | None = None) -> Numbers:
    """The long-form numbers, F1@K for the benchmark's K; intervals by resampling questions.

    Args:
        quality: of the judge; adds each precision over judged claims, raw and without the judge's errors.

    Raises:
        DataError: the quality is that of another judge, or of one that is no better than chance.
    """
    found = summarise_long(rows_of(samples), ks=(recall_at,), quality=quality)
    numbers = {
        name: Number(
            interval.value,
            interval.low,
            interval.high,
            found.prompts,
            *_ABOUT.get(name, ("", "higher")),
            percent=name not in _COUNTED,
        )
        for name, interval in found.metrics.items()
        if interval is not None
    }
    for name, corrected in found.corrected.items():
        for kind, interval in (("raw", corrected.raw), ("corrected", corrected.interval)):
            about = f"supported / judged claims, {_KINDS[kind]}"
            told = (interval.value, interval.low, interval.high, found.prompts)
            numbers[f"{name}/{kind}"] = Number(*told, about, "higher")
    return numbers


def _sample(benchmark: Benchmark, pair: tuple[Example, int], text: Any, row: LongRow) -> Sample:
    counts = row.counts
    about = {
        "cause": row.cause,
        "detail": row.detail,
        "floored": row.floored,
        "how": "claims",
        "answer": "" if row.cause else f"{row.supported} of {counts.claims} claims supported",
    }
    sample = sample_of(benchmark, *pair, text, about)
    return replace(sample, marks={**sample.marks, ROW: row.to_json()})


def _failed(texts: Texts, pair: tuple[Example, int]) -> bool:
    return isinstance(texts[pair[0].id, pair[1]], Unscored)


def _key(pair: tuple[Example, int]) -> str:
    return f"{pair[1]}:{pair[0].id}"
