"""Where one predicate ends and the next begins: "was born in Warsaw", "and died in Passy".

As in `factrl.extract.subjects`, what is not sure is left together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from factrl.extract import verbs
from factrl.extract.subjects import Clause, Range, Tokens, subject_at
from factrl.extract.tokens import Token, is_adverb, is_finite
from factrl.extract.words import (
    DETERMINERS,
    POSSESSIVES,
    PREPOSITIONS,
    RELATIVES,
    SUBJECTS,
    SUBORDINATORS,
    word_set,
)


@dataclass(frozen=True, slots=True)
class Predicate:
    """One thing that is said of a subject: tokens [start, end), after the words of `prefix` ("was")."""

    start: int
    end: int
    prefix: str = ""


@dataclass(slots=True)
class Predicates:
    """Everything that is said of one subject, and where a clause with another subject goes on."""

    said: list[Predicate] = field(default_factory=list)
    rest: int | None = None


def predicates_of(found: Tokens, clause: Clause) -> Predicates:
    """The predicates of a clause: "was born in Warsaw", "and died in Passy" (with its own start and end).

    Predicates are parted at "and" and "but" before a verb that can only be the subject's, never inside a
    subordinate clause; a part that shares its object or its preposition with the next is not parted.
    """
    subject = clause.subject
    result = Predicates()
    chain = chain_at(found, subject.verb, clause.end)
    start, prefix = subject.start, ""
    pending: list[tuple[int, Predicate]] = []  # ", directed B": a predicate only if "and produced C" follows
    at = chain.end
    while at < clause.end:
        token = found[at]
        if token.inside:
            at += 1
            continue
        if (
            token.lower in SUBORDINATORS
            or token.text in (":", "–", "—", ";")
            or token.lower in ("both", "between")
        ):
            result.rest = _after_relative(found, at, chain, clause.end)
            stop = result.rest - 2 if result.rest else clause.end
            return _closed(result, pending, Predicate(start, stop, prefix))
        if token.lower in ("and", "but") or token.text == ",":
            joins = token.text != ","
            following = _next_predicate(found, (start, at), chain, at + 1, clause.end)
            if following is not None:
                stop = at - 1 if found[at - 1].text == "," else at
                pending.append((stop, Predicate(start, stop, prefix)))
                start, prefix = following.start, following.prefix
                chain = chain_at(found, following.end, clause.end)
                if joins:
                    result.said += [said for _, said in pending]
                    pending = []
                at = chain.end
                continue
            if joins and _starts_clause(found, start, at, clause.end):
                stop = at - 1 if found[at - 1].text == "," else at
                result.rest = at + 1
                return _closed(result, pending, Predicate(start, stop, prefix))
        elif (
            is_finite(found, at)
            and found[at - 1].lower not in ("and", "but", "to")
            and _opens_clause(found, at, chain)
        ):
            break
        at += 1
    return _closed(result, pending, Predicate(start, clause.end, prefix))


def _after_relative(found: Tokens, at: int, chain: Chain, end: int) -> int | None:
    """Past a relative clause that ends in ", and he was": a pronoun and its verb start a new clause."""
    said = verbs.LEMMA.get(found[chain.end - 1].lower, "") in verbs.SAYING
    if found[at].lower not in RELATIVES or said:
        return None
    for comma in range(at, end - 3):
        if found[comma].text != "," or found[comma].inside or found[comma + 1].lower not in ("and", "but"):
            continue
        if found[comma + 2].lower in SUBJECTS and subject_at(found, comma + 2, end) is not None:
            return comma + 2
    return None


def _opens_clause(found: Tokens, at: int, chain: Chain) -> bool:
    """Whether a verb inside a predicate has a subject of its own; "a duo called X" has none."""
    lower, before = found[at].lower, found[at - 1]
    reduced = lower in verbs.PARTICIPLE and lower not in verbs.AUXILIARY
    said = verbs.LEMMA.get(found[chain.end - 1].lower, "") in verbs.SAYING
    return not reduced or said or before.lower in SUBJECTS or before.cap


def _closed(result: Predicates, pending: list[tuple[int, Predicate]], last: Predicate) -> Predicates:
    # A comma that no "and" followed parted nothing: what was put aside goes back in front.
    first = pending[0][1] if pending else last
    result.said.append(Predicate(first.start, last.end, first.prefix))
    return result


@dataclass(frozen=True, slots=True)
class Chain:
    """The verb group at the head of a predicate: auxiliaries, adverbs and the verb itself.

    Attributes:
        start, end: its tokens.
        words: its auxiliaries, e.g. `has been`.
        voice: `passive`, `perfect` (has + participle), `copula` (a form of "be" alone), `modal` or `plain`.
        past: whether it is in a past tense.
    """

    start: int
    end: int
    words: str
    voice: Literal["passive", "perfect", "copula", "modal", "plain"]
    past: bool


def chain_at(found: Tokens, verb: int, end: int) -> Chain:
    """The verb group that starts with the finite verb at `verb`."""
    first = found[verb].lower
    past = first in verbs.PAST or first in (
        "was",
        "were",
        "had",
        "did",
        "wasn't",
        "weren't",
        "hadn't",
        "didn't",
        "would",
    )
    if first not in verbs.AUXILIARY:
        return Chain(verb, verb + 1, "", "plain", past)
    words = [found[verb].text]
    at = verb + 1
    passive = first in verbs.BE
    while at < end and not found[at].inside:
        lower = found[at].lower
        if lower in ("been", "be", "being"):
            words.append(found[at].text)
            passive = True
        elif not (is_adverb(found[at]) or lower in ("not", "never", "no longer")):
            break
        at += 1
    participle = at < end and found[at].lower in verbs.PARTICIPLE and not found[at].cap
    if first in verbs.MODAL or first in verbs.DO:
        voice = "modal"
    elif passive:
        voice = "passive" if participle else "copula"
    else:
        voice = "perfect" if participle else "plain"
    return Chain(verb, at + 1 if participle else at, " ".join(words), voice, past)


def _next_predicate(found: Tokens, before: Range, chain: Chain, start: int, end: int) -> Predicate | None:
    """The predicate that starts at `start`: its start, its verb (as `end`) and the words it shares.

    Args:
        before: the tokens of the predicate before it.
        chain: the verb group of that predicate.
    """
    verb = start
    while verb < end - 1 and is_adverb(found[verb]) and not is_finite(found, verb):
        verb += 1
    if verb >= end or not _is_complete(found, before, chain) or found[verb].inside or found[verb].cap:
        return None
    word, after = found[verb].lower, found[verb + 1] if verb + 1 < end else None
    negated = any(token.lower in verbs.NEGATIVE for token in found[before[0] : before[1]])
    if word in verbs.AUXILIARY:
        return (
            Predicate(start, verb, "")
            if word not in ("'s", "may", "will", "can") and is_finite(found, verb)
            else None
        )
    if word in verbs.THIRD:
        return (
            Predicate(start, verb, "") if not chain.past and is_finite(found, verb) and not negated else None
        )
    if word not in verbs.PAST | verbs.PARTICIPLE or (not chain.past and chain.voice in ("plain", "modal")):
        return None
    if word in verbs.PURE_PAST:
        return Predicate(start, verb, "")
    if negated:
        return None
    prefix = _shared(word, after, chain)
    return None if prefix is None else Predicate(start, verb, prefix)


# Before "his" they take an object, so they are active; before other words they name, in the passive.
_NAMING = word_set(
    """
    named called dubbed appointed elected awarded given made considered declared crowned granted offered
    voted nicknamed ranked rated sent shown taught told paid promised hired selected chosen ordained knighted
    """
)


def _shared(word: str, after: Token | None, chain: Chain) -> str | None:
    """The auxiliaries that a participle after "and" shares with the verb before it; None when not sure."""
    has = chain.words.split(" ")[0] if chain.words.lower().startswith(("has", "have", "had")) else ""
    following = after.lower if after is not None else ""
    opens = after is not None and (
        following in DETERMINERS or after.cap or after.is_number or after.text in "\"'“" or after.inside
    )
    prepositional = (
        after is None or following in PREPOSITIONS or following in ("to", ",", ";") or is_adverb(after)
    )
    if chain.voice in ("passive", "copula"):
        if following == "by" or word not in verbs.PAST:
            # "is an actor and written …" would be a strange sentence; "and known for" is a usual one.
            return chain.words if prepositional or chain.voice == "passive" else None
        if word in verbs.ACTIVE or (opens and (word not in _NAMING or following in POSSESSIVES)):
            return has if word not in _GIVING or following not in POSSESSIVES else None
        if word in _EITHER and opens:
            return None
        if word in verbs.PASSIVE and (prepositional or word in _NAMING):
            return chain.words
        return None
    if chain.voice == "perfect":
        return has if word in verbs.PARTICIPLE and (opens or prepositional or word in verbs.ACTIVE) else None
    if word not in verbs.PAST or chain.voice == "modal":
        return None
    return "" if opens or prepositional or word in verbs.ACTIVE else None


_GIVING = word_set("given awarded granted offered sent paid promised taught shown")
_EITHER = word_set("made hired selected chosen sent shown taught told promised")
# They need no object, so they can stand alone before "and".
_ALONE = word_set(
    """
    retired died resigned returned graduated emigrated surrendered arrived disappeared recovered left
    """
)


def _is_complete(found: Tokens, before: Range, chain: Chain) -> bool:
    """Whether a predicate is complete, and does not share its object with the one after it."""
    last = before[1] - 1
    if found[last].text == ",":
        last -= 1
    if last < chain.end - 1 or found[last].lower in PREPOSITIONS or found[last].lower in DETERMINERS:
        return False
    if last == chain.end - 1:
        return found[last].lower in _ALONE
    return True


def _starts_clause(found: Tokens, begin: int, conjunction: int, end: int) -> bool:
    """Whether a clause with its own subject follows the conjunction; the one before starts at `begin`."""
    subject = subject_at(found, conjunction + 1, end)
    if subject is None or subject.aside is not None or subject.span[1] - subject.span[0] > 10:
        return False
    first = found[subject.span[0]]
    if any(token.text == "," for token in found[subject.span[0] : subject.verb]):
        return False
    verb = found[subject.verb].lower
    comma = found[conjunction - 1].text == ","
    starts = first.lower in SUBJECTS or first.lower in DETERMINERS or first.cap
    if comma and not starts and first.is_word and verb in verbs.BE | verbs.HAVE:
        # "…, and resin is used": a bare noun, unless it may be the last member of a list.
        return not any(token.text == "," for token in found[begin : conjunction - 1])
    if not starts or not (comma or first.lower in SUBJECTS or first.lower in DETERMINERS):
        return False
    if verb in verbs.AUXILIARY or verb in verbs.PURE_PAST or first.lower in SUBJECTS:
        return True
    after = found[subject.verb + 1] if subject.verb + 1 < end else None
    return after is not None and after.lower in DETERMINERS and verb in verbs.PAST
