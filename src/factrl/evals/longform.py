"""Long answers checked claim by claim, and summed up.

`score_batch` asks a verifier about some responses and returns a row of counts for each; rows are plain enough
for a journal, so a long evaluation can go on where it was stopped.  `summarise_long` turns rows into numbers,
which are defined in `factrl.evals.claim_metrics` together with what differs from the published packages.

What our side could not check is masked, counted by cause and shown: a response whose claims could not be
had, and one with so many missing verdicts that a share of it, such as its F1@K, is
not known to within 0.05.  `LongForm.bounds` says between which values the metrics lie when those of the last
kind are kept, whatever the missing verdicts are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from factrl.errors import DataError
from factrl.evals.claim_metrics import ClaimMetrics, Counts, Ks, resolve_ks
from factrl.evals.judge_quality import Corrected, JudgeQuality
from factrl.evals.metrics import Comparison, Interval
from factrl.types import Example, Passage
from factrl.verifier.report import Report

KS = (32, 64)
"""KLCF's K: 32 for LongWiki, 64 for the other sets (arXiv 2509.23765); SAFE has 64 as well."""

_UNASKED = ("no_evidence", "over_limit")  # causes of verdicts that no judge has given


class ChecksTexts(Protocol):
    """Anything that checks many texts, such as `factrl.verifier.Verifier`."""

    def batch(
        self,
        texts: Sequence[str],
        questions: Sequence[str] | None = None,
        *,
        topics: Sequence[str] | None = None,
        evidence: Sequence[Sequence[str | Passage] | None] | None = None,
    ) -> Sequence[Report]:
        """One report per text, in order."""
        ...


