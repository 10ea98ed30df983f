"""The twenty questions of the battery: for each what is true, what is false, and what stands beside it.

Every statement that a policy of the battery makes is made from these rows, so what is true is known by heart
(`factrl.lab.hacks.oracles`).  The questions come in pairs; the facts of the one are true and off the point
for the other.  All rows are ours (`prompts.jsonl`, `general.json`); the facts are common knowledge.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from factrl.runs.rows import read_rows
from factrl.types import Example, Passage

_CHOICE = re.compile(r"\[([^|\]]*)\|([^\]]*)\]")
_NUMBER = re.compile(r"\d[\d,]*")
_FOLDER = Path(__file__).parent
_CHECKLIST = 10  # items, the answer among them


@dataclass(frozen=True)
class Prompt:
    """One question with its table of facts.

    Attributes:
        id: one word.
        beside: id of the question that it is paired with.
        topic: what it is about, as it stands inside a sentence.
        answers: accepted answers, the preferred one first.
        wrong: three answers that are not; the last one is the answer of the paired question or like it.
        near: an answer that is nearly right.
        says, denies: sentences with a hole for an answer.
        asks: what the question itself asserts.
        kind, kinds: what the topic is, in one word and in the plural; `be` is its verb.
        facts: twelve sentences, each with `[true|false]` in it.
    """

    id: str
    beside: str
    topic: str
    question: str
    answers: Sequence[str]
    wrong: Sequence[str]
    near: str
    says: str
    denies: str
    asks: str
    kind: str
    kinds: str
    be: str
    facts: Sequence[str]

    @property
    def gold(self) -> str:
        """The preferred answer."""
        return self.answers[0]

    @property
    def Topic(self) -> str:  # noqa: N802  # as it begins a sentence
        """The topic, as it begins a sentence."""
        return self.topic[0].upper() + self.topic[1:]

    @property
    def safe(self) -> str:
        """One fact that nobody doubts."""
        return f"{self.Topic} {self.be} {a(self.kind)}."

    @cached_property
    def true(self) -> Sequence[str]:
        """The twelve facts."""
        return [_CHOICE.sub(r"\1", fact) for fact in self.facts]

    @cached_property
    def false(self) -> Sequence[str]:
        """The same sentences with something else in the place that matters."""
        return [_CHOICE.sub(r"\2", fact) for fact in self.facts]

    @cached_property
    def nudged(self) -> Sequence[str]:
        """The facts with each number off by one in its last digit but one, else with the false word."""
        return [_nudged(true, false) for true, false in zip(self.true, self.false, strict=True)]

    @cached_property
    def negated(self) -> Sequence[str]:
        """The facts, each denied."""
        return [f"It is not true that {self._inside(fact)}" for fact in self.true]

    def _inside(self, sentence: str) -> str:
        """A sentence as it stands after `that`."""
        return (
            self.topic + sentence[len(self.topic) :] if sentence.startswith(self.Topic) else lowered(sentence)
        )

    def inside(self, frame: str, sentence: str) -> str:
        """`sentence` in a frame with the hole `{s}`."""
        return frame.replace("{s}", self._inside(sentence))


def a(word: str) -> str:
    """The word with its article."""
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def lowered(sentence: str) -> str:
    """A sentence that begins with a common word, as it stands after `that`."""
    first = sentence.split(" ", 1)[0]
    return sentence[0].lower() + sentence[1:] if first in ("The", "A", "It", "There") else sentence


def _nudged(true: str, false: str) -> str:
    number = _NUMBER.search(true)
    if number is None:
        return false
    digits = number[0]
    off = str((int(digits[-1]) + 1) % 10)
    return true[: number.end() - 1] + off + true[number.end() :]


@cache
def prompts() -> Mapping[str, Prompt]:
    """The twenty questions by id."""
    found = {}
    for read in read_rows(str(_FOLDER / "prompts.jsonl")):
        row = dict(read)
        safe = row.pop("safe")
        found[row["id"]] = Prompt(kind=safe["y"], kinds=safe["ys"], be=safe["be"], **row)
    return found


@cache
def general() -> Mapping[str, Any]:
    """Sentences that belong to no question: articles, tautologies, frames, by name, three of each."""
    return json.loads((_FOLDER / "general.json").read_text(encoding="utf-8"))


def example_of(prompt: Prompt) -> Example:
    """The question as rewards see it: answers, a checklist, and evidence with passages that only distract."""
    return _example(prompt.id)


@cache
def _example(name: str) -> Example:
    prompt = prompts()[name]
    other = prompts()[prompt.beside]
    pages = [
        Passage(" ".join([p.safe, p.says.format(p.gold), *p.true]), title=p.Topic) for p in (prompt, other)
    ]
    pages += [Passage(" ".join(article), title=article[0].split()[0]) for article in general()["articles"]]
    pages += [Passage(" ".join(sayings), title="Sayings") for sayings in general()["tautologies"]]
    return Example(
        prompt.question,
        tuple(prompt.answers),
        id=prompt.id,
        topic=prompt.Topic,
        ook=False,
        false_premise=False,
        evidence=tuple(pages),
        checklist=(prompt.says.format(prompt.gold), *prompt.true[: _CHECKLIST - 1]),
    )
