from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factrl.evals.metrics import (
    Interval,
    Weights,
    bootstrap,
    compare,
    known_mask,
    short_form,
    wilson,
)
from factrl.types import Grade

C, A, W = (Grade(label, "", "exact") for label in ("correct", "abstained", "incorrect"))
GRADES = st.lists(st.sampled_from([C, A, W, None]), max_size=40)
RATES = ("accuracy", "abstention", "hallucination")


# --- intervals ---------------------------------------------------------------------------------


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


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_stays_inside_zero_and_one_around_its_value(kn: tuple[int, int]) -> None:
    got = wilson(*kn)
    assert 0 <= got.low <= got.value <= got.high <= 1
    mirrored = wilson(kn[1] - kn[0], kn[1])
    assert (got.low, got.high) == pytest.approx((1 - mirrored.high, 1 - mirrored.low))


def test_what_has_no_interval_is_an_error() -> None:
    for wrong, message in (
        (lambda: wilson(0, 0), "k=0, n=0"),
        (lambda: wilson(6, 5), "k=6, n=5"),
        (lambda: Interval(0.0, math.nan, 1.0), "finite"),
        (lambda: bootstrap([1.0, math.nan]), "finite numbers"),
        (lambda: bootstrap([]), "finite numbers"),
        (lambda: bootstrap([[1, 2]]), "2 columns"),
        (lambda: bootstrap([1, 2], n=0), "n=0"),
        (lambda: bootstrap([1, 2, 3], before=[1, 2]), "same questions"),
        (lambda: short_form([Grade("Correct", "", "judge")]), "'Correct'"),  # pyright: ignore[reportArgumentType]
        (lambda: compare([C], [C, C]), "not 1 and 2"),
        (lambda: known_mask([[C, C, C]], k=4, m=3), "k=4"),
        (lambda: known_mask([[C, C, C]], k=2, m=4), "question 0 has 3"),
    ):
        with pytest.raises(ValueError, match=message):
            wrong()


def test_intervals_print_in_points() -> None:
    assert str(Interval(0.46376, 0.4012, 0.5279)) == "46.4 [40.1, 52.8]"
    assert Interval(0.246, -0.0101, 0.3).signed() == "+24.6 [-1.0, +30.0]"
    assert str(Interval(-0.0001, -0.0002, 0.0)) == "0.0 [0.0, 0.0]", "no negative zero"


@pytest.mark.parametrize(
    ("low", "high", "clear"),
    [(0.01, 0.2, True), (-0.2, -0.01, True), (-0.1, 0.1, False), (0.0, 0.1, False), (0.0, 0.0, False)],
)
def test_a_difference_is_clear_only_without_zero(low: float, high: float, clear: bool) -> None:
    assert Interval(0.0, low, high).excludes_zero is clear


# --- bootstrap ---------------------------------------------------------------------------------


def test_bootstrap_by_multinomial_is_the_bootstrap_by_rows() -> None:
    values = np.array([1.0] * 30 + [0.0] * 15 + [-1.0] * 55)
    rows = np.random.default_rng(0).choice(values, size=(10_000, 100))
    low, high = np.quantile(rows.mean(axis=1), [0.025, 0.975])
    got = bootstrap(values)
    assert got is not None
    assert (got.low, got.high) == pytest.approx((low, high), abs=0.011)


def test_bootstrap_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(300):
        got = bootstrap(rng.choice([1.0, 0.0, -1.0], p=[0.3, 0.3, 0.4], size=200), n=400)
        assert got is not None
        hits += got.low <= -0.1 <= got.high
    assert 0.90 <= hits / 300 <= 0.99


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


# --- short form --------------------------------------------------------------------------------


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
    assert got.accuracy == wilson(3, 10)
    assert got.correct_given_attempted == wilson(3, 8)
    failed = [short_form([W, A]).metrics[name] for name in ("correct_given_attempted", "f_score")]
    assert [one and one.value for one in failed] == [0, 0], "not undefined"
    weighed = short_form([C, A, A, W], Weights(correct=2, abstain=0.5, wrong=3)).truthfulness
    assert weighed
    assert weighed.value == pytest.approx((2 + 1 - 3) / 4)


@settings(max_examples=60, deadline=None)
@given(GRADES)
def test_short_form_is_whole_or_undefined(grades: list[Grade | None]) -> None:
    got = short_form(grades)
    assert got.n + got.masked == len(grades)
    if not got.n:
        assert set(got.metrics.values()) == {None}
        return
    shares = [got.metrics[name] for name in RATES]
    assert sum(share.value for share in shares if share) == pytest.approx(1)
    assert got.truthfulness is not None
    assert got.accuracy is not None
    assert got.hallucination is not None
    assert got.truthfulness.value == pytest.approx(got.accuracy.value - got.hallucination.value)
    attempted = got.correct + got.incorrect
    assert (got.correct_given_attempted is None) == (got.f_score is None) == (attempted == 0)
    json.dumps(got.to_json(), allow_nan=False)


@given(GRADES.filter(lambda grades: any(grades)))
@settings(max_examples=30, deadline=None)
def test_masked_questions_move_no_number(grades: list[Grade | None]) -> None:
    without = short_form([grade for grade in grades if grade])
    assert short_form(grades).metrics == without.metrics
    assert short_form([*grades, None, None]).masked == grades.count(None) + 2


# --- comparing ---------------------------------------------------------------------------------


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


@settings(max_examples=25, deadline=None)
@given(GRADES.filter(lambda grades: any(grades)))
def test_swapping_the_sides_turns_the_sign(grades: list[Grade | None]) -> None:
    other = grades[::-1]
    there, back = compare(grades, other), compare(other, grades)
    assert there.n == back.n
    for name, difference in there.differences.items():
        reverse = back.differences[name]
        assert (difference is None) == (reverse is None)
        if difference and reverse:
            assert difference.value == pytest.approx(-reverse.value)


def test_a_difference_that_one_side_lacks_is_undefined() -> None:
    assert {*compare([C, A, W, None], [C, A, W, None]).differences.values()} == {Interval(0, 0, 0)}
    never = compare([C, W], [A, A]).differences
    assert never["correct_given_attempted"] is None
    assert never["truthfulness"] is not None
    got = compare([C, None], [None, W])
    assert (got.n, got.left_out) == (0, 2)
    assert set(got.differences.values()) == {None}
    assert set(compare([], []).differences.values()) == {None}


# --- false abstention --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([C, C, W], True),
        ([C, W, A], False),
        ([C, C, None], True),
        ([C, None, W], None),
        ([None, W, W], False),
        ([None, None, None], None),
    ],
)
def test_known_needs_k_of_m(samples: list[Grade | None], expected: bool | None) -> None:
    assert known_mask([samples], k=2, m=3) == [expected]
