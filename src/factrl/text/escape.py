"""Text that someone else wrote, made safe to show in a page, a table cell or a terminal.

Nothing is dropped: characters that cannot be seen, or that change how others are seen (controls,
bidirectional marks, zero-width and tag characters, lone surrogates), appear as their code point.
"""

from __future__ import annotations

import html
import re
import unicodedata
from urllib.parse import urlsplit

from factrl.text import FILLERS

# What draws nothing, and selectors that can carry hidden text; U+FE0F stays for emoji.
_BLANK = {*map(ord, FILLERS), *range(0xFE00, 0xFE0F), *range(0xE0100, 0xE01F0), *range(0xFDD0, 0xFDF0)}
_MARKDOWN = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", **{sign: f"\\{sign}" for sign in "\\`*_[]|~#$@"}}
)
_ADDRESS = re.compile(r":(?=//)|(?<=www)\.", re.I)  # would become a link unasked


def visible(text: str) -> str:
    """The text with every unseen character written out, e.g. `⟨U+202E⟩`; newlines and tabs stay."""
    if text.isprintable():
        # isprintable() is False for everything but letters, marks, signs and the space.
        return "".join(f"⟨{_code(c)}⟩" if ord(c) in _BLANK else c for c in text)
    return "".join(f"⟨{_code(c)}⟩" if _unseen(c) else c for c in text.replace("\r\n", "\n"))


def one_line(text: str, most: int | None = None) -> str:
    """For terminals and logs: visible, unable to start a line of its own, and cut to `most` characters.

    >>> one_line("Jane\\nAusten", most=6)
    'Jane⏎…'
    """
    line = visible(text.replace("\r\n", "\n").replace("\n", "⏎").replace("\t", " "))
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def markup(text: str) -> str:
    """As HTML content, unseen characters in marks of their own with the character's name."""
    parts: list[str] = []
    for char in text.replace("\r\n", "\n"):
        if _unseen(char):
            name = unicodedata.name(char, "control character")
            parts.append(f'<span class="mark" title="{html.escape(name)}">{_code(char)}</span>')
        else:
            parts.append(html.escape(char))
    return "".join(parts)


def markdown(text: str) -> str:
    """Inside a line or a table cell of Markdown: no markup, no HTML, no link and no line of its own."""
    return _ADDRESS.sub(r"\\\g<0>", one_line(text).translate(_MARKDOWN))


def attribute(text: str) -> str:
    """As the value of a quoted HTML or SVG attribute, or as the text of an SVG element."""
    return html.escape(visible(text), quote=True)


def linked(text: str) -> str:
    """As HTML content, as a link when all of it is an address that a browser opens without surprises."""
    try:
        parts = urlsplit(text)
        plain = text.isascii() and text.isprintable() and not set(text) & set(" \"'<>\\`@")
        address = plain and parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        address = False
    shown = markup(text)
    return f'<a href="{attribute(text)}" rel="noopener noreferrer">{shown}</a>' if address else shown


def _code(char: str) -> str:
    return f"U+{ord(char):04X}"


def _unseen(char: str) -> bool:
    if char in "\n\t":
        return False
    code = ord(char)
    return (
        unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        or code in _BLANK
        or code & 0xFFFE == 0xFFFE
    )
