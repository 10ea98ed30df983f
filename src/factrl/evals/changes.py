"""How a run changed its metrics: the rows of the report, their overview and their table.

Everything here is HTML for `factrl.evals.report`, whose style sheet it relies on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from factrl.evals import charts
from factrl.evals.metrics import TRUTHRL, Interval, Weights, compare, short_form
from factrl.text.escape import markup
from factrl.types import Grade, Label

# One letter, one word and one colour each: never colour alone.
BADGES: Mapping[Label | None, tuple[str, str]] = {
    "correct": ("C", "correct"),
    "abstained": ("A", "abstained"),
    "incorrect": ("W", "wrong"),
    None: ("–", "not graded"),
}
_SHARES: Mapping[str, Label] = {
    "accuracy": "correct",
    "abstention": "abstained",
    "hallucination": "incorrect",
}
_ABOUT: Mapping[str, tuple[str, Literal["higher", "lower", "neither"]]] = {
    "accuracy": ("right answers / graded questions", "higher"),
    "abstention": ("declined / graded questions", "neither"),
    "hallucination": ("wrong answers / graded questions", "lower"),
    "truthfulness": ("accuracy − hallucination", "higher"),
    "correct_given_attempted": ("right answers / answers given", "higher"),
    "f_score": ("harmonic mean of accuracy and correct given attempted", "higher"),
}
_UNDEFINED = '<span class="muted" title="undefined: nothing to divide by">–</span>'


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric before the run and after it.

    Attributes:
        metric: its name; `accuracy`, `abstention`, `hallucination` and `truthfulness` make the overview.
        before: None where it is undefined.
        after, difference: by arm; the difference is after minus before on the same questions.
        better: which direction is good; `neither` when that depends.
        about: the definition, in a few words.
    """

    metric: str
    before: Interval | None
    after: Mapping[str, Interval | None]
    difference: Mapping[str, Interval | None]
    better: Literal["higher", "lower", "neither"] = "neither"
    about: str = ""


def metric_rows(
    before: Sequence[Grade | None],
    after: Mapping[str, Sequence[Grade | None]],
    weights: Weights = TRUTHRL,
) -> list[MetricRow]:
    """The rows of the report from the grades themselves.

    Args:
        before: one grade per question, None where masked.
        after: the same questions in the same order, by arm.
        weights: what an outcome is worth in truthfulness.
    """
    first = short_form(before, weights).metrics
    last = {arm: short_form(grades, weights).metrics for arm, grades in after.items()}
    change = {arm: compare(before, grades, weights).differences for arm, grades in after.items()}
    rows: list[MetricRow] = []
    for name, interval in first.items():
        about, better = _ABOUT[name]
        if name == "truthfulness" and weights != TRUTHRL:
            worth = (weights.correct, weights.abstain, weights.wrong)
            about = "{:g} × accuracy + {:g} × abstention − {:g} × hallucination".format(*worth)
        ends, moved = ({arm: found[name] for arm, found in by.items()} for by in (last, change))
        rows.append(MetricRow(name, interval, ends, moved, better, about))
    return rows


def overview(table: Sequence[MetricRow]) -> str:
    """One bar of right, declined and wrong answers per arm; empty when the table lacks one of the three."""
    rows = {row.metric: row for row in table}
    if not rows.keys() >= _SHARES.keys():
        return ""
    truth = rows.get("truthfulness")
    keys = "".join(
        f'<span><i class="{fill(label)}">{BADGES[label][0]}</i>{BADGES[label][1]}</span>'
        for label in _SHARES.values()
    )
    head = f'<div class="arm head"><span>answers</span><span class="key">{keys}</span>'
    bars = [f"{head}<span>{'truthfulness' if truth else ''}</span></div>"]
    for arm in (None, *rows["accuracy"].after):
        shares = {name: _at(rows[name], arm) for name in _SHARES}
        score = _score(truth, arm) if truth else "<span></span>"
        bars.append(f'<div class="arm"><b>{_arm(arm)}</b>{_bar(shares)}{score}</div>')
    return (
        "<section><h2>What changed</h2><p>The same held-out questions before and after training.</p>"
        f"{''.join(bars)}</section>"
    )


