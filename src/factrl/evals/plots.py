"""The picture of a run: hallucination against abstention, and every outcome over the steps.

Needs matplotlib (extra `report`), imported when a plot is drawn.  Beside each picture lies the CSV with
its numbers.  The palette is safe for the common kinds of colour blindness, and no line is told apart by
colour alone: every one has its own marker.
"""

from __future__ import annotations

import csv
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Panel:
    """Lines on axes: title, names of the axes, and their limits."""

    lines: Sequence[Line]
    title: str
    names: tuple[str, str]
    x: tuple[float, float]
    y: tuple[float, float]
    percent: tuple[bool, bool] = (False, False)  # axes without numbers beyond 100


def hallucination_vs_abstention(curves: Curves, path: str | Path, *, title: str) -> Path:
    """Draw every arm's path from its first to its last step, and the last arm's outcomes over the steps.

    Args:
        curves: arm -> its points in the order of the steps; no arm may be empty.
        path: where to write; the suffix chooses the format (.png, .svg, .pdf).  The CSV goes beside it.
        title: what the picture shows, in one neutral sentence.

    Returns:
        The path of the CSV.
    """
    if not curves or not all(curves.values()):
        raise ValueError(f"a plot needs points for every arm; got {list(curves)}")
    main = list(curves)[-1]
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
    x = (first - 0.02 * span, last + 0.02 * span)
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


def short(arm: str) -> str:
    """The name of an arm in a label."""
    arm = one_line(arm)
    return arm if len(arm) <= 24 else f"{arm[:23]}…"


def _round_up(value: float) -> float:
    return 10.0 * math.ceil(value / 10)


def frame_of(curves: Curves) -> Spot:
    """Upper limits, in percent, of the abstention and the hallucination axis."""
    points = [point for arm in curves.values() for point in arm]
    widest, highest = max(p.abstention for p in points), max(p.hallucination for p in points)
    return _round_up(105 * widest + 3), _round_up(105 * highest + 3)


def path_of(points: Sequence[Point]) -> list[Spot]:
    """Abstention and hallucination by step, in percent."""
    return [(100 * point.abstention, 100 * point.hallucination) for point in points]


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
    _draw_paths(axes[0], left, start, guides=guides)
    _draw_steps(axes[1], right)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white")


def _draw_paths(axes: Axes, panel: Panel, start: str, *, guides: bool) -> None:
    _frame(axes, panel)
    for accuracy in range(0, 100, 20) if guides else ():
        axes.plot([0, 100 - accuracy], [100 - accuracy, 0], color=FAINT, linewidth=0.6, zorder=1)
    for line in panel.lines:
        if line.style["linestyle"]:
            style = {"linewidth": 1.6, **line.style, "markersize": 2.6}
            axes.plot(*zip(*line.spots, strict=True), **style, zorder=3)
        alone = {**line.style, "linestyle": ""}
        if line.also:
            axes.plot(*zip(*line.also, strict=True), **alone, markersize=3, alpha=0.3, zorder=4)
        axes.plot(*zip(line.spots[-1], strict=True), **alone, markersize=6.5, zorder=5, clip_on=False)
    first: dict[str, Any] = {"marker": "o", "color": INK, "linestyle": "", "mfc": "white"}
    for x, y in {line.spots[0] for line in panel.lines}:
        axes.plot(x, y, **first, markersize=6, zorder=6, clip_on=False)
    _legend(axes, [*panel.lines, Line(start, (), first)])


def _draw_steps(axes: Axes, panel: Panel) -> None:
    _frame(axes, panel)
    steps = [step for line in panel.lines for step, _ in line.spots]
    axes.set_xticks([tick for tick in axes.get_xticks() if min(steps) <= tick <= max(steps)])
    axes.spines["bottom"].set_bounds(min(steps), max(steps))
    if panel.y[0] < 0 < panel.y[1]:
        axes.axhline(0, color=FAINT, linewidth=0.8, zorder=1)
    for line in panel.lines:
        spots = line.spots if line.style["linestyle"] else line.spots[-1:]
        style = {"linewidth": 1.6, **line.style, "markersize": 3.5 if line.style["linestyle"] else 5}
        axes.plot(*zip(*spots, strict=True), **style, zorder=3, clip_on=False)
    _legend(axes, panel.lines)


def _legend(axes: Axes, lines: Sequence[Line]) -> None:
    """Every name beside its marker; names are others' words, without a meaning for matplotlib."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], markersize=5, **line.style) for line in lines]
    names = [f" {line.name}" for line in lines]  # one that begins with "_" would not be shown
    legend = axes.legend(handles, names, fontsize=7.5, framealpha=0.7, edgecolor="none")
    for text in legend.get_texts():
        text.set_parse_math(False)


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
