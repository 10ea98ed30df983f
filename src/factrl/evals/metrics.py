"""Short-form answers as numbers, each with its uncertainty.

A record is one `Grade` per question, or None where the question could not be graded ("masked").
Masked questions are counted and shown; they are never right, wrong or an abstention.

Rates carry Wilson intervals, everything else percentile bootstrap intervals over questions, and
differences are taken on the same questions (paired).  A ratio without a denominator is None.
Definitions: accuracy, hallucination, abstention and truthfulness from TruthRL (arXiv 2509.25760,
section 4.1), correct-given-attempted and F-score from SimpleQA (arXiv 2411.04368).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from factrl.types import Grade, Label

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]
"""Maps column means `(R, d)`, one row per resample, to one number per resample `(R,)`."""
Better = Literal["higher", "lower", "neither"]

LABELS: tuple[Label, ...] = ("correct", "abstained", "incorrect")
RESAMPLES = 10_000
TAIL = 0.025  # beyond each end of a 95 % interval
_CELLS_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence limits; fractions, printed in points (hundredths)."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.value, self.low, self.high))):
            raise ValueError(f"an interval needs three finite numbers, not {self.value, self.low, self.high}")

    def __str__(self) -> str:
        return f"{_points(self.value)} [{_points(self.low)}, {_points(self.high)}]"

    def signed(self) -> str:
        """The same for a difference: every number carries its sign."""
        return f"{_points(self.value, '+')} [{_points(self.low, '+')}, {_points(self.high, '+')}]"

    @property
    def excludes_zero(self) -> bool:
        """Whether a difference is clear of chance."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Number(Interval):
    """An estimate of a benchmark; a share from 0 to 1 unless `about` says otherwise.

    Attributes:
        n: questions behind it.
        about: what it is, in a few words.
        better: which direction is good.
        percent: shown in points, as shares are.
    """

    n: int
    about: str = ""
    better: Better = "neither"
    percent: bool = True

    def __str__(self) -> str:
        if self.percent:
            return Interval.__str__(self)
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True, slots=True)
class ShortForm:
    """Questions by label; `masked` ones are in no other number.  An undefined metric is None."""

    correct: int
    abstained: int
    incorrect: int
    masked: int
    metrics: Mapping[str, Interval | None]

    @property
    def n(self) -> int:
        """Graded questions, the denominator of the rates."""
        return self.correct + self.abstained + self.incorrect

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`: counts and intervals as fractions, null where undefined."""
        counts = {name: getattr(self, name) for name in ("n", *LABELS, "masked")}
        return counts | {name: one and asdict(one) for name, one in self.metrics.items()}

    def _repr_html_(self) -> str:
        """In a notebook: the metrics in points."""
        shown = {name: str(one or "–") for name, one in self.metrics.items()}
        return _html_table(shown, f"{self.n} graded, {self.masked} not")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences, after minus before, on the `n` questions graded in both records; None where undefined."""

    n: int
    left_out: int
    differences: Mapping[str, Interval | None]

    def _repr_html_(self) -> str:
        """In a notebook: the differences in points."""
        shown = {name: one.signed() if one else "–" for name, one in self.differences.items()}
        return _html_table(shown, f"after minus before on {self.n} questions, {self.left_out} left out")


def _html_table(shown: Mapping[str, str], caption: str) -> str:
    from factrl.text.html import table

    rows = [(name.replace("_", " "), value) for name, value in shown.items()]
    return table(("metric", "points, 95 % interval"), rows, caption=caption)


def wilson(k: int, n: int) -> Interval:
    """Wilson's 95 % score interval for k successes in n trials, 0 <= k <= n and n >= 1.

    >>> print(wilson(45, 100))
    45.0 [35.6, 54.8]
    """
    z = NormalDist().inv_cdf(1 - TAIL)
    p, spread = k / n, z * z / n
    middle = (p + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(p * (1 - p) / n + spread / (4 * n))
    # At the edges the formula is exact only up to rounding.
    return Interval(p, 0.0 if k == 0 else middle - half, 1.0 if k == n else middle + half)


def _resampled_means(rows: Floats) -> Floats:
    """Column means `(RESAMPLES, d)` of samples of the rows `(N, d)`, drawn with replacement, N at a time.

    Identical rows make the resampling a multinomial draw, so labels cost nothing whatever their number.
    """
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    rng = np.random.default_rng(0)
    at_once = max(1, _CELLS_AT_ONCE // len(distinct))
    parts = [
        rng.multinomial(len(rows), counts / len(rows), size=min(at_once, RESAMPLES - start))
        @ distinct
        / len(rows)
        for start in range(0, RESAMPLES, at_once)
    ]
    return np.concatenate(parts)


def bootstraps(
    values: ArrayLike,
    statistics: Mapping[str, Statistic],
    *,
    before: ArrayLike | None = None,
) -> dict[str, Interval | None]:
    """95 % percentile bootstrap over questions of functions of column means, all from the same resamples.

    Resamples in which a statistic is undefined are left out.  Values that are all equal give an interval
    without width: it says nothing about questions unlike those seen.

    Args:
        values: `(N,)` or `(N, d)`, one finite row per question.
        before: the same questions earlier, row by row: intervals are of `statistic(values)` minus
            `statistic(before)`.

    Returns:
        The interval of every statistic; None where it is undefined, as all are without a row.
    """
    sides = [np.asarray(side, dtype=np.float64) for side in (values, before) if side is not None]
    if not len(sides[0]):
        return dict.fromkeys(statistics)
    rows, width = np.column_stack(sides[::-1]), sides[0][0].size
    means, draws = rows.mean(axis=0, keepdims=True), _resampled_means(rows)
    intervals: dict[str, Interval | None] = {}
    for name, statistic in statistics.items():
        value, resampled = (
            statistic(part[:, -width:]) - (0.0 if before is None else statistic(part[:, :width]))
            for part in (means, draws)
        )
        if math.isnan(value[0]):
            intervals[name] = None
        else:
            low, high = np.quantile(resampled[~np.isnan(resampled)], [TAIL, 1 - TAIL])
            intervals[name] = Interval(float(value[0]), float(low), float(high))
    return intervals


def bootstrap(
    values: ArrayLike,
    statistic: Statistic = lambda means: means[:, 0],
    *,
    before: ArrayLike | None = None,
) -> Interval | None:
    """`bootstraps` of one statistic, by default the mean of the one column.

    >>> print(bootstrap([0.0, 1.0, 1.0, 1.0]))
    75.0 [25.0, 100.0]
    """
    return bootstraps(values, {"": statistic}, before=before)[""]


def short_form(grades: Sequence[Grade | None]) -> ShortForm:
    """All short-form numbers of one record; everything is None when no question was graded.

    >>> grades = [Grade("correct", "Rome", "rules"), Grade("abstained", "I don't know.", "abstention"), None]
    >>> print(short_form(grades).metrics["abstention"])
    50.0 [9.5, 90.5]
    """
    labels = [grade.label for grade in grades if grade is not None]
    right, declined, wrong = (labels.count(label) for label in LABELS)
    n, attempted = len(labels), right + wrong
    metrics: dict[str, Interval | None] = dict.fromkeys(OUTCOME_STATISTICS)
    if n:
        statistics = {name: OUTCOME_STATISTICS[name] for name in ("truthfulness", "f_score")}
        metrics |= bootstraps([*map(_one_hot, labels)], statistics)
        counts = {"accuracy": right, "abstention": declined, "hallucination": wrong}
        rates = {name: wilson(count, n) for name, count in counts.items()}
        metrics |= rates
        if n in counts.values():  # all alike: no resample differs, so the rates' own intervals bound it
            truth, wrongs = rates["accuracy"], rates["hallucination"]
            value, low, high = truth.value - wrongs.value, truth.low - wrongs.high, truth.high - wrongs.low
            metrics["truthfulness"] = Interval(value, low, high)
            metrics["f_score"] = truth if attempted else None
    if attempted:
        metrics["correct_given_attempted"] = wilson(right, attempted)
    return ShortForm(right, declined, wrong, len(grades) - n, metrics)


def compare(before: Sequence[Grade | None], after: Sequence[Grade | None]) -> Comparison:
    """Paired differences, after minus before; position i of both records is the same question.

    >>> right, wrong = Grade("correct", "Rome", "rules"), Grade("incorrect", "Oslo", "rules")
    >>> print(compare([wrong] * 4, [wrong, right, right, right]).differences["accuracy"])
    75.0 [25.0, 100.0]
    """
    rows = [[grade and _one_hot(grade.label) for grade in pair] for pair in zip(before, after, strict=True)]
    return compare_rows(rows, OUTCOME_STATISTICS)


def compare_rows(
    pairs: Sequence[Sequence[ArrayLike | None]], statistics: Mapping[str, Statistic]
) -> Comparison:
    """Paired differences of functions of column means, as in `bootstraps`.

    Args:
        pairs: a question's row before and after, None where it is masked.
    """
    both = [pair for pair in pairs if not any(row is None for row in pair)]
    before, after = ([pair[side] for pair in both] for side in (0, 1))
    differences = bootstraps(after, statistics, before=before)  # type: ignore[arg-type]
    return Comparison(len(both), len(pairs) - len(both), differences)


def ratio(over: Floats, under: Floats) -> Floats:
    """`over / under`, NaN where `under` is 0."""
    return np.divide(over, under, out=np.full_like(over, np.nan), where=under > 0)


def _f_score(correct: Floats, attempted: Floats) -> Floats:
    # 2ab / (a + b) for a = correct and b = correct / attempted, with correct cancelled.
    return np.where(attempted > 0, 2 * correct / (1 + attempted), np.nan)


OUTCOME_STATISTICS: Mapping[str, Statistic] = {
    "accuracy": lambda means: means[:, 0],
    "abstention": lambda means: means[:, 1],
    "hallucination": lambda means: means[:, 2],
    "truthfulness": lambda means: means[:, 0] - means[:, 2],
    "correct_given_attempted": lambda means: ratio(means[:, 0], means[:, 0] + means[:, 2]),
    "f_score": lambda means: _f_score(means[:, 0], means[:, 0] + means[:, 2]),
}
"""Every metric as a function of the mean one-hot labels `(R, 3)`, in reading order."""


def _one_hot(label: str) -> list[float]:
    return [float(label == known) for known in LABELS]


def _points(share: float, sign: str = "") -> str:
    # Adding 0.0 turns the -0.0 of a rounded tiny negative into 0.0.
    return format(round(share * 100, 1) + 0.0, f"{sign}.1f")
