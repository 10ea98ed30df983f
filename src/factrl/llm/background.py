"""The one event loop on which all network I/O runs, in a thread of its own.

Rewards are called from many threads and from programs that have event loops of their own, while
connections and semaphores belong to the loop that made them.  So there is one, and callers block.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

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
