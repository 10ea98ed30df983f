"""Whose sentence it is: a piece of evidence about another thing than the claim is worth less, and never
hidden.

A name heads something in the evidence if it is a document's title or a part of it, a row's first cell, or a
heading of several words or with a number.  A claim that has such a name, or whose first name has several
words, is about what bears it; a piece in which that name does not stand, neither in its words nor above them,
leaves the claim at most unsure.  A date is no name.  "Auron" is not "Auron Plus" where both head something.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from factrl.types import Claim
from factrl.verifier.pieces import ARTICLES, Found, refers_back
from factrl.verifier.tokens import read, tokens

_TITLED = re.compile(r"[:|(),]| [-–—] ")
_SMALL = frozenset("of the de du la von am an der della del".split())  # noqa: SIM905
_LONGEST = 4  # words of a name that heads something
_JOINS = re.compile(r"[ -]|\. | (?:of|of the|de|du|de la|von|am|an der|della|del) ")
Name = tuple[str, ...]
ELSE = "the evidence may be about something else"


class Context(NamedTuple):
    """What a claim is about by what stands before it in its text: a name, empty where it names its own."""

    subject: Name = ()
    words: str = ""  # as written, for a search


@lru_cache(maxsize=8_192)
def names(text: str) -> tuple[Name, ...]:
    """The names in a text, each the keys of words side by side that are written as names, with their numbers.

    >>> names("In 1999 the University of Ashcombe bought the Solis 7 Pro.")
    (('university', 'ashcomb'), ('soli', '7', 'pro'))
    """
    found: list[list[str]] = []
    last = -1
    for one in tokens(text):
        if one.value is not None and one.value[0] in ("month", "weekday"):  # a date is a value
            last = -1
            continue
        joined = bool(found) and last >= 0 and _JOINS.fullmatch(text[last : one.start]) is not None
        code = one.value is not None and one.value[0] == "code"
        if one.named or code or (joined and one.value is not None and one.value[0] == "number"):
            if joined:
                found[-1].append(one.key)
            else:
                found.append([one.key])
            last = one.end
    return tuple(map(tuple, found))


def heads(found: Iterable[Found]) -> frozenset[Name]:
    """The names that head something in the evidence."""
    known: set[Name] = set()
    for title, first in {(one.title, one.first) for one in found}:
        known.update(_whole(part) for part in (title, *_TITLED.split(title)))
        known.update(_first(first))
    for piece in (piece for one in found for piece in one.pieces if piece.keys or piece.above):
        known.update(map(_whole, piece.keys))
        known.update(*map(_above, piece.above))
    return frozenset(known - {()})


@lru_cache(maxsize=8_192)
def _whole(text: str) -> Name:
    """The keys of a short text, such as a title; empty for a longer one."""
    own = tuple(one.key for one in tokens(text) if one.low not in _SMALL)
    return own if len(own) <= _LONGEST else ()


@lru_cache(maxsize=1_024)
def _first(sentence: str) -> tuple[Name, ...]:
    """The name that a document's first sentence opens with, where it is one beyond doubt."""
    name = opening(sentence)
    own = names(f"of {name}")[:1] if name else ()
    certain = own and (len(own[0]) > 1 or not sentence.startswith(name))
    return own if certain else ()


@lru_cache(maxsize=1_024)
def _above(heading: str) -> tuple[Name, ...]:
    """The names that a heading bears: of several words, or with a number."""
    return tuple(
        name
        for name in (_whole(heading), *names(heading))
        if len(name) > 1 or any(map(str.isdigit, "".join(name)))
    )


