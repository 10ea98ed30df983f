"""Knowledge on disk: passages found by their words (BM25) or by the title of their document.

    index = Index.build("kb", ["wiki.jsonl.gz"])
    index.search("Marie Curie was born in Warsaw.", k=5)
    index.search("born in Warsaw", topic="Marie Curie")

A thin layer over tantivy, chosen by measurement (docs/history.md): a claim is looked up among a million
passages in about a millisecond, and a commit replaces one small file.  Queries are built of terms, never
parsed.

Each file is one commit.  `index.json` lists the files with the number of passages after each, and is written
before the commit; the number of passages in the engine says how many of the files came true.  So a build that
was killed goes on at the same file when the same command is run again, and nothing is indexed twice or left
out.  One folder, one machine; beyond that, any object with `search` takes its place.
"""

from __future__ import annotations

import json
import os
import shlex
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import tantivy
from tantivy import Occur, Query

from factrl.errors import ConfigError, DataError, SetupError
from factrl.runs.progress import Progress
from factrl.runs.whole_file import whole_file
from factrl.types import Passage
from factrl.verifier.search.sources import Source, find_sources, passages_of
from factrl.verifier.search.words import title_key, words

FORMAT = 2
NAME = "index.json"
ENGINE = "words"
_HEAP = 64_000_000  # bytes that the writer may hold before it writes a segment
_MAX_QUERY = 4_000  # characters of a query that are read; a claim has 100
_MAX_TERMS = 128


class BrokenIndex(SetupError, ValueError):
    """An index that is damaged, or was written by another version; it has to be built again."""


