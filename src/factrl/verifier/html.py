"""A checked text as a page: its claims underlined by verdict, the evidence beside them, the score.

A notebook shows less of it: the score, and each claim with the sentence that decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from factrl.text.html import fragment
from factrl.text.html import page as whole_page
from factrl.types import Passage

from .marked import KINDS, Mark, marked
from .report import Check, Report, is_narrow

# Characters: a passage shown whole, those around the quote of a longer one, and the start of the others.
_WHOLE, _AROUND, _START = 600, 240, 120
_NAME = 70  # characters that stand for a text in the table of texts
_IN_NOTEBOOK = 40  # claims; the page has all
_SKIPPED = {
    "question": "the question already says it",
    "self": "it speaks of the text itself, or of whoever grades it",
    "repeat": "an earlier claim says it",
    "unverifiable": "there is nothing to check",
}


def page(report: Report, *, recall_at: int | None = None) -> str:
    """The report as a self-contained HTML page.

    Args:
        recall_at: K; when given, recall@K and F1@K are worked out beneath the precision.

    Raises:
        ConfigError: K is below 1.
    """
    return _page([report], headline(report), recall_at)


def pages(reports: Sequence[Report], *, recall_at: int | None = None) -> str:
    """Several texts as one page, with a table of them first.

    Args:
        recall_at: as in `page`.

    Raises:
        ConfigError: K is below 1.
    """
    supported = sum(report.counts["supported"] for report in reports)
    claims = _count(sum(report.claims for report in reports), "claim")
    said = _said(any(report.weak for report in reports))
    title = f"{supported} of {claims} in {_count(len(reports), 'text')} {said}"
    return _page(reports, title, recall_at, contents=True)


def notebook(report: Report) -> str:
    """The report as one HTML element without classes, ids and links, in the notebook's own colours."""
    checks = [(kind(check), check) for check in report.checks[:_IN_NOTEBOOK]]
    more = len(report.checks) - len(checks)
    title = headline(report)
    return fragment(
        "verifier/notebook.html", title=title, report=report, checks=checks, more=more, kinds=KINDS
    )


def headline(report: Report) -> str:
    """What came of it, in a few words of ours."""
    if report.failure is not None:
        return "The text could not be checked"
    if report.floored:
        return "The text was not checked"
    if not report.claims:
        return "The text declines to answer" if report.abstained else "No claim to check"
    return f"{report.counts['supported']} of {_count(report.claims, 'claim')} {_said(report.weak)}"


def kind(check: Check) -> str:
    """The verdict's label; `skipped` for a claim that is not judged."""
    return "skipped" if check.verdict is None else check.verdict.label


def _page(reports: Sequence[Report], title: str, recall_at: int | None, *, contents: bool = False) -> str:
    """Each report as a part; only with a table of contents have the parts a headline and ids of their own."""
    parts = [
        _part(report, recall_at, f"text-{number}-" if contents else "", number)
        for number, report in enumerate(reports, start=1)
    ]
    return whole_page(
        "verifier/report.html",
        title=f"factrl: {title}",
        main="verified",
        headline=title,
        weak=any(report.weak for report in reports),
        contents=contents,
        kinds=KINDS,
        reports=parts,
    )


def _part(report: Report, recall_at: int | None, prefix: str, number: int) -> Mapping[str, Any]:
    numbers: dict[tuple[str, str, str], int] = {}  # passages by content: scores differ by query
    for check in report.checks:
        for passage in check.passages:
            numbers.setdefault(_content(passage), len(numbers) + 1)
    skipped = sum(check.verdict is None for check in report.checks)
    facts = {
        "judge": report.judge or "none",
        "claims": str(report.claims) + (f" and {skipped} not counted" if skipped else ""),
        "passages": str(len(numbers)),
        "text": _count(len(report.text), "character"),
        "took": f"{report.seconds:.1f} s",
    }
    start = report.question or report.text
    checks = list(enumerate(report.checks, start=1))
    marks = [
        Mark(c.claim.start, c.claim.end, kind(c), n, f"#{prefix}claim-{n}", f"{prefix}mark-{n}")
        for n, c in checks
    ]
    return {
        "report": report,
        "number": number,
        "prefix": prefix,
        "headline": headline(report),
        "name": start[:_NAME] + ("…" if len(start) > _NAME else ""),
        "score": _score(report),
        "facts": facts,
        "sums": _sums(report, recall_at),
        "counts": {**report.counts, "skipped": skipped},
        "text": marked(report.text, marks),
        "claims": [_claim(number, check, numbers, len(report.text)) for number, check in checks],
        "evidence": _evidence(checks, numbers, prefix),
    }


# -- Claims and evidence ------------------------------------------------------------------------------


