"""Made-up people with four attributes each, asked one at a time and answered in one word.

Pretraining tells every fact of the *known* people often and always the same way, the facts of the *half*
known ones seldom and with contradictions, and those of the *unknown* ones never, although every word of
their names belongs to somebody else too.  A share of all answers is "I don't know", drawn at random, so the
model can abstain from the start but has no hint when.

What it cannot express: there is no reasoning.  Where a reward reads a think part, it is the answer said as a
sentence ("Ada Bell lives in Oakford."), so facts and answer are right or wrong together, a refusal states no
fact, and nothing but an empty completion is malformed.  Nor is there anything to list, to rate or to prefer
in an answer of one word: that is for `factrl.lab.longform`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from factrl.evals.confidence import confidence_numbers
from factrl.evals.samples import Row
from factrl.papers import Form
from factrl.rewards.grading import Grader
from factrl.rewards.resources import written_group
from factrl.text.sentences import sentences
from factrl.types import Claim, Completion, Example, Finding, Passage
from factrl.verifier.report import Report

from . import ABSTENTION, OUTCOMES, TIERS, Column, Rows, World, Wrapped, by_tier, looked_up, word_starts

_CONTRADICTING = (0.2, 0.6)  # least and greatest share of the half-known tellings that say something else
_ASKED = {  # the name stands last, which a model of this size learns to read several times faster
    "city": ("Which city is home to {} ?", "What is the city of {} ?"),
    "job": ("Which job is done by {} ?", "What is the job of {} ?"),
    "food": ("Which food is liked by {} ?", "What is the food of {} ?"),
    "club": ("Which club is joined by {} ?", "What is the club of {} ?"),
}
_SAID = {"city": "lives in", "job": "works as", "food": "likes", "club": "plays for"}


def _pairs(heads: str, tails: str) -> list[str]:
    return [head + tail for head, tail in product(heads.split(), tails.split())]


_JOBS = (
    "baker barber butcher carpenter chemist clerk cook dentist diver doctor driver editor farmer "
    "fisher gardener glazier guard hunter jeweller judge lawyer mason miller miner nurse painter "
    "pilot plumber porter potter printer sailor singer surgeon tailor tanner teacher waiter "
    "weaver writer"
)
_FOODS = (
    "apples bacon beans beets bread butter cabbage carrots cheese cherries chicken corn crab "
    "dates duck eggs figs garlic grapes ham honey lamb leeks lemons lentils melon mussels noodles "
    "oats olives onions peaches pears peas plums rice salmon soup trout walnuts"
)
VALUES = {
    "city": _pairs("Oak Ash Elm Fern Stone Mill Salt Fox", "ford ton burg field mouth"),
    "job": _JOBS.split(),
    "food": _FOODS.split(),
    "club": _pairs("Red Blue Green White Black Silver Gold Iron", "hawks bulls stars wolves kings"),
}
_FIRST = _pairs("Ad Bel Cor Dan El Fer Gil Han Iv Jor", "a o an is en or ette ian una el")
_LAST = _pairs("Bar Cul Dor Fen Gar Hol Kel Mar Nor Tor", "by dane lock mere ney rick shaw stad wick wood")


class People(World):
    """The world of lab.md's first table; its attributes are those of `factrl.lab.World`.

    Training asks for each fact both ways, the test one way, the two in turn; a third of the people of each
    tier is held out for testing.

    Args:
        seed: of the people, their facts and the pretraining text.
        per_tier: people in each of the three tiers.
        known, half: how often pretraining tells a fact of these tiers.
        abstaining: share of pretraining answers that are "I don't know".
    """

    name = "people"
    max_new_tokens = 4  # "I don't know" and the end
    about = "does it learn to abstain where it does not know, and only there?"
    columns = (
        *OUTCOMES,
        *(Column(name) for name in ("known/accuracy", "unknown/abstention")),
        Column("unknown/hallucination", title="unknown: halluc."),
    )

    def __init__(
        self, seed: int = 0, *, per_tier: int = 150, known: int = 50, half: int = 25, abstaining: float = 0.04
    ) -> None:
        self._told = {"known": known, "half": half, "unknown": 0}
        self._seed, self._abstaining, self._grade = seed, abstaining, Grader()
        draw = random.Random(f"people {seed}")
        names = _names(draw, per_tier)
        self._tier = {name: TIERS[index // per_tier] for index, name in enumerate(names)}
        self.facts = {name: {key: draw.choice(values) for key, values in VALUES.items()} for name in names}
        """Name -> attribute -> value."""
        self._so = {(name.lower(), one.lower()) for name, of in self.facts.items() for one in of.values()}
        held = {name for index, name in enumerate(names) if index % per_tier < round(per_tier / 3)}
        asked = [(name, key, way) for name in names for key in _ASKED for way in (0, 1)]
        self._of_question = {_ASKED[key][way].format(name): (name, key) for name, key, way in asked}
        self.train: Sequence[Example] = [self._example(*about) for about in asked if about[0] not in held]
        self.test: Sequence[Example] = [
            self._example(name, key, (number + place) % 2)
            for number, name in enumerate(names)
            for place, key in enumerate(_ASKED)
            if name in held
        ]
        said = [*self._of_question, *(value for values in VALUES.values() for value in values), ABSTENTION]
        self.words: Sequence[str] = sorted({word for text in said for word in text.split()})

    def pretraining(self) -> list[tuple[str, str]]:
        draw = random.Random(f"pretraining {self._seed}")
        told = []
        for name, facts in self.facts.items():
            tier = self._tier[name]
            for key, value in facts.items():
                wrong = draw.uniform(*_CONTRADICTING) if tier == "half" else 0.0
                for time in range(self._told[tier]):
                    said = draw.choice(VALUES[key]) if draw.random() < wrong else value
                    said = ABSTENTION if draw.random() < self._abstaining else said
                    told.append((_ASKED[key][time % 2].format(name), said))
        draw.shuffle(told)
        return told

    def resources(self) -> dict[str, Any]:
        return {
            "grade": self._grade,
            "verify": self._verify,
            "reason": self._reason,
            "group": written_group,
            "contradicts": self._contradicts,
            "together": self._together,
        }

    def wrap(self, example: Example, completion: str, form: Form) -> Wrapped:
        """The answer; before a box or an answer tag also as a sentence in a think part.

        There each word counts where it stands first, so credit for the sentence is credit for the answer.
        """
        if form == "text":
            return Wrapped(completion, word_starts(completion, 0))
        said, name = completion, f"{example.meta['person']} {_SAID[example.meta['attribute']]} "
        opening = "<think>" + ("" if completion in ("", ABSTENTION) else name)
        think = f"{opening}{said}{'.' if said else ''}</think> "
        answer = f"<answer>{completion}</answer>" if form == "tags" else f"\\boxed{{{completion}}}"
        return Wrapped(think + answer, word_starts(completion, len(opening)))

    def measure(self, completions: Rows) -> dict[str, float]:
        """By the grader's rules; `truthfulness` is accuracy minus hallucination."""

        def shares(rows: Rows) -> dict[str, float]:
            counts = Counter(self._grade(e.question, text, e.answers).label for e, text in rows)
            right, none, wrong = (
                counts[label] / max(len(rows), 1) for label in ("correct", "abstained", "incorrect")
            )
            shares = {"accuracy": right, "abstention": none, "hallucination": wrong}
            return {**shares, "truthfulness": right - wrong}

        return by_tier(completions, shares)

    def _example(self, name: str, key: str, way: int) -> Example:
        statement = f"{name} {_SAID[key]} {self.facts[name][key]}."
        return Example(
            _ASKED[key][way].format(name),
            (self.facts[name][key],),
            id=f"{name}, {key}, {way}",
            topic=name,
            evidence=(Passage(statement, title=name),),
            meta={"tier": self._tier[name], "person": name, "attribute": key},
        )

    def _finding(self, sentence: str, question: str = "") -> Finding | None:
        """What the fact table says of a sentence, or of a bare answer to a question."""
        first, last, *rest = [*sentence.rstrip(".").split(), "", ""]
        name, said = f"{first} {last}", " ".join(rest).strip()
        for key, verb in _SAID.items():
            if name in self.facts and said.startswith(f"{verb} "):
                return "supported" if said == f"{verb} {self.facts[name][key]}" else "refuted"
        if question in self._of_question and sentence.strip(" .") != ABSTENTION:
            name, key = self._of_question[question]
            return "supported" if sentence.strip(" .") == self.facts[name][key] else "refuted"
        return None

    def _verify(self, text: str, question: str = "", **_: Any) -> Report:
        """Exact, so a verifier's `topic` and `evidence` are not needed: each sentence is one claim."""
        found = []
        for number, at in enumerate(sentences(text)):
            sentence = text[at.start : at.end]
            label = self._finding(sentence, question)
            skip = "unverifiable" if label is None else None
            found.append((Claim(sentence, at.start, at.end, number, skip), label))
        return looked_up(text, question, found)

    def _contradicts(self, question: str, text: str, evidence: Sequence[Passage]) -> bool:
        return bool(self._verify(text, question).likelier["refuted"])

    def _together(self, name: str, value: str) -> int:
        """A corpus that says 20 times what is so, and nothing else."""
        return 20 * ((name, value) in self._so)

    def _reason(self, question: str, reasoning: str, answers: Sequence[str]) -> float:
        """Whether the reasoning claims something and all of it is so."""
        counts = self._verify(reasoning, question).likelier
        return float(counts["supported"] > 0 and not counts["refuted"])


