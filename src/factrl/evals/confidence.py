"""How often answers are right, by how sure a model says it is (`factrl.text.confidence`).

What states no confidence is counted and in no mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from factrl.evals.metrics import Better, Interval, Number, bootstrap, wilson
from factrl.evals.samples import Row, by_question
from factrl.text.confidence import stated_confidence

BINS = 10


def confidence_bins(samples: Sequence[Row]) -> list[dict[str, Any]]:
    """Outcomes by confidence, in tenths, abstentions kept (TruthRL has such a picture): for each tenth that
    holds an answer or an abstention `low`, `high`, `n` answers, `abstained` beside them, the answers' mean
    confidence `stated`, and how many were `right`, with `right_low` and `right_high`."""
    pairs = _pairs(samples)
    declined = [sure for one in samples if one.label == "abstained" and (sure := _sure(one)) is not None]
    bins = []
    for number in range(BINS):
        inside = [[pair for pair in group if _bin(pair[0]) == number] for group in pairs]
        every = [sure for group in inside for sure, _ in group]
        right = _rate([[float(right) for _, right in group] for group in inside])
        abstained = [_bin(sure) for sure in declined].count(number)
        if right is not None or abstained:
            told = {
                "low": number / BINS,
                "high": (number + 1) / BINS,
                "n": len(every),
                "abstained": abstained,
            }
            limits = (right.value, right.low, right.high) if right else (None, None, None)
            shares = dict(zip(("right", "right_low", "right_high"), limits, strict=True))
            bins.append({**told, "stated": sum(every) / len(every) if every else None, **shares})
    return bins


def confidence_numbers(samples: Sequence[Row]) -> dict[str, Number]:
    """How many answers state a confidence, their Brier score and expected calibration error (ten bins).

    Means over answers; intervals by resampling questions, as answers to one question are not independent.
    """
    given = by_question(one for one in samples if one.label in ("correct", "incorrect"))
    pairs = _pairs(samples)
    stated = _rate([[float(_sure(one) is not None) for one in group] for group in given.values()])
    if stated is None or not pairs:
        return {}
    brier = _over_questions([[(sure - right) ** 2 for sure, right in group] for group in pairs])
    # Per question: in column b, confidence minus right summed over the answers in bin b, and last how many
    # answers there are; the error is the sum of the absolute values of the columns, per answer.
    gaps = np.zeros((len(pairs), BINS + 1))
    for row, group in enumerate(pairs):
        for sure, right in group:
            gaps[row, _bin(sure)] += sure - right
            gaps[row, BINS] += 1
    error = bootstrap(gaps, lambda means: np.abs(means[:, :BINS]).sum(axis=1) / means[:, BINS])
    found: Mapping[str, tuple[Interval | None, int, str, Better]] = {
        "confidence_stated": (stated, len(given), "answers that state one / answers given", "neither"),
        "brier": (brier, len(pairs), "mean of (confidence − right)²", "lower"),
        "ece": (error, len(pairs), "mean gap between confidence and accuracy, over ten bins", "lower"),
    }
    return {
        name: Number(one.value, one.low, one.high, n, about, better)
        for name, (one, n, about, better) in found.items()
        if one
    }


def _sure(one: Row) -> float | None:
    return None if one.completion is None else stated_confidence(one.completion)[1]


def _pairs(samples: Sequence[Row]) -> list[list[tuple[float, bool]]]:
    """By question, how sure each of its answers is and whether it is right."""
    given = by_question(one for one in samples if one.label in ("correct", "incorrect"))
    pairs = [
        [(sure, one.label == "correct") for one in group if (sure := _sure(one)) is not None]
        for group in given.values()
    ]
    return [group for group in pairs if group]


def _rate(groups: Sequence[Sequence[float]]) -> Interval | None:
    """The mean of zeros and ones that are grouped by question."""
    having = [group for group in groups if group]
    if having and all(len(group) == 1 for group in having):
        return wilson(int(sum(group[0] for group in having)), len(having))
    return _over_questions(having) if having else None


def _over_questions(groups: Sequence[Sequence[float]]) -> Interval | None:
    """The mean over all values, its interval by drawing groups."""
    return bootstrap([(sum(group), len(group)) for group in groups], lambda means: means[:, 0] / means[:, 1])


def _bin(sure: float) -> int:
    return min(int(sure * BINS), BINS - 1)
