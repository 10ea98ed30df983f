"""Cuts evidence into pieces that stand alone, and finds those that bear on a claim.

A piece is a sentence, an item of a list, a row of a table or a heading, shown with what it leans on: the
document's title and the headings above it, the names of its columns ("name: Auron; price: 99 euros"), the
line
that introduces its list, the question that it answers, and, where it opens with a pronoun or with an article
and no name, the sentence before it in its paragraph that says who is meant.  Each is judged alone, so that a
judge cannot mix what is said of two things.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

from factrl.text import CHAT_TOKEN, clean
from factrl.text.sentences import Sentence, sentences
from factrl.types import Passage
from factrl.verifier.judges.overlap import MAX_EVIDENCE, words_of

JOINED = 450
"""Characters of pieces about one subject that are judged together: on a CPU every word costs time."""
_BEGINNING = 5  # letters: "clean" and "cleaning", "reinigen" and "Reinigung"
_CELLS = 5  # of a row that is shown whole
_BESIDE = 0.6  # what a word counts that stands in what a piece leans on, and not in itself
_MARKS = 40  # characters of a line that may stand before its words
_BACK = 20  # sentences before one that refers back
_UNMARKED = 6  # the level of a heading in bold, or without a mark
_TITLE_WORDS = 10  # of a line that is a heading without being marked as one
_PRONOUNS = frozenset(
    """
    he her hers him his it its she their theirs them they this these that those
    dessen deren dies diese dieser dieses er es ihm ihn ihr ihre ihrem ihren ihrer sein seine seinem seinen
    seiner sie elle elles il ils sa ses son leur leurs ella ellas ellos su sus lei lui loro suo sua
    hij zij haar zijn ze он она оно они его её их
    """.split()  # noqa: SIM905
)
ARTICLES = frozenset("a an the der die das dem den des le la les el los las il lo gli de het".split())  # noqa: SIM905

QUESTION_MARKS = ("?", "？", "؟")


class Piece(NamedTuple):
    """One stretch of a passage, `passage.text[start:end]`, as it is judged.

    Attributes:
        text: its own words on one line, without markup; a row has the names of its columns.
        above: the headings above it, the outermost first, and `levels` how many signs each has in Markdown.
        before: what else it leans on: the line, question or sentence before it.
        keys: of a row what it is about: its first cell, and the second where that is a number or a code.
        paragraph: its number; pieces of one paragraph have the same.
    """

    kind: str
    text: str
    start: int
    end: int
    above: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    before: str = ""
    keys: tuple[str, ...] = ()
    paragraph: int = 0

    @property
    def asks(self) -> bool:
        """Whether it is a question, which says nothing; what answers it leans on it."""
        return self.kind not in ("item", "row") and self.text.endswith(QUESTION_MARKS)

    @property
    def shown(self) -> str:
        """Its words behind what it leans on."""
        return f"{self.before} {self.text}".lstrip()


# -- Cutting

_MARKUP = re.compile(
    r"!?\[([^\[\]\n]{1,200})\]\([^()\s]{0,500}\)"  # a link keeps its words
    r"|\[\[(?:[^\[\]|\n]{1,100}\|)?([A-ZÀ-Þ][^\[\]|\n]{1,100})\]\]"
    r"| ?\[\d{1,3}(?:[,–-] ?\d{1,3}){0,5}\]| ?【[^【】\n]{1,40}】| ?\[citation needed\]"
    r"|\[\^\w{1,20}\]"
    r"|`+|(?<!\w)_+(?=[^\W_])|(?<=[^\W_])(?:__+|_(?!\w))"
    r"|(?<![\w ])\*+|\*+(?![\w ])|(?<= )\*+(?! )|(?<=\w)\*+(?!\w)"  # but not "3 * 4" and "M*A*S*H"
)
STRUCK = re.compile(r"~~(?![\s~])[^~\n]{1,2000}~~")  # the author has taken it back
# Tags of HTML and of reasoning, except those that strike words out.
_TAGS = re.compile(
    r"</?(?:(b|i|u|em|strong|span|code)|p|ul|ol|li|h[1-6]|div|table|tr|td|th|section|article|pre|blockquote|br|hr"
    r"|answer|response|think|thinking|reasoning|thought|reflection)(?: [^<>]{0,200})?/?>|\[/?THINK\]"
    r"|<!--|-->$",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """A text on one line, without markup and without the special tokens of chat templates."""
    if "<" in text or "[" in text or text.endswith("-->"):
        text = _TAGS.sub(lambda match: "" if match[1] else " ", CHAT_TOKEN.sub(" ", text))
    return " ".join(_MARKUP.sub(lambda match: match[1] or match[2] or "", text).split())


def cells(row: str) -> list[str]:
    """The cells of a row; those with a dash are empty."""
    return [cell.strip(" ") if cell.strip(" -–—") else "" for cell in row.split("|")]


def in_words(row: Iterable[tuple[str, Any]]) -> str:
    """A row of a table, columns with their values: what is in each that is not empty.

    >>> in_words([("", "Ann Lee"), ("born", 1867), ("died", None)])
    'Ann Lee; born: 1867'
    """
    parts = []
    for column, value in row:
        if isinstance(value, (list, dict)):
            value = json.dumps(value, ensure_ascii=False, default=str)
        if (
            value is not None and value == value and (text := str(value).strip())
        ):  # NaN is not equal to itself
            name = column.replace("_", " ").strip()
            parts.append(f"{name}: {text}" if name else text)
    return "; ".join(parts)


def _keys(row: Sequence[str]) -> tuple[str, ...]:
    first, second = [*filter(None, row), "", ""][:2]
    return (first, second) if any(map(str.isdigit, first)) and second else (first,)


def refers_back(text: str) -> str:
    """How a sentence opens: with a "pronoun" before any name, an "article" without a name, or neither.

    >>> refers_back("In 1911 she won."), refers_back("The fee is 3 euros."), refers_back("The Auron is red.")
    ('pronoun', 'article', '')
    """
    words = re.findall(r"[^\W\d_]+", text[:200])[:6]
    for number, word in enumerate(words):
        if number and not word.islower():
            break
        if word.lower() in _PRONOUNS:
            return "pronoun"
    if words and words[0].lower() in ARTICLES and words[0].lower() not in ("a", "an"):
        return "article" if all(map(str.islower, words[1:3])) else ""
    return ""


_NAMED = re.compile(
    r"(?<=[\w,;] )[\"“(]?[^\W\d_a-zà-ÿ]\w|^[^\W\d_]\w*[A-Z]|^[^\W\d_]*[a-z]\w* (?:is|was|ist|war|est) an?\b"
)


MAX_TITLE = 500
"""Characters of a title or a heading, which every piece below it is read with."""
_HEADER = 4_000  # characters of the names of a table's columns, which every row is read with


@lru_cache(maxsize=512)  # the claims of a batch share their evidence
def pieces_in(text: str) -> tuple[Piece, ...]:
    """The pieces of the first `MAX_EVIDENCE` characters of a text, in order."""
    return tuple(_pieces(text[:MAX_EVIDENCE]))


def _pieces(text: str) -> list[Piece]:
    found: list[Piece] = []
    above: list[tuple[int, str]] = []
    columns, lead, question = list[str](), "", ""
    said: list[tuple[str, str]] = []  # of the paragraph: each sentence, and how it opens
    paragraph = end = 0
    units = sentences(text)
    for unit, below in zip(units, [*units[1:], None]):  # noqa: B905
        gap, end = text[end : unit.start], unit.end
        seen = clean(plain(STRUCK.sub("", text[unit.start : unit.end])))
        breaks = gap.count("\n") > 1 or (unit.kind == "item" and "\n" in gap) or unit.kind == "heading"
        if breaks:
            paragraph, said = paragraph + 1, []
            question = question if found and question.endswith(found[-1].text) else ""
        if not seen:
            continue
        level = level_of(text, unit, below, first=not found)
        place = (unit.start, unit.end, tuple(words for _, words in above), tuple(depth for depth, _ in above))
        if unit.kind == "heading" and "|" in text[unit.start : unit.end]:
            columns = cells(seen[:_HEADER])  # of a longer one, values stand without their columns
        elif level:
            above = [one for one in above if one[0] < level]
            outer = tuple(words for _, words in above), tuple(depth for depth, _ in above)
            found.append(Piece("heading", seen, *place[:2], *outer))
            above.append((level, seen[:MAX_TITLE]))
            columns, lead, question = [], "", ""
        elif unit.kind == "row":
            own = cells(seen)
            words = in_words(zip(columns, own, strict=True)) if len(own) == len(columns) else seen
            found.append(Piece("row", words, *place, lead, _keys(own), paragraph))
        else:
            if unit.kind == "item":
                before = [lead]
            else:
                before = [question]
                columns = []
            asks = unit.kind != "item" and seen.endswith(QUESTION_MARKS)
            back = "" if asks else refers_back(seen)
            if back and said:
                names = [
                    one for one, how in said[-_BACK:] if not how and (back == "pronoun" or _NAMED.search(one))
                ]
                before += names[-1:] or ([said[0][0]] if back == "pronoun" else [])
            found.append(Piece(unit.kind, seen, *place, " ".join(filter(None, before)), (), paragraph))
            if asks:
                question = " ".join([*(one for one, _ in said), seen])
                said = []
            else:
                said.append((seen, back))
            if unit.kind != "item":
                lead = seen if seen.endswith(":") else ""
    return found


def _line_of(text: str, unit: Sentence) -> int:
    """Where the line of a unit begins, if that is near; else the unit's own start."""
    line = text.rfind("\n", max(0, unit.start - _MARKS), unit.start)
    return line + 1 if line >= 0 or unit.start <= _MARKS else unit.start


