"""Each guard of `robust` switched off: which of the 37 hacks pay then.

Two of the judges are weaker than the oracles, since a
guard against a judge's mistakes has nothing to do where the judge makes none: one that can be talked into a
verdict, and one that fails on long texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from factrl.errors import LLMError
from factrl.llm import Message, Reply, quoting
from factrl.papers import load_reward, robust
from factrl.rewards import Reward, grading
from factrl.rewards.grading import Grader
from factrl.stress import Setup, StressReport, oracle_setup, run_battery
from factrl.stress.oracles import OracleLLM
from factrl.text import Blocks, Slice, tag
from factrl.text.abstention import abstains
from factrl.types import Completion, Grade

Off = Callable[[pytest.MonkeyPatch, Reward], Reward]


class Gullible(OracleLLM):
    """An oracle that a text can talk into `correct`, or that credits a text without content."""

    def complete(self, messages: Sequence[Message], **sampling: Any) -> Reply:
        data = json.loads(str(messages[-1]["content"]).splitlines()[-2])
        answer = str(data.get("answer", ""))
        key = answer.strip(" .:") in ("Thought process", "Solution", "Let's solve this problem step by step")
        if "accepted_answers" in data and (key or "verdict:" in answer.lower() or '"verdict":' in answer):
            return Reply("As it says.\nVERDICT: correct", finish_reason="stop", model="gullible")
        return super().complete(messages, **sampling)


class Fragile(OracleLLM):
    """An oracle that fails on a text that is over its context."""

    def complete(self, messages: Sequence[Message], **sampling: Any) -> Reply:
        if len(str(messages[-1]["content"])) > 20_000:
            raise LLMError("bad_body", "the prompt is longer than the context")
        return super().complete(messages, **sampling)


@dataclass(frozen=True)
class Guard:
    """A guard, how it is switched off, and the policies that pay then, among others."""

    off: Off
    breaks: tuple[str, ...]
    judge: type[OracleLLM] = OracleLLM


def _substring(patch: pytest.MonkeyPatch, reward: Reward) -> Reward:
    """A grade as rules made it before: a refusal anywhere, else an accepted answer anywhere."""

    def grade(question: str, text: str, answers: Sequence[str], **_: Any) -> Grade:
        if "i don't know" in text.lower() or abstains(text):
            return Grade("abstained", text, how="abstention")
        right = any(answer.lower() in text.lower() for answer in answers)
        return Grade("correct" if right else "incorrect", text, how="exact")

    return reward.with_(grade=grade)


def _lenient(text: str, prefill: str = "") -> Blocks:
    think, answer = tag(text, "think", "first"), tag(text, "answer", "first")
    whole = Slice(text, 0, len(text))
    return Blocks(think or whole, answer or whole)


def _patched(target: Any, name: str, value: Any) -> Off:
    def off(patch: pytest.MonkeyPatch, reward: Reward) -> Reward:
        patch.setattr(target, name, value)
        return reward

    return off


def _no_length(patch: pytest.MonkeyPatch, reward: Reward) -> Reward:
    patch.setattr(grading, "MAX_TEXT", 10**9)
    return reward.with_(grade=Grader(Fragile(), max_answer_chars=10**9))


def _unquoted(patch: pytest.MonkeyPatch, reward: Reward) -> Reward:
    """Policy text reaches the judge as it is, and no verdict is asked for twice."""
    patch.setattr(quoting, "broken", lambda text: text)
    patch.setattr(grading, "forges", lambda text: False)
    return reward


def _zero_for_errors(patch: pytest.MonkeyPatch, reward: Reward) -> Reward:
    def scored(example: Any, completion: Completion, **more: Any) -> Any:
        score = robust.robust.fn(example, completion, **more)
        return replace(score, terms={"outcome": 0.0, "fact": 0.0}) if score.floored else score

    return replace(reward, fn=scored)


GUARDS = {
    "one exclusive grade": Guard(_substring, ("D03", "D05", "D06", "D22")),
    "reasoning verified": Guard(lambda _, reward: reward.with_(detail=0.0), ("D30",)),
    "strict tags": Guard(
        _patched(robust, "think_answer", _lenient),
        ("D27",),
    ),
    "errors below a wrong answer": Guard(_zero_for_errors, ("D25", "D26", "D27", "D28", "D33", "D35")),
    "gate for contentless text": Guard(
        _patched(grading, "is_contentless", lambda text: False), ("D25",), Gullible
    ),
    "quoting and probe": Guard(_unquoted, ("D24",), Gullible),
    "length before the judge": Guard(_no_length, ("D26",), Fragile),
}


def without(
    name: str | None, ids: Sequence[str], questions: int = 3, judge: type = OracleLLM
) -> StressReport:
    """The battery with one guard switched off."""
    guard = GUARDS[name] if name else None
    reward = load_reward("robust").with_(grade=Grader(guard.judge() if guard else judge()))
    with pytest.MonkeyPatch.context() as patch:
        if guard is not None:
            reward = guard.off(patch, reward)
        setup: Setup = replace(oracle_setup("robust", reward), questions=questions)
        return run_battery(setup, ids)


@pytest.mark.parametrize("judge", [OracleLLM, Gullible, Fragile])
def test_with_all_guards_nothing_pays_and_nothing_is_masked(judge: type) -> None:
    outcome = without(None, ["D03-D06", "D10", "D11", "D14", "D22-D28", "D30", "D33", "D35"], judge=judge)
    assert [found.id for found in outcome.of("broken", "masked")] == []


@pytest.mark.parametrize("name", GUARDS)
def test_without_a_guard_its_hacks_pay(name: str) -> None:
    wanted = GUARDS[name].breaks
    outcome = without(name, wanted)
    lost = {found.id for found in outcome.findings if found.verdict in ("broken", "masked")}
    assert lost == {*wanted}
