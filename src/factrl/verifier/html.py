"""A checked text as one HTML file: its claims underlined by verdict, the evidence beside them, the score.

The file needs no network and runs no script.  Its policy allows nothing but the style sheet it carries, and
every text in it, whoever wrote it, is escaped by `factrl.text.escape`.  The same report gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from factrl.text.escape import attribute, markup

from .marked import KINDS, badge
from .report import Report, is_narrow
from .rows import Rows

_NONE = ' class="none"'
_START = 70  # characters that stand for a text in the table of texts
_WEAK = (
    '<p class="weak" role="note"><strong>Weak: this is not a verification.</strong> Claims and evidence were '
    "compared by words, names and numbers only; no model read them. A claim can share every word with the "
    "evidence and still be false.</p>"
)


def page(report: Report, *, recall_at: int | None = None) -> str:
    """The report as a self-contained HTML page.

    Args:
        recall_at: K; when given, recall@K and F1@K are worked out beneath the precision.

    Raises:
        ConfigError: K is below 1.
    """
    title = headline(report)
    head = f'<p class="eyebrow">{_eyebrow(report.weak)}</p><h1>{title}</h1>'
    return _document(title, [head, _one(report, recall_at)])


def pages(reports: Sequence[Report], *, recall_at: int | None = None) -> str:
    """Several texts as one page, with a table of them first.

    Args:
        recall_at: as in `page`.

    Raises:
        ConfigError: K is below 1.
    """
    weak = any(report.weak for report in reports)
    supported = sum(report.counts["supported"] for report in reports)
    claims = _count(sum(report.claims for report in reports), "claim")
    title = f"{supported} of {claims} in {_count(len(reports), 'text')} {_said(weak)}"
    body = [f'<p class="eyebrow">{_eyebrow(weak)}</p><h1>{title}</h1>', _contents(reports)]
    for number, report in enumerate(reports, start=1):
        head = f'<p class="eyebrow">text {number}</p><h2 class="headline">{headline(report)}</h2>'
        inside = _one(report, recall_at, f"text-{number}-", level=3)
        body.append(f'<div class="one" id="text-{number}">{head}{inside}</div>')
    return _document(title, body)


def _document(title: str, body: Sequence[str]) -> str:
    sheets = (files("factrl.evals").joinpath("report.css"), files("factrl.verifier").joinpath("html.css"))
    style = "\n" + "".join(sheet.read_text(encoding="utf-8") for sheet in sheets)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>factrl: {attribute(title)}</title>\n<style>{style}</style>"
    )
    inside = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main class="verified">\n{inside}\n'
        "</main></body></html>\n"
    )


# Header


def _eyebrow(weak: bool) -> str:
    return "factrl comparison by words" if weak else "factrl verification report"


def headline(report: Report) -> str:
    """What came of it, in a few words of ours."""
    if report.failure is not None:
        return "The text could not be checked"
    if report.floored:
        return "The text was not checked"
    if not report.claims:
        return "The text declines to answer" if report.abstained else "No claim to check"
    return f"{report.counts['supported']} of {_count(report.claims, 'claim')} {_said(report.weak)}"


def _said(weak: bool) -> str:
    return "match the evidence by words" if weak else "supported by the evidence"


def _contents(reports: Sequence[Report]) -> str:
    rows: list[str] = []
    for number, report in enumerate(reports, start=1):
        start = report.question or report.text
        name = (markup(start[:_START]) or "(empty)") + ("…" if len(start) > _START else "")
        counts = "".join(f"<td>{count}</td>" for count in report.counts.values())
        rows.append(
            f'<tr><td>{number}</td><th scope="row" dir="auto"><a href="#text-{number}">{name}</a></th>'
            f"<td>{_score(report)}</td>{counts}</tr>"
        )
    columns = ("", "text", "precision", *(KINDS[label][1] for label in Report("").counts))
    names = "".join(f"<th>{name}</th>" for name in columns)
    return (
        f'<section class="scroll" tabindex="0" role="region" aria-label="texts"><table class="texts"><thead>'
        f"<tr>{names}</tr></thead><tbody>{''.join(rows)}</tbody></table></section>"
    )


def _score(report: Report) -> str:
    if report.failure is not None or report.floored:
        return "not checked"
    if report.abstained and not report.claims:
        return "declined"
    low, high = report.bounds()
    return f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"


def _one(report: Report, recall_at: int | None, prefix: str = "", level: int = 2) -> str:
    """Everything about one text, beneath its headline."""
    rows = Rows(report, prefix, level + 1)
    title = f"h{level}"
    asked = f'<p class="asked" dir="auto">{markup(report.question)}</p>' if report.question else ""
    parts = [
        f"{asked}{_facts(report, rows.passages)}{_WEAK if report.weak else ''}",
        f'<section class="sums"><{title}>Score</{title}>{_sums(report, recall_at)}',
        f'{_legend(report)}</section><div class="panels"><section class="judged"><{title}>Text</{title}>',
        '<div class="body" dir="auto" tabindex="0" role="region" aria-label="text">'
        f"{rows.text()}</div></section>",
        f"<section><{title}>Claims</{title}>{rows.claims()}</section></div>",
    ]
    if rows.passages:
        parts.append(f"<section><{title}>Evidence</{title}>{rows.evidence()}</section>")
    return "\n".join(parts)


def _facts(report: Report, passages: int) -> str:
    skipped = sum(check.verdict is None for check in report.checks)
    facts = {
        "judge": markup(report.judge) or "none",
        "claims": str(report.claims) + (f" and {skipped} not counted" if skipped else ""),
        "passages": str(passages),
        "text": _count(len(report.text), "character"),
        "took": f"{report.seconds:.1f} s",
    }
    items = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
    return f'<dl class="facts">{"".join(items)}</dl>'


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# The score


def _sums(report: Report, recall_at: int | None) -> str:
    if report.failure is not None:
        return f"<p>There is none, because checking failed: {markup(str(report.failure))}</p>"
    if report.floored:
        return f"<p>0: the text was not read ({markup(report.floored)}).</p>"
    if not report.claims and report.abstained:
        return "<p>There is none: a text that declines to answer claims nothing.</p>"
    if not report.claims:
        return "<p>0: the text claims nothing that can be checked.</p>"
    low, high = report.bounds()
    lines = [_ends(report, "precision", "supported / claims", f"{{}} / {report.claims}", (low, high))]
    if recall_at is not None:
        recall, f1 = report.bounds("recall", recall_at), report.bounds("f1", recall_at)
        worked = f"min({{}} / {recall_at}, 1)"
        lines.append(_ends(report, f"recall@{recall_at}", "min(supported / K, 1)", worked, recall))
        lines.append(_f1(f"F1@{recall_at}", (low, high), recall, f1))
    if low != high:
        told = (
            "so close that their middle is the score"
            if is_narrow(low, high)
            else "too far apart for one number"
        )
        missing = _count(report.counts["unjudged"], "claim")
        lines.append(
            f'<p class="muted">{missing} without a verdict could count either way: the ends are {told}.</p>'
        )
    return "".join(lines)


def _ends(report: Report, name: str, formula: str, worked: str, bounds: tuple[float, float]) -> str:
    """A score with the missing verdicts counted against the text, then for it."""
    supported, missing = report.counts["supported"], report.counts["unjudged"]
    ends = [f"{worked.format(supported)} = <strong>{bounds[0]:.2f}</strong>"]
    if missing:
        ends.append(f"{worked.format(f'({supported} + {missing})')} = <strong>{bounds[1]:.2f}</strong>")
    return _sum(name, formula, ends)


def _f1(
    name: str, precision: tuple[float, float], recall: tuple[float, float], f1: tuple[float, float]
) -> str:
    ends = [
        f"2 × {p:.2f} × {r:.2f} / ({p:.2f} + {r:.2f}) = <strong>{score:.2f}</strong>"
        if score
        else "<strong>0.00</strong> because nothing is supported"
        for p, r, score in zip(precision, recall, f1, strict=True)
    ]
    return _sum(name, "2 × precision × recall / (precision + recall)", list(dict.fromkeys(ends)))


def _sum(name: str, formula: str, ends: Sequence[str]) -> str:
    shown = " to ".join(f"<span>{end}</span>" for end in ends)
    return f'<p class="sum"><b>{name}</b> <span>= {formula}</span> = {shown}</p>'


def _legend(report: Report) -> str:
    counts = {**report.counts, "skipped": sum(check.verdict is None for check in report.checks)}
    items = (
        f"<li{'' if count else _NONE}>{badge(kind)} <b>{count}</b></li>" for kind, count in counts.items()
    )
    return f'<ul class="legend">{"".join(items)}</ul>'
