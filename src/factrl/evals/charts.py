"""The charts of the pages as inline SVG: sharp at any size, hover titles, no script.

The same picture as `plots`, coloured by the pages' style sheet so that it follows light and dark mode.
All sizes are in the units of the SVG's own view box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from factrl.evals.plots import (
    ARM_STYLE,
    OUTCOME_STYLE,
    OUTCOMES,
    Curves,
    Point,
    Spot,
    frame_of,
    path_of,
    place_guides,
    place_names,
    short,
    spread,
)
from factrl.text.html import fragment

MOST = 30  # points of a line; of more steps, means of as many as it takes
_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT = 400, 320, 30, 42, 34
_CHARACTER = (6.9, 16.0)  # of the 12 px bold labels
_COLOURS = 5  # the style sheet has a0 to a4
_SHAPES: Mapping[str, Sequence[Spot]] = {  # corners; a circle has none
    "o": (),
    "s": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "^": ((-1.2, 1), (1.2, 1), (0, -1.2)),
    "v": ((-1.2, -1), (1.2, -1), (0, 1.2)),
    "D": ((-1.3, 0), (0, -1.3), (1.3, 0), (0, 1.3)),
}


class _Chart:
    """What is drawn, collected; turns data into positions."""

    def __init__(self, label: str, x: Spot, y: Spot, margin: float, names: tuple[str, str]) -> None:
        self.label, self.x_range, self.y_range = label, x, y
        self.right, self.floor = _WIDTH - margin, _HEIGHT - _BOTTOM
        self.lines: list[Any] = []
        self.paths: list[Any] = []
        self.marks: list[Any] = []
        self.starts: list[Spot] = []
        self.texts: list[Any] = [("axis", 0, 12, "start", 0, names[1])]
        self.texts.append(("axis", (_LEFT + self.right) / 2, _HEIGHT - 4, "middle", 0, names[0]))
        for tick in _ticks(*y):
            at = self.y(tick)
            self.lines.append(("grid" if tick else "zero", _LEFT, at, self.right, at))
            self.texts.append(("tick", _LEFT - 6, at + 4, "end", 0, _number(tick)))
        for tick in _ticks(*x, whole=True):
            self.texts.append(("tick", self.x(tick), self.floor + 18, "middle", 0, _number(tick)))

    def x(self, value: float) -> float:
        low, high = self.x_range
        return _LEFT + (value - low) / ((high - low) or 1) * (self.right - _LEFT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.floor - (value - low) / ((high - low) or 1) * (self.floor - _TOP)

    def line(self, kind: str, shape: str, spots: Sequence[Spot], told: Sequence[str], last: float) -> None:
        """A line, its markers and what each says; the last marker has a size of its own."""
        placed = [(self.x(x), self.y(y)) for x, y in spots]
        self.paths.append((kind, placed))
        kind = kind.split(" ")[0]
        for number, ((x, y), text) in enumerate(zip(placed, told, strict=True), start=1):
            size = last if number == len(placed) else 3.5
            self.marks.append((kind, _SHAPES[shape], x, y, size, text))

    def svg(self) -> Markup:
        drawn = {
            name: getattr(self, name) for name in ("label", "lines", "paths", "marks", "starts", "texts")
        }
        return fragment("evals/charts.html", width=_WIDTH, height=_HEIGHT, **drawn)


def path_chart(curves: Curves) -> Markup:
    """Hallucination against abstention, one path per arm, lines of equal accuracy behind."""
    reach, names = frame_of(curves), ("abstention, %", "hallucination, %")
    label = "Hallucination against abstention, one path per arm"
    chart = _Chart(label, (0, reach[0]), (0, reach[1]), 10, names)
    paths = [[(x / reach[0], y / reach[1]) for x, y in path_of(points)] for points in curves.values()]
    paths.append(paths[0][:1])
    size = (_CHARACTER[0] / (chart.right - _LEFT), _CHARACTER[1] / (chart.floor - _TOP))
    labels = [f"{short(arm)}, step {points[-1].step}" for arm, points in curves.items()]
    labels.append(f"step {next(iter(curves.values()))[0].step}")
    boxes, taken = place_names(labels, paths, size)
    turn = math.degrees(math.atan((chart.y(0) - chart.y(1)) / (chart.x(1) - chart.x(0))))
    for accuracy, x, y, text in place_guides(reach, taken):
        rest = 100 - accuracy
        start, end = max(0.0, rest - reach[1]), min(float(rest), reach[0])
        corners = (chart.x(start), chart.y(rest - start), chart.x(end), chart.y(rest - end))
        chart.lines.append(("guide", *corners))
        chart.texts.append(("tick", chart.x(x) + 2.5, chart.y(y) - 3, "middle", turn, text))
    for index, (arm, points) in enumerate(curves.items()):
        told = [_told(arm, point) for point in points]
        chart.line(f"a{index % _COLOURS}", ARM_STYLE[index % _COLOURS][1], path_of(points), told, 6.5)
    starts = {path_of(points)[0] for points in curves.values()}
    chart.starts = [(chart.x(x), chart.y(y)) for x, y in sorted(starts)]
    for index, (box, text) in enumerate(zip(boxes, labels, strict=True)):
        kind = "ink" if index == len(curves) else f"a{index % _COLOURS}"
        x, y = chart.x(box[0] * reach[0]), chart.y((box[1] + box[3]) / 2 * reach[1])
        chart.texts.append((f"name {kind}", x, y + 4, "start", 0, text))
    return chart.svg()


def steps_chart(arm: str, points: Sequence[Point]) -> Markup:
    """Accuracy, abstention, hallucination and truthfulness of one arm over its steps."""
    lines = {name: [(float(p.step), 100 * getattr(p, name)) for p in points] for name in OUTCOMES}
    styles = [(name, OUTCOME_STYLE[name][1]) for name in OUTCOMES]
    return series_chart(f"{arm}, %", lines, styles=styles, form=".1f")


def series_chart(
    title: str,
    lines: Mapping[str, Sequence[Spot]],
    *,
    styles: Sequence[tuple[str, str]] = (),
    form: str = ".3g",
) -> Markup:
    """Several quantities over the steps, each line with its own marker and its name and last value.

    Where there are more points than can be told apart, means of neighbours stand for them.

    Args:
        title: what the numbers are, with their unit.
        lines: name -> (step, value) in the order of steps; none of them empty.
        styles: class and marker of each line; by default those of arms, dashed where a colour comes again.
        form: of a value, in words.
    """
    lines = {name: _thinned(points) for name, points in lines.items()}
    values = [value for points in lines.values() for _, value in points]
    steps = [step for points in lines.values() for step, _ in points]
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.08 * ((high - low) or 1.0)
    limits = (low - room * (low < 0), high + room)
    chart = _Chart(title, (min(steps), max(steps)), limits, 126, ("step", title))
    heights = spread([chart.y(points[-1][1]) for points in lines.values()], 18)
    for index, ((name, points), height) in enumerate(zip(lines.items(), heights, strict=True)):
        kind, shape = styles[index] if styles else (f"a{index % _COLOURS}", ARM_STYLE[index % _COLOURS][1])
        again = " again" if not styles and index >= _COLOURS else ""
        told = [f"{name} {value:{form}} at step {step:g}" for step, value in points]
        chart.line(kind + again, shape, points, told, 3.5)
        text = f"{name} {points[-1][1]:{form}}".replace("-", "−")
        chart.texts.append((f"name {kind}", chart.right + 14, height + 4, "start", 0, text))
    return chart.svg()


def _told(arm: str, point: Point) -> str:
    numbers = ", ".join(f"{name} {100 * getattr(point, name):.1f}" for name in OUTCOMES)
    return f"{arm}, step {point.step}: {numbers}"


def _thinned(points: Sequence[Spot]) -> list[Spot]:
    """At most `MOST` points: the last step of every few neighbours, with the mean of their values."""
    size = -(-len(points) // MOST)
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """At most eight round numbers from low to high."""
    rough = max(high - low, 7 if whole else 1e-9) / 7
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * nice for nice in (1, 2, 5, 10) if scale * nice >= rough)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _number(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")
