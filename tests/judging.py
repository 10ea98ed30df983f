"""A judge of claims by a function of their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
