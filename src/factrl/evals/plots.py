"""The picture of a run: hallucination against abstention, and every outcome over the steps.

Needs matplotlib (extra `report`), imported when a plot is drawn.  Beside each picture lies the CSV with
its numbers.  The palette is safe for the common kinds of colour blindness, and no line is told apart by
colour alone: every one has its own marker and carries its name.
"""

from __future__ import annotations

import csv
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.errors import MissingExtra
from factrl.text.escape import cell, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTCOMES = ("accuracy", "abstention", "hallucination", "truthfulness")
INK, FAINT, GREY = "#1c2126", "#b9c0c7", "#5b6570"
OUTCOME_STYLE = {
    "accuracy": ("#0b62a0", "o", 1.6),
    "abstention": (GREY, "s", 1.6),
    "hallucination": ("#b54708", "^", 1.6),
    "truthfulness": (INK, "D", 2.4),
}
ARM_STYLE = (("#882255", "o"), ("#11746a", "s"), ("#332288", "^"), ("#7a6200", "D"), (GREY, "v"))
_WIDTH, _DPI = 7.33, 300  # 1100 px of a README at twice the density

Spot = tuple[float, float]
Box = tuple[float, float, float, float]  # left, bottom, right, top, as shares of the panel


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


@dataclass(frozen=True)
class Line:
    """A line of a panel, with the name beside its end.

    Attributes:
        spots: positions in the units of the panel, in order.
        style: matplotlib's colour, marker and line style; without a line, the last spot stands for all.
        also: faint spots beside it.
    """

    name: str
    spots: Sequence[Spot]
    style: Mapping[str, Any]
    also: Sequence[Spot] = field(default=())

    @property
    def shown(self) -> Sequence[Spot]:
        """The spots that are drawn."""
        return self.spots if self.style.get("linestyle") else self.spots[-1:]


@dataclass(frozen=True)
class Panel:
    """Lines on axes: title, names of the axes, and their limits."""

    lines: Sequence[Line]
    title: str
    names: tuple[str, str]
    x: tuple[float, float]
    y: tuple[float, float]
    percent: tuple[bool, bool] = (False, False)  # axes without numbers beyond 100

    def share(self, spot: Spot) -> Spot:
        """A spot as shares of the panel."""
        (left, right), (low, high) = self.x, self.y
        return (spot[0] - left) / (right - left), (spot[1] - low) / (high - low)


def hallucination_vs_abstention(curves: Curves, path: str | Path, *, title: str, main: str = "") -> Path:
    """Draw every arm's path from its first to its last step, and the main arm's outcomes over the steps.

    Args:
        curves: arm -> its points in the order of the steps; no arm may be empty.
        path: where to write; the suffix chooses the format (.png, .svg, .pdf).  The CSV goes beside it.
        title: what the picture shows, in one neutral sentence.
        main: the arm of the right panel; by default the last one.

    Returns:
        The path of the CSV.
    """
    main = main or next(reversed(list(curves)), "")
    if not curves.get(main) or not all(curves.values()):
        raise ValueError(f"a plot needs points for every arm and for {main!r}; got {list(curves)}")
    reach = frame_of(curves)
    arms = []
    for index, (arm, points) in enumerate(curves.items()):
        colour, marker = ARM_STYLE[index % len(ARM_STYLE)]
        style = {"color": colour, "marker": marker, "linestyle": "-"}
        arms.append(Line(f"{short(arm)}, step {points[-1].step}", path_of(points), style))
    names = ("abstention, % of questions", "hallucination, %")
    left = Panel(arms, "Hallucination against abstention", names, (0, reach[0]), (0, reach[1]))
    outcomes, points = [], curves[main]
    for name in OUTCOMES:
        colour, marker, width = OUTCOME_STYLE[name]
        style = {"color": colour, "marker": marker, "linestyle": "-", "linewidth": width}
        spots = [(float(point.step), 100 * getattr(point, name)) for point in points]
        outcomes.append(Line(f"{name} {spots[-1][1]:.1f}".replace("-", "−"), spots, style))
    values = [value for line in outcomes for _, value in line.spots]
    first, last = points[0].step, points[-1].step
    span, limits = max(last - first, 1), (min(0, -_round_up(-min(values))), _round_up(max(values)))
    names = ("step", "% (truthfulness = accuracy − hallucination)")
    x = (first - 0.02 * span, last + 0.5 * span)
    right = Panel(outcomes, f"{short(main)} over the steps", names, x, limits)
    start = f"step {next(iter(curves.values()))[0].step}"
    draw(Path(path), title, left, right, start=start, height=3.45, ratios=(1, 1.12))
    return write_csv(curves, Path(path).with_suffix(".csv"))


