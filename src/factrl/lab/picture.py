"""`lab.png`: where each arm goes, one line per arm, and one metric of all arms over the steps.

In the style of `factrl.evals.plots`.  Lines are means over the seeds, faint spots are the ends of single
seeds. Methods without a reward have no way to show: they are spots alone.
"""

from __future__ import annotations

import csv
import math
import textwrap
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.evals.plots import (
    FAINT,
    INK,
    arm_style,
    dense_path,
    guide_line,
    label_boxes,
    label_cost,
    spread,
    style_axes,
    write_label,
)
from factrl.text.escape import cell, one_line

from ..errors import MissingExtra
from .outcome import ArmRuns, Outcome
from .tables import METHODS, Column

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_WIDTH, _HEIGHT, _DPI = 7.33, 4.1, 300
_COLOURS = 4  # before lines are dashed; the fifth colour is the methods' grey
_METHOD_MARKS = ("P", "X", "*", "h", "d")
_CHARACTER = (0.0195, 0.042)  # of a label, as shares of the left panel


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
    needs_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, layout="constrained")
    heading = figure.suptitle(
        "\n".join(textwrap.wrap(one_line(title), 88)), x=0.012, ha="left", fontsize=10, color=INK
    )
    heading.set(fontweight="bold", parse_math=False)
    left, right = figure.subplots(1, 2, width_ratios=(1.12, 1))
    across, up, over = (_column(outcome, metric) for metric in outcome.table.picture)
    _draw_paths(left, outcome, across, up)
    _draw_steps(right, outcome, over)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white")
    return _write_csv(outcome, path.with_suffix(".csv"))


def short_names(arms: Sequence[str]) -> Mapping[str, str]:
    """Arm -> what a label calls it: the variant where that says enough."""
    short = {}
    for arm in arms:
        name, _, variant = arm.rpartition(":")
        short[arm] = name if name and variant in ("paper", name) else variant
    twice = {name for name in short.values() if [*short.values()].count(name) > 1}
    return {arm: one_line(arm if name in twice else name) for arm, name in short.items()}


def _column(outcome: Outcome, metric: str) -> Column:
    return next(column for column in outcome.table.columns if column.metric == metric)


def _draw_paths(axes: Axes, outcome: Outcome, across: Column, up: Column) -> None:
    paths = [_path(arm, across, up) for arm in outcome.arms]
    ends = [[*zip(arm.values(across), arm.values(up), strict=True)] for arm in outcome.arms]
    spots = [spot for some in (*paths, *ends) for spot in some]
    x_range, y_range = _range([x for x, _ in spots]), _range([y for _, y in spots])
    style_axes(axes, f"{up.name} against {across.name}, step by step", x_range, y_range)
    axes.set_xlabel(_unit(across), fontsize=8, color=INK)
    axes.set_ylabel(_unit(up), fontsize=8, color=INK)
    _drop_impossible_ticks(axes.xaxis, across, x_range)
    _drop_impossible_ticks(axes.yaxis, up, y_range)
    for index, (arm, path, seeds) in enumerate(zip(outcome.arms, paths, ends, strict=True)):
        style = _style(outcome, index)
        xs, ys = zip(*path, strict=True)
        if arm.row.arm not in METHODS:
            axes.plot(xs, ys, **style, linewidth=1.5, markersize=2.4, zorder=3)
        if len(seeds) > 1:
            axes.plot(
                *zip(*seeds, strict=True), **{**style, "linestyle": ""}, markersize=3, alpha=0.3, zorder=4
            )
        axes.plot(xs[-1:], ys[-1:], **style, markersize=6.5, zorder=5, clip_on=False)
    start = paths[0][0] if paths else (0.0, 0.0)
    axes.plot(*start, marker="o", markersize=6, mfc="white", color=INK, zorder=6, clip_on=False)
    _write_names(axes, outcome, paths, (x_range, y_range))


def _write_names(axes: Axes, outcome: Outcome, paths: Any, ranges: Any) -> None:
    """Every arm's name where it hides the least, and lines of equal accuracy where the axes have them."""

    def share(spot: tuple[float, float]) -> tuple[float, float]:
        return tuple((value - low) / (high - low) for value, (low, high) in zip(spot, ranges, strict=True))  # type: ignore[return-value]

    inside = [[share(spot) for spot in path] for path in paths]
    shown = [
        path if arm.row.arm not in METHODS else path[-1:]
        for arm, path in zip(outcome.arms, inside, strict=True)
    ]
    taken, boxes = [spot for path in shown for spot in dense_path(path)], []
    names = short_names([arm.row.arm for arm in outcome.arms])
    wanted = [
        (index, names[arm.row.arm], path[-1])
        for index, (arm, path) in enumerate(zip(outcome.arms, inside, strict=True))
    ]
    for index, text, (x, y) in [*wanted, (None, "start", inside[0][0])]:
        places = label_boxes(x, y, _CHARACTER[0] * len(text), _CHARACTER[1])
        box = min(places, key=lambda box: label_cost(box, taken, boxes))
        boxes.append(box)
        (x_low, x_high), (y_low, y_high) = ranges
        x, y = x_low + box[0] * (x_high - x_low), y_low + (box[1] + box[3]) / 2 * (y_high - y_low)
        write_label(axes, x, y, text, INK if index is None else _style(outcome, index)["color"])
    from_zero = ranges[0][0] == ranges[1][0] == 0
    if from_zero and outcome.table.picture[:2] == ("abstention", "hallucination"):
        filled = [
            (box[0] + (box[2] - box[0]) * i / 8, (box[1] + box[3]) / 2) for box in boxes for i in range(9)
        ]
        _draw_guides(axes, (ranges[0][1], ranges[1][1]), [*taken, *filled])


