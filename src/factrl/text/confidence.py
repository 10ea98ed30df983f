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
# A comma may be a decimal point.
_NUMBER = re.compile(
    r"[~≈]?(?P<number>\d{1,3}(?:[.,]\d{1,6})?|[.,]\d{1,6})"
    r"(?:\s{0,2}(?P<percent>[%٪％]|per\s?cent)|\s{0,2}(?:/|out of)\s{0,2}(?P<most>100|10|1)(?:[.,]0{1,3})?)?",
    re.I,
)
_LABEL = r"[*_]{0,3}(?:confidence(?: (?:level|score))?|置信度|信心)[*_\s]{0,4}[:：=]"
# In a line that does not begin with it, the label stands before a number; what it says ends with its clause.
_SURE = re.compile(
    rf"(?:^[ \t>#-]{{0,8}}{_LABEL}|{_LABEL}(?=\W{{0,5}}\d))(?:\s{{1,4}}(?=[*_~≈.,]{{0,4}}\d))?"
    r"(?P<said>(?:[^\n.。<()\[\]]|\.(?=\d)|[(\[][^\n()\[\]]{0,99}[)\]]){0,200})[.。]?[*_]{0,4}"
    r"|<confidence>(?P<tag>[^<>]{0,99})</confidence>",
    re.I | re.M,
)
_ASIDE = re.compile(r"[,，](?!\d)|[;；:：(—]| [-–] ")  # what stands behind it and is no number is said of it


def asks_confidence(prompt: str) -> bool:
    """Whether a prompt already asks for a confidence in a form that `stated_confidence` reads."""
    return "<confidence>" in prompt or "Confidence:" in prompt


def stated_confidence(text: str) -> tuple[str, float | None]:
    """The text without its last stated confidence, and that as a share from 0 to 1, None without one.

    It is one number, alone up to the end of its line or clause, from 0 to 100 or to what follows a slash;
    fractions up to 1 (0.9 or 0,9) are shares already.  In the tag a number is a share unless it has a sign of
    percent or a slash.  Anything else ("70-80", "3 out of 4", "high") is taken off the text too, and states
    none.  A block `<analysis>` directly before the tag is removed with it.

    >>> stated_confidence("Oslo\\nConfidence: 75"), stated_confidence("Oslo\\nConfidence: 75 or 80")
    (('Oslo', 0.75), ('Oslo', None))
    """
    matches = list(_SURE.finditer(text))
    if not matches:
        return text, None
    last = matches[-1]
    before = text[: last.start()]
    analysis = tag(before, "analysis") if last["tag"] is not None else None
    if analysis and not before[analysis.end + len("</analysis>") :].strip():
        before = before[: analysis.start - len("<analysis>")]
    rest, sure = (before + text[last.end() :]).strip(), _share(last)
    return (text, None) if sure is None and not rest else (rest, sure)


def _share(stated: re.Match[str]) -> float | None:
    """The share that is stated; None where that is no single number up to 1 or 100 %."""
    tagged = stated["said"] is None
    said, *aside = [stated["tag"]] if tagged else _ASIDE.split(stated["said"], maxsplit=1)
    match = _NUMBER.fullmatch(said.strip("*_ \t\n"))
    if match is None or any(map(str.isdecimal, "".join(aside))):
        return None
    number = float(match["number"].replace(",", "."))
    plain = not match["percent"] and match["most"] is None
    if not (plain and (tagged or (number <= 1 and not match["number"].isdecimal()))):
        number /= float(match["most"] or 100)
    return number if number <= 1 else None
