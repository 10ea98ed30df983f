"""Where evidence comes from: anything with `search`.

`Index` is knowledge on disk, `Given` evidence that was handed in, `WebSearch` somebody else's engine, and
`EvidencePool` what one group of rollouts has found so far.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from factrl.types import Passage
from factrl.verifier.search.given import EvidencePool, Given
from factrl.verifier.search.index import BrokenIndex, Index
from factrl.verifier.search.sources import read_passages
from factrl.verifier.search.web import WebSearch

__all__ = ["BrokenIndex", "EvidencePool", "Given", "Index", "Search", "WebSearch", "read_passages"]


class Search(Protocol):
    """Anything that finds passages for a claim; called from many threads, or awaited, at once."""

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage] | Awaitable[list[Passage]]:
        """At most `k` passages that bear on `query`, best first; an empty list when there are none.

        Args:
            query: a claim or a question, in its own words.
            topic: the title of the document that the claim is about, for searches that know titles.

        Raises:
            Unscored: `search_failed`; that nothing was found is not a failure.
        """
        ...
