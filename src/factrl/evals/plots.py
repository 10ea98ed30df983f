"""The pictures: hallucination against abstention, and every outcome over the steps.

All of them are SVG without script, coloured by one style sheet in light and dark mode, inline on pages.  The
palette is safe for the common kinds of colour blindness, and every line has its own marker too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from factrl.text.escape import one_line
from factrl.text.html import fragment

OUTCOMES = ("accuracy", "abstention", "hallucination", "truthfulness")
MOST = 30  # points of a line; of more steps, means of as many as it takes

Spot = tuple[float, float]

# Of an SVG, in the units of its own view box.
_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT, _ROW = 400, 300, 30, 42, 34, 18
_COLOURS = 5  # the style sheet has a0 to a4
_SHAPES: Sequence[
    Sequence[Spot]
] = (  # corners, in the order of the colours and of the outcomes; a circle has none
    (),
    ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    ((-1.2, 1), (1.2, 1), (0, -1.2)),
    ((-1.3, 0), (0, -1.3), (1.3, 0), (0, 1.3)),
    ((-1.2, -1), (1.2, -1), (0, 1.2)),
)


@dataclass(frozen=True, slots=True)
class Point:
    """What an arm did on the held-out questions at one step; shares of the graded questions, 0 to 1."""

    step: int
    accuracy: float
    abstention: float
    hallucination: float

    @property
    def truthfulness(self) -> float:
        """Accuracy minus hallucination (TruthRL)."""
        return self.accuracy - self.hallucination


Curves = Mapping[str, Sequence[Point]]
"""Arm -> its points in the order of the steps; no arm is empty."""


def path_chart(curves: Curves) -> Markup:
    """Hallucination against abstention, one path per arm, lines of equal accuracy behind."""
    points = [point for arm in curves.values() for point in arm]
    across = 10.0 * math.ceil(10.5 * max(point.abstention for point in points) + 0.3)
    up = 10.0 * math.ceil(10.5 * max(point.hallucination for point in points) + 0.3)
    tooltips = [
        [f"{arm}, step {one.step}: {_outcomes(one)}" for one in points] for arm, points in curves.items()
    ]
    paths = {
        f"{one_line(arm, most=24)}, step {points[-1].step}": [
            (100 * one.abstention, 100 * one.hallucination) for one in points
        ]
        for arm, points in curves.items()
    }
    guides = [
        ((max(0.0, rest - up), min(up, rest)), (min(across, rest), max(0.0, rest - across)))
        for rest in range(20, 101, 20)
        if rest < across + up
    ]
    label, axes = "Hallucination against abstention, one path per arm", ("abstention, %", "hallucination, %")
    return _chart(label, axes, (0, across), (0, up), paths, tooltips, guides=guides)


def _outcomes(point: Point) -> str:
    return ", ".join(f"{name} {100 * getattr(point, name):.1f}" for name in OUTCOMES)


def steps_chart(arm: str, points: Sequence[Point]) -> Markup:
    """Accuracy, abstention, hallucination and truthfulness of one arm over its steps."""
    lines = {name: [(float(one.step), 100 * getattr(one, name)) for one in points] for name in OUTCOMES}
    return series_chart(f"{arm}, %", lines, kinds=OUTCOMES, form=".1f")


def series_chart(
    title: str, lines: Mapping[str, Sequence[Spot]], *, kinds: Sequence[str] = (), form: str = ".3g"
) -> Markup:
    """Several quantities over the steps, each line with its own marker and its name and last value.

    Where there are more points than can be told apart, means of neighbours stand for them.

    Args:
        title: what the numbers are, with their unit.
        lines: name -> (step, value) in the order of steps; none of them empty.
        kinds: class of each line; by default those of arms, dashed where a colour comes again.
        form: of a value, in words.
    """
    lines = {name: _thinned(points) for name, points in lines.items()}
    values = [value for points in lines.values() for _, value in points]
    steps = [step for points in lines.values() for step, _ in points]
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.08 * (high - low)
    tooltips = [[f"{name} {value:{form}} at step {step:g}" for step, value in lines[name]] for name in lines]
    named = {f"{name} {points[-1][1]:{form}}".replace("-", "−"): points for name, points in lines.items()}
    limits = (low - room * (low < 0), high + room if high > low else 1.0)  # nothing but zeros: up to one
    return _chart(title, ("step", title), (min(steps), max(steps)), limits, named, tooltips, kinds)


def _chart(
    label: str,
    axes: tuple[str, str],
    x_range: Spot,
    y_range: Spot,
    lines: Mapping[str, Sequence[Spot]],
    tooltips: Sequence[Sequence[str]],
    kinds: Sequence[str] = (),
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

    segments = [("guide", *at(first), *at(last)) for first, last in guides]
    texts = [("axis", 0, 12, "start", axes[1]), ("axis", (_LEFT + right) / 2, _HEIGHT - 4, "middle", axes[0])]
    for tick in _ticks(*y_range):
        y = at((x_range[0], tick))[1]
        segments.append(("grid" if tick else "zero", _LEFT, y, right, y))
        texts.append(("tick", _LEFT - 6, y + 4, "end", _number(tick)))
    texts += [
        ("tick", at((tick, y_range[0]))[0], floor + 18, "middle", _number(tick))
        for tick in _ticks(*x_range, whole=True)
    ]
    paths, marks = [], []
    for index, (name, spots) in enumerate(lines.items()):
        kind, shape = kinds[index] if kinds else f"a{index % _COLOURS}", _SHAPES[index % _COLOURS]
        placed, last = [at(spot) for spot in spots], len(spots) - 1
        paths.append((kind + (" again" if not kinds and index >= _COLOURS else ""), placed))
        marks += [
            (kind, shape, x, y, 5 if number == last else 3.5, text)
            for number, ((x, y), text) in enumerate(zip(placed, tooltips[index], strict=True))
        ]
        y = _HEIGHT + _ROW * (index + 1)
        marks.append((kind, shape, _LEFT, y, 4, name))
        texts.append((f"name {kind}", _LEFT + 10, y + 4, "start", name))
    size = {"width": _WIDTH, "height": _HEIGHT + _ROW * (len(lines) + 1)}
    return fragment(
        "evals/charts.html", label=label, lines=segments, paths=paths, marks=marks, texts=texts, **size
    )


def _thinned(points: Sequence[Spot]) -> list[Spot]:
    """At most `MOST` points: the last step of every few neighbours, with the mean of their values."""
    size = -(-len(points) // MOST)
    groups = [points[at : at + size] for at in range(0, len(points), size)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _spread(count: int) -> list[int]:
    """At most `MOST` numbers below `count`, evenly spread, the first and the last among them."""
    size = -(-count // MOST)
    return sorted({*range(0, count, size), count - 1})


def _ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """At most eight round numbers from low to high."""
    rough = max(high - low, 7 if whole else 1e-9) / 7
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * nice for nice in (1, 2, 5, 10) if scale * nice >= rough)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _number(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")
