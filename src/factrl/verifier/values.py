"""Whether a claim has another value than a sentence in the same place, and whether it has all of its words.

A value is what a sentence turns on: a number in digits or in words, a code, a month or weekday, a unit, or
one of the words of `values.txt` that exclude each other (open and closed, more and less).  A claim that has
another one than the evidence is at most unsure, however sure a model is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from .pieces import ARTICLES, QUESTION_MARKS, Piece, refers_back
from .tokens import Read, Token, read, silent, stemmed, tokens

_NEAR = 3  # words that one value may have
_FAMILY = 5  # letters that words of one family share: "cancel", "cancellation"
_STRICT = ("number", "code", "month", "weekday")  # a claim may have none that its evidence lacks
_PARTS = re.compile(r"[,;:()|–—!?]| - |\.(?= )")
_JOINS = frozenset("and und et y e en or oder ou o while whereas but aber mais pero sowie".split())  # noqa: SIM905


# -- Verbatim

_SIGNS = re.compile(
    r"[^\w\s.,;:!?'\"“”„«»‘’()…–—`*-]|(?<!\w)[-−](?=\d)|(?<=\d)[\"'″′]|(?<=\d)\s?[^\W\d_]{1,3}\b"
)  # what is no punctuation; a unit behind its number counts as it is written: 4 MB is not 4 Mb


def is_verbatim(claim: str, text: str, about: Collection[str] = ()) -> bool:
    """Whether a sentence is the claim: the same words and signs in the same order, and no others.

    Case, punctuation and articles do not count, and a number may be in digits or in words.  More words may
    take a sentence back ("It is a myth that …"), fewer may, too ("almost all"); a question says nothing.

    Args:
        about: keys of words that say what the sentence is about, which the claim may have in the place of the
            pronoun that the sentence opens with.

    >>> is_verbatim("The pump costs 3 euros.", "the pump costs three euros")
    True
    >>> is_verbatim("The pump is new.", "If the pump is new, call us.")
    False
    """
    wanted, held = _spelling(claim), _spelling(text)
    if len(wanted) < 3 or not held or text.rstrip().endswith(QUESTION_MARKS):
        return False
    if wanted != held:
        more = len(wanted) - len(held) + 1
        if not (0 < more <= _NEAR and wanted[more:] == held[1:] and refers_back(held[0]) == "pronoun"):
            return False
        if not (about and all(stemmed(word) in about for word in wanted[:more])):
            return False
    return [one.strip() for one in _SIGNS.findall(claim)] == [one.strip() for one in _SIGNS.findall(text)]


@lru_cache(maxsize=8_192)
def _spelling(text: str) -> tuple[str, ...]:
    return tuple(
        one.value[1] if one.value and one.value[0] == "number" else one.low
        for one in tokens(text)
        if one.low not in ARTICLES
    )


# -- Another value in the same place


def other_value(claim: str, pieces: Sequence[Piece], context: str) -> str:
    """Why some pieces do not say a claim, though they may have its words; empty if nothing shows that.

    Args:
        pieces: one, or some of one paragraph that are judged together; the one with most of the claim's words
            must have its values.
        context: the title and the headings of the pieces.
    """
    claimed, above = read(claim), read(context)
    piece = max(pieces, key=lambda one: len(claimed.keys & read(one.text).keys))
    own = read(piece.shown)
    said = _said(claimed, piece)
    values, keys = own.values | above.values, own.keys | above.keys
    keys |= {part for one in (*own.words, *above.words) if "-" in one.low for part in one.low.split("-")}
    missing = [
        one.value[0] for one in claimed.words if one.value and one.value not in values and one.key not in keys
    ]
    if strict := [kind for kind in missing if kind in _STRICT]:
        return f"the evidence has another {strict[0]} or none"
    opposed = not {kind for kind, _ in values}.isdisjoint(missing)
    denied = claimed.denies != said.denies
    if opposed and not denied:  # "closed" may be said as "not open"
        return "the evidence has another word in its place"
    if _exchanged(claim, piece, above.values):
        return "the evidence has the value of something else"
    covered = len(claimed.content & keys) / max(len(claimed.content), 1)
    if denied and not opposed and covered >= (0.5 if piece.kind == "row" else 0.75):
        return "the same words with a negation"
    if claimed.content <= own.keys and _reversed(claimed.words, own.words):
        return "the evidence says it of something else"
    return _replaced(claimed.words, tokens(piece.text), keys)


def _said(claimed: Read, piece: Piece) -> Read:
    """What a piece says itself: an item with the line before its list, and of a row the cells that have words
    of a claim, so that "needs service: no" denies nothing else."""
    if piece.kind == "row":
        return read("; ".join(cell for cell in piece.text.split("; ") if claimed.content & read(cell).keys))
    return read(piece.shown if piece.kind == "item" else piece.text)


def _reversed(claimed: Sequence[Token], own: Sequence[Token]) -> bool:
    """Whether the first two names or numbers of a claim stand in the other order in a piece."""
    keys = [one.key for one in own]
    if {one.low for one in claimed} & _PASSIVE != {one.low for one in own} & _PASSIVE:
        return False

    def other_order(which: Callable[[Token], bool]) -> bool:
        both = [*dict.fromkeys(one.key for one in claimed if which(one) and keys.count(one.key) == 1)][:2]
        return len(both) == 2 and keys.index(both[0]) > keys.index(both[1])

    return other_order(lambda one: one.named) or other_order(lambda one: (one.value or "")[:1] == ("number",))


_PASSIVE = frozenset("by von vom par por da door wurde wurden was were been est été fue".split())  # noqa: SIM905


class _Segment(NamedTuple):
    values: frozenset[str]
    words: frozenset[str]  # its own and those that it shares
    names: frozenset[str]
    own: frozenset[str]


@lru_cache(maxsize=8_192)
def _segments(text: str, kind: str, before: int = 0, *, row: bool = False) -> list[_Segment]:
    """A sentence, taken apart so that each part has the values of one kind that belong together.

    A part that opens with no name shares what the last one before it with a name says before its first value,
    and
    the names in the first `before` characters; one of a value alone belongs to the part before it.  The cells
    of a row share those that have no value.
    """

    def counts(one: Token) -> bool:
        return one.value is not None and one.value[0] == kind

    words = tokens(text)
    parts: list[list[Token]] = [[]]
    for last, one in zip((None, *words), words):  # noqa: B905
        gap = text[last.end : one.start] if last else ""
        if parts[-1] and (";" in gap if row else _PARTS.search(gap) or one.low in _JOINS):
            parts.append([])
        parts[-1].append(one)
    merged: list[tuple[list[Token], list[Token]]] = []  # each with what stands before it
    waiting: list[Token] = []
    for number, part in enumerate(parts):
        valued = any(map(counts, part))
        if valued and not row and merged and all(counts(one) for one in part if one.low not in silent()):
            merged[-1][1].extend(part)
        elif valued:
            merged.append(([] if row else waiting, part))
            waiting = waiting if row else []
        if not valued or (row and not number):
            waiting = [*waiting, *part]
    if merged and not row:
        merged[-1][1].extend(waiting)
    shared, found = (waiting if row else []), list[_Segment]()
    names = [one for one in words if one.named and one.start < before]
    for ahead, part in merged:
        telling = [one for one in part if one.low not in silent()]
        opens = telling[0].named and not counts(telling[0]) and not row
        lead = ahead + part[: next(n for n, one in enumerate(part) if counts(one))]
        whole = [*([] if opens else [*shared, *(names if part[0].start >= before else ())]), *ahead, *part]
        keys, named, own = (
            frozenset(one.key for one in held if not counts(one) and one.low not in silent())
            for held in (whole, [one for one in whole if one.named], part)
        )
        found.append(
            _Segment(frozenset(one.value[1] for one in part if one.value and counts(one)), keys, named, own)
        )
        if not row and (not shared or any(one.named for one in lead)):
            shared = lead
    return found


def _exchanged(claim: str, piece: Piece, above: frozenset[tuple[str, str]]) -> bool:
    """Whether a value of the claim, one that is not `above`, stands beside other words in the piece.

    It does where another value has more of the claim's names beside it, or more of its words and the claim's
    value none of its own.
    """
    row = piece.kind == "row"
    above |= read(" | ".join(piece.keys)).values  # what a row is about is no value of it
    for kind in {kind for kind, _ in read(claim).values}:
        held = _segments(piece.shown, kind, len(piece.before), row=row)
        if len({value for one in held for value in one.values}) < 2 or len(held) < 2:
            continue
        for part in _segments(claim, kind):
            for value in part.values:
                with_it = [one for one in held if value in one.values]
                others = [
                    one
                    for one in held
                    if (part.values.isdisjoint(one.values) if row else value not in one.values)
                    and not {(kind, other) for other in one.values} <= above
                ]
                if not with_it or not others or (kind, value) in above:
                    continue
                names = max(len(part.words & one.names) for one in with_it)
                words = max(len(part.words & one.words) for one in with_it)
                lone = row or not any(part.words & one.own for one in with_it)
                for one in others:
                    more = len(part.words & one.names) - names
                    if more > 0 or (more == 0 and lone and len(part.words & one.words) > words):
                        return True
    return False


def contradicts(claim: str, piece: Piece, context: str) -> bool:
    """Whether a piece has the words of a claim and another value in a place, or a negation."""
    claimed, own, above = read(claim), read(piece.shown), read(context)
    wanted = claimed.content
    if (
        len(wanted) < 2
        or len(wanted & read(piece.text).keys) < 0.6 * len(wanted)
        or not wanted <= own.keys | above.keys
    ):
        return False
    missing = claimed.values - own.values - above.values
    kinds = {kind for kind, _ in missing}
    if not missing:
        return claimed.denies != _said(claimed, piece).denies and wanted <= own.keys
    if len(kinds) > 2 or len(kinds.intersection(_STRICT)) > 1:
        return False
    for kind in kinds:
        mine = {value for of, value in claimed.values if of == kind}
        if piece.kind == "row":
            other = {value for of, value in own.values if of == kind}
        else:
            parts = _segments(piece.shown, kind, len(piece.before))
            other = max(parts, key=lambda one: len(one.words & wanted)).values if parts else ()
        beside = _beside(claimed.words, kind, missing) & _beside(own.words, kind)
        if other and mine.isdisjoint(other) and (beside or kind not in ("number", "code")):
            return True
    return False


# -- Another value of what a claim measures, in other words

_SIZES = {  # units that are one after the other, by the first words of their lines in `values.txt`
    "time": {"seconds": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800, "month": 2_629_746}
    | {"year": 31_556_952, "decade": 315_569_520, "century": 3_155_695_200},
    "length": {
        "mm": 1,
        "cm": 10,
        "m": 1_000,
        "km": 1_000_000,
        "mile": 1_609_344,
        "foot": 304.8,
        "inch": 25.4,
    },
    "mass": {"mg": 1, "g": 1_000, "kg": 1_000_000, "tonne": 1_000_000_000, "lb": 453_592},
    "volume": {"ml": 1, "l": 1_000, "gallon": 3_785},
    "data": {"kb": 1, "mb": 1_000, "gb": 1_000_000, "tb": 1_000_000_000},
}
_ABOUT = 0.1  # how far amounts in two units may lie apart: a month is 30 days
_ONES = frozenset("one a an ein eine einen einem einer un une una uno".split())  # noqa: SIM905
Amount = tuple[str, str]  # a number, and its unit


def rivals(claim: str, piece: Piece, title: str) -> bool:
    """Whether a piece says otherwise how much, how many or when: of what the claim measures it has another
    value, and at least half of the claim's other words.

    Words of the document's title do not count: they do not tell which of its values is meant.

    >>> piece = Piece("prose", "It switches itself off after 12 hours.", 0, 38, before="Guest network?")
    >>> rivals("The guest network goes off after 720 minutes.", piece, ""), rivals(
    ...     "The guest network switches off after 8 hours.", piece, ""
    ... )
    (False, True)
    """
    mine, units = _measured(claim)
    theirs = _measured(piece.shown, row=piece.kind == "row")[0] if mine else {}
    if not any(_differ(mine[measure], theirs[measure]) for measure in mine.keys() & theirs.keys()):
        return False
    wanted = read(claim).content - units - read(title).keys
    held = {key[:_FAMILY] for key in read(piece.shown).keys}
    names = {one.key for one in tokens(claim) if one.named} & wanted
    shared = sum(key[:_FAMILY] in held for key in wanted)
    return 0 < len(wanted) <= 2 * shared and all(name[:_FAMILY] in held for name in names)


@lru_cache(maxsize=8_192)
def _measured(text: str, *, row: bool = False) -> tuple[dict[str, set[Amount]], set[str]]:
    """What a text measures, with the amounts, and the keys of the words that are units there.

    What is measured is a kind of unit (a time, a mass), a currency, the hour of the clock, a month, a
    weekday, or what is counted.  In a row a number without a unit has every unit of the row.
    """
    words = tokens(text)
    found: dict[str, set[Amount]] = {}
    units: set[str] = set()

    def add(number: str, unit: Token) -> None:
        kind, which = unit.value or ("", unit.key)
        measure = kind if kind in _SIZES else f"{kind} {which}"
        found.setdefault(measure, set()).add((number, which if kind in _SIZES else ""))
        units.add(unit.key)

    all_units = [one for one in words if one.value and (one.value[0] in _SIZES or one.value[0] == "currency")]
    for last, one, after in zip((None, *words), words, (*words[1:], None)):  # noqa: B905
        kind, value = one.value or ("", "")
        if kind in ("month", "weekday"):
            found.setdefault(kind, set()).add((value, ""))
        elif one in all_units and last and last.low in _ONES:
            add("1", one)
        elif kind == "number" and ":" in one.low:
            found.setdefault("clock", set()).add((value, ""))
        elif kind == "number":
            near = [other for other in (after, last) if other is not None and other in all_units]
            counted = after and not after.value and after.low.isalpha() and after.low not in silent()
            if near:
                add(value, near[0])
            elif row:
                for unit in all_units:
                    add(value, unit)
            elif after and counted and not after.named:
                add(value, after)
    return found, units


def _differ(mine: Collection[Amount], theirs: Collection[Amount]) -> bool:
    """Whether two sides name other amounts; where one names several, it cannot be told which is meant."""
    days = all(not number.replace(":", "").replace(".", "").isdigit() for number, _ in mine)
    single = len(mine) == len(theirs) == 1
    return (single or days) and not any(_same(one, other) for one in mine for other in theirs)


def _same(one: Amount, other: Amount) -> bool:
    (number, unit), (others, other_unit) = one, other
    if unit == other_unit:
        return number == others
    sizes = next(sizes for sizes in _SIZES.values() if unit in sizes)
    amounts = float(number) * sizes[unit], float(others) * sizes[other_unit]
    return abs(amounts[0] - amounts[1]) <= _ABOUT * max(amounts)


def _beside(words: Sequence[Token], kind: str, which: Collection[tuple[str, str]] | None = None) -> set[str]:
    """The words next to the values of one kind."""
    telling = [one for one in words if one.low not in silent()]
    found: set[str] = set()
    for number, one in enumerate(telling):
        if one.value and one.value[0] == kind and (which is None or one.value in which):
            found.update(near.key for near in telling[max(0, number - 1) : number + 2] if near is not one)
    return found


def _replaced(claimed: Sequence[Token], own: Sequence[Token], keys: Collection[str]) -> str:
    """Whether a name stands in the place of another one, between words that are the same."""
    if not any(one.named and one.key not in keys for one in claimed):
        return ""
    mine = [one for one in claimed if one.low not in silent()]
    held = [one for one in own if one.low not in silent()]
    mine_keys = [one.key for one in mine]
    steps = SequenceMatcher(None, mine_keys, [one.key for one in held], autojunk=False).get_opcodes()
    if 2 * sum(end - start for kind, start, end, *_ in steps if kind == "equal") < len(mine):
        return ""
    for kind, start, end, low, high in steps:
        if kind == "replace" and end - start <= _NEAR and high - low <= _NEAR:
            gone = [one for one in mine[start:end] if one.key not in keys and one.named]
            new = [one for one in held[low:high] if one.key not in mine_keys and one.named]
            if gone and new:
                return "the evidence has another name in its place"
    return ""