def level_of(text: str, unit: Sentence, below: Sentence | None, *, first: bool) -> int:
    """The level of a heading, 1 for the outermost, also of one that is not marked as one; else 0."""
    line = _line_of(text, unit)
    if unit.kind == "heading":
        marks = text[line : unit.start].strip()
        return len(marks) if marks and not marks.strip("#") else _UNMARKED
    seen = text[unit.start : unit.end]
    rest = text[unit.end : below.start] if below else ""
    alone = "\n" in rest and not text[line : unit.start].strip(" \t>0123456789.)") and "\n" not in seen
    if (
        not alone
        or unit.kind not in ("prose", "item")
        or seen[-1] in ".!?:;,。！？：…"
        or (": " in seen and not first)
    ):
        return 0
    under = rest.strip()
    if under and not under.strip("=-"):  # underlined
        return 1 if "=" in under else 2
    opens = first or text[max(0, line - 2) : line] in ("\n\n", "\r\n")
    if (
        not opens
        or len(seen.split()) > _TITLE_WORDS
        or (unit.kind == "item" and below and below.kind == "item")
    ):
        return 0
    return 1 if first and "\n\n" in rest else _UNMARKED if below and below.kind != "heading" else 0


# -- Which pieces bear on a claim


class Found(NamedTuple):
    """A piece, or some of one paragraph, as a passage of its own for a judge."""

    passage: Passage
    pieces: tuple[Piece, ...]
    title: str  # of the document
    first: str = ""  # sentence of the passage, which may name what an untitled document is about


