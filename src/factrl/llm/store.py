"""A store of JSON values on disk: what was paid for once is not paid for again, whatever crashes meanwhile.

One SQLite file for any number of processes, threads and forks on one machine.  A `put` that has returned
survives `kill -9`.  A cache must never stop a run: a damaged row is a miss, a damaged file is moved aside and
begun anew, and where nothing can be written the values are kept in memory.  Nothing is evicted.

`CachedLLM` is an LLM that remembers in it.  Only complete replies that the caller's parser accepts are
stored, and only those of requests whose reply is determined: temperature 0, or a seed.  A sampled reply
without a seed is asked for anew each time, because two samples of one prompt are two.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from factrl.errors import ConfigError, Unscored
from factrl.llm import LLM, Message, Reply, ask
from factrl.llm.background import Flights, on_background, wait_for
from factrl.llm.spending import Usage
from factrl.llm.store_file import Row, StoreFile

BUSY = 30.0  # seconds that one process waits for the others
_IN_MEMORY = 100_000  # values kept when there is no disk; the oldest go first
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
    """

    def __init__(self, path: str | os.PathLike[str], *, busy: float = BUSY) -> None:
        self.path = Path(path)
        self._busy = busy
        self._memory: dict[str, bytes] = {}
        self._without_disk = False  # once it failed: a full disk makes every further try slow
        self._begin(StoreFile(self.path, busy))
        self._attempt(self._file.open)
        self._file.ours = True

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def get(self, key: str) -> Any:
        """The value, or None when there is none that can be trusted."""
        return self.get_many((key,)).get(key)

    def get_many(self, keys: Iterable[str]) -> dict[str, Any]:
        """The values that are there, by key.  Fast enough to be called on an event loop."""
        keys = list(keys)
        values = {key: json.loads(text) for key in keys if (text := self._memory.get(key)) is not None}
        missing = [key for key in keys if key not in values] if values else keys
        rows = self._read(lambda: self._file.read(missing)) or [] if missing else []
        values.update((row.key, value) for row in rows if (value := _value_of(row)) is not _DAMAGED)
        damaged = sum(row.key not in values for row in rows)
        if damaged:
            _LOG.warning("%s: %d damaged entries are as good as none", self.path, damaged)
        return values

    def put(self, key: str, value: Any) -> None:
        """Keep a value; when this returns it is kept.

        Raises:
            TypeError, ValueError: it is not JSON.
        """
        self.put_many({key: value})

    def put_many(self, values: Mapping[str, Any]) -> None:
        """Keep many values, all or none."""
        self._commit(values).result()

    async def aput(self, key: str, value: Any) -> None:
        """`put` for coroutines."""
        await self.aput_many({key: value})

    async def aput_many(self, values: Mapping[str, Any]) -> None:
        """`put_many` for coroutines."""
        # Others wait for the same commit: a caller that is cancelled leaves it alone.
        await asyncio.shield(asyncio.wrap_future(self._commit(values)))

    def size(self) -> int:
        """Number of values."""
        return len(self._memory) + (self._read(self._file.count) or 0)

    def close(self) -> None:
        """Let go of the file; it is opened again when the store is used again."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()
        self._attempt(self._file.close)
        self._without_disk = False

    def _begin(self, file: StoreFile) -> None:
        """Nothing is under way: the store is new, or its process is."""
        self._file = file
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._next: Future[None] | None = None
        self._thread: ThreadPoolExecutor | None = None
        weakref.finalize(self, _close, file)
        _STORES.add(self)

    def _commit(self, values: Mapping[str, Any]) -> Future[None]:
        """The transaction that values will be part of; what comes while one is under way shares the next.

        A thread writes: commits wait for other processes and for the disk, which no event loop should.
        """
        rows = _rows_of(values)
        with self._lock:
            self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="factrl-cache")
            self._rows += rows
            self._next = self._next or self._thread.submit(self._write)
            return self._next

    def _write(self) -> None:
        with self._lock:
            rows, self._rows, self._next = self._rows, [], None
        if not self._without_disk:
            self._attempt(lambda: self._file.write(rows))
        if not self._without_disk:
            return
        self._memory.update((key, value) for key, value, _ in rows)
        while len(self._memory) > _IN_MEMORY:
            del self._memory[next(iter(self._memory))]

    def _read(self, query: Callable[[], T]) -> T | None:
        """What is in the file, as long as it can be read."""
        return None if self._without_disk and not self._file.is_open else self._attempt(query)

    def _attempt(self, work: Callable[[], T]) -> T | None:
        """What `work` gives, None when the disk does not; the first time that is worth a warning."""
        try:
            return work()
        except (OSError, sqlite3.Error) as error:
            if not self._without_disk:
                self._without_disk = True
                _LOG.warning("the cache %s cannot be used (%s); entries are kept in memory", self.path, error)
            return None

    def _hold(self) -> None:
        """Before a fork: let nobody be inside SQLite, whose locks would stay locked in the child for ever."""
        for lock in (self._lock, self._file.writing, self._file.reading):
            lock.acquire()

    def _go_on(self) -> None:
        """After a fork, in the parent."""
        for lock in (self._file.reading, self._file.writing, self._lock):
            lock.release()

    def _begin_anew(self) -> None:
        """After a fork, in the child: what the parent has open is not ours to use or to close."""
        _INHERITED.append(self._file)
        self._file.disown()
        file = StoreFile(self.path, self._busy)
        file.ours = True
        self._begin(file)


def _close(file: StoreFile) -> None:
    """For a store that was collected, and at the end of the process."""
    with contextlib.suppress(OSError, sqlite3.Error):  # nobody is left to be told
        file.close()


def _rows_of(values: Mapping[str, Any]) -> list[Row]:
    rows = []
    for key, value in values.items():
        text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
        rows.append(Row(key, text, _checksum(key, text)))
    return rows


def _value_of(row: Row) -> Any:
    """The value of a row, `_DAMAGED` when it is not what was put there."""
    try:
        return json.loads(row.value) if _checksum(row.key, row.value) == row.sum else _DAMAGED
    except (TypeError, ValueError, RecursionError):
        return _DAMAGED


def _checksum(key: str, value: bytes) -> bytes:
    """Of the value and its key, so that a value under another's key does not pass either."""
    return hashlib.blake2b(value, digest_size=16, key=hashlib.sha256(key.encode()).digest()).digest()


