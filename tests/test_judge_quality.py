from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from factrl.errors import DataError
from factrl.evals.judge_quality import LEAST, Judged, JudgeQuality, measure
from factrl.evals.metrics import wilson

EXACT = pytest.approx


def judged(hit: int, missed: int, false_alarm: int, left: int, group: str = "") -> list[Judged]:
    kinds = [(True, True), (True, False), (False, True), (False, False)]
    counts = (hit, missed, false_alarm, left)
    return [Judged(*kind, group) for kind, n in zip(kinds, counts, strict=True) for _ in range(n)]


# --- against people ----------------------------------------------------------------------------


def test_the_four_numbers_are_what_their_definitions_say() -> None:
    found = measure(judged(90, 10, 30, 70), "j").metrics
    got = {name: interval.value for name, interval in found.items() if interval}
    assert got == EXACT(
        {"agreement": 0.8, "sensitivity": 0.9, "specificity": 0.7, "kappa": (0.8 - 0.5) / 0.5}
    )
    assert found["sensitivity"] == wilson(90, 100)
    assert found["agreement"] == wilson(160, 200)
    kappa = found["kappa"]
    assert kappa
    # Fleiss, Cohen and Everitt 1969: the standard error of this table's kappa is 0.0558.
    assert (kappa.high - kappa.low) / 3.92 == EXACT(0.0558, abs=0.002)


def test_claims_of_one_document_are_drawn_together() -> None:
    alone = measure(judged(80, 20, 20, 80)).metrics["sensitivity"]
    grouped = [one for n in range(10) for one in judged(10 * (n < 8), 10 * (n >= 8), 2, 8, f"doc {n}")]
    quality = measure(grouped)
    together = quality.metrics["sensitivity"]
    assert len(quality.tables) == 10
    assert alone
    assert together
    assert alone.value == together.value == 0.8
    assert together.high - together.low > 2 * (alone.high - alone.low)


def test_claims_without_a_verdict_are_counted_and_in_no_number() -> None:
    missing = [Judged(True, None, cause="timeout")] * 3 + [Judged(False, None, cause="too_long")]
    quality = measure([*judged(90, 10, 30, 70), *missing])
    assert (quality.n, quality.unjudged) == (200, {"timeout": 3, "too_long": 1})
    assert quality.metrics["agreement"] == wilson(160, 200)


def test_at_least_two_hundred_labels() -> None:
    assert LEAST == 200
    with pytest.raises(DataError, match="at least 200 labelled claims with a verdict, not 199 of 200"):
        measure([*judged(99, 0, 0, 100), Judged(True, None)])
    assert measure(judged(2, 0, 0, 2), least=4).n == 4
    with pytest.raises(DataError, match="at least 1 "):
        measure([], least=0)


def test_one_document_gives_no_interval() -> None:
    with pytest.raises(DataError, match="all 200 labelled claims are of one group"):
        measure(judged(50, 50, 50, 50, "doc"))


def test_labels_of_one_class_leave_the_other_rate_undefined() -> None:
    quality = measure(judged(150, 50, 0, 0))
    assert quality.metrics["specificity"] is None
    with pytest.raises(DataError, match=r"specificity nan .* label claims of both classes"):
        quality.correct(np.array([[1.0, 2.0]]))
    assert measure(judged(200, 0, 0, 0)).metrics["kappa"] is None


def test_it_survives_a_file() -> None:
    quality = measure([*judged(45, 5, 15, 35, "a"), *judged(45, 5, 15, 35, "b"), Judged(True, None)], "j")
    read = JudgeQuality.from_json(json.loads(json.dumps(quality.to_json(), allow_nan=False)))
    assert (read.metrics, read.judge, read.unjudged) == (quality.metrics, "j", {"unjudged": 1})


@pytest.mark.parametrize("document", [{}, {"tables": [[1, 2]]}, {"tables": [], "judge": ""}, {"tables": 3}])
def test_another_file_is_refused(document: Any) -> None:
    rest = {"judge": "", "unjudged": {}, "confidence": 0.95, "seed": 0}
    with pytest.raises(DataError, match="this is not a judge's quality"):
        JudgeQuality.from_json({**rest, **document})


