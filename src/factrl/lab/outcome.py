"""What a table measured: every arm on every seed, means over the seeds, and whether the papers' signs appear.

Each seed has a world and a pretrained model of its own.  An effect is the change against the pretrained model
of the same seed.  It is `up` or `down` when its mean is at least as large as the column asks and it has the
same sign in every seed; otherwise it is `none`.  Torch is loaded when a table is run, not before.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from factrl.runs.progress import Progress

from .tables import BASE, Column, Direction, Row, Table, direction_of, make_world

if TYPE_CHECKING:
    from .arms import ArmResult


@dataclass(frozen=True, slots=True)
class ArmRuns:
    """One arm on every seed, in the order of the seeds."""

    row: Row
    runs: tuple[ArmResult, ...]

    def values(self, column: Column) -> list[float]:
        """The metric after training, by seed, in the column's units."""
        return [column.scale * run.metrics[column.metric] for run in self.runs]

    def mean(self, column: Column) -> float:
        """Over the seeds."""
        return statistics.fmean(self.values(column))

    def deviation(self, column: Column) -> float | None:
        """Sample standard deviation over the seeds; None for one seed."""
        values = self.values(column)
        return statistics.stdev(values) if len(values) > 1 else None

    def path(self, metric: str) -> list[tuple[int, float]]:
        """Step and mean over the seeds, for the steps that every seed has."""
        curves = [{point.step: point.metrics[metric] for point in run.curve} for run in self.runs]
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        return [(step, statistics.fmean(curve[step] for curve in curves)) for step in steps]

    @property
    def cpu_seconds(self) -> float:
        """Of all seeds together."""
        return sum(run.cpu_seconds for run in self.runs)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that a table measured.

    Attributes:
        steps: optimizer steps of each arm.
        seconds: wall time, pretraining included.
        pretraining: the part of it that made or loaded the pretrained models.
        made: how many of those were made now, not loaded.
    """

    table: Table
    seeds: tuple[int, ...]
    steps: int
    base: ArmRuns
    arms: tuple[ArmRuns, ...]
    seconds: float
    pretraining: float
    made: int

    @property
    def judged(self) -> tuple[Column, ...]:
        """The columns that are held against the papers."""
        return tuple(column for column in self.table.columns if column.judged)

    def effect(self, arm: ArmRuns, column: Column) -> Direction:
        """Which way the arm moved the metric here; see the head of this module."""
        before = self.base.values(column)
        changes = [after - first for first, after in zip(before, arm.values(column), strict=True)]
        same = all(change > 0 for change in changes) or all(change < 0 for change in changes)
        return direction_of(statistics.fmean(changes), column.least) if same else "none"

    def agreement(self, arm: ArmRuns) -> tuple[int, int]:
        """How many of the paper's directions were found here, of how many."""
        told = [(arm.row.reported(column), self.effect(arm, column)) for column in self.judged]
        known = [(paper, here) for paper, here in told if paper is not None]
        return sum(paper == here for paper, here in known), len(known)

    def ranking(self) -> tuple[list[str], list[str]] | None:
        """Arms from the lowest to the highest by the table's `order`: the paper's and ours."""
        column = next((column for column in self.table.columns if column.metric == self.table.order), None)
        if column is None:
            return None
        ranked = [arm for arm in self.arms if column.metric in arm.row.paper]
        paper = sorted(ranked, key=lambda arm: arm.row.paper[column.metric])
        here = sorted(ranked, key=lambda arm: arm.mean(column))
        return [arm.row.arm for arm in paper], [arm.row.arm for arm in here]


def run_table(table: Table, seeds: Sequence[int], steps: int | None = None) -> Outcome:
    """Run every arm of a table on every seed, with a progress bar for each arm.

    Args:
        steps: optimizer steps of each arm; by default the table's.
    """
    from .arms import run_arm
    from .model import pretrained

    started, steps = time.monotonic(), steps or table.steps
    starts = []
    with Progress("pretrained models, %", 100 * len(seeds)) as progress:
        for number, seed in enumerate(seeds):
            world = make_world(table.world, seed)
            counted = _counter(progress, 100 * number)
            starts.append((seed, world, pretrained(world, seed, on_step=_percent(counted))))
            counted(100)
    pretraining = time.monotonic() - started

    def runs(row: Row) -> ArmRuns:
        each = 1 if row.arm == BASE else steps
        with Progress(row.arm, each * len(seeds)) as progress:
            results = []
            for number, (seed, world, base) in enumerate(starts):
                counted = _counter(progress, number * each)
                results.append(run_arm(world, base, row.arm, seed, steps, on_step=counted))
                counted(each)
        return ArmRuns(row, tuple(results))

    base, arms = runs(Row(BASE)), tuple(runs(row) for row in table.rows)
    made = sum(not base.cached for _, _, base in starts)
    return Outcome(table, tuple(seeds), steps, base, arms, time.monotonic() - started, pretraining, made)


def _counter(progress: Progress, before: int) -> Callable[[int], None]:
    """Says which step of a seed is done, after `before` steps of earlier seeds."""
    return lambda step: progress.advance(before + step - progress.done)


def _percent(counted: Callable[[int], None]) -> Callable[[int, int], None]:
    return lambda step, steps: counted(100 * step // steps)
