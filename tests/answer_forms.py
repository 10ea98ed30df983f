"""Answer forms by the thousand, put together from parts at random: what declines, in twenty-five languages,
joints, wrappers and frames, of `fixtures/families.json`.  Values of a part are dealt like cards, so that a
long sample holds all; the first 24 of each family with seed 0 are those of `factrl/stress/forms.json`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_SENTENCE = re.compile(r"(^|[.?!…\n] )([a-zà-ÿа-я])")
_CONTRACTED = ((r" not\b", "n't"), ("I am ", "I'm "), ("amn't", "am not"), ("cann't|cannot", "can't"))
_PLAIN = 0.6  # share of the forms with a common refusal, and of those without a wrapper
_PART = re.compile(
    r"\{(A|joint|answer|tail|end|source|escape|doubt|back|limit|relation|beside|particle|denial|praise"
    r"|decline|opener|filler|turn|asks|unknown|silent)\}"
)


@dataclass(frozen=True)
class Family:
    """Answer forms that are made in one way, from frames with holes for parts, and why they pay.

    Those of a family that is not `right` give no answer and must never be right.
    """

    id: str
    name: str
    frames: Sequence[str]
    why: str
    right: bool = True

    def forms(self, number: int, seed: int = 0) -> Iterator[str]:
        """So many of its forms, of which a few may be equal; the same seed gives the same ones."""
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
            return _PART.sub(part, deal(hole[1], parts()[hole[1]]))

        for _ in range(number):
            inner = _PART.sub(part, deal("frame", self.frames))
            if self.right and rng.random() > _PLAIN:
                inner = deal("whole", parts()["whole"]).replace("{T}", inner)
            yield _SENTENCE.sub(lambda match: match[1] + match[2].upper(), inner)


@cache
def families() -> Mapping[str, Family]:
    """The 18 families by id."""
    return {row["id"]: Family(**row) for row in _data()["families"]}


@cache
def parts() -> Mapping[str, Sequence[str]]:
    """What the holes of a frame are filled from, by name."""
    words: dict[str, list[str]] = dict(_data()["parts"])
    spoken = {
        "decline": _spoken(words["decline"], ""),
        "opener": [*[""] * 40, *_spoken(words["opener"], ", ")],
        "filler": [*_spoken(words["filler"], " "), "you should check "],
        "asks": _spoken(words["asks"], " "),
        "unknown": [f"{phrase} " for phrase in words["unknown"]],
        "silent": [f"{phrase} " for phrase in words["silent"]],
    }
    return {**words, "A": words["answer"], **spoken}


@cache
def _data() -> Mapping[str, list]:
    return json.loads((Path(__file__).parent / "fixtures" / "families.json").read_text(encoding="utf-8"))


def _spoken(phrases: Sequence[str], end: str) -> list[str]:
    """Phrases as people write them: `I do not know` and `I don't know`."""
    plain = [phrase.strip() for phrase in phrases]
    spoken = [re.sub(r"\bi\b", "I", text) if text.isascii() else text for text in plain]
    short = spoken
    for long, contracted in _CONTRACTED:
        short = [re.sub(long, contracted, text) for text in short]
    return [text + end for text in dict.fromkeys([*spoken, *short])]
