"""Evidence in memory, ranked by the words it shares with a claim: what was handed in, or a group shares.

BM25 in plain Python over at most some thousand passages; anything larger belongs into an `Index`.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from factrl.types import Passage
from factrl.verifier.search.sources import read_passages
from factrl.verifier.search.words import query_words, title_key, words

_K1, _B = 1.2, 0.75  # as in the index on disk, and in Lucene
_MAX_QUERY = 4_000  # characters of a query that are read
COVERED = 0.5
"""Share of a claim's words that one passage must have before the claim counts as covered."""


class Ranking:
    """Texts ranked by BM25; grows, and takes time only in proportion to the words that a query shares.

    Robertson's weights with Lucene's idf: log(1 + (N - n + 0.5) / (n + 0.5)).
    """

    def __init__(self) -> None:
        self._postings: dict[str, list[tuple[int, int]]] = {}
        self._lengths: list[int] = []
        self._total = 0
        self._weights: dict[
            str, list[tuple[int, float]]
        ] = {}  # of words that were asked for, since the last add

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, text: str) -> None:
        """One more text, under the next number."""
        known = words(text)
        for word, count in Counter(known).items():
            self._postings.setdefault(word, []).append((len(self._lengths), count))
        self._lengths.append(len(known))
        self._total += len(known)
        self._weights.clear()

    def scores(self, query: str) -> dict[int, float]:
        """The texts that share a word with the query, by number, with their scores."""
        found: dict[int, float] = {}
        for word in set(query_words(query[:_MAX_QUERY])):
            if word not in self._weights and word in self._postings:
                self._weights[word] = self._weigh(self._postings[word])
            for number, weight in self._weights.get(word, ()):
                found[number] = found.get(number, 0.0) + weight
        return found

    def _weigh(self, postings: Sequence[tuple[int, int]]) -> list[tuple[int, float]]:
        """What a word adds to the score of each text that has it."""
        size = len(self._lengths)
        mean = self._total / size if size else 1.0
        idf = math.log(1.0 + (size - len(postings) + 0.5) / (len(postings) + 0.5))
        norms = ((n, c, _K1 * (1.0 - _B + _B * self._lengths[n] / mean)) for n, c in postings)
        return [(number, idf * count * (_K1 + 1.0) / (count + norm)) for number, count, norm in norms]

    def shared(self, known: Iterable[str]) -> int:
        """How many of these words the text with the most of them has."""
        counts: Counter[int] = Counter()
        for word in known:
            counts.update(number for number, _ in self._postings.get(word, ()))
        return max(counts.values(), default=0)


class Given:
    """Evidence that was handed in, as a `Search`.

    Args:
        evidence: passages, or texts that become passages as they are.
    """

    def __init__(self, evidence: Iterable[Passage | str]) -> None:
        self.passages = [Passage(each) if isinstance(each, str) else each for each in evidence]
        self._ranking = Ranking()
        for passage in self.passages:
            self._ranking.add(f"{passage.title} {passage.text}")

    @classmethod
    def read(cls, paths: Iterable[str | Path]) -> Given:
        """The evidence in files or folders, cut into passages; formats as in
        `factrl.verifier.search.sources`.

        Raises:
            DataError: a file is missing, unreadable or of no known format, or none of them holds any text.
        """
        return cls(read_passages(paths))

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """The `k` passages that bear most on `query`, best first; also those that share no word with it.

        What was handed in is meant to be looked at, so fewer than `k` come only when there are fewer.

        Args:
            topic: narrows the search to the passages of this title where there are any.
        """
        scores = self._ranking.scores(query)
        numbers: Sequence[int] = range(len(self.passages))
        if topic:
            keys = {title_key(part) for part in (topic, *topic.split(";")) if part.strip()}
            titled = [number for number in numbers if title_key(self.passages[number].title) in keys]
            numbers = titled or numbers
        best = sorted(numbers, key=lambda number: -scores.get(number, 0.0))[:k]
        return [replace(self.passages[number], score=scores.get(number, 0.0)) for number in best]


class EvidencePool:
    """What several searches found for one group of rollouts, each passage once; any thread may add and ask.

    Eight answers to one question say much the same: with a pool a training step needs about one search per
    sentence of one answer instead of one per claim of all (peers.md 2.3: 129 instead of 4,088).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passages: dict[str, Passage] = {}
        self._order: list[Passage] = []
        self._ranking = Ranking()

    def add(self, found: Iterable[Passage]) -> None:
        """Add what a search found; a passage with the text of an earlier one is that passage."""
        with self._lock:
            for passage in found:
                key = " ".join(passage.text.split())
                if key and key not in self._passages:
                    self._passages[key] = passage
                    self._order.append(passage)
                    self._ranking.add(f"{passage.title} {passage.text}")

    def top(self, claim: str, k: int = 5) -> list[Passage]:
        """The passages that share most with `claim`, best first; none of those that share no word with it."""
        with self._lock:
            scores = self._ranking.scores(claim)
            best = sorted(scores, key=lambda number: (-scores[number], number))[:k]
            return [self._order[number] for number in best]

    def covers(self, claim: str) -> bool:
        """Whether a passage here is about `claim`; if not, it deserves a search of its own.

        Numbers do not count: a claim with a wrong year is about what the passage with the right one says.
        """
        known = {word for word in query_words(claim[:_MAX_QUERY]) if not word.isdecimal()}
        with self._lock:
            return self._ranking.shared(known) >= COVERED * len(known)
