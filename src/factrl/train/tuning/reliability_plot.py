"""The reliability diagram: what share of the claims with a probability is true, before and after scaling.

Needs matplotlib (extra `report`), imported when a plot is drawn.  Beside the picture lies the CSV with its
numbers.  The size of a marker says how many claims it stands for.
"""

from __future__ import annotations

import csv
import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from factrl.errors import MissingExtra
from factrl.evals.plots import FAINT, INK, arm_style, style_axes, write_label
from factrl.text.escape import cell, one_line
from factrl.train.tuning.reliability import Reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE, _DPI = (4.2, 4.4), 200


def reliability_diagram(sets: Mapping[str, Reliability], path: str | Path, *, title: str) -> Path:
    """Draw a line for each set of probabilities; the diagonal is what can be taken at its word.

    Args:
        sets: name -> its numbers.
        path: where to write; the suffix chooses the format.  The CSV goes beside it.
        title: what the picture shows, in one neutral sentence.

    Returns:
        The path of the CSV.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("matplotlib", "report") from None
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
    heading = figure.suptitle(
        "\n".join(textwrap.wrap(one_line(title), 56)), x=0.02, ha="left", fontsize=9, color=INK
    )
    heading.set(fontweight="bold", parse_math=False)
    _draw(figure.subplots(), sets)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white")
    return write_bins(sets, path.with_suffix(".csv"))


def write_bins(sets: Mapping[str, Reliability], path: str | Path) -> Path:
    """Write the numbers behind the diagram: one row per set and bin."""
    path = Path(path)
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["set", "from", "to", "claims", "mean_probability", "share_true"])
        for name, found in sets.items():
            for one in found.bins:
                shares = ["" if x is None else format(x, ".6g") for x in (one.predicted, one.true)]
                table.writerow([cell(name), one.low, one.high, one.count, *shares])
    return path


def _draw(axes: Axes, sets: Mapping[str, Reliability]) -> None:
    style_axes(axes, "", (0, 100), (0, 100))
    axes.set_xlabel("probability of true, %", fontsize=8, color=INK)
    axes.set_ylabel("true, % of the claims with it", fontsize=8, color=INK)
    axes.plot([0, 100], [0, 100], color=FAINT, linewidth=1.0, zorder=1)
    for index, (name, found) in enumerate(sets.items()):
        colour, marker = arm_style(index)
        full = [
            (100 * b.predicted, 100 * b.true, b.count)
            for b in found.bins
            if b.predicted is not None and b.true is not None
        ]
        xs, ys, counts = (list(column) for column in zip(*full, strict=True))
        axes.plot(xs, ys, color=colour, linewidth=1.4, zorder=3)
        sizes = [8 + 90 * math.sqrt(count / max(counts)) for count in counts]
        axes.scatter(xs, ys, s=sizes, color=colour, marker=marker, alpha=0.8, zorder=4, clip_on=False)
        ece = found.metrics["ece"]
        told = f"{name}: ECE {100 * ece.value:.1f}" if ece else name
        write_label(axes, 4, 96 - 6 * index, told, colour)
