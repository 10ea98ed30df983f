"""Building an index, and adding to one: from files to passages on disk in one pass.

Memory is that of one batch, whatever the files hold.  `index.json` lists the sources and how far each was
read, twice: as of the commit before and as of the one that was under way when it was written.  The number of
passages in the engine says which of the two came true, so a build that was killed at any moment goes on where
it was when the same command is run again, and nothing is indexed twice or left out.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError, SetupError
from factrl.runs.progress import Progress
from factrl.runs.whole_file import whole_file
from factrl.types import Passage
from factrl.verifier.search import dense
from factrl.verifier.search.bm25 import WordIndex, Writer
from factrl.verifier.search.dense import Embedder
from factrl.verifier.search.passages import passages_of
from factrl.verifier.search.sources import Source

FORMAT = 1
NAME = "index.json"
BATCH = 10_000
"""Passages between two commits; what a kill costs is the time to index as many, a second or two."""


class BrokenIndex(SetupError, ValueError):
    """An index that is damaged, or was written by another version; it has to be built again."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How far one source was read.

    Attributes:
        path: the file, absolute.
        fingerprint: of its content when it was first read.
        documents: how many of its documents are in the index.
        done: whether that is all of them.
    """

    path: str
    fingerprint: str
    documents: int = 0
    done: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """The index as of one commit: its passages, and the sources by fingerprint."""

    passages: int = 0
    sources: Mapping[str, Reading] = field(default_factory=dict)

    def with_reading(self, reading: Reading, passages: int) -> State:
        """The state after a commit that adds passages of one source."""
        return State(self.passages + passages, {**self.sources, reading.fingerprint: reading})


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `index.json`.

    Attributes:
        states: the last commit that is certain, and the one that may have followed it.
        built: whether all sources of the first build were read; until then the index is not opened.
        vectors: identity and dimension of the embedder; None for an index of words alone.
    """

    states: tuple[State, ...] = (State(),)
    built: bool = False
    vectors: Mapping[str, Any] | None = None

    def state(self, folder: Path, passages: int) -> State:
        """The state with so many passages.

        Raises:
            BrokenIndex: the engine holds another number of passages than any commit left there.
        """
        for state in reversed(self.states):
            if state.passages == passages:
                return state
        expected = " or ".join(f"{state.passages:,}" for state in self.states)
        raise self.broken(folder, f"holds {passages:,} passages instead of {expected}")

    def broken(self, folder: Path, problem: str) -> BrokenIndex:
        """The error that says how to build this index again."""
        paths = [shlex.quote(reading.path) for reading in self.states[-1].sources.values()]
        return _broken(folder, problem, paths, " --dense" if self.vectors is not None else "")

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
        if written != FORMAT:
            raise _broken(folder, f"has the format {written!r}, and this version reads {FORMAT}")
        states = tuple(
            State(state["passages"], {key: Reading(**known) for key, known in state["sources"].items()})
            for state in document["states"]
        )
        return Manifest(states, document["built"], document["vectors"])
    except BrokenIndex:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _broken(folder, f"is damaged ({path.name}: {error})") from None


def _broken(folder: Path, problem: str, files: Iterable[str] = (), option: str = "") -> BrokenIndex:
    place = shlex.quote(str(folder))
    again = f"rm -r {place} && factrl index {' '.join(files) or 'FILES'} --out {place}{option}"
    return BrokenIndex(f"the index in {folder} {problem}; build it again: {again}")


# Writing


