"""A progress bar with the time left on a terminal, a heartbeat line every 30 seconds elsewhere.

Everything goes to stderr; stdout stays free for data.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

HEARTBEAT_SECONDS = 30.0
T = TypeVar("T")


class Progress:
    """Counts `total` units of work; use as a context manager.

    Args:
        label: what is being done.
        total: how many units make it complete.
        stream: where to write; stderr by default.
        already: units of `total` that were done earlier; the time left is guessed from the others.
        pace: units of a second as far as one can tell before; the time left is then known from the start.
    """

    def __init__(
        self,
        label: str,
        total: int,
        stream: TextIO | None = None,
        *,
        already: int = 0,
        pace: float | None = None,
    ) -> None:
        self.label = label
        self.total = total
        self.already, self.pace = already, pace
        self.done: float = already
        self._stream = stream or sys.stderr
        self._started = self._last_beat = time.monotonic()
        self._bar = None

    def __enter__(self) -> Progress:
        if self._stream.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeElapsedColumn,
            )

            self._bar = Progress(
                TextColumn("{task.description:<24}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn() if self.pace is None else TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[left]}"),  # rich forgets what took more than half a minute
                TextColumn("[dim]{task.fields[note]}"),
                console=Console(file=self._stream),
                redirect_stdout=sys.stdout.isatty(),  # else it would take data of a pipe to the terminal
            )
            self._bar.start()
            left = "" if self.pace is None else f"{self._left()} left"
            self._task = self._bar.add_task(
                self.label, total=self.total, completed=self.already, left=left, note=""
            )
        else:
            self._write("started" if self.pace is None else f"started, about {self._left()} left")
        return self

    def advance(self, units: float = 1, note: str = "") -> None:
        """Count `units` more as done; `note` is what a person wants to see right now."""
        self.done += units
        if self._bar is not None:
            left = f"{self._left()} left" if self.done < self.total else ""
            self._bar.update(self._task, completed=self.done, left=left, note=note)
        elif time.monotonic() - self._last_beat >= HEARTBEAT_SECONDS:
            self._write(f"{round(self.done)}/{self.total}, {self._left()} left{', ' + note if note else ''}")

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The items, each counted as done when the next one is wanted."""
        for item in items:
            yield item
            self.advance()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        else:
            whole = kind is None and self.done >= self.total
            state = "done" if whole else f"stopped at {round(self.done)}/{self.total}"
            self._write(f"{state} after {clock(time.monotonic() - self._started)}")

    def _left(self) -> str:
        elapsed, new = time.monotonic() - self._started, self.done - self.already
        if self.pace is not None:  # counts as much as a tenth of the work
            elapsed, new = elapsed + self.total / 10 / self.pace, new + self.total / 10
        return clock(elapsed / new * (self.total - self.done)) if new else "?"

    def _write(self, text: str) -> None:
        self._last_beat = time.monotonic()
        self._stream.write(f"{self.label}: {text}\n")
        self._stream.flush()


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds.

    >>> clock(75)
    '1:15'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
