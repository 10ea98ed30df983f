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
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from factrl.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows: SQLite's own locks are all there is
    fcntl = None

CHECKPOINT_AT = 4 << 20  # bytes of the write-ahead log
_TABLE = "entries_1"  # the number is the version of the format
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_BATCH = 500  # keys in one query; SQLite's limit was 999 for a long time
_LOG = logging.getLogger("factrl")

T = TypeVar("T")


class Row(NamedTuple):
    """One entry as it is stored."""

    key: str
    value: bytes
    sum: bytes


Change = tuple[Literal["put", "drop", "clear"], Sequence[Row]]
"""What to do with which rows; `drop` spares a row that was replaced meanwhile, `clear` takes none."""

_STATEMENTS = {
    "put": f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?)",  # noqa: S608
    "drop": f"DELETE FROM {_TABLE} WHERE key = ? AND value IS ? AND sum IS ?",  # noqa: S608
    "clear": f"DELETE FROM {_TABLE}",  # noqa: S608
}


class CacheFile:
    """Rows in a file that other threads and processes use too; not carried over a fork.

    Every method raises `OSError` or `sqlite3.Error` when the file cannot be read or written.

    Args:
        busy: seconds to wait for others.
    """

    def __init__(self, path: Path, busy: float) -> None:
        self.path = path
        self._busy = busy
        self._one_thread = threading.RLock()
        self._depth = 0
        self._reading = threading.Lock()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._lock_file: int | None = None
        self._inode: tuple[int, int] | None = None
        _FILES.add(self)

    def open(self) -> None:
        """Open the file; make it when it is not there, begin a new one when it is damaged.

        Raises:
            ConfigError: it is a database of something else.
        """
        with self._alone():
            self._open()

    def reopen(self) -> None:
        """As `open` where the file was ours before: by now it may be anything, which stops nobody."""
        try:
            self.open()
        except ConfigError as error:
            raise OSError(str(error)) from error

    def read(self, keys: Sequence[str]) -> list[Row]:
        """The rows that are there, unchecked."""

        def select(reader: sqlite3.Connection) -> list[Row]:
            rows: list[Row] = []
            for start in range(0, len(keys), _BATCH):
                batch = keys[start : start + _BATCH]
                marks = ",".join("?" * len(batch))
                query = f"SELECT key, value, sum FROM {_TABLE} WHERE key IN ({marks})"  # noqa: S608
                rows += map(Row._make, reader.execute(query, batch))
            return rows

        return self._read(select)

    def count(self) -> int:
        """Number of rows."""
        return self._read(lambda reader: reader.execute(f"SELECT COUNT(*) FROM {_TABLE}").fetchone()[0])  # noqa: S608

    def write(self, changes: Sequence[Change]) -> None:
        """All changes in their order, or none; when this returns they survive the end of the process."""
        with self._alone():
            before = self._inode
            if before != _inode_of(self.path):  # somebody moved it away, damaged or not
                self.reopen()
                if before is not None:
                    _LOG.warning("the cache %s was moved, deleted or replaced and is begun anew", self.path)
            try:
                self._transaction(changes)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._quarantine(error)
                self.reopen()
                self._transaction(changes)
            self._checkpoint()

    def close(self) -> None:
        """Let go of the file."""
        if self._lock_file is None:
            return
        with self._alone():
            self._disconnect()
        os.close(self._lock_file)
        self._lock_file = None

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        with self._reading:
            reader = self._reader
            if reader is None:
                raise OSError(f"{self.path} is not open")
            try:
                return query(reader)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                damage = error
        with self._alone():
            if self._reader is reader:  # else somebody saw to it already
                self._quarantine(damage)
                self.reopen()
        with self._reading:
            if self._reader is None:
                raise OSError(f"{self.path} is not open")
            return query(self._reader)

    def _transaction(self, changes: Sequence[Change]) -> None:
        if self._writer is None:
            raise OSError(f"{self.path} is not open")
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            for kind, rows in changes:
                self._writer.executemany(_STATEMENTS[kind], [()] if kind == "clear" else rows)
            self._writer.execute("COMMIT")
        except sqlite3.Error:
            if self._writer.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # what went wrong before is what matters
                    self._writer.execute("ROLLBACK")
            raise

    def _checkpoint(self) -> None:
        """Move the log into the file when it has grown; what readers still need stays in it."""
        if self._writer is not None and _size_of(f"{self.path}-wal") > CHECKPOINT_AT:
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _make_folder(self) -> None:
        folder = self.path.parent
        if not folder.is_dir():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _open(self) -> None:
        self._disconnect()
        self._make_file()
        try:
            self._connect()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            self._quarantine(error)
            self._make_file()
            self._connect()

    def _make_file(self) -> None:
        """For its owner only, as prompts are in it; SQLite gives its other files the same mode."""
        self._make_folder()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                os.chmod(self.path, 0o600)
        finally:
            os.close(descriptor)

    def _connect(self) -> None:
        writer = self._connection()
        try:
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            tables = {name for (name,) in writer.execute(query)}
            if tables and _TABLE not in tables:
                raise ConfigError(f"{self.path} is a database of something else; name another file")
            writer.execute("PRAGMA journal_mode = WAL").fetchall()
            if not tables:
                writer.execute(f"CREATE TABLE {_TABLE} (key TEXT PRIMARY KEY, value BLOB, sum BLOB)")
            reader = self._connection()
        except BaseException:
            writer.close()
            raise
        with self._reading:
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
        with self._reading:
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
        with self._one_thread:
            if self._depth == 0:
                self._lock()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0 and fcntl is not None and self._lock_file is not None:
                    fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _lock(self) -> None:
        name = f"{self.path}.lock"
        if self._lock_file is not None and _inode_of(name) != _inode_of(self._lock_file):
            os.close(self._lock_file)  # it was deleted: others lock another one by now
            self._lock_file = None
        if self._lock_file is None:
            self._make_folder()
            self._lock_file = os.open(name, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o600)
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
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


_FILES: weakref.WeakSet[CacheFile] = weakref.WeakSet()
_HELD: list[CacheFile] = []


def _before_fork() -> None:
    """Let nobody be inside SQLite: its own locks would stay locked in the child for ever."""
    _HELD.extend(_FILES)
    for file in _HELD:
        file._one_thread.acquire()
        file._reading.acquire()


def _after_fork() -> None:
    while _HELD:
        file = _HELD.pop()
        file._reading.release()
        file._one_thread.release()


def _after_fork_in_child() -> None:
    """The file lock is not ours, and must not outlive the parent in here."""
    for file in _HELD:
        if file._lock_file is not None:
            os.close(file._lock_file)
            file._lock_file = None
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)
