"""The one event loop on which all network I/O runs, in a thread of its own.

Rewards are called from many threads and from programs that have event loops of their own, while
connections and semaphores belong to the loop that made them.  So there is one, and callers block.

`Workers` is for callers that block on one resource.  The rewards of a batch run side by side, each on its own
thread and unaware of the others.  Their calls of one resource are cheaper when they are answered together:
claims fill a model's batch, and texts that answer one question share their search results.  So the calls of a
resource that has `answer_together` are collected until every worker waits, or until no call has come for
`PAUSE` seconds because some workers are busy elsewhere, and then answered in one go.  This is not a cache.
Every call gets the answer that it would have got alone, except from a verifier with `share`: its evidence is
that of the texts handed over with it, and a reward that waits elsewhere can split these.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Hashable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

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
        raise RuntimeError(
            "a blocking call was made on factrl's own event loop; write the function with `def`, and call "
            "what it is given without `await`"
        )


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


async def on_thread(pool: str, threads: int, work: Callable[..., T], /, *args: Any, **named: Any) -> T:
    """What `work` gives, on a thread and in the caller's context; for work that blocks.

    Args:
        pool: whose threads; work that waits for other such work needs others than that has.
        threads: how many there are.
    """
    call = functools.partial(contextvars.copy_context().run, work, *args, **named)
    return await asyncio.get_running_loop().run_in_executor(_threads(pool, threads, os.getpid()), call)


@functools.cache
def _threads(pool: str, threads: int, process: int) -> ThreadPoolExecutor:
    """A pool of this process: after a fork the parent's threads are gone."""
    del process
    return ThreadPoolExecutor(threads, thread_name_prefix=f"factrl-{pool}")


class SingleFlight(Generic[T]):
    """Shares the results of work that is under way; remembers nothing once it is done.

    Used on one event loop at a time: on a new one, as after a fork, it begins anew.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[Hashable, asyncio.Task[T]] = {}
        self._waiting: dict[Hashable, int] = {}

    def __reduce__(self) -> tuple[type[SingleFlight[T]], tuple[()]]:
        return type(self), ()  # what is under way stays in the process that does it

    async def once(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
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
                self._land(key, task)  # the next caller starts anew
            raise
        finally:
            if self._tasks.get(key) is task:
                self._waiting[key] -= 1

    def _land(self, key: Hashable, task: asyncio.Task[T]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key], self._waiting[key]
        if not task.cancelled():
            task.exception()  # seen, even when every caller has gone


PAUSE = 0.05  # seconds without a new call after which those that wait are answered

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and named arguments of one call."""
_Request = tuple["AnswersTogether", Call, Future[Any]]


class AnswersTogether(Protocol):
    """A resource that answers many calls at once."""

    def answer_together(self, calls: Sequence[Call]) -> Sequence[Any]:
        """The answers to `calls`, in their order.  An exception among them is raised by that call alone; what
        this method raises, every one of these calls raises."""
        ...


class Workers:
    """The workers of one batch; a context manager, outside of which nothing is answered.

    Args:
        tasks: how many tasks there are.
        threads: how many of them run at a time.
    """

    def __init__(self, tasks: int, threads: int) -> None:
        self._left, self._threads, self._waiting = tasks, threads, 0
        self._requests: list[_Request] = []
        self._changed = threading.Condition()
        self._over = False
        self._watch = threading.Thread(target=self._answer_all, name="factrl-together", daemon=True)
        self._answering = ThreadPoolExecutor(threads, thread_name_prefix="factrl-together")

    def __enter__(self) -> Workers:
        self._watch.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        with self._changed:
            self._over = True
            for request in self._requests:
                request[2].cancel()
            self._changed.notify()
        self._answering.shutdown(wait=kind is None)

    def share(self, resource: AnswersTogether) -> Callable[..., Any]:
        """A function that stands for `resource` in the hands of these workers."""

        def ask(*args: Any, **named: Any) -> Any:
            check_may_block()
            answer: Future[Any] = Future()
            with self._changed:
                if self._over:
                    raise CancelledError
                self._requests.append((resource, (args, named), answer))
                self._waiting += 1
                self._changed.notify()
            return answer.result()

        return functools.update_wrapper(ask, resource, updated=())  # type: ignore[arg-type]  # with its signature

    def done(self) -> None:
        """One task has ended, well or not."""
        with self._changed:
            self._left -= 1
            self._changed.notify()

    def _answer_all(self) -> None:
        with self._changed:
            while not self._over:
                before = len(self._requests)
                everyone = self._waiting >= min(self._left, self._threads)
                if not before:
                    self._changed.wait()
                elif everyone or self._quiet(before):
                    self._hand_over()

    def _quiet(self, before: int) -> bool:
        """Whether nobody asked for a while; false also when all is over meanwhile."""
        changed = self._changed.wait(PAUSE)
        return not changed and len(self._requests) == before and not self._over

    def _hand_over(self) -> None:
        requests, self._requests = self._requests, []
        by_resource: dict[int, list[_Request]] = {}
        for request in requests:
            by_resource.setdefault(id(request[0]), []).append(request)
        for several in by_resource.values():
            job = self._answering.submit(_answers, several[0][0], [call for _, call, _ in several])
            job.add_done_callback(functools.partial(self._deliver, [future for _, _, future in several]))

    def _deliver(self, futures: Sequence[Future[Any]], job: Future[list[Any]]) -> None:
        failure = job.exception()
        answers = [] if failure else job.result()
        with self._changed:  # none of them waits any more, also those that have yet to wake up
            self._waiting -= len(futures)
        for number, future in enumerate(futures):
            answer = failure or answers[number]
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _answers(resource: AnswersTogether, calls: Sequence[Call]) -> list[Any]:
    answers = list(resource.answer_together(calls))
    if len(answers) != len(calls):
        raise RuntimeError(f"a resource gave {len(answers)} answers to {len(calls)} calls")
    return answers
