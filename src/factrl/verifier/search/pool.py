"""The evidence that one group of rollouts shares.

Eight answers to one question say much the same, so what was found for some claims serves the others: with a
pool a training step needs about one search per sentence of one answer instead of one per claim of all
(peers.md 2.3: 129 instead of 4,088).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from factrl.types import Passage
from factrl.verifier.search.given import Ranking
from factrl.verifier.search.words import query_words

COVERED = 0.5
"""Share of a claim's words that one passage must have before the claim counts as covered."""


class EvidencePool:
    """What several searches found, each passage once; any thread may add and ask.

    Args:
        results: one list of passages per search.
    """

    def __init__(self, results: Iterable[Sequence[Passage]] = ()) -> None:
        self._lock = threading.Lock()
        self._passages: dict[str, Passage] = {}
        self._order: list[Passage] = []
        self._ranking = Ranking()
        for found in results:
            self.add(found)

    def __len__(self) -> int:
        """Passages."""
        return len(self._order)

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

    def coverage(self, claim: str) -> float:
        """The largest share of the claim's words that one passage has: 0 nothing, 1 all of them.

        Numbers do not count: a claim with a wrong year is about what the passage with the right one says.
        A claim without words has nothing to be covered: 1.
        """
        known = {word for word in query_words(claim[:4_000]) if not word.isdecimal()}
        with self._lock:
            return self._ranking.shared(known) / len(known) if known else 1.0

    def covers(self, claim: str) -> bool:
        """Whether a passage here is about `claim`; if not, it deserves a search of its own."""
        return self.coverage(claim) >= COVERED
