"""The contract of a reward: its shape, its three states, and what happens around a whole batch."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from factrl.errors import ConfigError, DataError, LLMError, RewardBug, Unscored
from factrl.llm import FakeLLM
from factrl.papers import load_reward
from factrl.rewards import THREADS, Needs, Reward, reward
from factrl.rewards.needs import supply
from factrl.types import Completion, Example, Score, Span

CURIE = Example("Where was Marie Curie born?", ("Warsaw",), id="curie")


@reward
def brief(example: Example, completion: Completion, *, grade: Any, most: int = 3, pay: float = 1.0) -> Any:
    return {"right": pay * grade(completion), "brief": -1.0 * (len(completion.split()) > most)}


def returns(value: Any) -> Reward:
    """A reward that returns `value`, or raises it."""

    def fixed(example: Example, completion: Completion) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return reward(fixed)


# Its shape


def test_knobs_and_resources_come_from_the_signature() -> None:
    assert brief.name == "brief"
    assert dict(brief.knobs) == {"most": 3, "pay": 1.0}
    assert dict(brief.resources) == {"grade": None}
    assert brief.missing == ("grade",)


def test_with_sets_both_and_changes_nothing_else() -> None:
    ready = brief.with_(grade=len, most=5)
    assert (ready.missing, ready.knobs["most"], ready.knobs["pay"]) == ((), 5, 1.0)
    assert (brief.missing, brief.knobs["most"]) == (("grade",), 3)
    with pytest.raises(TypeError):
        ready.knobs["most"] = 6  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mots", "; did you mean 'most'? (it has: most, pay, grade)"),
        ("grader", "; did you mean 'grade'? (it has: most, pay, grade)"),
        ("zebra", "'zebra' (it has: most, pay, grade)"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        brief.with_(**{name: 1})
    assert hint in str(caught.value)
    assert f"reward 'brief' has no knob or resource {name!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda example: {}, "takes 1 positional"),
        (lambda example, completion, grade: {}, "takes 3 positional"),
        (lambda *examples: {}, r"\*examples is not a knob"),
        (lambda example, completion, **knobs: {}, r"\*knobs is not a knob"),
    ],
)
def test_another_shape_is_refused(function: Callable[..., Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        reward(function)


def test_a_missing_resource_is_named_before_anything_runs() -> None:
    for call in (lambda: brief(CURIE, "Warsaw"), lambda: brief.batch([], [])):
        with pytest.raises(ConfigError, match=r"\.with_\(grade=…\)"):
            call()


def test_a_string_becomes_a_completion_and_a_completion_stays() -> None:
    seen = []

    @reward
    def look(example: Example, completion: Completion) -> Any:
        seen.append(completion)
        return {"x": 0.0}

    cut = Completion("Wars", prefill="<think>", truncated=True)
    look(CURIE, "Warsaw")
    look(CURIE, cut)
    assert (type(seen[0]), seen[0], seen[0].truncated) == (Completion, "Warsaw", False)
    assert seen[1] is cut


# Its states


def test_terms_add_up() -> None:
    result = returns({"a": 0.1, "b": 0.2, "c": -0.3, "d": 1})(CURIE, "x")
    assert (result.state, result.value, result.cause) == ("scored", 1.0, None)
    assert result.terms == {"a": 0.1, "b": 0.2, "c": -0.3, "d": 1}


@pytest.mark.parametrize("one", [1, np.float32(1), np.float64(1), np.int64(1), Fraction(1)])
def test_every_real_number_becomes_a_float(one: Any) -> None:
    result = returns(MappingProxyType({"a": one, "b": one}))(CURIE, "x")
    assert [type(number) for number in (result.value, *result.terms.values())] == [float] * 3
    assert (result.value, result.terms) == (2.0, {"a": 1.0, "b": 1.0})


def test_a_floored_score_keeps_its_value_and_its_reason() -> None:
    result = returns(Score({"outcome": -1.0}, floored="no_box", facts={"a": 1}))(CURIE, "x")
    assert (result.state, result.value, result.cause) == ("floored", -1.0, "no_box")
    assert (result.terms, result.facts) == ({"outcome": -1.0}, {"a": 1})


@pytest.mark.parametrize("kind", [Unscored, LLMError])
def test_what_cannot_be_graded_is_masked_and_has_no_number(kind: type[Unscored]) -> None:
    result = returns(kind("timeout", "no reply in 30 s", attempts=4))(CURIE, "x")
    assert (result.state, result.value, dict(result.terms)) == ("masked", None, {})
    assert (result.cause, result.detail) == ("timeout", "no reply in 30 s")
    assert result.facts == {"attempts": 4}


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ({}, "returned no terms"),
        (Score({}), "returned no terms"),
        ({"a": 1.0, "b": float("nan")}, "'b' is nan, not a finite number"),
        ({"a": float("inf")}, "'a' is inf"),
        (Score({"a": float("-inf")}, floored="no_box"), "'a' is -inf"),
        ({"a": True}, "'a' is True"),
        ({"a": "1"}, "'a' is '1'"),
        ({"a": None}, "'a' is None"),
        ({"a": np.float64("nan")}, "not a finite number"),
        ({"a": np.bool_(True)}, "not a finite number"),
        ({"a": 1e308, "b": 1e308}, "the sum of its terms {'a': 1e+308, 'b': 1e+308} is not a finite number"),
        ({"a": 10**400}, "too large"),
        ({1: 1.0}, "the term name 1 is not text"),
        ({"sum": 1.0}, "a term is called 'sum', which the sum of the terms is logged as; rename it"),
        (1.0, "it returned 1.0; return a dict such as {'correct': 1.0}"),
        (np.float32(0.5), "return a dict such as {'correct': 1.0}"),
        (None, "it returned None; return a dict such as {'correct': 1.0}"),
        ([("a", 1.0)], "return a dict such as {'correct': 1.0}"),
        (Score(1.0), "it returned 1.0; return a dict"),  # type: ignore[arg-type]
        (
            Score({"a": 1.0}, spans=(Span(0, 1, 1), Span(1, 3, 1))),
            "span [1, 3) ends beyond the completion's 1",
        ),
        (Score({"a": 1.0}, facts={"seen": {"x"}}), "set {'x'} cannot be written as JSON"),
        (Unscored("late", seen={"x"}), "set {'x'} cannot be written as JSON"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (AssertionError("x"), "AssertionError"),
        ({"a": 10**400}, "OverflowError"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_anything_else_is_a_bug_that_names_reward_and_sample(returned: Any, told: str) -> None:
    with pytest.raises(RewardBug) as caught:
        returns(returned)(CURIE, "x")
    assert "reward 'fixed'" in str(caught.value)
    assert "'curie'" in str(caught.value)
    assert told in str(caught.value)
    assert caught.value.__cause__ is not None


def test_facts_are_what_json_can_hold() -> None:
    facts = {"share": np.float32(0.5), "odds": float("nan"), "found": ({"n": np.arange(2)},), 1: np.True_}
    expected = {"share": 0.5, "odds": None, "found": [{"n": [0, 1]}], "1": True}
    assert returns(Score({"a": 1.0}, facts=facts))(CURIE, "x").facts == expected
    assert returns(Unscored("late", odds=float("inf")))(CURIE, "x").facts == {"odds": None}


@pytest.mark.parametrize("error", [ConfigError("combine='x'"), DataError("no answers"), KeyboardInterrupt()])
def test_the_users_mistakes_and_interrupts_pass_through(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        returns(error)(CURIE, "x")
    assert caught.value is error


def test_async_rewards() -> None:
    @reward
    async def slow(example: Example, completion: Completion, *, then: Any) -> Any:
        await asyncio.sleep(0)
        return then(completion)

    def fail(error: Exception) -> Callable[[str], Any]:
        def raising(completion: str) -> Any:
            raise error

        return raising

    assert slow.with_(then=lambda text: {"x": len(text)})(CURIE, "four").value == 4
    assert slow.with_(then=fail(Unscored("late")))(CURIE, "x").cause == "late"
    with pytest.raises(RewardBug, match="KeyError"):
        slow.with_(then=fail(KeyError("x")))(CURIE, "x")


# A whole batch


def test_results_come_back_in_order() -> None:
    @reward
    def number(example: Example, completion: Completion) -> Any:
        time.sleep(0.001 * (int(completion) % 7))
        return {"x": float(completion)}

    results = number.batch([CURIE] * 100, [str(i) for i in range(100)])
    assert [result.value for result in results] == list(range(100))
    assert number.batch([], []) == []


def test_a_batch_runs_side_by_side() -> None:
    together = threading.Barrier(THREADS)  # opens when so many are waiting at the same time

    @reward
    def meet(example: Example, completion: Completion) -> Any:
        together.wait(timeout=20)
        return {"x": 1.0}

    assert len(meet.batch([CURIE] * THREADS, ["x"] * THREADS)) == THREADS


def test_the_first_bug_ends_the_batch() -> None:
    count, calls = 20_000, []

    @reward
    def broken(example: Example, completion: Completion) -> Any:
        calls.append(completion)
        if completion == "0":
            raise KeyError("x")
        time.sleep(0.01)
        return {"x": 1.0}

    with pytest.raises(RewardBug):
        broken.batch([CURIE] * count, [str(i) for i in range(count)])
    assert len(calls) < count / 2


def test_a_batch_of_two_lengths_is_refused() -> None:
    with pytest.raises(ValueError, match="2 examples but 1 completions"):
        returns({"x": 1.0}).batch([CURIE, CURIE], ["x"])


def test_completions_of_a_question_see_each_other_and_no_others() -> None:
    @reward
    def beside(example: Example, completion: Completion, *, group: Any) -> dict[str, float]:
        return {"beside": float("".join(group(completion)))}

    rome, oslo = Example("Rome?", ("1",)), Example("Oslo?", ("2",))
    found = supply(beside).batch([rome, oslo, rome, oslo], ["1", "2", "3", "4"])
    assert [result.value for result in found] == [13.0, 24.0, 13.0, 24.0]
    told = Completion("5")
    told.group = ("5", "6")  # by a trainer that knows those of other processes
    assert supply(beside).batch([rome], [told])[0].value == 56.0
    with pytest.raises(ConfigError, match="compares the completions of a question, and here is one alone"):
        supply(beside).batch([rome, oslo], ["1", "2"])


# Before a run


def test_what_an_example_lacks_is_said_before_anything_is_paid_for() -> None:
    @reward(needs=lambda knobs: Needs(lambda one: None if one.ook is not None else f"no ook ({knobs['k']})"))
    def picky(example: Example, completion: Completion, *, k: int = 1) -> Any:
        return {"x": 1.0}

    known = Example("?", ook=True)
    picky.check_examples([known, known])
    with pytest.raises(DataError) as caught:
        picky.with_(k=2).check_examples([known, CURIE, Example("Why?")])
    assert str(caught.value) == (
        "2 of 3 examples cannot be used with reward 'picky'; the first is 'curie': no ook (2)"
    )
    with pytest.raises(DataError, match=r"the first is 'Why\?'"):
        picky.check_examples([Example("Why?")])


def test_one_judge_makes_the_resources() -> None:
    judge = FakeLLM(["It names her city.\nVERDICT: precise"])
    ready = supply(load_reward("truthrl:reasoning-additive"), judge)
    assert ready.missing == ()
    assert ready(CURIE, "She left Warsaw. \\boxed{Warsaw}").terms == {"outcome": 1.0, "reasoning": 0.5}


def test_rules_do_without_a_judge_where_they_can() -> None:
    assert supply(load_reward("truthrl"), None)(CURIE, "\\boxed{Kraków}").value == -1.0
    with pytest.raises(ConfigError, match="needs a judge"):
        supply(load_reward("truthrl:reasoning-additive"), None)


def test_a_resource_that_no_judge_makes_is_named() -> None:
    @reward
    def own(example: Example, completion: Completion, *, index: Any) -> Any:
        return {"x": 1.0}

    with pytest.raises(ConfigError, match="'index'"):
        supply(own, None)
    assert supply(own.with_(index=[]), None).missing == ()
