"""Sentences of a text, with character offsets, in linear time.

What a language model writes is not only prose, so lines are told apart first: list items, headings, table
rows and code blocks.  Inside prose and items a period ends a sentence unless the word before it is an
abbreviation, an initial or a number that numbers; what follows an abbreviation decides when it can do both
("in the U.S. He" and "the U.S. economy").  The full stops of other scripts, as of Chinese, Hindi, Urdu,
Armenian and Amharic, always end one.

It is rules, not a trained model, and made for English; other languages with `. ! ?` or a full stop of their
own work except for their abbreviations; of German, ordinals before nouns ("im 19. Jahrhundert") and common
abbreviations are known.  nupunkt, a trained splitter, agrees on nearly every boundary of the texts we
compared, but needs Python 3.11 and quadratic time on texts like `?!?!?!`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from factrl.text import END_THINK, END_TOKEN, THINK, strip_end_tokens

Kind = Literal["prose", "item", "heading", "row", "code", "reasoning"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A stretch of a text that says one thing.

    Attributes:
        start, end: character offsets into the text, end exclusive; no white space at either end.
        kind: `prose`; `item`, of a list, without its mark; `heading`, which titles what follows (the first
            row of a table too); `row`, of a table, without the outer bars; `code`, a whole fenced block;
            `reasoning`, all of a `<think>` block, also where the prompt opened it or it was cut off.
    """

    start: int
    end: int
    kind: Kind = "prose"


def sentences(text: str) -> list[Sentence]:
    """The sentences of `text` in order, without overlap.

    >>> text = "He lived in the U.S. He died in 1990."
    >>> [text[one.start : one.end] for one in sentences(text)]
    ['He lived in the U.S.', 'He died in 1990.']

    Lines of signs only, and sentences without a letter or a digit, are left out.  A fenced block whose lines
    are sentences is read as text, whatever its language claims to be; so is one that is never closed, and one
    whose language is Markdown or plain text.
    """
    pieces: list[Sentence] = []
    at = 0
    for start, end in _reasoning(text):
        pieces += _sentences(text, at, start)
        pieces.extend(Sentence(a, b, "reasoning") for a, b in _stripped(text, start, end))
        at = end
    return pieces + _sentences(text, at, len(text))


def _reasoning(text: str) -> Iterator[tuple[int, int]]:
    """Each stretch from `<think>` to `</think>`; one that opens or closes the text may lack the other tag.

    A lone `</think>` that nothing follows closes no reasoning: what is before it is read.
    """
    close = text.find(END_THINK)
    start = text.find(THINK)
    if close >= 0 and not 0 <= start < close:  # the prompt has opened it
        if any(map(str.isalnum, strip_end_tokens(text[close + len(END_THINK) :]))):
            yield 0, close + len(END_THINK)
        start = text.find(THINK, close)
    while start >= 0:
        close = text.find(END_THINK, start)
        if close < 0 and text[:start].strip():  # not reasoning that was cut off: what follows is read
            return
        end = close + len(END_THINK) if close >= 0 else len(text)
        yield start, end
        start = text.find(THINK, end)


def _sentences(text: str, first: int, last: int) -> list[Sentence]:
    """The sentences of one stretch of a text."""
    pieces: list[Sentence] = []
    block: list[tuple[int, int]] = []
    kind: Kind = "prose"

    def flush() -> None:
        if block:
            start, end = block[0][0], block[-1][1]
            pieces.extend(Sentence(a, b, kind) for a, b in _spans(text, start, end))
            block.clear()

    for start, end, line_kind in _lines(text, first, last):
        if line_kind != "prose" or (block and not _continues(text, block[-1], start)):
            flush()
        if line_kind in ("heading", "row", "code"):
            flush()
            pieces.extend(Sentence(a, b, line_kind) for a, b in _stripped(text, start, end))
        elif line_kind == "item":
            kind = "item"
            block.append((start, end))
        elif line_kind == "prose":
            if not block:
                # A line that is indented under an item belongs to the item.
                kind = "prose"
            block.append((start, end))
    flush()
    return pieces


# -- Lines

_Line = tuple[int, int, Literal["prose", "item", "heading", "row", "code", "blank"]]