def write_csv(curves: Curves, path: str | Path) -> Path:
    """Write the numbers behind the curves: one row per arm and step, as shares."""
    path = Path(path)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["arm", "step", *OUTCOMES])
        for arm, points in curves.items():
            for point in points:
                shares = [format(getattr(point, name), ".6g") for name in OUTCOMES]
                table.writerow([cell(arm), point.step, *shares])
    return path


# -- Where names go -----------------------------------------------------------------------------------


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Move label positions apart to at least `gap`, in their order and as little as possible."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    groups: list[list[float]] = []  # [sum of the wished-for positions of the first label, labels]
    for rank, index in enumerate(order):
        groups.append([wanted[index] - rank * gap, 1])
        while len(groups) > 1 and groups[-2][0] / groups[-2][1] > groups[-1][0] / groups[-1][1]:
            total, count = groups.pop()
            groups[-1][0] += total
            groups[-1][1] += count
    starts = [total / count for total, count in groups for _ in range(int(count))]
    placed = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        placed[index] = starts[rank] + rank * gap
    return placed


def frame_of(curves: Curves) -> Spot:
    """Upper limits, in percent, of the abstention and the hallucination axis, with room for labels."""
    points = [point for arm in curves.values() for point in arm]
    widest, highest = max(p.abstention for p in points), max(p.hallucination for p in points)
    return _round_up(100 * widest * 1.1 + 8), _round_up(100 * highest * 1.05 + 6)


def path_of(points: Sequence[Point]) -> list[Spot]:
    """Abstention and hallucination by step, in percent."""
    return [(100 * point.abstention, 100 * point.hallucination) for point in points]


def place_names(
    names: Sequence[str], paths: Sequence[Sequence[Spot]], character: Spot
) -> tuple[list[Box], list[Spot]]:
    """Where names hide the least, all in shares of the panel.

    Args:
        names: of the ends of the paths; where they start is a path of one spot.
        character: width and height of a character.

    Returns:
        The box of each name, and the spots that are taken by paths and names.
    """
    taken = [spot for path in paths for spot in _dense(path)]
    boxes: list[Box] = []
    for name, path in zip(names, paths, strict=True):
        places = _boxes(*path[-1], character[0] * len(name), character[1])
        boxes.append(min(places, key=lambda box: _cost(box, taken, boxes)))
    inside = [(a + (c - a) * i / 8, (b + d) / 2) for a, b, c, d in boxes for i in range(9)]
    return boxes, taken + inside


def place_guides(reach: Spot, taken: Sequence[Spot]) -> list[tuple[int, float, float, str]]:
    """Lines of equal accuracy: it, and the middle of its name, which is empty without room; percentages.

    Args:
        reach: upper limits of both axes, which begin at 0.
        taken: spots in shares of the panel.
    """
    shown = (accuracy for accuracy in range(0, 100, 20) if 100 - accuracy < sum(reach) - 24)
    return [_guide(accuracy, reach, taken) for accuracy in shown]


