"""Charts by step: lines of several quantities, such as every outcome on held-out questions.

They are SVG without script, coloured by one style sheet in light and dark mode, inline on pages.  The
palette is safe for the common kinds of colour blindness, and every line has its own marker too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

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
    """What a model did on the held-out questions at one step; shares of the graded questions, 0 to 1."""

    step: int
    accuracy: float
    abstention: float
    hallucination: float

    @property
    def truthfulness(self) -> float:
        """Accuracy minus hallucination (TruthRL)."""
        return self.accuracy - self.hallucination


def outcomes_chart(points: Sequence[Point]) -> Markup:
    """Accuracy, abstention, hallucination and truthfulness over the steps."""
    lines = {name: [(float(one.step), 100 * getattr(one, name)) for one in points] for name in OUTCOMES}
    return series_chart("held-out questions, %", lines, kinds=OUTCOMES, form=".1f")


def series_chart(
    title: str, lines: Mapping[str, Sequence[Spot]], *, kinds: Sequence[str] = (), form: str = ".3g"
) -> Markup:
    """Several quantities over the steps, each line with its own marker and its name and last value.

    Where there are more points than can be told apart, means of neighbours stand for them.

    Args:
        title: what the numbers are, with their unit.
        lines: name -> (step, value) in the order of steps; none of them empty.
        kinds: class of each line; by default a colour each, dashed where one comes again.
        form: of a value, in words.
    """
    lines = {name: _thinned(points) for name, points in lines.items()}
    steps = [step for points in lines.values() for step, _ in points]
    values = [value for points in lines.values() for _, value in points]
    low, high = min(0.0, *values), max(0.0, *values)
    room = 0.08 * (high - low)
    bottom, top = low - room * (low < 0), high + room if high > low else 1.0  # nothing but zeros: up to one
    first, last = min(steps), max(steps)
    right, floor = _WIDTH - 10, _HEIGHT - _BOTTOM

    def across(step: float) -> float:
        return _LEFT + (step - first) / ((last - first) or 1) * (right - _LEFT)

    def up(value: float) -> float:
        return floor - (value - bottom) / (top - bottom) * (floor - _TOP)

    texts = [("axis", 0, 12, "start", title), ("axis", (_LEFT + right) / 2, _HEIGHT - 4, "middle", "step")]
    segments = []
    for tick in _ticks(bottom, top):
        segments.append(("grid" if tick else "zero", _LEFT, up(tick), right, up(tick)))
        texts.append(("tick", _LEFT - 6, up(tick) + 4, "end", _number(tick)))
    bottoms = _ticks(first, last, whole=True)
    texts += [("tick", across(tick), floor + 18, "middle", _number(tick)) for tick in bottoms]
    paths, marks = [], []
    for index, (name, points) in enumerate(lines.items()):
        kind, shape = kinds[index] if kinds else f"a{index % _COLOURS}", _SHAPES[index % _COLOURS]
        again = " again" if not kinds and index >= _COLOURS else ""
        paths.append((kind + again, [(across(step), up(value)) for step, value in points]))
        for number, (step, value) in enumerate(points, start=1):
            size, tooltip = 5 if number == len(points) else 3.5, f"{name} {value:{form}} at step {step:g}"
            marks.append((kind, shape, across(step), up(value), size, tooltip))
        y, called = _HEIGHT + _ROW * (index + 1), f"{name} {points[-1][1]:{form}}".replace("-", "−")
        marks.append((kind, shape, _LEFT, y, 4, called))
        texts.append((f"name {kind}", _LEFT + 10, y + 4, "start", called))
    return fragment(
        "evals/charts.html",
        label=title,
        lines=segments,
        paths=paths,
        marks=marks,
        texts=texts,
        width=_WIDTH,
        height=_HEIGHT + _ROW * (len(lines) + 1),
    )


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
