"""The charts of the report as inline SVG: sharp at any size, hover titles, no script.

The same picture as `plots`, coloured by the report's style sheet so that it follows light and dark mode.
All sizes are in the units of the SVG's own view box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from factrl.evals.metrics import Interval
from factrl.evals.plots import (
    OUTCOMES,
    Curves,
    Point,
    arm_style,
    frame_of,
    outcome_marker,
    path_labels,
    spread,
    starts_of,
)
from factrl.text.escape import attribute

_WIDTH, _HEIGHT = 400.0, 320.0
_TOP, _BOTTOM, _LEFT = 30.0, 42.0, 34.0
_COLOURS = 5
MOST = 30  # points of a line; of more steps, means of as many as it takes
_CHARACTER = (6.9, 16.0)  # of the 12 px bold labels


class _Panel:
    """Turns data into positions, and draws the frame that both charts share."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], right: float, *, whole: bool = True
    ) -> None:
        self.x_range, self.y_range, self.whole = x, y, whole  # whole: y has ticks at whole numbers only
        self.right, self.floor = _WIDTH - right, _HEIGHT - _BOTTOM

    def x(self, value: float) -> float:
        low, high = self.x_range
        return _LEFT + (value - low) / ((high - low) or 1) * (self.right - _LEFT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        return self.floor - (value - low) / ((high - low) or 1) * (self.floor - _TOP)

    def frame(self, x_title: str, y_title: str, x_ticks: Sequence[float]) -> list[str]:
        parts = [f'<text class="axis" x="0" y="12">{attribute(y_title)}</text>']
        parts.append(_text("axis", (_LEFT + self.right) / 2, _HEIGHT - 4, x_title, "middle"))
        for tick in _ticks(*self.y_range, whole=self.whole):
            parts.append(_line("grid" if tick else "zero", _LEFT, self.y(tick), self.right, self.y(tick)))
            told = _number(tick) if self.whole else f"{tick:.6g}".replace("-", "−")
            parts.append(_text("tick", _LEFT - 6, self.y(tick) + 4, told, "end"))
        parts += [_text("tick", self.x(tick), self.floor + 18, _number(tick), "middle") for tick in x_ticks]
        return parts

    def line(self, name: str, spots: Sequence[tuple[float, float]]) -> str:
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in spots)
        return f'<polyline class="line {name}" points="{points}"/>'


def path_chart(curves: Curves) -> str:
    """Hallucination against abstention, one path per arm, lines of equal accuracy behind."""
    reach = frame_of(curves)
    panel = _Panel((0, reach[0]), (0, reach[1]), right=10)
    parts = panel.frame("abstention, %", "hallucination, %", _ticks(0, reach[0]))
    size = (_CHARACTER[0] / (panel.right - _LEFT), _CHARACTER[1] / (panel.floor - _TOP))
    guides, labels = path_labels(curves, reach, size)
    for guide in guides:
        rest = 100 - guide.accuracy
        start, end = max(0.0, rest - reach[1]), min(float(rest), reach[0])
        corners = (panel.x(start), panel.y(rest - start), panel.x(end), panel.y(rest - end))
        parts.append(_line("guide", *corners))
        x, y = panel.x(guide.x), panel.y(guide.y)
        slope = (panel.y(0) - panel.y(1)) / (panel.x(1) - panel.x(0))
        turned = f'transform="translate({x:.1f} {y:.1f}) rotate({math.degrees(math.atan(slope)):.1f})"'
        parts.append(f'<text class="tick" text-anchor="middle" dy="-4" {turned}>{guide.text}</text>')
    for index, (arm, points) in enumerate(curves.items()):
        spots = [(100 * p.abstention, 100 * p.hallucination) for p in points]
        parts.append(panel.line(_arm_class(index), spots))
        for (x, y), point in zip(spots, points, strict=True):
            radius = 6.5 if point is points[-1] else 3.0
            mark = _marker(arm_style(index)[1], panel.x(x), panel.y(y), radius)
            parts.append(_hover(_arm_class(index), mark, panel.x(x), panel.y(y), _told(arm, point)))
    for x, y in starts_of(curves):
        parts.append(f'<circle class="start" cx="{panel.x(x):.1f}" cy="{panel.y(y):.1f}" r="6"/>')
    for label in labels:
        name = "ink" if label.arm is None else _arm_class(label.arm)
        parts.append(_text(f"name {name}", panel.x(label.x), panel.y(label.y) + 4, label.text))
    return _svg("Hallucination against abstention, one path per arm", parts)


