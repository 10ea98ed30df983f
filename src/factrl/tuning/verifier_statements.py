"""Claims from questions: what somebody says who answers a question, as a sentence.

Rules for the commonest forms of English questions, those of people (`Who wrote Emma?`) and those that
continue a sentence (`Emma was written by which author?`).  Everything else has no statement; `quoted` makes
one that nobody would write but that has the same truth.
"""

from __future__ import annotations

import re

_WH = r"(?:what|which|who)"
_BE = r"(?:is|was|are|were)"
_DONE = (
    r"born|founded|released|established|built|formed|located|situated|based|created|published|signed|"
    r"introduced|written|directed|produced|composed|painted|discovered|invented|killed|married|buried|held|"
    r"educated|raised|made|completed|opened|named|launched|recorded|set|filmed"
)
_VERBS = (
    r"has|had|can|\w{2,}ed|led|won|wrote|held|made|gave|became|began|sold|took|stars|plays|includes|"
    r"features|contains|belongs"
)
_PLACE = r"in (?:what|which) (?:year|city|country|state|town|month)"
_PREPOSITIONS = "in|to|of|by|for|from|on|at|with|as|is|was|are|were"

_BEING = re.compile(rf"{_WH} ({_BE}) (?!it\b|there\b)(.+)", re.I)
_SUBJECT = re.compile(r"who ((?!(?:is|was|are|were|did|do|does|has|have|had|will)\b).+)", re.I)
_KIND = re.compile(rf"(?:what|which) (?:[\w'’-]+ ){{1,3}}?({_BE}|{_VERBS}) (.+)", re.I)
_WHEN = re.compile(rf"(?:when|where|{_PLACE}) ({_BE}) (.+?) ({_DONE})\b(.*)", re.I)
_WHERE = re.compile(rf"where ({_BE}) (.+)", re.I)
_OPEN_END = re.compile(r".* (?:\w+ing|of|in|by|for|from|with|to|on|at|as)", re.I)
_IN_PLACE = re.compile(rf"(.*\b(?:{_PREPOSITIONS})) (?:what|which|who|whom)(?: [\w'’-]+){{0,5}}", re.I)
_AUXILIARY = re.compile(r"\b(?:did|do|does|that|who|whose)\b", re.I)
_BEGINS = re.compile(
    rf"(?:{_WH}|when|where|how|why|whose|whom|\w+ (?:what|which|whose)|{_BE}|did|do|does|are)\b", re.I
)


def statement(question: str, answer: str) -> str | None:
    """The claim that `answer` is the answer to `question`, without a full stop; None where no rule fits."""
    asked = " ".join(question.split()).rstrip("?. ")
    said = " ".join(answer.split()).rstrip(". ")
    if not asked or not said or " or " in asked or "?" in asked or said.lower() in ("yes", "no"):
        return None
    found = _told(asked, said)
    return found[0].upper() + found[1:] if found else None


def quoted(question: str, answer: str) -> str:
    """A claim with the question in it."""
    asked = " ".join(question.split()).rstrip("?. ")
    return f'The answer to the question "{asked}?" is {" ".join(answer.split()).rstrip(". ")}'


def _told(asked: str, said: str) -> str | None:
    if when := _WHEN.fullmatch(asked):
        be, subject, done, rest = when.groups()
        place = "on " if asked.lower().startswith("when") and not re.fullmatch(r"\d{4}", said) else "in "
        place = "" if said.lower().startswith(("in ", "on ", "at ")) else place
        return f"{subject} {be} {done}{rest} {place}{said}"
    if where := _WHERE.fullmatch(asked):
        return f"{where[2]} {where[1]} in {said}"
    if not _BEGINS.match(asked):
        continued = _IN_PLACE.fullmatch(asked)
        return f"{continued[1]} {said}" if continued else None
    if _OPEN_END.fullmatch(asked):
        return None
    if found := _BEING.fullmatch(asked) or _SUBJECT.fullmatch(asked):
        return " ".join((said, *found.groups()))
    if kind := _KIND.fullmatch(asked):
        before = asked[: kind.start(1)].partition(" ")[2]
        return None if _AUXILIARY.search(before) else f"{said} {kind[1]} {kind[2]}"
    return None
