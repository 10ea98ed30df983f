"""How far probabilities can be believed: accuracy, ranking and calibration, with their uncertainty.

Every number has a percentile bootstrap interval over documents, because claims of one document stand or fall
together.  Expected calibration error is over ten bins of equal width of the probability of *true*: the mean
over claims of |mean probability - share of true claims| of their bin (Naeini et al. 2015, AAAI).  The
temperature divides logits so that the held-out likelihood is greatest (Guo et al. 2017, arXiv:1706.04599).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from factrl.evals.metrics import Interval

BINS = 10
RESAMPLES = 1_000
METRICS = ("accuracy", "macro_f1", "auc", "ece", "brier", "positive")
_COLDEST, _HOTTEST = 0.05, 20.0

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bin:
    """Claims whose probability lies in [low, high).

    Attributes:
        count: claims in it.
        predicted: their mean probability; None when there are none.
        true: share of them that is true; None when there are none.
    """

    low: float
    high: float
    count: int
    predicted: float | None
    true: float | None


@dataclass(frozen=True)
class Reliability:
    """What the probabilities of one set of claims are worth.

    Attributes:
        n, groups: claims and documents.
        metrics: name -> interval, by `METRICS`: accuracy and macro-F1 at 0.5, area under the ROC curve,
            expected calibration error, Brier score, and the share of true claims; None where it is undefined.
        bins: the reliability diagram.
    """

    n: int
    groups: int
    metrics: Mapping[str, Interval | None]
    bins: tuple[Bin, ...]


def sigmoid(logits: ArrayLike) -> Floats:
    """Probabilities of logits, without overflow."""
    return 0.5 + 0.5 * np.tanh(np.asarray(logits, dtype=np.float64) / 2)


def fit_temperature(logits: Sequence[float], true: Sequence[bool]) -> float:
    """What logits have to be divided by for the greatest likelihood, between 0.05 and 20.

    The negative log-likelihood is convex in 1 / temperature, so thirds of the interval find its minimum.
    """
    z, y = np.asarray(logits, dtype=np.float64), np.where(np.asarray(true), 1.0, -1.0)
    low, high = 1 / _HOTTEST, 1 / _COLDEST
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        if np.logaddexp(0, -y * z * a).sum() <= np.logaddexp(0, -y * z * b).sum():
            high = b
        else:
            low = a
    return 2 / (low + high)


def reliability(
    probabilities: ArrayLike,
    true: Sequence[bool],
    groups: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Reliability:
    """All numbers of one set of claims.

    Args:
        probabilities: of each claim to be true.
        true: whether it is.
        groups: the document of each, what is drawn in the bootstrap.
        seed: fixes the resamples.

    Raises:
        ValueError: no claim, or lists of different length.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(true, dtype=bool)
    if not len(p) or not len(p) == len(y) == len(groups):
        raise ValueError(f"{len(p)} probabilities, {len(y)} labels and {len(groups)} groups")
    _, member = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    count = int(member.max()) + 1
    values = _metrics(p, y, np.ones(len(p)))
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(count, np.full(count, 1 / count), size=resamples).astype(np.float64)
    found = np.array([_metrics(p, y, weights[member]) for weights in drawn])
    metrics = {}
    for column, name in enumerate(METRICS):
        kept = found[~np.isnan(found[:, column]), column]
        defined = len(kept) > 0 and not math.isnan(values[column])
        low, high = np.quantile(kept, [0.025, 0.975]) if defined else (0.0, 0.0)
        metrics[name] = Interval(values[column], float(low), float(high)) if defined else None
    return Reliability(len(p), count, metrics, tuple(_bins(p, y)))


def _metrics(p: Floats, y: NDArray[np.bool_], w: Floats) -> tuple[float, ...]:
    """The numbers of `METRICS`, each claim counted `w` times; NaN where one is undefined."""
    total = w.sum()
    said = p >= 0.5
    scores = []
    for label in (True, False):
        hit = w[(said == label) & (y == label)].sum()
        both = w[said == label].sum() + w[y == label].sum()
        scores.append(2 * hit / both if both else 0.0)
    place = _place(p)
    gaps = np.abs(np.bincount(place, w * (p - y), BINS))
    return (
        float(w[said == y].sum() / total),
        float(np.mean(scores)),
        _auc(p, y, w),
        float(gaps.sum() / total),
        float((w * (p - y) ** 2).sum() / total),
        float((w * y).sum() / total),
    )


def _auc(p: Floats, y: NDArray[np.bool_], w: Floats) -> float:
    """P(a true claim's probability is above a false one's), ties half; NaN without both classes."""
    _, level = np.unique(p, return_inverse=True)
    true, false = np.bincount(level, w * y), np.bincount(level, w * ~y)
    if not true.sum() or not false.sum():
        return math.nan
    below = np.cumsum(false) - false
    return float((true * (below + false / 2)).sum() / (true.sum() * false.sum()))


def _place(p: Floats) -> NDArray[np.int64]:
    return np.minimum((p * BINS).astype(np.int64), BINS - 1)


def _bins(p: Floats, y: NDArray[np.bool_]) -> list[Bin]:
    place = _place(p)
    found = []
    for number in range(BINS):
        inside = place == number
        count = int(inside.sum())
        mean, share = (float(x[inside].mean()) if count else None for x in (p, y))
        found.append(Bin(number / BINS, (number + 1) / BINS, count, mean, share))
    return found