def found_in(passages: Sequence[Passage]) -> list[Found]:
    """Every piece of some passages, which share `MAX_EVIDENCE` characters."""
    left, found = MAX_EVIDENCE, list[Found]()
    for passage in passages:
        found += _found_in(
            passage.title[:MAX_TITLE], passage.text[: max(left, 0)], passage.source, passage.id
        )
        left -= len(passage.text)
    return found


@lru_cache(maxsize=512)
def _found_in(title: str, text: str, source: str, name: str) -> tuple[Found, ...]:
    passage = Passage(text, title, source, name)
    if name.startswith("row "):  # of a table that is a file of its own
        row = tuple(cell.partition(": ")[2] for cell in text.split("; "))
        return (_as_found(passage, (Piece("row", clean(text), 0, len(text), keys=_keys(row)),)),)
    pieces = pieces_in(text)
    first = next((one.text for one in pieces if one.kind == "prose"), "")
    return tuple(_as_found(passage, (piece,))._replace(first=first) for piece in pieces)


def _as_found(passage: Passage, pieces: tuple[Piece, ...]) -> Found:
    title = clean(passage.title)
    above = [words for words in pieces[0].above if words != title]
    words = " ".join([pieces[0].shown, *(one.text for one in pieces[1:])])
    own = Passage(words, " › ".join(filter(None, [title, *above])), passage.source, passage.id)
    return Found(own, pieces, title)


