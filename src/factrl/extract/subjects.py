"""Where a sentence has its subject and its verb, by rule, or the answer that it is not sure.

A rule speaks only where the words leave it no choice that it knows of; `None` means "not sure", and the
caller keeps the sentence whole.  Every search is bounded, so that reading takes linear time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from factrl.extract import verbs
from factrl.extract.tokens import Token, is_adverb, is_finite
from factrl.extract.words import (
    ADVERBS,
    CONNECTIVE_PHRASES,
    CONNECTIVES,
    DEMONSTRATIVES,
    FIRST_PERSON,
    MAYBE_CLAUSE,
    PREPOSITIONS,
    RELATIVES,
    SUBJECTS,
    SUBORDINATORS,
    TIME_NOUNS,
    word_set,
)

_MAX_SUBJECT = 25
_MAX_ASIDE = 40
_MAX_COMMAS = 6
_TIME_OPENERS = word_set(
    """
    in on during by since from until after before at between throughout around
    """
)

Tokens = Sequence[Token]
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject and the verb that follows it, as token numbers.

    Attributes:
        span: the noun phrase.
        aside: what stands between two commas after it; None without one.
        start: where the predicate starts, adverbs before the verb included.
        verb: the finite verb.
    """

    span: Range
    aside: Range | None
    start: int
    verb: int


@dataclass(frozen=True, slots=True)
class Clause:
    """A subject with what is said of it, and what stands before.

    Attributes:
        lead: the words before the subject, without their comma; None without any.
        lead_kind: `time`; `participle` ("Born in Warsaw, …", "A physicist, …"), which says something of the
            subject; `other`.
        subject: subject and verb.
        end: where the clause ends.
    """

    lead: Range | None
    lead_kind: Literal["none", "time", "participle", "other"]
    subject: Subject
    end: int


# -- Subject ------------------------------------------------------------------------------------------


def clause_at(found: Tokens, start: int, end: int) -> Clause | None:
    """The clause at [start, end), its connectives passed over."""
    start = after_connectives(found, start, end)
    if start >= end:
        return None
    lead = _lead(found, start, end)
    if lead is not None:
        return lead
    subject = subject_at(found, start, end)
    return None if subject is None else Clause(None, "none", subject, end)


def after_connectives(found: Tokens, start: int, end: int) -> int:
    """Past "However," and "In addition,"; past "And" and "But" without a comma too."""
    for _ in range(3):
        if start >= end:
            return start
        first = found[start].lower
        comma = start + 1 < end and found[start + 1].text == ","
        if first in CONNECTIVES and comma:
            start += 2
            continue
        if first in ("and", "but", "so", "yet") and not found[start].inside:
            start += 1
            continue
        words = [token.lower for token in found[start : min(end, start + 5)]]
        for phrase in CONNECTIVE_PHRASES:
            size = phrase.count(" ") + 1
            if " ".join(words[:size]) == phrase and words[size : size + 1] == [","]:
                start += size + 1
                break
        else:
            return start
    return start


def _lead(found: Tokens, start: int, end: int) -> Clause | None:
    first = found[start].lower
    adverb = first in ADVERBS or (first.endswith("ly") and len(first) > 4)
    word = found[start + 1].lower if adverb and start + 1 < end else first
    participle = word in verbs.PARTICIPLE and word not in verbs.AUXILIARY
    gerund = first.endswith("ing") and len(first) > 5
    one = first in ("a", "an")  # "A born leader, she …"
    opens = first in PREPOSITIONS or first in SUBORDINATORS or participle or gerund or adverb
    timed = found[start].is_number or first in TIME_NOUNS or first in _TIMED
    if first in SUBJECTS or not (opens or timed or one):
        return None
    commas = 0
    for at in range(start + 1, min(end, start + _MAX_ASIDE)):
        if found[at].text != "," or found[at].inside:
            continue
        commas += 1
        if first in PREPOSITIONS - MAYBE_CLAUSE and _has_verb(found, start, at):
            break  # "In 1970 she drew a strip, …": no lead, its subject follows without a comma
        subject = subject_at(found, at + 1, end)
        if subject is not None:
            timely = _is_time(found, start, at)
            if timely or opens or (one and _may_be_apposed(found, start, at, subject)):
                return Clause((start, at), _kind(found, start, at, participle or one), subject, end)
            if one:
                break
        if commas == _MAX_COMMAS:
            break
    # "In 1903 she won": no comma after a date.
    if first in _TIME_OPENERS:
        at = start + 1
        while (
            at < end
            and at - start < 6
            and (found[at].is_time or found[at].lower in ("the", "early", "late", "mid"))
        ):
            at += 1
        if at < end and found[at - 1].is_time:
            subject = subject_at(found, at, end)
            if subject is not None:
                return Clause((start, at), "time", subject, end)
    return None


def _has_verb(found: Tokens, start: int, end: int) -> bool:
    """Whether a finite verb stands there outside relative clauses."""
    for at in range(start, end):
        if found[at].lower in SUBORDINATORS and not found[at].inside:
            return False
        if is_finite(found, at):
            return True
    return False


