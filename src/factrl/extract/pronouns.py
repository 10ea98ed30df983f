"""Who "she" is: the things a text has spoken of so far, and which of them a pronoun stands for.

A pronoun stands for the last subject that fits it, else for the topic; what nothing fits stays a pronoun.
What fits is known from titles, kinship and first names, from what a thing is said to be ("is a physicist"),
and from pronouns that were resolved before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from factrl.extract.tokens import Token, is_name, tokens
from factrl.extract.words import (
    DETERMINERS,
    HER_NAMES,
    HIS_NAMES,
    MEN,
    NOT_PEOPLE,
    PLURALS,
    POSSESSIVES,
    ROLES,
    TITLES,
    WOMEN,
    word_set,
)

Form = Literal["he", "she", "it", "they"]
FORMS: dict[str, Form] = {
    **dict.fromkeys(("he", "him", "his"), "he"),
    **dict.fromkeys(("she", "her"), "she"),
    **dict.fromkeys(("it", "its"), "it"),
    **dict.fromkeys(("they", "them", "their"), "they"),
}
_KEPT = 12
"""Mentions that are remembered."""
_ROLE_ENDINGS = ("ist", "ician", "grapher", "ologist", "woman", "writer", "maker", "player", "smith")


@dataclass(slots=True)
class Mention:
    """Something a text speaks of.

    Attributes:
        name: how to call it in a claim.
        many: whether it is more than one.
        person: whether it is a person; None when nothing tells.
        form: the pronoun that was used for it, or that its name calls for; None when nothing tells.
        minor: whether a text comes back to others sooner: "her father", "a friend".
        named: whether it is called by a name.
        last: the statement that spoke of it last.
        is_object: whether it was an object there; objects are forgotten sooner than subjects.
    """

    name: str
    many: bool = False
    person: bool | None = None
    form: Form | None = None
    minor: bool = False
    named: bool = False
    last: int = 0
    is_object: bool = False

    def fits(self, form: Form) -> bool:
        """Whether the pronoun can stand for it, as far as is known."""
        if form == "they":
            return self.many
        if self.many:
            return False
        if form == "it":
            return self.person is not True and self.form in (None, "it")
        return self.person is not False and self.form in (None, form)


def role_of(word: str) -> bool:
    """Whether a common noun says what a person is or does."""
    word = word.lower()
    return word in ROLES or word.rpartition("-")[2] in ROLES or word.endswith(_ROLE_ENDINGS)


def mention(phrase: Sequence[Token], name: str = "") -> Mention:
    """What can be told from a noun phrase alone; `name` when it is to be called otherwise."""
    words = [token for token in phrase if token.is_word and not token.inside]
    found = Mention(name or " ".join(token.text for token in words))
    if not words:
        return found
    lowers = [token.lower for token in words]
    if "and" in lowers:
        found.many = True
        return found
    head = words[_head(lowers)]
    if is_name(words):
        found.named = True
        if not NOT_PEOPLE.isdisjoint(lowers):
            found.person, found.form = False, "it"
        elif lowers[0].rstrip(".") in TITLES or len(words) > 1:
            found.person = True if lowers[0].rstrip(".") in TITLES else None
        first_names: tuple[tuple[frozenset[str], Form], ...] = (
            (HER_NAMES | WOMEN, "she"),
            (HIS_NAMES | MEN, "he"),
        )
        for names, form in first_names:
            if found.form is None and lowers[0].rstrip(".") in names:
                found.person, found.form = True, form
        return found
    found.many = head.lower in PLURALS or _is_plural(head.lower)
    found.person = role_of(head.lower)
    found.form = "she" if head.lower in WOMEN else "he" if head.lower in MEN else None
    found.minor = lowers[0] in ("a", "an") or any(
        lower in POSSESSIVES or lower.endswith(("'s", "s'")) for lower in lowers
    )
    if words[0].cap and words[-1].cap and lowers[0] not in DETERMINERS and not found.minor:
        found.person = found.person or None  # a name with small words that we do not know
        return found
    if not found.person and not found.many:
        found.form = "it"
    return found


def _head(lowers: Sequence[str]) -> int:
    """The number of the noun that a phrase is about: the last word before "of", "in" and the like."""
    for number, lower in enumerate(lowers):
        if number and lower in ("of", "in", "for", "at", "from", "to", "by", "with", "on"):
            return number - 1
    return len(lowers) - 1


def _is_plural(word: str) -> bool:
    return word.endswith("s") and not word.endswith(("ss", "us", "is", "series", "'s"))


class Mentions:
    """What a text has spoken of, in order.

    Args:
        topic: what the whole text is about; empty when unknown.
    """

    def __init__(self, topic: str = "") -> None:
        # "Antonio Diaz (Filipino politician)" is a title; the name is before the bracket.
        name = topic.split(" (")[0].strip()
        self.topic = mention(tokens(name), name) if name else None
        self.seen: list[Mention] = []
        self.now = 0

    def add(self, found: Mention) -> Mention:
        """Remembers a mention, together with what was known of it under the same name."""
        for old in [*([self.topic] if self.topic else []), *self.seen]:
            if old.name == found.name:
                old.person = found.person if found.person is not None else old.person
                old.form = old.form or found.form
                old.is_object = old.is_object and found.is_object
                found = old
        found.last = self.now
        self.seen = [*(old for old in self.seen if old is not found), found][-_KEPT:]
        return found

    def resolve(self, word: str, besides: Mention | None = None) -> Mention | None:
        """What the pronoun `word` stands for, other than `besides`; None when nothing fits."""
        form = FORMS[word]
        fitting = [old for old in reversed(self.seen) if old is not besides and self._recalls(old, form)]
        if form == "they" and not fitting:  # "Arsenal … they"
            fitting = [
                old
                for old in reversed(self.seen)
                if old.last >= self.now - 1 and old.person is not True and old.named and old is not besides
            ]
        # A text comes back to the person it is about sooner than to her father, and a lone unknown name
        # ("Paris") is taken for a person only when there is nobody better.
        if self.topic and self.topic is not besides and self.topic not in fitting and self._topic_fits(form):
            fitting.append(self.topic)
        if form in ("he", "she"):
            fitting.sort(key=lambda old: (old.person is None and " " not in old.name, old.minor))
        if not fitting:
            return None
        chosen = fitting[0]
        if form in ("he", "she"):
            chosen.person = True
        if form != "they":
            chosen.form = chosen.form or form
        return chosen

    def _recalls(self, old: Mention, form: Form) -> bool:
        """Whether a pronoun can reach back to it: people stay in mind, things for two sentences."""
        reach = {"it": 2, "they": 1}.get(form, _KEPT)
        if old.is_object:
            reach = 0 if form == "they" else 1
        return old.last >= self.now - reach and old.fits(form) and not (old.is_object and form == "they")

    def _topic_fits(self, form: Form) -> bool:
        topic = self.topic
        return topic is not None and (topic.fits(form) or (form == "they" and topic.form is None))

    def full_name(self, name: str) -> str:
        """The whole name behind a first or last name, when exactly one is known; else the name itself."""
        if " " in name or not name[:1].isupper():
            return name
        whole = [
            old.name
            for old in [*([self.topic] if self.topic else []), *self.seen]
            if " " in old.name and old.person is not False and not old.many and name in _ends(old.name)
        ]
        if not whole:
            return name
        # "Liam Payne" and "Liam James Payne" are one person; "John Adams" and "Abigail Adams" are two.
        words = [set(other.split()) for other in whole]
        longest = max(words, key=len)
        return whole[0] if all(other <= longest for other in words) else name


def _ends(name: str) -> tuple[str, str]:
    words = name.split()
    return words[0], words[-1]


def possessive(name: str, many: bool = False) -> str:
    """`Marie Curie's`; `the brothers'`."""
    return name + ("'" if many and name.endswith("s") else "'s")


def is_possessive(found: Sequence[Token], at: int) -> bool:
    """Whether the pronoun at `at` stands before what is owned; only "her" can be both."""
    lower = found[at].lower
    if lower in POSSESSIVES and lower != "her":
        return True
    if lower != "her" or at + 1 >= len(found):
        return False
    after = found[at + 1]
    last = at + 2 >= len(found) or not found[at + 2].is_word or found[at + 2].lower in _AFTER_OBJECT
    if last and (after.lower in _STATES or after.lower.endswith(("ous", "able", "ible", "less", "ful"))):
        return False  # "made her famous"
    return after.is_word and after.lower not in _AFTER_OBJECT and not after.lower.endswith("ly")


_STATES = word_set(
    "rich popular happy ill sick wealthy known angry pregnant blind free unhappy alone dead alive"
)
_AFTER_OBJECT = DETERMINERS | word_set(
    """
    and or but to in on at by for with from as of into after before when while who which that than then
    """
)
