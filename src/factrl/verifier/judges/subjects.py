"""Which passages are about what a claim is about, and whether a sentence says it but for one value.

A claim is held against one passage at a time: what one document says of its own subject says nothing of the
subject of another.  A passage's subject is its title, or the name that its first sentence opens with; names
are compared whole, so that "Solis 7" is not "Solis 7 Pro" and "Württemberg" not "Baden-Württemberg".
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from factrl.text.words import CARDINALS, SCALES
from factrl.types import Passage
from factrl.verifier.judges.overlap import MAX_EVIDENCE, Piece, pieces_of, words_of

ASKED = 2
"""Passages that a claim is held against, each on its own."""

_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|\d[\d.,]*\d(?![^\W_])"
    r"|[^\W_]+(?:[-‐‑.'’][^\W_]+)*"
)
_ENDING = re.compile(r"(?<=...)(?:['’]s?|(?:e[nmr]?)?s?['’]?)$")
_PRONOUNS = frozenset(
    """
    he her hers him his it its she their theirs them they this these that those
    dessen deren dies diese dieser dieses er es ihm ihn ihr ihre ihrem ihren ihrer sein seine seinem seinen
    seiner sie elle elles il ils sa ses son leur leurs ella ellas ellos su sus lei lui loro suo sua
    hij zij haar zijn ze он она оно они его её их
    """.split()  # noqa: SIM905
)
_ARTICLES = frozenset("the der die das dem den des le la les l' el los las il lo gli de het".split())  # noqa: SIM905
_SMALL = (
    _PRONOUNS
    | _ARTICLES
    | frozenset(
        """
        a an and as at between but by for from if in into of on or since than to under until upon when while
        with after also although before both during each every however in-between later most only some then
        there though what which who ab als am an auf aus bei bis durch ein eine einem einen einer eines für
        gegen hier im in mit nach nur ob oder seit trotz um und unter vom von vor während weil wenn zu zum zur
        zwischen über au aux avec d' dans de du en et par pour sur un une al con del di do da dos das e o per
        por y z na aan op te ter van voor в и на с из
        """.split()  # noqa: SIM905
    )
)
_ORDINALS = re.compile(
    r"(?:second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|next"
    r"|zweit|dritt|viert|fünft|sechst|siebt|acht|neunt|zehnt|vorletzt|nächst|tweed|derd|vierd|vijfd"
    r"|deuxi[eè]m|troisi[eè]m|quatri[eè]m|cinqui[eè]m|segund|tercer|cuart|quint|terceir|second|terz|quart"
    r"|втор|трет|четв[её]рт|пят)\w{0,4}$|\d+(?:st|nd|rd|th|\.|º|ª|e|ème)?$"
)
_GRADED = re.compile(
    r"(?:\w{2,}(?:er|est|ste[nmrs]?|ere[nmrs]?|st)|more|most|less|least|fewer|fewest|mehr|plus|moins|más|menos)$"
)
_BEFORE = ".!?:;\"'“”„«»"  # a sentence; there a small word has a capital letter
_LONGEST = 1_000  # characters of a sentence
_EARLY = 6  # words in which a sentence's subject stands
_NEAR = 3  # tokens that stand for one value


class _Token(NamedTuple):
    low: str
    key: str
    small: bool
    named: bool  # has a capital letter or letters with digits, or is of a script without capital letters
    value: bool  # a name, or a number in digits or in words


class _Known(NamedTuple):
    """What is kept of a passage."""

    title: tuple[str, ...]
    opening: tuple[str, ...]
    unnamed: bool  # it has no title, and its first sentence no name: it speaks of somebody named before
    keys: frozenset[str]
    stems: frozenset[str]


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in _WORD.finditer(text):
        word = match[0]
        low = word.casefold().replace("’", "'")
        digits = any(one.isdigit() for one in word)
        letters = any(one.isalpha() for one in word)
        before = text[max(0, match.start() - 3) : match.start()].rstrip()[-1:]
        opens = not before or before in _BEFORE
        small = low in _SMALL and (word.islower() or opens) and not (word.isupper() and len(word) > 1)
        named = not small and letters and (digits or word.lower() == word.upper() or not word.islower())
        value = named or digits or low in CARDINALS or low.removesuffix("s") in SCALES
        found.append(_Token(low, _key(low), small, named, value))
    return found


def _key(low: str) -> str:
    """A word without the endings of its cases; long enough that two names seldom share one."""
    return low if any(one.isdigit() for one in low) else _ENDING.sub("", low)


def _opening(tokens: Sequence[_Token], text: str) -> tuple[str, ...]:
    """The name that a text opens with: its first words with a capital letter and the small ones between."""
    run: list[str] = []
    named = False
    last = 0
    for token, match in zip(tokens, _WORD.finditer(text), strict=True):
        if run and re.search(r"[,;:!?()\n]|\. ", text[last : match.start()]):
            break
        last = match.end()
        if token.small:
            continue
        if not (token.named or (run and token.value)):
            break
        run.append(token.key)
        named = named or token.named
    return tuple(run)


@lru_cache(maxsize=512)
def _known(title: str, text: str) -> _Known:
    text = text[:MAX_EVIDENCE]
    tokens = _tokens(text)
    first = re.split(r"(?<=[.!?])\s", text[:300], maxsplit=1)[0]
    heading = [one.key for one in _tokens(re.sub(r"\([^()]*\)", " ", title)) if not one.small]
    of_title = [one.key for one in _tokens(title) if not one.small]
    return _Known(
        tuple(heading),
        _opening(_tokens(first), first),
        not heading and not any(one.named for one in _tokens(first)[1:]) and subject_of(first) == ("", False),
        frozenset({one.key for one in tokens if not one.small}.union(of_title)),
        frozenset({*words_of(text).stems, *words_of(title).stems}),
    )


def about(claim: str, passages: Sequence[Passage]) -> list[int]:
    """The numbers of the passages about the claim's own subject, those first that hold most of its words.

    Where the claim names the subject of a passage, by its title or by the name that it opens with, only such
    passages are about it, and those of another subject that name it.  Else they are those that hold most of
    its names, each weighing more the fewer passages have it; and where it has no name, all.
    """
    known = [_known(passage.title.strip(), passage.text) for passage in passages]
    if len(known) < 2:
        return [*range(len(known))]
    claim = claim[:_LONGEST]
    tokens = _tokens(claim)
    keys = {token.key for token in tokens if not token.small}
    names = {token.key for token in tokens if token.named}

    def within(phrase: tuple[str, ...]) -> tuple[str, ...]:
        return phrase if keys.issuperset(phrase) and (phrase[1:] or not names.isdisjoint(phrase)) else ()

    titles = [within(one.title) for one in known]
    subjects = [title or within(one.opening) for title, one in zip(titles, known, strict=True)]
    whole, named = ({phrase for phrase in phrases if phrase} for phrases in (titles, subjects))
    longer = {one for one in named for other in named if one != other and other[: len(one)] == one}
    longer |= {one for one in whole for other in whole if {*one} < {*other}}
    kept = [number for number, subject in enumerate(subjects) if subject and subject not in longer]
    told = {subjects[number] for number in kept}
    kept += [  # pages of others that name it
        number
        for number, one in enumerate(known)
        if not subjects[number]
        and any(one.keys.issuperset(name) and one.title[: len(name)] != name for name in told)
    ]
    if not kept:
        held = [{name for name in names if name in one.keys} for one in known]
        weight = {name: _weight(sum(name in own for own in held), len(known)) for name in names}
        first = {*_opening(tokens, claim)}
        scores = [sum(weight[name] * (1 + (name in first)) for name in own) for own in held]
        kept = [number for number, score in enumerate(scores) if 2 * score > max(scores) or not any(scores)]
    kept += [number for number, one in enumerate(known) if one.unnamed and number not in kept]
    said = {*words_of(claim).stems}
    weight = {stem: _weight(sum(stem in one.stems for one in known), len(known)) for stem in said}
    return sorted(kept, key=lambda number: -sum(weight[stem] for stem in said & known[number].stems))


def about_its_subject(claim: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """The passages about a claim's own subject, and those whose title one of these names, in their order.

    What is said of Edwin Carrow bears on "the author of The Salt Road" where that novel's page names him.
    """
    own = about(claim, passages)
    held = frozenset[str]().union(*(_known(passages[n].title.strip(), passages[n].text).keys for n in own))
    titles = [_known(passage.title.strip(), passage.text).title for passage in passages]
    return tuple(
        passage
        for number, (passage, title) in enumerate(zip(passages, titles, strict=True))
        if number in own or (len(title) > 1 and held.issuperset(title))
    )


def _weight(count: int, size: int) -> float:
    """Of a word that `count` of `size` passages have; nothing for one that all have."""
    return math.log(size / count) if count else 0.0


def apart(claim: str, passages: Sequence[Passage]) -> list[list[Piece]]:
    """The sentences of each of the passages that a claim is held against, at most `ASKED`, those first that
    hold most of its words, and none but the first that holds none."""
    said = {*words_of(claim).stems}
    pieces = pieces_of(passages)
    own = [[piece for piece in pieces if piece.passage == number] for number in about(claim, passages)]
    own = [one for one in own if one]
    bear = [one for one in own if any(not said.isdisjoint(piece.words.stems) for piece in one)]
    return (bear or own[:1])[:ASKED]


def subject_of(text: str) -> tuple[str, bool]:
    """The name that a sentence opens with, as it is written, and whether it stands for itself.

    It does not where the sentence speaks of what was named before: it has a pronoun before any name ("In 1911
    she"), or opens with an article and no name ("The company") or one German noun, which may be one or the
    other ("Die Firma", "Die Elbe").
    """
    words = [match[0] for match in _WORD.finditer(text[:_LONGEST])]
    tokens = _tokens(text[:_LONGEST])
    if not tokens:
        return "", True
    for token in tokens[:_EARLY]:
        if token.low in _PRONOUNS:
            return "", False
        if token.named and tokens[0].low not in _SMALL - _ARTICLES:
            break
    if tokens[0].small and tokens[0].low not in _ARTICLES:
        return "", True  # "In Bergen": what it opens with is not its subject
    name = _opening(tokens, text)
    spelt = " ".join(word for token, word in zip(tokens, words, strict=True) if token.key in name)
    german = tokens[0].low in ("der", "die", "das", "den", "dem", "des") and len(name) == 1
    return spelt, not german and not (tokens[0].low in _ARTICLES and not name)


def names_in(text: str) -> str:
    """The names in a sentence, as they are written, but for its first word."""
    words = [match[0] for match in _WORD.finditer(text[:_LONGEST])]
    found = zip(words[1:], _tokens(text[:_LONGEST])[1:], strict=True)
    return " ".join(word for word, token in found if token.named)


_LABELLED = re.compile(r"^[^\W\d_][^:\n]{0,30}: *(.{3,60})$|^((?:Prof|Dr|Mr|Mrs|Ms|Frau|Herr)\b.{3,60})$")


def under_another(claim: str, start: int, passage: Passage) -> str:
    """Why the sentence at `start` of a passage may be about somebody else; else empty.

    A line above it, in the same block, gives another's name ("Referee: Prof. Karl Maier"), and it has none of
    the claim's names before that of what is said.
    """
    text = passage.text[:MAX_EVIDENCE]
    line = text.rfind("\n", 0, start) + 1
    own = text[line : (text.find("\n", start) + 1 or len(text) + 1) - 1]
    ours = {*_opening(_tokens(claim[:_LONGEST]), claim[:_LONGEST])}
    if not ours or not ours.isdisjoint(one.key for one in _tokens(own)) or _LABELLED.match(own.strip()):
        return ""
    said = {one.key for one in _tokens(claim[:_LONGEST])}
    why = ""
    for above in text[max(0, line - _LONGEST) : line].split("\n\n")[-1].split("\n"):
        found = _LABELLED.match(above.strip("-*•# \t"))
        tokens = (
            [one for one in _tokens((found[1] or found[2]).split(",")[0]) if not one.small] if found else []
        )
        if not ours.isdisjoint(one.key for one in _tokens(above)):
            return ""
        if (
            1 < len(tokens) < 5
            and all(one.named for one in tokens)
            and said.isdisjoint(t.key for t in tokens)
        ):
            why = "the evidence says it under another name"
    return why


def differs(claim: str, sentence: str, passage: Passage) -> str:
    """What keeps a sentence of a passage that has nearly a claim's words from saying the claim; else empty.

    It has another name or number in its place ("in Bayern" and "in Baden-Württemberg"), or another degree or
    rank ("the largest" and "the second-largest", "more than" and "fewer than").
    """
    if len(claim) > _LONGEST or len(sentence) > _LONGEST:  # the comparison takes their product
        return ""
    known = _known(passage.title.strip(), passage.text)
    ours, theirs = ([token for token in _tokens(text) if not token.small] for text in (claim, sentence))
    mine, other = [token.key for token in ours], [token.key for token in theirs]
    here = {*other, *known.title, *known.opening}
    steps = SequenceMatcher(None, mine, other, autojunk=False).get_opcodes()
    shared = sum(end - start for kind, start, end, *_ in steps if kind == "equal")
    if 2 * shared < len(mine):
        return ""
    for kind, start, end, low, high in steps:
        said, read = ours[start:end], theirs[low:high]
        if kind == "insert" and end < len(ours):
            if _ORDINALS.match(read[-1].low) and _GRADED.match(ours[end].low):
                return "the evidence has another rank"
        elif kind == "replace" and len(said) <= _NEAR and len(read) <= _NEAR:
            gone = [one for one in said if one.key not in (known.keys if one.named else here)]
            new = [one for one in read if one.key not in mine]
            if any(_other_degree(one.low, another.low) for one in gone for another in new):
                return "the evidence has another degree or rank"
            if any(one.value for one in gone) and any(one.value for one in new):
                return "the evidence has another name or number in its place"
    return ""


def _other_degree(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    before = long.removesuffix(short)
    ranked = len(short) > 3 and before != long and (before.endswith("-") or _ORDINALS.match(before))
    return bool(ranked) or any(all(map(kind.match, (one, other))) for kind in (_GRADED, _ORDINALS))
