"""The text of a page in HTML, without what is struck out or hidden."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from factrl.errors import DataError

_UNREAD = frozenset("script style noscript template svg nav button select iframe s del strike".split())  # noqa: SIM905
_UNSEEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|line-through", re.IGNORECASE)
_BREAKS = frozenset(
    """
    p div section article main header footer aside ul ol dl dt dd table blockquote pre figure figcaption
    address h1 h2 h3 h4 h5 h6
    """.split()  # noqa: SIM905
)
_MARKUP = {"br": "\n", "li": "\n- "} | dict.fromkeys(_BREAKS, "\n\n")
_MARKUP |= {f"h{level}": f"\n\n{'#' * level} " for level in range(1, 7)}
_SPACES = re.compile(r"\s+")
_DEEPEST = 2_048  # elements in each other; browsers stop at a fourth of it


class Page:
    """What a reader of a page sees, with headings, lists and tables as Markdown writes them.

    The parser calls it with every tag and builds no tree: libxml2's ends at a depth of 256, and takes
    quadratic time for the attributes of one element.

    Raises:
        DataError: elements are nested deeper than `_DEEPEST`, for which the parser takes quadratic time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.title: list[str] = []
        self.parts: list[str] = []
        self.run: list[str] = []  # of text, since the last tag
        self.unread = self.depth = 0  # elements that are open: in one that is not read, and of the others
        self.tag = ""  # the last one
        self.rows: list[_OpenRow] = []
        self.tables = [0]  # rows of each table that is open

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        hidden = "hidden" in attributes or _UNSEEN.search(attributes.get("style") or "")
        self._end_run()
        if self.unread + self.depth == _DEEPEST:
            raise DataError(f"{self.path} nests elements deeper than {_DEEPEST:,}; save it as text")
        if self.unread or tag in _UNREAD or hidden:
            self.unread += 1
            return
        self.depth, self.tag = self.depth + 1, tag
        if self.rows and self.depth == self.rows[-1].depth + 1:
            self.rows[-1].cells.append(len(self.parts))
        if tag == "table":
            self.tables.append(0)
            if self.rows:
                self.rows[-1].holds_table = True
        elif tag == "tr":
            self.tables[-1] += 1
            self.rows.append(_OpenRow(self.depth, len(self.parts), self.tables[-1] == 1))
        self.parts.append(_MARKUP.get(tag, ""))

    def data(self, text: str) -> None:
        self.run.append(text)

    def _end_run(self) -> None:
        text, self.run = "".join(self.run), []
        if text and not self.unread and not (self.tag == "/tr" and text.isspace()):
            to = self.title if self.tag == "title" else self.parts
            to.append(text if self.tag == "pre" else _SPACES.sub(" ", text))

    def end(self, tag: str) -> None:
        self._end_run()
        if self.unread:
            self.unread -= 1
            return
        self.depth, self.tag = self.depth - 1, f"/{tag}"
        if tag == "table" and len(self.tables) > 1:
            self.tables.pop()
        if tag == "tr" and self.rows and not (row := self.rows.pop()).holds_table:
            ends = [*row.cells[1:], len(self.parts)]
            cells = [in_cell(self.parts[a:b]) for a, b in zip(row.cells, ends, strict=False)]
            self.parts[row.start :] = [as_row(cells, ruled=row.first)]
        self.parts.append("\n\n" if tag in _BREAKS else "")

    def close(self) -> None:
        self._end_run()

    def text(self) -> str:
        return re.sub(r"\n\s*\n\s*", "\n\n", "".join(self.parts)).strip()


@dataclass
class _OpenRow:
    depth: int
    start: int  # among the parts of the page
    first: bool  # of its table
    cells: list[int] = field(default_factory=list)  # where each starts
    holds_table: bool = False  # then it is there for the layout, and its cells are read one after the other


_SPACED = frozenset(_MARKUP.values())


def in_cell(parts: Iterable[str]) -> str:
    """One line of a table's cell, without the marks of headings, items and columns."""
    return " ".join("".join(" " if part in _SPACED else part for part in parts).split()).replace("|", "/")


def as_row(own: Sequence[str], *, ruled: bool) -> str:
    """A row as Markdown writes it, with a rule below it where it names the columns."""
    line = f"\n| {' | '.join(own)} |"
    return f"\n{line}\n|{'---|' * len(own)}" if ruled else line