def prepare(folder: Path, sources: Sequence[Source]) -> bool:
    """Make `folder` an index that can be written: a new one, or an unfinished build to go on with.

    Returns:
        Whether there is anything to do; False for a finished index of exactly these sources.

    Raises:
        SetupError: the folder holds something else.
    """
    if (folder / NAME).exists():
        manifest = load_manifest(folder)
        known, given = set(manifest.states[-1].sources), {source.fingerprint() for source in sources}
        if manifest.built and known == given:
            return False
        if manifest.built:
            raise SetupError(
                f"{folder} already holds an index of other files; "
                f"add these with: factrl index FILES --out {folder} --add, or name another folder"
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SetupError(f"{folder} is there already and holds no index; name another folder")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        Manifest().save(folder)
    WordIndex(folder, create=True)
    return True


def extend(folder: Path, sources: Sequence[Source], embedder: Embedder | None) -> None:
    """Read every source that is not in the index yet, and the rest of those that are in part.

    Raises:
        DataError: a source is unreadable or has changed since it was begun, or there is no text in any.
        ConfigError: the embedder is not the one that the index was built with.
        SetupError: another process writes to this index, or nothing can be written.
    """
    words = WordIndex(folder)
    writer = words.writer()
    try:
        words.reload()  # only now can nobody else change what is there
        manifest = load_manifest(folder)
        state = manifest.state(folder, len(words))
        # Sources of which nothing was kept may have been changed or left out.
        state = State(state.passages, {k: r for k, r in state.sources.items() if r.done or r.documents})
        if not state.passages:
            manifest = replace(manifest, vectors=_vectors_of(embedder))
        _check_embedder(folder, manifest.vectors, _vectors_of(embedder))
        given = {source.fingerprint(): source for source in sources}
        _check_sources(folder, state, given)
        for key, source in given.items():  # all at once, so that an error can name what to build again
            if key not in state.sources:
                state = state.with_reading(Reading(str(source.path.resolve()), key), 0)
        manifest = replace(manifest, states=(state,))
        manifest.save(folder)
        todo = [(given[key], reading) for key, reading in state.sources.items() if not reading.done]
        with Progress("index (KiB)", sum(source.size for source, _ in todo) >> 10) as bar:
            for source, reading in todo:
                manifest = _Pass(folder, manifest, writer, embedder, bar).read(source, reading)
        if not manifest.states[-1].passages:
            raise DataError(f"there is no text in {', '.join(str(source.path) for source in sources)}")
        replace(manifest, states=manifest.states[-1:], built=True).save(folder)
    finally:
        writer.close()


class _Pass:
    """One source, read from where it was left to its end."""

    def __init__(
        self, folder: Path, manifest: Manifest, writer: Writer, embedder: Embedder | None, bar: Progress
    ) -> None:
        self._folder, self._manifest, self._writer = folder, manifest, writer
        self._embedder, self._bar = embedder, bar
        self._batch: list[Passage] = []
        self._shown = 0

    def read(self, source: Source, reading: Reading) -> Manifest:
        """The manifest after its last commit."""
        count = 0
        for count, document in enumerate(source.documents(), start=1):
            if count > reading.documents:
                self._batch += passages_of(document)
            if len(self._batch) >= BATCH:
                self._commit(replace(reading, documents=count))
            if count % 1000 == 0:
                self._show(source.position)
        self._commit(replace(reading, documents=count, done=True))
        self._show(source.size)
        return self._manifest

    def _commit(self, reading: Reading) -> None:
        state = self._manifest.states[-1]
        if self._batch and self._embedder is not None:
            texts = [f"{p.title}: {p.text}" if p.title else p.text for p in self._batch]
            dense.append(self._folder, state.passages, dense.encode(self._embedder, texts))
        for number, passage in enumerate(self._batch, start=state.passages):
            self._writer.add(number, passage)
        after = state.with_reading(reading, len(self._batch))
        self._manifest = replace(self._manifest, states=(state, after))
        self._manifest.save(self._folder)
        if self._batch:
            self._writer.commit()
        self._batch = []

    def _show(self, position: int) -> None:
        units = (position >> 10) - self._shown
        self._shown += units
        self._bar.advance(units, f"{self._manifest.states[-1].passages:,} passages")


def _vectors_of(embedder: Embedder | None) -> dict[str, Any] | None:
    return None if embedder is None else {"by": embedder.identity, "dimension": embedder.dimension}


def _check_embedder(folder: Path, built: Mapping[str, Any] | None, given: Mapping[str, Any] | None) -> None:
    if built != given:
        has = f"vectors of {built['by']}" if built else "no vectors"
        would = f"those of {given['by']}" if given else "none"
        remedy = "use --dense" if built and not given else "build another index"
        raise ConfigError(f"the index in {folder} has {has}, and new passages would have {would}; {remedy}")


def _check_sources(folder: Path, state: State, given: Mapping[str, Source]) -> None:
    """Whether every source that was begun is here again, unchanged."""
    paths = {str(source.path.resolve()) for source in given.values()}
    for key, reading in state.sources.items():
        if key not in given and reading.path in paths:
            raise DataError(
                f"{reading.path} has changed since it was read into {folder}; "
                "give what is new as a file of its own, or build another index"
            )
        if key not in given and not reading.done:
            raise SetupError(
                f"the index in {folder} is unfinished: {reading.path} was read in part; "
                "name that file again, or remove the folder"
            )