@dataclass(frozen=True, slots=True)
class LongRow:
    """One response and what was found of it.

    Attributes:
        id: of the example; several responses to one prompt have the same.
        supported, refuted, unknown, unjudged: claims by verdict.
        skipped: claims that do not count, such as repeats.
        unasked: of the unknown ones, those that no judge was asked about: no evidence, or over the limit.
        abstained: the response declines to answer.
        floored: why the response was not read, such as `oversize`; it is 0 everywhere.
        cause, detail: why it is masked; None when it is not.
        judge: identity of the judge; empty when nothing was judged.
        weak: no model judged, only overlap of words and numbers.
        claims: text and verdict, or `skipped`, of each claim.
    """

    id: str
    supported: int = 0
    refuted: int = 0
    unknown: int = 0
    unjudged: int = 0
    skipped: int = 0
    unasked: int = 0
    abstained: bool = False
    floored: str | None = None
    cause: str | None = None
    detail: str = ""
    judge: str = ""
    weak: bool = False
    claims: tuple[tuple[str, str], ...] = ()

    @property
    def counts(self) -> Counts:
        """What the metrics are computed from."""
        claims = self.supported + self.refuted + self.unknown + self.unjudged
        declined = self.abstained and not claims
        return Counts(self.supported, claims, self.unjudged, self.unasked, declined, bool(self.floored))

    def to_json(self) -> dict[str, Any]:
        """Plain data for a journal."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> LongRow:
        """What `to_json` gave."""
        claims = tuple((text, verdict) for text, verdict in document["claims"])
        return cls(**{**document, "claims": claims})


@dataclass(frozen=True)
class LongForm:
    """The rows of an evaluation with their numbers.

    Attributes:
        metrics: name -> interval; None where it is undefined.  Names: `factrl.evals.claim_metrics`.
        bounds: the metrics of all responses whose claims are known, with every missing verdict taken for
            unsupported and for supported.
        n: responses that are in the metrics.
        prompts: how many prompts they answer.
        declined, without_claims: of those, the ones without claims that decline and that do not.
        masked, floored: responses by cause.
        ks, gamma: what the metrics were computed with.
        corrected: precision over the claims that were judged, without the judge's errors, beside the raw one.
        judges: identities of the judges.
        weak: no model judged; this is not a verification.
    """

    rows: Sequence[LongRow]
    metrics: Mapping[str, Interval | None]
    bounds: Mapping[str, tuple[float | None, float | None]]
    n: int
    prompts: int
    declined: int
    without_claims: int
    masked: Mapping[str, int]
    floored: Mapping[str, int]
    ks: tuple[int, ...]
    gamma: int
    judges: tuple[str, ...]
    weak: bool
    corrected: Mapping[str, Corrected] = field(default_factory=dict)


def score_batch(
    examples: Sequence[Example], completions: Sequence[str], verifier: ChecksTexts
) -> list[LongRow]:
    """Check some responses, at once and within the verifier's deadline.

    Args:
        examples: the prompts; an example's `evidence`, when it has any, is used instead of a search, and its
            `topic` is where the search is confined to.
        completions: a response for each.

    Returns:
        A row for each completion, in order.

    Raises:
        SetupError: something that the user must change, found by the verifier.
    """
    reports = verifier.batch(
        completions,
        [example.question for example in examples],
        topics=[example.topic for example in examples],
        evidence=[example.evidence or None for example in examples],
    )
    return [
        row_of(example.id or example.question, report)
        for example, report in zip(examples, reports, strict=True)
    ]


def row_of(name: str, report: Report) -> LongRow:
    """The row of a checked response; `name` says which prompt it answers."""
    verdicts = [check.verdict for check in report.checks if check.verdict is not None]
    failure = report.failure
    return LongRow(
        name,
        **report.counts,
        skipped=len(report.checks) - len(verdicts),
        unasked=sum(verdict.cause in _UNASKED for verdict in verdicts if verdict.label == "unknown"),
        abstained=report.abstained,
        floored=report.floored,
        cause=failure.cause if failure else None,
        detail=failure.detail if failure else "",
        judge=report.judge,
        weak=report.weak,
        claims=tuple((c.claim.text, c.verdict.label if c.verdict else "skipped") for c in report.checks),
    )


def summarise_long(
    rows: Sequence[LongRow],
    *,
    ks: Ks = KS,
    gamma: int = 10,
    quality: JudgeQuality | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> LongForm:
    """What checked responses come to.

    Args:
        ks: facts that a good answer is expected to give; `median` is that of these rows' claims, as in
            VeriScore (of several systems: `factrl.evals.claim_metrics.median_k` of all their counts).
        gamma: claims below which FActScore is lowered.
        quality: of the judge, measured on labelled claims; adds `corrected`.
        seed: fixes the resamples.

    Raises:
        ConfigError: a K below 1, or a negative gamma.
        DataError: `quality` is that of another judge, or of one that is no better than chance.
    """
    known = [row for row in rows if row.cause is None]
    counts = [row.counts for row in known]
    metrics = ClaimMetrics(resolve_ks(ks, counts), gamma)
    undecided = metrics.undecided(counts)
    kept = [row for row, wide in zip(known, undecided, strict=True) if not wide]
    keys, used = [row.id for row in kept], [row.counts for row in kept]
    low, high = metrics.point(counts, 0.0), metrics.point(counts, 1.0)
    masked = Counter(row.cause for row in rows if row.cause is not None)
    masked.update({"claims_unjudged": sum(undecided)} if any(undecided) else {})
    judges = tuple(dict.fromkeys(row.judge for row in rows if row.judge))
    return LongForm(
        rows=rows,
        metrics=metrics.intervals(keys, used, confidence=confidence, seed=seed),
        bounds={name: (low[name], high[name]) for name in low},
        n=len(used),
        prompts=len({*keys}),
        declined=sum(one.declined for one in used),
        without_claims=sum(not one.claims and not one.declined and not one.floored for one in used),
        masked=dict(masked.most_common()),
        floored=dict(Counter(row.floored for row in rows if row.floored).most_common()),
        ks=metrics.ks,
        gamma=gamma,
        judges=judges,
        weak=any(row.weak for row in rows),
        corrected=_corrected(quality, judges, metrics.judged(keys, used)) if quality and used else {},
    )


def compare_long(
    before: Sequence[LongRow],
    after: Sequence[LongRow],
    *,
    ks: Ks = KS,
    gamma: int = 10,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Differences, after minus before, on the prompts with an unmasked response in both.

    `median` in `ks` is that of both together.  Counts of claims (`detail`, `claims`) are differences too, not
    shares.
    """
    pooled = [row.counts for row in (*before, *after) if row.cause is None]
    metrics = ClaimMetrics(resolve_ks(ks, pooled), gamma)
    usable = []
    for rows in (before, after):
        known = [row for row in rows if row.cause is None]
        wide = metrics.undecided([row.counts for row in known])
        kept = [row for row, out in zip(known, wide, strict=True) if not out]
        usable.append(([row.id for row in kept], [row.counts for row in kept]))
    n, differences = metrics.differences(usable[0], usable[1], confidence=confidence, seed=seed)
    return Comparison(n, len({row.id for row in (*before, *after)}) - n, differences)


def _corrected(
    quality: JudgeQuality, judges: Sequence[str], judged: Mapping[str, Any]
) -> dict[str, Corrected]:
    if len(judges) > 1:
        raise DataError(f"rows of {len(judges)} judges cannot be corrected together: {', '.join(judges)}")
    quality.check("".join(judges))
    return {name: quality.correct(counts) for name, counts in judged.items() if counts[:, 1].sum()}
