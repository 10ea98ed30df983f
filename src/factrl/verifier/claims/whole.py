"""Sentences as claims: nothing is taken apart or put in other words."""

from __future__ import annotations

from factrl.types import Claim
from factrl.verifier.claims.attribution import unwrapped
from factrl.verifier.claims.marks import mark
from factrl.verifier.claims.statements import Statement, statements


class SentenceClaims:
    """Every sentence, item and table row is one claim, in its own words.

    Only markup and citation marks are taken off, and what blurs who says it: "Some people say that X", "I
    think X" and "Note that X" claim X.  An item that is no sentence gets the line that introduces its list.

    Attributes:
        identity: changes with whatever changes the claims.
    """

    identity = "sentences/1"

    def __call__(self, text: str, question: str = "", topic: str = "") -> list[Claim]:
        """The claims of `text` in order, marked by `factrl.verifier.claims.marks.mark`."""
        return mark((_claim(statement) for statement in statements(text)), question)


def _claim(statement: Statement) -> Claim:
    start, end = unwrapped(statement.text)
    words = statement.text[start:end]
    if start and words[:1].islower():
        words = words[0].upper() + words[1:]
    if statement.context:
        words = f"{statement.context} {words}"
    begin, stop = (statement.start, statement.end) if not start else statement.span(start, end)
    return Claim(words, begin, stop, statement.sentence)