LEVELS = ("10", "30", "50", "70", "90")  # percent, of thresholds and of confidences


class Confidence(People):
    """The people, asked at a threshold and answering with a confidence; arguments are those of `People`.

    A question begins with how sure an answer has to be, in percent, drawn for each question and its
    `threshold`; an answer ends with how sure the model says it is, one of the same words.  Pretraining draws
    both at random, so a model has no hint what they are for.  A reward that reads a confidence gets it
    between tags; any other does not see it, and it is measured all the same.
    """

    name = "confidence"
    max_new_tokens = 5  # "I don't know", a confidence and the end
    about = "is it as sure as it is right, and does it answer where it is surer than it is asked to be?"
    columns = (
        *OUTCOMES,
        *(Column(name) for name in ("ece", "aurc", "at 10/abstention", "at 90/abstention")),
        Column("at 90/hallucination", title="at 90: halluc."),
    )

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


def _names(draw: random.Random, per_tier: int) -> list[str]:
    """Names of two words, tier by tier; the unknown ones are made of the others' words.

    The fewer people, the fewer words, so that each is in several names.
    """
    words = min(len(_FIRST), max(6, per_tier * 2 // 3))
    first, last = draw.sample(_FIRST, words), draw.sample(_LAST, words)
    told = draw.sample([f"{a} {b}" for a, b in product(first, last)], 2 * per_tier)
    heads, tails = (sorted({name.split()[place] for name in told}) for place in (0, 1))
    others = sorted({f"{a} {b}" for a, b in product(heads, tails)} - {*told})
    return [*told, *draw.sample(others, per_tier)]