def _bar(shares: Mapping[str, Interval | None]) -> str:
    spans: list[str] = []
    told: list[str] = []
    for name, share in shares.items():
        if share is None:
            return f"<span>{_UNDEFINED}</span>"
        label = _SHARES[name]
        letter, word = BADGES[label]
        told.append(f"{word} {as_points(share.value)} %")
        # A segment too narrow for its number keeps it in the hover text and in the table below.
        number = f"<b>{as_points(share.value)}</b>" if share.value >= 0.09 else ""
        inside = f"<i>{letter}</i>{number}" if share.value >= 0.04 else ""
        width = f'style="width:{100 * share.value:.2f}%" title="{told[-1]}"'
        spans.append(f'<span class="{fill(label)}" {width}>{inside}</span>')
    return f'<div class="bar" role="img" aria-label="{", ".join(told)}">{"".join(spans)}</div>'


def _score(row: MetricRow, arm: str | None) -> str:
    interval, change = _at(row, arm), row.difference.get(arm) if arm is not None else None
    shown = as_points(interval.value) if interval else _UNDEFINED
    amount = f" by {as_points(abs(change.value))}" if change and change.excludes_zero else ""
    tone, verdict = _verdict(row, change)
    small = f'<small class="{tone}">{verdict}{amount}</small>' if change else ""
    return f'<div class="score"><span class="what">truthfulness </span><strong>{shown}</strong>{small}</div>'


def changes_table(table: Sequence[MetricRow]) -> str:
    """Every metric by arm with its interval, its change and whether that is clear of chance."""
    if not table:
        return ""
    found = [change for row in table for change in row.difference.values() if change]
    reach = max([0.1, *(-change.low for change in found), *(change.high for change in found)])
    reach = math.ceil(10 * reach) / 10
    body = "".join(_metric(row, reach) for row in table)
    scale = f"−{100 * reach:.0f} to +{100 * reach:.0f} points"
    return (
        "<section><h2>The numbers</h2><p>Each value with its 95 % interval, and the change on the same "
        'questions.</p><table class="changes"><thead><tr><th>metric</th><th>model</th><th>value</th>'
        f'<th>change against before</th><td></td><th class="drawn">{scale}</th>'
        f"</tr></thead>{body}</table></section>"
    )


def _metric(row: MetricRow, reach: float) -> str:
    about = f"<small>{markup(row.about)}</small>" if row.about else ""
    name = (
        f'<th class="metric" scope="rowgroup" rowspan="{1 + len(row.after)}">{_words(row.metric)}{about}</th>'
    )
    lines: list[str] = []
    for arm in (None, *row.after):
        change = row.difference.get(arm) if arm is not None else None
        tone, verdict = _verdict(row, change)
        drawn = charts.whisker(change, reach, tone) if change else ""
        moved = "" if arm is None else _split(change.signed()) if change else _UNDEFINED
        value = _at(row, arm)
        lines.append(
            f'<tr>{"" if arm is not None else name}<th scope="row">{_arm(arm)}</th>'
            f"<td>{_split(str(value)) if value else _UNDEFINED}</td><td>{moved}</td>"
            f'<td class="verdict {tone}">{verdict}</td><td class="drawn">{drawn}</td></tr>'
        )
    return f"<tbody>{''.join(lines)}</tbody>"


def _words(metric: str) -> str:
    return markup(metric.replace("_", " "))


def _split(text: str) -> str:
    """`46.4 [40.1, 52.8]` with the brackets set apart, and a real minus sign."""
    value, limits = text.replace("-", "−").split(" ", 1)
    return f'<span class="value">{value}</span> <span class="ci">{limits}</span>'


def _verdict(row: MetricRow, change: Interval | None) -> tuple[str, str]:
    """Tone and words for a change: `good`, `bad` or `none`, and e.g. `▼ better`."""
    if change is None:
        return "none", ""
    if not change.excludes_zero:
        return "none", "no clear change"
    up = change.value > 0
    if row.better == "neither":
        return "none", "▲ more" if up else "▼ less"
    good = up == (row.better == "higher")
    return ("good" if good else "bad"), f"{'▲' if up else '▼'} {'better' if good else 'worse'}"


def _at(row: MetricRow, arm: str | None) -> Interval | None:
    return row.before if arm is None else row.after.get(arm)


def _arm(arm: str | None) -> str:
    return "before" if arm is None else markup(arm)


def as_points(share: float) -> str:
    """A share in points, with a real minus sign."""
    return str(Interval(share, share, share)).split(" ")[0].replace("-", "−")


def fill(label: Label | None) -> str:
    """The style sheet's class for a label's colour."""
    return f"fill-{'m' if label is None else BADGES[label][1][0]}"
