"""The picture of a study: a bar for each row, in parts for what is right, declined or unknown, and false.

    write_picture(studies, read_results(out, seeds), out / "study.svg")

SVG without script, coloured by the style sheet of all pages, as wide as a telephone.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from factrl.runs.disk import write_whole
from factrl.studies import CALIBRATED, StudySettings
from factrl.studies.measure import Results, per_entity
from factrl.studies.world import Task
from factrl.text.escape import one_line
from factrl.text.html import chart_style, fragment

_WIDTH, _ROW, _LEFT, _RIGHT = 420, 18, 118, 44
_BAR = 12

_ANSWERS = ("% of the answers", {"right": "accuracy", "declined": "abstention", "wrong": "hallucination"})
PARTS: Mapping[Task, tuple[str, Mapping[str, str]]] = {
    "profile": ("sentences a text", {"true": "accuracy", "unknown": "abstention", "false": "hallucination"}),
    "reasoned": _ANSWERS,
    "short": _ANSWERS,
}
"""By task: the unit, and the parts of a bar with their colours."""


def bars(results: Results, study: str, task: Task, rows: Sequence[str], how: str) -> Iterator[Any]:
    """Each row's name and the sizes of its parts, means over the seeds; the start first."""
    for name, row in (("start", f"start-{task}"), *((row, f"{study}/{row}") for row in rows)):
        held = [seed[row][how] for seed in results.values() if row in seed]
        if held:
            yield (
                name,
                [statistics.fmean(side) for side in zip(*(_parts(task, one) for one in held), strict=True)],
            )


def _parts(task: Task, rows: Sequence[Mapping[str, Any]]) -> list[float]:
    counts = dict.fromkeys(("texts", "true", "false", "claims", "right", "declined", "wrong"), 0.0)
    for sums in per_entity(rows).values():
        for name in counts:
            counts[name] += sums[name]
    counts["unknown"] = counts["claims"] - counts["true"] - counts["false"]
    unit = 1 if task == "profile" else 100
    return [unit * counts[name] / counts["texts"] for name in PARTS[task][1]]


def write_picture(
    studies: Mapping[str, StudySettings], results: Results, path: Path, *, how: str = "greedy"
) -> None:
    """Draw a block of bars for each study.

    Args:
        results: of `factrl.studies.engine.read_results`.
        path: of an SVG file; the picture of another run is replaced.
        how: `greedy` or `sampled`.

    Raises:
        ConfigError: it cannot be written.
    """
    y, titles, texts, boxes = 6.0, list[Any](), list[Any](), list[Any]()
    for name, study in studies.items():
        drawn = [*bars(results, name, study.task, [CALIBRATED, *study.rows], how)]
        if not drawn:
            continue
        unit, parts = PARTS[study.task]
        for line in textwrap.wrap(one_line(study.title), 54):
            y += _ROW
            titles.append((10, y, line))
        y += _ROW
        x = 10.0
        for part, colour in parts.items():
            boxes.append((colour, x, y - 9, 10, part))
            texts.append(("tick", x + 14, y, "start", part))
            x += 26 + 6.5 * len(part)
        texts.append(("tick", _WIDTH - 10, y, "end", unit))
        most = max(sum(sizes) for _, sizes in drawn) or 1
        for row, sizes in drawn:
            y += _ROW
            texts.append(("axis", _LEFT - 8, y, "end", _short(row)))
            x = float(_LEFT)
            for (part, colour), size in zip(parts.items(), sizes, strict=True):
                width = (_WIDTH - _LEFT - _RIGHT) * size / most
                boxes.append((colour, x, y - 10, width, f"{row}: {part} {size:.1f}"))
                x += width
            texts.append(
                ("tick", x + 5, y, "start", " · ".join(f"{size:.{0 if most > 20 else 1}f}" for size in sizes))
            )
        y += 8
    svg = fragment(
        "studies/picture.svg",
        style=Markup(chart_style()),  # noqa: S704 - our own
        titles=titles,
        texts=texts,
        boxes=boxes,
        bar=_BAR,
        width=_WIDTH + 40,
        height=y + 10,
    )
    write_whole(path, svg.encode(), lambda there: b"<desc>a study of factrl</desc>" in there.read_bytes())


def _short(name: str) -> str:
    return name if len(name) <= 17 else f"{name[:16]}…"