_TIMED = word_set("the two three one later today")
_TIME_AGO = word_set(
    "later earlier ago year years month months week weeks day days decade decades century time hour moment"
)


def _may_be_apposed(found: Tokens, start: int, end: int, subject: Subject) -> bool:
    """Whether "A career scientist" at [start, end) tells who the subject after its comma is."""
    named = found[subject.span[0]].cap or found[subject.span[0]].lower in SUBJECTS
    timed = any(token.is_time or token.lower in _TIME_AGO for token in found[start:end])
    return named and not timed and end - start < 12


def _kind(found: Tokens, start: int, end: int, participle: bool) -> Literal["time", "participle", "other"]:
    if _is_time(found, start, end):
        return "time"
    return "participle" if participle else "other"


def _is_time(found: Tokens, start: int, end: int) -> bool:
    """A phrase of time: "In 1903", "During the war", "Two years later"."""
    if _has_verb(found, start, end):
        return False
    if found[end - 1].lower in ("later", "afterwards", "afterward"):
        return True
    timed = any(token.is_time or token.lower in TIME_NOUNS for token in found[start:end])
    return timed and (found[start].lower in _TIME_OPENERS or found[start].lower in ("today", "later"))


def subject_at(found: Tokens, start: int, end: int) -> Subject | None:
    """The subject that starts at `start`, up to its verb."""
    if start >= end or not _may_start_subject(found[start]):
        return None
    listed = False
    at = start
    while at < min(end, start + _MAX_SUBJECT):
        token = found[at]
        if token.inside:
            at += 1
            continue
        if token.text == ",":
            if found[at - 1].bracketed and at + 1 < end and is_finite(found, at + 1):
                return Subject((start, at), None, at + 1, at + 1)  # "Taylor (1847–1896), was"
            aside = None if listed else _aside(found, at, end)
            if aside is not None:
                return Subject((start, at), (at + 1, aside[0]), aside[0] + 1, aside[1])
            if not _is_list(found, at, end):
                return None
            listed = True
        elif at > start and is_finite(found, at):
            stop = at
            while stop - 1 > start and is_adverb(found[stop - 1]):
                stop -= 1
            return None if _is_reduced(found, at, end) else Subject((start, stop), None, stop, at)
        elif (
            (token.lower in SUBJECTS and at > start)
            or token.lower in RELATIVES
            or token.text in (":", ";", "–", "—", "-", "?", "!")
        ):
            return None
        at += 1
    return None


def _may_start_subject(first: Token) -> bool:
    lower = first.lower
    if lower in DEMONSTRATIVES - {"that"}:
        return True
    return not (
        lower in PREPOSITIONS
        or lower in SUBORDINATORS
        or lower in FIRST_PERSON
        or lower in verbs.AUXILIARY
        or (lower in verbs.PARTICIPLE and lower not in verbs.BASE)
        or lower in CONNECTIVES
        or lower in ADVERBS - {"both", "just"}
        or (
            lower.endswith("ly")
            and len(lower) > 4
            and lower
            not in ("family", "italy", "july", "emily", "sicily", "kelly", "sally", "billy", "molly", "holly")
        )
        or lower in ("and", "but", "or", "there", "here", "you", "to", "being", "having", "let")
        or not (first.is_word or first.inside)
    )


def _aside(found: Tokens, comma: int, end: int) -> tuple[int, int] | None:
    """The comma that closes what `comma` opens, and the verb after it."""
    if comma + 1 < end and found[comma + 1].lower in ("and", "or"):
        return None
    for at in range(comma + 2, min(end - 1, comma + _MAX_ASIDE)):
        if found[at].text != "," or found[at].inside:
            continue
        verb = at + 1
        while verb < end - 1 and is_adverb(found[verb]):
            verb += 1
        if is_finite(found, verb):
            return at, verb
    return None


def _is_list(found: Tokens, comma: int, end: int) -> bool:
    """Whether commas from here on part the members of a list, which has "and" before its last."""
    for at in range(comma + 1, min(end, comma + _MAX_SUBJECT)):
        if found[at].inside:
            continue
        if is_finite(found, at):
            return False
        if found[at].lower in ("and", "or"):
            return True
    return False


def _is_reduced(found: Tokens, verb: int, end: int) -> bool:
    """Whether the verb may belong to the subject: "The album released in 1990 was a hit"."""
    lower = found[verb].lower
    if lower in verbs.AUXILIARY or lower not in verbs.PARTICIPLE:
        return False
    for at in range(verb + 1, min(end, verb + _MAX_SUBJECT)):
        token = found[at]
        if token.inside:
            continue
        if token.text == "," or token.lower in ("and", "but", "or") or token.lower in SUBORDINATORS:
            return False
        if token.lower in ("after", "before", "since", "until", "as"):
            return False
        if token.lower in verbs.AUXILIARY and token.lower not in verbs.MODAL:
            return True
    return False
