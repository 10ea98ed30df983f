"""The list of facts in a model's reply, read as a person would read it, or not at all.

A list mark is a bullet, or a number that counts; everything else on a line belongs to the fact.  Patterns
that strip what looks like a number have turned "1984 is a novel" into "is a novel" (peers, 2.6).
"""

from __future__ import annotations

import re
from typing import Any

from factrl.errors import Unscored

_BULLET = re.compile(r"[-*•‣◦▪●·–—]\s{1,8}|[•‣◦▪●]")
_NUMBER = re.compile(r"\(?(\d{1,3})[.):]\s{1,8}|\((\d{1,3})\)\s{0,8}")
_EMPHASIS = re.compile(r"\*\*|__|`")
_FENCE = re.compile(r"(?:```|~~~)[\w-]{0,20}\s{0,8}")
_SPACES = re.compile(r"\s+")
NONE = frozenset(
    {
        *(
            "no verifiable claim",
            "no verifiable claims",
            "no verifiable claims found",
            "no claim",
            "no claims",
        ),
        *("no facts", "no fact", "no atomic facts", "no facts found", "no factual statements", "none"),
        *("there are no facts", "there are no verifiable claims", "the text states no facts"),
        "the sentence states no facts",
    }
)
"""Replies that say plainly that there is nothing, in small letters and without signs."""


def read_facts(reply: str, **facts: Any) -> list[str]:
    """The facts of a reply, in order; an empty list when it says plainly that there are none.

    Only lines with a list mark are facts.  Lines before and between them ("Here are the facts:") are not,
    and a marked line that ends in a colon is a heading.  Of a reasoning model's reply only what follows
    `</think>` is read.

    Args:
        reply: the model's whole reply.
        facts: what is known about the call; kept with the error.

    Raises:
        Unscored: `extract_unreadable`: an empty reply, a refusal, prose, or a list of nothing.
    """
    _, closed, text = reply.rpartition("</think>")
    if not closed and "<think>" in reply:
        raise Unscored("extract_unreadable", "the reply is a thought that never ends", **facts)
    lines = [line for line in map(str.strip, text.split("\n")) if line and not _FENCE.fullmatch(line)]
    found: list[str] = []
    marked = none = False
    count = 0
    for line in lines:
        words, count, has_mark = _unmarked(line, count)
        if _plain(words) in NONE:
            none = True
        elif has_mark:
            marked = True
            words = _SPACES.sub(" ", _EMPHASIS.sub("", words)).strip()
            if any(map(str.isalnum, words)) and not words.endswith((":", "：")):
                found.append(words)
    if found or (none and not marked and (len(lines) == 1 or _plain(" ".join(lines)) in NONE)):
        return found
    said = " ".join(text.split())[:200]
    problem = (
        f"the reply is neither a list of facts nor the words for none: {said!r}"
        if said
        else "the reply is empty"
    )
    raise Unscored("extract_unreadable", problem, **facts)


def _unmarked(line: str, count: int) -> tuple[str, int, bool]:
    """A line without its list marks, the number it counted to, and whether it had a mark.

    A number is a mark only when it counts: 1, or one more than the number before.
    """
    has_mark = False
    for _ in range(3):
        bullet = _BULLET.match(line)
        number = None if bullet else _NUMBER.match(line)
        if bullet:
            line = line[bullet.end() :]
        elif number and (value := int(number[1] or number[2])) in (1, count + 1) and not (has_mark and count):
            count = value
            line = line[number.end() :]
        else:
            break
        has_mark = True
    if has_mark or line.strip("-*•‣◦▪●·–—"):
        return line, count, has_mark
    return "", count, True  # a bullet with nothing behind it


def _plain(words: str) -> str:
    return " ".join(re.sub(r"[^\w\s]|_", " ", words.casefold()).split())
