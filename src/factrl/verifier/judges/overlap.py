"""What a claim and its evidence have in common, word by word: no model, linear time.

It helps the other judges, and `WeakJudge`, for machines without a model, has nothing else.  That one cannot
tell "the dog bit the man" from "the man bit the dog", so its verdicts are marked weak wherever they are
shown, and are never called verification.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from factrl.text.sentences import sentences
from factrl.text.words import STOP_WORDS
from factrl.types import Passage
from factrl.verifier.tokens import LONGEST, denies, stemmed, tokens

MAX_EVIDENCE = 100_000
"""Characters of evidence that are read for one claim, over all its passages."""
COVERING = 0.6
"""Share of a claim's content words in one place from which on a difference there is a conflict."""
ENOUGH = 0.5
"""Share of a claim's content words in the whole evidence from which on the weak judge calls it supported."""

_CHOSEN = 8  # sentences that are taken for the words of a claim, before the neighbours of the best


class Words(NamedTuple):
    """What a stretch of text holds: its content words, numbers and names, and whether it denies something."""

    stems: tuple[str, ...]  # of content words, names and numbers, in the order in which they first occur
    numbers: frozenset[str]  # in digits or in words, by value
    names: frozenset[str]  # stems of the words that have a capital letter inside a sentence
    negated: bool
    subject: int  # how many of the stems it opens with have a capital: the name of what it is about


class Piece(NamedTuple):
    """One sentence of the evidence: `passages[passage].text[start:end]`, and its passage's title."""

    passage: int
    start: int
    end: int
    text: str
    words: Words
    title: str = ""


Overlap: TypeAlias = "tuple[dict[str, float], tuple[int, int, int] | None]"


@lru_cache(maxsize=8_192)
def words_of(text: str) -> Words:
    """The content words, numbers, names and negations of a sentence."""
    stems: dict[str, None] = {}  # an ordered set
    numbers: set[str] = set()
    names: set[str] = set()
    negated, subject = False, -1  # until its end is known
    for one in tokens(text) if len(text) <= LONGEST else tokens(text, len(text)):
        parts = one.low.split("-") if one.value is None else ()
        keys = [*map(stemmed, parts)] if len(parts) > 1 else [one.key]
        if one.value and one.value[0] == "number":
            numbers.add(one.value[1])
        elif denies(one):
            negated = True
            continue
        elif one.low in STOP_WORDS:
            continue
        elif one.named:
            names.update(keys if not one.opens else ())
        elif subject < 0:
            subject = len(stems)
        stems.update(dict.fromkeys(keys))
    return Words(tuple(stems), frozenset(numbers), frozenset(names), negated, max(subject, 0))


def pieces_of(passages: Sequence[Passage]) -> list[Piece]:
    """The sentences of the evidence in order, of the first `MAX_EVIDENCE` characters."""
    pieces: list[Piece] = []
    left = MAX_EVIDENCE
    for number, passage in enumerate(passages):
        text = passage.text[:left]
        left -= len(text)
        pieces += [Piece(number, *part, passage.title) for part in _cut(text)]
    return pieces


@lru_cache(maxsize=512)  # claims of one group share their evidence; what is kept takes 15 bytes per character
def _cut(text: str) -> tuple[tuple[int, int, str, Words], ...]:
    spans = [(one.start, one.end, text[one.start : one.end]) for one in sentences(text)]
    return tuple((*span, words_of(span[2])) for span in spans)


def best_pieces(claim: str, pieces: Sequence[Piece], limit: int) -> list[Piece]:
    """The sentences that bear on `claim`, at most `limit` characters of them, in the evidence's order.

    Sentences are taken one by one, each time the one that adds most of the claim's words that no sentence
    taken before has, a rare word weighing more than one that stands everywhere.  What is left of the limit
    goes to the neighbours of the best sentence, which say whom its pronouns mean.
    """
    wanted = set(words_of(claim).stems)
    held = Counter(word for piece in pieces for word in piece.words.stems if word in wanted)
    weight = {word: math.log(1 + len(pieces) / count) for word, count in held.items()}
    order: list[int] = []
    while weight and len(order) < _CHOSEN:
        gains = [sum(weight.get(word, 0.0) for word in piece.words.stems) for piece in pieces]
        order.append(max(range(len(pieces)), key=gains.__getitem__))
        for word in pieces[order[-1]].words.stems:
            weight.pop(word, None)
    for near in (order[0] - 1, order[0] + 1) if order else ():
        if 0 <= near < len(pieces) and pieces[near].passage == pieces[order[0]].passage:
            order.append(near)
    taken: set[int] = set()
    for index in dict.fromkeys(order):
        length = len(pieces[index].text) + 1
        if length <= limit or not taken:
            taken.add(index)
            limit -= length
    return [pieces[index] for index in sorted(taken)]


