"""The nouns of factrl: plain records that carry data and no behaviour.

`Example` is one row of a dataset, `Completion` is what the policy wrote for it, `Grade` says
what became of its answer, `Score` is what a reward function returns and `Result` what became of
the sample: scored, masked or floored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["scored", "masked", "floored"]
Label = Literal["correct", "incorrect", "abstained"]


@dataclass(frozen=True, slots=True)
class Example:
    """One question with what is known about its answer.

    Attributes:
        question: the question as the user asks it, without any prompt template.
        answers: accepted answers, the preferred one first; empty when there is no reference.
        id: unique within the dataset.
        topic: what the question is about (a title or entity); empty when unknown.
        ook: "out of knowledge": a probe found no correct sample (TruthRL, section 3.2); None when not probed.
        false_premise: the question presupposes something untrue; None when unknown.
        meta: every other column of the row, untouched.
    """

    question: str
    answers: tuple[str, ...] = ()
    id: str = ""
    topic: str = ""
    ook: bool | None = None
    false_premise: bool | None = None
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)


class Completion(str):
    """What the policy wrote: the text itself, plus what the trainer knows about it.

    It is a `str`, so a reward can treat it as one.

    Attributes:
        prefill: text that the prompt already put at the start of the answer, e.g. `<think>`.
        truncated: generation stopped at the length limit, not at an end token.
    """

    prefill: str
    truncated: bool

    def __new__(cls, text: str, *, prefill: str = "", truncated: bool = False) -> Completion:
        self = super().__new__(cls, text)
        self.prefill = prefill
        self.truncated = truncated
        return self


@dataclass(frozen=True, slots=True)
class Grade:
    """What became of one answer.

    Attributes:
        label: `correct`, `incorrect` or `abstained`; the classes exclude each other.
        answer: the text that was graded.
        how: what decided: `exact`, `abstention`, `gate`, `rules` or `judge`.
        floored: why the policy's own text was ungradable (e.g. `contentless`), else None.
        why: the judge's reasoning, when there was one.
    """

    label: Label
    answer: str
    how: str
    floored: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the completion and the credit its characters deserve.

    Attributes:
        start, end: character offsets into the completion, end exclusive.
        sign: +1 supported, -1 contradicted, 0 neutral.
    """

    start: int
    end: int
    sign: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"span [{self.start}, {self.end}) is not a stretch of text")
        if self.sign not in (-1, 0, 1):
            raise ValueError(f"span sign must be -1, 0 or 1, not {self.sign!r}")


@dataclass(frozen=True, slots=True)
class Score:
    """What a reward function returns: named terms whose sum is the reward.

    Attributes:
        terms: name -> contribution; every value finite.
        spans: step-wise credit in characters (FSPO); empty for sequence rewards.
        floored: set when the policy's own text made the sample ungradable, to the reason.
        facts: anything worth keeping beside the sample (the answer, the grade, …); JSON values only.
    """

    terms: Mapping[str, float]
    spans: tuple[Span, ...] = ()
    floored: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def value(self) -> float:
        """The reward: the sum of the terms."""
        return math.fsum(self.terms.values())


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one sample; `value` is None exactly when the sample is masked.

    Attributes:
        state: `scored`; `masked` (our side failed, no number exists); `floored` (the policy's text
            was ungradable and earns the reward's floor).
        value: the reward, or None when masked.
        cause: one word, why it was masked or floored; None when scored.
        detail: the sentence behind the cause.
    """

    state: State
    value: float | None
    terms: Mapping[str, float] = field(default_factory=dict, hash=False)
    spans: tuple[Span, ...] = ()
    cause: str | None = None
    detail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if (self.value is None) != (self.state == "masked"):
            raise ValueError(f"a {self.state} sample cannot have the value {self.value!r}")
