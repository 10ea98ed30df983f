"""What one predicate says, taken apart: place and time, "an actor and singer", "who played for",
"(1867-1934)".

Each rule gives the facts of the predicates that it knows, or None.  A fact repeats the words of the text;
what it adds is "was", "is" or an article.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from factrl.extract import verbs
from factrl.extract.predicates import Chain, Predicate, chain_at
from factrl.extract.pronouns import role_of
from factrl.extract.subjects import Range, Tokens
from factrl.extract.tokens import Token, is_adverb, is_finite, is_name
from factrl.extract.words import (
    ARTICLES,
    DETERMINERS,
    POSSESSIVES,
    PREPOSITIONS,
    SUBORDINATORS,
    TIME_NOUNS,
    word_set,
)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something said of the subject: `prefix`, then the tokens of `parts`; the tokens of `span` say it."""

    prefix: str
    parts: tuple[Range, ...]
    span: Range


@dataclass(slots=True)
class Facts:
    """The facts of one predicate.

    Attributes:
        of_subject: facts about the subject.
        more: further predicates with the same subject, to be read in turn.
        of_others: a noun phrase of the predicate and what is said of it: "Pierre Curie" in "…, who was".
    """

    of_subject: list[Fact] = field(default_factory=list)
    more: list[Predicate] = field(default_factory=list)
    of_others: list[tuple[Range, Predicate]] = field(default_factory=list)


def facts_of(found: Tokens, predicate: Predicate) -> Facts:
    """The facts of one predicate; a predicate that no rule knows is one fact."""
    verb = predicate.start
    while verb < predicate.end - 1 and is_adverb(found[verb]) and not is_finite(found, verb):
        verb += 1
    chain = chain_at(found, verb, predicate.end)
    if predicate.prefix:  # the auxiliaries are borrowed, so the verb stands first
        chain = replace(chain, words=predicate.prefix, voice="passive", end=verb + 1)
    span = predicate.start, predicate.end
    negated = any(token.lower in verbs.NEGATIVE for token in found[span[0] : span[1]])
    if not negated:
        for rule in (_complements, _relative, _event):
            facts = rule(found, predicate, chain)
            if facts is not None:
                return facts
    return Facts([Fact(predicate.prefix, (span,), span)])


# -- Complements: "is an actor, singer and director who was born in Rome" --------------------------------

_KNOWN = word_set(
    """
    best better also well mostly widely known famous famed
    """
)


def _complements(found: Tokens, predicate: Predicate, chain: Chain) -> Facts | None:
    copula = chain.voice == "copula" and not predicate.prefix
    became = chain.voice == "plain" and found[chain.end - 1].lower == "became"
    start, end = chain.end, predicate.end
    if not (copula or became) or start >= end or found[start].lower not in ("a", "an"):
        return None
    items, tail = _items(found, start, end)
    words = chain.words if copula else "became"
    be = "was" if chain.past else "is"
    more: list[Predicate] = []
    if not items:
        return None
    if tail < end:
        following = _tail(found, tail, end, be)
        if following is None:
            return None
        more.append(following)
    elif len(items) < 2:
        return None
    if len(items) > 1 and not all(role_of(found[stop - 1].lower) for _, stop in items):
        if not more or any(found[at].text == "," for at in range(start, items[-1][1])):
            return None
        items = [(start, items[-1][1])]  # "a talented and accomplished performer who …" is one thing
    if len(items) > 1 and any(found[at].lower == "from" for at in range(start, end)) and not more:
        return None
    first = items[0]
    facts = [Fact("", ((predicate.start, first[1]),), (predicate.start, first[1]))]
    for item in items[1:]:
        article = "" if found[item[0]].lower in ARTICLES else " " + _article(found[item[0]].text)
        facts.append(Fact(words + article, (item,), item))
    return Facts(facts, more)


