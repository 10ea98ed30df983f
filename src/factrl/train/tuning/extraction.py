"""Where the answer of a completion is, for a reward that is known by its name and its knobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from factrl.evals.shortqa import Extract
from factrl.papers import Form, form_of, load_reward, paper_names, split_spec

_EXTRACTS: Mapping[Form, Extract] = {"tags": "answer", "boxed": "boxed", "text": "text"}


def form_with(spec: str, knobs: Mapping[str, Any]) -> Form:
    """The form in which the reward of this name reads completions once its knobs are set.

    A reward of your own is not loaded: its knob `answer` says it, else it reads the whole text.

    Args:
        spec: as `factrl.papers.load_reward` takes it; empty for none, or for one of your own.
        knobs: those that are set; the others are the reward's own.
    """
    if split_spec(spec)[0] in paper_names():
        reward = load_reward(spec)
        return form_of(spec, replace(reward, knobs={**reward.knobs, **knobs}))
    told = knobs.get("answer")
    return told if told in ("boxed", "tags", "text") else "text"


def extract_of(spec: str, knobs: Mapping[str, Any]) -> Extract:
    """What of a completion is the answer; arguments as of `form_with`."""
    return _EXTRACTS[form_with(spec, knobs)]
