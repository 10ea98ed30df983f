"""Rates, bootstraps and differences, against numbers by hand and published ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factrl.evals.metrics import Interval, bootstrap, compare, short_form, wilson
from factrl.types import Grade

C, A, W = (Grade(label, "", "exact") for label in ("correct", "abstained", "incorrect"))
GRADES = st.lists(st.sampled_from([C, A, W, None]), max_size=40)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_wilson_agrees_with_published_limits(k: int, n: int, low: float, high: float) -> None:
    got = wilson(k, n)
    assert (got.value, got.low, got.high) == pytest.approx((k / n, low, high), abs=6e-5)


def test_what_has_no_interval_is_an_error() -> None:
    with pytest.raises(ValueError, match="finite"):
        Interval(0.0, math.nan, 1.0)
    with pytest.raises(ValueError, match="longer"):
        compare([C], [C, C])


def test_intervals_print_in_points() -> None:
    assert str(Interval(0.46376, 0.4012, 0.5279)) == "46.4 [40.1, 52.8]"
    assert Interval(0.246, -0.0101, 0.3).signed() == "+24.6 [-1.0, +30.0]"
    assert str(Interval(-0.0001, -0.0002, 0.0)) == "0.0 [0.0, 0.0]", "no negative zero"


def test_bootstrap_by_multinomial_is_the_bootstrap_by_rows() -> None:
    values = np.array([1.0] * 30 + [0.0] * 15 + [-1.0] * 55)
    rows = np.random.default_rng(0).choice(values, size=(10_000, 100))
    low, high = np.quantile(rows.mean(axis=1), [0.025, 0.975])
    got = bootstrap(values)
    assert got is not None
    assert (got.low, got.high) == pytest.approx((low, high), abs=0.011)


def test_pairing_narrows_the_interval_of_a_difference() -> None:
    before = np.array([1.0, 0.0] * 100)
    after = before.copy()
    after[:10] = 1.0
    paired = bootstrap(after, before=before)
    shuffled = bootstrap(np.random.default_rng(0).permutation(after), before=before)
    assert paired is not None
    assert shuffled is not None
    assert paired.value == shuffled.value == pytest.approx(0.025)
    assert paired.high - paired.low < 0.5 * (shuffled.high - shuffled.low)


def test_bootstrap_of_a_ratio_leaves_out_resamples_without_a_denominator() -> None:
    def ratio(means: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return means[:, 0] / means[:, 1]

    got = bootstrap([[1, 1], [0, 0], [0, 0]], ratio)
    assert got == Interval(1.0, 1.0, 1.0)
    assert bootstrap([[0, 0], [0, 0]], ratio) is None


def test_short_form_by_hand() -> None:
    got = short_form([C] * 3 + [A] * 2 + [W] * 5 + [None] * 4)
    assert (got.n, got.correct, got.abstained, got.incorrect, got.masked) == (10, 3, 2, 5, 4)
    values = {name: interval.value for name, interval in got.metrics.items() if interval}
    assert values == pytest.approx(
        {
            "accuracy": 0.3,
            "abstention": 0.2,
            "hallucination": 0.5,
            "truthfulness": -0.2,
            "correct_given_attempted": 3 / 8,
            "f_score": 2 * 0.3 * 0.375 / 0.675,
        }
    )
    assert got.metrics["accuracy"] == wilson(3, 10)
    assert got.metrics["correct_given_attempted"] == wilson(3, 8)
    failed = [short_form([W, A]).metrics[name] for name in ("correct_given_attempted", "f_score")]
    assert [one and one.value for one in failed] == [0, 0], "not undefined"


def test_a_few_answers_that_are_all_alike_leave_room_for_others() -> None:
    right, wrong, declined = (short_form([grade] * 5).metrics for grade in (C, W, A))
    share = wilson(5, 5)
    assert (right["truthfulness"], right["f_score"]) == (Interval(1, 2 * share.low - 1, 1), share)
    assert (wrong["truthfulness"], wrong["f_score"]) == (Interval(-1, -1, 1 - 2 * share.low), wilson(0, 5))
    assert declined["truthfulness"] == Interval(0, share.low - 1, 1 - share.low)
    assert declined["f_score"] is None


@given(GRADES.filter(lambda grades: any(grades)))
@settings(max_examples=30, deadline=None)
def test_masked_questions_move_no_number(grades: list[Grade | None]) -> None:
    without = short_form([grade for grade in grades if grade])
    assert short_form(grades).metrics == without.metrics
    assert short_form([*grades, None, None]).masked == grades.count(None) + 2


def test_compare_uses_questions_graded_in_both() -> None:
    before = [C, W, W, None, W, None]
    after = [C, A, None, C, W, None]
    got = compare(before, after)
    assert (got.n, got.left_out) == (3, 3)
    values = {name: interval.value for name, interval in got.differences.items() if interval}
    assert values["accuracy"] == pytest.approx(0)
    assert values["abstention"] == pytest.approx(1 / 3)
    assert values["hallucination"] == pytest.approx(-1 / 3)
    assert values["truthfulness"] == pytest.approx(1 / 3)
    assert values["correct_given_attempted"] == pytest.approx(1 / 2 - 1 / 3)


def test_a_difference_that_one_side_lacks_is_undefined() -> None:
    assert {*compare([C, A, W, None], [C, A, W, None]).differences.values()} == {Interval(0, 0, 0)}
    never = compare([C, W], [A, A]).differences
    assert never["correct_given_attempted"] is None
    assert never["truthfulness"] is not None
    got = compare([C, None], [None, W])
    assert (got.n, got.left_out) == (0, 2)
    assert set(got.differences.values()) == {None}
    assert set(compare([], []).differences.values()) == {None}
