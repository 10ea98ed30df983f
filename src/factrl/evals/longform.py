"""Long answers, and the reasoning of short ones: checked claim by claim, and summed up with intervals.

S of T claims are supported; missing verdicts count half, and mask the answer where a share of it, such as its
F1@K, is not known to within 0.05.  Three treatments of an answer without claims are published, all here:

    factscore...     left out, whyever it has none; how many have some is `respond_ratio`   (FActScore's code)
    precision, recall@K, f1@K     0, but left out when it declines to answer                (VeriScore's code)
    .../all          0                      (SAFE's F1@K, KLCF's P, R@K and F1@K, VeriScore's paper)

`_micro` pools the claims of all answers; everything else is a mean over answers.  `precision_micro` is F/T
and `detail` F of "Learning to Reason for Factuality".

Where the published packages differ, given the same decisions: an answer without claims is a ZeroDivisionError
in FActScore 0.2.0 (arXiv 2305.14251) and in VeriScore 2.0.3 (arXiv 2406.19276), whose K is the upper median
of T over all systems that are compared, where ours is fixed.  Both count whatever claims they got; our
verifier leaves out repeats, what only says the question again and what is about the text itself, and counts
claims beyond `max_claims` as not supported.  A call that fails is "supported" in FActScore and "not
supported" in VeriScore; here a verdict is missing.  A text too long to be read is 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from factrl.errors import Unscored
from factrl.evals.catalogue import Benchmark
from factrl.evals.metrics import Floats, Statistic, bootstraps, ratio, wilson
from factrl.evals.numbers import Numbers, number
from factrl.evals.samples import Claims, EvalSample
from factrl.evals.shortqa import Texts, final_part, in_order
from factrl.runs.progress import Progress
from factrl.text import tag
from factrl.types import Example, VerdictLabel
from factrl.verifier import Verifier
from factrl.verifier.report import WIDTH, Report

AT_ONCE = 8  # answers whose claims are checked together
GAMMA = 10  # claims below which FActScore is lowered for brevity
_ALL, _RESPONDED, _ANSWERED, _SUPPORTED, _CLAIMS, _PRECISION, _FACTSCORE, _RECALL, _F1 = range(9)


# -- Checking -----------------------------------------------------------------------------------------


def check_texts(
    benchmark: Benchmark,
    examples: Sequence[Example],
    texts: Texts,
    verifier: Verifier,
    *,
    chat: bool = True,
) -> list[EvalSample]:
    """A row for every text; it has no grade, as a long answer is neither right nor wrong.

    What could not be checked is masked.  Reasoning is not checked.  An example's `evidence`, when it has any,
    is used instead of a search, and its `topic` is where the search is confined to.

    Args:
        chat: false where the model only continued the text.
    """
    rows = [
        _unchecked(EvalSample(example, None, None, benchmark=benchmark.name, number=number), texts, chat)
        for example, number in in_order(examples, texts)
    ]
    with Progress(f"{benchmark.name}: grade", len(rows)) as progress:
        for start in range(0, len(rows), AT_ONCE):
            block = range(start, min(start + AT_ONCE, len(rows)))
            read = [(at, rows[at][0].example, answer) for at in block if (answer := rows[at][1]) is not None]
            reports = verifier.batch(
                [answer for *_, answer in read],
                [example.question for _, example, _ in read],
                topics=[example.topic for _, example, _ in read],
                evidence=[example.evidence or None for _, example, _ in read],
            )
            for (at, *_), report in zip(read, reports, strict=True):
                rows[at] = (_checked(rows[at][0], report, benchmark.recall_at), None)
            progress.advance(len(block))
    return [row for row, _ in rows]


def _unchecked(row: EvalSample, texts: Texts, chat: bool) -> tuple[EvalSample, str | None]:
    """A row with its text, and what of that is checked; None where there is nothing."""
    text = texts[row.example.id, row.number]
    if isinstance(text, Unscored):
        return replace(row, cause=text.cause, detail=text.detail), None
    answer = final_part(text, chat=chat, long=True)
    claims = Claims(floored="no_answer") if answer is None else None
    return replace(row, completion=text, claims=claims), answer


def _checked(row: EvalSample, report: Report, k: int) -> EvalSample:
    if failure := report.failure:
        return replace(row, cause=failure.cause, detail=failure.detail)
    claims = claims_of(report)
    if undecided([claims], k)[0]:
        detail = f"{claims.unjudged} of {claims.total} claims have no verdict"
        return replace(row, claims=claims, cause="claims_unjudged", detail=detail)
    return replace(row, claims=claims)


def claims_of(report: Report) -> Claims:
    """What was found of a checked answer."""
    claims = tuple((c.claim.text, c.verdict.label if c.verdict else "skipped") for c in report.checks)
    skipped = [label for _, label in claims].count("skipped")
    return Claims(
        **report.likelier,
        skipped=skipped,
        abstained=report.abstained,
        floored=report.floored,
        claims=claims,
    )


def with_steps(rows: Sequence[EvalSample], verifier: Verifier) -> list[EvalSample]:
    """The answers with the share of true steps of their reasoning, `true_steps`, among their `values`.

    A step is a sentence of the think block that claims something; it is true where the evidence of its
    question supports a claim of it and refutes none, as FSPO (arXiv:2505.24630) judges them in training.  A
    reasoning without a step has 0.  No share have answers without a closed think block, questions without
    evidence, and reasoning of which missing verdicts could move it by more than `WIDTH`.
    """
    updated, thoughts = [*rows], [*map(_thought, rows)]
    indices = [at for at, one in enumerate(rows) if one.example.evidence and thoughts[at] is not None]
    with Progress("reasoning", len(indices)) as progress:
        for start in range(0, len(indices), AT_ONCE):
            some = indices[start : start + AT_ONCE]
            examples = [rows[at].example for at in some]
            reports = verifier.batch(
                [thoughts[at] or "" for at in some],
                [example.question for example in examples],
                evidence=[example.evidence for example in examples],
            )
            for at, report in zip(some, reports, strict=True):
                share = _true_share(report)
                if share is not None:
                    updated[at] = replace(rows[at], values={**rows[at].values, "true_steps": share})
            progress.advance(len(some))
    return updated


def _thought(row: EvalSample) -> str | None:
    """The think block of an answer, which its prefill may have opened."""
    text = row.completion
    block = None if text is None else tag(f"{getattr(text, 'prefill', '')}{text}", "think", "first")
    return block.text if block else None


def _true_share(report: Report) -> float | None:
    if report.failure:
        return None
    steps: dict[int, set[VerdictLabel]] = {}
    for check in report.checks:
        if check.verdict is not None:
            steps.setdefault(check.claim.sentence, set()).add(check.verdict.label)
    # One without a verdict could still refute its sentence.
    order: tuple[VerdictLabel, ...] = ("refuted", "unjudged", "supported", "unknown")
    labels = [min(own, key=order.index) for own in steps.values()]
    missing = labels.count("unjudged")
    if missing > WIDTH * len(labels):
        return None
    return (labels.count("supported") + missing / 2) / max(len(labels), 1)


# -- Numbers ------------------------------------------------------------------------------------------


def columns(rows: Sequence[Claims], k: int, share: float = 0.5) -> Floats:
    """What the metrics are means and ratios of, `(N, 9)`.

    Args:
        k: facts that a good answer gives.
        share: of the missing verdicts that are taken for `supported`: 0 is the lower bound of every column
            and 1 the upper one; in between, columns lie as far between their bounds.
    """
    if share not in (0.0, 1.0):
        return (1 - share) * columns(rows, k, 0.0) + share * columns(rows, k, 1.0)
    claims = np.array([row.total for row in rows], dtype=np.float64)
    supported = np.array([row.supported + share * row.unjudged for row in rows], dtype=np.float64)
    precision = supported / np.maximum(claims, 1.0)
    penalty = np.exp(np.minimum(1.0 - GAMMA / np.maximum(claims, 1.0), 0.0))
    recall = np.minimum(supported / k, 1.0)
    return np.column_stack(
        [
            np.ones_like(claims),
            [row.total > 0 or row.floored is not None for row in rows],
            [bool(row.total) or not row.abstained for row in rows],
            supported,
            claims,
            precision,
            precision * penalty,
            recall,
            _harmonic(precision, recall),
        ]
    )


def statistics(k: int) -> Mapping[str, Statistic]:
    """Every metric, in reading order, as a function of column means `(R, 9)`."""

    def over(column: int, by: int) -> Statistic:
        return lambda means: ratio(means[:, column], means[:, by])

    return {
        "respond_ratio": over(_RESPONDED, _ALL),
        "factscore": over(_FACTSCORE, _RESPONDED),
        "factscore_unpenalised": over(_PRECISION, _RESPONDED),
        "precision": over(_PRECISION, _ANSWERED),
        "precision_micro": over(_SUPPORTED, _CLAIMS),
        "detail": over(_SUPPORTED, _ANSWERED),
        "claims": over(_CLAIMS, _RESPONDED),
        f"recall@{k}": over(_RECALL, _ANSWERED),
        f"f1@{k}": over(_F1, _ANSWERED),
        "precision/all": over(_PRECISION, _ALL),
        f"recall@{k}/all": over(_RECALL, _ALL),
        f"f1@{k}/all": over(_F1, _ALL),
    }


def undecided(rows: Sequence[Claims], k: int) -> list[bool]:
    """Which answers have a share, such as F1@K, that missing verdicts could move by over `WIDTH`."""
    width = (columns(rows, k, 1.0) - columns(rows, k, 0.0))[:, _PRECISION:]
    return (width.max(axis=1) > WIDTH + 1e-9).tolist()


def claim_numbers(samples: Sequence[EvalSample], k: int) -> Numbers:
    """The metrics of answers that are not masked; intervals by resampling prompts."""
    rows = [row for row in claim_rows(samples, k).values() if row is not None]
    if not rows:
        return {}
    sums = np.array(rows)
    metrics = bootstraps(sums, statistics(k))
    if (sums[:, _ALL] == 1).all():
        metrics["respond_ratio"] = wilson(int(sums[:, _RESPONDED].sum()), len(sums))
    numbers: Numbers = {}
    for name, interval in metrics.items():
        numbers |= number(name, interval, len(rows))
    return numbers


def claim_rows(samples: Sequence[EvalSample], k: int) -> dict[str, Floats | None]:
    """By prompt the columns of its unmasked answers, added up; None without any."""
    rows: dict[str, Floats | None] = {}
    for one in samples:
        sums = rows.setdefault(one.example.id, None)
        if one.claims is not None and one.cause is None:
            more = columns([one.claims], k)[0]
            rows[one.example.id] = more if sums is None else sums + more
    return rows


def _harmonic(a: Floats, b: Floats) -> Floats:
    """`2ab / (a + b)`, and 0 where both are 0."""
    total = a + b
    return np.divide(2 * a * b, total, out=np.where(np.isnan(total), total, 0.0), where=total > 0)
