"""The one event loop on which all network I/O runs, in a thread of its own.

Rewards are called from many threads and from programs that have event loops of their own, while
connections and semaphores belong to the loop that made them.  So there is one, and callers block.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

# Both by process: after a fork the parent's thread is gone, and a lock it held stays locked for ever.
# Reentrant, because a collected client asks for the loop from wherever the collector happens to run.
_LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
_LOCKS: dict[int, threading.RLock] = {}


def background_loop() -> asyncio.AbstractEventLoop:
    """The running loop of this process, started when first asked for."""
    pid = os.getpid()
    with _LOCKS.setdefault(pid, threading.RLock()):
        if pid not in _LOOPS:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="factrl-io", daemon=True).start()
            _LOOPS[pid] = loop
        return _LOOPS[pid]


async def on_background(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the background loop for a caller on any loop; it is cancelled with the caller."""
    loop = background_loop()
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def check_may_block() -> None:
    """Refuse a blocking call on the background loop, which would wait for itself for ever.

    Raises:
        RuntimeError: this is that loop's thread.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:  # the usual case: no loop in this thread
        return
    if running is _LOOPS.get(os.getpid()):
        raise RuntimeError("a blocking call was made on factrl's own event loop")


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the background loop and block this thread until it is done.

    Raises:
        RuntimeError: called on the background loop itself, which would wait for itself for ever.
    """
    try:
        check_may_block()
    except RuntimeError:
        work.close()
        raise
    future = asyncio.run_coroutine_threadsafe(work, background_loop())
    try:
        return future.result()
    finally:
        future.cancel()  # an interrupted caller leaves no request behind


class Flights(Generic[T]):
    """Shares the results of work that is under way; remembers nothing once it is done.

    Used on one event loop at a time: on a new one, as after a fork, it begins anew.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[str, asyncio.Task[T]] = {}
        self._waiting: dict[str, int] = {}

    def __contains__(self, key: str) -> bool:
        """Whether work for `key` is under way; asked on the loop that does it."""
        return asyncio.get_running_loop() is self._loop and key in self._tasks

    async def once(self, key: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result, or the error, of `make()`, which runs once for all callers that ask meanwhile.

        A caller that is cancelled leaves the work to the others; with the last of them it is cancelled too.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._tasks, self._waiting = loop, {}, {}
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = loop.create_task(make())
            self._waiting[key] = 0
            task.add_done_callback(lambda done: self._land(key, done))
        self._waiting[key] += 1
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if self._tasks.get(key) is task and self._waiting[key] == 1:
                task.cancel()
                self._land(key, task)  # whoever comes now starts anew
            raise
        finally:
            if self._tasks.get(key) is task:
                self._waiting[key] -= 1

    def _land(self, key: str, task: asyncio.Task[T]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key], self._waiting[key]
        if not task.cancelled():
            task.exception()  # seen, even when every caller has gone
