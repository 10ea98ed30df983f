"""Answer forms: texts with a hole for an answer, put together from parts at random.

A policy in training finds *free options* by itself: a form of words that is right when its guess is right,
and an abstention when it is wrong, such as "The name escapes me and is Lyon".  Nobody can list them all, so
these are generated: what declines comes from `factrl.text.refusals` in all its languages, joints, wrappers
and frames from `families.json`.  Values of a part are dealt like cards, so that a long sample holds all of
them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from factrl.lab.hacks.policies import picked
from factrl.text.refusals import refusals

_ASKED = re.compile(
    r"\b(?:which|what|whose) (?!is |was |are |were |did )(\w+)|\bthe (\w+) (?:of|that|in) ", re.I
)
_NOUNS = {"who": "person", "when": "date", "where": "place", "many": "number", "much": "amount"}
_SENTENCE = re.compile(r"(^|[.?!…\n] )([a-zà-ÿа-я])")
_NOUNS_LACKED = ("information", "data", "answer", "record", "memory", "idea")
_VERBS_LACKED = ("answer", "say", "verify", "recall", "determine", "confirm", "find")
_CONTRACTED = ((r" not\b", "n't"), ("I am ", "I'm "), ("amn't", "am not"), ("cann't|cannot", "can't"))
_PLAIN = 0.6  # share of the forms with a common refusal, and of those without a wrapper
_SUBJECTS = ("the answer", "it", "that", "this information", "the exact {noun}", "the {noun}")


@dataclass(frozen=True)
class AnswerForm:
    """One text with a hole for an answer.

    Attributes:
        family: the id of the family that it is of.
        text: with `{X}` for the answer, `{x}` for the same in small letters, `{Y}` for another one, `{S}` for
            a sentence with it, `{noun}` and `{topic}` for what the question asks for and is about.
    """

    family: str
    text: str

    def says(
        self, answer: str, *, other: str, question: str, topic: str = "", sentence: str = "It is {}."
    ) -> str:
        """The text with the holes filled.

        Args:
            answer: what it names.
            other: a second answer, for forms that name two.
            question: gives the noun: `city` of "In which city was she born?".
            topic: what the question is about.
            sentence: one that gives an answer, with `{}` in its place.
        """
        said = {"X": answer, "x": answer.lower(), "Y": other, "topic": topic or "it", "noun": _noun(question)}
        said["S"] = sentence.replace("{}", answer)
        return _FILL.sub(lambda hole: said[hole[1]], self.text)


@dataclass(frozen=True)
class Family:
    """Answer forms that are made in one way.

    Attributes:
        id: `F01` to `F17`.
        frames: texts with holes for parts.
        why: why it pays where nothing is done about it.
        right: whether its forms give an answer at all; those that do not are never right.
    """

    id: str
    name: str
    frames: Sequence[str]
    why: str
    right: bool = True

    def forms(self, number: int, seed: int = 0) -> Iterator[AnswerForm]:
        """A sample of its forms; the same seed gives the same ones.

        Args:
            number: how many; a few may be equal.
        """
        rng = random.Random(f"{self.id} {seed}")
        decks: dict[str, list[str]] = {}

        def deal(name: str, values: Sequence[str]) -> str:
            if not decks.get(name):
                decks[name] = [*values]
                rng.shuffle(decks[name])
            return decks[name].pop()

        def part(hole: re.Match[str]) -> str:
            if hole[1] == "A" and rng.random() < _PLAIN:
                return "{X}"
            if hole[1] == "decline" and rng.random() < _PLAIN:
                return deal("common", parts()["common"])
            return _expanded(deal(hole[1], parts()[hole[1]]), part)

        for _ in range(number):
            inner = _expanded(deal("frame", self.frames), part)
            if self.right and rng.random() > _PLAIN:
                inner = deal("whole", parts()["whole"]).replace("{T}", inner)
            yield AnswerForm(self.id, _SENTENCE.sub(lambda found: found[1] + found[2].upper(), inner))


def _expanded(text: str, part: Callable[[re.Match[str]], str]) -> str:
    return _PART.sub(part, text)


def families(ids: Sequence[str] = ()) -> list[Family]:
    """The families with these ids, all by default; `F01-F04` is a range.

    Raises:
        ConfigError: no such family.
    """
    return picked("family", {row["id"]: Family(**row) for row in _data()["families"]}, ids)


@cache
def parts() -> Mapping[str, Sequence[str]]:
    """What the holes of a frame are filled from, by name."""
    told = dict(_data()["parts"])
    phrases, spaceless = refusals().phrases, refusals().spaceless
    openers = _spoken(phrases["openers"] + spaceless["openers"], ", ")
    fillers = [*_spoken(phrases["fillers"], " "), *spaceless["fillers"]]
    return {
        **told,
        "A": told["answer"],
        "decline": _declining(),
        "opener": [*("" for _ in range(40)), *openers],
        "filler": [*fillers, "you should check "],
        "turn": [phrase.strip() for phrase in phrases["turns"]],
        "asks": _spoken(phrases["asks_back"], " "),
        "unknown": phrases["unknown"],
        "silent": phrases["silent"],
    }


@cache
def _data() -> Mapping[str, list]:
    return json.loads((Path(__file__).parent / "families.json").read_text(encoding="utf-8"))


def _declining() -> Sequence[str]:
    """Every way in which `factrl.text.refusals` knows that a text declines, as it is written and
    contracted."""
    known = refusals()
    phrases, spaceless = known.phrases, known.spaceless
    plain = [*phrases["declines"], *sorted(known.bare), *phrases["asks_back"]]
    plain += [f"{start}{noun}" for start in phrases["have"] for noun in _NOUNS_LACKED]
    plain += [f"{start}{verb}" for start in phrases["cannot"] for verb in _VERBS_LACKED]
    plain += [f"{who} {lost}" for lost, who in zip(phrases["unknown"], _SUBJECTS * 10, strict=False)]
    plain += [f"the text {silent}it" for silent in phrases["silent"]]
    return [*_spoken(plain, ""), *spaceless["declines"], *spaceless["declines_at_end"]]


def _spoken(phrases: Sequence[str], end: str) -> list[str]:
    """Phrases as people write them: `I do not know` and `I don't know`."""
    plain = [phrase.strip() for phrase in phrases]
    said = [re.sub(r"\bi\b", "I", text) if text.isascii() else text for text in plain]
    short = said
    for long, contracted in _CONTRACTED:
        short = [re.sub(long, contracted, text) for text in short]
    return [text + end for text in dict.fromkeys([*said, *short])]


def _noun(question: str) -> str:
    """What a question asks for, in one word."""
    first = next((noun for word, noun in _NOUNS.items() if re.search(rf"\b{word}\b", question, re.I)), "")
    found = _ASKED.search(question)
    return first or (found and (found[1] or found[2])) or "answer"


_PART = re.compile(
    r"\{(A|joint|answer|tail|end|source|escape|doubt|back|limit|relation|beside|particle|denial|praise"
    r"|decline|opener|filler|turn|asks|unknown|silent)\}"
)
_FILL = re.compile(r"\{(X|x|Y|S|noun|topic)\}")
