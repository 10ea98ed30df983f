"""The picture of a study: a bar for each row, in parts for what is right, declined or unknown, and false.

    write_picture(studies, read_results(out, seeds), out / "study.svg")

SVG without script, coloured by the style sheet of all pages, as wide as a telephone.  Programs that know no
variables of CSS, such as LaTeX's and those of desktops, take the colours that stand at each bar.
"""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from factrl.runs.disk import write_whole
from factrl.studies import CALIBRATED, PICTURE_MARK, StudySettings
from factrl.studies.measure import Results
from factrl.studies.world import Task
from factrl.text.escape import one_line
from factrl.text.html import chart_style, fragment

_WIDTH, _ROW, _LEFT, _RIGHT = 420, 18, 118, 44
_BAR = 12

_COLOURS = {"accuracy": "#0b62a0", "abstention": "#5b6570", "hallucination": "#b54708"}
_ANSWERS = ("% of the answers", 100, ("right", "declined", "wrong"))
_CLAIMS = ("sentences a text", 1, ("true", "unknown", "false"))
BLOCKS: Mapping[Task, Sequence[tuple[str, float, Sequence[str]]]] = {
    "profile": (_CLAIMS,),
    "reasoned": (_ANSWERS, ("sentences of the reasoning", *_CLAIMS[1:])),
    "short": (_ANSWERS,),
}
"""By task, blocks of bars: what is counted, the unit, and the parts of a bar."""


def write_picture(studies: Mapping[str, StudySettings], results: Results, path: Path) -> None:
    """Draw a block of bars for each study, of greedy texts.

    Args:
        results: of `factrl.studies.engine.read_results`.
        path: of an SVG file; the picture of another run is replaced.

    Raises:
        ConfigError: it cannot be written.
    """
    y, titles, texts, boxes = 6.0, list[Any](), list[Any](), list[Any]()
    for name, study in studies.items():
        if not any(f"{name}/{row}" in seed for seed in results.values() for row in study.rows):
            continue
        for line in textwrap.wrap(one_line(study.title), 54):
            y += _ROW
            titles.append((10, y, line))
        for counted, unit, parts in BLOCKS[study.task]:
            y += _ROW
            x = 10.0
            for part, colour in zip(parts, _COLOURS, strict=True):
                boxes.append((colour, x, y - 9, 10, part))
                texts.append(("tick", x + 14, y, "start", part))
                x += 26 + 6.5 * len(part)
            texts.append(("tick", _WIDTH + 30, y, "end", counted))
            rows = [*_bars(results, name, study, parts)]
            most = max(sum(sizes) for _, sizes in rows) or 1
            for row, sizes in rows:
                y += _ROW
                texts.append(("axis", _LEFT - 8, y, "end", one_line(row, most=17)))
                x = float(_LEFT)
                for part, colour, size in zip(parts, _COLOURS, sizes, strict=True):
                    width = (_WIDTH - _LEFT - _RIGHT) * size / most
                    boxes.append((colour, x, y - 10, width, f"{row}: {part} {unit * size:.1f}"))
                    x += width
                label = " · ".join(f"{unit * size:.{0 if unit > 1 else 1}f}" for size in sizes)
                texts.append(("tick", x + 5, y, "start", label))
        y += 8
    svg = fragment(
        "studies/picture.svg",
        style=Markup(chart_style()),  # noqa: S704 - our own
        colours=_COLOURS,
        titles=titles,
        texts=texts,
        boxes=boxes,
        bar=_BAR,
        width=_WIDTH + 40,
        height=y + 10,
    )
    write_whole(path, svg.encode(), lambda there: PICTURE_MARK in there.read_bytes())


def _bars(
    results: Results, name: str, study: StudySettings, parts: Sequence[str]
) -> Iterator[tuple[str, list[float]]]:
    """Each row's name and its parts a text, means over the seeds; the start first."""
    keys = {"start": f"start-{study.task}", **{row: f"{name}/{row}" for row in (CALIBRATED, *study.rows)}}
    for row, key in keys.items():
        if seeds := [seed[key]["greedy"] for seed in results.values() if key in seed]:
            yield row, [statistics.fmean(_mean(texts, part) for texts in seeds) for part in parts]


def _mean(texts: Sequence[Mapping[str, Any]], part: str) -> float:
    """The count of a text on average; claims that are neither true nor false are unknown."""
    if part == "unknown":
        return statistics.fmean(text["claims"] - text["true"] - text["false"] for text in texts)
    return statistics.fmean(text[part] for text in texts)
