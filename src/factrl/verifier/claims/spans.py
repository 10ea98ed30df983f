"""Which words of a text say what a model says it says.

The extractor is where a text could smuggle a claim past the judge, or a model could add one of its own, so a
claim counts only when its words are in the text (reliability, C1 rule 4).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from factrl.types import Claim
from factrl.verifier.claims.marks import content_words
from factrl.verifier.claims.statements import Statement

_WORD = re.compile(r"\d[\w.,:%°'’–/-]*|[^\W\d_][\w.'’/&-]*|\S")
_PLACES = 100  # units in which a word is looked for; one that stands in more tells no place from another
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
        self._spans = [_first_to_last(unit.text) for unit in units]
        self._rarity = Counter(word for spans in self._spans for word in spans)
        self._where: defaultdict[str, list[int]] = defaultdict(list)
        for number, spans in enumerate(self._spans):
            for word in spans:
                if len(self._where[word]) < _PLACES:
                    self._where[word].append(number)
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
        best = self._best(known) if only is None else only
        spans = self._spans[best]
        shared = [spans[word] for word in words if word in spans]
        if not shared:
            return None
        unit = self._units[best]
        start, end = unit.span(min(start for start, _ in shared), max(end for _, end in shared))
        return Claim(fact, start, end, unit.sentence)

    def _best(self, words: frozenset[str]) -> int:
        """The number of the unit that shares most of the rare words."""
        shares: defaultdict[int, float] = defaultdict(float)
        for word in words:
            for number in self._where.get(word, ()):
                shares[number] += 1.0 / self._rarity[word]
        return max(shares, key=lambda number: (shares[number], -number), default=0)


def _first_to_last(text: str) -> dict[str, tuple[int, int]]:
    """For each content word where it first begins and where it last ends."""
    spans: dict[str, tuple[int, int]] = {}
    for match in _WORD.finditer(text):
        token = match[0].rstrip(".,:;'’–-/&") or match[0]
        start, end = match.start(), match.start() + len(token)
        for word in content_words(token):
            spans[word] = spans.get(word, (start,))[0], end
    return spans
