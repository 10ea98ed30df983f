"""How far a judge can be believed: its verdicts against people's, and precision corrected by what that shows.

A judge that calls some unsupported claims supported, and the other way round, shifts every precision that is
computed from its verdicts, however many responses are evaluated.  `measure` says by how much it errs, on
claims that people have labelled; `JudgeQuality.correct` takes the error out of a share of supported claims:

    corrected = (raw + specificity - 1) / (sensitivity + specificity - 1)     (Rogan and Gladen 1978)

Everything is about two classes, supported or not: a claim that is refuted, unknown or supported in part is
not supported.  Intervals are by resampling labelled documents, and for a corrected share the evaluated
prompts as well, so they hold both uncertainties.

What the correction assumes: that the judge errs on the evaluated claims as often as on the labelled ones.
Labels of another kind of text, or evidence found in another way, do not give that.  What it leaves alone:
claims that were extracted wrongly and evidence that was not found.  Only shares of claims are linear in the
verdicts; F1 and recall are not corrected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from factrl.errors import DataError
from factrl.evals.metrics import (
    RESAMPLES,
    Floats,
    Interval,
    bootstraps,
    ratio,
    resampled_means,
    summed,
    wilson,
)


@dataclass(frozen=True, slots=True)
class Judged:
    """What people and the judge say of one claim.

    Attributes:
        truth: people say that it is supported.
        said: the judge says so; None when it gave no verdict.
        group: the document, prompt or person that it is from; claims of one are not independent.  Empty when
            the claim is on its own.
        cause: why there is no verdict.
    """

    truth: bool
    said: bool | None
    group: str = ""
    cause: str | None = None


LEAST = 200
"""Labelled claims from which a judge's quality is published; below, its intervals say next to nothing."""

_SMOOTHING = 0.5 * np.eye(4)  # half a claim of each kind, so that no error seen is not no error possible


@dataclass(frozen=True, slots=True)
class Corrected:
    """A share of supported claims without the judge's errors, beside the raw one.

    Attributes:
        raw: the share as the judge has it.
        interval: the corrected share, put between 0 and 1; wider for each resample in which the judge is no
            better than chance.
        unclipped: the estimate before that.  Out of range by chance, or because the judge errs otherwise on
            these claims.
    """

    raw: Interval
    interval: Interval
    unclipped: float


