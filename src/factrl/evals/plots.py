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
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from factrl.errors import MissingExtra
from factrl.text.escape import cell, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTCOMES = ("accuracy", "abstention", "hallucination", "truthfulness")
INK, FAINT = "#1c2126", "#b9c0c7"
_OUTCOME_STYLE = {
    "accuracy": ("#0b62a0", "o", 1.6),
    "abstention": ("#5b6570", "s", 1.6),
    "hallucination": ("#b54708", "^", 1.6),
    "truthfulness": (INK, "D", 2.4),
}
_ARM_STYLE = (("#882255", "o"), ("#11746a", "s"), ("#332288", "^"), ("#7a6200", "D"), ("#5b6570", "v"))
_WIDTH, _HEIGHT, _DPI = 7.33, 3.45, 300  # 1100 px of a README at twice the density


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


@dataclass(frozen=True, slots=True)
class Guide:
    """A line of equal accuracy and the middle of its name, which is empty without room; percentages."""

    accuracy: int
    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Label:
    """A name beside the end of a path (or, without an arm, beside the start); percentages."""

    arm: int | None
    text: str
    x: float
    y: float


Curves = Mapping[str, Sequence[Point]]
Box = tuple[float, float, float, float]  # left, bottom, right, top, as shares of the panel


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
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report") from None
    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=_DPI, layout="constrained")
    heading = figure.suptitle(
        "\n".join(textwrap.wrap(one_line(title), 86)), x=0.012, ha="left", fontsize=10, color=INK
    )
    heading.set(fontweight="bold", parse_math=False)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.12))
    _draw_paths(left, curves)
    _draw_steps(right, main, curves[main])
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white")
    return write_csv(curves, path.with_suffix(".csv"))


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


def frame_of(curves: Curves) -> tuple[float, float]:
    """Upper limits, in percent, of the abstention and the hallucination axis, with room for labels."""
    points = [point for arm in curves.values() for point in arm]
    widest, highest = max(p.abstention for p in points), max(p.hallucination for p in points)
    return _round_up(100 * widest * 1.1 + 8), _round_up(100 * highest * 1.05 + 6)


def starts_of(curves: Curves) -> list[tuple[float, float]]:
    """Where the arms start, in percent; once where they share a start."""
    return sorted({(100 * arm[0].abstention, 100 * arm[0].hallucination) for arm in curves.values()})


def path_labels(
    curves: Curves, reach: tuple[float, float], character: tuple[float, float]
) -> tuple[list[Guide], list[Label]]:
    """Where the names in the hallucination-abstention panel hide the least.

    Args:
        reach: upper limits of both axes, from `frame_of`.
        character: width and height of a character as shares of the panel.

    Returns:
        One guide per line of equal accuracy, and one label per arm plus one for the start; x and y are
        percentages, the left end and the middle of the text.
    """
    paths = [
        [(p.abstention * 100 / reach[0], p.hallucination * 100 / reach[1]) for p in arm]
        for arm in curves.values()
    ]
    taken = [spot for path in paths for spot in dense_path(path)]
    first = next(iter(curves.values()))[0]
    wanted: list[tuple[int | None, str, tuple[float, float]]] = [
        (index, f"{_short(arm)}, step {points[-1].step}", paths[index][-1])
        for index, (arm, points) in enumerate(curves.items())
    ]
    wanted.append((None, f"step {first.step}", paths[0][0]))
    labels: list[Label] = []
    boxes: list[Box] = []
    for arm, text, (x, y) in wanted:
        width, height = character[0] * len(text), character[1]
        box = min(label_boxes(x, y, width, height), key=lambda box: label_cost(box, taken, boxes))
        boxes.append(box)
        labels.append(Label(arm, text, box[0] * reach[0], (box[1] + height / 2) * reach[1]))
    taken += [
        (left + (right - left) * i / 8, (low + high) / 2)
        for left, low, right, high in boxes
        for i in range(9)
    ]
    return [guide_line(a, reach, taken) for a in range(0, 100, 20) if 100 - a < sum(reach) - 24], labels


def guide_line(accuracy: int, reach: tuple[float, float], taken: Sequence[tuple[float, float]]) -> Guide:
    """The name of a line of equal accuracy goes where its whole length is farthest from anything drawn."""
    rest = 100 - accuracy
    low, high = max(0.0, rest - reach[1]), min(float(rest), reach[0])

    def room(x: float) -> float:
        along = [x + share * reach[0] for share in (-0.08, -0.04, 0.0, 0.04, 0.08)]
        spots = [(x / reach[0] + 0.01, (rest - x) / reach[1] + 0.02) for x in along]
        inside = (min(x, y, 1 - x, 1 - y) for x, y in spots)
        return min(0.1, *inside, *(math.dist(spot, other) for spot in spots for other in taken))

    places = [
        low + (high - low) * share / 20 for share in (10, 9, 11, 8, 12, 7, 13, 6, 14, 5, 15, 4, 16, 3, 17)
    ]
    x = max(places, key=room)
    return Guide(accuracy, x, rest - x, f"accuracy {accuracy} %" if room(x) > 0.035 else "")


def arm_style(index: int) -> tuple[str, str]:
    """Colour and marker of the arm at this position."""
    return _ARM_STYLE[index % len(_ARM_STYLE)]


def outcome_marker(name: str) -> str:
    """Marker of an outcome's line."""
    return _OUTCOME_STYLE[name][1]


