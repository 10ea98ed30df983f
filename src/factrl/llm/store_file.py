"""The SQLite file under `factrl.llm.store`: who may write when, and what happens when it is damaged.

SQLite before 3.51.3 can damage a file when one connection resets the write-ahead log while another one
checkpoints (https://sqlite.org/wal.html#walresetbug).  So SQLite's own checkpoints are off, and every
transaction and every checkpoint of ours holds one lock file: no two of them ever overlap.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from factrl.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows: SQLite's own locks are all there is
    fcntl = None

CHECKPOINT_AT = 4 << 20  # bytes of the write-ahead log
_TABLE = "entries_1"  # the number is the version of the format
_PUT = f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?)"  # noqa: S608
_BATCH = 500  # keys in one query; SQLite's limit was 999 for a long time
_LOG = logging.getLogger("factrl")


class Row(NamedTuple):
    """One entry as it is stored."""

    key: str
    value: bytes
    sum: bytes


class StoreFile:
    """Rows in a file that other threads and processes use too; not carried over a fork.

    Every method raises `OSError` or `sqlite3.Error` when the file cannot be read or written.

    Attributes:
        writing, reading: locks between the threads of this process; whoever takes both takes them so.
        ours: it was ours before: whatever it is by now, that stops nobody.
    """

    def __init__(self, path: Path, busy: float) -> None:
        self.path = path
        self.ours = False
        self.writing, self.reading = threading.RLock(), threading.Lock()
        self._busy, self._pid = busy, os.getpid()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._lock_file: int | None = None
        self._inode: tuple[int, int] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can be read without being opened first."""
        return self._reader is not None

    def open(self) -> None:
        """Open the file; make it when it is not there, begin a new one when it is damaged.

        Raises:
            ConfigError: it is a database of something else, and was never ours.
        """
        with self._alone():
            self._open()

    def read(self, keys: Sequence[str]) -> list[Row]:
        """The rows that are there, unchecked."""
        rows: list[Row] = []
        for start in range(0, len(keys), _BATCH):
            batch = keys[start : start + _BATCH]
            marks = ",".join("?" * len(batch))
            query = f"SELECT key, value, sum FROM {_TABLE} WHERE key IN ({marks})"  # noqa: S608
            rows += map(Row._make, self._rows(query, batch))
        return rows

    def count(self) -> int:
        """Number of rows."""
        return self._rows(f"SELECT COUNT(*) FROM {_TABLE}")[0][0]  # noqa: S608

    def write(self, rows: Sequence[Row]) -> None:
        """All rows in their order, or none; when this returns they survive the end of the process."""
        with self._alone():
            before = self._inode
            if before is None or before != _inode_of(self.path):  # somebody moved it away, damaged or not
                self._open()
                if before is not None:
                    _LOG.warning("the cache %s was moved, deleted or replaced and is begun anew", self.path)
            try:
                self._transaction(rows)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._quarantine(error)
                self._open()
                self._transaction(rows)
            with contextlib.suppress(FileNotFoundError):
                if self._writer is not None and os.stat(f"{self.path}-wal").st_size > CHECKPOINT_AT:
                    # What readers still need stays in the log.
                    self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Let go of the file, in the process that opened it."""
        if self._lock_file is None or self._pid != os.getpid():
            return
        with self._alone():
            self._disconnect()
        os.close(self._lock_file)
        self._lock_file = None

    def disown(self) -> None:
        """In a forked child: the lock must not outlive the parent in here."""
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _rows(self, query: str, values: Sequence[str] = ()) -> list[Any]:
        damage = None
        with self.reading:
            reader = self._reader
            try:
                if reader is not None:
                    return reader.execute(query, values).fetchall()
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                damage = error
        with self._alone():
            if damage is not None and self._reader is reader:  # else somebody saw to it already
                self._quarantine(damage)
            if self._reader is None:
                self._open()
        with self.reading:
            if self._reader is None:
                raise OSError(f"{self.path} is not open")
            return self._reader.execute(query, values).fetchall()

    def _transaction(self, rows: Sequence[Row]) -> None:
        if self._writer is None:
            raise OSError(f"{self.path} is not open")
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            self._writer.executemany(_PUT, rows)
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # what went wrong before is what matters
                    self._writer.execute("ROLLBACK")
            raise

    def _open(self) -> None:
        self._disconnect()
        try:
            self._connect()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._quarantine(error)
            self._connect()

    def _connect(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # For its owner only, as prompts are in it; SQLite gives its other files the same mode.
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                os.chmod(self.path, 0o600)
        finally:
            os.close(descriptor)
        writer = self._connection()
        try:
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            tables = {name for (name,) in writer.execute(query)}
            if tables and _TABLE not in tables:
                kind = OSError if self.ours else ConfigError
                raise kind(f"{self.path} is a database of something else; name another file")
            writer.execute("PRAGMA journal_mode = WAL").fetchall()
            if not tables:
                writer.execute(f"CREATE TABLE {_TABLE} (key TEXT PRIMARY KEY, value BLOB, sum BLOB)")
            reader = self._connection()
        except BaseException:
            writer.close()
            raise
        with self.reading:
            self._reader, self._writer, self._inode = reader, writer, _inode_of(self.path)

    def _connection(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy, isolation_level=None, check_same_thread=False
        )
        try:
            # At NORMAL a crash of this process loses nothing, one of the machine perhaps the last commits.
            for setting in ("synchronous = NORMAL", "wal_autocheckpoint = 0", "mmap_size = 0"):
                connection.execute(f"PRAGMA {setting}").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        with self.reading:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    with contextlib.suppress(sqlite3.Error):  # the last one checkpoints, which may fail
                        connection.close()
            self._reader = self._writer = self._inode = None

    def _quarantine(self, damage: sqlite3.Error) -> None:
        """Move a damaged file aside, with its log; unless another process has done so."""
        theirs = self._inode is not None and self._inode != _inode_of(self.path)
        self._disconnect()
        if theirs:
            return
        target = f"{self.path}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        for end in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}{end}", f"{target}{end}")
        _LOG.warning("the cache %s is damaged (%s); moved to %s and begun anew", self.path, damage, target)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread of one process at a time.

        Raises:
            TimeoutError: another process has kept it for longer than `busy`.
        """
        with self.writing:
            self._take_lock_file()
            try:
                yield
            finally:
                if fcntl is not None and self._lock_file is not None:
                    fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _take_lock_file(self) -> None:
        name = f"{self.path}.lock"
        if self._lock_file is not None and _inode_of(name) != _inode_of(self._lock_file):
            os.close(self._lock_file)  # it was deleted: others lock another one by now
            self._lock_file = None
        if self._lock_file is None:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            no_link = getattr(os, "O_NOFOLLOW", 0)
            self._lock_file = os.open(name, os.O_RDWR | os.O_CREAT | no_link, 0o600)
        if fcntl is None:
            return
        began = time.monotonic()
        while True:
            try:
                fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                waited = time.monotonic() - began
                if waited > self._busy:
                    held = f"another process has held {self.path}.lock for {self._busy:g} s"
                    raise TimeoutError(held) from None
            # Most transactions take less than a millisecond; whoever waits for long has no hurry.
            time.sleep(min(0.02, 0.0005 + waited / 50) * random.uniform(0.5, 1.0))


def _is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is wrong, rather than the disk, the rights or another process."""
    return type(error) is sqlite3.DatabaseError or "no such table" in str(error)


def _inode_of(path: Path | str | int) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
