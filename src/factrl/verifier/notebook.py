"""A checked text as a notebook shows it: the score, and each claim with the sentence that decided.

Nothing here reaches beyond its own output: no style sheet, no script, no id and no link.  Letters, words and
lines tell the verdicts apart, and the colours are those of the notebook, light or dark.
"""

from __future__ import annotations

from factrl.text.escape import attribute

from .html import headline
from .marked import KINDS
from .report import Check, Report
from .rows import kind

_SHOWN = 40  # claims; the page of `to_html` has all
_LINES = {
    "refuted": "underline double",
    "unknown": "underline dotted",
    "unjudged": "underline dashed",
    "supported": "underline solid",
    "skipped": "none",
}
_CELL = 'style="text-align:left;vertical-align:baseline;white-space:normal" dir="auto"'


def notebook(report: Report) -> str:
    """The report as one HTML element without classes."""
    told = "<br/>".join(attribute(line) for line in report.summary())
    rows = "".join(_row(check) for check in report.checks[:_SHOWN])
    table = f"<table><tbody>{rows}</tbody></table>" if rows else ""
    more = len(report.checks) - _SHOWN
    rest = f"<p>and {more} more claims: <code>report.to_html(PATH)</code></p>" if more > 0 else ""
    judge = f"<p>judged by {attribute(report.judge)}</p>" if report.judge and rows else ""
    return f"<div><p><strong>{headline(report)}</strong><br/>{told}</p>{table}{rest}{judge}</div>"


def _row(check: Check) -> str:
    letter, word = KINDS[kind(check)]
    why = check.claim.skip if check.verdict is None else check.verdict.cause
    said = f"{attribute(check.claim.text)}{f' ({attribute(why)})' if why else ''}"
    if check.quote:
        where = attribute(check.quoted_from)
        said += f"<br/><small>“{attribute(check.quote)}”{f' ({where})' if where else ''}</small>"
    verdict = f'<b>{letter}</b>&nbsp;<span style="text-decoration:{_LINES[kind(check)]}">{word}</span>'
    return f"<tr><td {_CELL.replace('normal', 'nowrap')}>{verdict}</td><td {_CELL}>{said}</td></tr>"