def _draw_guides(axes: Axes, reach: tuple[float, float], taken: Sequence[tuple[float, float]]) -> None:
    for guide in [guide_line(a, reach, taken) for a in range(0, 100, 20) if 100 - a < sum(reach) - 24]:
        rest = 100 - guide.accuracy
        axes.plot([rest - reach[1], rest], [reach[1], 0], color=FAINT, linewidth=0.6, zorder=1)
        axes.text(
            *(guide.x, guide.y, guide.text),
            **{"fontsize": 6.5, "color": "#5f6870", "ha": "center", "va": "bottom", "rotation": -45},
            **{"rotation_mode": "anchor", "transform_rotates_text": True, "zorder": 2},
        )


def _draw_steps(axes: Axes, outcome: Outcome, column: Column) -> None:
    series = [
        [(step, column.scale * value) for step, value in arm.path(column.metric)] for arm in outcome.arms
    ]
    low, high = _range([value for points in series for _, value in points])
    last = outcome.steps
    style_axes(axes, f"{column.name} over the steps", (-0.02 * last, 1.62 * last), (low, high))
    axes.set_xlabel("step", fontsize=8, color=INK)
    axes.set_ylabel(_unit(column), fontsize=8, color=INK)
    _drop_impossible_ticks(axes.yaxis, column, (low, high))
    axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= last])
    axes.spines["bottom"].set_bounds(0, last)
    if low < 0 < high:
        axes.axhline(0, color=FAINT, linewidth=0.8, zorder=1)
    heights = _inside(
        spread([points[-1][1] for points in series], min(0.062, 0.95 / len(series)) * (high - low)), low, high
    )
    names = short_names([arm.row.arm for arm in outcome.arms])
    for index, (arm, points, height) in enumerate(zip(outcome.arms, series, heights, strict=True)):
        style = _style(outcome, index)
        if arm.row.arm in METHODS:
            axes.plot([last], [points[-1][1]], **style, markersize=5, zorder=4, clip_on=False)
        else:
            axes.plot(*zip(*points, strict=True), **style, linewidth=1.5, markersize=3.2, zorder=3)
        value = f"{points[-1][1]:.1f}".replace("-", "−")
        write_label(axes, 1.05 * last, height, f"{names[arm.row.arm]} {value}", style["color"])


def _drop_impossible_ticks(axis: Axis, column: Column, limits: tuple[float, float]) -> None:
    """A panel may reach beyond 100 % to have room for labels; the numbers beside it may not."""
    if column.scale == 100:
        axis.set_ticks([tick for tick in axis.get_ticklocs() if limits[0] <= tick <= min(limits[1], 100)])


def _inside(heights: Sequence[float], low: float, high: float) -> list[float]:
    """Moved together, as little as possible, so that none is beyond an end of the panel."""
    away = min(0.0, high - max(heights)) or max(0.0, low - min(heights))
    return [height + away for height in heights]


def _style(outcome: Outcome, index: int) -> dict[str, Any]:
    """Colour, marker and line of an arm: grey for methods, and dashed from the fifth reward on."""
    kinds = [arm.row.arm in METHODS for arm in outcome.arms]
    place = kinds[:index].count(kinds[index])
    if kinds[index]:
        return {"color": "#5b6570", "marker": _METHOD_MARKS[place % len(_METHOD_MARKS)], "linestyle": ""}
    colour, marker = arm_style(place % _COLOURS)
    if place < _COLOURS:
        return {"color": colour, "marker": marker, "linestyle": "-"}
    return {"color": colour, "marker": marker, "linestyle": "--", "markerfacecolor": "white"}


def _path(arm: ArmRuns, across: Column, up: Column) -> list[tuple[float, float]]:
    xs, ys = arm.path(across.metric), arm.path(up.metric)
    return [(across.scale * x, up.scale * y) for (_, x), (_, y) in zip(xs, ys, strict=True)]


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
