"""Which words of a text say what a model says it says.

The extractor is where a text could smuggle a claim past the judge, or a model could add one of its own, so a
claim counts only when its words are in the text (reliability, C1 rule 4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from factrl.extract.marks import content_words
from factrl.extract.statements import Statement
from factrl.extract.tokens import tokens
from factrl.types import Claim

_SHARE = 0.5
"""Share of the content words of a claim that must stand in the text or in what was asked."""


class Places:
    """The content words of a text and where they stand.

    Args:
        units: the statements of the text.
        given: what else a claim may take its words from: the question, the topic.
    """

    def __init__(self, units: Sequence[Statement], given: str = "") -> None:
        self._units = units
        self._words: list[list[tuple[str, int, int]]] = [
            [
                (word, token.start, token.end)
                for token in tokens(unit.text)
                for word in content_words(token.text)
            ]
            for unit in units
        ]
        self._sets = [{word for word, _, _ in words} for words in self._words]
        self._rarity = Counter(word for words in self._sets for word in words)
        self._given = content_words(given)

    def claim(self, fact: str, only: int | None = None) -> Claim | None:
        """The claim with the stretch that shares most of its rare words; None when the text does not say it.

        The text must hold at least one of its content words and every number; half of all content words must
        stand in the text or in what was given.

        Args:
            fact: the claim's words.
            only: the number of the unit that it must come from.
        """
        words = content_words(fact)
        known = words & (self._rarity.keys() | self._given)
        if not words or len(known) < _SHARE * len(words):
            return None
        if any(word not in known for word in words if word[0].isdigit()):
            return None
        numbers = range(len(self._units)) if only is None else (only,)
        best = max(numbers, key=lambda number: (self._score(words, number), -number))
        shared = [place for place in self._words[best] if place[0] in words]
        if not shared:
            return None
        unit = self._units[best]
        start, end = unit.span(min(place[1] for place in shared), max(place[2] for place in shared))
        return Claim(fact, start, end, unit.sentence)

    def _score(self, words: frozenset[str], number: int) -> float:
        return sum(1.0 / self._rarity[word] for word in words & self._sets[number])
