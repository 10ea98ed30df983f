"""A checked text as a page: its claims underlined by verdict, the evidence beside them, the score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from factrl.text.escape import markup
from factrl.text.html import page as whole_page

from .report import Check, Report

# Verdict -> the letter and the words for it, the gravest first; a skipped claim has no verdict.
KINDS: Mapping[str, tuple[str, str]] = {
    "refuted": ("C", "refuted"),
    "unknown": ("N", "unknown"),
    "unjudged": ("?", "no verdict"),
    "supported": ("S", "supported"),
    "skipped": ("–", "not counted"),
}
_AROUND = 240  # characters shown on each side of a quote
_SKIPPED = {
    "question": "the question already says it",
    "self": "it speaks of the text itself, or of whoever grades it",
    "repeat": "an earlier claim says it",
    "unverifiable": "there is nothing to check",
}


def page(report: Report) -> str:
    """The report as a self-contained HTML page."""
    skipped = sum(check.verdict is None for check in report.checks)
    facts = {
        "judge": report.judge or "none",
        "claims": str(report.claims) + (f" and {skipped} not counted" if skipped else ""),
        "text": f"{len(report.text):,} characters",
        "took": f"{report.seconds:.1f} s",
    }
    claims = [_claim(number, check, len(report.text)) for number, check in enumerate(report.checks, start=1)]
    stretches = [
        Mark(check.claim.start, check.claim.end, one["kind"], one["number"])
        for check, one in zip(report.checks, claims, strict=True)
    ]
    title = _headline(report)
    return whole_page(
        "verifier/report.html",
        title=f"factrl: {title}",
        main="verified",
        headline=title,
        kinds=KINDS,
        report=report,
        facts=facts,
        counts={**report.counts, "skipped": skipped},
        text=marked(report.text, stretches, id="mark-"),
        claims=claims,
    )


def _headline(report: Report) -> str:
    """What came of it, in a few words of ours."""
    if report.failure is not None:
        return "The text could not be checked"
    if report.floored:
        return "The text was not checked"
    if not report.claims:
        return "The text declines to answer" if report.abstained else "No claim to check"
    said = "match the evidence by words" if report.weak else "supported by the evidence"
    claims = "claim" if report.claims == 1 else "claims"
    return f"{report.counts['supported']} of {report.claims:,} {claims} {said}"


def _claim(number: int, check: Check, length: int) -> Mapping[str, Any]:
    """A claim: where it is, the verdict, and the passages that the judge read, the one that decided first."""
    claim, verdict = check.claim, check.verdict
    notes = []
    if verdict is None:
        notes.append(f"Not counted: {_SKIPPED.get(str(claim.skip), str(claim.skip))}.")
    elif verdict.cause:
        detail = verdict.facts.get("detail")
        more = f": {detail}" if isinstance(detail, str) and detail else ""
        notes.append(f"Cause: {verdict.cause.replace('_', ' ')}{more}")
    if verdict is not None and verdict.why:
        notes.append(verdict.why)
    quote = verdict.quote if verdict is not None else None
    read = list(enumerate(check.passages, start=1))
    return {
        "number": number,
        "kind": "skipped" if verdict is None else verdict.label,
        "text": claim.text,
        "found": claim.start < min(claim.end, length),
        "p": verdict.p if verdict is not None else None,
        "notes": notes,
        "deciding": read[quote[0]] if quote else None,
        "excerpt": _excerpt(check.passages[quote[0]].text, *quote[1:]) if quote else None,
        "others": [one for one in read if quote is None or one[0] != quote[0] + 1],
    }


def _excerpt(text: str, start: int, end: int) -> tuple[str, str, str]:
    """The quote between what is near it, before and after, in its passage."""
    first, last = max(0, start - _AROUND), min(len(text), end + _AROUND)
    before, after = "… " if first else "", " …" if last < len(text) else ""
    return before + text[first:start], text[start:end], text[end:last] + after


# -- Underlined by verdict.  Stretches may overlap, as those of the claims of one sentence do: the text is cut
# -- wherever one begins or ends, and every piece gets one line per verdict beneath it, the gravest nearest to
# -- the letters.  Line style and letter tell the verdicts apart without colour.


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of the text and the claim that it belongs to.

    Attributes:
        start, end: in characters, end exclusive; what lies outside of the text is left out.
        kind: one of `KINDS`.
        number: of the claim, as it is shown; its part of the page has the id `claim-NUMBER`.
    """

    start: int
    end: int
    kind: str
    number: int


def marked(text: str, marks: Sequence[Mark], id: str = "") -> Markup:
    """`text` as HTML content with its `marks`; a mark of no length, or outside of the text, is left out.

    Args:
        id: what the ids of the links at the ends begin with, so that others can lead here; empty for none.
    """
    ends = {mark: min(mark.end, len(text)) for mark in marks if mark.start < min(mark.end, len(text))}
    cuts = sorted({0, len(text), *ends.values(), *(mark.start for mark in ends)})
    later = sorted(ends, key=lambda mark: mark.start, reverse=True)  # the next one is the last
    here: list[Mark] = []
    parts: list[str] = []
    for start, end in pairwise(cuts):
        while later and later[-1].start <= start:
            here.append(later.pop())
        parts.append(_piece(text[start:end], here))
        for mark in sorted((mark for mark in here if ends[mark] == end), key=lambda mark: mark.number):
            letter, word = KINDS[mark.kind]
            name = f' id="{id}{mark.number}"' if id else ""
            parts.append(
                f'<sup><a class="to {mark.kind}"{name} href="#claim-{mark.number}"'
                f' aria-label="claim {mark.number}, {word}">{letter}{mark.number}</a></sup>'
            )
        here = [mark for mark in here if ends[mark] > end]
    return Markup("".join(parts))  # noqa: S704 - every piece is escaped


def _piece(text: str, marks: Sequence[Mark]) -> str:
    """One piece, a link to the gravest of its claims."""
    if not marks:
        return markup(text)
    graves = [kind for kind in KINDS if any(mark.kind == kind for mark in marks)]
    shown = markup(text)
    for depth, kind in enumerate(graves):
        shown = f'<span class="line {kind} d{depth}">{shown}</span>'
    first = min(mark.number for mark in marks if mark.kind == graves[0])
    # The numbered links behind do the same for the keyboard.
    return f'<a class="piece" href="#claim-{first}" tabindex="-1">{shown}</a>'
