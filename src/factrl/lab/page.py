"""A lab run as one HTML file, in the style of `factrl.evals.report`.

The file needs no network and runs no script: its policy allows nothing but its own styles and the picture
that it carries, and every text in it is escaped by `factrl.text.escape`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from factrl.text.escape import attribute, markup

from .outcome import Outcome

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_STYLE = """
.world { border-left: 4px solid var(--bad); padding: 8px 14px; background: var(--card); margin: 0 0 14px; }
.picture { width: 100%; height: auto; display: block; background: #fff; border-radius: 6px; }
.scroll th[scope="row"] { max-width: none; padding-right: 20px; }
.differs { color: var(--bad); font-weight: 600; }
"""


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
    table = outcome.table
    arms = [arm.row.arm for arm in outcome.arms]
    names = [column.name for column in table.columns]
    results = _table(["arm", *names], [[arm, *row] for arm, row in zip(["base", *arms], cells, strict=True)])
    judged = [column.name for column in outcome.judged]
    rows = [[arm, *row, agrees] for arm, row, agrees in zip(arms, signs, agreements, strict=True)]
    encoded = base64.b64encode(picture.read_bytes()).decode("ascii")
    about = f"{table.picture[1]} against {table.picture[0]}, and {table.picture[2]} over the steps, by arm"
    body = [
        f'<p class="world" role="note">{markup(headline[0])}</p>',
        f'<p class="eyebrow">factrl lab · table {markup(table.name)}</p>',
        f"<h1>{markup(_title(table.about))}</h1>",
        f"<section><h2>After training, in this model world</h2><p>{markup(headline[1])}</p>{results}"
        "</section>",
        f"<section><h2>The papers' signs of effect beside ours</h2>{_list(notes)}"
        f"{_table(['paper = here', *judged, 'agrees'], rows)}</section>",
        "<section><h2>On the way</h2><p>Means over the seeds; faint spots are single seeds.</p>"
        f'<img class="picture" alt="{attribute(about)}" src="data:image/png;base64,{encoded}">'
        f"{_numbers(outcome)}</section>",
        _samples(outcome),
        f"<section><h2>What to know</h2>{_list(table.notes)}</section>" if table.notes else "",
        _made(made),
    ]
    style = files("factrl.evals").joinpath("report.css").read_text(encoding="utf-8") + _STYLE
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{attribute(f'Model world: {table.about}')}</title>\n<style>\n{style}</style>"
    )
    page = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n'
    path.write_text(page + "\n".join(filter(None, body)) + "\n</main></body></html>\n", encoding="utf-8")
    return path


def _title(about: str) -> str:
    return about[0].upper() + about[1:]


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{markup(name)}</th>" for name in names)
    body = "".join(
        f'<tr><th scope="row">{markup(first)}</th>' + "".join(map(_cell, others)) + "</tr>"
        for first, *others in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    return f'<td class="differs">{markup(text)}</td>' if "≠" in text else f"<td>{markup(text)}</td>"


def _list(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{markup(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>'


def _numbers(outcome: Outcome) -> str:
    """The means behind the picture, folded."""
    columns = outcome.table.columns
    rows = []
    for arm in outcome.arms:
        paths = [arm.path(column.metric) for column in columns]
        for points in zip(*paths, strict=True):
            values = [f"{c.scale * value:.2f}" for c, (_, value) in zip(columns, points, strict=True)]
            rows.append([arm.row.arm, str(points[0][0]), *values])
    table = _table(["arm", "step", *(column.name for column in columns)], rows)
    return f"<details><summary>The numbers behind</summary>{table}</details>"


def _samples(outcome: Outcome) -> str:
    """A few held-out questions of the first seed with what each arm answers."""
    said: dict[tuple[str, str], dict[str, str]] = {}
    for arm in (outcome.base, *outcome.arms):
        for question, completion, tier in arm.runs[0].samples:
            said.setdefault((tier, question), {})[arm.row.arm] = completion
    if not said:
        return ""
    arms = ["base", *(arm.row.arm for arm in outcome.arms)]
    rows = [
        [f"{question} ({tier})" if tier else question, *(answers.get(arm, "") or "(empty)" for arm in arms)]
        for (tier, question), answers in said.items()
    ]
    return (
        f"<section><h2>Word for word</h2><p>Held-out questions of seed {outcome.seeds[0]}, with how well "
        f"the pretraining text tells of each.</p>{_table(['question', *arms], rows)}</section>"
    )


def _made(made: Mapping[str, str]) -> str:
    items = "".join(f"<dt>{markup(k)}</dt><dd><pre>{markup(v)}</pre></dd>" for k, v in made.items())
    return f'<section><h2>How this was made</h2><dl class="long">{items}</dl></section>'
