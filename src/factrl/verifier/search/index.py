"""Knowledge on disk: passages found by their words (BM25) or by the title of their document.

A thin layer over tantivy, chosen by measurement (notebook/search.md): a claim is looked up among a million
passages in about a millisecond.  Queries are built of terms, never parsed.

A build is one commit, after which `index.json` names the files and the number of passages; until then the
index is not opened, and a build that was killed begins anew when the same command is run again.  One folder,
one machine; beyond that, any object with `search` takes its place.
"""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

import tantivy
from tantivy import Occur, Query

from factrl.errors import ConfigError, DataError, SetupError
from factrl.runs.disk import FileLock, no_empty_folder, write_whole
from factrl.runs.progress import Progress
from factrl.types import Passage
from factrl.verifier.search.sources import (
    documents,
    find_sources,
    fingerprint,
    leave_out,
    passages_of,
    title_key,
    title_keys,
    words,
)

FORMAT = 3
NAME = "index.json"
ENGINE = "words"
_LOCK = ".lock"
_HEAP = 64_000_000  # bytes that the writer may hold before it writes a segment
_MAX_QUERY = 4_000  # characters of a query that are read; a claim has 100
_MAX_TERMS = 128


class BrokenIndex(SetupError, ValueError):
    """An index that is damaged, or was written by another version; it has to be built again."""


class Manifest(NamedTuple):
    """The content of `index.json`."""

    sources: tuple[tuple[str, str], ...]  # path and fingerprint of every file, in the order of reading
    passages: int | None = None  # how many they gave; None until all of them were read

    def save(self, folder: Path) -> None:
        content = json.dumps({"format": FORMAT, **self._asdict()}, ensure_ascii=False, indent=1)
        write_whole(folder / NAME, content.encode("utf-8"))


