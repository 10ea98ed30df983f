"""What a text states, unit by unit, as a reader sees it: markup and citation marks taken off, offsets kept.

A statement is a sentence, an item or a table row together with what is needed to read it: an item that is no
sentence gets the line that introduces its list ("Her books were:"), a row the headings of its columns.
Code blocks and headings state nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from factrl.text.sentences import Kind, Sentence, sentences

# In the order in which they are tried at a position: a link keeps its words, the rest is dropped.
_MARKUP = re.compile(
    r"!?\[(?P<link>[^\[\]\n]{1,200})\]\([^()\s]{0,500}\)"
    r"|(?P<cite> ?\[\d{1,3}(?:[,–-] ?\d{1,3}){0,5}\]| ?【[^【】\n]{1,40}】| ?\[citation needed\])"
    r"|(?P<gone>`+|~~|<br ?/?>|(?<!\w)_+(?=[^\W_])|(?<=[^\W_])(?:__+|_(?!\w)))"
    r"|(?P<stars>\*+)"
    r"|(?P<space>\s+)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One unit of a text, ready to be taken apart.

    Attributes:
        text: what it says, on one line, without markup.
        at: for every character of `text` its offset in the whole text.
        start, end: the stretch of the whole text, end exclusive.
        sentence: its number among the sentences of the text.
        kind: `prose`, `item` or `row`.
        context: words to put before a claim so that it can stand alone; not part of the stretch.
    """

    text: str
    at: tuple[int, ...]
    start: int
    end: int
    sentence: int
    kind: Kind
    context: str = ""

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the whole text behind `self.text[start:end]`, which must not be empty."""
        return self.at[start], self.at[end - 1] + 1


def statements(text: str) -> list[Statement]:
    """Everything in `text` that may state something, in order."""
    found: list[Statement] = []
    header: list[str] = []
    introduction = ""
    previous = ""
    for number, unit in enumerate(sentences(text)):
        seen, at = shown(text, unit)
        if unit.kind == "heading":
            header = _cells(seen) if "|" in seen else []
        if not seen or unit.kind in ("heading", "code"):
            previous, introduction = unit.kind, ""
            continue
        context = ""
        if unit.kind == "row":
            seen, at = _row(seen, at, header)
        elif unit.kind == "item":
            context = introduction
        else:
            introduction = seen[:-1].rstrip() + ":" if seen.endswith((":", "：")) else ""
        if unit.kind != "row" and previous != "heading":
            header = []
        previous = unit.kind
        found.append(Statement(seen, tuple(at), unit.start, unit.end, number, unit.kind, context))
    return found


def shown(text: str, unit: Sentence) -> tuple[str, list[int]]:
    """The visible words of a sentence on one line, and where each character is in `text`."""
    raw = text[unit.start : unit.end]
    pieces: list[str] = []
    at: list[int] = []

    def keep(start: int, end: int) -> None:
        pieces.append(raw[start:end])
        at.extend(range(unit.start + start, unit.start + end))

    position = 0
    for match in _MARKUP.finditer(raw):
        start, end = match.span()
        keep(position, start)
        position = end
        if match["link"] is not None:
            keep(*match.span("link"))
        elif match["space"] is not None:
            pieces.append(" ")
            at.append(unit.start + start)
        elif match["stars"] is not None and _is_sign(raw[max(0, start - 1) : start], raw[end : end + 1]):
            keep(start, end)
    keep(position, len(raw))
    words = "".join(pieces)
    lead = len(words) - len(words.lstrip())
    words = words.strip()
    return words, at[lead : lead + len(words)]


def _is_sign(before: str, after: str) -> bool:
    """Whether stars between two characters are no emphasis: "3 * 4", "M*A*S*H"."""
    return (before == " " == after) or (before.isalnum() and after.isalnum())


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("| ").split("|")]


def _row(seen: str, at: list[int], header: list[str]) -> tuple[str, list[int]]:
    """`Year: 1903; Prize: Physics` of the row `1903 | Physics` below the headings `Year | Prize`."""
    cells = seen.split("|")
    headings = header if len(header) == len(cells) else [""] * len(cells)
    pieces: list[str] = []
    places: list[int] = []
    position = 0
    for cell, heading in zip(cells, headings, strict=True):
        word = cell.strip()
        if word:
            start = position + cell.index(word)
            label = ("; " if pieces else "") + (f"{heading}: " if heading else "")
            pieces += [label, word]
            places += [at[start]] * len(label) + at[start : start + len(word)]
        position += len(cell) + 1
    return "".join(pieces), places
