"""A training run as one HTML file: what changed, how sure that is, and what the model says now.

The file needs no network and runs no script: its policy allows nothing but its own styles, and every
text in it, whoever wrote it, is escaped by `factrl.text.escape`.  The same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from factrl.evals import charts
from factrl.evals.changes import BADGES, MetricRow, as_points, changes_table, fill, overview
from factrl.evals.plots import OUTCOMES, Curves
from factrl.text.escape import attribute, linked, markup
from factrl.types import Label

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_SHORT_FACT, _TALL_TEXT = 48, 600


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said and how it was graded; a label of None means that it could not be graded."""

    text: str
    label: Label | None


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One question with the answer before the run and, by arm, after it."""

    question: str
    answers: Sequence[str]
    before: Answer
    after: Mapping[str, Answer]


def write_training_report(
    path: str | Path,
    *,
    title: str,
    facts: Mapping[str, str],
    table: Sequence[MetricRow],
    curves: Curves,
    examples: Sequence[SideBySide],
    masked: Mapping[str, int],
    notes: Sequence[str],
    main: str = "",
) -> Path:
    """Write the report of a training run as one self-contained HTML file.

    Args:
        path: where to; missing folders are made.
        title: what was trained on what, in one line.
        facts: the run's header in reading order (model, reward, seed, …); long values such as the command
            go to the end of the page.  A value that is an http(s) URL becomes a link.
        table: from `metric_rows`, and any other metric of the run.
        curves: arm -> held-out points by step; empty when the run was not evaluated on its way.
        examples: shown in this order.
        masked: cause -> how many questions could not be graded.
        notes: what a reader must know, one paragraph each.
        main: the arm whose outcomes are drawn over the steps; by default the last one.
    """
    main = main or next(reversed(list(curves)), "")
    if any(not points for points in curves.values()) or (main and main not in curves):
        raise ValueError(f"a report needs points for every arm and for {main!r}; got {list(curves)}")
    short = {name: value for name, value in facts.items() if _is_short(value)}
    body = [
        f'<p class="eyebrow">factrl training report</p><h1>{markup(title)}</h1>{facts_list(short)}',
        overview(table),
        changes_table(table),
        curves_section(curves, main) if curves else "",
        _examples(examples),
        _masked(masked),
        _notes(notes),
        _long_facts({name: value for name, value in facts.items() if name not in short}),
    ]
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html_page(title, [*body, _FOOTER]), encoding="utf-8")
    return path


def html_page(title: str, body: Sequence[str]) -> str:
    """A self-contained page without scripts.

    Args:
        title: plain text.
        body: HTML, every text in it escaped; empty parts are left out.
    """
    style = files("factrl.evals").joinpath("report.css").read_text(encoding="utf-8")
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{attribute(title)}</title>\n<style>\n{style}</style>"
    )
    page = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n'
    return page + "\n".join(filter(None, body)) + "\n</main></body></html>\n"


# Header and end of the page


def _is_short(value: str) -> bool:
    return len(value) <= _SHORT_FACT and "\n" not in value


def facts_list(facts: Mapping[str, str]) -> str:
    """The header of a page: what it is about, in short words, as name and value."""
    items = (f"<div><dt>{markup(name)}</dt><dd>{linked(value)}</dd></div>" for name, value in facts.items())
    return f'<dl class="facts">{"".join(items)}</dl>' if facts else ""


def _long_facts(facts: Mapping[str, str]) -> str:
    if not facts:
        return ""
    items = (f"<dt>{markup(name)}</dt><dd><pre>{linked(value)}</pre></dd>" for name, value in facts.items())
    return f'<section><h2>How this was made</h2><dl class="long">{"".join(items)}</dl></section>'


def _masked(masked: Mapping[str, int]) -> str:
    total = sum(masked.values())
    if not total:
        return "<section><h2>Not graded</h2><p>Every question was graded.</p></section>"
    rows = "".join(
        f'<tr><th scope="row">{markup(cause.replace("_", " "))}</th><td>{count}</td></tr>'
        for cause, count in sorted(masked.items(), key=lambda item: -item[1])
    )
    return (
        f"<section><h2>Not graded: {total}</h2><p>Left out of every number above: grading failed, not the "
        'model.</p><table class="causes"><thead><tr><th>cause</th><th>questions</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></section>"
    )


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{markup(note)}</li>" for note in notes)
    return f'<section><h2>Notes</h2><ul class="notes">{items}</ul></section>' if notes else ""


_FOOTER = (
    "<footer><p>Numbers are percentages of the graded questions with 95 % intervals in brackets: Wilson for "
    "rates, bootstrap over questions for the rest, paired by question for differences. A change is called "
    "better or worse only when its interval leaves out zero.</p></footer>"
)


# Curves and examples


def curves_section(curves: Curves, main: str) -> str:
    """Held-out questions while a run went on: the two charts, and the numbers behind.

    Args:
        main: the arm whose outcomes are drawn over the steps.
    """
    rows = "".join(
        f'<tr><th scope="row">{markup(arm)}</th><td>{point.step}</td>'
        + "".join(f"<td>{as_points(getattr(point, name))}</td>" for name in OUTCOMES)
        + "</tr>"
        for arm, points in curves.items()
        for point in points
    )
    names = "".join(f"<th>{name}</th>" for name in ("model", "step", *OUTCOMES))
    return (
        "<section><h2>On the way</h2><p>Held-out questions during training. Down along a thin line, wrong "
        "answers become abstentions at equal accuracy; across the lines to the right, right answers are lost "
        "too.</p>"
        f'<div class="charts">{charts.path_chart(curves)}{charts.steps_chart(main, curves[main])}</div>'
        f'<details><summary>The numbers behind</summary><div class="scroll" tabindex="0" role="region" '
        f'aria-label="numbers"><table><thead><tr>{names}</tr>'
        f"</thead><tbody>{rows}</tbody></table></div></details></section>"
    )


def _examples(examples: Sequence[SideBySide]) -> str:
    if not examples:
        return ""
    groups = [_groups(example) for example in examples]
    choices = ("all", "all"), ("fixed", "no longer wrong"), ("lost", "no longer right")
    radios: list[str] = []
    for key, words in choices:
        count = sum(key in ("all", *group) for group in groups)
        checked = " checked" if key == "all" else ""
        box = f'<input type="radio" name="show" id="show-{key}"{checked}>'
        radios.append(f'<label>{box}{words} <span class="muted">{count}</span></label>')
    shown = [_example(example, group) for example, group in zip(examples, groups, strict=True)]
    return (
        "<section><h2>Before and after, word for word</h2>"
        f'<fieldset class="filter"><legend class="hide">Show</legend>{"".join(radios)}</fieldset>'
        f"{''.join(shown)}</section>"
    )


def _groups(example: SideBySide) -> list[str]:
    """Filters that show this example: what became of a wrong or a right answer in any arm."""
    first, last = example.before.label, {answer.label for answer in example.after.values()} - {None}
    return [
        name for name, was in (("fixed", "incorrect"), ("lost", "correct")) if first == was and last - {was}
    ]


def _example(example: SideBySide, groups: Sequence[str]) -> str:
    gold = " · ".join(map(markup, example.answers)) or "none"
    after = (_answer(arm, answer) for arm, answer in example.after.items())
    return (
        f'<article class="{" ".join(["example", *groups])}"><h3 dir="auto">{markup(example.question)}</h3>'
        f'<p class="gold">accepted: <span dir="auto">{gold}</span></p>'
        f'<div class="answers">{_answer("before", example.before)}{"".join(after)}</div></article>'
    )


def _answer(arm: str, answer: Answer) -> str:
    letter, word = BADGES[answer.label]
    style = fill(answer.label)
    tall = len(answer.text) > _TALL_TEXT
    scrolls = f' tabindex="0" role="region" aria-label="answer of {attribute(arm)}"' if tall else ""
    text = markup(answer.text) or '<span class="muted">(empty)</span>'
    return (
        f'<div class="answer edge-{style[-1]}"><header><span>{markup(arm)}</span><span class="badge">'
        f'<i class="{style}">{letter}</i>{word}</span></header>'
        f'<div class="text{" tall" if tall else ""}" dir="auto"{scrolls}>{text}</div></div>'
    )
