"""Whether two short answers are one amount, in the unit that the question asks for."""

from __future__ import annotations

import re
from collections.abc import Iterable

from factrl.text.words import UNITS, Reading, read

_SIGNED = re.compile(r"[!¬≠✗✘❌~<>=≈±]")  # not, about, or a limit
_MAX_ANSWER = 1_024  # characters that are read


def same_amount(question: str, text: str, answers: Iterable[str]) -> str | None:
    """The first accepted answer that a text is, when both are one amount and nothing more.

    "8849 metres" is "8,849 m", and "8849" too where the question asks for metres; "12 goals" is "12" where it
    asks for goals.  A number without a unit that the question does not name either is only equal to itself.
    """
    if _SIGNED.search(text):
        return None
    query, said = read(question), read(text[:_MAX_ANSWER])
    query_unit = unit_asked(query)
    if not _only_amount(said, query):
        return None
    for answer in answers:
        wanted = read(answer[:_MAX_ANSWER])
        if _only_amount(wanted, query) and said.amounts[0].same_in(wanted.amounts[0], query_unit):
            return answer
    return None


def unit_asked(query: Reading) -> str:
    """The last unit that a question names."""
    named = (word.lower() for word in reversed(query.spelt) if len(word) > 1)
    return next((UNITS[word] for word in named if word in UNITS), "")


def _only_amount(reading: Reading, query: Reading) -> bool:
    """Whether a text is one number with its unit, or with what the question asks for."""
    rest = {
        word
        for word, spelt in zip(reading.words, reading.spelt, strict=True)
        if word[0] != "#" and word not in query.words and spelt.lower() not in UNITS and word != "|"
    }
    return len(reading.amounts) == 1 and not reading.dates and not rest