def _guide(accuracy: int, reach: Spot, taken: Sequence[Spot]) -> tuple[int, float, float, str]:
    """The name goes where its whole length is farthest from anything drawn."""
    rest = 100 - accuracy
    low, high = max(0.0, rest - reach[1]), min(float(rest), reach[0])

    def room(x: float) -> float:
        along = [x + share * reach[0] for share in (-0.08, -0.04, 0.0, 0.04, 0.08)]
        spots = [(x / reach[0] + 0.01, (rest - x) / reach[1] + 0.02) for x in along]
        inside = (min(x, y, 1 - x, 1 - y) for x, y in spots)
        return min(0.1, *inside, *(math.dist(spot, other) for spot in spots for other in taken))

    middle_first = sorted(range(3, 18), key=lambda share: abs(share - 10))
    x = max((low + (high - low) * share / 20 for share in middle_first), key=room)
    return accuracy, x, rest - x, f"accuracy {accuracy} %" if room(x) > 0.035 else ""


def _dense(path: Sequence[Spot]) -> list[Spot]:
    """The path as spots so close that no label fits between them."""
    spots = list(path[:1])
    for (x0, y0), (x1, y1) in pairwise(path):
        count = 1 + int(math.dist((x0, y0), (x1, y1)) / 0.02)
        spots += [(x0 + (x1 - x0) * i / count, y0 + (y1 - y0) * i / count) for i in range(1, count + 1)]
    return spots


def _boxes(x: float, y: float, width: float, height: float) -> list[Box]:
    """Boxes around a spot, the preferred ones first: to the right, then above and below, ever farther."""
    away = 0.03
    corners = [(x + away, y - height / 2)]
    for row in range(4):
        up, down = y + away + row * height, y - away - (row + 1) * height
        corners += [(left, low) for left in (x + away / 2, x - width / 2, x - width) for low in (up, down)]
    corners.append((x - width - away, y - height / 2))
    return [(left, low, left + width, low + height) for left, low in corners]


def _cost(box: Box, taken: Sequence[Spot], boxes: Sequence[Box]) -> float:
    """How bad a place for a label is: on another label, outside the panel, on a path, in this order."""
    left, low, right, high = box
    crossed = sum(left < b[2] and b[0] < right and low < b[3] and b[1] < high for b in boxes)
    outside = max(0.0, -left) + max(0.0, right - 1) + max(0.0, -low) + max(0.0, high - 1)
    covered = sum(left - 0.01 <= x <= right + 0.01 and low - 0.015 <= y <= high + 0.015 for x, y in taken)
    return 1000 * crossed + 200 * outside + covered


def short(arm: str) -> str:
    """The name of an arm in a label."""
    arm = one_line(arm)
    return arm if len(arm) <= 24 else f"{arm[:23]}…"


def _round_up(value: float) -> float:
    return 10.0 * math.ceil(value / 10)


# -- Drawing ------------------------------------------------------------------------------------------


