"""Where evidence comes from: anything with `search`.

`Index` is knowledge on disk, `Given` evidence that was handed in, and `Dense` puts what one of them finds
in a model's order.  `WebSearch` is somebody else's engine (`factrl.verifier.search.web`).
"""

from __future__ import annotations

import heapq
import math
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from factrl.errors import DataError, MissingExtra, ModelError, SetupError, first_line
from factrl.llm import models
from factrl.types import Passage
from factrl.verifier.search.index import BrokenIndex, Index
from factrl.verifier.search.sources import (
    documents,
    find_sources,
    leave_out,
    passages_of,
    title_key,
    title_keys,
    words,
)
from factrl.verifier.search.web import WebSearch, without_secrets

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BrokenIndex", "Dense", "Given", "Index", "Search", "WebSearch", "without_secrets"]

_MAX_QUERY = 4_000  # characters of a query that are read
_K1, _B = 1.2, 0.75  # as in the index on disk, and in Lucene
_RANKED = 200  # passages that a model puts in order; KnowRL's pages have some dozens
_KEPT = 20_000  # embeddings of passages, 60 MB with 768 numbers each
# What E5's models (arXiv:2212.03533) are trained to read, and do not say themselves.
_E5 = re.compile(r"(?:^|-)e5-(?!.*instruct)", re.I)
_E5_PROMPTS = {"query": "query: ", "document": "passage: "}
_COVERED = 0.5  # share of a claim's words that one passage must have before the claim counts as covered


class Search(Protocol):
    """Anything that finds passages for a claim; called from many threads, or awaited, at once."""

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage] | Awaitable[list[Passage]]:
        """At most `k` passages that bear on `query`, best first; an empty list when there are none.

        Args:
            topic: the title of the document that the claim is about, for searches that know titles.

        Raises:
            Unscored: `search_failed`; that nothing was found is not a failure.
        """
        ...


class Given:
    """Evidence that was handed in, as a `Search`: passages, or texts that become passages.

    >>> search = Given(["Lima is in Peru.", Passage("It is in Norway.", "Oslo")])
    >>> [passage.title for passage in search.search("Where is Oslo?", 1)]
    ['Oslo']
    """

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

        A file that cannot be read is named on the logger `factrl` and left out, unless nothing else is there.

        Raises:
            DataError: as `factrl.verifier.search.sources` says, or there is no text.
            MissingExtra: the only file is a page or a PDF, whose reader is not installed.
        """
        files = find_sources(paths)
        passages: list[Passage] = []
        problems: dict[Path, SetupError] = {}
        for file in files:
            try:
                whole = list(documents(file))  # what is too large is refused before any of it is cut
                found = [p for document in whole for p in passages_of(document)]
            except (DataError, MissingExtra) as error:
                problems[file] = error
                continue
            passages += found
            if not found:
                problems[file] = DataError(f"no text in {file}")
        leave_out(problems, passages)
        return cls(passages)

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
        held = [(scores.get(number, 0.0), -number) for number in numbers]
        found = ((self.passages[-number], score) for score, number in heapq.nlargest(k, held))
        return [Passage(one.text, one.title, one.source, one.id, score) for one, score in found]

    def scores(self, query: str) -> dict[int, float]:
        """The passages that share a word with the query, by number, with their scores.

        Robertson's weights with Lucene's idf: log(1 + (N - n + 0.5) / (n + 0.5)).
        """
        size = len(self._lengths)
        mean = sum(self._lengths) / size if size else 1.0
        scores: dict[int, float] = {}
        for word in dict.fromkeys(words(query[:_MAX_QUERY])):
            postings = self._postings.get(word, ())
            idf = math.log(1.0 + (size - len(postings) + 0.5) / (len(postings) + 0.5))
            for number, count in postings:
                norm = _K1 * (1.0 - _B + _B * self._lengths[number] / mean)
                scores[number] = scores.get(number, 0.0) + idf * count * (_K1 + 1.0) / (count + norm)
        return scores

    def covers(self, claim: str) -> bool:
        """Whether a passage here is about `claim`; if not, it deserves a search of its own.

        Numbers do not count: a claim with a wrong year is about what the passage with the right one says.
        """
        known = {word for word in words(claim[:_MAX_QUERY]) if not word.isdecimal()}
        held = Counter(number for word in known for number, _ in self._postings.get(word, ()))
        return max(held.values(), default=0) >= _COVERED * len(known)


class Dense:
    """A search whose passages are ranked by the inner product of their embedding with the query's.

    Another search finds them, for KnowRL those of a question's pages: those of a title, all of them, or
    where there is no title those that share words with the query.  So nothing is embedded beforehand and
    there is no second index; what shares no word with a query without a title is not found.

    Queries and passages get the prompts that the model's own files name, and E5's, known by its name
    (`intfloat/e5-base-v2`), get "query: " and "passage: ".

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
            self._model: Any = SentenceTransformer(
                str(models.get(model)),
                local_files_only=True,
                prompts=_E5_PROMPTS if _E5.search(Path(model).name) else None,
            )
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"{model}: no model of sentence-transformers: {first_line(error)}") from error
        self._search, self._lock = search, threading.Lock()
        self._known: dict[str, np.ndarray] = {}

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """The `k` passages that the model puts first; `Passage.score` is the inner product."""
        hits = self._search.search(query, _RANKED, topic=topic)
        if not hits:
            return []
        with self._lock:  # one forward pass at a time
            near = self._of([one.text for one in hits]) @ self._encode([query], self._model.encode_query)[0]
            ranked = zip(hits, near, strict=True)
        best = sorted(ranked, key=lambda pair: -pair[1])[:k]
        return [replace(passage, score=float(score)) for passage, score in best]

    def _of(self, texts: Sequence[str]) -> np.ndarray:
        """(N, D): the embeddings of passages, which are asked for again with every claim of a question."""
        import numpy as np

        if len(self._known) > _KEPT:
            self._known.clear()
        if new := [text for text in dict.fromkeys(texts) if text not in self._known]:
            self._known.update(zip(new, self._encode(new, self._model.encode_document), strict=True))
        return np.stack([self._known[text] for text in texts])

    def _encode(self, texts: Sequence[str], encode: Callable[..., np.ndarray]) -> np.ndarray:
        return encode(list(texts), show_progress_bar=False, convert_to_numpy=True)