class Reading(NamedTuple):
    """A file that was read: where it was, the fingerprint of its content, and the passages after it."""

    path: str
    fingerprint: str
    passages: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `index.json`.

    Attributes:
        sources: the files in the order in which they were read; the commit of the last may not have happened.
        built: whether all files of the first build were read; until then the index is not opened.
    """

    sources: tuple[Reading, ...] = ()
    built: bool = False

    def kept(self, folder: Path, passages: int) -> tuple[Reading, ...]:
        """The files whose passages are in an engine with so many passages.

        Raises:
            BrokenIndex: no commit left that number there.
        """
        known = tuple(reading for reading in self.sources if reading.passages <= passages)
        if (known[-1].passages if known else 0) != passages or (self.built and not known):
            expected = self.sources[-1].passages if self.sources else 0
            problem = f"holds {passages:,} passages instead of {expected:,}"
            raise _broken(folder, problem, self.sources)
        return known

    def save(self, folder: Path) -> None:
        """Write it so that a reader, or the next process, sees the old or the new one, never a part."""
        with whole_file(folder / NAME) as unfinished, unfinished.open("w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, **asdict(self)}, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())


def load_manifest(folder: Path) -> Manifest:
    """The manifest of an index.

    Raises:
        SetupError: there is no index in this folder.
        BrokenIndex: what is there cannot be read by this version.
    """
    path = folder / NAME
    if not path.is_file():
        raise SetupError(f"there is no index in {folder}; build it with: factrl index FILES --out {folder}")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        written = document["format"]
        if written == FORMAT:
            sources = tuple(
                Reading(str(path), str(mark), int(count)) for path, mark, count in document["sources"]
            )
            return Manifest(sources, bool(document["built"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _broken(folder, f"is damaged ({path.name}: {error})") from None
    raise _broken(folder, f"has the format {written!r}, and this version reads {FORMAT}")


def _broken(folder: Path, problem: str, sources: Iterable[Reading] = ()) -> BrokenIndex:
    """The error that says how to build this index again."""
    place, files = shlex.quote(str(folder)), [shlex.quote(reading.path) for reading in sources]
    again = f"rm -r {place} && factrl index {' '.join(files) or 'FILES'} --out {place}"
    return BrokenIndex(f"the index in {folder} {problem}; build it again: {again}")


class Index:
    """An index in a folder; any number of threads and processes may search it, while one adds.

    Use `Index.build` or `Index.open`.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open()

    @classmethod
    def build(cls, path: str | Path, sources: Iterable[str | Path]) -> Index:
        """Build an index of files and folders, or go on with a build that was interrupted.

        Args:
            path: a folder that is empty, is not there yet, or holds an unfinished build of these sources.
            sources: what `factrl.verifier.search.sources` reads, cut into passages of 120 words.

        Raises:
            DataError: a source is missing, unreadable or without text.
            SetupError: the folder holds something else, or another process writes to it.
        """
        folder = Path(path).expanduser()
        found = find_sources(sources, outside=folder)
        _prepare(folder, found)
        _extend(folder, found)
        return cls.open(folder)

    @classmethod
    def open(cls, path: str | Path) -> Index:
        """Open an index that was built.

        Raises:
            SetupError: there is no index, or its build was not finished.
            BrokenIndex: it is damaged, or of another version; the message says how to build it again.
        """
        return cls(Path(path).expanduser())

    def _open(self) -> None:
        manifest = load_manifest(self.path)
        if not manifest.built:
            raise SetupError(
                f"the index in {self.path} is unfinished; "
                "wait for factrl index, or run the same command again if it was interrupted"
            )
        with _undamaged(self.path):
            index = tantivy.Index.open(str(self.path / ENGINE))
            index.config_reader("manual")  # else a thread per index watches the folder
            self._schema, self._searcher = index.schema, cast("Any", index.searcher())
        manifest.kept(self.path, len(self))

    def __len__(self) -> int:
        """Passages."""
        return self._searcher.num_docs

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self):,} passages)"

    def add(self, sources: Iterable[str | Path]) -> None:
        """Add files and folders; those that are in the index already are left out.

        Searches that run meanwhile see the index as it was.

        Raises:
            DataError: a source is missing, unreadable, or has changed since it was added.
            SetupError: another process writes to it.
        """
        _extend(self.path, find_sources(sources, outside=self.path))
        self._open()

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """The passages that share words with `query`, best first by BM25 (k1 1.2, b 0.75).

        Args:
            query: a claim or a question, in its own words; nothing in it is an operator.
            k: how many at most.
            topic: rank only the passages of the document with this title, and all of them; none when there is
                no such document.  KnowRL's rows name several in one title, parted by semicolons.  Case and
                underscores make no difference, unless several titles differ only there and one of them is
                exactly this.

        Raises:
            ConfigError: `k` is below 1.
            BrokenIndex: the files are damaged.
        """
        if k < 1:
            raise ConfigError(f"k must be at least 1, not {k!r}")
        wanted = list(dict.fromkeys(words(query[:_MAX_QUERY])))[:_MAX_TERMS]
        parts = [(Occur.Should, Query.term_query(self._schema, "words", word, "freq")) for word in wanted]
        with _undamaged(self.path):
            keys = self._keys(topic)
            if topic and not keys:
                return []
            if keys:
                parts.append((Occur.Must, Query.const_score_query(self._titled(keys), 0.0)))
            found = self._fetch(Query.boolean_query(parts), k) if parts else []
        # Of equal scores the engine takes the older file first, and which file that is depends on the build.
        return [passage for _, passage in sorted(found, key=lambda each: (-(each[1].score or 0.0), each[0]))]

    def _keys(self, topic: str) -> list[str]:
        """The keys of what a topic names: the document with this very title, or else those of its parts."""
        whole = self._key(topic)
        return whole or [key for part in topic.split(";") for key in self._key(part)]

    def _key(self, title: str) -> list[str]:
        """The key of the documents with this title: those that spell it so, or else those that nearly do."""
        for key in (title_key(title, exact=True), title_key(title)) if title.strip() else ():
            if self._searcher.search(self._titled([key]), 1).count:
                return [key]
        return []

    def _titled(self, keys: Sequence[str]) -> Any:
        terms = [Query.term_query(self._schema, "title", key, "basic") for key in keys]
        return Query.boolean_query([(Occur.Should, term) for term in terms])

    def _fetch(self, query: Any, count: int) -> list[tuple[int, Passage]]:
        """The best passages of a query, each with its number."""
        searcher = self._searcher  # `add` puts another one there, with other places
        hits = searcher.search(query, count, count=False).hits
        return [_unpack(bytes(searcher.doc(at)["record"][0]), score) for score, at in hits]


# Writing


