"""A store of JSON values on disk, so that nothing is paid for twice, whatever crashes meanwhile.

One SQLite file for any number of processes, threads and forks on one machine.  A `put_many` that has returned
survives `kill -9`.  A cache must never stop a run: a damaged row is a miss, a damaged file is moved aside and
replaced by an empty one, and where nothing can be written the values are kept in memory.  Nothing is evicted.

SQLite before 3.51.3 can itself damage a file, very rarely, when processes write at once
(https://sqlite.org/wal.html#walresetbug): what was in it is then paid for again.

`CachedLLM` is an LLM that remembers in it.  Only complete replies that the caller's parser accepts are
stored, and only those of requests whose reply is determined: temperature 0, or a seed.  A sampled reply
without a seed is asked for anew each time, because two samples of one prompt are two.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from factrl.errors import ConfigError, Unscored
from factrl.llm import LLM, Message, Reply, ask
from factrl.llm.background import SingleFlight, on_background, wait_for
from factrl.llm.spending import judge_meter

_TABLE = "entries_1"  # the number is the version of the format
_BATCH = 500  # keys in one query; SQLite's limit was 999 for a long time
_DAMAGED = object()
_LOG = logging.getLogger("factrl")

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

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(f"{folder}/verdicts.db")
    ...     store.put_many({digest({"claim": "Lima is in Peru."}): {"label": "supported"}})
    ...     store.get(digest({"claim": "Lima is in Peru."}))
    {'label': 'supported'}
    """

    def __init__(self, path: str | os.PathLike[str], *, busy: float = 30.0) -> None:
        self.path = Path(path)
        self._busy = busy
        self._memory: dict[str, bytes] = {}
        self._without_disk = False  # once it failed: a full disk makes every further try slow
        self._ours = False  # it was a store once: another content of the file is then damage and no mistake
        self._opened: list[sqlite3.Connection] = []  # one, or none
        self._inode: tuple[int, int] | None = None
        weakref.finalize(self, _close, self._opened)
        self._run(lambda _: None)
        self._ours = True
        _STORES.add(self)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[Path]]:
        return partial(Store, busy=self._busy), (self.path,)

    def get(self, key: str) -> Any:
        """The value, or None when there is none that can be trusted."""
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values that are there, by key.  Fast enough to be called on an event loop."""
        keys = list(keys)
        values = {key: json.loads(self._memory[key]) for key in keys if key in self._memory}
        missing = [key for key in keys if key not in values]
        damaged = 0
        for start in range(0, len(missing), _BATCH):
            batch = missing[start : start + _BATCH]
            query = f"SELECT * FROM {_TABLE} WHERE key IN ({','.join('?' * len(batch))})"  # noqa: S608
            for key, text, check in self._run(lambda it, q=query, b=batch: it.execute(q, b).fetchall()) or ():
                if (value := _value_of(key, text, check)) is _DAMAGED:
                    damaged += 1
                else:
                    values[key] = value
        if damaged:
            _LOG.warning("%s: %d damaged entries are as good as none", self.path, damaged)
        return values

    def put_many(self, values: Mapping[str, Any]) -> None:
        """Keep values, all or none; when this returns they are kept.

        Raises:
            TypeError, ValueError: a value is not JSON.
        """
        rows = []
        for key, value in values.items():
            text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
            rows.append((key, text, _checksum(key, text)))

        def write(file: sqlite3.Connection) -> None:
            with file:  # a transaction
                file.executemany(f"INSERT OR REPLACE INTO {_TABLE} VALUES (?, ?, ?)", rows)  # noqa: S608

        with _LOCK:
            if not self._without_disk:
                self._run(write)
            if self._without_disk:
                self._memory.update((key, text) for key, text, _ in rows)

    async def aput_many(self, values: Mapping[str, Any]) -> None:
        """`put_many` for coroutines: on a thread, as it waits for other processes and for the disk."""
        await asyncio.to_thread(self.put_many, values)

    def size(self) -> int:
        """Number of values."""
        rows = self._run(lambda file: file.execute(f"SELECT COUNT(*) FROM {_TABLE}").fetchall())  # noqa: S608
        return len(self._memory) + (rows[0][0] if rows else 0)

    def close(self) -> None:
        """Let go of the file; it is opened again when the store is used again."""
        with _LOCK:
            _close(self._opened)
            self._without_disk = False

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """What `work` gives, None when the disk does not; the first time that is worth a warning."""
        with _LOCK:
            if self._without_disk and not self._opened:
                return None
            try:
                if self._opened and self._inode != _inode_of(self.path):
                    _LOG.warning("the cache %s was moved, deleted or replaced and is begun anew", self.path)
                    _close(self._opened)
                try:
                    return work(self._connection())
                except sqlite3.DatabaseError as error:
                    self._set_aside(error)
                    return work(self._connection())
            except (OSError, sqlite3.Error) as error:
                if not self._without_disk:
                    self._without_disk = True
                    _LOG.warning(
                        "the cache %s cannot be used (%s); entries are kept in memory", self.path, error
                    )
                return None

    def _connection(self) -> sqlite3.Connection:
        if self._opened:
            return self._opened[0]
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # For its owner only, as prompts are in it; SQLite gives its other files the same mode.
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_mode & 0o077:
                os.chmod(self.path, 0o600)
        finally:
            os.close(descriptor)
        file = sqlite3.connect(
            self.path, timeout=self._busy, isolation_level="IMMEDIATE", check_same_thread=False
        )
        try:
            tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if tables and _TABLE not in tables:
                kind = OSError if self._ours else ConfigError
                raise kind(f"{self.path} is a database of something else; name another file")
            _use_wal(file, time.monotonic() + self._busy)
            # At NORMAL a crash of this process loses nothing, one of the machine perhaps the last commits.
            file.execute("PRAGMA synchronous = NORMAL")
            file.execute(f"CREATE TABLE IF NOT EXISTS {_TABLE} (key TEXT PRIMARY KEY, value BLOB, sum BLOB)")
        except BaseException:
            file.close()
            raise
        self._opened.append(file)
        self._inode = _inode_of(self.path)
        return file

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Move a damaged file aside, with its log; unless another process has done so.

        Raises:
            sqlite3.DatabaseError: the disk is wrong, the rights or another process, and not the file itself.
        """
        if type(error) is not sqlite3.DatabaseError and "no such table" not in str(error):
            raise error
        theirs = self._opened and self._inode != _inode_of(self.path)
        _close(self._opened)
        if theirs:
            return
        target = f"{self.path}.corrupt-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        for end in ("-wal", "-shm", ""):  # in this order the old log is never beside a new file
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}{end}", f"{target}{end}")
        _LOG.warning("the cache %s is damaged (%s); moved to %s and begun anew", self.path, error, target)