def apart(claim: str, passages: Sequence[Passage], most: int) -> list[list[Piece]]:
    """The sentences of each passage apart, of the `most` passages with most of the claim's words.

    A passage without any of its words is there only if no passage has one, and then it is the first.
    """
    stems = {*words_of(claim).stems}
    own: dict[int, list[Piece]] = {}
    for piece in pieces_of(passages):
        own.setdefault(piece.passage, []).append(piece)
    held = [({word for one in pieces for word in one.words.stems} & stems, pieces) for pieces in own.values()]
    bear = sorted((pair for pair in held if pair[0]), key=lambda pair: -len(pair[0])) or held[:1]
    return [pieces for _, pieces in bear[:most]]


def compare(claim: str, pieces: Sequence[Piece]) -> Overlap:
    """Hold `claim` against the sentences of its evidence.

    Returns:
        The comparison in numbers, for a calibration, and where the sentence stands that covers most of the
        claim (passage, start, end), None when it shares no word with it.  `covered`: share of the claim's
        content words that the whole evidence holds, titles included; `covered_best`: the same for that
        sentence with its two neighbours.  `missing_numbers`, `missing_names`: share of the claim's numbers
        and names that the evidence lacks; what the claim opens with counts as a name when it has a capital
        letter.  `negation`: the claim is negated and that sentence is not, or the other way round.
        `conflict`: the sentence covers the claim, but with another number or a negation.
    """
    claimed = words_of(claim)
    index = _best(claimed, pieces)
    best = pieces[index] if pieces else Piece(0, 0, 0, "", words_of(""))
    around = [piece for piece in pieces[max(index - 1, 0) : index + 2] if piece.passage == best.passage]
    near = {word for piece in around for word in piece.words.stems} | {*words_of(best.title).stems}
    everything = {word for piece in pieces for word in piece.words.stems}
    everything.update(word for title in {piece.title for piece in pieces} for word in words_of(title).stems)
    names = claimed.names | {*claimed.stems[: claimed.subject]}
    numbers = {number for piece in pieces for number in piece.words.numbers}
    missing = 1.0 - _share(claimed.numbers, numbers) if claimed.numbers else 0.0
    covered_best = _share(claimed.stems, near)
    negation = claimed.negated != best.words.negated
    other_number = missing > 0 and bool(best.words.numbers)
    features = {
        "covered": _share(claimed.stems, everything),
        "covered_best": covered_best,
        "missing_numbers": missing,
        "missing_names": 1.0 - _share(names, everything) if names else 0.0,
        "negation": float(negation),
        "conflict": float(covered_best >= COVERING and (other_number or negation)),
    }
    return features, _quote(claimed, best)


def quote_of(claim: str, passages: Sequence[Passage]) -> tuple[int, int, int] | None:
    """Where the sentence stands that covers most of the claim: passage, start and end; None without one."""
    claimed, pieces = words_of(claim), pieces_of(passages)
    return _quote(claimed, pieces[_best(claimed, pieces)]) if pieces else None


def _best(claimed: Words, pieces: Sequence[Piece]) -> int:
    """The number of the sentence that covers most of a claim; 0 without one.

    What the claim is about weighs less, because other sentences of the evidence are about it too and say
    "she"; a number weighs a little where the claim has one, because it may be the other number.
    """
    weights = [(word, 0.4 if place < claimed.subject else 1.0) for place, word in enumerate(claimed.stems)]

    def covers(number: int) -> float:
        words = pieces[number].words
        shared = sum([weight for word, weight in weights if word in words.stems])
        return shared + 0.3 * bool(claimed.numbers and words.numbers)

    return max(range(len(pieces)), key=covers, default=0)


def _quote(claimed: Words, best: Piece) -> tuple[int, int, int] | None:
    return None if {*claimed.stems}.isdisjoint(best.words.stems) else (best.passage, best.start, best.end)


def _share(wanted: Collection[Any], held: Collection[Any]) -> float:
    return sum(one in held for one in wanted) / max(len(wanted), 1)


def lacks(features: Mapping[str, float]) -> str:
    """What keeps a claim from being supported, however many of its words are there; empty if nothing does."""
    if features["conflict"]:
        return "the same words with another number or a negation"
    if features["missing_numbers"]:
        return "the evidence lacks a number of the claim"
    return "the evidence lacks a name of the claim" if features["missing_names"] else ""
