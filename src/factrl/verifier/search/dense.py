"""Passages in the order of a sentence-transformers model, as KnowRL ranks those of a question's pages.

Another search finds the passages: those of a title, all of them, or where there is no title those that share
words with the query.  The model puts them in order, so nothing is embedded beforehand and there is no second
index; what shares no word with a query without a title is not found.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.errors import MissingExtra, ModelError, first_line
from factrl.llm import models
from factrl.types import Passage

if TYPE_CHECKING:
    import numpy as np

    from factrl.verifier.search import Given, Index

FOUND = 200  # passages that are put in order; KnowRL's pages have some dozens
_KEPT = 20_000  # embeddings of passages, 60 MB with 768 numbers each


class Dense:
    """A search whose passages are ranked by the inner product of their embedding with the query's.

    Args:
        search: finds the passages.
        model: of sentence-transformers, a hub name (`org/model`, `org/model@commit`) or a folder; code of its
            own is not run.

    Raises:
        ModelError: not there, or no such model.
        MissingExtra: sentence-transformers is not installed.
    """

    def __init__(self, search: Given | Index, model: str | Path) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise MissingExtra("sentence-transformers", "dense") from error
        try:
            self._model: Any = SentenceTransformer(str(models.get(model)), local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"{model}: no model of sentence-transformers: {first_line(error)}") from error
        self._search, self._lock = search, threading.Lock()
        self._known: dict[str, np.ndarray] = {}

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """The `k` passages that the model puts first; `Passage.score` is the inner product."""
        found = self._search.search(query, FOUND, topic=topic)
        if not found:
            return []
        with self._lock:  # one forward pass at a time
            ranked = zip(found, self._of([one.text for one in found]) @ self._encode([query])[0], strict=True)
        best = sorted(ranked, key=lambda pair: -pair[1])[:k]
        return [replace(passage, score=float(score)) for passage, score in best]

    def _of(self, texts: Sequence[str]) -> np.ndarray:
        """(N, D): the embeddings of passages, which are asked for again with every claim of a question."""
        import numpy as np

        if len(self._known) > _KEPT:
            self._known.clear()
        if new := [text for text in dict.fromkeys(texts) if text not in self._known]:
            self._known.update(zip(new, self._encode(new), strict=True))
        return np.stack([self._known[text] for text in texts])

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._model.encode(list(texts), show_progress_bar=False, convert_to_numpy=True)