def _items(found: Tokens, start: int, end: int) -> tuple[list[Range], int]:
    """The members of "an actor, singer and director", and where something else begins."""
    items: list[Range] = []
    begin = start
    at = start
    while at < end:
        token = found[at]
        if token.text == "," or token.lower == "and":
            items.append((begin, at))
            following = at + 1
            while following < end and (found[following].text == "," or found[following].lower == "and"):
                following += 1
            if following >= end or _ends_items(found, following):
                return items, min(following, end)
            begin = at = following
            continue
        if token.lower == "from" and at + 1 < end and found[at + 1].cap and role_of(found[at - 1].lower):
            at += 1  # "a player from France who …"
            continue
        if _ends_items(found, at) or token.inside:
            if at > begin:
                items.append((begin, at))
            return items, at
        at += 1
    items.append((begin, end))
    return items, end


def _ends_items(found: Tokens, at: int) -> bool:
    token = found[at]
    lower = token.lower
    return not token.is_word or (
        not token.cap
        and (
            lower in PREPOSITIONS
            or lower in SUBORDINATORS
            or is_finite(found, at)
            or (lower in verbs.PARTICIPLE and found[at - 1].lower not in ARTICLES)
            or (lower in _KNOWN and found[at - 1].lower not in ARTICLES)
            or lower in ("currently", "active", "serving", "having", "working", "specializing")
        )
    )


def _tail(found: Tokens, start: int, end: int, be: str) -> Predicate | None:
    """What the words after a complement say of the subject; None when it is not sure that they do."""
    first = found[start].lower
    if first in ("who", "that", "which") and start + 1 < end:
        verb = start + 1
        while verb < end - 1 and is_adverb(found[verb]) and not is_finite(found, verb):
            verb += 1
        plain = found[verb].lower in verbs.THIRD and not found[verb].cap  # after "who", "plays" is no noun
        return Predicate(start + 1, end) if plain or is_finite(found, verb) else None
    if first == "born":
        return Predicate(start, end, "was")
    if first in _KNOWN and any(token.lower in ("for", "as") for token in found[start : min(end, start + 4)]):
        return Predicate(start, end, be)
    return None


def _article(word: str) -> str:
    lower = word.lower()
    if lower.startswith(("uni", "use", "eu", "one", "ur")) and not lower.startswith(("unin", "unim", "urb")):
        return "a"
    return (
        "an"
        if lower[0] in "aeiou" or lower.startswith(("hour", "honor", "honour", "heir", "honest"))
        else "a"
    )


# -- Relatives: "married Pierre Curie, who was a physicist" ----------------------------------------------


def _relative(found: Tokens, predicate: Predicate, chain: Chain) -> Facts | None:
    commas = [
        at
        for at in range(chain.end, predicate.end)
        if found[at].text == "," and not found[at].inside
    ]  # fmt: skip
    if len(commas) != 1 or commas[0] + 2 >= predicate.end:
        return None
    comma = commas[0]
    word = found[comma + 1].lower
    verb = comma + 2
    while verb < predicate.end - 1 and is_adverb(found[verb]) and not is_finite(found, verb):
        verb += 1
    if word not in ("who", "which") or not is_finite(found, verb):
        return None
    start = chain.end + (found[chain.end].lower in PREPOSITIONS)
    phrase = found[start:comma]
    if not phrase or len(phrase) > 8 or any(
        token.lower in PREPOSITIONS - {"of"} or token.lower in ("and", "or", "a", "an") for token in phrase
    ):  # fmt: skip
        return None
    named = is_name(phrase)
    if not named and (
        phrase[0].lower not in DETERMINERS - POSSESSIVES or any(token.lower == "of" for token in phrase)
    ):
        return None
    if word == "who" and not (named or role_of(phrase[-1].lower)):
        return None
    main = predicate.start, comma
    return Facts(
        [Fact(predicate.prefix, (main,), main)],
        of_others=[((start, comma), Predicate(comma + 2, predicate.end))],
    )


# -- Events: "was born in Warsaw on 7 November 1867" -----------------------------------------------------

_PLACE = word_set(
    """
    in at near outside on
    """
)
_TIME = word_set(
    """
    in on around during circa
    """
)
_OTHER = word_set(
    """
    to by into
    """
)
_KIN = word_set(
    """
    son daughter child grandson granddaughter brother sister eldest youngest only oldest twin
    """
)


