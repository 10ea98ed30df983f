"""Evidence in memory, ranked by the words it shares with a claim, and what a word is to a search.

BM25 in plain Python over at most some thousand passages; anything larger belongs into an `Index`, which takes
its words from here.  They are folded and know no grammar and no languages, except that Chinese and Japanese,
which have no spaces, become overlapping pairs of characters.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from factrl.errors import DataError
from factrl.types import Passage
from factrl.verifier.search.sources import documents, find_sources, passages_of

STOP_WORDS = frozenset(
    """
    a about after all also an and any are as at be been before being but by can could did do does during for
    from had has have he her hers him his how i if in into is it its itself me more most my no nor not of on
    or other our over own s same she should so some such t than that the their them then there these they this
    those through to too under until up was we were what when where which while who whom whose why will with
    would you your
    """.split()  # noqa: SIM905  (a hundred quoted words would be no clearer)
)
"""English words that say nothing about what a text is about."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]+")
_MAX_TITLE = 200  # characters of a title that count
_MAX_WORD = 64  # characters; what is longer is no word, and would fill an index with keys
_K1, _B = 1.2, 0.75  # as in the index on disk, and in Lucene
_MAX_QUERY = 4_000  # characters of a query that are read
_COVERED = 0.5  # share of a claim's words that one passage must have before the claim counts as covered


class _Folding(dict[int, str]):
    """Character -> its lower-case letters without marks, worked out when first met.

    One character at a time: normalising a whole text takes quadratic time on a long run of marks.
    """

    def __missing__(self, code: int) -> str:
        parts = unicodedata.normalize("NFKD", chr(code).lower())
        self[code] = folded = "".join(char for char in parts if not unicodedata.combining(char))
        return folded


_FOLDING = _Folding()


def words(text: str) -> list[str]:
    """The words of a text that a search can go by, in order, with repeats.

    >>> words("Où est l'École? She was born in 1867.")
    ['ou', 'est', 'l', 'ecole', 'born', '1867']
    """
    text = text.lower() if text.isascii() else _UNSPACED.sub(_pairs, text.translate(_FOLDING))
    return [word[:_MAX_WORD] for word in _WORD.findall(text) if word not in STOP_WORDS]


def _pairs(match: re.Match[str]) -> str:
    run = match[0]
    pairs = (run[at : at + 2] for at in range(len(run) - 1)) if len(run) > 1 else (run,)
    return f" {' '.join(pairs)} "


def title_key(title: str) -> str:
    """A title as it is looked up: case, underscores and doubled spaces make no difference.

    >>> title_key("Marie_Curie")
    'marie curie'
    """
    key = " ".join(title.replace("_", " ").split())[:_MAX_TITLE].casefold()
    return key.encode("utf-8", "replace").decode()


def title_keys(topic: str) -> set[str]:
    """The keys of what a topic may name: one title, or several parted by semicolons, as in KnowRL's rows."""
    return {title_key(part) for part in (topic, *topic.split(";")) if part.strip()}


class Given:
    """Evidence that was handed in, as a `Search`: passages, or texts that become passages."""

    def __init__(self, evidence: Iterable[Passage | str]) -> None:
        self.passages = [Passage(each) if isinstance(each, str) else each for each in evidence]
        texts = [words(f"{passage.title} {passage.text}") for passage in self.passages]
        self._lengths = [len(known) for known in texts]
        self._postings: dict[str, list[tuple[int, int]]] = {}
        for number, known in enumerate(texts):
            for word, count in Counter(known).items():
                self._postings.setdefault(word, []).append((number, count))

    @classmethod
    def read(cls, paths: Iterable[str | Path]) -> Given:
        """The evidence in files or folders, cut into passages.

        Raises:
            DataError: as `factrl.verifier.search.sources` says, or there is no text.
        """
        files = find_sources(paths)
        found = [p for file in files for document in documents(file) for p in passages_of(document)]
        if not found:
            raise DataError(f"no text in {', '.join(map(str, files))}")
        return cls(found)

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """The `k` passages that bear most on `query`, best first; also those that share no word with it.

        What was handed in is meant to be looked at, so fewer than `k` come only when there are fewer.  Where
        there are passages of the title `topic`, only those are ranked.
        """
        scores = self.scores(query)
        numbers: Sequence[int] = range(len(self.passages))
        if topic:
            keys = title_keys(topic)
            numbers = [one for one in numbers if title_key(self.passages[one].title) in keys] or numbers
        best = sorted(numbers, key=lambda number: -scores.get(number, 0.0))[:k]
        return [replace(self.passages[number], score=scores.get(number, 0.0)) for number in best]

    def scores(self, query: str) -> dict[int, float]:
        """The passages that share a word with the query, by number, with their scores.

        Robertson's weights with Lucene's idf: log(1 + (N - n + 0.5) / (n + 0.5)).
        """
        size = len(self._lengths)
        mean = sum(self._lengths) / size if size else 1.0
        found: dict[int, float] = {}
        for word in dict.fromkeys(words(query[:_MAX_QUERY])):
            postings = self._postings.get(word, ())
            idf = math.log(1.0 + (size - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings:
                norm = _K1 * (1.0 - _B + _B * self._lengths[number] / mean)
                found[number] = found.get(number, 0.0) + idf * count * (_K1 + 1.0) / (count + norm)
        return found

    def covers(self, claim: str) -> bool:
        """Whether a passage here is about `claim`; if not, it deserves a search of its own.

        Numbers do not count: a claim with a wrong year is about what the passage with the right one says.
        """
        known = {word for word in words(claim[:_MAX_QUERY]) if not word.isdecimal()}
        held = Counter(number for word in known for number, _ in self._postings.get(word, ()))
        return max(held.values(), default=0) >= _COVERED * len(known)
