"""Articles from a wiki's XML dump, as plain text.

`read_dump` streams: memory stays that of one page.  `plain_text` drops what is not prose (templates, tables,
files, references, lists of links) and keeps what a reader of the sentences would miss: the label of a link,
the number in a `convert`.  It is no parser of MediaWiki: a template that writes prose leaves a gap.  Every
step takes time linear in the length of the page.
"""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import quote

from factrl.errors import DataError


class Page(NamedTuple):
    """An article: `text` is plain, `url` is where it is read."""

    title: str
    text: str
    url: str
    id: str


def read_dump(file: IO[bytes], name: Path) -> Iterator[Page]:
    """The articles of a dump in its order; redirects, talk, user and other such pages are left out.

    Args:
        file: the XML, unpacked.
        name: what to call it in an error.

    Raises:
        DataError: it is not XML, or not a dump.
    """
    prefix, root, count = "", None, 0
    try:
        for event, element in ET.iterparse(file, events=("start", "end")):  # noqa: S314  (expat bounds entities)
            tag = element.tag.rpartition("}")[2]
            if root is None:
                root = element
                if tag != "mediawiki":
                    raise DataError(f"{name} is not a wiki's dump: it starts with <{tag}>, not <mediawiki>")
            elif event == "end" and tag == "base":
                prefix = (element.text or "").rpartition("/")[0] + "/"
            elif event == "end" and tag == "page":
                page = _page(element, prefix)
                root.clear()  # else every page read so far would stay in memory
                count += 1
                if page is not None:
                    yield page
    except ET.ParseError as error:
        raise DataError(f"{name} is not well-formed XML after {count:,} pages: {error}") from None


def _page(element: ET.Element, prefix: str) -> Page | None:
    found = {part.tag.rpartition("}")[2]: part for part in element.iter()}  # the last revision wins
    if "redirect" in found or _text(found, "ns") not in ("", "0"):
        return None
    title = _text(found, "title")
    number = next((part.text or "" for part in element if part.tag.endswith("id")), "")
    url = prefix + quote(title.replace(" ", "_"), safe="/:,()'!") if prefix else ""
    return Page(title, plain_text(_text(found, "text")), url, number)


def _text(found: dict[str, ET.Element], tag: str) -> str:
    return (found[tag].text or "").strip() if tag in found else ""


# -- Wikitext -----------------------------------------------------------------------------------------

_MAX_DEPTH = 12  # of templates in templates and links in links; what is around deeper ones is left
_DROPPED = ("ref", "math", "gallery", "timeline", "syntaxhighlight", "score", "imagemap", "chem")
_NOT_PROSE = re.compile(r"[ :]*(?:file|image|category|media):", re.I)
# The innermost of each kind: no other opens before it closes, so every character is read once a round.
_TEMPLATE = re.compile(r"\{\{((?:[^{}]|\{(?!\{)|\}(?!\}))*)\}\}")
_TABLE = re.compile(r"^[ :]{0,20}\{\|(?:(?!^[ :]{0,20}\{\|).)*?^\|\}", re.M | re.S)
_LINK = re.compile(r"\[\[((?:[^\[\]]|\[(?!\[)|\](?!\]))*)\]\]")
_OUTSIDE_LINK = re.compile(r"(?<!\[)\[(?:https?:)?//[^\s\[\]]{1,500}([^\[\]\n]{0,500})\]")
_HEADING = re.compile(r"(={2,6})([^=\n]{1,200})\1[ \t]*")
_ENDINGS = frozenset(
    ("references", "external links", "see also", "further reading", "notes", "bibliography", "citations")
)
_MARKERS = re.compile(r"^[*#:;]+[ \t]*", re.M)
_TAG = re.compile(r"<[/a-zA-Z][^<>]{0,300}>")
_BLANKS = re.compile(r"[ \t\xa0]+")
_HOLLOW = re.compile(r" ?\([ ,;:]{0,8}\)")
_BEFORE_STOP = re.compile(r" ([,.;])")


def plain_text(wikitext: str) -> str:
    """The prose of an article: paragraphs and section titles, one a line, an empty line between them.

    >>> plain_text("'''Ada''' (born {{convert|5|km}} from [[London|the city]]){{cn}}.<ref>x</ref>")
    'Ada (born 5 km from the city).'
    """
    text = _without(wikitext, re.compile("<!--"), "-->")
    for tag in _DROPPED:
        text = _without(text, re.compile(rf"<{tag}(?:\s[^<>]{{0,1000}}|/)?>", re.I), f"</{tag}>")
    for pattern, instead in ((_TEMPLATE, _template), (_TABLE, ""), (_OUTSIDE_LINK, r"\1"), (_LINK, _label)):
        for _ in range(_MAX_DEPTH):
            text, count = pattern.subn(instead, text)
            if not count:
                break
    text = html.unescape(_TAG.sub(" ", text).replace("'''", "").replace("''", ""))
    text = _BLANKS.sub(" ", _MARKERS.sub("", text))
    return "\n\n".join(_paragraphs(_BEFORE_STOP.sub(r"\1", _HOLLOW.sub("", text))))


def _paragraphs(text: str) -> Iterator[str]:
    skipped = False
    for line in text.split("\n"):
        heading = _HEADING.fullmatch(line.strip())
        if heading:
            line = heading[2]
            skipped = line.strip().lower() in _ENDINGS
        if line.strip() and not skipped and not line.startswith("__"):
            yield line.strip()


def _without(text: str, opening: re.Pattern[str], closing: str) -> str:
    """Everything from an opening to its closing removed; a tag that is never closed ends at its bracket."""
    parts, at, last = [], 0, text.rfind(closing)
    for match in opening.finditer(text):
        if match.start() < at or (match.end() > last and not match[0].endswith(">")):
            continue
        parts.append(text[at : match.start()])
        at = match.end()
        if not match[0].endswith("/>") and at <= last:
            at = text.find(closing, at) + len(closing)
    return "".join([*parts, text[at:]])


def _template(match: re.Match[str]) -> str:
    """What stays of a template: the words of those that only dress them up."""
    name, *values = match[1].split("|")
    name = name.strip().lower()
    values = [value for value in values if "=" not in value]
    if name in ("convert", "cvt") and len(values) >= 2:
        return f"{values[0].strip()} {values[1].strip()}"
    if name in ("lang", "nowrap", "transl", "small", "nobr", "ill") and values:
        return values[0 if name == "ill" else -1].strip()
    return ""


def _label(match: re.Match[str]) -> str:
    """`[[target|label]]` becomes its label; files, images and categories go with their captions."""
    return "" if _NOT_PROSE.match(match[1]) else match[1].rpartition("|")[2]