def _claim(number: int, check: Check, numbers: Mapping[Any, int], length: int) -> Mapping[str, Any]:
    """A claim: where it is, the verdict, and the passages that the judge read, the one that decided first."""
    claim, verdict = check.claim, check.verdict
    quote = verdict.quote if verdict is not None else None
    notes = []
    if verdict is not None and verdict.cause:
        detail = verdict.facts.get("detail")
        more = f": {detail}" if isinstance(detail, str) and detail else ""
        notes.append(f"Cause: {verdict.cause.replace('_', ' ')}{more}")
    if verdict is not None and verdict.why:
        notes.append(verdict.why)
    deciding, others = None, []
    for rank, passage in enumerate(check.passages if verdict is not None else (), start=1):
        told = {**asdict(passage), "rank": rank, "number": numbers[_content(passage)]}
        if quote is not None and rank == quote[0] + 1:
            deciding = {**told, "excerpt": _excerpt(passage.text, *quote[1:])}
        else:
            others.append({**told, "start": passage.text[:_START] + "…" * (len(passage.text) > _START)})
    return {
        "number": number,
        "kind": kind(check),
        "text": claim.text,
        "found": claim.start < min(claim.end, length),
        "skipped": _SKIPPED.get(str(claim.skip), str(claim.skip)) if verdict is None else None,
        "p": verdict.p if verdict is not None else None,
        "notes": notes,
        "deciding": deciding,
        "others": others,
    }


def _evidence(checks: Sequence[tuple[int, Check]], numbers: Mapping[Any, int], prefix: str) -> list[Any]:
    """Every passage once, the sentences that decided underlined by verdict."""
    marks: dict[Any, list[Mark]] = {content: [] for content in numbers}
    for number, check in checks:
        if check.verdict is not None and check.verdict.quote is not None:
            passage, start, end = check.verdict.quote
            mark = Mark(start, end, kind(check), number, f"#{prefix}claim-{number}")
            marks[_content(check.passages[passage])].append(mark)
    return [
        (number, title, source, marked(text, marks[title, source, text]))
        for (title, source, text), number in numbers.items()
    ]


def _content(passage: Passage) -> tuple[str, str, str]:
    return passage.title, passage.source, passage.text


def _excerpt(text: str, start: int, end: int) -> tuple[str, str, str]:
    """The quote between what is before and after it in its passage; of a long passage only what is near."""
    first, last = 0, len(text)
    if last > _WHOLE:
        first = max(0, start - _AROUND)
        last = min(last, end + _AROUND)
        if first:  # not from the middle of a word, unless it is endless
            first = text.find(" ", first, start) + 1 or first
        if last < len(text):
            last = text.rfind(" ", end, last) if " " in text[end:last] else last
    before, after = "… " if first else "", " …" if last < len(text) else ""
    return before + text[first:start], text[start:end], text[end:last] + after


# -- The score ----------------------------------------------------------------------------------------


def _score(report: Report) -> str:
    if report.failure is not None or report.floored:
        return "not checked"
    if report.abstained and not report.claims:
        return "declined"
    low, high = report.bounds()
    return f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"


def _sums(report: Report, recall_at: int | None) -> Mapping[str, Any]:
    """Why there is no score, or how it is worked out: name, formula, and its ends as sum and result."""
    if report.failure is not None:
        return {"none": f"There is none, because checking failed: {report.failure}"}
    if report.floored:
        return {"none": f"0: the text was not read ({report.floored})."}
    if not report.claims:
        declined = "There is none: a text that declines to answer claims nothing."
        return {"none": declined if report.abstained else "0: the text claims nothing that can be checked."}
    precision = report.bounds()
    lines = [("precision", "supported / claims", _ends(report, f"{{}} / {report.claims}", precision))]
    if recall_at is not None:
        recall, f1 = report.bounds("recall", recall_at), report.bounds("f1", recall_at)
        worked = _ends(report, f"min({{}} / {recall_at}, 1)", recall)
        lines.append((f"recall@{recall_at}", "min(supported / K, 1)", worked))
        ends = [
            (f"2 × {p:.2f} × {r:.2f} / ({p:.2f} + {r:.2f}) = ", f"{score:.2f}", "")
            if score
            else ("", "0.00", " because nothing is supported")
            for p, r, score in zip(precision, recall, f1, strict=True)
        ]
        formula = "2 × precision × recall / (precision + recall)"
        lines.append((f"F1@{recall_at}", formula, list(dict.fromkeys(ends))))
    missing = report.counts["unjudged"] if precision[0] != precision[1] else 0
    return {
        "lines": lines,
        "missing": _count(missing, "claim") if missing else "",
        "narrow": is_narrow(*precision),
    }


def _ends(report: Report, worked: str, bounds: tuple[float, float]) -> list[tuple[str, str, str]]:
    """A score with the missing verdicts counted against the text, then for it."""
    supported, missing = report.counts["supported"], report.counts["unjudged"]
    ends = [(f"{worked.format(supported)} = ", f"{bounds[0]:.2f}", "")]
    if missing:
        ends.append((f"{worked.format(f'({supported} + {missing})')} = ", f"{bounds[1]:.2f}", ""))
    return ends


def _said(weak: bool) -> str:
    return "match the evidence by words" if weak else "supported by the evidence"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
