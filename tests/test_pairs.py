"""The rules that make preference pairs, each on samples whose outcome is known."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from factrl.errors import ConfigError
from factrl.train.tuning.pairs import RULES, UNDECIDED, Limits, Sample, rule_of
from factrl.types import Label


def graded(*labels: Label | None) -> list[Sample]:
    return [
        Sample(f"{number} {label}", label=label, cause=None if label else "timeout")
        for number, label in enumerate(labels)
    ]


def valued(*values: float | None, lengths: Sequence[int] = ()) -> list[Sample]:
    lengths = lengths or [10] * len(values)
    return [
        Sample(str(number), length=length, value=value, cause=None if value is not None else "timeout")
        for number, (value, length) in enumerate(zip(values, lengths, strict=True))
    ]


def texts(name: str, samples: Sequence[Sample], limits: Limits | None = None) -> list[tuple[str, str]] | str:
    found = rule_of(name).pairs(samples, limits or Limits())
    return found if isinstance(found, str) else [(pair.chosen.text, pair.rejected.text) for pair in found]


KNOWN, UNKNOWN = Limits(ook=False), Limits(ook=True, abstention="IDK")


def test_correctness_puts_right_or_the_abstention_over_wrong_and_nothing_else() -> None:
    samples = graded("abstained", "correct", None, "incorrect")
    assert texts("correctness", samples, KNOWN) == [("1 correct", "3 incorrect")]
    assert texts("correctness", samples, UNKNOWN) == [("IDK", "3 incorrect")], "the question is unknown"
    with pytest.raises(ConfigError, match=r"no rule 'max_min'; did you mean 'max-min'\? .*klc"):
        rule_of("max_min")


def test_correctness_draws_and_the_same_draw_gives_the_same_pair() -> None:
    samples = graded(*["correct"] * 9, *["incorrect"] * 9)
    pairs = [
        texts("correctness", samples, Limits(ook=False, draw=random.Random(seed))) for seed in (1, 1, 2, 3)
    ]
    assert pairs[0] == pairs[1]
    assert len({str(pair) for pair in pairs}) > 1


@pytest.mark.parametrize(
    ("labels", "limits", "why"),
    [
        (["correct", "correct"], KNOWN, "no wrong sample"),
        (["incorrect", "incorrect"], KNOWN, "no right sample"),
        (["abstained", "abstained"], KNOWN, "no wrong sample"),
        (["abstained", "correct"], UNKNOWN, "no wrong sample"),
        ([None, None], KNOWN, "nothing graded"),
        ([], UNKNOWN, "nothing graded"),
        (["correct", "incorrect"], Limits(), UNDECIDED),
    ],
)
def test_correctness_says_why_there_is_no_pair(labels: list[Label | None], limits: Limits, why: str) -> None:
    assert texts("correctness", graded(*labels), limits) == why


@pytest.mark.parametrize("rule", ["max-min", "factscore-ends", "klc"])
def test_the_highest_value_over_the_lowest(rule: str) -> None:
    assert texts(rule, valued(0.5, -1.0, None, 2.0, 2.0, -1.0)) == [("3", "1")]
    assert texts(rule, valued(1.0, 1.0, None)) == "all samples equal"
    assert texts(rule, valued(0.3, 0.1 + 0.2)) == "all samples equal"
    assert texts(rule, valued(1.0, None)) == "fewer than two samples measured"
    assert texts(rule, valued()) == "fewer than two samples measured"


def test_margin_length_takes_the_largest_difference_of_about_one_length() -> None:
    # 0 against 1 differs most, but in length too; 2 against 3 is next.
    samples = valued(1.0, 0.0, 0.9, 0.4, 0.6, lengths=[100, 50, 100, 95, 100])
    assert texts("margin-length", samples) == [("0", "3")]
    assert texts("margin-length", samples[1:]) == [("2", "3")]
    # The ratio is that of the better one's length to the worse one's.
    assert texts("margin-length", valued(1.0, 0.0, lengths=[90, 100])) == [("0", "1")]
    assert texts("margin-length", valued(0.0, 1.0, lengths=[90, 100])) == "no pair within margin and length"
    wide = Limits(margin=0.5, length_tolerance=1.0)
    assert texts("margin-length", valued(1.0, 0.4, lengths=[20, 10]), wide) == [("0", "1")]
    assert texts("margin-length", valued(1.0, 0.5, lengths=[10, 10]), wide) == (
        "no pair within margin and length"
    )


@pytest.mark.parametrize(
    ("values", "lengths", "found"),
    [
        ((0.6, 0.5), (10, 10), False),  # the margin itself is not over it
        ((0.4, 0.3), (10, 10), False),  # nor by rounding
        ((0.61, 0.5), (10, 10), True),
        ((1.0, 0.0), (11, 10), True),  # 1.1 is within 0.1 of 1
        ((1.0, 0.0), (9, 10), True),
        ((1.0, 0.0), (10, 11), True),  # the better one is the numerator: 1 - 10/11 = 0.091
        ((1.0, 0.0), (112, 100), False),
        ((1.0, 0.0), (89, 100), False),
        ((1.0, 0.0), (0, 0), False),
    ],
)
def test_margin_and_length_at_their_limits(
    values: tuple[float, float], lengths: tuple[int, int], found: bool
) -> None:
    pairs = texts("margin-length", valued(*values, lengths=lengths))
    assert pairs == ([("0", "1")] if found else "no pair within margin and length")


def test_factscore_pairs_every_two_that_differ() -> None:
    assert texts("factscore", valued(0.5, 1.0, 0.5, None)) == [("1", "0"), ("1", "2")]
    assert len(texts("factscore", valued(0.1, 0.2, 0.3, 0.4))) == 6
    assert texts("factscore", valued(0.5, 0.5)) == "all samples equal"
    assert texts("factscore", valued(None, 0.5)) == "fewer than two samples measured"


def test_a_sample_without_a_measure_is_in_no_pair_of_any_rule() -> None:
    masked = [Sample("masked", length=10, cause="timeout")] * 2
    for name in RULES:
        for limits in (KNOWN, UNKNOWN):
            samples = [*masked, Sample("a", 10, label="correct", value=1.0)]
            samples += [Sample("b", 10, label="incorrect", value=0.0)]
            found = texts(name, samples, limits)
            assert found
            assert not isinstance(found, str)
            assert "masked" not in str(found)
            assert isinstance(texts(name, masked, limits), str)
