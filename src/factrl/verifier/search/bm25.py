"""Passages on disk, found by their words (BM25) or their title: a thin layer over tantivy.

tantivy was chosen by measurement (docs/history.md): it skips what cannot reach the best k, so that a claim is
looked up among a million passages in about a millisecond where SQLite's FTS5 ranks every match.  It keeps an
inverted index in files that are never changed once written, and a commit is the replacement of one small
file, so a killed writer loses only what it had not committed.  Queries are built of terms, never parsed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from factrl.errors import SetupError
from factrl.types import Passage
from factrl.verifier.search.words import title_key, words

FOLDER = "words"
_HEAP = 64_000_000  # bytes that the writer may hold before it writes a segment
_MAX_QUERY = 4_000  # characters of a query that are read; a claim has 100
_MAX_TERMS = 128


class Damaged(Exception):
    """The files cannot be read, or are not what was written; `Index` makes a `BrokenIndex` of it."""


class Found(NamedTuple):
    """A passage of the index: its number, counted from 0, and what the engine knows of its rank."""

    number: int
    passage: Passage


class WordIndex:
    """The engine's files in one folder; any number of threads may search.

    Args:
        folder: of the index; the engine's own folder is inside.
        create: make it, empty, where there is none.

    Raises:
        Damaged: there is none, or it cannot be read.
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        import tantivy

        self._api: Any = tantivy
        path = folder / FOLDER
        with _guarded():
            if create:
                path.mkdir(exist_ok=True)
                self._index = tantivy.Index(_schema(tantivy), str(path))
            else:
                self._index = tantivy.Index.open(str(path))
            self._index.config_reader("manual")  # else a thread per index watches the folder
            self._schema = self._index.schema
            self._searcher: Any = self._index.searcher()

    def __len__(self) -> int:
        return self._searcher.num_docs

    def find(self, query: str, count: int, titles: Sequence[str] = ()) -> list[Found]:
        """The passages that share words with `query`, best first by BM25 (k1 1.2, b 0.75).

        Args:
            titles: keys of documents; rank only their passages, and all of them.

        Raises:
            Damaged: the files cannot be read.
        """
        query_of, should = self._api.Query, self._api.Occur.Should
        wanted = list(dict.fromkeys(words(query[:_MAX_QUERY])))[:_MAX_TERMS]
        parts = [(should, query_of.term_query(self._schema, "words", word, "freq")) for word in wanted]
        if titles:
            scope = query_of.const_score_query(self._titled(titles), 0.0)
            parts.append((self._api.Occur.Must, scope))
        found = self._fetch(query_of.boolean_query(parts), count) if parts else ()
        # Of equal scores the engine takes the older file first, and which file that is depends on the build.
        return sorted(found, key=lambda each: (-(each.passage.score or 0.0), each.number))

    def titled(self, titles: Sequence[str]) -> list[Found]:
        """Every passage of the documents with these keys, in the order in which they were added."""
        with _guarded():
            count = self._searcher.search(self._titled(titles), 1).count if titles else 0
        found = self._fetch(self._titled(titles), count) if count else ()
        return sorted(found, key=lambda each: each.number)

    def keys(self, title: str) -> list[str]:
        """The key of the documents with this title: those that spell it so, or else those that nearly do."""
        if not title.strip():
            return []
        for key in (title_key(title, exact=True), title_key(title)):
            with _guarded():
                if self._searcher.search(self._titled([key]), 1).count:
                    return [key]
        return []

    def numbered(self, numbers: Sequence[int]) -> dict[int, Passage]:
        """Passages by number."""
        query_of, should = self._api.Query, self._api.Occur.Should
        terms = [(should, query_of.term_query(self._schema, "number", number)) for number in numbers]
        return dict(self._fetch(query_of.boolean_query(terms), len(numbers))) if numbers else {}

    def writer(self) -> Writer:
        """The one writer of this index.

        Raises:
            SetupError: another process has it.
        """
        return Writer(self._api, self._index)

    def reload(self) -> None:
        """See what was committed since."""
        with _guarded():
            self._index.reload()
            self._searcher = self._index.searcher()

    def _titled(self, titles: Sequence[str]) -> Any:
        query_of, should = self._api.Query, self._api.Occur.Should
        keys = [query_of.term_query(self._schema, "title", key, "basic") for key in titles]
        return query_of.boolean_query([(should, key) for key in keys])

    def _fetch(self, query: Any, count: int) -> Iterator[Found]:
        with _guarded():
            hits = self._searcher.search(query, count, count=False).hits
            records = [(score, self._searcher.doc(address)["record"][0]) for score, address in hits]
        for score, record in records:
            yield _unpack(bytes(record), score)


class Writer:
    """Adds passages; nothing is seen, or survives this process, before `commit`."""

    def __init__(self, api: Any, index: Any) -> None:
        self._document = api.Document
        try:
            self._writer = index.writer(heap_size=_HEAP, num_threads=1)
        except ValueError as error:
            if "lock" in str(error).lower():
                raise SetupError("another process is adding to this index; wait until it is done") from None
            raise Damaged(str(error)) from error

    def add(self, number: int, passage: Passage) -> None:
        """Add one passage under the next number."""
        known = " ".join(words(f"{passage.title} {passage.text}"))
        document = self._document(number=number, words=known, record=_pack(number, passage))
        if passage.title:
            document.add_text("title", title_key(passage.title, exact=True))
            document.add_text("title", title_key(passage.title))
        self._writer.add_document(document)

    def commit(self) -> None:
        """Make everything added so far durable and visible, at once or not at all."""
        try:
            self._writer.commit()
        except (ValueError, OSError) as error:
            raise SetupError(f"cannot write: {error}; make room, and run the same command again") from error

    def close(self) -> None:
        """Finish merging and let others write; what was not committed is dropped."""
        with _guarded():
            self._writer.rollback()
            self._writer.wait_merging_threads()


def _schema(api: Any) -> Any:
    schema = api.SchemaBuilder()
    schema.add_integer_field("number", indexed=True)
    schema.add_text_field("title", tokenizer_name="raw", index_option="basic")
    schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    schema.add_bytes_field("record", stored=True)
    return schema.build()


def _pack(number: int, passage: Passage) -> bytes:
    """A passage with a checksum: the engine notices a torn file, but not a flipped bit in one."""
    told = [number, passage.title, passage.text, passage.source, passage.id]
    content = json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return zlib.crc32(content).to_bytes(4, "big") + content


def _unpack(record: bytes, score: float) -> Found:
    content = record[4:]
    if zlib.crc32(content).to_bytes(4, "big") != record[:4]:
        raise Damaged("a passage is not what was written")
    number, title, text, source, name = json.loads(content.decode("utf-8", "surrogatepass"))
    return Found(number, Passage(text, title, source, f"{number}:{name}" if name else str(number), score))


@contextmanager
def _guarded() -> Iterator[None]:
    """Whatever the engine says about its files, as `Damaged`."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise Damaged(str(error)) from error
    except BaseException as error:
        # A panic in the engine, which no exception class of Python's own describes.
        if type(error).__name__ == "PanicException":
            raise Damaged(str(error)) from error
        raise
