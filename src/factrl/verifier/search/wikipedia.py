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
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import quote

from factrl.errors import DataError


@dataclass(frozen=True, slots=True)
class Page:
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

_MAX_DEPTH = 12  # of links inside links; deeper ones are left as they are
_DROPPED = ("ref", "math", "gallery", "timeline", "syntaxhighlight", "score", "imagemap", "chem")
_NOT_PROSE = re.compile(r"(?:file|image|category|media):", re.I)
_BRACES = re.compile(r"\{\{|\}\}|^[ :]*\{\||^\|\}(?!\})", re.M)
_BRACKETS = re.compile(r"\[\[|\]\]")
_OUTSIDE_LINK = re.compile(r"\[(?:https?:)?//[^\s\[\]]{1,500}([^\[\]\n]{0,500})\]")
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
    text = _without(wikitext, "<!--", "-->")
    for tag in _DROPPED:
        text = _without_tag(text, tag)
    text = _links(_without_braces(text))
    text = _OUTSIDE_LINK.sub(r"\1", text)
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


def _without(text: str, opening: str, closing: str) -> str:
    parts, at = [], 0
    while (start := text.find(opening, at)) >= 0 and (end := text.find(closing, start)) >= 0:
        parts.append(text[at:start])
        at = end + len(closing)
    return "".join([*parts, text[at:]])


def _without_tag(text: str, tag: str) -> str:
    """`<tag …>…</tag>` and `<tag … />` removed; an opening that is never closed ends at its own bracket."""
    if f"<{tag}" not in text:
        return text
    opening = re.compile(rf"<{tag}(?:\s[^<>]{{0,1000}}|/)?>", re.I)
    closing, parts, at = f"</{tag}>", [], 0
    last = text.rfind(closing)
    for match in opening.finditer(text):
        if match.start() < at:
            continue
        parts.append(text[at : match.start()])
        at = match.end()
        if not match[0].endswith("/>") and at <= last:
            at = text.find(closing, at) + len(closing)
    return "".join([*parts, text[at:]])


def _without_braces(text: str) -> str:
    """Templates and tables removed, but for the templates that only dress up a word.

    A brace without its partner is left, so that it does not swallow the rest of the article.
    """
    stack: list[re.Match[str]] = []
    spans: list[tuple[int, int]] = []
    for match in _BRACES.finditer(text):
        if match[0].endswith(("{{", "{|")):
            stack.append(match)
            continue
        kind = "{{" if match[0] == "}}" else "{|"
        if any(opened[0].endswith(kind) for opened in stack[-_MAX_DEPTH:]):
            while not (opened := stack.pop())[0].endswith(kind):
                pass
            while spans and spans[-1][0] >= opened.start():
                spans.pop()  # inside the one that has just closed
            spans.append((opened.start(), match.end()))
    parts, at = [], 0
    for start, end in spans:
        parts += (text[at:start], _template(text[start + 2 : end - 2]))
        at = end
    return "".join([*parts, text[at:]])


def _template(content: str) -> str:
    name, *values = content.split("|")
    name = name.strip().lower()
    values = [value for value in values if "=" not in value]
    if name in ("convert", "cvt") and len(values) >= 2:
        return f"{values[0].strip()} {values[1].strip()}"
    if name in ("lang", "nowrap", "transl", "small", "nobr", "ill") and values:
        return values[0 if name == "ill" else -1].strip()
    return ""


def _links(text: str) -> str:
    """`[[target|label]]` becomes its label; files, images and categories go with their captions."""
    buffers: list[list[str]] = [[]]
    at = 0
    for match in _BRACKETS.finditer(text):
        buffers[-1].append(text[at : match.start()])
        at = match.end()
        if match[0] == "[[" and len(buffers) <= _MAX_DEPTH:
            buffers.append([])
        elif match[0] == "]]" and len(buffers) > 1:
            link = "".join(buffers.pop())
            buffers[-1].append("" if _NOT_PROSE.match(link.lstrip(" :")) else link.rpartition("|")[2])
        else:
            buffers[-1].append(match[0])
    buffers[-1].append(text[at:])
    return "[[".join("".join(buffer) for buffer in buffers)
