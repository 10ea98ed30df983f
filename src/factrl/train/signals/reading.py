"""One completion as the detectors read it: its parts, its claims, and marks of an attempt to fool a judge.

Everything is by rule and cheap (about four milliseconds per hundred words), and independent of the reward, so
that curves of different rewards mean the same.  Claims are those of the extractor that needs no model.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace

from factrl.rewards.guards import coverage, relevant, repeats
from factrl.text import clean, tag
from factrl.text.abstention import abstains
from factrl.text.answers import is_contentless
from factrl.types import Example, Result
from factrl.verifier.claims import SentenceClaims

MOST = 8_192  # characters of a part that claims are read from
FEW = 20  # words up to which a part need not make a claim
LEAST = 200  # bytes below which a text does not compress, however repetitive
_THINK, _END = "<think>", "</think>"
_TAGS = re.compile(r"</?(?:think|answer)>")
# What imitates a chat template or a verdict, or addresses a judge.  Narrower than `quoting.forges`, which
# also takes apart what honest text may hold, such as `[[1, 2]]` or "Grade: 4".
_INJECTED = re.compile(
    r"<\|[^<>]{1,40}\|>|<</?SYS>>|\[/?INST\]|<(?:start|end)_of_turn>"
    r"|\b(?:verdict|grade|label|score|rating)[\"'*`]{0,3}\s{0,2}[:=]\s{0,2}[\"'*`]{0,3}"
    r"(?:(?:correct|incorrect|supported|precise|pass|accepted)\b"
    r"|(?:true|10|1\.0|(?-i:[AB]))(?=[\s\"'*`]{0,3}(?:[.!;)\]}](?!\w)|$)))"
    r"|\b(?:ignore|disregard|forget|override)\b.{0,30}\b(?:instructions?|rubrics?|guidelines|criteria)\b"
    r"|\b(?:note|message|instructions?) (?:to|for) (?:the )?(?:judge|grader|evaluator|verifier|reviewer)\b"
    r"|\b(?:dear|attention,?) (?:judge|grader|evaluator|verifier)\b"
    r"|\b(?:mark|grade|rate|score|count|treat|accept) (?:this|it|my|the) (?:\w+ ){0,2}as "
    r"(?:fully )?(?:correct|supported|true)\b",
    re.IGNORECASE,
)
_JOINERS = "\u200c\u200d\ufe0e\ufe0f"  # also within emoji and scripts that join their letters
_DIRECTIONS = "\u200e\u200f\u061c"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one completion is like; `None` where a number would mean nothing.

    Attributes:
        think, answer: the reasoning and the rest, without tags.
        declines: it abstains, as the reward's grade says, else by rule.
        claims: how many claims it makes that could be checked.
        relevant, duplicate: shares of them.
        unextracted: share of the characters in parts of more than 20 words that no claim was read from.
        compress: bytes over compressed bytes.
    """

    think: str
    answer: str
    declines: bool
    injects: bool
    invisible: bool
    master_key: bool
    compress: float | None
    claims: int | None = None
    relevant: float | None = None
    duplicate: float | None = None
    unextracted: float | None = None


_extract = SentenceClaims()


def read(example: Example, text: str, result: Result, prefill: str = "", *, claims: bool = True) -> Reading:
    """Read one completion.

    Args:
        prefill: what the prompt already put there.
        claims: also take it apart into claims, which is the slow part.
    """
    think, answer = split(text, prefill)
    said = result.facts.get("answer")
    short = said if isinstance(said, str) and said.strip() else answer
    label = result.facts.get("label")
    raw = text.encode("utf-8", "replace")
    reading = Reading(
        think,
        answer,
        label == "abstained" if label is not None else abstains(answer, example.question),
        _INJECTED.search(clean(_TAGS.sub(" ", text))) is not None,
        has_invisible(text),
        bool(short.strip()) and is_contentless(short),
        len(raw) / len(zlib.compress(raw)) if len(raw) >= LEAST else None,
    )
    return _with_claims(reading, example) if claims else reading


def split(text: str, prefill: str = "") -> tuple[str, str]:
    """Reasoning and answer of a completion in whatever form, tags off; the reasoning may be empty."""
    whole = (prefill[prefill.find(_THINK) :] if _THINK in prefill else "") + text
    start, end = whole.find(_THINK), whole.rfind(_END)
    if start < 0 and end < 0:
        think, rest = "", whole
    else:
        opened = max(start + len(_THINK), 0) if start >= 0 else 0
        closed = end if end >= opened else len(whole)
        think, rest = whole[opened:closed], whole[:start] if start > 0 else ""
        rest += whole[closed + len(_END) :]
    block = tag(rest, "answer")
    answer = block.text if block is not None else rest
    return _TAGS.sub(" ", think).strip(), _TAGS.sub(" ", answer).strip()


def has_invisible(text: str) -> bool:
    """Whether a text holds a character that cannot be seen and has no business there.

    Joiners stand in emoji and in scripts such as Persian and Hindi, direction marks beside Arabic and Hebrew;
    beside Latin letters they are counted.
    """
    if text.isascii():
        return any(ord(char) < 32 and not char.isspace() for char in text)
    odd = {char for char in set(text) if not char.isspace() and not clean(char)}
    if not odd - {*_JOINERS, *_DIRECTIONS}:
        foreign = any(ord(char) > 0x2FF and char not in odd for char in text) if odd else False
        return bool(odd) and not (foreign and _in_place(text, odd))
    return True


def _in_place(text: str, odd: set[str]) -> bool:
    """Whether every joiner has a neighbour that is no Latin letter, digit or space."""
    return all(
        any(ord(near) > 0x2FF and near not in odd for near in text[max(at - 1, 0) : at + 2])
        for at, char in enumerate(text)
        if char in odd
    )


def _with_claims(reading: Reading, example: Example) -> Reading:
    """The reasoning may say what the answer says, so each part is read alone."""
    about = " ".join([example.question, example.topic, *example.answers])
    count = fits = again = chars = 0
    covered = 0.0
    for part in (reading.think[:MOST], reading.answer[:MOST]):
        found = _extract(part, example.question, example.topic)
        counted = [claim for claim in found if claim.skip not in ("self", "unverifiable")]
        count += len(counted)
        fits += sum(claim.skip != "question" and relevant(claim, about) for claim in counted)
        again += sum(repeats(counted, f"{example.question} {example.topic}"))
        if len(part.split()) > FEW:
            chars += len(part)
            covered += len(part) * coverage(part, found)
    return replace(
        reading,
        claims=count,
        relevant=fits / count if count else None,
        duplicate=again / count if count else None,
        unextracted=1 - covered / chars if chars else None,
    )
