"""Whether a model is as often right as it says it is: stated confidence against outcomes, in bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from factrl.bench.metrics import bootstrap, wilson
from factrl.bench.numbers import Number, Numbers
from factrl.bench.samples import Sample

BINS = 10


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers whose stated confidence lies in one stretch.

    Attributes:
        low, high: the stretch; `high` belongs to the next one, but for the last.
        n: answers in it.
        stated: their mean confidence.
        right: how many were right, as a share with its Wilson limits.
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
        inside = [(sure, right) for sure, right in pairs if _bin(sure) == number]
        if inside:
            share = wilson(sum(right for _, right in inside), len(inside))
            stated = sum(sure for sure, _ in inside) / len(inside)
            limits = (number / BINS, (number + 1) / BINS)
            bins.append(Bin(*limits, len(inside), stated, share.value, share.low, share.high))
    return bins


def confidence_numbers(samples: Sequence[Sample]) -> Numbers:
    """How many answers state a confidence, their Brier score and expected calibration error (ten bins)."""
    given = [one for one in samples if one.label in ("correct", "incorrect")]
    pairs = _pairs(samples)
    if not given or not pairs:
        return {}
    stated = wilson(len(pairs), len(given))
    told = "answers that state a confidence / answers given"
    numbers = {"confidence_stated": Number(stated.value, stated.low, stated.high, len(given), told)}
    brier = bootstrap([(sure - right) ** 2 for sure, right in pairs])
    if brier is not None:
        told = "mean of (confidence − right)²"
        numbers["brier"] = Number(brier.value, brier.low, brier.high, len(pairs), told, "lower")
    # Per answer: in column b, confidence minus right where the answer is in bin b; the error is the sum of
    # the absolute column means.
    gaps = np.zeros((len(pairs), BINS))
    for row, (sure, right) in enumerate(pairs):
        gaps[row, _bin(sure)] = sure - right
    error = bootstrap(gaps, lambda means: np.abs(means).sum(axis=1))
    if error is not None:
        told = "mean gap between confidence and accuracy, over ten bins"
        numbers["ece"] = Number(error.value, error.low, error.high, len(pairs), told, "lower")
    return numbers


def _pairs(samples: Sequence[Sample]) -> list[tuple[float, bool]]:
    return [
        (one.confidence, one.label == "correct")
        for one in samples
        if one.confidence is not None and one.label in ("correct", "incorrect")
    ]


def _bin(sure: float) -> int:
    return min(int(sure * BINS), BINS - 1)
