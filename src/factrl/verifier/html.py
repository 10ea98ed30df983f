"""A checked text as a page: its claims underlined by verdict, the evidence beside them, the score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

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
        pieces=_pieces(report.text, claims),
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
        "place": (claim.start, min(claim.end, length)),
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


def _pieces(text: str, claims: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The text, cut wherever a claim begins or ends; stretches may overlap, as those of one sentence do.

    A piece has the verdicts of its claims, the gravest first, the first claim with that one, and the claims
    that end with it.  One line per verdict is drawn beneath it, the gravest nearest to the letters; line
    style and letter tell the verdicts apart without colour.
    """
    shown = [one for one in claims if one["found"]]
    cuts = sorted({0, len(text), *(place for one in shown for place in one["place"])})
    later = sorted(shown, key=lambda one: one["place"][0], reverse=True)  # the next one is the last
    here: list[Mapping[str, Any]] = []
    for start, end in pairwise(cuts):
        while later and later[-1]["place"][0] <= start:
            here.append(later.pop())
        kinds = [kind for kind in KINDS if any(one["kind"] == kind for one in here)]
        yield {
            "text": text[start:end],
            "kinds": kinds,
            "first": min((one["number"] for one in here if one["kind"] == kinds[0]), default=0),
            "ends": sorted((one["number"], one["kind"]) for one in here if one["place"][1] == end),
        }
        here = [one for one in here if one["place"][1] > end]
