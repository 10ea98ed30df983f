"""In which form a reward reads completions: an answer in a box, between tags, or the whole text."""

from __future__ import annotations

from typing import Literal

from factrl.papers import declared
from factrl.rewards import Reward

Form = Literal["tags", "boxed", "text"]
Length = Literal["short", "long"]


def form_of(spec: str, reward: Reward) -> Form:
    """The form in which a reward reads completions: its knob `answer`, else its file's `FORM`, else text."""
    said = reward.knobs.get("answer")
    if said in ("boxed", "tags", "text"):
        return said
    if reward.knobs.get("thinking") is False:
        return "text"
    return declared(spec, "FORM", "text")


def length_of(spec: str, reward: Reward) -> Length:
    """Whether a reward looks for one short answer or reads a long one."""
    said: Length | None = declared(spec, "LENGTH")
    return said or ("short" if reward.needs_answers else "long")
