"""What many rewards ask of one resource is answered at once, and each gets its own answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

import factrl as fx
from factrl.errors import RewardBug, Unscored
from factrl.llm.background import Call
from factrl.types import Example


class Doubler:
    """Counts how it was asked."""

    def __init__(self, fails: Exception | None = None, short: bool = False) -> None:
        self.batches: list[int] = []
        self.fails, self.short = fails, short

    def answer_together(self, calls: Sequence[Call]) -> list[int]:
        self.batches.append(len(calls))
        if self.fails is not None:
            raise self.fails
        answers = [2 * args[0] + named.get("plus", 0) for args, named in calls]
        return answers[1:] if self.short else answers


class Odd(Doubler):
    def answer_together(self, calls: Sequence[Call]) -> Any:
        return None


@fx.reward
def doubled(example: Example, completion: str, *, double: Any, calls: int = 1) -> dict[str, float]:
    number = int(completion)
    for _ in range(calls):
        number = double(number, plus=1)
    return {"number": number}


def batch(reward: fx.Reward, numbers: Sequence[int]) -> list[Any]:
    return reward.batch([Example("q")] * len(numbers), [str(number) for number in numbers])


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls wait for each other however busy the machine is."""
    monkeypatch.setattr("factrl.llm.background.PAUSE", 60.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("calls", [1, 3])
def test_samples_that_ask_at_once_are_asked_together(calls: int) -> None:
    doubler = Doubler()
    results = batch(doubled.with_(double=doubler, calls=calls), range(40))
    assert [result.value for result in results] == [2**calls * (number + 1) - 1 for number in range(40)]
    assert doubler.batches == [40] * calls


def test_one_that_is_busy_elsewhere_does_not_hold_up_the_others() -> None:
    doubler, answered = Doubler(), threading.Event()

    @fx.reward
    def slow(example: Example, completion: str, *, double: Any) -> dict[str, float]:
        if completion == "0":  # goes on only when the others have their answers
            assert answered.wait(20)
        number = double(int(completion))
        if completion == "1":
            answered.set()
        return {"number": number}

    results = batch(slow.with_(double=doubler), range(4))
    assert [result.value for result in results] == [0, 2, 4, 6]
    assert sum(doubler.batches) == 4


def test_a_call_that_cannot_be_answered_masks_its_own_sample_alone() -> None:
    class Picky(Doubler):
        def answer_together(self, calls: Sequence[Call]) -> list[Any]:
            answers = super().answer_together(calls)
            return [Unscored("too_long", "") if answer == 3 else answer for answer in answers]

    results = batch(doubled.with_(double=Picky()), range(3))
    assert [(result.value, result.cause) for result in results] == [
        (1.0, None),
        (None, "too_long"),
        (5.0, None),
    ]


@pytest.mark.parametrize("doubler", [Doubler(short=True), Doubler(ZeroDivisionError("oops")), Odd()])
def test_a_bug_of_a_resource_ends_the_batch_and_is_no_deadlock(doubler: Doubler) -> None:
    assert doubled.with_(double=doubler).batch([], []) == []
    with pytest.raises(RewardBug, match=r"gave 2 answers to 3 calls|oops|NoneType"):
        batch(doubled.with_(double=doubler), range(3))


def test_a_bug_of_one_reward_lets_no_other_wait_for_ever() -> None:
    class Slow(Doubler):
        def answer_together(self, calls: Sequence[Call]) -> list[int]:
            time.sleep(0.2)
            return super().answer_together(calls)

    @fx.reward
    def broken(example: Example, completion: str, *, double: Any) -> dict[str, float]:
        if completion == "0":
            raise KeyError("x")
        return {"number": double(double(int(completion)))}

    before = threading.active_count()
    with pytest.raises(RewardBug):
        batch(broken.with_(double=Slow()), range(4))
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= before
