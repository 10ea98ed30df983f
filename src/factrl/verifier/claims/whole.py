"""Sentences as claims: nothing is taken apart or put in other words.

Wrappers that name nobody, or only the writer, are taken off what they wrap: "Some people say that the Moon is
made of cheese" is true whatever the Moon is made of, so a policy that wraps its falsehoods that way would
never be wrong (reliability, D15 and R8).  A named source stays ("According to NASA, …"), and so does a
wrapper that turns against what it wraps ("Some people wrongly believe …").
"""

from __future__ import annotations

import re

from factrl.types import Claim
from factrl.verifier.claims.marks import mark
from factrl.verifier.claims.statements import Statement, statements

_THAT = r"(?: that)?,? "
_ADVERB = (
    r"(?:(?:also|often|sometimes|commonly|generally|widely|frequently|usually|now|strongly|really|firmly) )?"
)
_WRAPPERS = re.compile(
    r"(?:"
    # nobody
    rf"(?:some|others|many|most|several|certain|other|various|a few|a lot of|lots of|numerous)"
    rf"(?: (?:people|scholars|sources|experts|historians|scientists|researchers|critics|observers|reports))?"
    rf"(?: (?:would|might|may|will))? {_ADVERB}"
    rf"(?:say|claim|believe|think|argue|suggest|hold|report|state|maintain|assert){_THAT}"
    rf"|(?:people|sources|reports|rumou?rs|legends?|experts) {_ADVERB}"
    rf"(?:say|claim|believe|think|suggest|have it){_THAT}"
    rf"|(?:it is|it's|it has been) {_ADVERB}"
    rf"(?:said|believed|claimed|thought|reported|rumou?red|known|accepted|considered|assumed|alleged|held|stated){_THAT}"
    r"|(?:reportedly|allegedly|supposedly|apparently|purportedly|seemingly),? "
    r"|(?:according to|as) (?:some|many|several|various|certain|most|unnamed)"
    r"(?: (?:people|sources|experts|reports|accounts|scholars|historians|scientists|say|claim)){1,2}, "
    # the writer
    rf"|(?:i|we) {_ADVERB}(?:think|believe|guess|suppose|feel|assume|reckon|know|recall|remember"
    rf"|am sure|am certain|am confident|would say|can say|can confirm){_THAT}"
    r"|(?:in my (?:view|opinion)|to my knowledge|as far as i know|from what i (?:know|recall|remember)), "
    rf"|(?:please )?(?:note|remember|recall|keep in mind|bear in mind|be aware) that "
    rf"|it is (?:important|worth|interesting|essential|useful|also worth)"
    rf" (?:to (?:note|mention|remember|know|add|say)|noting|mentioning|remembering|adding){_THAT}"
    rf"|it should be (?:noted|mentioned|remembered|added){_THAT}"
    r"|(?:sure|certainly|of course|absolutely|yes|well|okay|indeed|to be clear|to be honest)[,!:] "
    r")",
    re.IGNORECASE,
)
_TURNS = re.compile(
    r"\b(?:but|however|although|though|myth|false|falsely|wrongly|mistakenly|incorrectly|erroneously|untrue"
    r"|misconception|not true|in reality|in fact|actually|while others)\b",
    re.IGNORECASE,
)
_MAX_WRAPPERS = 3


def unwrapped(text: str) -> tuple[int, int]:
    """The stretch [start, end) of a sentence that says what is claimed, without its wrappers.

    Returns (0, len(text)) when there is none, when the sentence turns against what it wraps, or when too
    little would be left to be a sentence.
    """
    if _TURNS.search(text):
        return 0, len(text)
    start = 0
    for _ in range(_MAX_WRAPPERS):
        match = _WRAPPERS.match(text, start)
        if match is None:
            break
        start = match.end()
    if text[start:].count(" ") < 2 or not text[start : start + 1].isalnum():
        return 0, len(text)
    return start, len(text)


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
