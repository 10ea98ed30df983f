"""The people of `factrl.lab.people`, asked at a threshold and answering with a confidence.

A question begins with how sure an answer has to be, in percent, drawn for each question and its `threshold`;
an answer ends with how sure the model says it is, one of the same words.  Pretraining draws both at random,
so a model has no hint what they are for.  A reward that reads a confidence gets it between tags; any other
does not see it, and it is measured all the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from factrl.evals.confidence import confidence_numbers
from factrl.evals.samples import Row
from factrl.papers import Form
from factrl.types import Completion, Example

from . import Rows, Wrapped
from .people import People

LEVELS = ("10", "30", "50", "70", "90")  # percent, of thresholds and of confidences


class Confidence(People):
    """The world of `factrl lab --table confidence`; arguments are those of `People`."""

    name = "confidence"
    max_new_tokens = 5  # "I don't know", a confidence and the end

    def __init__(self, seed: int = 0, **told: Any) -> None:
        super().__init__(seed, **told)
        self._draw = random.Random(f"thresholds {seed}")
        self._of_question |= {f"{at} {q}": about for q, about in self._of_question.items() for at in LEVELS}
        self.train, self.test = self._asked(self.train), self._asked(self.test)
        self.words = sorted({*self.words, *LEVELS})

    def pretraining(self) -> list[tuple[str, str]]:
        draw = random.Random(f"levels {self._seed}").choice
        return [(f"{draw(LEVELS)} {q}", f"{said} {draw(LEVELS)}") for q, said in super().pretraining()]

    def wrap(self, example: Example, completion: str, form: Form) -> Wrapped:
        """As of `People`, without the confidence where the form has none."""
        said, sure = _parts(completion)
        wrapped = super().wrap(example, said, "tags" if form == "confidence" else form)
        if sure is None:
            return wrapped
        stated = f" <analysis>None.</analysis> <confidence>{int(sure) / 100}</confidence>"
        text = wrapped.text + (stated if form == "confidence" else "")
        return Wrapped(text, (*wrapped.starts, len(wrapped.text)))

    def measure(self, completions: Rows) -> dict[str, float]:
        """The shares of `People`, at the least and the greatest threshold too, and of the confidences what
        `confidence_numbers` says; nothing of those where none is stated with an answer."""
        told = [(example, *_parts(text)) for example, text in completions]
        measured = super().measure([(example, said) for example, said, _ in told])
        for at in (LEVELS[0], LEVELS[-1]):
            part = super().measure([(e, said) for e, said, _ in told if e.question.startswith(at)])
            measured |= {f"at {at}/{name}": value for name, value in part.items() if "/" not in name}
        rows = [
            Row(e, Completion(f"{said}\nConfidence: {sure or '?'}"), self._grade(e.question, said, e.answers))
            for e, said, sure in told
        ]
        return measured | {name: number.value for name, number in confidence_numbers(rows).items()}

    def _asked(self, examples: Sequence[Example]) -> list[Example]:
        at = [self._draw.choice(LEVELS) for _ in examples]
        return [
            replace(e, question=f"{t} {e.question}", meta={**e.meta, "threshold": int(t) / 100})
            for e, t in zip(examples, at, strict=True)
        ]


def _parts(completion: str) -> tuple[str, str | None]:
    """The answer and the confidence behind it, None where there is none."""
    said, _, last = completion.rpartition(" ")
    return (said, last) if last in LEVELS else (completion, None)