def draw(
    path: Path,
    title: str,
    left: Panel,
    right: Panel,
    *,
    start: str,
    height: float,
    ratios: Spot,
    guides: bool = True,
) -> None:
    """Paths on the left, lines by step on the right.

    Args:
        start: the name of where the paths start.
        height: of the picture, in inches.
        ratios: of the panels' widths.
        guides: lines of equal accuracy on the left, where abstention is across and hallucination is up.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report") from None
    figure = Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")
    wrapped = "\n".join(textwrap.wrap(one_line(title), 86))
    heading = figure.suptitle(wrapped, x=0.012, ha="left", fontsize=10, color=INK)
    heading.set(fontweight="bold", parse_math=False)
    axes = figure.subplots(1, 2, width_ratios=ratios)
    _draw_paths(axes[0], left, start, (0.0218 * ratios[1] / ratios[0], 0.16 / height), guides=guides)
    _draw_steps(axes[1], right, 0.28 / height)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white")


def _draw_paths(axes: Axes, panel: Panel, start: str, character: Spot, *, guides: bool) -> None:
    _frame(axes, panel)
    for line in panel.lines:
        xs, ys = zip(*line.spots, strict=True)
        if line.style["linestyle"]:
            axes.plot(xs, ys, **{"linewidth": 1.6, **line.style}, markersize=2.6, zorder=3)
        alone = {**line.style, "linestyle": ""}
        if line.also:
            axes.plot(*zip(*line.also, strict=True), **alone, markersize=3, alpha=0.3, zorder=4)
        axes.plot(xs[-1:], ys[-1:], **alone, markersize=6.5, zorder=5, clip_on=False)
    for x, y in {line.spots[0] for line in panel.lines}:
        axes.plot(x, y, marker="o", markersize=6, mfc="white", color=INK, zorder=6, clip_on=False)
    paths = [[panel.share(spot) for spot in line.shown] for line in panel.lines]
    paths.append([panel.share(panel.lines[0].spots[0])])
    names = [(line.name, line.style["color"]) for line in panel.lines] + [(start, INK)]
    boxes, taken = place_names([name for name, _ in names], paths, character)
    for (left, low, _, high), (name, colour) in zip(boxes, names, strict=True):
        (x0, x1), (y0, y1) = panel.x, panel.y
        _write(axes, x0 + left * (x1 - x0), y0 + (low + high) / 2 * (y1 - y0), name, colour)
    reach = panel.x[1], panel.y[1]
    for accuracy, x, y, text in place_guides(reach, taken) if guides else ():
        rest = 100 - accuracy
        axes.plot([rest - reach[1], rest], [reach[1], 0], color=FAINT, linewidth=0.6, zorder=1)
        placed = {"ha": "center", "va": "bottom", "rotation": -45, "rotation_mode": "anchor", "zorder": 2}
        axes.text(x, y, text, fontsize=6.5, color="#5f6870", transform_rotates_text=True, **placed)


def _draw_steps(axes: Axes, panel: Panel, gap: float) -> None:
    _frame(axes, panel)
    low, high = panel.y
    steps = [step for line in panel.lines for step, _ in line.spots]
    first, last = min(steps), max(steps)
    axes.set_xticks([tick for tick in axes.get_xticks() if first <= tick <= last])
    axes.spines["bottom"].set_bounds(first, last)
    if low < 0 < high:
        axes.axhline(0, color=FAINT, linewidth=0.8, zorder=1)
    gap = min(gap, 0.95 / len(panel.lines)) * (high - low)
    heights = spread([line.spots[-1][1] for line in panel.lines], gap)
    away = min(0.0, high - max(heights)) or max(0.0, low - min(heights))  # into the panel, together
    for line, height in zip(panel.lines, heights, strict=True):
        size = 3.5 if line.style["linestyle"] else 5
        style = {"linewidth": 1.6, **line.style, "markersize": size}
        axes.plot(*zip(*line.shown, strict=True), **style, zorder=3, clip_on=False)
        _write(axes, last + 0.045 * max(last - first, 1), height + away, line.name, line.style["color"])


def _frame(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=8.5, color=INK, parse_math=False)
    axes.set_xlim(*panel.x)
    axes.set_ylim(*panel.y)
    axes.set_xlabel(panel.names[0], fontsize=8, color=INK, parse_math=False)
    axes.set_ylabel(panel.names[1], fontsize=7.5, color=INK, parse_math=False)
    axes.tick_params(labelsize=7.5, colors=INK, length=3, width=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    # A panel may reach beyond 100 % to have room for labels; the numbers beside it may not.
    sides = ((axes.xaxis, axes.yaxis), panel.percent, (panel.x, panel.y))
    for axis, share, (low, high) in zip(*sides, strict=True):
        if share:
            axis.set_ticks([tick for tick in axis.get_ticklocs() if low <= tick <= min(high, 100)])


def _write(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    """A name beside what it names, readable on top of lines."""
    from matplotlib.patheffects import withStroke

    shown = axes.text(x, y, text, color=colour, fontsize=7.5, va="center", zorder=6, parse_math=False)
    shown.set(fontweight="bold", path_effects=[withStroke(linewidth=2, foreground="white")])
