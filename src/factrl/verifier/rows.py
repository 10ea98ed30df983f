"""What a report is made of, as HTML: the text underlined, a row per claim, and every passage once.

Everything here is for `factrl.verifier.html`, whose style sheet it relies on.
"""

from __future__ import annotations

from factrl.text.escape import linked, markup

from ..types import Passage
from .marked import Mark, badge, marked
from .report import Check, Report

# Characters: a passage shown whole, those around the quote of a longer one, and the start of the others.
_WHOLE, _AROUND, _START = 600, 240, 120
_SKIPPED = {
    "question": "the question already says it",
    "self": "it speaks of the text itself, or of whoever grades it",
    "repeat": "an earlier claim says it",
    "unverifiable": "there is nothing to check",
}


class Rows:
    """The parts of one report.

    Args:
        prefix: of every id, so that several reports fit on one page.
        level: of the headings of single claims and passages.
    """

    def __init__(self, report: Report, prefix: str = "", level: int = 3) -> None:
        self._report, self._prefix, self._title = report, prefix, f"h{level}"
        self._numbers: dict[tuple[str, str, str], int] = {}  # passages by content: scores differ by query
        for check in report.checks:
            for passage in check.passages:
                self._numbers.setdefault(_content(passage), len(self._numbers) + 1)

    @property
    def passages(self) -> int:
        """How many different passages the judge saw."""
        return len(self._numbers)

    def text(self) -> str:
        """The text, each claim underlined by its verdict."""
        marks = [
            Mark(
                check.claim.start,
                check.claim.end,
                kind(check),
                number,
                self._claim(number),
                self._mark(number),
            )
            for number, check in enumerate(self._report.checks, start=1)
        ]
        return marked(self._report.text, marks) or '<span class="muted">(empty)</span>'

    def claims(self) -> str:
        """A row per claim: what it says, the verdict and the evidence."""
        checks = enumerate(self._report.checks, start=1)
        return "".join(self._row(number, check) for number, check in checks) or '<p class="muted">None.</p>'

    def evidence(self) -> str:
        """Every passage once, the sentences that decided underlined by verdict."""
        marks: dict[tuple[str, str, str], list[Mark]] = {content: [] for content in self._numbers}
        for number, check in enumerate(self._report.checks, start=1):
            if check.verdict is not None and check.verdict.quote is not None:
                passage, start, end = check.verdict.quote
                mark = Mark(start, end, kind(check), number, self._claim(number))
                marks[_content(check.passages[passage])].append(mark)
        return "".join(
            f'<article class="passage" id="{self._prefix}passage-{number}">'
            f'<{self._title} dir="auto">{markup(title) or f"passage {number}"}</{self._title}>'
            f'<p class="from">{linked(source)}</p>'
            f'<div class="body" dir="auto">{marked(text, marks[title, source, text])}</div></article>'
            for (title, source, text), number in self._numbers.items()
        )

    def _claim(self, number: int) -> str:
        return f"#{self._prefix}claim-{number}"

    def _mark(self, number: int) -> str:
        return f"{self._prefix}mark-{number}"

    def _row(self, number: int, check: Check) -> str:
        claim, verdict, chance = check.claim, check.verdict, ""
        if verdict is None:
            why = _SKIPPED.get(str(claim.skip), str(claim.skip))
            rest = f'<p class="note">Not counted: {markup(why)}.</p>'
        else:
            rest = _notes(check) + self._read(check)
            if verdict.p is not None:
                told = "probability that the evidence supports the claim"
                chance = f'<span class="p" title="{told}">p = {verdict.p:.2f}</span>'
        name = f"claim {number}"
        if claim.start < min(claim.end, len(self._report.text)):
            name = f'<a href="#{self._mark(number)}" title="show it in the text">{name}</a>'
        return (
            f'<article class="claim {kind(check)}" id="{self._claim(number)[1:]}">'
            f'<header>{badge(kind(check))}{chance}<span class="back">{name}</span></header>'
            f'<{self._title} dir="auto">{markup(claim.text)}</{self._title}>{rest}</article>'
        )

    def _read(self, check: Check) -> str:
        """The passage that decided with its sentence marked, then the others, folded."""
        deciding, others = "", ""
        quote = check.verdict.quote if check.verdict is not None else None
        for rank, passage in enumerate(check.passages, start=1):
            if quote is not None and rank == quote[0] + 1:
                deciding = (
                    f'<blockquote dir="auto">{_excerpt(passage.text, *quote[1:])}</blockquote>'
                    f'<p class="from"><span class="rank">rank {rank}</span>{self._named(passage)}</p>'
                )
            else:
                start = markup(passage.text[:_START]) + ("…" if len(passage.text) > _START else "")
                others += (
                    f'<li value="{rank}"><span class="from">{self._named(passage)}</span>'
                    f'<div dir="auto">{start}</div></li>'
                )
        if not others:
            return deciding
        count = len(check.passages) - bool(deciding)
        told = f"{count} {'more ' if deciding else ''}{'passage' if count == 1 else 'passages'} read"
        return f"{deciding}<details><summary>{told}</summary><ol>{others}</ol></details>"

    def _named(self, passage: Passage) -> str:
        """Title, leading to the whole passage, and source."""
        number = self._numbers[_content(passage)]
        title = markup(passage.title) or f"passage {number}"
        whole = f'<a href="#{self._prefix}passage-{number}" dir="auto">{title}</a>'
        return whole + (f' <span class="source">{linked(passage.source)}</span>' if passage.source else "")


def kind(check: Check) -> str:
    """The verdict's label; `skipped` for a claim that is not judged."""
    return "skipped" if check.verdict is None else check.verdict.label


def _content(passage: Passage) -> tuple[str, str, str]:
    return passage.title, passage.source, passage.text


def _notes(check: Check) -> str:
    """Why there is no verdict, or what the judge said about the one there is."""
    notes: list[str] = []
    if check.verdict is not None and check.verdict.cause:
        detail = check.verdict.facts.get("detail")
        more = f": {detail}" if isinstance(detail, str) and detail else ""
        notes.append(f"Cause: {check.verdict.cause.replace('_', ' ')}{more}")
    if check.verdict is not None and check.verdict.why:
        notes.append(check.verdict.why)
    return "".join(f'<p class="note" dir="auto">{markup(note)}</p>' for note in notes)


def _excerpt(text: str, start: int, end: int) -> str:
    """The quote, marked, in its passage; of a long passage only what is around it."""
    first, last = 0, len(text)
    if last > _WHOLE:
        first = max(0, start - _AROUND)
        last = min(last, end + _AROUND)
        if first:  # not from the middle of a word, unless it is endless
            first = text.find(" ", first, start) + 1 or first
        if last < len(text):
            last = text.rfind(" ", end, last) if " " in text[end:last] else last
    before, after = "… " if first else "", " …" if last < len(text) else ""
    quote = f"<mark>{markup(text[start:end])}</mark>"
    return f"{before}{markup(text[first:start])}{quote}{markup(text[end:last])}{after}"