def steps_chart(arm: str, points: Sequence[Point]) -> str:
    """Accuracy, abstention, hallucination and truthfulness of one arm over its steps."""
    series = {name: [100 * getattr(point, name) for point in points] for name in OUTCOMES}
    values = [value for numbers in series.values() for value in numbers]
    low, high = 10 * (min(0.0, *values) // 10), -10 * (-max(values) // 10)
    first, last = points[0].step, points[-1].step
    panel = _Panel((first, last), (low, max(high, low + 10)), right=126)
    parts = panel.frame("step", f"{arm}, %", _ticks(first, last))
    heights = spread([panel.y(numbers[-1]) for numbers in series.values()], 18)
    for (name, numbers), height in zip(series.items(), heights, strict=True):
        parts.append(panel.line(name, [(p.step, v) for p, v in zip(points, numbers, strict=True)]))
        for point, value in zip(points, numbers, strict=True):
            x, y = panel.x(point.step), panel.y(value)
            mark = _marker(outcome_marker(name), x, y, 4.0)
            parts.append(_hover(name, mark, x, y, f"{name} {value:.1f} at step {point.step}"))
        told = f"{name} {_number(numbers[-1], 1)}"
        parts.append(_text(f"name {name}", panel.right + 12, height + 4, told))
    return _svg(f"Outcomes of {arm} over the steps", parts)


def series_chart(title: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Several quantities over the steps, each line with its own marker and its name and last value.

    Where there are more points than can be told apart, means of neighbours stand for them.

    Args:
        title: what the numbers are, with their unit.
        lines: name -> (step, value) in the order of steps; none of them empty.
    """
    lines = {name: _thinned(points) for name, points in lines.items()}
    values = [value for points in lines.values() for _, value in points]
    steps = [step for points in lines.values() for step, _ in points]
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.08 * ((high - low) or 1.0)
    panel = _Panel((min(steps), max(steps)), (low - room * (low < 0), high + room), right=126, whole=False)
    parts = panel.frame("step", title, _ticks(*panel.x_range))
    heights = spread([panel.y(points[-1][1]) for points in lines.values()], 18)
    for index, ((name, points), height) in enumerate(zip(lines.items(), heights, strict=True)):
        again = " again" if index >= _COLOURS else ""
        parts.append(panel.line(_arm_class(index) + again, points))
        for step, value in points:
            x, y = panel.x(step), panel.y(value)
            mark = _marker(arm_style(index)[1], x, y, 3.5)
            parts.append(_hover(_arm_class(index), mark, x, y, f"{name} {value:.3g} at step {step:g}"))
        told = f"{name} {points[-1][1]:.3g}".replace("-", "−")
        parts.append(_text(f"name {_arm_class(index)}", panel.right + 16, height + 4, told))
    return _svg(title, parts)


def whisker(difference: Interval, reach: float, tone: str) -> str:
    """A difference and its interval as a dot on a line, zero in the middle of `-reach` to `reach`."""

    def x(value: float) -> float:
        return 150 + 140 * value / reach

    return (
        f'<svg class="whisker {tone}" viewBox="0 0 300 20" aria-hidden="true">'
        f"{_line('grid', 4, 10, 296, 10)}{_line('zero', 150, 2, 150, 18)}"
        f"{_line('bar', x(difference.low), 10, x(difference.high), 10)}"
        f'<circle cx="{x(difference.value):.1f}" cy="10" r="4.5"/></svg>'
    )


def _svg(label: str, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"'
    return f'<svg class="chart" {box} role="img" aria-label="{attribute(label)}">{"".join(parts)}</svg>'


def _text(name: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{attribute(text)}</text>'


def _line(name: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _hover(name: str, mark: str, x: float, y: float, text: str) -> str:
    """A marker with a title on a target large enough for a finger."""
    target = f'<circle class="target" cx="{x:.1f}" cy="{y:.1f}" r="10"/>'
    return f'<g class="{name}"><title>{attribute(text)}</title>{target}{mark}</g>'


def _marker(shape: str, x: float, y: float, r: float) -> str:
    if shape == "o":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>'
    corners = {
        "s": [(-1, -1), (1, -1), (1, 1), (-1, 1)],
        "^": [(-1.2, 1), (1.2, 1), (0, -1.2)],
        "v": [(-1.2, -1), (1.2, -1), (0, 1.2)],
        "D": [(-1.3, 0), (0, -1.3), (1.3, 0), (0, 1.3)],
    }[shape]
    return f'<polygon points="{" ".join(f"{x + r * a:.1f},{y + r * b:.1f}" for a, b in corners)}"/>'


def _told(arm: str, point: Point) -> str:
    numbers = ", ".join(f"{name} {100 * getattr(point, name):.1f}" for name in OUTCOMES)
    return f"{arm}, step {point.step}: {numbers}"


def _arm_class(index: int) -> str:
    return f"a{index % _COLOURS}"  # the style sheet has a0 to a4


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `MOST` points: the last step of every few neighbours, with the mean of their values."""
    size = -(-len(points) // MOST)
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _ticks(low: float, high: float, *, whole: bool = True) -> list[float]:
    """At most eight round numbers from low to high."""
    rough = max(high - low, 7 if whole else 1e-9) / 7
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * nice for nice in (1, 2, 5, 10) if scale * nice >= rough)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _number(value: float, digits: int = 0) -> str:
    return f"{value:.{digits}f}".replace("-", "−")
