"""`lab.png`: where each arm goes, one line per arm, and one metric of all arms over the steps.

Lines are means over the seeds, faint spots are the ends of single seeds. Methods without a reward have no way
to show: they are spots alone.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from factrl.errors import MissingExtra
from factrl.evals.plots import ARM_STYLE, GREY, Line, Panel, Spot, draw
from factrl.text.escape import cell, one_line

from .outcome import Outcome
from .tables import METHODS, Column

_COLOURS = 4  # before lines are dashed; the fifth colour is the methods' grey
_METHOD_MARKS = ("P", "X", "*", "h", "d")


def needs_matplotlib() -> None:
    """Say what is missing before anything is trained.

    Raises:
        MissingExtra: matplotlib is.
    """
    if find_spec("matplotlib") is None:
        raise MissingExtra("matplotlib", "report")


def write_picture(outcome: Outcome, path: Path, title: str) -> Path:
    """Draw the table's picture; the CSV with its numbers goes beside it.

    Returns:
        The path of the CSV.
    """
    by_metric = {column.metric: column for column in outcome.table.columns}
    across, up, over = (by_metric[metric] for metric in outcome.table.picture)
    names = short_names([arm.row.arm for arm in outcome.arms])
    paths, series = [], []
    for index, arm in enumerate(outcome.arms):
        style, name = _style(outcome, index), names[arm.row.arm]
        ways = (_scaled(arm.path(column.metric), column) for column in (across, up))
        spots = [(x, y) for (_, x), (_, y) in zip(*ways, strict=True)]
        ends = [*zip(arm.values(across), arm.values(up), strict=True)]
        paths.append(Line(name, spots, style, also=ends if len(ends) > 1 else ()))
        steps = _scaled(arm.path(over.metric), over)
        series.append(Line(f"{name} {steps[-1][1]:.1f}".replace("-", "−"), steps, style))
    reached = [spot for line in paths for spot in (*line.spots, *line.also)]
    left = Panel(
        paths,
        f"{up.name} against {across.name}, step by step",
        (_unit(across), _unit(up)),
        *(_range([spot[axis] for spot in reached]) for axis in (0, 1)),
        percent=(across.scale == 100, up.scale == 100),
    )
    last = outcome.steps
    right = Panel(
        series,
        f"{over.name} over the steps",
        ("step", _unit(over)),
        (-0.02 * last, 1.02 * last),
        _range([value for line in series for _, value in line.spots]),
        percent=(False, over.scale == 100),
    )
    equal = left.x[0] == left.y[0] == 0 and outcome.table.picture[:2] == ("abstention", "hallucination")
    draw(path, title, left, right, start="start", height=4.1, ratios=(1.12, 1), guides=equal)
    return _write_csv(outcome, path.with_suffix(".csv"))


def short_names(arms: Sequence[str]) -> Mapping[str, str]:
    """Arm -> what a label calls it: the variant where that says enough."""
    short = {}
    for arm in arms:
        name, _, variant = arm.rpartition(":")
        short[arm] = name if name and variant in ("paper", name) else variant
    twice = {name for name in short.values() if [*short.values()].count(name) > 1}
    return {arm: one_line(arm if name in twice else name) for arm, name in short.items()}


def _scaled(path: Sequence[Spot], column: Column) -> list[Spot]:
    return [(step, column.scale * value) for step, value in path]


def _style(outcome: Outcome, index: int) -> dict[str, Any]:
    """Colour, marker and line of an arm: grey for methods, and dashed from the fifth reward on."""
    kinds = [arm.row.arm in METHODS for arm in outcome.arms]
    place = kinds[:index].count(kinds[index])
    if kinds[index]:
        return {"color": GREY, "marker": _METHOD_MARKS[place % len(_METHOD_MARKS)], "linestyle": ""}
    colour, marker = ARM_STYLE[place % _COLOURS]
    again = {"linestyle": "--", "markerfacecolor": "white"} if place >= _COLOURS else {"linestyle": "-"}
    return {"color": colour, "marker": marker, **again}


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Limits with room for labels, from 0 where that costs less than half of the panel."""
    least, most = min(values), max(values)
    room = 0.09 * (most - least) or 0.09 * abs(most) or 1.0
    low = 0.0 if 0 <= least <= most / 2 else least - room
    unit = 10.0 ** math.floor(math.log10(max(most - low, 1e-3))) / 2
    return unit * math.floor(low / unit), unit * math.ceil((most + room) / unit)


def _unit(column: Column) -> str:
    return f"{column.name}, %" if column.scale == 100 else column.name


def _write_csv(outcome: Outcome, path: Path) -> Path:
    """One row per arm and step, means over the seeds, in the units of the world (shares or counts)."""
    metrics = [column.metric for column in outcome.table.columns]
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["arm", "step", *metrics])
        for arm in (outcome.base, *outcome.arms):
            rows = zip(*(arm.path(metric) for metric in metrics), strict=True)
            table.writerows(
                [cell(arm.row.arm), row[0][0], *(f"{value:.6g}" for _, value in row)] for row in rows
            )
    return path
