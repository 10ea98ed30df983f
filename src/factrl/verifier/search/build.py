"""Building an index, and adding to one: from files to passages on disk in one pass.

Memory is that of one batch, whatever the files hold.  A build that was killed goes on where its last commit
was when the same command is run again; `factrl.verifier.search.manifest` says why nothing is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError, SetupError
from factrl.runs.progress import Progress
from factrl.types import Passage
from factrl.verifier.search import dense
from factrl.verifier.search.bm25 import WordIndex, Writer
from factrl.verifier.search.dense import Embedder
from factrl.verifier.search.manifest import NAME, Manifest, Reading, State, load_manifest
from factrl.verifier.search.passages import passages_of
from factrl.verifier.search.sources import Source

BATCH = 10_000
"""Passages between two commits; what a kill costs is the time to index as many, a second or two."""


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
        state = manifest.state(folder, len(words)).without_unread()
        if not state.passages:
            manifest = manifest.having(state, vectors=_told(embedder))
        _check_embedder(folder, manifest, embedder)
        _check_sources(folder, state, sources)
        given = {source.fingerprint(): source for source in sources}
        for key, source in given.items():  # all at once, so that an error can name what to build again
            if key not in state.sources:
                state = state.with_reading(Reading(str(source.path.resolve()), key), 0)
        manifest = manifest.having(state)
        manifest.save(folder)
        todo = [(given[reading.fingerprint], reading) for reading in state.unfinished()]
        with Progress("index (KiB)", sum(source.size for source, _ in todo) >> 10) as bar:
            for source, reading in todo:
                manifest = _Pass(folder, manifest, writer, embedder, bar).read(source, reading)
        state = manifest.states[-1]
        if not state.passages:
            raise DataError(f"there is no text in {', '.join(str(source.path) for source in sources)}")
        manifest.having(state, built=True).save(folder)
    finally:
        writer.close()


class _Pass:
    """One source, read from where it was left to its end."""

    def __init__(
        self, folder: Path, manifest: Manifest, writer: Writer, embedder: Embedder | None, bar: Progress
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._writer = writer
        self._embedder = embedder
        self._bar = bar
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
        self._manifest = self._manifest.having(state, after)
        self._manifest.save(self._folder)
        if self._batch:
            self._writer.commit()
        self._batch = []

    def _show(self, position: int) -> None:
        units = (position >> 10) - self._shown
        self._shown += units
        self._bar.advance(units, f"{self._manifest.states[-1].passages:,} passages")


def _told(embedder: Embedder | None) -> dict[str, Any] | None:
    return None if embedder is None else {"by": embedder.identity, "dimension": embedder.dimension}


def _check_embedder(folder: Path, manifest: Manifest, embedder: Embedder | None) -> None:
    built, given = manifest.vectors, _told(embedder)
    if built != given:
        has = f"vectors of {built['by']}" if built else "no vectors"
        would = f"those of {given['by']}" if given else "none"
        remedy = "use --dense" if built and not given else "build another index"
        raise ConfigError(f"the index in {folder} has {has}, and new passages would have {would}; {remedy}")


def _check_sources(folder: Path, state: State, sources: Sequence[Source]) -> None:
    """Whether every source that was begun is here again, unchanged."""
    given = {source.fingerprint() for source in sources}
    paths = {str(source.path.resolve()) for source in sources}
    for reading in state.sources.values():
        if reading.fingerprint not in given and reading.path in paths:
            raise DataError(
                f"{reading.path} has changed since it was read into {folder}; "
                "give what is new as a file of its own, or build another index"
            )
        if reading.fingerprint not in given and not reading.done:
            raise SetupError(
                f"the index in {folder} is unfinished: {reading.path} was read in part; "
                "name that file again, or remove the folder"
            )
