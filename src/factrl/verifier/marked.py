"""A text as HTML with stretches of it underlined by verdict, and a numbered link where each of them ends.

Stretches may overlap, as those of the claims of one sentence do: the text is cut wherever one begins or ends,
and every piece gets one line per verdict beneath it, the gravest nearest to the letters.  Line style and
letter tell the verdicts apart without colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from factrl.text.escape import markup

# Verdict -> the letter and the words for it, the gravest first; a skipped claim has no verdict.
KINDS: Mapping[str, tuple[str, str]] = {
    "refuted": ("C", "refuted"),
    "unknown": ("N", "unknown"),
    "unjudged": ("?", "no verdict"),
    "supported": ("S", "supported"),
    "skipped": ("–", "not counted"),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A stretch of the text and the claim that it belongs to.

    Attributes:
        start, end: in characters, end exclusive; what lies outside of the text is left out.
        kind: one of `KINDS`.
        number: of the claim, as it is shown.
        href: where the claim is explained, e.g. `#claim-3`.
        id: of the link, so that others can lead here; empty for none.
    """

    start: int
    end: int
    kind: str
    number: int
    href: str
    id: str = ""


def marked(text: str, marks: Sequence[Mark]) -> Markup:
    """`text` as HTML content with its `marks`; a mark of no length, or outside of the text, is left out."""
    ends = {mark: min(mark.end, len(text)) for mark in marks if mark.start < min(mark.end, len(text))}
    cuts = sorted({0, len(text), *ends.values(), *(mark.start for mark in ends)})
    later = sorted(ends, key=lambda mark: mark.start, reverse=True)  # the next one is the last
    here: list[Mark] = []
    parts: list[str] = []
    for start, end in pairwise(cuts):
        while later and later[-1].start <= start:
            here.append(later.pop())
        parts.append(_piece(text[start:end], here))
        over = [mark for mark in here if ends[mark] == end]
        parts += map(_link, sorted(over, key=lambda mark: mark.number))
        here = [mark for mark in here if ends[mark] > end]
    return Markup("".join(parts))  # noqa: S704 - every piece is escaped


def _piece(text: str, marks: Sequence[Mark]) -> str:
    """One piece, a link to the gravest of its claims."""
    if not marks:
        return markup(text)
    graves = list(KINDS)
    first = min(marks, key=lambda mark: (graves.index(mark.kind), mark.number))
    found = {mark.kind for mark in marks}
    shown = markup(text)
    for depth, kind in enumerate(kind for kind in KINDS if kind in found):
        shown = f'<span class="line {kind} d{depth}">{shown}</span>'
    # The numbered links behind do the same for the keyboard.
    return f'<a class="piece" href="{first.href}" tabindex="-1">{shown}</a>'


def _link(mark: Mark) -> str:
    letter, word = KINDS[mark.kind]
    name = f' id="{mark.id}"' if mark.id else ""
    return (
        f'<sup><a class="to {mark.kind}"{name} href="{mark.href}" aria-label="claim {mark.number}, {word}">'
        f"{letter}{mark.number}</a></sup>"
    )
