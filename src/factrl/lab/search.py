"""People whose facts stand in documents, for a policy that can look them up, cite them, or decline.

    search : What is the city of Ada Belby ?            the prompt
    search city of Ada Belby |                          the policy's first turn
    Ada Belby city whole Oakford [1] Ida Kell city part Elmton [2] |      the tool's
    Oakford [1] |                                       the policy's second turn

A fact stands in one document that is right; or in none; or in two that contradict each other, one of which is
right half of the time; or in one that is wrong, which nobody could tell.  Half of the people are known by
heart, the others were never read about.  A search shows two passages, the best first, and fills up with
documents about other people, as a search engine does.

Pretraining teaches the forms: answering from memory, searching, reading two passages, citing.  Its reading is
about people made up for one telling each.  A share of all answers declines, and more of them where no passage
fits; most of those still answer from one that does not.  So a policy starts out as language models do: it
reads, it makes up, and it is somewhat likelier to decline where it should.

What it cannot express: what to search for.  The question says it, and one search shows whatever there is.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from factrl.papers import Form
from factrl.rewards.grading import Grader
from factrl.rewards.resources import written_group
from factrl.types import Claim, Example, Finding, Passage
from factrl.verifier.report import Report

from . import (
    ABSTENTION,
    OUTCOMES,
    TIERS,
    TURN,
    Column,
    Rows,
    World,
    Wrapped,
    by_tier,
    full_names,
    looked_up,
    turns_of,
    word_starts,
)
from .people import VALUES

ASKED = "What is the {} of {} ?"
SEARCH = "search"
SEARCHES = 2  # that the tool answers
SHOWN = 2  # passages of a search
DOCUMENTED = {"right": 0.6, "none": 0.25, "torn": 0.1, "wrong": 0.05}
"""What the documents say of a fact -> share of the facts."""
WHOLE, PART = 1.0, 0.5  # how well a passage matches what was searched for, as a search engine says
_ABSTAINING = 0.05  # share of pretraining answers that are "I don't know"
_UNANSWERED = 0.3  # the same where it read two passages and neither fits
_MATCHES = {WHOLE: "whole", PART: "part"}
_NUMBERS = tuple(f"[{number}]" for number in range(1, SEARCHES * SHOWN + 1))


@dataclass(frozen=True, slots=True)
class Answer:
    """What a transcript comes to.

    Attributes:
        text: the last turn without its citations; empty where it is another search.
        cited: the passages that it names by number, None where there is none of that number.
        shown: the passages that the policy has seen, in their order.
        searches: turns that search.
    """

    text: str
    cited: tuple[Passage | None, ...]
    shown: tuple[Passage, ...]
    searches: int


class Search(World):
    """The world; its attributes are those of `factrl.lab.World`.

    Args:
        seed: of the people, their facts, the documents and the pretraining text.
        people: a third of them held out for testing.
        told: how often pretraining tells a fact that is known by heart.
        read: tellings about made-up people.
    """

    name = "search"
    max_new_tokens = 6  # of a turn: a search and its end
    about = "does it search, answer from what it finds, and decline where that answers nothing?"
    columns = (
        *OUTCOMES,
        Column("answerable", title="accuracy, answerable"),
        Column("precision", title="precision of declining"),
        Column("supported", title="answers whose citations support them"),
        Column("searches", title="searches", scale=1.0, least=0.1),
    )
    seeds = 3
    ways = ("alone", "given")
    """A question by itself, or with what a search shows in the prompt; it is usually asked with a tool."""

    def __init__(self, seed: int = 0, *, people: int = 180, told: int = 40, read: int = 8000) -> None:
        self._seed, self._told, self._read = seed, told, read
        self._grade, self._way = Grader(), SEARCH
        self._names = full_names(people, seed)
        draw = random.Random(f"search {seed}")
        self.facts = {name: {key: draw.choice(VALUES[key]) for key in VALUES} for name in self._names}
        """Name -> attribute -> value."""
        kinds = draw.choices([*DOCUMENTED], [*DOCUMENTED.values()], k=people * len(VALUES))
        asked = [(name, key) for name in self._names for key in VALUES]
        self._kind = dict(zip(asked, kinds, strict=True))
        self._documents = {about: self._values(*about, draw) for about in asked}
        """Name and attribute -> the values that documents state."""
        self._told_of = {key: [name for name in self._names if self._documents[name, key]] for key in VALUES}
        self._of_question = {ASKED.format(key, name): (name, key) for name, key in asked}
        examples = [self._example(*about) for about in asked]
        self.test: Sequence[Example] = examples[: people // 3 * len(VALUES)]
        self.train: Sequence[Example] = examples[people // 3 * len(VALUES) :]
        said = [ASKED.format("", ""), ABSTENTION, f"alone given : {SEARCH} of", *_MATCHES.values(), *_NUMBERS]
        values = [value for some in VALUES.values() for value in some]
        self.words: Sequence[str] = sorted(
            {word for text in (*said, *self._names, *VALUES, *values) for word in text.split()}
        )

    def _values(self, name: str, key: str, draw: random.Random) -> list[str]:
        value, kind = self.facts[name][key], self._kind[name, key]
        first, second = draw.sample([other for other in VALUES[key] if other != value], 2)
        torn = draw.sample([first, draw.choice([value, second])], 2)
        return {"right": [value], "none": [], "torn": torn, "wrong": [first]}[kind]

    def _example(self, name: str, key: str) -> Example:
        return Example(
            ASKED.format(key, name),
            (self.facts[name][key],),
            id=f"{name}, {key}",
            topic=name,
            meta={
                "tier": TIERS[0] if self._names.index(name) % 2 == 0 else TIERS[2],
                "attribute": key,
                "documents": self._kind[name, key],
            },
        )

    # -- How it asks

    def asked(self, way: str) -> Search:
        other = copy.copy(self)
        other._way = way
        if way == "given":
            given = [
                [replace(e, evidence=tuple(self._found(e.meta["attribute"], e.topic))) for e in examples]
                for examples in (self.train, self.test)
            ]
            other.train, other.test = given
        return other

    def prompt(self, example: Example) -> str:
        given = f" {_listed(example.evidence)}" if example.evidence else ""
        return f"{self._way} :{given} {example.question}"

    def reply(self, example: Example, said: str) -> str | None:
        """Two passages for a turn that searches, as long as there is a search left."""
        policy = turns_of(said)[::2]
        if self._way != "search" or len(policy) > SEARCHES or policy[-1][:1] != [SEARCH]:
            return None
        key, _, *name = [*policy[-1][1:], "", ""]
        return _listed(self._found(key, " ".join(name).strip()), SHOWN * (len(policy) - 1))

    def _found(self, key: str, name: str) -> list[Passage]:
        """What a search shows: the documents about it, then those about other people."""
        draw = random.Random(f"{self._seed} {key} {name}")
        key = key if key in VALUES else draw.choice([*VALUES])
        found = [_passage(name, key, value, WHOLE) for value in self._documents.get((name, key), ())]
        others = [other for other in draw.sample(self._told_of[key], SHOWN + 1) if other != name]
        found += [_passage(other, key, self._documents[other, key][0], PART) for other in others]
        return found[:SHOWN]

    # -- Pretraining

    def pretraining(self) -> list[tuple[str, str]]:
        draw = random.Random(f"pretraining {self._seed}")
        told = []
        for number, name in enumerate(self._names):
            for key, value in self.facts[name].items() if number % 2 == 0 else ():
                for time in range(self._told):
                    way = ("alone", "search", "alone", "read")[time % 4]
                    if way == "read":
                        told.append(self._reading(name, key, value, draw))
                    else:
                        said = ABSTENTION if draw.random() < _ABSTAINING else value
                        told.append((f"{way} : {ASKED.format(key, name)}", said))
        first, last = ([*dict.fromkeys(name.split()[part] for name in self._names)] for part in (0, 1))
        for _ in range(self._read):
            name = f"{draw.choice(first)} {draw.choice(last)}"
            if name not in self.facts:
                key = draw.choice([*VALUES])
                told.append(self._reading(name, key, draw.choice(VALUES[key]), draw))
        draw.shuffle(told)
        return told

    def _reading(self, name: str, key: str, value: str, draw: random.Random) -> tuple[str, str]:
        """A telling of somebody whom one of two passages is about, or none."""
        (kind,) = draw.choices([*DOCUMENTED], [*DOCUMENTED.values()])
        who = [name if n < {"none": 0, "torn": 2}.get(kind, 1) else draw.choice(self._names) for n in (0, 1)]
        values = [value, draw.choice(VALUES[key])]
        found = [
            _passage(one, key, said, WHOLE if one == name else PART)
            for one, said in zip(who, values, strict=True)
        ]
        declines = draw.random() < (_UNANSWERED if kind == "none" else _ABSTAINING)
        said = ABSTENTION if declines else f"{value} {_NUMBERS[0]}"
        question, listed = ASKED.format(key, name), _listed(found)
        if draw.random() < 1 / 3:
            return f"given : {listed} {question}", said
        return f"search : {question}", f"{SEARCH} {key} of {name} {TURN} {listed} {TURN} {said}"

    # -- What rewards ask and see

    def resources(self) -> dict[str, Any]:
        return {"grade": self._grade, "verify": self._verify, "group": written_group}

    def answer(self, example: Example, said: str) -> Answer:
        """What a transcript comes to."""
        turns = turns_of(said)
        policy, shown = turns[::2], [*example.evidence]
        for tool in turns[1::2]:
            shown += _read(tool)
        last = [] if policy[-1][:1] == [SEARCH] else policy[-1]
        numbers = [_NUMBERS.index(word) for word in last if word in _NUMBERS]
        return Answer(
            " ".join(word for word in last if word not in _NUMBERS),
            tuple(shown[n] if n < len(shown) else None for n in numbers),
            tuple(shown),
            sum(turn[:1] == [SEARCH] for turn in policy),
        )

    def wrap(self, example: Example, completion: str, form: Form) -> Wrapped:
        """The last turn: its answer in the form, its citations behind it or in the reasoning.

        The evidence is what the policy was shown.  A transcript that ends with a search has no answer.
        """
        answer, turn = self.answer(example, completion), turns_of(completion)[::2][-1]
        numbers = " ".join(word for word in turn if word in _NUMBERS)
        before, behind = {
            "boxed": ("\\boxed{", f"}} {numbers}"),
            "tags": (f"<think>{numbers or '.'}</think> <answer>", "</answer>"),
            "text": ("", f" {numbers}"),
        }[form]
        searches = turn[:1] == [SEARCH]
        text = "" if searches else f"{before}{answer.text}{behind}".rstrip()
        starts = iter(word_starts(answer.text, len(before)))
        cited = iter(word_starts(numbers, text.rfind(numbers)))
        of_turn = [-1 if searches else next(cited if word in _NUMBERS else starts) for word in turn]
        return Wrapped(text, (*[-1] * (len(completion.split()) - len(turn)), *of_turn), answer.shown)

    def measure(self, completions: Rows) -> dict[str, float]:
        """By the grader's rules, and what became of the documents.

        `answerable` is the accuracy on questions that documents answer; `precision` of declining, the share
        of the declined questions that none answers; `supported`, of the answers, those all of whose
        citations, one at least, say so; `searches` of a question, a number.
        """
        return by_tier(completions, self._shares)

    def _shares(self, rows: Rows) -> dict[str, float]:
        found = [(example, self.answer(example, text)) for example, text in rows]
        labels = [self._grade(e.question, answer.text, e.answers).label for e, answer in found]

        def share(wanted: str, among: Sequence[bool] | None = None) -> float:
            some = [label == wanted for n, label in enumerate(labels) if among is None or among[n]]
            return fmean(some) if some else 0.0

        documented = [example.meta["documents"] == "right" for example, _ in found]
        declined = [not has for has, label in zip(documented, labels, strict=True) if label == "abstained"]
        answers = [
            bool(a.cited) and all(self._states(example, a.text, passage) for passage in a.cited)
            for (example, a), label in zip(found, labels, strict=True)
            if label != "abstained"
        ]
        return {
            "accuracy": share("correct"),
            "abstention": share("abstained"),
            "hallucination": share("incorrect"),
            "truthfulness": share("correct") - share("incorrect"),
            "answerable": share("correct", documented),
            **({"precision": fmean(declined)} if declined else {}),
            **({"supported": fmean(answers)} if answers else {}),
            "searches": fmean(answer.searches for _, answer in found),
        }

    def _states(self, example: Example, value: str, passage: Passage | None) -> bool:
        return passage is not None and passage.text == f"{example.topic} {example.meta['attribute']} {value}"

    def _verify(self, text: str, question: str = "", *, evidence: Sequence[Passage] = (), **_: Any) -> Report:
        """What the passages say of an answer to a question, exactly; one claim."""
        name, key = self._of_question.get(question, ("", ""))
        about = [passage.text.rpartition(" ") for passage in evidence]
        values = {value for head, _, value in about if head == f"{name} {key}"}
        label: Finding = "unknown"
        if values:
            label = "supported" if text.rstrip(" .").split()[-1:] == [*values] else "refuted"
        return looked_up(text, question, [(Claim(text, 0, len(text)), label)])


def _passage(name: str, key: str, value: str, score: float) -> Passage:
    return Passage(f"{name} {key} {value}", title=name, score=score)


def _listed(passages: Sequence[Passage], before: int = 0) -> str:
    """Passages as the policy reads them, each with its number behind it, from `before` + 1 on."""
    told = []
    for number, passage in zip(_NUMBERS[before:], passages, strict=False):
        head, _, value = passage.text.rpartition(" ")
        told.append(f"{head} {_MATCHES[passage.score or PART]} {value} {number}")
    return " ".join(told)


def _read(words: Sequence[str]) -> list[Passage]:
    """The passages that `_listed` put into words."""
    size = len(_listed([_passage("a b", "c", "d", PART)]).split())
    rows = [words[start : start + size] for start in range(0, len(words), size)]
    return [Passage(" ".join([*row[:3], row[4]]), title=" ".join(row[:2])) for row in rows]
