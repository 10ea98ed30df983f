"""In which form a reward reads completions: an answer in a box, between tags, or the whole text."""

from __future__ import annotations

from typing import Literal

from .papers import split_spec
from .rewards import Reward

Form = Literal["tags", "boxed", "text"]

FORMS: dict[str, Form] = {
    "truthrl": "boxed",
    "knowrl": "tags",
    "fspo": "tags",
    "klcf": "tags",
    "factreason": "tags",
    "robust": "tags",
}
"""Paper -> its form."""


def form_of(spec: str, reward: Reward) -> Form:
    """The form in which a reward reads completions; one of your own reads them as they are.

    A knob `answer` says it first, as `truthrl` and `robust` have; one of your own may have it too.
    """
    told = reward.knobs.get("answer")
    if told in ("boxed", "tags", "text"):
        return told
    if reward.knobs.get("thinking") is False:
        return "text"
    return FORMS.get(split_spec(spec)[0], "text")
