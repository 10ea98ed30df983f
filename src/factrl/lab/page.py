"""A lab run as one page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from factrl.text.html import page
from factrl.text.html import write_page as write

from .outcome import Outcome


def write_page(
    path: Path,
    *,
    headline: tuple[str, str],
    outcome: Outcome,
    cells: Sequence[Sequence[str]],
    signs: Sequence[Sequence[str]],
    agreements: Sequence[str],
    picture: Path,
    notes: Sequence[str],
    made: Mapping[str, str],
) -> Path:
    """Write the page.

    Args:
        headline: that this is a model world, and what was run.
        cells: for base and each arm, each column.
        signs: for each arm, the paper's direction and ours by judged column.
        agreements: for each arm, how many of them are the same.
        picture: a PNG, which goes into the page.
        notes: what the signs mean; the table's own notes follow in a part of their own.
        made: how this was made.
    """
    table, arms = outcome.table, [arm.row.arm for arm in outcome.arms]
    html = page(
        "lab/lab.html",
        title=f"Model world: {table.about}",
        main="lab",
        headline=headline,
        table=table,
        heading=table.about[0].upper() + table.about[1:],
        names=[column.name for column in table.columns],
        judged=[column.name for column in outcome.judged],
        arms=arms,
        cells=[[arm, *row] for arm, row in zip(["base", *arms], cells, strict=True)],
        signs=[
            [arm, *map(_sign, row), agrees] for arm, row, agrees in zip(arms, signs, agreements, strict=True)
        ],
        picture=base64.b64encode(picture.read_bytes()).decode("ascii"),
        numbers=_numbers(outcome),
        seed=outcome.seeds[0],
        samples=_samples(outcome),
        notes=notes,
        made=made,
    )
    return write(path, html)


def _sign(text: str) -> Mapping[str, str] | str:
    return {"text": text, "tone": "differs"} if "≠" in text else text


def _numbers(outcome: Outcome) -> list[list[str]]:
    """The means behind the picture, by arm and step."""
    columns, rows = outcome.table.columns, []
    for arm in outcome.arms:
        paths = [arm.path(column.metric) for column in columns]
        for points in zip(*paths, strict=True):
            values = [f"{c.scale * value:.2f}" for c, (_, value) in zip(columns, points, strict=True)]
            rows.append([arm.row.arm, str(points[0][0]), *values])
    return rows


def _samples(outcome: Outcome) -> list[list[str]]:
    """A few held-out questions of the first seed with what base and each arm answer."""
    said: dict[tuple[str, str], dict[str, str]] = {}
    for arm in (outcome.base, *outcome.arms):
        for question, completion, tier in arm.runs[0].samples:
            said.setdefault((tier, question), {})[arm.row.arm] = completion
    arms = ["base", *(arm.row.arm for arm in outcome.arms)]
    return [
        [f"{question} ({tier})" if tier else question, *(answers.get(arm, "") or "(empty)" for arm in arms)]
        for (tier, question), answers in said.items()
    ]
