"""The nouns refuse what they cannot be, and the errors survive the trip between processes."""

from __future__ import annotations

import pickle
from collections.abc import Collection

import pytest

from factrl.errors import (
    ConfigError,
    DataError,
    FactrlError,
    LLMError,
    MissingExtra,
    ModelError,
    NoScore,
    PolicyFault,
    RewardBug,
    TooManyMasked,
    Unscored,
    nearest,
)
from factrl.types import Completion, Example, Result, Score, Span

# Nouns


def test_an_example_can_be_a_key_whatever_its_columns_hold() -> None:
    first, second = (Example("q", ("a",), meta={"docs": ["x"]}) for _ in range(2))
    assert {first: 1}[second] == 1
    assert first != Example("q", ("a",), meta={"docs": []})


def test_a_completion_is_text() -> None:
    completion = Completion("Warsaw", prefill="<think>", truncated=True)
    assert completion == "Warsaw"
    assert completion.upper() == "WARSAW"
    assert (completion.prefill, completion.truncated) == ("<think>", True)
    assert (Completion("x").prefill, Completion("x").truncated) == ("", False)


@pytest.mark.parametrize(("start", "end", "sign"), [(-1, 2, 1), (3, 2, 1), (0, 2, 2), (0, 2, 0.5)])
def test_a_span_is_a_stretch_of_text_with_a_sign(start: int, end: int, sign: int) -> None:
    with pytest.raises(ValueError, match="span"):
        Span(start, end, sign)


def test_a_score_is_the_sum_of_its_terms() -> None:
    assert Score({"a": 0.1, "b": 0.2, "c": 0.3}).value == 0.6  # a running sum gives 0.6000000000000001
    assert Score({}).value == 0


@pytest.mark.parametrize(("state", "value"), [("masked", 0.0), ("scored", None), ("floored", None)])
def test_a_masked_sample_is_the_one_without_a_value(state: str, value: float | None) -> None:
    with pytest.raises(ValueError, match=f"a {state} sample cannot have the value {value}"):
        Result(state, value)  # type: ignore[arg-type]
    assert Result("masked", None).value is None


# Errors

EVERY = [
    ConfigError("x = 1 must be text"),
    DataError("x.jsonl does not exist"),
    ModelError("no such model"),
    MissingExtra("trl", "train"),
    Unscored("no_evidence"),
    Unscored("no_evidence", "nothing found", query="x", cause_of_it=None),
    PolicyFault("oversize", "context_length, and not of a sentence in its place", attempts=1),
    LLMError("timeout", "no reply in 30 s", stage="judge", status=None, attempts=4),
    RewardBug("reward 'x' failed"),
    NoScore("reward 'x' failed"),
    TooManyMasked("60 % masked"),
]


@pytest.mark.parametrize("error", EVERY, ids=lambda error: type(error).__name__)
def test_errors_come_back_whole_from_another_process(error: FactrlError) -> None:
    back = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(back) is type(error)
    assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


def test_unscored_says_cause_and_detail() -> None:
    assert str(Unscored("no_evidence")) == "no_evidence"
    assert str(Unscored("no_evidence", "nothing found")) == "no_evidence: nothing found"
    error = LLMError("timeout", "no reply", attempts=4)
    assert (error.cause, error.detail, error.facts) == ("timeout", "no reply", {"attempts": 4})


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("stpes", ["steps", "epochs"], "; did you mean 'steps'?"),
        ("zebra", ["steps", "epochs"], ""),
        ("", ["steps"], ""),
        ("ab", {"abb", "aba"}, "; did you mean 'abb'?"),  # the same answer whatever a set's order
    ],
)
def test_nearest(word: str, known: Collection[str], hint: str) -> None:
    assert nearest(word, known) == hint
