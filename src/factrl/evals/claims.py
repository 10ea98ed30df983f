"""Long answers of a benchmark, checked claim by claim (`factrl.evals.longform`) and resumable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from factrl.errors import Unscored
from factrl.evals.asking import Texts
from factrl.evals.catalogue import Benchmark
from factrl.evals.claim_metrics import ClaimMetrics
from factrl.evals.judge_quality import JudgeQuality
from factrl.evals.longform import ChecksTexts, LongRow, score_batch, summarise_long
from factrl.evals.numbers import Better, Number, Numbers
from factrl.evals.outcomes import OF, grade_digest, sample_of
from factrl.evals.prompts import final_part
from factrl.evals.samples import Sample
from factrl.llm.writers import Written
from factrl.runs.journal import Journal
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
    *,
    chat: bool = True,
) -> list[Sample]:
    """A `Sample` for every text; its label is None, as a long answer is neither right nor wrong.

    What could not be checked is masked; it is not kept, and neither is a row with a missing verdict, so that
    the next run tries again.  Reasoning is not checked.

    Args:
        chat: false where the model only continued the text.
    """
    numbers = sorted({number for _, number in texts})
    pairs = [(example, n) for example in examples for n in numbers if (example.id, n) in texts]
    samples = []
    for start in range(0, len(pairs), AT_ONCE):
        block = pairs[start : start + AT_ONCE]
        found = {_key(pair): _known_row(journal, pair, texts[pair[0].id, pair[1]], chat) for pair in block}
        missing = [
            (pair, said)
            for pair in block
            if found[_key(pair)] is None and (said := _said(texts[pair[0].id, pair[1]], chat)) is not None
        ]
        examples = [example for (example, _), _ in missing]
        rows = score_batch(examples, [said for _, said in missing], checker.verifier)
        for (pair, _), row in zip(missing, rows, strict=True):
            found[_key(pair)] = row
            if row.cause is None and not row.unjudged:
                of = grade_digest(texts[pair[0].id, pair[1]], pair[0])
                journal.add(_key(pair), {**row.to_json(), OF: of})
        for pair in block:
            row = found[_key(pair)]
            if row is not None:
                samples.append(_sample(benchmark, pair, texts[pair[0].id, pair[1]], row))
        on_done(len(block))
    return samples


def claim_bounds(samples: Sequence[Sample], recall_at: int) -> dict[str, tuple[float | None, float | None]]:
    """Between which values the metrics lie, whatever the missing verdicts are.

    Of all answers whose claims are known, those that are masked for their missing verdicts included.
    """
    counts = [row.counts for row in rows_of(samples) if row.cause is None]
    metrics = ClaimMetrics((recall_at,))
    low, high = metrics.point(counts, 0.0), metrics.point(counts, 1.0)
    return {name: (low[name], high[name]) for name in low}


def _known_row(journal: Journal, pair: tuple[Example, int], text: Written, chat: bool) -> LongRow | None:
    """What is known of a text without asking the verifier."""
    example, _ = pair
    if isinstance(text, Unscored):
        return LongRow(example.id, cause=text.cause, detail=text.detail)
    if _said(text, chat) is None:
        return LongRow(example.id, floored="no_answer")
    kept = dict(journal.get(_key(pair), {}))
    return LongRow.from_json(kept) if kept.pop(OF, None) == grade_digest(text, example) else None


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


def _said(text: Written, chat: bool) -> str | None:
    """What of a text is checked."""
    return None if isinstance(text, Unscored) else final_part(text, chat=chat, long=True)


def _sample(benchmark: Benchmark, pair: tuple[Example, int], text: Written, row: LongRow) -> Sample:
    counts, cause, detail = row.counts, row.cause, row.detail
    if cause is None and ClaimMetrics((benchmark.recall_at,)).undecided([counts])[0]:
        cause = "claims_unjudged"
        detail = f"{counts.unjudged} of {counts.claims} claims have no verdict"
    about = {
        "cause": cause,
        "detail": detail,
        "floored": row.floored,
        "how": "claims",
        "answer": "" if cause else f"{row.supported} of {counts.claims} claims supported",
    }
    sample = sample_of(benchmark, *pair, text, about)
    return replace(sample, marks={**sample.marks, ROW: row.to_json()})


def _key(pair: tuple[Example, int]) -> str:
    return f"{pair[1]}:{pair[0].id}"