_STORES: weakref.WeakSet[Store] = weakref.WeakSet()
_INHERITED: list[StoreFile] = []
_FORKING: list[Store] = []


def _before_fork() -> None:
    _FORKING.extend(_STORES)
    for store in _FORKING:
        store._hold()


def _after_fork(act: Callable[[Store], None]) -> None:
    while _FORKING:
        act(_FORKING.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(Store._go_on),
        after_in_child=lambda: _after_fork(Store._begin_anew),
    )


class CachedLLM:
    """An `LLM` in front of another one.

    Args:
        llm: who is asked what is not stored.
        store: where replies are kept; may hold other things too.
        accept: whether a reply may be stored: give the parser that will read it.  A reply that it turns down
            is handed to the caller all the same, and asked for anew next time.
        identity: everything about the model that changes its replies; by default `llm.identity`.

    Raises:
        ConfigError: nothing says which model it is.
    """

    def __init__(
        self,
        llm: LLM,
        store: Store,
        *,
        accept: Callable[[Reply], bool] | None = None,
        identity: str | None = None,
    ) -> None:
        if identity is None and not hasattr(llm, "identity"):
            raise ConfigError(f"{llm!r} does not say which model it is; give identity=")
        self.llm = llm
        self._store = store
        self._accept = accept
        self._identity = identity
        self._flights: Flights[Reply] = Flights()

    def __repr__(self) -> str:
        return f"CachedLLM({self.llm!r}, {self._store!r})"

    @property
    def identity(self) -> str:
        """Which model answers."""
        return getattr(self.llm, "identity", "") if self._identity is None else self._identity

    @property
    def usage(self) -> Usage | None:
        """What `llm` has sent, and how often it was spared; None when it does not count."""
        return getattr(self.llm, "usage", None)

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
        reply = _read(self._store.get(key))
        if reply is None and key not in self._flights:
            return await self._flights.once(key, lambda: self._ask(key, messages, request))
        if (meter := getattr(self.llm, "meter", None)) is not None:
            meter.cached += 1
        return reply or await self._flights.once(key, lambda: self._ask(key, messages, request))

    async def _ask(self, key: str, messages: Sequence[Message], request: dict[str, Any]) -> Reply:
        reply = await ask(self.llm, messages, **request)
        if reply.finish_reason == "stop" and (self._accept is None or self._accept(reply)):
            fields = ("text", "finish_reason", "model", "tokens_in", "tokens_out", "request_id")
            await self._store.aput(key, {name: getattr(reply, name) for name in fields})
        return reply


def kept(llm: LLM, store: Store | None, accept: Callable[[Reply], bool]) -> LLM:
    """`llm`, not asked again what it answered acceptably before; as it is without a store or an identity."""
    return llm if store is None or not hasattr(llm, "identity") else CachedLLM(llm, store, accept=accept)


def readable(read: Callable[[Reply], object]) -> Callable[[Reply], bool]:
    """Accepts the replies that `read` can read; for others it raises `Unscored`."""

    def accept(reply: Reply) -> bool:
        try:
            read(reply)
        except Unscored:
            return False
        return True

    return accept


def _read(stored: Any) -> Reply | None:
    """The reply that a stored value is, None when it is not one."""
    try:
        reply = Reply(**stored, attempts=0)
    except TypeError:
        return None
    return reply if isinstance(reply.text, str) and reply.finish_reason == "stop" else None