# After "1." and "①" the space may be missing, but "3.5" is a number.
_MARK = re.compile(
    r"(?:[-*+•‣◦▪●·–—]\s{1,8}|\(?(?:\d{1,3}|[a-z])[.)]\s{1,8}|[A-Z]\)\s{1,8}|\d{1,3}[.)](?=[^\W\d_])|[①-⑳]"
    r"|\[\^?\d{1,3}\]:?\s{1,8})(?=\S)"
)
# In a line, the mark of an item: " 2. She", " 2) She", " (2) She", " • She", " ② She".
_INLINE = re.compile(r"(?<!\S)(?:(\()?(\d{1,2})(?:\.|\))\s{1,8}|•\s{1,8}|(?<=\s)[①-⑳]\s{0,8})(?=\S)")
_COUNTED = frozenset(  # "World War 2. She"
    """
    no nr number page chapter section part phase room volume season episode act figure war type grade level
    step version day week year class group game stage round item question article rule apartment
    """.split()  # noqa: SIM905
)
_NUMBERED_BOLD = re.compile(r"(?:\*\*|__)\d{1,3}[.)]\s{1,4}")
_QUOTED = re.compile(r">[>\s]*")
_HEADING = re.compile(r"#{1,6}\s{1,8}(?=\S)")
_TITLED = re.compile(r"(?:\*\*|__)[^*_.!?。！？]{1,100}(?:\*\*|__):?")
_RULE = frozenset("-*_=~#+. \t|:")
# What may stand behind an opening fence is a language, and settings of a page; anything else is text.
_FENCE = re.compile(r"(`{3,}|~{3,})(?=[ \t]{0,9}[\w+#.-]{0,40}[ \t]{0,9}(?:$|\{|\w{1,40}=))")
_FENCE_SIGNS = re.compile(r"`{3,}|~{3,}")
_PLAIN = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]{0,9}(?:markdown|md|text|txt|plaintext)\b", re.IGNORECASE)


_LINE = re.compile(r"[^\n\r\u2028\u2029]+")


def _lines(text: str, first: int, last: int) -> Iterator[_Line]:
    """Every line with its kind, without marks and outer white space; a block of code is one line, and so is
    each item of a list that stands in one."""
    spans = [match.span() for match in _LINE.finditer(text, first, last)]
    fences = _fences(text, spans)
    previous_end = first
    skip_until = -1
    for number, (begin, stop) in enumerate(spans):
        # More than one line end between two lines is an empty line.
        if text.count("\n", previous_end, begin) + text.count("\u2029", previous_end, begin) > 1:
            yield begin, begin, "blank"
        previous_end = stop
        if number <= skip_until:
            continue
        if number in fences:
            closing = fences[number]
            if not _PLAIN.match(text, begin, stop) and not _reads_as_text(text, spans[number + 1 : closing]):
                skip_until = closing
                yield begin, spans[closing][1], "code"
            else:
                yield begin, begin, "blank"
            continue
        start, end = _trimmed(text, begin, stop)
        if fence := _FENCE_SIGNS.match(text, start, end):  # it opens nothing, or text stands behind it
            start, end = _trimmed(text, fence.end(), stop)
        if start == end or _RULE.issuperset(text[start:end]):
            yield begin, begin, "blank"
        else:
            below = spans[number + 1] if number + 1 < len(spans) else (stop, stop)
            for at, until in pairwise([start, *_inline_items(text, start, end), end]):
                yield _classified(text, *_trimmed(text, at, until), below)


def _inline_items(text: str, start: int, end: int) -> list[int]:
    """Where the items of a list begin that stands in one line: "1. … 2. …", from 1 on and without a gap.

    The first begins the line or follows a colon or the end of a sentence.
    """
    line = text[start:end]
    if "2" not in line and "•" not in line and "②" not in line:
        return []
    starts: list[int] = []
    count = 0
    for match in _INLINE.finditer(text, start, end):
        before = text[max(start, match.start() - _MAX_WORD) : match.start()].rstrip()
        number = int(match[2]) if match[2] else count + 1
        word = before.rsplit(None, 1)[-1].rstrip(".").casefold() if before else ""
        opens = not before or before[-1] in _LEADS
        if number != count + 1 or word in _COUNTED or not (count or opens):
            continue
        if text[match.end()].islower() and not opens:  # "has (1) two towers, (2) four lanes"
            continue
        starts.append(match.start())
        count = number
    return [at for at in starts if at > start] if count > 1 else []