@lru_cache(maxsize=8_192)
def stems(text: str) -> frozenset[str]:
    """The beginnings of the content words, names and numbers of a text, which words of one family share."""
    return frozenset(word[:_BEGINNING] for word in words_of(text).stems)


def ranked(claim: str, found: Sequence[Found], hint: str = "") -> list[Found]:
    """The pieces that share words with a claim, those with most of its rare words first.

    The first is followed by the first with others of its paragraph, where they have words that it lacks.

    Args:
        hint: words of the claim's subject, which count where they are not in the claim.
    """
    wanted = stems(claim) | stems(hint)
    own = [stems(one.pieces[0].text) & wanted for one in found]
    near = [
        (stems(one.passage.title) | stems(one.pieces[0].before)) & wanted - held
        for one, held in zip(found, own, strict=True)
    ]
    counts = Counter(word for held in own for word in held)
    counts.update(word for held in near for word in held)
    weight = {word: math.log(1 + len(found) / count) for word, count in counts.items()}

    def score(number: int) -> float:
        return sum(weight[word] for word in own[number]) + _BESIDE * sum(
            weight[word] for word in near[number]
        )

    order = sorted((n for n in range(len(found)) if own[n] or near[n]), key=lambda n: (-score(n), n))
    best = [_narrowed(found[number], wanted) for number in order]
    if order and (more := _joined(best[0], own[order[0]] | near[order[0]], found, own)):
        best.insert(1, more)
    return best


def _narrowed(one: Found, wanted: frozenset[str]) -> Found:
    """A long row without those of its cells that have nothing to do with a claim."""
    piece = one.pieces[0]
    own = piece.text.split("; ")
    if piece.kind != "row" or len(own) < _CELLS:
        return one
    counts = Counter(word for cell in own for word in stems(cell) & wanted)
    telling = {word for word, count in counts.items() if 2 * count <= len(own)}
    kept = [cell for cell in own if stems(cell) & telling or cell.partition(": ")[2] in piece.keys]
    text = "; ".join(kept)
    return Found(
        replace(one.passage, text=f"{piece.before} {text}".lstrip()), (piece._replace(text=text),), one.title
    )


