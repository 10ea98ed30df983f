"""Claims from questions: what somebody says who answers a question, as a sentence.

Rules for the commonest forms of English questions, those of people (`Who wrote Emma?`) and those that
continue a sentence (`Emma was written by which author?`).  Everything else has no statement; `quoted` makes
one that nobody would write but that has the same truth.  Questions of yes or no are `yes_and_no`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

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

_YES_OR_NO = re.compile(
    r"(is|are|was|were|can|could|do|does|did|has|have|had|will|would|should|must|may|might) (\S+ .+)", re.I
)
_PRONOUN = re.compile(r"there|it|they|you|we|u|i|he|she|this|that|anyone|everyone", re.I)
_FUNCTION_WORD = re.compile(
    r"an?|the|of|in|on|at|to|for|by|from|with|and|or|as|is|are|was|were|be|been|do|does|did|have|has|had|"
    r"can|will|not"
)
_WORD = re.compile(r"[\w'’.-]+")
_SUBJECT_WORDS = 30  # of the longest subject that is looked for in a passage


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


def yes_and_no(question: str, text: str) -> tuple[str, str] | None:
    """What is said by a yes and by a no to a question; None where no rule fits.

    Args:
        text: of the passage.  The subject of the question ends where the words that the passage has too do;
            no rule else tells it from what follows.
    """
    found = _YES_OR_NO.fullmatch(" ".join(question.split()).rstrip("?. "))
    if found is None or " or " in question:
        return None
    does, words = found[1].lower(), found[2].split()
    end = 1 if _PRONOUN.fullmatch(words[0]) else _subject_end([word.lower() for word in words], text.lower())
    if end is None or words[end].lower() in ("and", "of"):
        return None
    subject, rest = " ".join(words[:end]), " ".join(words[end:])
    subject = subject[0].upper() + subject[1:]
    return f"{subject} {does} {rest}", f"{subject} {does} not {rest}"


def _subject_end(words: Sequence[str], text: str) -> int | None:
    """Where the longest run of words ends that the text has too; one of the first four words begins it."""
    held = f" {' '.join(word.strip('.-') for word in _WORD.findall(text))} "
    most, found = 0, None
    for start in range(min(4, len(words) - 1)):
        for end in range(min(len(words) - 1, start + _SUBJECT_WORDS), start, -1):
            run = words[start:end]
            if not _FUNCTION_WORD.fullmatch(run[-1]) and f" {' '.join(run)} " in held:
                size = sum(not _FUNCTION_WORD.fullmatch(word) for word in run)
                if size > most:
                    most, found = size, end
                break
    return found
