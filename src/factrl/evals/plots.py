"""The pictures: hallucination against abstention, every outcome over the steps, risk against coverage.

All of them are SVG without script, coloured by one style sheet in light and dark mode: inline on pages, and
of the demo as a file.  The palette is safe for the common kinds of colour blindness, and every line has its
own marker too.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from factrl.evals.metrics import wilson
from factrl.text.escape import one_line
from factrl.text.html import chart_style, fragment, write_page
from factrl.types import Label

OUTCOMES = ("accuracy", "abstention", "hallucination", "truthfulness")
MOST = 30  # points of a line; of more steps, means of as many as it takes

Spot = tuple[float, float]

# Of an SVG, in the units of its own view box.
_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT, _ROW = 400, 300, 30, 42, 34, 18
_COLOURS = 5  # the style sheet has a0 to a4
_WORDS: Mapping[Label | None, tuple[str, str]] = {  # what a grade is called, and its colour
    "correct": ("right", "accuracy"),
    "abstained": ("declined", "abstention"),
    "incorrect": ("wrong", "hallucination"),
    None: ("masked", "axis"),
}
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


def write_picture(
    curves: Curves,
    path: Path,
    *,
    title: str,
    frontier: Sequence[Point] = (),
    count: int = 0,
    answers: Sequence[tuple[str, Label | None, Label | None]] = (),
) -> None:
    """Draw every arm's path from its first to its last step, and what became of some questions below.

    It is as wide as a telephone, so that its words can be read there.

    Args:
        path: of an SVG file; missing folders are made.
        title: what the picture shows, in one neutral sentence.
        frontier: what the model's own knowledge allows, a dashed line behind the paths.
        count: questions; where it is told, the last points get Wilson's 95 % intervals.
        answers: a question with its grade before and after.

    Raises:
        ConfigError: it cannot be written.
    """
    lines = textwrap.wrap(one_line(title), 46)
    below = 20 + _ROW * (len(lines) + len(curves) + bool(frontier) + 1) + _HEIGHT
    svg = fragment(
        "evals/picture.svg",
        style=Markup(chart_style()),  # noqa: S704 - our own
        lines=lines,
        row=_ROW,
        top=_ROW * len(lines) + 20,
        chart=path_chart(curves, frontier, count),
        below=below,
        answers=[(_short(asked, 40), _WORDS[before], _WORDS[after]) for asked, before, after in answers],
        width=_WIDTH + 20,
        height=below + (_ROW * (len(answers) + 1) + 10 if answers else 0),
    )
    write_page(path, svg)


def path_chart(curves: Curves, frontier: Sequence[Point] = (), count: int = 0) -> Markup:
    """Hallucination against abstention, one path per arm, lines of equal accuracy behind.

    Args:
        frontier: as in `write_picture`.
        count: as there.
    """
    frontier = [frontier[at] for at in _spread(len(frontier))] if frontier else []
    points = [point for arm in (*curves.values(), frontier) for point in arm]
    across = 10.0 * math.ceil(10.5 * max(point.abstention for point in points) + 0.3)
    up = 10.0 * math.ceil(10.5 * max(point.hallucination for point in points) + 0.3)
    told = [[f"{arm}, step {one.step}: {_outcomes(one)}" for one in points] for arm, points in curves.items()]
    named = {f"{_short(arm)}, step {points[-1].step}": points for arm, points in curves.items()}
    kinds: list[str] = []
    if frontier:
        named["what the model's own knowledge allows"] = frontier
        told.append([f"a threshold on its agreement: {_outcomes(one)}" for one in frontier])
        kinds = [*(f"a{number % _COLOURS}" for number in range(len(curves))), "frontier"]
    paths = {
        name: [(100 * p.abstention, 100 * p.hallucination) for p in points] for name, points in named.items()
    }
    guides = [
        ((max(0.0, rest - up), min(up, rest)), (min(across, rest), max(0.0, rest - across)))
        for rest in range(20, 101, 20)
        if rest < across + up
    ]
    bars: list[tuple[str, Spot, Spot]] = []
    for number, points in enumerate(curves.values() if count else ()):
        shares = (points[-1].abstention, points[-1].hallucination)
        (x, left, right), (y, low, high) = (
            (100 * each.value, 100 * each.low, 100 * each.high)
            for each in (wilson(round(share * count), count) for share in shares)
        )
        kind = f"a{number % _COLOURS}"
        bars += [(kind, (left, y), (min(right, across), y)), (kind, (x, low), (x, min(high, up)))]
    label, axes = "Hallucination against abstention, one path per arm", ("abstention, %", "hallucination, %")
    return _chart(label, axes, (0, across), (0, up), paths, told, kinds, guides, bars)


def _outcomes(point: Point) -> str:
    return ", ".join(f"{name} {100 * getattr(point, name):.1f}" for name in OUTCOMES)


def risk_chart(lines: Mapping[str, Sequence[tuple[float, float, str]]]) -> Markup:
    """Risk against coverage, one line per evaluation: lower and further right is better.

    Args:
        lines: name -> (coverage, risk, at which threshold, in words); shares from 0 to 1, none of them empty.
    """
    kept = {name: [spots[at] for at in _spread(len(spots))] for name, spots in lines.items()}
    up = 10.0 * math.ceil(10.5 * max(risk for spots in kept.values() for _, risk, _ in spots) + 0.3)
    told = [
        [f"{name}{at}: coverage {100 * coverage:.1f}, risk {100 * risk:.1f}" for coverage, risk, at in spots]
        for name, spots in kept.items()
    ]
    paths = {one_line(name): [(100 * x, 100 * y) for x, y, _ in spots] for name, spots in kept.items()}
    label, axes = "Risk against coverage", ("coverage: answers kept, % of all", "risk: wrong, % of those")
    return _chart(label, axes, (0, 100), (0, min(up, 100)), paths, told)


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
    told = [[f"{name} {value:{form}} at step {step:g}" for step, value in lines[name]] for name in lines]
    named = {f"{name} {points[-1][1]:{form}}".replace("-", "−"): points for name, points in lines.items()}
    limits = (low - room * (low < 0), high + room if high > low else 1.0)  # nothing but zeros: up to one
    return _chart(title, ("step", title), (min(steps), max(steps)), limits, named, told, kinds)


def _chart(
    label: str,
    axes: tuple[str, str],
    x_range: Spot,
    y_range: Spot,
    lines: Mapping[str, Sequence[Spot]],
    told: Sequence[Sequence[str]],
    kinds: Sequence[str] = (),
    guides: Sequence[tuple[Spot, Spot]] = (),
    bars: Sequence[tuple[str, Spot, Spot]] = (),
) -> Markup:
    """Lines with a marker at every spot, which tells its numbers, their names below, and bars of a kind."""
    right, floor = _WIDTH - 10, _HEIGHT - _BOTTOM

    def at(spot: Spot) -> Spot:
        across, up = (
            (value - low) / ((high - low) or 1)
            for value, (low, high) in zip(spot, (x_range, y_range), strict=True)
        )
        return _LEFT + across * (right - _LEFT), floor - up * (floor - _TOP)

    drawn = [("guide", *at(first), *at(last)) for first, last in guides]
    drawn += [(f"bar {kind}", *at(first), *at(last)) for kind, first, last in bars]
    texts = [("axis", 0, 12, "start", axes[1]), ("axis", (_LEFT + right) / 2, _HEIGHT - 4, "middle", axes[0])]
    for tick in _ticks(*y_range):
        y = at((x_range[0], tick))[1]
        drawn.append(("grid" if tick else "zero", _LEFT, y, right, y))
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
            for number, ((x, y), text) in enumerate(zip(placed, told[index], strict=True))
        ]
        y = _HEIGHT + _ROW * (index + 1)
        marks.append((kind, shape, _LEFT, y, 4, name))
        texts.append((f"name {kind}", _LEFT + 10, y + 4, "start", name))
    size = {"width": _WIDTH, "height": _HEIGHT + _ROW * (len(lines) + 1)}
    return fragment(
        "evals/charts.html", label=label, lines=drawn, paths=paths, marks=marks, texts=texts, **size
    )


def _short(text: str, most: int = 24) -> str:
    """An arm in a label, or a question beside a chart."""
    text = one_line(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
