"""How sure a model says it is: the words that ask for it, and the one reader of it.

A confidence is what a text says last as "Confidence: 75" or, as RLCR's prompt asks (arXiv:2507.16806), as
`<confidence>0.75</confidence>`.  It is read again wherever it is needed, so that there is one reader and no
column of its own.  A text without a readable confidence states none: a reward floors it, as it is the
policy's own text, and an evaluation counts it and leaves it out of every mean.
"""

from __future__ import annotations

import re

from factrl.text import tag

ASKED = (
    "\n\nThen write, on a line of its own, how sure you are that your answer is right, from 0 to 100, "
    "as: Confidence: 75"
)
TOKENS = 16  # that it takes
# A comma may be a decimal point; what goes on as another number ("80-90") is no confidence.
_NUMBER = (
    r"(?P<{0}>\d{{1,3}}(?:[.,]\d{{1,6}})?|[.,]\d{{1,6}})"
    r"(?:\s{{0,2}}(?P<{0}_percent>[%٪％]|per\s?cent\b)"
    r"|\s{{0,2}}(?:/|out of)\s{{0,2}}(?P<{0}_most>100|10|1)(?:[.,]0{{1,3}})?)?"
    r"(?![\w%]|[.,/:]\d|\s?(?:-|–|to)\s?\d)"
)
_LABEL = r"[*_]{0,3}(?:confidence(?: (?:level|score))?|置信度|信心)[*_\s]{0,4}[:：=][*_\s]{0,4}"
_SURE = re.compile(
    rf"{_LABEL}[~≈]?(?:{_NUMBER.format('said')}[*_]{{0,4}}(?:\.(?=\s|$))?|(?P<unread>[^\w\s]?\d))"
    rf"|<confidence>\s{{0,4}}{_NUMBER.format('tag')}\s{{0,4}}</confidence>",
    re.I,
)


def asks_confidence(prompt: str) -> bool:
    """Whether a prompt already asks for a confidence in a form that `stated_confidence` reads."""
    return "<confidence>" in prompt or "Confidence:" in prompt


def stated_confidence(text: str) -> tuple[str, float | None]:
    """The text without its last stated confidence, and that as a share from 0 to 1, None without one.

    It is read from 0 to 100, or to what follows a slash; fractions up to 1 (0.9 or 0,9) are shares already.
    In the tag a number is a share unless it has a sign of percent or a slash.  A block `<analysis>` directly
    before the tag is removed with it.

    >>> stated_confidence("Oslo\\nConfidence: 75")
    ('Oslo', 0.75)
    """
    matches = list(_SURE.finditer(text))
    if not matches or matches[-1]["unread"]:
        return text, None
    last = matches[-1]
    name = "said" if last["said"] else "tag"
    percent, most = last[f"{name}_percent"], last[f"{name}_most"]
    number = float(last[name].replace(",", "."))
    share = not percent and most is None and (name == "tag" or (not last[name].isdecimal() and number <= 1))
    sure = number if share else number / float(most or 100)
    if sure > 1:
        return text, None
    before = text[: last.start()]
    analysis = tag(before, "analysis") if name == "tag" else None
    if analysis and not before[analysis.end + len("</analysis>") :].strip():
        before = before[: analysis.start - len("<analysis>")]
    return (before + text[last.end() :]).strip(), sure
