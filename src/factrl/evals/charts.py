"""The charts of the pages as inline SVG: sharp at any size, hover titles, no script.

The same picture as `plots`, coloured by the pages' style sheet so that it follows light and dark mode.
All sizes are in the units of the SVG's own view box.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
    short,
)
from factrl.text.html import fragment

MOST = 30  # points of a line; of more steps, means of as many as it takes
_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT, _ROW = 400, 300, 30, 42, 34, 18
_COLOURS = 5  # the style sheet has a0 to a4
_SHAPES: Mapping[str, Sequence[Spot]] = {  # corners; a circle has none
    "o": (),
    "s": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "^": ((-1.2, 1), (1.2, 1), (0, -1.2)),
    "v": ((-1.2, -1), (1.2, -1), (0, 1.2)),
    "D": ((-1.3, 0), (0, -1.3), (1.3, 0), (0, 1.3)),
}


def path_chart(curves: Curves) -> Markup:
    """Hallucination against abstention, one path per arm, lines of equal accuracy behind."""
    across, up = frame_of(curves)
    lines = {f"{short(arm)}, step {points[-1].step}": path_of(points) for arm, points in curves.items()}
    told = [[_told(arm, point) for point in points] for arm, points in curves.items()]
    guides = [
        ((max(0.0, rest - up), min(up, rest)), (min(across, rest), max(0.0, rest - across)))
        for rest in range(20, 101, 20)
        if rest < across + up
    ]
    label, axes = "Hallucination against abstention, one path per arm", ("abstention, %", "hallucination, %")
    return _chart(label, axes, (0, across), (0, up), lines, told, guides=guides)


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
    told = [[f"{name} {value:{form}} at step {step:g}" for step, value in lines[name]] for name in lines]
    named = {f"{name} {points[-1][1]:{form}}".replace("-", "−"): points for name, points in lines.items()}
    limits = (low - room * (low < 0), high + room)
    return _chart(title, ("step", title), (min(steps), max(steps)), limits, named, told, styles)


def _chart(
    label: str,
    axes: tuple[str, str],
    x_range: Spot,
    y_range: Spot,
    lines: Mapping[str, Sequence[Spot]],
    told: Sequence[Sequence[str]],
    styles: Sequence[tuple[str, str]] = (),
    guides: Sequence[tuple[Spot, Spot]] = (),
) -> Markup:
    """Lines with a marker at every spot, which tells its numbers, and their names below."""
    right, floor = _WIDTH - 10, _HEIGHT - _BOTTOM

    def at(spot: Spot) -> Spot:
        across, up = (
            (value - low) / ((high - low) or 1)
            for value, (low, high) in zip(spot, (x_range, y_range), strict=True)
        )
        return _LEFT + across * (right - _LEFT), floor - up * (floor - _TOP)

    drawn = [("guide", *at(first), *at(last)) for first, last in guides]
    texts = [("axis", 0, 12, "start", axes[1]), ("axis", (_LEFT + right) / 2, _HEIGHT - 4, "middle", axes[0])]
    for tick in _ticks(*y_range):
        y = at((x_range[0], tick))[1]
        drawn.append(("grid" if tick else "zero", _LEFT, y, right, y))
        texts.append(("tick", _LEFT - 6, y + 4, "end", _number(tick)))
    for tick in _ticks(*x_range, whole=True):
        x = at((tick, y_range[0]))[0]
        texts.append(("tick", x, floor + 18, "middle", _number(tick)))
    paths, marks = [], []
    for index, (name, spots) in enumerate(lines.items()):
        kind, marker = styles[index] if styles else (f"a{index % _COLOURS}", ARM_STYLE[index % _COLOURS][1])
        placed = [at(spot) for spot in spots]
        again = " again" if not styles and index >= _COLOURS else ""
        paths.append((kind + again, placed))
        last = len(placed) - 1
        marks += [
            (kind, _SHAPES[marker], x, y, 5 if number == last else 3.5, text)
            for number, ((x, y), text) in enumerate(zip(placed, told[index], strict=True))
        ]
        y = _HEIGHT + _ROW * (index + 1)
        marks.append((kind, _SHAPES[marker], _LEFT, y, 4, name))
        texts.append((f"name {kind}", _LEFT + 10, y + 4, "start", name))
    return fragment(
        "evals/charts.html",
        width=_WIDTH,
        height=_HEIGHT + _ROW * (len(lines) + 1),
        label=label,
        lines=drawn,
        paths=paths,
        marks=marks,
        texts=texts,
    )


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
