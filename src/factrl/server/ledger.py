"""Answers by idempotency key: a request that is sent again is answered again, and not worked on again.

The answers are in the store that the workers share, so a key holds over workers and restarts.  While a key
is being worked on, whoever else sends it waits: in this process for the same work, in another one for a lock
that its owner's death releases.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factrl.llm.store import Store, digest

Answer = Mapping[str, Any]
LASTING = 86_400.0  # seconds after which all answers are dropped
_BEGUN = "begun"  # when the first of the answers in the store was given
_AGAIN = 0.05  # seconds
_JUMP = 2 * 3600.0  # seconds that a clock may be set back by and no answer be lost


class OtherBody(Exception):
    """The key was used for another request."""


class Ledger:
    """Answers in a store; see above.

    Args:
        store: shared by all workers.
        scope: everything on the server's side that decides an answer: rewards, knobs, judge, version.
    """

    def __init__(self, store: Store, scope: Mapping[str, Any]) -> None:
        self._store, self._scope = store, digest(scope)
        self._locks = _Locks(self.locks_of(store.path))
        self._mutex = threading.Lock()
        self._begun = 0.0
        self._under_way: dict[str, tuple[str, Future[Answer]]] = {}

    @staticmethod
    def locks_of(store: Path) -> Path:
        """The file beside a store whose bytes are locked."""
        return store.with_name(f"{store.name}.requests")

    def once(
        self,
        key: str,
        body: str,
        work: Callable[[], Answer],
        lasting: Callable[[Answer], bool] = lambda _: True,
    ) -> Answer:
        """The answer to a request, worked out by `work` unless it was before; blocks the thread.

        Args:
            key: the client's; empty does the work each time.
            body: a digest of the request.
            lasting: whether an answer may be given again later; an outage may not.

        Raises:
            OtherBody: the key belongs to another request.
        """
        if not key:
            return work()
        self._drop_old()
        place = digest({"request": key, "scope": self._scope})
        with self._mutex:
            known, future = self._under_way.get(place, ("", None))
            mine = future is None
            if future is None:
                future = Future()
                self._under_way[place] = (body, future)
        if not mine:
            if known != body:
                raise OtherBody
            return future.result()
        try:
            with self._locks.held(place):
                answer = self._kept(place, body)
                if answer is None:
                    answer = work()
                    if lasting(answer):
                        self._store.put(place, {"body": body, "answer": answer})
            future.set_result(answer)
            return answer
        except BaseException as error:
            future.set_exception(error)
            future.exception()  # nobody may be waiting for it
            raise
        finally:
            with self._mutex:
                del self._under_way[place]

    def _drop_old(self) -> None:
        """Once a day all answers are dropped: a client that comes back does so within minutes."""
        now = time.time()
        with self._mutex:
            if -_JUMP <= now - self._begun <= LASTING:
                return
            self._begun = float(self._store.get(_BEGUN) or 0.0)  # another worker may have done it
            if not -_JUMP <= now - self._begun <= LASTING:
                self._store.clear()
                self._store.put(_BEGUN, now)
                self._begun = now

    def _kept(self, place: str, body: str) -> Answer | None:
        kept = self._store.get(place)
        if kept is None:
            return None
        if kept["body"] != body:
            raise OtherBody
        return kept["answer"]


class _Locks:
    """Single bytes of a file, each a lock over processes that the system lets go when its holder dies.

    One descriptor for all: closing any other one would let go of every lock that this process has.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    @contextmanager
    def held(self, place: str) -> Iterator[None]:
        """Hold the lock of a key; blocks while another process does."""
        byte = int(place[:15], 16)
        while not self._is_taken(byte):
            time.sleep(_AGAIN)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)

    def _is_taken(self, byte: int) -> bool:
        """Wait for a lock and take it, unless the system sees a deadlock.

        It knows processes alone: two of them whose threads wait for each other's other threads are none, and
        it is over as soon as one of the locks is let go.
        """
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX, 1, byte)
        except OSError as error:
            if error.errno != errno.EDEADLK:
                raise
            return False
        return True
