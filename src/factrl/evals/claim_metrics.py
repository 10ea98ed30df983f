"""From counts of claims to FActScore, precision, recall@K and F1@K, with intervals by resampling prompts.

S of T claims are supported; a response with missing verdicts counts as the middle of what they could make of
it.  Three treatments of a response without claims are published, and all three are here:

    factscore...     left out, whyever it has none; how many have some is `respond_ratio`   (FActScore's code)
    precision, recall@K, f1@K     0, but left out when it declines to answer                (VeriScore's code)
    .../all          0                      (SAFE's F1@K, KLCF's P, R@K and F1@K, VeriScore's paper)

`_micro` pools the claims of all responses; everything else is a mean over responses.  `precision_micro` is
F/T and `detail` F of "Learning to Reason for Factuality".

Where the published packages differ, given the same decisions:

- FActScore 0.2.0 (arXiv 2305.14251): `exp(1 - gamma / T)` for T <= gamma, which at T = gamma is 1 and so
  equal to ours.  A response whose facts are handed over as an empty list is a ZeroDivisionError there (NaN
  for gamma=0); a set without any facts is NaN there and None here.
- VeriScore 2.0.3 (arXiv 2406.19276): K is the upper median of T over all systems of a domain, so a number
  depends on which others were evaluated; `median_k` gives that K, but 32 and 64 are fixed here.  A response
  without claims is a ZeroDivisionError there.  Figures are rounded to three decimals there.
- Both count whatever claims they got.  Our verifier leaves out repeated claims, those that only say again
  what the question says and those about the text itself; SAFE's irrelevant claims leave T likewise.  It
  stops judging after `max_claims` and then counts the rest as not supported.
- A call that fails is "supported" in FActScore and "not supported" in VeriScore; here a verdict is missing.
- A text too long to be read is 0 everywhere here and counts as a response; no package knows of such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from factrl.errors import ConfigError
from factrl.evals.metrics import Floats, Interval, ratio, resampled_means, summed, wilson
from factrl.verifier.report import WIDTH

Ks = Sequence[int | Literal["median"]]

_ALL, _RESPONDED, _ANSWERED, _SUPPORTED, _CLAIMS, _PRECISION, _FACTSCORE, _FIRST_K = range(8)


@dataclass(frozen=True, slots=True)
class Counts:
    """The claims of one response.

    Attributes:
        supported, claims, unjudged: how many; `claims` are all that count, judged or not.
        unasked: those that no judge was asked about, for want of evidence or over the limit; not supported.
        declined: it has no claims because it declines to answer.
        floored: it was not read.
    """

    supported: int
    claims: int
    unjudged: int = 0
    unasked: int = 0
    declined: bool = False
    floored: bool = False


@dataclass(frozen=True, slots=True)
class ClaimMetrics:
    """What is computed.

    Attributes:
        ks: numbers of facts that a good answer gives; each at least 1.
        gamma: claims below which FActScore is lowered for brevity; 0 never lowers it.
    """

    ks: tuple[int, ...]
    gamma: int = 10

    def __post_init__(self) -> None:
        if any(k < 1 for k in self.ks):
            raise ConfigError(f"K must be at least 1, not {min(self.ks)}")
        if self.gamma < 0:
            raise ConfigError(f"gamma must be at least 0, not {self.gamma}")

    def columns(self, counts: Sequence[Counts], share: float = 0.5) -> Floats:
        """What the metrics are means and ratios of, a row for each response.

        Args:
            share: of the missing verdicts that are taken for `supported`: 0 is the lower bound of every
                column and 1 the upper one; in between, columns lie as far between their bounds.
        """
        if share not in (0.0, 1.0):
            return (1 - share) * self.columns(counts, 0.0) + share * self.columns(counts, 1.0)
        supported = np.array([one.supported + share * one.unjudged for one in counts], dtype=np.float64)
        claims = np.array([one.claims for one in counts], dtype=np.float64)
        responded = np.array([one.claims > 0 or one.floored for one in counts], dtype=np.float64)
        answered = np.array([not one.declined for one in counts], dtype=np.float64)
        at_least_one = np.maximum(claims, 1.0)
        precision = supported / at_least_one
        penalty = np.exp(np.minimum(1.0 - self.gamma / at_least_one, 0.0))
        recall = np.minimum(supported[:, None] / np.array(self.ks, dtype=np.float64), 1.0)
        f1 = _harmonic(np.broadcast_to(precision[:, None], recall.shape), recall)
        always = np.ones_like(claims)
        first = (always, responded, answered, supported, claims, precision, precision * penalty)
        return np.column_stack([*first, recall, f1])

    def statistics(self) -> Mapping[str, Callable[[Floats], Floats]]:
        """Every metric, in reading order, as a function of column means `(R, d)`."""

        def over(column: int, by: int) -> Callable[[Floats], Floats]:
            return lambda means: ratio(means[:, column], means[:, by])

        def micro(column: int) -> Callable[[Floats], Floats]:
            precision, recall = over(_SUPPORTED, _CLAIMS), over(column, _ANSWERED)
            return lambda means: _harmonic(precision(means), recall(means))

        found = {
            "respond_ratio": over(_RESPONDED, _ALL),
            "factscore": over(_FACTSCORE, _RESPONDED),
            "factscore_unpenalised": over(_PRECISION, _RESPONDED),
            "precision": over(_PRECISION, _ANSWERED),
            "precision_micro": over(_SUPPORTED, _CLAIMS),
            "detail": over(_SUPPORTED, _ANSWERED),
            "claims": over(_CLAIMS, _RESPONDED),
        }
        for number, k in enumerate(self.ks):
            recall, f1 = _FIRST_K + number, _FIRST_K + len(self.ks) + number
            found[f"recall@{k}"] = over(recall, _ANSWERED)
            found[f"f1@{k}"] = over(f1, _ANSWERED)
            found[f"f1_micro@{k}"] = micro(recall)
        found["precision/all"] = over(_PRECISION, _ALL)
        for number, k in enumerate(self.ks):
            found[f"recall@{k}/all"] = over(_FIRST_K + number, _ALL)
            found[f"f1@{k}/all"] = over(_FIRST_K + len(self.ks) + number, _ALL)
        return found

    def undecided(self, counts: Sequence[Counts]) -> list[bool]:
        """Which responses have a share, such as F1@K, that missing verdicts could move by over `WIDTH`."""
        if not counts:
            return []
        width = self.columns(counts, 1.0)[:, _PRECISION:] - self.columns(counts, 0.0)[:, _PRECISION:]
        return (width.max(axis=1) > WIDTH + 1e-9).tolist()

    def point(self, counts: Sequence[Counts], share: float = 0.5) -> Mapping[str, float | None]:
        """The metrics alone."""
        if not counts:
            return dict.fromkeys(self.statistics())
        means = self.columns(counts, share).mean(axis=0, keepdims=True)
        return {name: _number(statistic(means)[0]) for name, statistic in self.statistics().items()}

    def intervals(
        self, keys: Sequence[str], counts: Sequence[Counts], *, confidence: float = 0.95, seed: int = 0
    ) -> Mapping[str, Interval | None]:
        """The metrics with intervals by resampling prompts; of `respond_ratio` Wilson's, if it is a rate.

        Args:
            keys: the prompt of each response; those of one prompt are drawn together.
        """
        if not counts:
            return dict.fromkeys(self.statistics())
        prompts, sums = summed(keys, self.columns(counts))
        found = _intervals(sums, self.statistics(), confidence, seed)
        if len(prompts) == len(counts):
            responded = int(sums[:, _RESPONDED].sum())
            found["respond_ratio"] = wilson(responded, len(counts), confidence)
        return found

    def differences(
        self,
        before: tuple[Sequence[str], Sequence[Counts]],
        after: tuple[Sequence[str], Sequence[Counts]],
        *,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> tuple[int, Mapping[str, Interval | None]]:
        """After minus before, on the prompts that are in both, drawn together; and how many these are."""
        first, second = (
            dict(zip(*summed(keys, self.columns(counts)), strict=True)) if counts else {}
            for keys, counts in (before, after)
        )
        both = [key for key in first if key in second]
        if not both:
            return 0, dict.fromkeys(self.statistics())
        sums = np.hstack([[first[key] for key in both], [second[key] for key in both]])
        width = sums.shape[1] // 2

        def difference(statistic: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
            return lambda means: statistic(means[:, width:]) - statistic(means[:, :width])

        statistics = {name: difference(statistic) for name, statistic in self.statistics().items()}
        return len(both), _intervals(sums, statistics, confidence, seed)

    def judged(self, keys: Sequence[str], counts: Sequence[Counts]) -> Mapping[str, Floats]:
        """Supported among the claims that a judge was asked about: numerators and denominators `(N, 2)`.

        A row for each prompt; these are linear in the verdicts, so a judge's errors can be taken out of them
        (`factrl.evals.judge_quality`).
        """
        asked = [replace(one, claims=one.claims - one.unasked, floored=False) for one in counts]
        _, sums = summed(keys, self.columns(asked))
        return {
            "judged_precision": sums[:, (_PRECISION, _RESPONDED)],
            "judged_precision_micro": sums[:, (_SUPPORTED, _CLAIMS)],
        }


def median_k(counts: Iterable[Counts]) -> int:
    """VeriScore's K: the upper median of the numbers of claims, over responses that do not decline.

    Pool the responses of all systems that are compared, as VeriScore does.

    Raises:
        ConfigError: it is 0, or there are no responses.
    """
    claims = sorted(one.claims for one in counts if not one.declined)
    median = claims[len(claims) // 2] if claims else 0
    if not median:
        raise ConfigError(
            f"K cannot be the median of the claims, which is 0 over {len(claims)} responses; name a number"
        )
    return median


def resolve_ks(ks: Ks, counts: Sequence[Counts]) -> tuple[int, ...]:
    """`ks` with `median` as a number, each once.

    Raises:
        ConfigError: see `median_k`; or something that is neither.
    """
    wrong = [k for k in ks if k != "median" and (isinstance(k, bool) or not isinstance(k, int))]
    if wrong:
        raise ConfigError(f"K is a whole number or 'median', not {wrong[0]!r}")
    return tuple(dict.fromkeys(median_k(counts) if k == "median" else k for k in ks))


def _intervals(
    rows: Floats, statistics: Mapping[str, Callable[[Floats], Floats]], confidence: float, seed: int
) -> dict[str, Interval | None]:
    """Percentile intervals of several statistics from the same resamples."""
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must lie strictly between 0 and 1, not {confidence!r}")
    means, draws = rows.mean(axis=0, keepdims=True), resampled_means(rows, seed)
    tail = (1 - confidence) / 2
    found: dict[str, Interval | None] = {}
    for name, statistic in statistics.items():
        value, drawn = _number(statistic(means)[0]), statistic(draws)
        if value is None:
            found[name] = None
        else:
            low, high = np.quantile(drawn[~np.isnan(drawn)], [tail, 1 - tail])
            found[name] = Interval(value, float(low), float(high))
    return found


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _harmonic(a: Floats, b: Floats) -> Floats:
    """`2ab / (a + b)`, and 0 where both are 0."""
    total = a + b
    return np.divide(2 * a * b, total, out=np.where(np.isnan(total), total, 0.0), where=total > 0)
