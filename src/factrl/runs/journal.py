"""A long job's rows, each on disk as soon as it exists, so that nothing is paid for twice.

A journal is a JSON Lines file.  Its first line says what the job is; every other line is one finished unit
of it under a key.  A job that was killed opens the same file again, leaves out what is there and goes on.
A last line that a crash tore is dropped; a journal of another job is refused, never mixed with this one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from factrl.errors import ConfigError, DataError
from factrl.runs.rows import whole_lines
from factrl.runs.whole_file import FileLock

_KEY = "key"


class Journal(Mapping[str, Mapping[str, Any]]):
    """Rows by key, in the order in which they were added; use as a context manager.

    Args:
        path: the file; made, with its folder, when it is not there.
        about: everything that decides what the rows are: model, prompts, settings, seed.  JSON values.

    Attributes:
        found: how many rows an earlier process left.

    Raises:
        ConfigError: the file is that of another job, or another process is writing it.
        DataError: a line that is not the last cannot be read.
    """

    def __init__(self, path: Path | str, about: Mapping[str, Any]) -> None:
        self.path = Path(path)
        about = json.loads(json.dumps(about))  # as it will be read back: tuples as lists
        self._rows: dict[str, Mapping[str, Any]] = {}
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"{self.path} is no file that can be read back; name another one")
        with contextlib.ExitStack() as undo:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                lock = self.path.with_name(f"{self.path.name}.lock")
                undo.callback(FileLock(lock, f"{self.path}").release)
                head, whole = self._read()
                if head is not None:
                    _check_same(head, about, self.path)
                mode = "r+b" if head is not None else "wb"
                self._file = undo.enter_context(self.path.open(mode, buffering=0))
                self._file.truncate(whole)
                self._file.seek(whole)
                if head is None:
                    self._write(about)
            except OSError as error:
                raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error
            self._open = undo.pop_all()
        self.found = len(self._rows)

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """Keep a finished row; one with the same key replaces what a reader sees of the earlier one."""
        row = json.loads(json.dumps(row, allow_nan=False))
        self._write({_KEY: key, **row})
        self._rows[key] = row

    def close(self) -> None:
        """Let other processes write to the file; a second call does nothing."""
        self._open.close()

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, document: Mapping[str, Any]) -> None:
        line = memoryview(json.dumps(document, allow_nan=False).encode() + b"\n")
        start = self._file.tell()
        try:
            while line:  # unbuffered: a killed process loses nothing that the system has
                line = line[self._file.write(line) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # a torn line may be the last one only
                self._file.truncate(start)
                self._file.seek(start)
            raise ConfigError(
                f"{self.path} cannot be written: {error.strerror}; what it holds is kept: make room, then "
                "give the same command again"
            ) from error

    def _read(self) -> tuple[Mapping[str, Any] | None, int]:
        """The first line, None when there is none, and how many bytes of the file are whole lines."""
        lines = whole_lines(self.path)
        head: dict[str, Any] | None = None
        for number, line in enumerate(lines, start=1):
            document = _parsed(line)
            if document is None or (number > 1 and _KEY not in document):
                raise DataError(f"{self.path}, line {number} cannot be read; remove that line")
            if number == 1:
                head = document
            else:
                self._rows[document.pop(_KEY)] = document
        return head, sum(map(len, lines))


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _check_same(held: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> None:
    for name in dict.fromkeys([*wanted, *held]):
        if held.get(name) != wanted.get(name):
            raise ConfigError(
                f"{path} holds another job: its {name} is {_short(held.get(name))}, not "
                f"{_short(wanted.get(name))}; go on with the same settings, or name another file"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