def _joined(
    first: Found, held: frozenset[str], found: Sequence[Found], own: Sequence[frozenset[str]]
) -> Found | None:
    """A piece with others of its paragraph that have more of the claim's words; None without any."""
    piece = first.pieces[0]
    if piece.kind in ("row", "heading", "code"):
        return None
    taken, left = [piece], JOINED - len(piece.shown)
    beside = [
        (words, one.pieces[0])
        for one, words in zip(found, own, strict=True)
        if (one.title, one.first, one.passage.id) == (first.title, first.first, first.passage.id)
        and one.pieces[0].paragraph == piece.paragraph
        and one.pieces[0].above == piece.above
        and one.pieces[0].kind == piece.kind
        and one.pieces[0] != piece
    ]
    while beside:
        words, best = max(beside, key=lambda pair: len(pair[0] - held))
        if not words - held or len(best.text) > left:
            break
        held, left = held | words, left - len(best.text)
        taken.append(best)
        beside.remove((words, best))
    if len(taken) < 2:
        return None
    taken.sort(key=lambda one: one.start)
    return _as_found(Passage("", first.title, first.passage.source, first.passage.id), tuple(taken))


# -- Cutting a document into passages: each begins with what its first piece leans on

MAX_WORDS = 120
"""Words of a passage that is cut out; DPR's Wikipedia has 100."""
KEPT_WORDS = 200
"""Words of a document that stays whole."""
_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_WORD = re.compile(r"\S{1,200}\s*")


def cut(text: str) -> list[str]:
    """The text itself if it is short, else stretches of it, in order; nothing but white space is lost.

    A stretch ends at the end of a sentence, unless that is longer than a passage, and begins with the
    headings
    above it, the names of its columns and what its first sentence leans on.  Two Chinese or Japanese
    characters
    count as a word.  What is left at the end goes to the passage before it when it is too short to stand
    alone.
    """
    text = text.strip()
    if _length(text) <= KEPT_WORDS:
        return [text] if text else []
    units = sentences(text)
    places = [_line_start(text, unit) for unit in units]
    starts, held = [0], 0
    for start, end in _units(text, places):
        size = _length(text[start:end])
        if held and held + size > MAX_WORDS:
            starts.append(start)
            held = 0
        held += size
    if held < MAX_WORDS // 4 and len(starts) > 1:
        starts.pop()
    leans = _leaning(text, units) if len(starts) > 1 else {}
    stretches = [text[start:end].strip() for start, end in pairwise([*starts, len(text)])]
    return [leans.get(start, "") + part for start, part in zip(starts, stretches, strict=True) if part]


def _line_start(text: str, unit: Sentence) -> int:
    """Where a unit begins, with the mark of its item, heading or row."""
    line = _line_of(text, unit)
    return line if not text[line : unit.start].strip(" \t#>|-*•+0123456789.)(") else unit.start


def _leaning(text: str, units: Sequence[Sentence]) -> dict[int, str]:
    """What a stretch that begins at a unit is to begin with."""
    rows: dict[int, str] = {}
    columns = ""
    for unit in units:
        words = text[unit.start : unit.end]
        if unit.kind == "heading" and "|" in words:
            columns = f"| {words} |\n|{'---|' * len(cells(words))}\n"
        elif unit.kind == "row":
            rows[unit.start] = columns
        else:
            columns = ""
    leans: dict[int, str] = {0: ""}
    for piece, unit in ((piece, Sentence(piece.start, piece.end)) for piece in _pieces(text)):
        head = "".join(
            f"{'#' * level} {words}\n\n" for level, words in zip(piece.levels, piece.above, strict=True)
        )
        before = f"{piece.before}\n" if piece.before else ""
        leans.setdefault(_line_start(text, unit), head + before + rows.get(piece.start, ""))
    return leans


def _units(text: str, places: Sequence[int]) -> Iterable[tuple[int, int]]:
    """The text in stretches that join without a gap: its sentences, or the words of one that is too long."""
    for start, end in pairwise([0, *places[1:], len(text)]):
        if _length(text[start:end]) <= MAX_WORDS:
            yield start, end
        else:
            yield from (word.span() for word in _WORD.finditer(text, start, end))


def _length(text: str) -> int:
    """Words; at least one for every 20 characters, since a text without spaces is no single word."""
    unspaced = 0 if text.isascii() else len(_WIDE.findall(text)) // 2
    return max(len(text.split()), len(text) // 20) + unspaced
