"""A store of JSON values on disk: what was paid for once is not paid for again, whatever crashes meanwhile.

One file for any number of processes, threads and forks on one machine.  A `put` that has returned survives
`kill -9`.  A cache must never stop a run: a damaged row is a miss, a damaged file is moved aside and begun
anew, and where nothing can be written the values are kept in memory.  Nothing is evicted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import queue
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from factrl.llm.store_file import CacheFile, Change, Row

BUSY = 30.0  # seconds that one process waits for the others
_GROUP = 5_000  # rows after which a transaction takes no further ones
_IN_MEMORY = 100_000  # values kept when there is no disk; the oldest go first
_LOG = logging.getLogger("factrl")

_SPOILT = object()

T = TypeVar("T")


def digest(fields: Mapping[str, Any]) -> str:
    """The key of a value: SHA-256 of the canonical JSON of all that the value depends on, in hex.

    Strings are quoted in JSON, so nothing can move from one field into the next.
    """
    line = json.dumps(fields, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(line.encode()).hexdigest()


class Store:
    """JSON values by key, on disk.

    Args:
        path: the file; its folder is made when it is not there, for this user only.
        busy: seconds to wait for other processes before giving up on the disk.

    Raises:
        ConfigError: the file is a database of something else.
    """

    def __init__(self, path: str | os.PathLike[str], *, busy: float = BUSY) -> None:
        self.path = Path(path)
        self._busy = busy
        self._disk = self._open(again=False)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def get(self, key: str) -> Any:
        """The value, or None when there is none that can be trusted."""
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values that are there, by key.  Fast enough to be called on an event loop."""
        return self._here().get(list(keys))

    def put(self, key: str, value: Any) -> None:
        """Keep a value; when this returns it is kept.

        Raises:
            TypeError, ValueError: it is not JSON.
        """
        self.put_many({key: value})

    def put_many(self, values: Mapping[str, Any]) -> None:
        """Keep many values, all or none."""
        self._do("put", _rows_of(values))

    async def aput(self, key: str, value: Any) -> None:
        """`put` for coroutines; those that wait at the same time share one transaction."""
        await self.aput_many({key: value})

    async def aput_many(self, values: Mapping[str, Any]) -> None:
        """`put_many` for coroutines."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        job = _Job(("put", _rows_of(values)), loop=loop, waiting=done)
        while not self._here().submit(job):
            continue  # it was closed just now
        await done

    def size(self) -> int:
        """Number of values."""
        return self._here().size()

    def clear(self) -> None:
        """Drop all values."""
        self._do("clear", [])

    def close(self) -> None:
        """Let go of the file; it is opened again when the store is used again."""
        self._disk.stop()

    def _do(self, kind: Any, rows: list[Row]) -> None:
        done: Future[None] = Future()
        job = _Job((kind, rows), tell=lambda: done.set_result(None))
        while not self._here().submit(job):
            continue  # it was closed just now
        done.result()

    def _here(self) -> _Disk:
        """What this process has open: after a fork the parent's connections are not ours to use."""
        disk = self._disk
        if disk.pid == os.getpid() and not disk.stopped:
            return disk
        with _LOCKS.setdefault(os.getpid(), threading.RLock()):
            if self._disk is disk:
                if disk.pid != os.getpid():
                    _PARENTS.append(disk)
                self._disk = self._open(again=True)
            return self._disk

    def _open(self, *, again: bool) -> _Disk:
        disk = _Disk(self.path, self._busy, again=again)
        weakref.finalize(self, disk.stop)
        return disk


# By process: after a fork a lock that another thread held stays locked for ever.
_LOCKS: dict[int, threading.RLock] = {}
# What a forked child inherited; closing it would be for its parent to do.
_PARENTS: list[_Disk] = []


@dataclass(slots=True)
class _Job:
    """A change, and whom to tell when it is done: a function, or a future of an event loop."""

    change: Change
    tell: Callable[[], Any] | None = None
    loop: asyncio.AbstractEventLoop | None = None
    waiting: asyncio.Future[None] | None = None


