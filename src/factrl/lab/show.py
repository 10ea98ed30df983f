"""What a lab run found: a table with means and deviations over seeds, and the papers' signs beside ours.

Each seed has a world and a pretrained model of its own.  An effect is the change against the pretrained
model of the same seed: `up` or `down` when its mean is at least as large as the column asks and it has the
same sign in every seed, otherwise `none`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table as Grid
from rich.text import Text

from factrl import __version__
from factrl.runs.progress import clock

from .tables import Column, Direction, Row, Table, direction_of

_LEGEND = (
    "Effect against base, the paper's and ours: “up = up” agrees, “up ≠ none” does not, “–” where the paper "
    "has no number."
)


@dataclass(frozen=True)
class Point:
    """What the held-out questions gave after so many steps; `metrics` are `World.measure`'s."""

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class ArmResult:
    """One arm of one seed, on a model world.

    Attributes:
        curve: from step 0, the pretrained model, to the last.
        samples: a few held-out questions: (question, completion, tier).
    """

    curve: Sequence[Point]
    samples: Sequence[tuple[str, str, str]]

    @property
    def metrics(self) -> Mapping[str, float]:
        """Those of the last step."""
        return self.curve[-1].metrics


@dataclass(frozen=True, slots=True)
class ArmRuns:
    """One arm on every seed, in the order of the seeds."""

    row: Row
    runs: tuple[ArmResult, ...]

    def values(self, column: Column) -> list[float]:
        """The metric after training, by seed, in the column's units."""
        return [column.scale * run.metrics[column.metric] for run in self.runs]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that a table measured.

    Attributes:
        steps: optimizer steps of each arm.
        seconds: wall time, pretraining included.
    """

    table: Table
    seeds: tuple[int, ...]
    steps: int
    base: ArmRuns
    arms: tuple[ArmRuns, ...]
    seconds: float

    def effect(self, arm: ArmRuns, column: Column) -> Direction:
        """Which way the arm moved the metric; see the head of this module."""
        before = self.base.values(column)
        changes = [after - first for first, after in zip(before, arm.values(column), strict=True)]
        same = all(change > 0 for change in changes) or all(change < 0 for change in changes)
        return direction_of(statistics.fmean(changes), column.least) if same else "none"


def headline(outcome: Outcome) -> tuple[str, str]:
    """That this is a model world, first of all, and what was run."""
    table, many = outcome.table, len(outcome.seeds) > 1
    seeds = f"{len(outcome.seeds)} seeds" if many else f"seed {outcome.seeds[0]}"
    return (
        f"This is a model world (“{table.world}”, made-up facts and a two-layer model): it shows which way a "
        "reward pushes and what it costs, never how far a real model goes.",
        f"Table {table.name}: {table.about} {outcome.steps} steps, {seeds}, greedy answers to held-out "
        f"questions, in %, means{' ± standard deviations over seeds' if many else ''}.",
    )


def results_table(outcome: Outcome) -> Grid:
    """One line per arm: every metric after training."""
    grid = _grid("arm", *(column.name for column in outcome.table.columns))
    for arm in (outcome.base, *outcome.arms):
        grid.add_row(arm.row.arm, *(value_cell(arm, column) for column in outcome.table.columns))
    return grid


def signs_table(outcome: Outcome) -> Grid:
    """One line per arm: the paper's direction and ours, by metric, and how many agree."""
    grid = _grid("paper = here", *(column.name for column in outcome.table.judged), "agrees")
    for arm in outcome.arms:
        cells = [sign_cell(outcome, arm, column) for column in outcome.table.judged]
        known = [cell for cell in cells if not cell.startswith("–")]
        agrees = f"{sum('=' in cell for cell in known)} of {len(known)}" if known else "–"
        styled = [Text(cell, style="bold red" if "≠" in cell else "") for cell in cells]
        grid.add_row(arm.row.arm, *styled, agrees)
    return grid


def value_cell(arm: ArmRuns, column: Column) -> str:
    """`27.3 ± 2.1`, or the mean alone for one seed."""
    values, digits = arm.values(column), 1 if column.scale == 100 else 2
    shown = [statistics.fmean(values), *([statistics.stdev(values)] if len(values) > 1 else [])]
    return " ± ".join(f"{value:.{digits}f}" for value in shown).replace("-", "−")


def sign_cell(outcome: Outcome, arm: ArmRuns, column: Column) -> str:
    """The paper's direction and ours, with the sign that says whether they are the same."""
    paper, here = arm.row.reported(column), outcome.effect(arm, column)
    if paper is None:
        return f"–   {here}"
    return f"{paper} {'=' if paper == here else '≠'} {here}"


def remarks(outcome: Outcome) -> list[str]:
    """How to read the signs, what the papers' numbers are of, and what the world cannot express."""
    source = f"The papers' numbers are of {outcome.table.source}."
    return [_LEGEND, source, "", *outcome.table.notes, "", f"{clock(outcome.seconds)} minutes in all"]


def document(outcome: Outcome) -> dict[str, Any]:
    """Everything for programs; metrics in the units of the world (shares or counts), by seed and by step."""
    arms = {}
    for arm in (outcome.base, *outcome.arms):
        judged = () if arm is outcome.base else outcome.table.judged
        arms[arm.row.arm] = {
            "seeds": [dict(run.metrics) for run in arm.runs],
            "curves": [[{"step": p.step, **p.metrics} for p in run.curve] for run in arm.runs],
            "effects": {
                column.metric: {"paper": arm.row.reported(column), "here": outcome.effect(arm, column)}
                for column in judged
            },
            "samples": arm.runs[0].samples,
        }
    return {
        "model_world": headline(outcome)[0],
        "table": outcome.table.name,
        "world": outcome.table.world,
        "steps": outcome.steps,
        "seeds": list(outcome.seeds),
        "arms": arms,
        "source": outcome.table.source,
        "seconds": round(outcome.seconds, 1),
        "factrl": __version__,
    }


def _grid(first: str, *others: str) -> Grid:
    grid = Grid(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column(first, no_wrap=True, max_width=30)
    for name in others:
        longest = max(map(len, name.split()))
        grid.add_column(name, justify="right" if first == "arm" else "left", min_width=longest)
    return grid
