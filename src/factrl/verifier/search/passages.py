"""Documents cut into passages, at the ends of sentences.

A passage is short enough that a judge can read several for one claim, and long enough to say what its
sentences are about.  Corpora that come in passages keep theirs: cutting those of HotpotQA, which hold both
ends of a question, cost 11 points of hit@5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from factrl.errors import DataError
from factrl.text.sentences import sentences
from factrl.types import Passage
from factrl.verifier.search.sources import Document, find_sources

MAX_WORDS = 120
"""Words of a passage that is cut out; DPR's Wikipedia has 100, and a judge's prompt holds five of them."""
KEPT_WORDS = 200
"""Words of a document that stays whole."""

_UNSPACED = re.compile("[\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_PIECE = re.compile(r"\S{1,200}\s*")


def cut(text: str) -> list[str]:
    """The text itself if it is short, else stretches of it, in order; nothing but white space is lost.

    A sentence is only cut when it is longer than a passage.  Two Chinese or Japanese characters count as a
    word.  What is left at the end goes to the passage before it when it is too short to stand alone.
    """
    text = text.strip()
    if _length(text) <= KEPT_WORDS:
        return [text] if text else []
    starts, held = [0], 0
    for start, end in _pieces(text):
        size = _length(text[start:end])
        if held and held + size > MAX_WORDS:
            starts.append(start)
            held = 0
        held += size
    if held < MAX_WORDS // 4 and len(starts) > 1:
        starts.pop()
    return [text[start:end].strip() for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def passages_of(document: Document) -> Iterator[Passage]:
    """The passages of one document, each with its title and source; several of one id are numbered."""
    parts = cut(document.text)
    for number, text in enumerate(parts, start=1):
        name = f"{document.id}#{number}" if document.id and len(parts) > 1 else document.id
        yield Passage(text, title=document.title, source=document.source, id=name)


def read_passages(paths: Iterable[str | Path]) -> list[Passage]:
    """All passages of some files or folders, in memory; for evidence that is handed in.

    Raises:
        DataError: a file is missing, unreadable or of no known format, or none of them holds any text.
    """
    sources = find_sources(paths)
    found = [p for source in sources for document in source.documents() for p in passages_of(document)]
    if not found:
        raise DataError(f"no text in {', '.join(str(source.path) for source in sources)}")
    return found


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """The text in stretches that join without a gap: its sentences, or parts of those that are too long."""
    starts = [sentence.start for sentence in sentences(text)] or [0]
    for start, end in zip([0, *starts[1:]], [*starts[1:], len(text)], strict=True):
        if _length(text[start:end]) <= MAX_WORDS:
            yield start, end
        else:
            yield from _parts(text, start, end)


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    first, held = start, 0
    for word in _PIECE.finditer(text, start, end):
        size = _length(word[0])
        if held and held + size > MAX_WORDS:
            yield first, word.start()
            first, held = word.start(), 0
        held += size
    if first < end:
        yield first, end


def _length(text: str) -> int:
    """Words; at least one for every 20 characters, since a text without spaces is no single word."""
    unspaced = 0 if text.isascii() else len(_UNSPACED.findall(text)) // 2
    return max(len(text.split()), len(text) // 20) + unspaced