def _draw_paths(axes: Axes, curves: Curves) -> None:
    reach = frame_of(curves)
    style_axes(axes, "Hallucination against abstention", (0, reach[0]), (0, reach[1]))
    axes.set_xlabel("abstention, % of questions", fontsize=8, color=INK)
    axes.set_ylabel("hallucination, %", fontsize=8, color=INK)
    for index, points in enumerate(curves.values()):
        colour, marker = arm_style(index)
        xs, ys = [100 * p.abstention for p in points], [100 * p.hallucination for p in points]
        axes.plot(xs, ys, color=colour, linewidth=1.6, marker=marker, markersize=2.6, zorder=3)
        ends = {"color": colour, "marker": marker, "markersize": 6.5, "clip_on": False}
        axes.plot(xs[-1:], ys[-1:], zorder=5, **ends)
    for x, y in starts_of(curves):
        axes.plot(x, y, marker="o", markersize=6, mfc="white", color=INK, zorder=4, clip_on=False)
    guides, labels = path_labels(curves, reach, (0.021, 0.048))
    for guide in guides:
        rest = 100 - guide.accuracy
        axes.plot([rest - reach[1], rest], [reach[1], 0], color=FAINT, linewidth=0.6, zorder=1)
        axes.text(
            *(guide.x, guide.y, guide.text),
            **{"fontsize": 6.5, "color": "#5f6870", "ha": "center", "va": "bottom", "rotation": -45},
            **{"rotation_mode": "anchor", "transform_rotates_text": True, "zorder": 2},
        )
    for label in labels:
        colour = INK if label.arm is None else arm_style(label.arm)[0]
        write_label(axes, label.x, label.y, label.text, colour)


def dense_path(path: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The path as spots so close that no label fits between them."""
    spots = list(path[:1])
    for (x0, y0), (x1, y1) in pairwise(path):
        count = 1 + int(math.dist((x0, y0), (x1, y1)) / 0.02)
        spots += [(x0 + (x1 - x0) * i / count, y0 + (y1 - y0) * i / count) for i in range(1, count + 1)]
    return spots


def label_boxes(x: float, y: float, width: float, height: float) -> list[Box]:
    """Boxes around a spot, the preferred ones first: to the right, then above and below, ever farther."""
    away = 0.03
    corners = [(x + away, y - height / 2)]
    for row in range(4):
        up, down = y + away + row * height, y - away - (row + 1) * height
        corners += [(left, low) for left in (x + away / 2, x - width / 2, x - width) for low in (up, down)]
    corners.append((x - width - away, y - height / 2))
    return [(left, low, left + width, low + height) for left, low in corners]


def label_cost(box: Box, taken: Sequence[tuple[float, float]], boxes: Sequence[Box]) -> float:
    """How bad a place for a label is: on another label, outside the panel, on a path, in this order."""
    left, low, right, high = box
    crossed = sum(left < b[2] and b[0] < right and low < b[3] and b[1] < high for b in boxes)
    outside = max(0.0, -left) + max(0.0, right - 1) + max(0.0, -low) + max(0.0, high - 1)
    covered = sum(left - 0.01 <= x <= right + 0.01 and low - 0.015 <= y <= high + 0.015 for x, y in taken)
    return 1000 * crossed + 200 * outside + covered


def _draw_steps(axes: Axes, arm: str, points: Sequence[Point]) -> None:
    shown = {name: [100 * getattr(point, name) for point in points] for name in OUTCOMES}
    values = [value for series in shown.values() for value in series]
    low, high = min(0, -_round_up(-min(values))), _round_up(max(values))
    first, last = points[0].step, points[-1].step
    span = max(last - first, 1)
    style_axes(axes, f"{_short(arm)} over the steps", (first - 0.02 * span, last + 0.5 * span), (low, high))
    axes.set_xlabel("step", fontsize=8, color=INK)
    axes.set_ylabel("% (truthfulness = accuracy − hallucination)", fontsize=7.5, color=INK)
    axes.set_xticks([tick for tick in axes.get_xticks() if first <= tick <= last])
    axes.spines["bottom"].set_bounds(first, last)
    if low < 0:
        axes.axhline(0, color=FAINT, linewidth=0.8, zorder=1)
    heights = spread([shown[name][-1] for name in OUTCOMES], 0.085 * (high - low))
    for name, height in zip(OUTCOMES, heights, strict=True):
        colour, marker, width = _OUTCOME_STYLE[name]
        steps = [point.step for point in points]
        axes.plot(steps, shown[name], color=colour, linewidth=width, marker=marker, markersize=3.6, zorder=3)
        end = f"{name} {shown[name][-1]:.1f}".replace("-", "−")
        write_label(axes, last + 0.04 * span, height, end, colour)


def style_axes(axes: Axes, title: str, x: tuple[float, float], y: tuple[float, float]) -> None:
    """Title, ranges and the look of a panel."""
    axes.set_title(title, loc="left", fontsize=8.5, color=INK, parse_math=False)
    axes.set_xlim(*x)
    axes.set_ylim(*y)
    axes.tick_params(labelsize=7.5, colors=INK, length=3, width=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)


def write_label(axes: Axes, x: float, y: float, text: str, colour: str) -> None:
    """A name beside what it names, readable on top of lines."""
    from matplotlib.patheffects import withStroke

    shown = axes.text(x, y, text, color=colour, fontsize=7.5, va="center", zorder=6, parse_math=False)
    halo = withStroke(linewidth=2, foreground="white")
    shown.set(fontweight="bold", path_effects=[halo])


def _short(arm: str) -> str:
    arm = one_line(arm)
    return arm if len(arm) <= 24 else f"{arm[:23]}…"


def _round_up(value: float) -> float:
    return 10.0 * math.ceil(value / 10)