class _Disk:
    """The file as one process has it open, and the thread that writes to it.

    Commits wait for other processes and for the disk, which no event loop should; and whatever queues up
    meanwhile shares the next commit.
    """

    def __init__(self, path: Path, busy: float, *, again: bool) -> None:
        self.pid = os.getpid()
        self.stopped = False
        self._file = CacheFile(path, busy)
        self._memory: dict[str, bytes] = {}
        self._without_disk = False  # once it failed: a full disk makes every further try slow
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._submitting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._attempt(self._file.reopen if again else self._file.open)

    def get(self, keys: list[str]) -> dict[str, Any]:
        """Values by key."""
        values = {key: json.loads(text) for key in keys if (text := self._memory.get(key)) is not None}
        missing = [key for key in keys if key not in values] if values else keys
        rows = (self._attempt(lambda: self._file.read(missing)) or []) if missing else []
        spoilt: list[Row] = []
        for row in rows:
            value = _value_of(row)
            if value is _SPOILT:
                spoilt.append(row)
            else:
                values[row.key] = value
        if spoilt:
            _LOG.warning("%s: %d damaged entries are dropped", self._file.path, len(spoilt))
            self.submit(_Job(("drop", spoilt)))
        return values

    def size(self) -> int:
        """Number of values."""
        return len(self._memory) + (self._attempt(self._file.count) or 0)

    def submit(self, job: _Job) -> bool:
        """Queue a job; false when this was stopped."""
        with self._submitting:
            if self.stopped:
                return False
            if self._thread is None:
                self._start()
            self._jobs.put(job)
            return True

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="factrl-cache", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish what is queued and close the file, in the process that opened it."""
        if self.pid != os.getpid():
            return
        with self._submitting:
            if self.stopped:
                return
            self.stopped = True
            self._jobs.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(BUSY)
        self._attempt(self._file.close)

    def _work(self) -> None:
        """Write until this is stopped; whatever ends the thread before, those who wait get another one."""
        try:
            while self._write_next():
                pass
        except BaseException:
            with self._submitting:
                self._without_disk = True
                self._start()
            raise

    def _write_next(self) -> bool:
        """Commit what is queued in one transaction; false when nothing more will come."""
        jobs: list[_Job] = []
        rows = 0
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            rows += len(job.change[1])
            if rows >= _GROUP or self._jobs.empty():
                break
            job = self._jobs.get()  # only this thread takes any out
        changes = [job.change for job in jobs]
        written = False
        try:
            if changes and not self._without_disk:
                self._attempt(lambda: self._file.write(changes))
            written = not self._without_disk
        finally:
            if not written:
                self._remember(changes)
            _tell(jobs)
        return job is not None

    def _attempt(self, work: Callable[[], T]) -> T | None:
        """What `work` gives, None when the disk does not; the first time that is worth a warning."""
        try:
            return work()
        except (OSError, sqlite3.Error) as error:
            if not self._without_disk:
                self._without_disk = True
                _LOG.warning(
                    "the cache %s cannot be used (%s); entries are kept in memory", self._file.path, error
                )
            return None

    def _remember(self, changes: list[Change]) -> None:
        for kind, rows in changes:
            if kind == "clear":
                self._memory.clear()
            elif kind == "put":
                self._memory.update((row.key, row.value) for row in rows)
        while len(self._memory) > _IN_MEMORY:
            del self._memory[next(iter(self._memory))]


def _tell(jobs: list[_Job]) -> None:
    """Word to those who wait that their jobs are done."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for job in jobs:
        if job.tell is not None:
            job.tell()
        elif job.loop is not None and job.waiting is not None:
            by_loop.setdefault(job.loop, []).append(job.waiting)
    for loop, waiting in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed, nobody waits
            loop.call_soon_threadsafe(_wake, waiting)


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():  # cancelled meanwhile
            future.set_result(None)


def _rows_of(values: Mapping[str, Any]) -> list[Row]:
    rows = []
    for key, value in values.items():
        text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
        rows.append(Row(key, text, _checksum(key, text)))
    return rows


def _value_of(row: Row) -> Any:
    """The value of a row, `_SPOILT` when it is not what was put there."""
    try:
        return json.loads(row.value) if _checksum(row.key, row.value) == row.sum else _SPOILT
    except (TypeError, ValueError, RecursionError):
        return _SPOILT


def _checksum(key: str, value: bytes) -> bytes:
    """Of the value and its key, so that a value under another's key does not pass either."""
    return hashlib.blake2b(value, digest_size=16, key=hashlib.sha256(key.encode()).digest()).digest()
