"""Sentences as claims, as a reader sees them: nothing is taken apart or put in other words.

A statement is a sentence, an item or a table row together with what is needed to read it: an item that is no
sentence gets the line that introduces its list ("Her books were:"), a row the headings of its columns.
Markup and citation marks are taken off.  Code blocks and headings state nothing.

Wrappers that name nobody, or only the writer, are taken off what they wrap: "Some people say that the Moon is
made of cheese" is true whatever the Moon is made of, so a policy that wraps its falsehoods that way would
never be wrong (reliability, D15 and R8).  A named source stays ("According to NASA, …"), and so does a
wrapper that turns against what it wraps ("Some people wrongly believe …").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from factrl.text.sentences import Kind, Sentence, sentences
from factrl.types import Claim
from factrl.verifier.claims.marks import mark

# -- Statements

# In the order in which they are tried at a position: a link keeps its words, the rest is dropped.
_MARKUP = re.compile(
    r"!?\[(?P<link>[^\[\]\n]{1,200})\]\([^()\s]{0,500}\)"
    r"|(?P<cite> ?\[\d{1,3}(?:[,–-] ?\d{1,3}){0,5}\]| ?【[^【】\n]{1,40}】| ?\[citation needed\])"
    r"|(?P<gone>`+|~~|<br ?/?>|(?<!\w)_+(?=[^\W_])|(?<=[^\W_])(?:__+|_(?!\w)))"
    r"|(?P<stars>\*+)"
    r"|(?P<space>\s+)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One unit of a text, ready to be taken apart.

    Attributes:
        text: what it says, on one line, without markup.
        at: for every character of `text` its offset in the whole text.
        start, end: the stretch of the whole text, end exclusive.
        sentence: its number among the sentences of the text.
        kind: `prose`, `item` or `row`.
        context: words to put before a claim so that it can stand alone; not part of the stretch.
    """

    text: str
    at: tuple[int, ...]
    start: int
    end: int
    sentence: int
    kind: Kind
    context: str = ""

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the whole text behind `self.text[start:end]`, which must not be empty."""
        return self.at[start], self.at[end - 1] + 1


def statements(text: str) -> list[Statement]:
    """Everything in `text` that may state something, in order."""
    found: list[Statement] = []
    header: list[str] = []
    introduction = ""
    previous = ""
    for number, unit in enumerate(sentences(text)):
        seen, at = shown(text, unit)
        if unit.kind == "heading":
            header = _cells(seen) if "|" in seen else []
        if not seen or unit.kind in ("heading", "code"):
            previous, introduction = unit.kind, ""
            continue
        context = ""
        if unit.kind == "row":
            seen, at = _row(seen, at, header)
        elif unit.kind == "item":
            context = introduction
        else:
            introduction = seen[:-1].rstrip() + ":" if seen.endswith((":", "：")) else ""
        if unit.kind != "row" and previous != "heading":
            header = []
        previous = unit.kind
        found.append(Statement(seen, tuple(at), unit.start, unit.end, number, unit.kind, context))
    return found


def shown(text: str, unit: Sentence) -> tuple[str, list[int]]:
    """The visible words of a sentence on one line, and where each character is in `text`."""
    raw = text[unit.start : unit.end]
    pieces: list[str] = []
    at: list[int] = []

    def keep(start: int, end: int) -> None:
        pieces.append(raw[start:end])
        at.extend(range(unit.start + start, unit.start + end))

    position = 0
    for match in _MARKUP.finditer(raw):
        start, end = match.span()
        keep(position, start)
        position = end
        if match["link"] is not None:
            keep(*match.span("link"))
        elif match["space"] is not None:
            pieces.append(" ")
            at.append(unit.start + start)
        elif match["stars"] is not None and _is_sign(raw[max(0, start - 1) : start], raw[end : end + 1]):
            keep(start, end)
    keep(position, len(raw))
    words = "".join(pieces)
    lead = len(words) - len(words.lstrip())
    words = words.strip()
    return words, at[lead : lead + len(words)]


def _is_sign(before: str, after: str) -> bool:
    """Whether stars between two characters are no emphasis: "3 * 4", "M*A*S*H"."""
    return (before == " " == after) or (before.isalnum() and after.isalnum())


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("| ").split("|")]


def _row(seen: str, at: list[int], header: list[str]) -> tuple[str, list[int]]:
    """`Year: 1903; Prize: Physics` of the row `1903 | Physics` below the headings `Year | Prize`."""
    cells = seen.split("|")
    headings = header if len(header) == len(cells) else [""] * len(cells)
    pieces: list[str] = []
    places: list[int] = []
    position = 0
    for cell, heading in zip(cells, headings, strict=True):
        word = cell.strip()
        if word:
            start = position + cell.index(word)
            label = ("; " if pieces else "") + (f"{heading}: " if heading else "")
            pieces += [label, word]
            places += [at[start]] * len(label) + at[start : start + len(word)]
        position += len(cell) + 1
    return "".join(pieces), places


# -- Wrappers

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

    identity = "sentences/2"

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