def load_manifest(folder: Path) -> Manifest:
    """The manifest of an index.

    Raises:
        SetupError: there is no index in this folder; `BrokenIndex` where this version cannot read it.
    """
    path = folder / NAME
    if not path.is_file():
        raise SetupError(
            f"there is no index in {folder}; build it with: factrl index FILES --output {folder}"
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version, passages = document["format"], document.get("passages")
        if version == FORMAT:
            sources = tuple((str(name), str(mark)) for name, mark in document["sources"])
            return Manifest(sources, None if passages is None else int(passages))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _broken(folder, f"is damaged ({path.name}: {error})") from None
    raise _broken(folder, f"has the format {version!r}, and this version reads {FORMAT}")


def _broken(folder: Path, problem: str, sources: Iterable[tuple[str, str]] = ()) -> BrokenIndex:
    """The error that says how to build this index again."""
    place, files = shlex.quote(str(folder)), [shlex.quote(path) for path, _ in sources]
    again = f"rm -r {place} && factrl index {' '.join(files) or 'FILES'} --output {place}"
    return BrokenIndex(f"the index in {folder} {problem}; build it again: {again}")


class Index:
    """An index in a folder, by `Index.build` or `Index.open`; any number of processes may search it.

    >>> import tempfile
    >>> temporary = tempfile.TemporaryDirectory()
    >>> folder = Path(temporary.name)
    >>> _ = (folder / "Marie_Curie.txt").write_text("She was born in Warsaw.")
    >>> index = Index.build(folder / "kb", [folder])
    >>> [passage.title for passage in index.search("Who was born in Warsaw?", k=5)]
    ['Marie Curie']
    >>> index.search("born in Warsaw", topic="Pierre Curie")
    []
    >>> temporary.cleanup()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        manifest = load_manifest(path)
        if manifest.passages is None:
            raise SetupError(
                f"the index in {path} is unfinished; "
                "wait for factrl index, or run the same command again if it was interrupted"
            )
        with _undamaged(path):
            index = tantivy.Index.open(str(path / ENGINE))
            index.config_reader("manual")  # else a thread per index watches the folder
            self._schema, self._searcher = index.schema, cast("Any", index.searcher())
        if len(self) != manifest.passages:
            problem = f"holds {len(self):,} passages instead of {manifest.passages:,}"
            raise _broken(path, problem, manifest.sources)

    @classmethod
    def build(cls, path: str | Path, sources: Iterable[str | Path]) -> Index:
        """Build an index of files and folders; one that holds these very files already is opened.

        Raises:
            DataError: a source is missing, unreadable or without text.
            SetupError: the folder holds something else, or another process writes to it.
        """
        folder = Path(path).expanduser()
        files = find_sources(sources, outside=folder)
        known = {str(file.resolve()): fingerprint(file) for file in files}
        marks = set(known.values())
        if not _is_built(folder, marks):
            with no_empty_folder(folder):
                with _writing(folder):
                    folder.mkdir(parents=True, exist_ok=True)
                lock = FileLock(folder / _LOCK, f"the index in {folder}")
                try:
                    if not _is_built(folder, marks):  # by a process that had the lock before
                        _write(folder, files, Manifest(tuple(known.items())))
                finally:
                    lock.release()
        return cls(folder)

    @classmethod
    def open(cls, path: str | Path) -> Index:
        """Open an index that was built.

        Raises:
            SetupError: there is none, or its build was not finished; `BrokenIndex` where it is damaged.
        """
        return cls(Path(path).expanduser())

    def __len__(self) -> int:
        return self._searcher.num_docs

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self):,} passages)"

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        """The passages that share words with `query`, best first by BM25 (k1 1.2, b 0.75).

        Args:
            query: a claim or a question, in its own words; nothing in it is an operator.
            topic: rank only the passages of the document with this title, and all of them; none when there is
                no such document.  KnowRL's rows name several in one title, parted by semicolons.
        """
        if k < 1:
            raise ConfigError(f"k must be at least 1, not {k!r}")
        wanted = list(dict.fromkeys(words(query[:_MAX_QUERY])))[:_MAX_TERMS]
        parts = [(Occur.Should, Query.term_query(self._schema, "words", word, "freq")) for word in wanted]
        if topic:
            keys = [Query.term_query(self._schema, "title", key, "basic") for key in title_keys(topic)]
            titled = Query.boolean_query([(Occur.Should, key) for key in keys])
            parts.append((Occur.Must, Query.const_score_query(titled, 0.0)))
        if not parts:
            return []
        with _undamaged(self.path):
            best = self._searcher.search(Query.boolean_query(parts), k, count=False).hits
            hits = [_unpack(bytes(self._searcher.doc(at)["record"][0]), score) for score, at in best]
        # Of equal scores the engine takes the older segment first, and which that is depends on the build.
        return [passage for _, passage in sorted(hits, key=lambda each: (-(each[1].score or 0.0), each[0]))]

    def together(self, *names: str) -> int:
        """How many passages hold every word of these names, wherever in them they stand; 0 without a word."""
        wanted = list(dict.fromkeys(word for name in names for word in words(name[:_MAX_QUERY])))[:_MAX_TERMS]
        if not wanted:
            return 0
        parts = [(Occur.Must, Query.term_query(self._schema, "words", word, "basic")) for word in wanted]
        with _undamaged(self.path):
            return self._searcher.search(Query.boolean_query(parts), 1).count


# -- Writing


def _is_built(folder: Path, fingerprints: set[str]) -> bool:
    """Whether the folder holds a whole index of the files with these fingerprints, and nothing else."""
    if not (folder / NAME).exists():
        if folder.exists() and (not folder.is_dir() or any(file.name != _LOCK for file in folder.iterdir())):
            raise SetupError(f"{folder} is there already and holds no index; name another folder")
        return False
    manifest = load_manifest(folder)
    if manifest.passages is None:
        return False
    if {mark for _, mark in manifest.sources} != fingerprints:
        raise SetupError(
            f"{folder} already holds an index of other files, or they have changed; "
            "remove it first (rm -r), or name another folder"
        )
    return True


def _write(folder: Path, files: Sequence[Path], manifest: Manifest) -> None:
    """Read every file into the engine, and then say in the manifest that it is whole."""
    schema = tantivy.SchemaBuilder()
    schema.add_text_field("title", tokenizer_name="raw", index_option="basic")
    schema.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    schema.add_bytes_field("record", stored=True)
    with _writing(folder):
        manifest.save(folder)  # first, as it says whose the folder is
        (folder / ENGINE).mkdir(parents=True, exist_ok=True)
        index = tantivy.Index(schema.build(), str(folder / ENGINE))
        writer = index.writer(heap_size=_HEAP, num_threads=1)
    try:
        with _writing(folder):
            writer.delete_all_documents()  # of a build that was killed
        total, empty = 0, dict[Path, SetupError]()
        with Progress("index (files)", len(files)) as bar:
            for file in files:
                before = total
                for passage in (one for document in documents(file) for one in passages_of(document)):
                    entry = _entry(total, passage)
                    with _writing(folder):
                        writer.add_document(entry)
                    total += 1
                    if total % 1000 == 0:
                        bar.advance(0, f"{total:,} passages")
                if total == before:
                    empty[file] = DataError(f"no text in {file}")
                bar.advance(1, f"{total:,} passages")
        leave_out(empty, range(total))
        with _writing(folder):
            writer.commit()
            writer.wait_merging_threads()
            manifest._replace(passages=total).save(folder)
    except BaseException:
        with suppress(ValueError, OSError):  # of a writer that has ended already
            writer.rollback()  # what was not committed
        (folder / NAME).unlink(missing_ok=True)
        shutil.rmtree(folder / ENGINE, ignore_errors=True)
        raise


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """What a disk does to the engine, which may keep the cause to itself, as one line with the remedy."""
    try:
        yield
    except SetupError:
        raise
    except (ValueError, OSError) as error:
        if "LockBusy" in str(error):
            raise SetupError("another process is building this index; wait until it is done") from None
        problem = " ".join(str(error).split())[:200]
        raise SetupError(
            f"the index in {folder} cannot be written ({problem}); make room or change the rights there, and "
            "run the same command again"
        ) from error


def _entry(number: int, passage: Passage) -> Any:
    record = [number, passage.title, passage.text, passage.source, passage.id]
    entry = tantivy.Document(
        words=" ".join(words(f"{passage.title} {passage.text}")),
        record=json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass"),
    )
    if passage.title:
        entry.add_text("title", title_key(passage.title))
    return entry


def _unpack(record: bytes, score: float) -> tuple[int, Passage]:
    number, title, text, source, name = json.loads(record.decode("utf-8", "surrogatepass"))
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