def _classified(text: str, start: int, end: int, below: tuple[int, int]) -> _Line:
    """A line that is neither empty nor code; `below` is the next line."""
    quoted = _QUOTED.match(text, start, end)
    if quoted:
        start = quoted.end()
    if start == end:
        return start, end, "blank"
    mark = _HEADING.match(text, start, end)
    if mark:
        inner = text[mark.end() : end].rstrip("# \t")
        return mark.end(), mark.end() + len(inner), "heading"
    if text[start] == "|" or text.count(" | ", start, end) > 1:
        inside = _trimmed(text, start + (text[start] == "|"), end - (text[end - 1] == "|"))
        if inside[0] >= inside[1]:
            return start, start, "blank"
        under = text[below[0] : below[1]]
        ruled = "-" in under and "|" in under and _RULE.issuperset(under)
        return *inside, "heading" if ruled else "row"
    if _TITLED.fullmatch(text, start, end):
        return start, end, "heading"
    mark = _NUMBERED_BOLD.match(text, start, end) or _MARK.match(text, start, end)
    if mark:
        return mark.end(), end, "item"
    return start, end, "prose"


def _fences(text: str, spans: list[tuple[int, int]]) -> dict[int, int]:
    """The number of each line that opens a block of code, with the number of the line that closes it."""
    pairs: dict[int, int] = {}
    opener: tuple[int, str] | None = None
    for number, (begin, stop) in enumerate(spans):
        start = _trimmed(text, begin, stop)[0]
        fence = _FENCE.match(text, start, stop)
        if not fence:
            continue
        if opener is None:
            opener = number, fence[1]
        elif fence[1].startswith(opener[1]) and not text[fence.end() : stop].strip():
            pairs[opener[0]] = number
            opener = None
    return pairs


def _reads_as_text(text: str, spans: list[tuple[int, int]]) -> bool:
    """Whether most lines of a block are sentences: an answer in a fence, or one that hides in it.

    Headings and labels do not count, as comments and settings look the same.
    """
    lines = [text[begin:stop].strip() for begin, stop in spans]
    lines = [line for line in lines if line and not _LABELLED.match(line)]
    return bool(lines) and sum(map(_is_said, lines)) >= 0.6 * len(lines)


def _is_said(line: str) -> bool:
    """Whether a line of a block is a sentence of words, and not one of code."""
    if line[0] >= "\u2e80":  # a script without spaces
        return line[-1] in _FULL_STOPS
    line = line.lstrip("-*•> ")
    starts = (line[:1].isupper() and line[1:2].islower()) or line[:1] in ("A", "I") or line[:1].isdigit()
    return starts and line.count(" ") >= 2 and (line[-1] in ".!?" or _CODE.isdisjoint(line))


_CODE = frozenset("{}()[]=;<>_#$\\|:")
_LABELLED = re.compile(r"#{1,6} |\*\*|[-*•>\s]{0,9}[A-Z][a-z]{1,20}(?: [A-Za-z]{1,20}){0,3}:(?! .*[.!?]$)")


def _continues(text: str, above: tuple[int, int], start: int) -> bool:
    """Whether a line goes on with the sentence of the line above it, or could."""
    last = text[above[1] - 1]
    if last in _LEADS or last == "|":
        return last in ".!?…" and above[1] - above[0] >= _WRAPPED
    first = text[start]
    word = text[max(above[0], above[1] - _MAX_WORD) : above[1]].rsplit(None, 1)[-1]
    return first.islower() or last == "," or word in _UNFINISHED or above[1] - above[0] >= _WRAPPED


_UNFINISHED = frozenset(
    ["in", "of", "the", "a", "an", "and", "to", "by", "for", "with", "at", "on", "from", "or", "was", "is"]
)
_WRAPPED = 50
"""Characters of a line that is long enough to have been wrapped by an editor."""


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    start += len(part) - len(part.lstrip())
    return start, start + len(part.strip())


