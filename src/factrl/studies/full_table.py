"""The table of a study's `[full]`: each row's held-out answers, and its change beside the paper's."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from factrl.evals.metrics import LABELS
from factrl.evals.samples import Output, read_output
from factrl.studies import BASE, FullSettings

LEAST = 2.0
"""Points; a smaller change is none."""


@dataclass(frozen=True)
class FullTable:
    """The table's numbers.

    Attributes:
        columns: as they are shown.
        paper: row -> column -> the paper's change against `base`.
        rows: row -> by seed, column -> value with its limits; without what there is no number of.
        grades: row -> question of a seed -> its grade's label; empty for long answers.
        sets: where a column is the mean over several sets of questions, the table of each.
    """

    columns: Sequence[str]
    paper: Mapping[str, Mapping[str, float]]
    rows: Mapping[str, Sequence[Mapping[str, Mapping[str, Any]]]]
    grades: Mapping[str, Mapping[str, str | None]]
    sets: Mapping[str, FullTable] = field(default_factory=dict)

    def lines(self) -> Iterator[list[str]]:
        """Each row's values, and beneath its changes."""
        for row in self.rows:
            yield [row, *(self._value(row, column) for column in self.columns)]
            if row != BASE:
                yield ["", *(self._changed(row, column) for column in self.columns)]

    def _repr_html_(self) -> str:
        """In a notebook: the table as `factrl study --full` prints it."""
        from factrl.text.html import table

        return table(["row", *self.columns], self.lines())

    def difficult(self) -> tuple[int, list[list[str]]]:
        """How many questions at most one row gets right, and each row's outcomes on them in percent.

        TruthRL has such a table: these questions can only be declined.
        """
        right = Counter(
            name for row in self.grades.values() for name, label in row.items() if label == "correct"
        )
        names = [name for name in next(iter(self.grades.values()), {}) if right[name] <= 1]
        counted = {row: Counter(labels[name] for name in names) for row, labels in self.grades.items()}
        return len(names), [
            [row, *(f"{100 * counts[label] / max(len(names), 1):.1f}" for label in LABELS)]
            for row, counts in counted.items()
        ]

    def tells_apart(self) -> bool:
        """Whether any row lies outside the interval of `base` with its own, in any column of any seed."""
        return any(
            after[column]["low"] > before[column]["high"] or after[column]["high"] < before[column]["low"]
            for row in self.rows
            for before, after in zip(self.rows[BASE], self.rows[row], strict=True)
            for column in self.columns
            if column in before and column in after
        )

    def change(self, row: str, column: str) -> float | None:
        """Against `base`, the mean over the seeds; None where a number is missing."""
        pairs = [*zip(self.rows[BASE], self.rows[row], strict=True)]
        if not all(column in side for pair in pairs for side in pair):
            return None
        return statistics.fmean(after[column]["value"] - before[column]["value"] for before, after in pairs)

    def _value(self, row: str, column: str) -> str:
        """`27.3 [24.1, 30.2]` of one seed, `27.3 ± 2.1` of several."""
        found = [one[column] for one in self.rows[row] if column in one]
        if len(found) < len(self.rows[row]):
            return "–"
        values = [one["value"] for one in found]
        if len(values) > 1:
            return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"
        return f"{values[0]:.1f} [{found[0]['low']:.1f}, {found[0]['high']:.1f}]"

    def _changed(self, row: str, column: str) -> str:
        """`+3.1 (+4.2) =`."""
        ours, paper = self.change(row, column), self.paper.get(row, {}).get(column)
        if ours is None:
            return ""
        if paper is None:
            return f"{ours:+.1f}"
        same = (ours >= LEAST) == (paper >= LEAST) and (ours <= -LEAST) == (paper <= -LEAST)
        return f"{ours:+.1f} ({paper:+.1f}) {'=' if same else '≠'}"


def read_table(full: FullSettings, folders: Sequence[Path]) -> FullTable:
    """The evaluations of all rows in these folders, one for each seed."""
    rows = [step for step in full.steps if full.is_row(step)]
    short = "--long" not in full.evaluate.split()
    outputs = {row: [read_output(folder / "evaluations" / row) for folder in folders] for row in rows}
    grades = {row: _grades(folders, made) for row, made in outputs.items()} if short else {}

    def values(columns: Mapping[str, str]) -> dict[str, list[Mapping[str, Mapping[str, float]]]]:
        return {row: [_evaluation(columns, output) for output in made] for row, made in outputs.items()}

    pooled = {column: key for column, key in full.columns.items() if ":" not in key}
    sets = {
        name: FullTable([*full.columns], {}, values({c: f"{name}:{key}" for c, key in pooled.items()}), {})
        for name in (outputs[BASE][0].benchmarks if pooled else ())
    }
    shown = sets if len(sets) > 1 else {}
    return FullTable([*full.columns], full.rows, values(full.columns), grades, shown)


def _grades(folders: Sequence[Path], outputs: Sequence[Output]) -> dict[str, str | None]:
    """The label of the first answer to each question of each seed."""
    found: dict[str, str | None] = {}
    for folder, output in zip(folders, outputs, strict=True):
        for benchmark, samples in output.samples.items():
            for one in samples:
                found.setdefault(f"{folder.name}/{benchmark}/{one.example.id}", one.label)
    return found


def _evaluation(columns: Mapping[str, str], output: Output) -> Mapping[str, Mapping[str, float]]:
    """A folder of `factrl eval`; shares in points.

    A metric without a benchmark is the mean over all of them, each set counting alike.  They are independent,
    so the squared distances of its limits are the sum of theirs, divided by their squared number.
    """
    numbers = {name: output.numbers(name) for name in output.benchmarks}
    found = {}
    for column, key in columns.items():
        benchmark, _, name = key.rpartition(":")
        of = [numbers[one].get(name) for one in ([benchmark] if benchmark else numbers)]
        known = [one for one in of if one is not None]
        if not known:  # such as calibration, of answers without a confidence
            continue
        scale = (100 if known[0].percent else 1) / len(known)
        value = scale * sum(one.value for one in known)
        found[column] = {"value": value}
        for limit, sign in (("low", -1), ("high", 1)):
            away = math.hypot(*(getattr(one, limit) - one.value for one in known))
            found[column][limit] = value + sign * scale * away
    return found
