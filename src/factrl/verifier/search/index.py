"""Knowledge on disk: passages found by their words, by their meaning, or by the title of their document.

    index = Index.build("kb", ["wiki.jsonl.gz"])
    index.search("Marie Curie was born in Warsaw.", k=5)
    index.titled("Marie Curie")

One folder, one machine.  Beyond that, any object with `search` takes its place: docs/history.md says where
the limits are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

from factrl.errors import ConfigError, SetupError, nearest
from factrl.types import Passage
from factrl.verifier.search.bm25 import Damaged, WordIndex
from factrl.verifier.search.build import Manifest, extend, load_manifest, prepare
from factrl.verifier.search.dense import Embedder, Vectors, encode
from factrl.verifier.search.sources import find_sources

How = Literal["hybrid", "bm25", "dense"]
DEPTH = 50
"""Passages that each first stage hands on to the fusion, and any search to the second look."""


FUSION_K = 10
"""The constant of reciprocal rank fusion.  Cormack, Clarke and Büttcher (SIGIR 2009) use 60, which lets an
item that both searches rank low pass the best one of each: 4 points of hit@5 less on our passages."""


class Index:
    """An index in a folder; any number of threads and processes may search it, while one adds.

    Use `Index.build` or `Index.open`.

    Attributes:
        path: the folder.
        dense: whether it has vectors.
    """

    def __init__(
        self, path: Path, *, embedder: Embedder | None = None, reranker: Embedder | None = None
    ) -> None:
        self.path = path
        self._embedder = embedder
        self._reranker = reranker
        self._open()

    @classmethod
    def build(
        cls, path: str | Path, sources: Iterable[str | Path], *, embedder: Embedder | None = None
    ) -> Index:
        """Build an index of files and folders, or go on with a build that was interrupted.

        Args:
            path: a folder that is empty, is not there yet, or holds an unfinished build of these sources.
            sources: what `factrl.verifier.search.sources` reads; documents are cut into passages of 120
            words. embedder: makes the index dense as well.

        Raises:
            DataError: a source is missing, unreadable or without text.
            SetupError: the folder holds something else, or another process writes to it.
        """
        folder = Path(path).expanduser()
        found = find_sources(sources, outside=folder)
        with _undamaged(folder):
            if prepare(folder, found):
                extend(folder, found, embedder)
        return cls.open(folder, embedder=embedder)

    @classmethod
    def open(
        cls, path: str | Path, *, embedder: Embedder | None = None, reranker: Embedder | None = None
    ) -> Index:
        """Open an index that was built.

        Args:
            embedder: what it was built with, for searches by meaning as well.  Without it a dense index is
                searched by words alone, which found more for the questions of docs/history.md.
            reranker: looks at the best 50 of any search again.

        Raises:
            SetupError: there is no index, or its build was not finished.
            BrokenIndex: it is damaged, or of another version; the message says how to build it again.
            ConfigError: another embedder than it was built with.
        """
        return cls(Path(path).expanduser(), embedder=embedder, reranker=reranker)

    def _open(self) -> None:
        manifest = load_manifest(self.path)
        if not manifest.built:
            raise SetupError(
                f"the index in {self.path} is unfinished; "
                "wait for factrl index, or run the same command again if it was interrupted"
            )
        self.dense = manifest.vectors is not None
        with _undamaged(self.path):
            self._words = WordIndex(self.path)
            manifest.state(self.path, len(self._words))
            self._vectors = self._load_vectors(manifest)

    def _load_vectors(self, manifest: Manifest) -> Vectors | None:
        if self._embedder is None:
            return None
        has = manifest.vectors or {"by": "no embedder"}
        if has["by"] != self._embedder.identity:
            raise ConfigError(
                f"the index in {self.path} has vectors of {has['by']}, not of {self._embedder.identity}"
            )
        return Vectors(self.path, len(self._words), has["dimension"])

    def __len__(self) -> int:
        """Passages."""
        return len(self._words)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self):,} passages{', dense' if self.dense else ''})"

    def add(self, sources: Iterable[str | Path]) -> None:
        """Add files and folders; those that are in the index already are left out.

        Searches that run meanwhile see the index as it was.

        Raises:
            DataError: a source is missing, unreadable, or has changed since it was added.
            ConfigError: the index is dense, and was opened without its embedder.
            SetupError: another process writes to it.
        """
        found = find_sources(sources, outside=self.path)
        with _undamaged(self.path):
            extend(self.path, found, self._embedder)
        self._open()

    def search(self, query: str, k: int = 5, *, topic: str = "", how: How | None = None) -> list[Passage]:
        """The passages that bear most on `query`, best first.

        Args:
            query: a claim or a question, in its own words; nothing in it is an operator.
            k: how many at most.
            topic: rank only the passages of this document, or of these, parted by semicolons; none when
                there is no such document.
            how: `bm25`, `dense`, or `hybrid`, which fuses both by rank and is the default where it can be.

        Raises:
            ConfigError: a search that this index cannot do.
            BrokenIndex: the files are damaged.
        """
        how = self._checked(how, k)
        depth = max(k, DEPTH) if how == "hybrid" or self._reranker else k
        with _undamaged(self.path):
            scope = self._keys(topic)
            if topic and not scope:
                return []
            found = self._ranked(query, depth, scope, how)
        return self._looked_at_again(query, found)[:k]

    def titled(self, title: str) -> list[Passage]:
        """All passages of the document with this title, in their order; none when there is no such document.

        KnowRL's rows name several documents in one title, parted by semicolons.  Case and underscores make no
        difference, unless several titles differ only there and one of them is exactly this.
        """
        with _undamaged(self.path):
            found = self._words.titled(self._keys(title))
        return [replace(each.passage, score=None) for each in found]

    def _keys(self, topic: str) -> list[str]:
        """The documents that a topic names: the one with this very title, or else those of its parts."""
        whole = self._words.keys(topic)
        if whole or ";" not in topic:
            return whole
        return [key for part in topic.split(";") for key in self._words.keys(part)]

    def _ranked(self, query: str, count: int, scope: Sequence[str], how: How) -> list[Passage]:
        by_words = self._words.find(query, count, scope) if how != "dense" else []
        if how == "bm25" or self._vectors is None or self._embedder is None:
            return [each.passage for each in by_words]
        among = [each.number for each in self._words.titled(scope)] if scope else None
        by_meaning = self._vectors.nearest(encode(self._embedder, [query])[0], count, among)
        rankings = [by_meaning] if how == "dense" else [[each.number for each in by_words], by_meaning]
        ranked = fuse(rankings)[:count]
        known = dict(by_words)
        known |= self._words.numbered([number for number, _ in ranked if number not in known])
        return [replace(known[number], score=score) for number, score in ranked]

    def _looked_at_again(self, query: str, found: list[Passage]) -> list[Passage]:
        if self._reranker is None or not found:
            return found
        vectors = encode(self._reranker, [query, *(passage.text for passage in found)])
        scored = [replace(p, score=float(s)) for p, s in zip(found, vectors[1:] @ vectors[0], strict=True)]
        return sorted(scored, key=lambda passage: -(passage.score or 0.0))

    def _checked(self, how: How | None, k: int) -> How:
        if k < 1:
            raise ConfigError(f"k must be at least 1, not {k!r}")
        if how is None:
            return "bm25" if self._vectors is None else "hybrid"
        if how not in get_args(How):
            raise ConfigError(f"how={how!r} is no way to search{nearest(how, get_args(How))}")
        if how != "bm25" and self._vectors is None:
            missing = "it was opened without an embedder" if self.dense else "it was built without --dense"
            raise ConfigError(f"the index in {self.path} cannot be searched with how={how!r}: {missing}")
        return how


def fuse(rankings: Iterable[Sequence[int]]) -> list[tuple[int, float]]:
    """Reciprocal rank fusion: an item earns 1 / (FUSION_K + rank) from each ranking that has it.

    Scores of different searches cannot be compared, ranks can.

    Args:
        rankings: items, best first; ranks start at 1.

    Returns:
        Items with their sums, best first; of equal ones the one that was met first.
    """
    sums: dict[int, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            sums[item] = sums.get(item, 0.0) + 1.0 / (FUSION_K + rank)
    return sorted(sums.items(), key=lambda entry: -entry[1])


@contextmanager
def _undamaged(folder: Path) -> Iterator[None]:
    """What the engine or the vectors say about their files, as an error that says how to build them again."""
    try:
        yield
    except Damaged as error:
        told = " ".join(str(error).split())[:200]
        raise load_manifest(folder).broken(folder, f"is damaged ({told})") from error
