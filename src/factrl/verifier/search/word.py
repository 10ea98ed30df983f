"""The text of a document of Word, with all changes accepted and without what is struck out or hidden."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from factrl.runs.rows import check_size
from factrl.verifier.search.pages import as_row, in_cell

# What Word keeps beside the text: what is deleted or moved away, codes of fields, a second form for old
# versions, and how a word in Chinese or Japanese is read.
_BESIDE = frozenset("del moveFrom delText instrText delInstrText Fallback rt pPr rPr sdtPr sectPr".split())  # noqa: SIM905
_SIGNS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_STRUCK = ("strike", "dstrike", "vanish")
_COLUMNS_OF_WORD = 63


class Word:
    """What a reader of a document of Word sees once all changes are accepted, from headers to footnotes."""

    def __init__(self, path: Path, document: Any) -> None:
        from docx.oxml.parser import parse_xml

        self.path, self.body = path, document.element.body
        self.styles = {_get(style, "styleId"): style for style in document.styles.element}
        self.struck: dict[str | None, dict[str, bool]] = {}
        self.beside: dict[str | None, Any] = {}  # headers and footers
        self.notes: dict[tuple[str, str | None], Any] = {}
        self.joined = False  # to the paragraph before, whose end is deleted
        for name, relation in document.part.rels.items():
            kind = relation.reltype.rpartition("/")[2]
            if kind in ("header", "footer"):
                self.beside[name] = parse_xml(relation.target_part.blob)
            elif kind in ("footnotes", "endnotes"):
                notes = parse_xml(relation.target_part.blob)
                self.notes |= {(kind[:-1], _get(note, "id")): note for note in notes}

    def text(self) -> Iterator[str]:
        for one in self.body.iter("{*}headerReference", "{*}footerReference"):
            yield from self.blocks(self.beside.pop(_get(one, "id"), ()))
        yield from self.blocks(self.body)

    def blocks(self, parent: Any) -> Iterator[str]:
        """The paragraphs and rows in an element, in order."""
        for one in parent:
            kind = _local(one)
            if kind == "p":
                yield from self.paragraph(one)
            elif kind == "tbl":
                yield from self.table(one)
            elif kind not in _BESIDE:
                yield from self.blocks(one)

    def paragraph(self, one: Any) -> Iterator[str]:
        style = _get(one.find("{*}pPr/{*}pStyle"), "val")
        known = self.styles.get(style)
        name = "" if known is None else (_get(known.find("{*}name"), "val") or "").lower()
        level = re.match(r"heading (\d)", name)
        marks = f"\n\n{'#' * min(int(level[1]), 6)} " if level else "\n\n# " if name == "title" else ""
        others: list[Any] = []
        text = "".join(self.runs(one, style, others))
        if text.strip():
            yield "" if self.joined else marks or ("\n- " if name.startswith("list") else "\n\n")
            yield text
        deleted = one.find("{*}pPr/{*}rPr/{*}del") is not None
        self.joined = deleted and (self.joined or bool(text.strip()))
        for other in others:  # text boxes and notes, behind the paragraph that has them
            yield from self.blocks(other)

    def runs(self, parent: Any, style: str | None, others: list[Any]) -> Iterator[str]:
        """The text in an element; what is not part of the line goes into `others`."""
        for one in parent:
            kind = _local(one)
            if kind == "t":
                yield one.text or ""
            elif kind in _SIGNS:
                yield _SIGNS[kind]
            elif kind == "txbxContent":
                others.append(one)
            elif kind in ("footnoteReference", "endnoteReference"):
                others.append(self.notes.pop((kind.removesuffix("Reference"), _get(one, "id")), ()))
            elif kind not in _BESIDE and not (kind == "r" and self.is_struck(one, style)):
                yield from self.runs(one, style, others)

    def is_struck(self, run: Any, style: str | None) -> bool:
        """Whether a run is struck out or hidden, by itself, by its style or by that of its paragraph."""
        own = self.of_style(_get(run.find("{*}rPr/{*}rStyle"), "val"))
        return any({**self.of_style(style), **own, **_struck(run)}.values())

    def of_style(self, name: str | None) -> dict[str, bool]:
        if name not in self.struck:
            self.struck[name] = {}  # of a style that is based on itself
            if (style := self.styles.get(name)) is not None:
                base = self.of_style(_get(style.find("{*}basedOn"), "val"))
                self.struck[name] = {**base, **_struck(style)}
        return self.struck[name]

    def table(self, one: Any) -> Iterator[str]:
        """Its rows; one that holds a table is there for the layout, and its cells are read one by one."""
        above: list[str] = []
        ruled = True
        for row in _inside(one, "tr"):
            if row.find("{*}trPr/{*}del") is not None:
                continue
            cells = [cell for cell in _inside(row, "tc") if cell.find("{*}tcPr/{*}cellDel") is None]
            if any(cell.find(".//{*}tbl") is not None for cell in cells):
                for cell in cells:
                    yield from self.blocks(cell)
                continue
            texts: list[str] = []
            for cell in cells:  # one that spans columns or rows is in each
                text, merged = in_cell(self.blocks(cell)), cell.find("{*}tcPr/{*}vMerge")
                if merged is not None and _get(merged, "val") != "restart" and len(above) > len(texts):
                    text = above[len(texts)]
                span = int(_get(cell.find("{*}tcPr/{*}gridSpan"), "val") or 1)
                texts += [text] * min(span, _COLUMNS_OF_WORD)
            check_size(self.path, sum(map(len, texts)))
            yield as_row(texts, ruled=ruled)
            above, ruled = texts, False


def _local(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]


def _get(element: Any, name: str) -> str | None:
    """An attribute, whatever its namespace."""
    named = () if element is None else element.attrib.items()
    return next((value for key, value in named if key.rpartition("}")[2] == name), None)


def _struck(element: Any) -> dict[str, bool]:
    found = ((name, element.find(f"{{*}}rPr/{{*}}{name}")) for name in _STRUCK)
    return {name: _get(one, "val") not in ("0", "false", "off") for name, one in found if one is not None}


def _inside(parent: Any, kind: str) -> Iterator[Any]:
    """The rows of a table or the cells of a row, in content controls too."""
    for one in parent:
        if _local(one) == kind:
            yield one
        elif _local(one) not in _BESIDE:
            yield from _inside(one, kind)
