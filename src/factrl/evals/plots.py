"""The pictures of runs: hallucination against abstention, and every outcome over the steps.

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

from factrl.text.escape import one_line
from factrl.text.html import chart_style, fragment, write_page

OUTCOMES = ("accuracy", "abstention", "hallucination", "truthfulness")
_MARKERS = ("o", "s", "^", "D", "v")  # of the arms, in the order of their colours, and of the outcomes

Spot = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Point:
    """What an arm did on the held-out questions at one step; shares of the graded questions, 0 to 1."""

    step: int
    accuracy: float
    abstention: float
    hallucination: float

    def __post_init__(self) -> None:
        shares = (self.accuracy, self.abstention, self.hallucination)
        if not all(0 <= share <= 1 for share in shares) or not math.isclose(sum(shares), 1, abs_tol=0.005):
            raise ValueError(
                f"accuracy, abstention, hallucination must be shares that sum to 1, not {shares}"
            )

    @property
    def truthfulness(self) -> float:
        """Accuracy minus hallucination (TruthRL)."""
        return self.accuracy - self.hallucination


Curves = Mapping[str, Sequence[Point]]


def write_picture(curves: Curves, path: Path, *, title: str) -> None:
    """Draw every arm's path from its first to its last step, and the last arm's outcomes over the steps.

    Args:
        curves: arm -> its points in the order of the steps; no arm may be empty.
        path: of an SVG file; missing folders are made.
        title: what the picture shows, in one neutral sentence.

    Raises:
        ConfigError: it cannot be written.
    """
    if not curves or not all(curves.values()):
        raise ValueError(f"a picture needs points for every arm; got {list(curves)}")
    main = list(curves)[-1]
    lines = textwrap.wrap(one_line(title), 95)
    charts = (path_chart(curves), steps_chart(short(main), curves[main]))
    svg = fragment(
        "evals/picture.svg",
        style=Markup(chart_style()),  # noqa: S704 - our own
        lines=lines,
        row=_ROW,
        top=_ROW * len(lines) + 20,
        charts=charts,
        width=2 * _SVG_WIDTH + 60,
        height=_ROW * (len(lines) + max(len(curves), len(OUTCOMES)) + 1) + 20 + _HEIGHT,
    )
    write_page(path, svg)


def short(arm: str) -> str:
    """The name of an arm in a label."""
    arm = one_line(arm)
    return arm if len(arm) <= 24 else f"{arm[:23]}…"


def frame_of(curves: Curves) -> Spot:
    """Upper limits, in percent, of the abstention and the hallucination axis."""
    points = [point for arm in curves.values() for point in arm]
    widest, highest = max(p.abstention for p in points), max(p.hallucination for p in points)
    return 10.0 * math.ceil(10.5 * widest + 0.3), 10.0 * math.ceil(10.5 * highest + 0.3)


def _paths(curves: Curves) -> dict[str, list[Spot]]:
    """By the label of an arm, its abstention and hallucination by step, in percent."""
    return {
        f"{short(arm)}, step {points[-1].step}": [(100 * p.abstention, 100 * p.hallucination) for p in points]
        for arm, points in curves.items()
    }


def _over_steps(points: Sequence[Point], name: str) -> list[Spot]:
    """An outcome by step, in percent."""
    return [(float(point.step), 100 * getattr(point, name)) for point in points]


MOST = 30  # points of a line; of more steps, means of as many as it takes
# Of an SVG, in the units of its own view box.
_SVG_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT, _ROW = 400, 300, 30, 42, 34, 18
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
    told = [
        [
            f"{arm}, step {one.step}: "
            + ", ".join(f"{name} {100 * getattr(one, name):.1f}" for name in OUTCOMES)
            for one in points
        ]
        for arm, points in curves.items()
    ]
    guides = [
        ((max(0.0, rest - up), min(up, rest)), (min(across, rest), max(0.0, rest - across)))
        for rest in range(20, 101, 20)
        if rest < across + up
    ]
    label, axes = "Hallucination against abstention, one path per arm", ("abstention, %", "hallucination, %")
    return _chart(label, axes, (0, across), (0, up), _paths(curves), told, guides=guides)


def steps_chart(arm: str, points: Sequence[Point]) -> Markup:
    """Accuracy, abstention, hallucination and truthfulness of one arm over its steps."""
    lines = {name: _over_steps(points, name) for name in OUTCOMES}
    styles = list(zip(OUTCOMES, _MARKERS, strict=False))
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
    right, floor = _SVG_WIDTH - 10, _HEIGHT - _BOTTOM

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
        kind, marker = styles[index] if styles else (f"a{index % _COLOURS}", _MARKERS[index % _COLOURS])
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
        width=_SVG_WIDTH,
        height=_HEIGHT + _ROW * (len(lines) + 1),
        label=label,
        lines=drawn,
        paths=paths,
        marks=marks,
        texts=texts,
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
