"""The words and signs of a statement, and what little can be told of each without a model of the language."""

from __future__ import annotations

import re
from collections.abc import Sequence

from factrl.extract import verbs
from factrl.extract.words import (
    ADVERBS,
    CONNECTIVES,
    DETERMINERS,
    MONTHS,
    PREPOSITIONS,
    QUANTIFIERS,
    SUBJECTS,
    SUBORDINATORS,
    word_set,
)

_TOKEN = re.compile(r"\d[\w.,:%°'’–/-]*|[^\W\d_][\w.'’/&-]*|\S")
_EDGE = ".,:;'’–-/&"
_ABBREVIATIONS = word_set(
    """
    dr mr mrs ms st jr sr inc ltd co corp bros no vol prof gen col lt capt sgt rev hon sen rep gov mt ft c ca
    b d vs etc jan feb mar apr jun jul aug sep sept oct nov dec
    """
)
_PAIRS = {'"': '"', "(": ")", "[": "]", "“": "”", "«": "»", "「": "」", "『": "』"}
_YEAR = re.compile(r"(?:1\d|20)\d\d(?:s|[–-]\d{2,4})?|\d{1,2}(?:st|nd|rd|th)")


class Token:
    """One word or sign, `text` at [start, end) of the statement.

    `inside` brackets or quotation marks the rules see nothing; `bracketed` tells brackets from quotation
    marks.
    """

    __slots__ = ("bracketed", "cap", "end", "inside", "lower", "start", "text")

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.lower = text.lower().replace("’", "'")
        self.start = start
        self.end = start + len(text)
        self.cap = text[0].isupper()
        self.inside = False
        self.bracketed = False

    def __repr__(self) -> str:
        return self.text

    @property
    def is_word(self) -> bool:
        """Letters or digits, not a sign."""
        return self.text[0].isalnum()

    @property
    def is_number(self) -> bool:
        """Begins with a digit."""
        return self.text[0].isdigit()

    @property
    def is_time(self) -> bool:
        """A year, a day or the name of a month."""
        return _YEAR.fullmatch(self.lower) is not None or (self.cap and self.lower.rstrip(".") in MONTHS)


def tokens(text: str) -> list[Token]:
    """The tokens of a statement.

    A word keeps its inner periods, apostrophes and hyphens ("U.S.", "Curie's", "well-known"); the period of
    an abbreviation belongs to it except at the very end.
    """
    found: list[Token] = []
    position = 0
    while match := _TOKEN.search(text, position):
        word = match[0]
        if len(word) > 1:
            bare = word.rstrip(_EDGE)
            if word[len(bare) :].startswith(".") and match.start() + len(bare) + 1 < len(text):
                letters = bare.replace(".", "")
                dotted = "." in bare and letters.isalpha()
                initial = len(bare) == 1 and bare.isupper()
                if dotted or initial or bare.lower() in _ABBREVIATIONS:
                    bare += "."
            word = bare
        found.append(Token(word, match.start()))
        position = match.start() + len(word)
    _hide(found)
    return found


def _hide(found: Sequence[Token]) -> None:
    """Marks what stands inside brackets and quotation marks that are closed, the signs included."""
    openers: list[tuple[int, str]] = []
    change = [0] * (len(found) + 1)
    brackets = [0] * (len(found) + 1)
    for number, token in enumerate(found):
        sign = token.text
        if openers and openers[-1][1] == sign:
            start = openers.pop()[0]
            for steps in (change, brackets) if sign in ")]" else (change,):
                steps[start] += 1
                steps[number + 1] -= 1
        elif sign in _PAIRS:
            openers.append((number, _PAIRS[sign]))
    depth = round_depth = 0
    for token, step, bracket in zip(found, change, brackets, strict=False):
        depth += step
        round_depth += bracket
        token.inside = depth > 0
        token.bracketed = round_depth > 0


def is_finite(found: Sequence[Token], at: int) -> bool:
    """Whether the word at `at` looks like a finite verb where it stands."""
    token = found[at]
    lower = token.lower
    if token.inside or (token.cap and at):
        return False
    if lower in verbs.AUXILIARY:
        return not (lower == "'s" or (lower in ("may", "will", "might") and token.cap))
    before = found[at - 1].lower if at else ""
    if (
        before in DETERMINERS
        or before in PREPOSITIONS
        or before.endswith(("'s", "s'"))
        or before in ("be", "been")
    ):
        return False
    return lower in verbs.PAST or (
        lower in verbs.THIRD and (lower not in verbs.NOUNISH or _takes_object(found, at))
    )


def _takes_object(found: Sequence[Token], at: int) -> bool:
    """Whether what follows a word such as "plays" shows that it is a verb."""
    if at + 1 >= len(found):
        return False
    after = found[at + 1]
    return after.lower in DETERMINERS or after.cap or after.is_number or after.lower.endswith("'s")


def is_adverb(token: Token) -> bool:
    """An adverb of our list, or a word in -ly."""
    return token.lower in ADVERBS or (token.lower.endswith("ly") and len(token.lower) > 4 and not token.cap)


_NO_NAME = DETERMINERS | QUANTIFIERS | PREPOSITIONS | SUBORDINATORS | CONNECTIVES | ADVERBS | SUBJECTS


def is_name(found: Sequence[Token]) -> bool:
    """Capitals all through, with "of", "de", "van" and the like between them."""
    words = [token for token in found if not token.inside]
    small = {
        "of",
        "de",
        "da",
        "di",
        "du",
        "van",
        "von",
        "der",
        "den",
        "la",
        "le",
        "al",
        "bin",
        "ibn",
        "el",
        "y",
        "dos",
    }
    return (
        bool(words)
        and words[0].cap
        and words[-1].cap
        and words[0].lower not in _NO_NAME
        and not (words[0].lower.endswith("ly") and len(words) == 1)
        and all(token.cap or token.lower in small for token in words)
    )
