"""Whether a model is as often right as it says it is: stated confidence against outcomes, in bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from factrl.evals.metrics import Interval, bootstrap, wilson
from factrl.evals.numbers import Number, Numbers
from factrl.evals.samples import Sample, by_question

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers whose stated confidence lies in one stretch.

    Attributes:
        low, high: the stretch; `high` belongs to the next one, but for the last.
        n: answers in it.
        stated: their mean confidence.
        right: how many were right, as a share with its Wilson limits, or with limits from a bootstrap over
            questions where some were answered several times.
    """

    low: float
    high: float
    n: int
    stated: float
    right: float
    right_low: float
    right_high: float

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        return asdict(self)


def confidence_bins(samples: Sequence[Sample]) -> list[Bin]:
    """The bins that hold an answer; abstentions and answers without a stated confidence are left out."""
    pairs = _pairs(samples)
    bins = []
    for number in range(BINS):
        inside = {
            name: [(sure, right) for sure, right in group if _bin(sure) == number]
            for name, group in pairs.items()
        }
        every = [pair for group in inside.values() for pair in group]
        share = _rate([[float(right) for _, right in group] for group in inside.values()])
        if share is not None:
            stated = sum(sure for sure, _ in every) / len(every)
            limits = (number / BINS, (number + 1) / BINS)
            bins.append(Bin(*limits, len(every), stated, share.value, share.low, share.high))
    return bins


def confidence_numbers(samples: Sequence[Sample]) -> Numbers:
    """How many answers state a confidence, their Brier score and expected calibration error (ten bins).

    Means over answers; intervals by resampling questions, as answers to one question are not independent.
    """
    given = by_question(one for one in samples if one.label in ("correct", "incorrect"))
    pairs = list(_pairs(samples).values())
    stated = _rate([[float(one.confidence is not None) for one in group] for group in given.values()])
    if stated is None or not pairs:
        return {}
    told = "answers that state a confidence / answers given"
    numbers = {"confidence_stated": Number(stated.value, stated.low, stated.high, len(given), told)}
    brier = _over_questions([[(sure - right) ** 2 for sure, right in group] for group in pairs])
    if brier is not None:
        told = "mean of (confidence − right)²"
        numbers["brier"] = Number(brier.value, brier.low, brier.high, len(pairs), told, "lower")
    # Per question: in column b, confidence minus right summed over the answers in bin b, and last how many
    # answers there are; the error is the sum of the absolute values of the columns, per answer.
    gaps = np.zeros((len(pairs), BINS + 1))
    for row, group in enumerate(pairs):
        for sure, right in group:
            gaps[row, _bin(sure)] += sure - right
            gaps[row, BINS] += 1
    error = bootstrap(gaps, lambda means: np.abs(means[:, :BINS]).sum(axis=1) / means[:, BINS])
    if error is not None:
        told = "mean gap between confidence and accuracy, over ten bins"
        numbers["ece"] = Number(error.value, error.low, error.high, len(pairs), told, "lower")
    return numbers


def _rate(groups: Sequence[Sequence[float]]) -> Interval | None:
    """The mean of zeros and ones that are grouped by question."""
    having = [group for group in groups if group]
    if having and all(len(group) == 1 for group in having):
        return wilson(int(sum(group[0] for group in having)), len(having))
    return _over_questions(having)


def _over_questions(groups: Sequence[Sequence[float]]) -> Interval | None:
    """The mean over all values, its interval by drawing groups."""
    rows = [(sum(group), len(group)) for group in groups]
    return bootstrap(rows, lambda means: means[:, 0] / means[:, 1]) if rows else None


def _pairs(samples: Sequence[Sample]) -> dict[str, list[tuple[float, bool]]]:
    """By question, how sure each of its answers is and whether it is right."""
    having = [one for one in samples if one.confidence is not None and one.label in ("correct", "incorrect")]
    return {
        name: [(one.confidence or 0.0, one.label == "correct") for one in group]
        for name, group in by_question(having).items()
    }


def _bin(sure: float) -> int:
    return min(int(sure * BINS), BINS - 1)