def _stripped(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The span without outer white space, unless it holds no letter and no digit."""
    start, end = _trimmed(text, start, end)
    if any(map(str.isalnum, text[start:end])):
        yield start, end


# -- Boundaries

# Matching a run never fails, so no start is tried twice; what follows is looked at by hand.
_FULL_STOPS = "。！？｡︒।॥؟۔։።፧፨។៕။"
_STOPS = re.compile(rf"[.!?…]+|[{_FULL_STOPS}]+|(?<=[\u0900-\u0dff])\|")  # "|" is written for a danda
_LEADS = frozenset(".!?:;…：" + _FULL_STOPS)
_CLOSERS = frozenset("\"'”’»)]}*_`」』）】》〉")
_OPENERS = "\"'“‘«([{*_`„「『（【《"
_CITED = re.compile(r"(?: ?\[\^?\d{1,3}(?:[,–-] ?\d{1,3}){0,5}\]){1,8}")
_TAG = re.compile(rf"</?[a-z][a-z1-6]{{0,15}}/?>|{END_TOKEN.pattern}|\[/?[A-Z]{{3,5}}\]", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_][\w'’-]{0,30}")
_MAX_WORD = 40
_MAX_ASIDE = 300


# Never the end of a sentence.
_TITLES = frozenset(
    """
    mr mrs ms messrs dr prof gen col lt capt cpt sgt cpl maj cmdr adm rev hon sen gov pres st ste mt ft fr vs
    viz approx ca e.g i.e eg ie supt insp mlle mme hr sra dra gebr geb bzw cf c
    """.split()  # noqa: SIM905
)
# But with a capital, and before what starts a sentence, these end one: chemical symbols, and "5 James St."
_SYMBOLS = frozenset(["Ca", "Cf", "Fr", "Mt", "St", "Ft"])
# The end of a sentence only where a number does not follow.
_BEFORE_NUMBERS = frozenset("no nos nr jan feb mar apr jun jul aug sep sept oct nov dec".split())  # noqa: SIM905
_GERMAN = frozenset(
    "mio mrd tsd jh str usw vgl sog evtl ggf inkl zzgl geb gest bd aufl hrsg".split()  # noqa: SIM905
)
# The end of a sentence where one clearly starts.
_TRAILING = frozenset(
    """
    jr sr inc ltd co corp bros llc etc esq ph.d al vol vols fig figs pp p b d r v ed eds sec ch eq op
    """.split()  # noqa: SIM905
)
# The same, with a capital only: they are words without one.
_TRAILING_CAPITAL = frozenset(
    """
    Mass Calif Conn Ill Ind Ariz Ala Fla Ga Ky La Md Mich Minn Miss Mo Okla Ore Pa Tenn Tex Va Vt Wash Wis
    Ave Blvd Rd Dept Univ Assn Art Rep Sir Est Bl
    """.split()  # noqa: SIM905
)
# A number in front of these is an ordinal in German, and so is one behind those, unless a sentence starts
# behind it: "vom 1. FC", but "Ich war 17. Dann".
_NUMBERED = frozenset(
    """
    januar februar märz april mai juni juli august september oktober november dezember jahrhundert weltkrieg
    """.split()  # noqa: SIM905
)
_ORDINAL_AFTER = re.compile(
    r"am|vom|im|zum|zur|beim|ins|bis|d(?:as|e[rsnm]|ie)"
    r"|(?:ein|kein|mein|dein|sein|ihr|unser)(?:e[rsnm]?)?|(?:dies|jed|jen)e[rsnm]?"
)  # contractions, and determiners in all their forms
_GERMAN_STARTERS = frozenset(
    """
    er sie es wir ihr ich du man der die das den dem des ein eine im in am an auf bei mit nach von vor zu um
    für seit danach dann dort da hier doch aber und oder als wenn weil während auch so nun später heute jedoch
    dabei dies diese dieser dieses sein seine seinem seinen ihre ihrem ihren
    """.split()  # noqa: SIM905
)
STARTERS = frozenset(
    """
    he she it they we you i the a an this that these those there here in on at by from for with without after
    before during since until while when where as however although though but and so then their his her its
    our my your if some many most both each other another one two three also additionally furthermore
    moreover meanwhile later today now according following despite because once upon throughout under over
    between among what who whose which how why not no all several such currently eventually finally
    afterwards afterward besides overall like unlike prior born known along together early shortly
    subsequently nevertheless thus therefore instead initially originally to is was are were did does do has
    have had only even within upon near thanks given based please note overall
    """.split()  # noqa: SIM905
)


def _spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The sentences of one paragraph or item."""
    begin = seen = start
    depth = 0
    for match in _STOPS.finditer(text, start, end):
        at = match.start()
        if at < begin:
            continue
        depth = max(0, depth + text.count("(", seen, at) - text.count(")", seen, at))
        seen = at
        after = _closed(text, match.end(), end)
        if match[0][0] in _FULL_STOPS or match[0] == "|":
            quoted = after > match.end() and after < end and "\u3040" <= text[after] <= "\u309f"
            ends = not quoted
        else:
            ends = _ends(text, begin, match.span(), after, end)
            if ends and depth and text.find(")", after, min(end, after + _MAX_ASIDE)) >= 0:
                ends = False
        if ends:
            yield from _stripped(text, begin, after)
            begin, depth, seen = after, 0, after
            while begin < end and text[begin].isspace():
                begin += 1
    yield from _stripped(text, begin, end)


def _closed(text: str, at: int, end: int) -> int:
    """The position after the quotes, brackets, citations and tags that close with a sentence."""
    for _ in range(8):
        while at < end and text[at] in _CLOSERS:
            at += 1
        passed = _CITED.match(text, at, end) or _TAG.match(text, at, end)
        if not passed:
            break
        at = passed.end()
    return at


def _ends(text: str, begin: int, stop: tuple[int, int], after: int, end: int) -> bool:
    """Whether the sign or signs at `stop` end the sentence that starts at `begin`."""
    if after >= end:
        return True
    first = after
    while first < end and text[first].isspace() and first - after < _MAX_WORD:
        first += 1
    while first < end and text[first] in _OPENERS and first - after < _MAX_WORD:
        first += 1
    if first >= end:
        return True
    word = following[0] if (following := _WORD.match(text, first, end)) else ""
    spaced = text[after].isspace() or text[after - 1] == ">" or text.startswith("[/", stop[1])
    sign = text[stop[0] : stop[1]]
    before = text[max(begin, stop[0] - _MAX_WORD) : stop[0]].rsplit(None, 1)
    last = before[-1].lstrip(_OPENERS) if before and not text[stop[0] - 1].isspace() else ""
    if not spaced:
        # "Warsaw.She won": the space is missing; "example.com" and "3.5" are words.
        glued = last.isalpha() and last[1:].islower() and len(last) > 2 and word[:1].isupper()
        return sign == "." and glued and word.lower() in STARTERS
    if sign != ".":
        return not word[:1].islower()
    lead = stop[0] - len(last)
    inside = lead - begin > len(_OPENERS) or bool(text[begin:lead].strip("".join(_OPENERS) + " "))
    second = before[0].rsplit(None, 1)[-1].lower() if last and len(before) > 1 else ""
    return _period_ends(second, last, word, text[first], inside)


def _period_ends(second: str, last: str, word: str, first: str, inside: bool) -> bool:
    """Whether a period between the words `last` and `word` ends a sentence.

    Args:
        second: the word before `last`, in lower case.
        last, word: empty where a sign stands there.
        first: the first character after the period.
        inside: whether the sentence began before `last`.
    """
    lower = last.lower()
    if not inside and ((last.isdigit() and len(last) < 4) or len(last) == 1):
        return False  # "1. The first", "A. Smith"
    ordinal = _ORDINAL_AFTER.fullmatch(second) and word.lower() not in _GERMAN_STARTERS
    if last.isdigit() and len(last) < 3 and word and (ordinal or word.lower() in _NUMBERED):
        return False
    begun = word[:1].isupper() and word.lower() in STARTERS
    if inside and last in _SYMBOLS and (begun or (last == "Ca" and not first.isdigit())):
        return True  # "The symbol is Ca. Its number is 20."
    if lower in _TITLES and not (len(last) == 1 and last.isupper()):
        return False
    if lower in _BEFORE_NUMBERS:
        return not first.isdigit()
    german = lower in _GERMAN and word.lower() in _GERMAN_STARTERS
    starts = (word.lower() in STARTERS or german) and word[:1].isupper()
    initial = len(last) == 1 and (
        last.isupper() or (last.isalpha() and len(word) == 1)
    )  # "J. Smith", "z. B."
    if initial or lower in _TRAILING or lower in _GERMAN or last in _TRAILING_CAPITAL or _dotted(last):
        return starts
    if word[:1].islower():
        # Texts without capitals; a short word before a lower-case one is an abbreviation we do not know.
        return len(last) > 3 and last.isalpha()
    return True


def _dotted(word: str) -> bool:
    """`U.S`, `Ph.D`, `a.m`: letters with periods between them."""
    return "." in word and word.replace(".", "").isalpha()