@dataclass(slots=True)
class _Unit:
    start: int
    end: int
    kind: str


def _event(found: Tokens, predicate: Predicate, chain: Chain) -> Facts | None:
    if found[chain.end - 1].lower not in verbs.EVENTS or chain.voice not in ("passive", "plain", "perfect"):
        return None
    read = _units(found, chain.end, predicate.end)
    if read is None:
        return None
    units, kin = read
    kinds = [unit.kind for unit in units]
    if (len(units) < 2 and kin is None) or not units or kinds.count("time") > 1 or kinds.count("place") > 1:
        return None
    core = predicate.start, units[0].start
    facts = [Fact(predicate.prefix, ((core[0], units[0].end),), (core[0], units[0].end))]
    facts += [
        Fact(predicate.prefix, (core, (unit.start, unit.end)), (unit.start, unit.end)) for unit in units[1:]
    ]
    if kin is not None:
        facts.append(Fact("was", (kin,), kin))
    return Facts(facts)


def _units(found: Tokens, start: int, end: int) -> tuple[list[_Unit], Range | None] | None:
    """The phrases of place, time, parentage and age after the verb, and a final "the son of …"."""
    units: list[_Unit] = []
    at = start
    while at < end:
        token = found[at]
        lower = token.lower
        current = units[-1] if units else None
        if token.inside or not token.is_word:
            if token.text == "," and not token.inside:
                if current is None:
                    return None
                kin = _kin(found, at + 1, end)
                if kin:
                    return units, (at + 1, end)
                if not _goes_on(found, at + 1, end, current):
                    return None
        elif (
            is_finite(found, at)
            or lower in SUBORDINATORS
            or (lower == "and" and at + 1 < end and _opens(found[at + 1]))
        ):
            return None
        elif lower in PREPOSITIONS and lower != "of":
            unit = _unit(found, at, end)
            if unit is None:
                if current is None or current.kind != "other":
                    return None
            elif current is not None and current.kind == unit.kind == "place":
                pass  # "in a village in Poland" is one place
            else:
                units.append(unit)
        if units and token.text != ",":
            units[-1].end = at + 1
        at += 1
    return units, None


def _opens(token: Token) -> bool:
    return token.lower in PREPOSITIONS


def _unit(found: Tokens, at: int, end: int) -> _Unit | None:
    """The kind of the phrase that starts with the preposition at `at`; None for any other kind."""
    lower = found[at].lower
    if at + 1 >= end:
        return None
    words = []
    for token in found[at + 1 : min(end, at + 8)]:
        if token.lower in PREPOSITIONS - {"of"} or token.text == ",":
            break
        words.append(token)
    if lower == "at" and any(token.lower in ("age", "aged") for token in words):
        return _Unit(at, at, "age")
    if lower in _TIME and any(token.is_time or token.lower in TIME_NOUNS for token in words):
        return _Unit(at, at, "time")
    if (
        lower in _PLACE
        and words
        and (words[0].cap or words[0].lower in DETERMINERS or words[0].lower in ("present-day", "what"))
    ):
        return _Unit(at, at, "place")
    return _Unit(at, at, "other") if lower in _OTHER else None


def _goes_on(found: Tokens, at: int, end: int, current: _Unit) -> bool:
    """Whether what follows a comma belongs to the unit before it, or is a unit of its own."""
    if at >= end:
        return False
    token = found[at]
    if token.lower in PREPOSITIONS:
        return True
    if current.kind == "time":
        return token.is_number
    if current.kind == "other":
        return token.cap or token.lower == "and"
    if current.kind == "place":
        return token.cap or token.lower in ("the", "now", "then", "a")
    return False


def _kin(found: Tokens, at: int, end: int) -> bool:
    """Whether "the youngest son of …" stands at `at`: it is said of the subject, not of the place."""
    words = [token.lower for token in found[at : min(end, at + 6)]]
    return words[:1] in (["the"], ["a"]) and not _KIN.isdisjoint(words[1:]) and "of" in words
