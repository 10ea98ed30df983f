"""Calls that many workers make one at a time, answered together.

The rewards of a batch run side by side, each on its own thread and unaware of the others.  What they ask of
one resource is cheaper asked at once: claims fill a model's batch, and texts that answer one question share
what is found for it.  A resource that has `answer_together` is therefore not called by the workers: their
calls are collected until every worker waits, or until none has asked for `PAUSE` seconds because some are
busy elsewhere, and then answered in one go.

This is not a cache.  Every call gets the answer that it would have got alone, except from a verifier with
`share`: its evidence is that of the texts handed over with it, which a reward that waits elsewhere can split.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from factrl.llm.background import check_may_block

PAUSE = 0.05  # seconds without a new call after which those that wait are answered

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and named arguments of one call."""


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
        self._asked: list[tuple[AnswersTogether, Call, Future[Any]]] = []
        self._changed = threading.Condition()
        self._over = False
        self._watch = threading.Thread(target=self._answer_all, name="factrl-together", daemon=True)
        self._answering = ThreadPoolExecutor(threads, thread_name_prefix="factrl-together")

    def __enter__(self) -> Workers:
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = True
            for _, _, future in self._asked:
                future.cancel()
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
                self._asked.append((resource, (args, named), answer))
                self._waiting += 1
                self._changed.notify()
            return answer.result()

        return ask

    def done(self) -> None:
        """One task has ended, well or not."""
        with self._changed:
            self._left -= 1
            self._changed.notify()

    def _answer_all(self) -> None:
        with self._changed:
            while not self._over:
                before = len(self._asked)
                everyone = self._waiting >= min(self._left, self._threads)
                if not before:
                    self._changed.wait()
                elif everyone or self._quiet(before):
                    self._hand_over()

    def _quiet(self, before: int) -> bool:
        """Whether nobody asked for a while; false also when all is over meanwhile."""
        changed = self._changed.wait(PAUSE)
        return not changed and len(self._asked) == before and not self._over

    def _hand_over(self) -> None:
        asked, self._asked = self._asked, []
        by_resource: dict[int, list[tuple[AnswersTogether, Call, Future[Any]]]] = {}
        for one in asked:
            by_resource.setdefault(id(one[0]), []).append(one)
        for several in by_resource.values():
            resource, calls = several[0][0], [call for _, call, _ in several]
            given = self._answering.submit(_answers, resource, calls)
            given.add_done_callback(partial(self._deliver, [future for _, _, future in several]))

    def _deliver(self, futures: Sequence[Future[Any]], given: Future[list[Any]]) -> None:
        failure = given.exception()
        answers = [] if failure else given.result()
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
