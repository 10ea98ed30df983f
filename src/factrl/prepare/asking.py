"""Having a model write many texts so that each is kept as soon as it is there.

A policy in this process is faster with many texts at once, and what was written together is kept together.
A server, and the local model, are asked for one text at a time, by as many callers as the server takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from factrl.llm.writers import Writer, Written
from factrl.runs.settings import LOCAL, AskSettings
from factrl.types import Example

TOGETHER = 16  # texts of a policy in this process that are written, and lost by a kill, together
CALLERS = 16  # of a server

Batch = tuple[Sequence[Example], tuple[int, ...]]
"""Examples, and the numbers of the samples that each of them gets."""


@dataclass(frozen=True)
class Pace:
    """How a model is best asked.

    Attributes:
        together: examples of one batch.
        callers: batches that are written at once.
    """

    together: int = 1
    callers: int = 1

    def batches(self, examples: Sequence[Example], numbers: Sequence[int]) -> list[Batch]:
        """All samples in order; each alone where batches gain nothing."""
        if self.together == 1:
            return [([example], (number,)) for example in examples for number in numbers]
        starts = range(0, len(examples), self.together)
        return [(examples[start : start + self.together], tuple(numbers)) for start in starts]


def pace_of(settings: AskSettings) -> Pace:
    """The pace of the model that `model.name` names."""
    if settings.model.name == LOCAL:
        return Pace()
    if settings.model.name.startswith(("http://", "https://")):
        return Pace(callers=min(CALLERS, settings.judge.max_concurrency))
    return Pace(together=TOGETHER)


def write_each(
    writer: Writer,
    batches: Sequence[Batch],
    settings: AskSettings,
    pace: Pace,
    keep: Callable[[Example, int, Written], None],
) -> Iterator[Batch]:
    """The batches in order, each as soon as it and those before it are written.

    Args:
        keep: told of each text as soon as it is there; never by two threads at once.

    Raises:
        SetupError: as the writer.
    """
    told, lock = settings.sampling, threading.Lock()

    def write(batch: Batch) -> None:
        examples, numbers = batch
        if not examples or not numbers:
            return
        groups = writer.write(
            examples, numbers, temperature=told.temperature, top_p=told.top_p, seed=settings.run.seed
        )
        with lock:
            for example, group in zip(examples, groups, strict=True):
                for number, written in zip(numbers, group, strict=True):
                    keep(example, number, written)

    pool = ThreadPoolExecutor(pace.callers, thread_name_prefix="factrl-write")
    try:
        for batch, done in [(batch, pool.submit(write, batch)) for batch in batches]:
            done.result()
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)