def _use_wal(file: sqlite3.Connection, until: float) -> None:
    """Write ahead; for the lock that a new file needs for that, SQLite does not wait by itself."""
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(0.01)


def _value_of(key: str, text: bytes, check: bytes) -> Any:
    """The value of a row, `_DAMAGED` when it is not what was put there."""
    try:
        return json.loads(text) if check == _checksum(key, text) else _DAMAGED
    except (TypeError, ValueError, RecursionError):
        return _DAMAGED


def _checksum(key: str, value: bytes) -> bytes:
    """Of the value and its key, so that a value under another's key does not pass either."""
    return hashlib.blake2b(value, digest_size=16, key=hashlib.sha256(key.encode()).digest()).digest()


def _inode_of(path: Path) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _close(opened: list[sqlite3.Connection]) -> None:
    while opened:
        with contextlib.suppress(OSError, sqlite3.Error):  # the last one checkpoints, which may fail
            opened.pop().close()


# Held while anybody is inside SQLite, and over a fork: its own locks would stay locked in the child for ever.
_LOCK = threading.RLock()
_STORES: weakref.WeakSet[Store] = weakref.WeakSet()
_INHERITED: list[sqlite3.Connection] = []  # what a parent has open is not its child's to use or to close


def _after_fork_in_child() -> None:
    for store in _STORES:
        _INHERITED.extend(store._opened)
        store._opened.clear()
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_after_fork_in_child
    )


