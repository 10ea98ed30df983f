"""What an index on disk says about itself: `index.json` in its folder.

It lists the sources and how far each was read, twice: as of the commit before and as of the one that was
under way when it was written.  The number of passages in the engine says which of the two came true, so a
build that was killed at any moment goes on where it was, and nothing is indexed twice or left out.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from factrl.errors import SetupError
from factrl.runs.whole_file import whole_file

FORMAT = 1
NAME = "index.json"


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

    def unfinished(self) -> list[Reading]:
        """The sources that were not read to their end."""
        return [reading for reading in self.sources.values() if not reading.done]

    def without_unread(self) -> State:
        """The same, but for sources of which nothing was kept: they may have been changed or left out."""
        return State(self.passages, {k: r for k, r in self.sources.items() if r.done or r.documents})

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
        paths = [reading.path for reading in self.states[-1].sources.values()]
        return broken(folder, problem, paths, dense=self.vectors is not None)

    def save(self, folder: Path) -> None:
        """Write it so that a reader, or the next process, sees the old or the new one, never a part."""
        with whole_file(folder / NAME) as unfinished, unfinished.open("w", encoding="utf-8") as file:
            json.dump({"format": FORMAT, **asdict(self)}, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())

    def having(self, *states: State, **changes: Any) -> Manifest:
        """The same with other states."""
        return replace(self, states=states, **changes)


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
            raise broken(folder, f"has the format {written!r}, and this version reads {FORMAT}", ["FILES"])
        states = tuple(
            State(state["passages"], {key: Reading(**told) for key, told in state["sources"].items()})
            for state in document["states"]
        )
        return Manifest(states, document["built"], document["vectors"])
    except BrokenIndex:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise broken(folder, f"is damaged ({path.name}: {error})", ["FILES"]) from None


def broken(folder: Path, problem: str, sources: Iterable[str], *, dense: bool = False) -> BrokenIndex:
    """An error that names the command to build the index again."""
    place = shlex.quote(str(folder))
    named = " ".join(path if path == "FILES" else shlex.quote(path) for path in sources) or "FILES"
    again = f"rm -r {place} && factrl index {named} --out {place}{' --dense' if dense else ''}"
    return BrokenIndex(f"the index in {folder} {problem}; build it again: {again}")