def _prepare(folder: Path, sources: Sequence[Source]) -> None:
    """Make `folder` an index of these sources that can be written: a new one, or one to go on with.

    Raises:
        SetupError: the folder holds something else.
    """
    if (folder / NAME).exists():
        manifest = load_manifest(folder)
        known = {reading.fingerprint for reading in manifest.sources}
        if manifest.built and known != {source.fingerprint() for source in sources}:
            raise SetupError(
                f"{folder} already holds an index of other files; "
                f"add these with: factrl index FILES --out {folder} --add, or name another folder"
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SetupError(f"{folder} is there already and holds no index; name another folder")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        Manifest().save(folder)
    schema = tantivy.SchemaBuilder()
    schema.add_integer_field("number", indexed=True)
    schema.add_text_field("title", tokenizer_name="raw", index_option="basic")
    schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    schema.add_bytes_field("record", stored=True)
    with _undamaged(folder):
        (folder / ENGINE).mkdir(exist_ok=True)
        tantivy.Index(schema.build(), str(folder / ENGINE))


def _extend(folder: Path, sources: Sequence[Source]) -> None:
    """Read every source that is not in the index yet.

    Raises:
        DataError: a source is unreadable or has changed since it was read, or there is no text in any.
        SetupError: another process writes to this index, or nothing can be written.
    """
    with _undamaged(folder):
        index = tantivy.Index.open(str(folder / ENGINE))
        try:
            writer = index.writer(heap_size=_HEAP, num_threads=1)
        except ValueError as error:
            if "lock" not in str(error).lower():
                raise
            raise SetupError("another process is adding to this index; wait until it is done") from None
    try:
        index.reload()  # only now can nobody else change what is there
        manifest = load_manifest(folder)
        known = manifest.kept(folder, index.searcher().num_docs)
        todo = _unread(folder, known, sources)
        total = known[-1].passages if known else 0
        with Progress("index (KiB)", sum(source.size for source in todo.values()) >> 10) as bar:
            for fingerprint, source in todo.items():
                total = _read(source, writer, total, bar)
                known = (*known, Reading(str(source.path.resolve()), fingerprint, total))
                Manifest(known, manifest.built).save(folder)
                try:
                    writer.commit()
                except (ValueError, OSError) as error:
                    problem = f"cannot write: {error}; make room, and run the same command again"
                    raise SetupError(problem) from error
        if not total:
            raise DataError(f"there is no text in {', '.join(str(source.path) for source in sources)}")
        Manifest(known, built=True).save(folder)
    finally:
        with _undamaged(folder):
            writer.rollback()  # what was not committed
            writer.wait_merging_threads()


def _unread(folder: Path, known: Sequence[Reading], sources: Sequence[Source]) -> dict[str, Source]:
    """The sources that are not in the index, by fingerprint."""
    read = {reading.fingerprint for reading in known}
    todo = {mark: source for source in sources if (mark := source.fingerprint()) not in read}
    paths = {reading.path for reading in known}
    for path in (str(source.path.resolve()) for source in todo.values()):
        if path in paths:
            raise DataError(
                f"{path} has changed since it was read into {folder}; "
                "give what is new as a file of its own, or build another index"
            )
    return todo


def _read(source: Source, writer: Any, total: int, bar: Progress) -> int:
    """Hand the passages of one source to the writer; returns the number of the next passage."""
    shown = 0
    for count, document in enumerate(source.documents(), start=1):
        for passage in passages_of(document):
            known = " ".join(words(f"{passage.title} {passage.text}"))
            entry = tantivy.Document(number=total, words=known, record=_pack(total, passage))
            if passage.title:
                entry.add_text("title", title_key(passage.title, exact=True))
                entry.add_text("title", title_key(passage.title))
            writer.add_document(entry)
            total += 1
        if count % 1000 == 0:
            bar.advance((source.position >> 10) - shown, f"{total:,} passages")
            shown = source.position >> 10
    bar.advance((source.size >> 10) - shown, f"{total:,} passages")
    return total


def _pack(number: int, passage: Passage) -> bytes:
    """A passage with a checksum: the engine notices a torn file, but not a flipped bit in one."""
    told = [number, passage.title, passage.text, passage.source, passage.id]
    content = json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return zlib.crc32(content).to_bytes(4, "big") + content


def _unpack(record: bytes, score: float) -> tuple[int, Passage]:
    content = record[4:]
    if zlib.crc32(content).to_bytes(4, "big") != record[:4]:
        raise ValueError("a passage is not what was written")
    number, title, text, source, name = json.loads(content.decode("utf-8", "surrogatepass"))
    return number, Passage(text, title, source, f"{number}:{name}" if name else str(number), score)


@contextmanager
def _undamaged(folder: Path) -> Iterator[None]:
    """Whatever the engine says about its files, as an error that says how to build them again."""
    try:
        yield
    except SetupError:
        raise
    except BaseException as error:
        # A panic in the engine is described by no exception class of Python's own.
        if isinstance(error, (ValueError, OSError)) or type(error).__name__ == "PanicException":
            problem = f"is damaged ({' '.join(str(error).split())[:200]})"
            raise _broken(folder, problem, load_manifest(folder).sources) from error
        raise