@dataclass(frozen=True)
class JudgeQuality:
    """A judge against people.

    Attributes:
        tables: for each group, how many claims are supported and called so, supported and not called so,
            not supported but called so, and neither.
        judge: identity of the judge.
        unjudged: claims without a verdict, by cause; they are in no other number.
        confidence: of the intervals.
    """

    tables: tuple[tuple[int, int, int, int], ...]
    judge: str = ""
    unjudged: Mapping[str, int] = field(default_factory=dict)
    confidence: float = 0.95
    seed: int = 0

    @property
    def n(self) -> int:
        """Labelled claims with a verdict."""
        return sum(map(sum, self.tables))

    @cached_property
    def metrics(self) -> Mapping[str, Interval | None]:
        """`agreement`, `sensitivity`, `specificity` and `kappa` (Cohen's); None where it is undefined.

        Rates are with Wilson intervals when every claim is on its own, else by resampling groups.
        """
        hit, missed, false_alarm, left = (int(sum(column)) for column in zip(*self.tables, strict=True))
        rates = {
            "agreement": (hit + left, self.n),
            "sensitivity": (hit, hit + missed),
            "specificity": (left, left + false_alarm),
        }
        metrics = bootstraps(self.tables, _STATISTICS, self.seed, confidence=self.confidence)
        if all(sum(table) == 1 for table in self.tables):
            exact = {name: wilson(k, of, self.confidence) for name, (k, of) in rates.items() if of}
            metrics |= exact
        return metrics

    def check(self, judge: str = "") -> None:
        """Refuse what no rate can be corrected with.

        Args:
            judge: identity of the judge whose verdicts are to be corrected; empty when unknown.

        Raises:
            DataError: another judge, one class only, or a judge that is no better than chance.
        """
        if judge and self.judge and judge != self.judge:
            raise DataError(
                f"these labels are about the judge {self.judge!r}, not {judge!r}; "
                "measure the quality of the judge that the evaluation uses"
            )
        sensitivity, specificity = self._rates
        if not sensitivity + specificity > 1:
            raise DataError(
                f"sensitivity {sensitivity:.3f} and specificity {specificity:.3f} do not add up to "
                "more than 1: the judge is no better than chance on the labelled claims, and no rate can be "
                "corrected with it; label claims of both classes, or take another judge"
            )

    def correct(self, counts: Floats, n: int = RESAMPLES) -> Corrected:
        """The Rogan-Gladen estimate of a share of supported claims: the sums of two columns, divided.

        Args:
            counts: `(N, 2)`, a row for each prompt: supported claims and claims.  Or the precisions of its
                responses, added up, and how many responses these are.
            n: number of resamples.

        Raises:
            DataError: see `check`; or there is nothing to divide by.
        """
        self.check()
        raw = float(_share(counts.mean(axis=0, keepdims=True))[0])
        if math.isnan(raw):
            raise DataError("a share of no claims cannot be corrected")
        draws = _share(resampled_means(counts, self.seed, n))
        sensitivity, specificity = self._rates
        tables = np.vstack([np.asarray(self.tables, dtype=np.float64), _SMOOTHING])
        means = resampled_means(tables, (self.seed, 1), n)
        true, false = means[:, 0] + means[:, 1], means[:, 2] + means[:, 3]
        with np.errstate(divide="ignore", invalid="ignore"):
            spec = means[:, 3] / false
            apart = means[:, 0] / true + spec - 1
            found = np.clip((draws + spec - 1) / apart, 0.0, 1.0)
        defined = (apart > 0) & ~np.isnan(draws)  # not so when a resample holds one class, or no claim
        tail = (1 - self.confidence) / 2
        unclipped = (raw + specificity - 1) / (sensitivity + specificity - 1)
        value = min(max(unclipped, 0.0), 1.0)
        low = float(np.quantile(np.where(defined, found, 0.0), tail))
        high = float(np.quantile(np.where(defined, found, 1.0), 1 - tail))
        return Corrected(
            Interval(raw, *map(float, np.nanquantile(draws, [tail, 1 - tail]))),
            Interval(value, min(value, low), max(value, high)),
            unclipped,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`, which `from_json` reads."""
        shown = {name: asdict(value) if value else None for name, value in self.metrics.items()}
        return {**asdict(self), "unjudged": dict(self.unjudged), "n": self.n, "metrics": shown}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> JudgeQuality:
        """What `to_json` gave.

        Raises:
            DataError: it is something else.
        """
        try:
            tables = tuple((int(a), int(b), int(c), int(d)) for a, b, c, d in document["tables"])
            named = {name: document[name] for name in ("judge", "unjudged", "confidence", "seed")}
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"this is not a judge's quality ({error!r}); write one with to_json") from error
        if not tables or min(map(min, tables)) < 0:
            raise DataError("this is not a judge's quality: it has no table of counts")
        return cls(tables, **named)

    @property
    def _rates(self) -> tuple[float, float]:
        """Sensitivity and specificity; NaN without claims of the class."""
        hit, missed, false_alarm, left = (int(sum(column)) for column in zip(*self.tables, strict=True))
        return (
            hit / (hit + missed) if hit + missed else math.nan,
            left / (left + false_alarm) if left + false_alarm else math.nan,
        )


def measure(
    judged: Sequence[Judged],
    judge: str = "",
    *,
    least: int = LEAST,
    confidence: float = 0.95,
    seed: int = 0,
) -> JudgeQuality:
    """The quality of a judge, from its verdicts on labelled claims.

    Args:
        judge: its identity.
        least: how many verdicts there must be.

    Raises:
        DataError: there are fewer verdicts, or all are of one group, which gives no interval.
    """
    known = [one for one in judged if one.said is not None]
    if len(known) < max(least, 1):
        raise DataError(
            f"a judge's quality needs at least {max(least, 1)} labelled claims with a verdict, not "
            f"{len(known)} of {len(judged)}; label more claims, or allow fewer with least=N"
        )
    kinds = [2 * (not one.truth) + (not one.said) for one in known]  # columns of a table
    keys = [one.group or f"\0{number}" for number, one in enumerate(known)]
    sums = summed(keys, np.eye(4)[kinds])[1].astype(int).tolist()
    if len(sums) == 1:
        raise DataError(f"all {len(known)} labelled claims are of one group; intervals need several")
    causes = Counter(one.cause or "unjudged" for one in judged if one.said is None)
    tables = tuple((a, b, c, d) for a, b, c, d in sums)
    return JudgeQuality(tables, judge, dict(causes.most_common()), confidence, seed)


def _share(means: Floats) -> Floats:
    return ratio(means[:, 0], means[:, 1])


def _kappa(means: Floats) -> Floats:
    hit, missed, false_alarm, left = means.T / means.sum(axis=1)
    by_chance = (hit + missed) * (hit + false_alarm) + (left + missed) * (left + false_alarm)
    return ratio(hit + left - by_chance, np.where(1 - by_chance > 1e-12, 1 - by_chance, 0.0))


_STATISTICS: Mapping[str, Callable[[Floats], Floats]] = {
    "agreement": lambda means: ratio(means[:, 0] + means[:, 3], means.sum(axis=1)),
    "sensitivity": lambda means: ratio(means[:, 0], means[:, 0] + means[:, 1]),
    "specificity": lambda means: ratio(means[:, 3], means[:, 2] + means[:, 3]),
    "kappa": _kappa,
}
