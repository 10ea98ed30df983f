"""Work that several callers want at the same time, done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


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