class CachedLLM:
    """An `LLM` that asks another one only what it has not stored.

    Args:
        llm: the other one.
        store: where replies are kept; may hold other things too.

    Raises:
        ConfigError: nothing says which model it is.
    """

    def __init__(self, llm: LLM, store: Store) -> None:
        if not hasattr(llm, "identity"):
            raise ConfigError(f"{llm!r} has no `identity` that says which model it is; set llm.identity")
        self.llm, self._store = llm, store
        self._read: Callable[[str], object] = str
        self._flights: SingleFlight[Reply] = SingleFlight()

    def __repr__(self) -> str:
        return f"CachedLLM({self.llm!r}, {self._store!r})"

    @property
    def identity(self) -> str:
        """Which model answers."""
        return getattr(self.llm, "identity", "")

    def accepting(self, read: Callable[[str], object]) -> CachedLLM:
        """The same, which stores only what `read` can read.

        A reply for which it raises `Unscored` is handed to the caller all the same, and asked for anew next
        time.
        """
        other = copy.copy(self)
        other._read = read
        return other

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The stored reply, or a new one.  A stored one has taken 0 attempts.

        Raises:
            LLMError: as `llm.complete`.
        """
        return wait_for(self._complete(messages, temperature, max_tokens, sampling))

    async def acomplete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """`complete` for coroutines, whichever event loop they run on."""
        return await on_background(self._complete(messages, temperature, max_tokens, sampling))

    async def _complete(
        self, messages: Sequence[Message], temperature: float, max_tokens: int, sampling: dict[str, Any]
    ) -> Reply:
        request = {"temperature": temperature, "max_tokens": max_tokens, **sampling}
        if temperature > 0 and sampling.get("seed") is None:
            return await ask(self.llm, messages, **request)
        if (find := getattr(self.llm, "find_model", None)) is not None:
            await find()
        key = digest(
            {
                "kind": "reply/1",
                "llm": self.identity,
                "messages": [dict(message) for message in messages],
                "request": {**request, "temperature": float(temperature)},
            }
        )
        is_new = False

        def ask_now() -> Coroutine[Any, Any, Reply]:
            nonlocal is_new
            is_new = True
            return self._ask(key, messages, request)

        reply = _reply_of(self._store.get(key)) or await self._flights.once(key, ask_now)
        if not is_new and (meter := judge_meter(self.llm)) is not None:
            meter.cached += 1
        return reply

    async def _ask(self, key: str, messages: Sequence[Message], request: dict[str, Any]) -> Reply:
        reply = await ask(self.llm, messages, **request)
        if reply.finish_reason != "stop":
            return reply
        with contextlib.suppress(Unscored):
            self._read(reply.text)
            fields = ("text", "finish_reason", "model", "tokens_in", "tokens_out", "request_id")
            await self._store.aput_many({key: {name: getattr(reply, name) for name in fields}})
        return reply


def kept(llm: LLM, store: Store | None, read: Callable[[str], object] | None = None) -> LLM:
    """`llm`, which is not asked twice; as it is without a store or an identity.

    Args:
        read: what a reply must be readable by to be stored (`CachedLLM.accepting`).
    """
    if store is None or not hasattr(llm, "identity"):
        return llm
    cached = CachedLLM(llm, store)
    return cached if read is None else cached.accepting(read)


def _reply_of(stored: Any) -> Reply | None:
    """The reply that a stored value is, None when it is not one."""
    try:
        reply = Reply(**stored, attempts=0)
    except TypeError:
        return None
    return reply if isinstance(reply.text, str) and reply.finish_reason == "stop" else None