# --- corrected rates ---------------------------------------------------------------------------


def test_the_estimate_is_rogan_and_gladens() -> None:
    quality = measure(judged(90, 10, 20, 80))
    found = quality.correct(np.tile([6.0, 10.0], (40, 1)))
    assert found.raw.value == 0.6
    assert found.interval.value == found.unclipped == EXACT((0.6 + 0.8 - 1) / (0.9 + 0.8 - 1))
    assert found.interval.low < found.interval.value < found.interval.high
    assert found.raw.low == found.raw.high == 0.6, (
        "equal prompts: all that is left is the labels' uncertainty"
    )
    # The delta method, with variances of the two rates alone.
    p, j = found.interval.value, 0.7
    sd = np.sqrt((p**2 * 0.9 * 0.1 + (1 - p) ** 2 * 0.8 * 0.2) / 100) / j
    assert (found.interval.high - found.interval.low) / 3.92 == EXACT(sd, rel=0.08)


def test_a_perfect_judge_changes_nothing_but_is_not_taken_for_infallible() -> None:
    found = measure(judged(100, 0, 0, 100)).correct(np.tile([6.0, 10.0], (40, 1)))
    assert found.interval.value == EXACT(0.6)
    assert 0.005 < found.interval.high - found.interval.low < 0.05


@pytest.mark.parametrize(("share", "end"), [(0.05, 0.0), (0.98, 1.0)])
def test_an_estimate_out_of_range_is_clipped_and_flagged(share: float, end: float) -> None:
    found = measure(judged(90, 10, 20, 80)).correct(np.tile([share * 100, 100.0], (20, 1)))
    assert found.interval.value == end != found.unclipped
    assert found.interval.low <= end <= found.interval.high


@pytest.mark.parametrize("table", [(50, 50, 50, 50), (20, 80, 30, 70)])
def test_a_judge_no_better_than_chance_is_refused(table: tuple[int, int, int, int]) -> None:
    quality = measure(judged(*table))
    with pytest.raises(DataError, match="do not add up to more than 1"):
        quality.correct(np.array([[1.0, 2.0]]))


def test_a_judge_hardly_better_than_chance_gives_an_interval_that_says_so() -> None:
    found = measure(judged(53, 47, 50, 50)).correct(np.tile([52.0, 100.0], (20, 1)))
    assert (found.interval.low, found.interval.high) == (0.0, 1.0)


def test_no_claims_have_no_corrected_share() -> None:
    with pytest.raises(DataError, match="a share of no claims"):
        measure(judged(90, 10, 20, 80)).correct(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("sensitivity", "specificity", "truth"), [(0.85, 0.8, 0.85), (0.95, 0.9, 0.3), (0.7, 0.75, 0.6)]
)
def test_the_corrected_interval_covers_the_truth_and_the_raw_one_does_not(
    sensitivity: float, specificity: float, truth: float
) -> None:
    rng = np.random.default_rng(7)
    runs, covered, covered_raw = 250, 0, 0
    for run in range(runs):
        hit, false_alarm = rng.binomial(150, sensitivity), rng.binomial(150, 1 - specificity)
        table = [(1, 0, 0, 0)] * hit + [(0, 1, 0, 0)] * (150 - hit)
        table += [(0, 0, 1, 0)] * false_alarm + [(0, 0, 0, 1)] * (150 - false_alarm)
        supported = rng.binomial(12, truth, size=60)
        said = rng.binomial(supported, sensitivity) + rng.binomial(12 - supported, 1 - specificity)
        counts = np.column_stack([said, np.full(60, 12)]).astype(float)
        found = JudgeQuality(tuple(table), seed=run).correct(counts, n=1000)
        covered += found.interval.low <= truth <= found.interval.high
        covered_raw += found.raw.low <= truth <= found.raw.high
    # Three standard errors of a coverage of 0.95 in 250 runs are 0.041.
    assert 0.909 <= covered / runs <= 0.991
    assert covered_raw / runs < 0.2
