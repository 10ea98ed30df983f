"""Judges of claims by a function of their words, and what a prompt carries."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from factrl.llm import FakeLLM, Message, Reply
from factrl.rewards.grading import BRIEF_OFFER_PROMPT, OFFER_PROMPT
from factrl.types import Claim, Passage, Verdict


class JudgeBy:
    """Says of each claim what `say` makes of its words, a label or a verdict; keeps what it was asked."""

    weak, per_call = False, 8

    def __init__(self, say: Callable[[str], Any], identity: str = "scripted") -> None:
        self.say, self.identity = say, identity
        self.asked: list[str] = []

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        self.asked += [claim.text for claim, _ in pairs]
        return [self.verdict(self.say(claim.text)) for claim, _ in pairs]

    def verdict(self, said: Any) -> Verdict:
        if isinstance(said, Verdict):
            return said
        return Verdict(said, self.identity, cause="timeout" if said == "unjudged" else None)


class LettersBy:
    """A model in this process that answers by what stands in a prompt; keeps what it was asked."""

    identity = "letters@2"

    def __init__(self, answer: Callable[[str], Sequence[float]] = lambda prompt: (-0.1, -3.0, -4.0)) -> None:
        self.answer = answer
        self.calls: list[tuple[str, list[str], tuple[str, ...], str]] = []

    def letter_logprobs(
        self, prefix: str, prompts: Sequence[str], letters: Sequence[str] = ("A",), *, suffix: str = ""
    ) -> np.ndarray:
        self.calls.append((prefix, list(prompts), tuple(letters), suffix))
        return np.array([self.answer(prompt) for prompt in prompts])

    def tokens(self, text: str) -> int:
        return len(text) // 4


class Judge(FakeLLM):
    """A scripted judge of answers, to which every text offers one; that question is not among its `calls`."""

    def complete(self, messages: Sequence[Message], **sampling: Any) -> Reply:
        content = str(messages[0]["content"])
        for prompt, reply in ((OFFER_PROMPT, "VERDICT: offers"), (BRIEF_OFFER_PROMPT, "A")):
            if content.startswith(prompt[:80]):
                return Reply(reply, finish_reason="stop", model="scripted")
        return super().complete(messages, **sampling)


def data_of(messages: Sequence[Message]) -> dict[str, Any]:
    """The JSON that a prompt carries, after a check that it is the one line between two marks."""
    lines = messages[-1]["content"].split("\n")
    assert lines[-3].startswith("DATA ")
    assert lines[-1] == lines[-3].replace("DATA ", "END ")
    return json.loads(lines[-2])
