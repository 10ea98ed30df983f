"""What `factrl reproduce` shows in the end: the paper's table, as text and as markdown."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.evals.metrics import LABELS
from factrl.evals.samples import read_output
from factrl.papers import Pipeline
from factrl.runs.disk import write_whole
from factrl.runs.progress import clock

if TYPE_CHECKING:
    from rich.table import Table

BASE = "base"
_LEAST = 2.0  # points: a smaller change is none
_KEY = (
    f"Held-out answers in points, beneath the change against `{BASE}`: ours (the paper's). = where "
    f"ours goes the paper's way, ≠ where not; under "
    f"{_LEAST:g} is no change."
)


@dataclass(frozen=True)
class Measured:
    """The table's numbers.

    Attributes:
        columns: metric of the study -> what the evaluation calls it.
        paper: row -> metric -> the paper's change against `base`.
        rows: row -> by seed, metric -> value with its limits.
        grades: row -> question of a seed -> its grade's label; empty for long answers.
    """

    columns: Mapping[str, str]
    paper: Mapping[str, Mapping[str, float]]
    rows: Mapping[str, Sequence[Mapping[str, Mapping[str, Any]]]]
    grades: Mapping[str, Mapping[str, str | None]]

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

    def lines(self) -> Iterator[list[str]]:
        """Each row's values, and beneath its changes."""
        for row in self.rows:
            yield [row, *(self._value(row, metric) for metric in self.columns)]
            if row != BASE:
                yield ["", *(self._told(row, metric) for metric in self.columns)]

    def tells_apart(self) -> bool:
        """Whether any row lies outside the interval of `base` with its own, in any metric of any seed."""
        return any(
            after[metric]["low"] > before[metric]["high"] or after[metric]["high"] < before[metric]["low"]
            for row in self.rows
            for before, after in zip(self.rows[BASE], self.rows[row], strict=True)
            for metric in self.columns
            if metric in before and metric in after
        )

    def change(self, row: str, metric: str) -> float:
        """Ours: the mean over the seeds."""
        pairs = zip(self.rows[BASE], self.rows[row], strict=True)
        return statistics.fmean(after[metric]["value"] - before[metric]["value"] for before, after in pairs)

    def changes(self, row: str, metric: str) -> dict[str, float]:
        """By whose they are; without those that there are not."""
        sides = (*self.rows[BASE], *self.rows[row])
        known = {"ours": self.change(row, metric)} if all(metric in side for side in sides) else {}
        if metric in self.paper.get(row, {}):
            known["paper"] = self.paper[row][metric]
        return known

    def _value(self, row: str, metric: str) -> str:
        """`27.3 [24.1, 30.2]` of one seed, `27.3 ± 2.1` of several."""
        found = [one[metric] for one in self.rows[row] if metric in one]
        if len(found) < len(self.rows[row]):
            return "–"
        values = [one["value"] for one in found]
        if len(values) > 1:
            return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"
        return f"{values[0]:.1f} [{found[0]['low']:.1f}, {found[0]['high']:.1f}]"

    def _told(self, row: str, metric: str) -> str:
        """`+3.1 (+4.2) =`."""
        changes = self.changes(row, metric)
        if "ours" not in changes:
            return ""
        told = f"{changes['ours']:+.1f}"
        if "paper" in changes:
            same = _direction(changes["ours"]) == _direction(changes["paper"])
            told += f" ({changes['paper']:+.1f}) {'=' if same else '≠'}"
        return told


def _direction(change: float) -> int:
    return (change >= _LEAST) - (change <= -_LEAST)


def measured(
    pipeline: Pipeline,
    rows: Sequence[str],
    folders: Sequence[Path],
    *,
    full: bool = False,
) -> Measured:
    """The evaluations of these rows in these folders, one for each seed."""
    columns = pipeline.columns(full=full)
    found = {row: [_evaluation(columns, folder, row) for folder in folders] for row in rows}
    grades = {} if pipeline.long else {row: _grades(folders, row) for row in rows}
    return Measured(columns, pipeline.published, found, grades)


def _grades(folders: Sequence[Path], row: str) -> dict[str, str | None]:
    """The label of the first answer to each question of each seed."""
    found: dict[str, str | None] = {}
    for folder in folders:
        for benchmark, samples in read_output(folder / "evaluations" / row).samples.items():
            for one in samples:
                found.setdefault(f"{folder.name}/{benchmark}/{one.example.id}", one.label)
    return found


def _evaluation(columns: Mapping[str, str], folder: Path, row: str) -> Mapping[str, Mapping[str, float]]:
    """A folder of `factrl eval`; shares in points."""
    output = read_output(folder / "evaluations" / row)
    numbers = {name: output.numbers(name) for name in output.benchmarks}
    found = {}
    for metric, key in columns.items():
        benchmark, _, name = key.rpartition(":")
        number = numbers[benchmark or next(iter(numbers))].get(name)
        if number is None:  # such as calibration, of answers without a confidence
            continue
        scale = 100 if number.percent else 1
        found[metric] = {limit: scale * getattr(number, limit) for limit in ("value", "low", "high")}
    return found


def table(found: Measured) -> Table:
    """Each row's numbers, and beneath its changes against base."""
    from rich.table import Table

    grid = Table("row", *found.columns, box=None)
    for line in found.lines():
        grid.add_row(*line)
    return grid


def write(
    paper: str, out: Path, found: Measured, notes: Sequence[str], took: Sequence[Mapping[str, Any]]
) -> Path:
    """Write `table.md`: the table, its notes, and every command with its time and memory."""
    lines = [
        f"# {paper}, reproduced",
        "",
        _KEY,
        "",
        f"| row | {' | '.join(found.columns)} |",
        f"|---|{'--:|' * len(found.columns)}",
        *(f"| {' | '.join(line)} |" for line in found.lines()),
        "",
    ]
    count, shares = found.difficult()
    if count:
        lines += [
            f"The {count} difficult questions, which at most one row gets right, in percent:",
            "",
            f"| row | {' | '.join(LABELS)} |",
            f"|---|{'--:|' * len(LABELS)}",
            *(f"| {' | '.join(line)} |" for line in shares),
            "",
        ]
    lines += [
        *(f"- {note}" for note in notes),
        "",
        "| step | time | peak MB | command |",
        "|---|--:|--:|---|",
        *(
            f"| {one['step']} | {clock(one['seconds'])} | {one['peak_mb']:,} | `{one['command']}` |"
            for one in took
        ),
    ]
    path = out / "table.md"
    write_whole(path, ("\n".join(lines) + "\n").encode())
    return path