def other_subject(claim: str, context: Context, one: Found, known: frozenset[Name]) -> str:
    """Why a piece may be about something else than a claim; empty if nothing shows that."""
    own = _own(claim, known)
    if not own and not context.subject:
        return ""
    held, words = _borne(one.passage.title, one.first, one.passage.text)
    # Who is meant by a pronoun is less sure: it counts where the piece has somebody else.
    if context.subject in known or (
        len(context.subject) > 1 and any(len(run) > 1 for run in names(one.passage.text))
    ):
        own = (*own, context.subject)
    for name in own:
        longer = [run for run in held if run != name and run in known and run[: len(name)] == name]
        apart = name in known and longer and not any(run not in longer and _holds(run, name) for run in held)
        lost = name[-1] not in words or (name in known and not words.issuperset(name))
        rival = name[0] not in words and any(run[-1] == name[-1] and len(run) > 1 for run in held)
        if lost or apart or rival or _under_another(name, one, known):
            return ELSE
    return ""


@lru_cache(maxsize=512)
def _own(claim: str, known: frozenset[Name]) -> tuple[Name, ...]:
    """The names in a claim that head something, and the first of several words."""
    said = tuple(one.key for one in tokens(claim))
    own = [
        name for number, name in enumerate(names(claim)) if name in known or (len(name) > 1 and not number)
    ]
    own += [name for name in known if len(name) > 1 and _holds(said, name)]
    return tuple(name for name in own if not any(other != name and _holds(other, name) for other in own))


@lru_cache(maxsize=8_192)
def _borne(title: str, first: str, text: str) -> tuple[tuple[Name, ...], frozenset[str]]:
    """The names and the words of a piece: its title's, the name that its document opens with, and its own."""
    shown = title, opening(first), text
    words = frozenset[str]().union(*(read(part).keys for part in shown))
    return tuple(name for part in shown for name in names(part)), words


def _under_another(name: Name, one: Found, known: frozenset[Name]) -> bool:
    """Whether another name of the same first word stands nearer: "Lumo 45" below "Lumo 45 and 60"."""
    for line in (one.passage.text, *reversed(one.passage.title.split(" › "))):
        held = names(line)
        if any(_holds(run, name) for run in held):
            return False
        if any(run in known and run[0] == name[0] for run in held):
            return True
    return False


def may_be_same(one: Found, other: Found) -> bool:
    """Whether two pieces may be about one thing: not where their titles are two different names."""
    both = [{word for name in names(_TITLED.split(each.title)[0]) for word in name} for each in (one, other)]
    return not all(both) or not both[0].isdisjoint(both[1])


@lru_cache(maxsize=8_192)
def subject_of(one: Found) -> frozenset[str]:
    """The keys of the words of title and headings, and of the one name before it, if it is one."""
    before = names(one.pieces[0].before)
    title = read(one.passage.title).keys
    return title.union(*before) if len(before) == 1 else title


def _holds(run: Name, name: Name) -> bool:
    return name[0] in run and any(run[at : at + len(name)] == name for at in range(len(run) - len(name) + 1))


def contexts(claims: Sequence[Claim], text: str, topic: str, question: str) -> list[Context]:
    """The context of each claim of a text.

    A claim that opens with a pronoun, or with an article and no name, is about the name that the nearest
    sentence before it in its paragraph begins with, else about the topic or the question's last name.
    """
    asked = topic or " ".join(re.findall(r"(?<=\s)[^\W\d_a-zà-ÿ][\w'’-]*|\d[\w.]*", question))
    subject, end = asked, 0
    result = []
    for claim in claims:
        if "\n\n" in text[end : claim.start]:
            subject = asked
        end = claim.end
        back = refers_back(claim.text)
        result.append(
            Context((names(f"of {subject}") or ((),))[-1], subject) if back and subject else Context()
        )
        if not back and (own := opening(claim.text)):
            subject = own
    return result


@lru_cache(maxsize=8_192)
def opening(text: str) -> str:
    """The name that a sentence begins with, as written; empty without one."""
    start = end = -1
    for one in tokens(text)[:8]:
        joined = start >= 0 and _JOINS.fullmatch(text[end : one.start]) is not None
        if one.named or (joined and one.value and one.value[0] in ("number", "code")):
            if start >= 0 and not joined:
                break
            start, end = (start if start >= 0 else one.start), one.end
        elif start < 0 and one.low not in ARTICLES:
            break
    return text[start:end] if start >= 0 else ""
