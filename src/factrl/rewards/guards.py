"""Guards against cheating, as pieces for a reward of your own.

    from factrl.rewards import guards
    claims = SentenceClaims()(text, example.question, example.topic)
    again = guards.repeats(claims, about=example.question)
    read = guards.coverage(text, claims)

| guard | piece |
|---|---|
| coverage of extraction: nothing is said where nobody reads | `coverage` |
| relevance and novelty | `relevant`, `repeats`; `factrl.verifier.claims.marks.mark` for what the question
says |
| one exclusive class for an answer | `factrl.Grader`: correct, incorrect or abstained, never two |
| joint coherence: true parts, a false whole | `contradictions`; `WholeText` with a `Verifier` |
| semantic de-duplication, with a check of numbers, names and negations | `repeats` |
| reasoning and answer both verified | `think_and_answer` |
| contentless text, forged verdicts | `factrl.text.answers.is_contentless`, `factrl.llm.quoting` |
| strict tags | `factrl.text.think_answer` |

The word rules are cheap filters for English, not an understanding: a text that knows them passes them.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from factrl.text import Blocks, clean
from factrl.text.abstention import abstains
from factrl.text.sentences import sentences
from factrl.types import Claim, Passage
from factrl.verifier.claims.marks import content_words, mark
from factrl.verifier.report import Report

_READ = (None, "question", "repeat")  # marks of a claim that was read, whether or not it is judged
_NAME = re.compile(r"(?<![.!?:] )(?<!^)\b[A-Z][\w'’-]*")  # a capital that does not open a sentence
_DENIALS = frozenset({"not", "never", "no", "neither", "nor", "without"})
_ONCE = content_words("born birth died death founded established")  # what has one date
_YEAR = re.compile(r"1\d{3}|20\d\d")
_SAME = 0.5  # share of new words up to which a claim says what another has said


def coverage(text: str, claims: Sequence[Claim]) -> float:
    """Share of the visible characters of a text that stand in sentences which a claim was read from.

    Code, table rows without words, hedges, remarks on the text itself and whatever else an extractor passes
    over are not covered.  Guard: `Score(…, floored="…")`, or count the rest as unsupported, when it is low.

    Args:
        text: what was taken apart.
        claims: all claims of it, marked ones too; their `sentence` counts the sentences of this text.

    Returns:
        0 to 1; 1 for a text without a visible character.
    """
    read = {claim.sentence for claim in claims if claim.skip in _READ}
    total = _visible(text)
    found = sum(_visible(text[s.start : s.end]) for n, s in enumerate(sentences(text)) if n in read)
    return min(found / total, 1.0) if total else 1.0


def _visible(text: str) -> int:
    return len("".join(text.split()))


def relevant(claim: Claim, about: str) -> bool:
    """Whether a claim shares a content word with what it should be about.

    Args:
        about: the question, its topic and its accepted answers in one string.
    """
    return bool(content_words(claim.text) & content_words(about))


def repeats(claims: Sequence[Claim], about: str = "") -> list[bool]:
    """For each claim, whether an earlier one says the same, in the same words or in others.

    It does when at most half of its words, those of `about` left aside, are not in the earlier one, it brings
    no number and no name that the earlier one lacks, and it denies what that denies.  So a paraphrase is a
    repeat, and a near miss ("1867" and "1868", "is" and "is not") is not.  It errs on the strict side: a fact
    that differs by one plain word of few ("lions eat meat", "lions eat grass") is taken for a repeat.

    Args:
        about: the question and its topic, whose words every claim shares.
    """
    of_question = content_words(about)
    stated = _Told()
    repeated = []
    for n, claim in enumerate(claims):
        words, values = content_words(claim.text), _values(claim.text) - of_question
        own = words - of_question - _DENIALS
        # Sets of earlier claims are the bits of integers: going through those claims takes quadratic time.
        alike = stated.any(words) & stated.denying[words & _DENIALS]
        for value in values:
            alike &= stated.having[value]
        again = claim.skip == "repeat" or bool(alike & stated.share(own, math.ceil((1 - _SAME) * len(own))))
        repeated.append(again)
        if not again:
            stated.add(n, words)
    return repeated


class _Told:
    """Claims by their words; a set of them is an integer that has the bit of each."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.having: defaultdict[str, int] = defaultdict(int)
        self.denying: defaultdict[frozenset[str], int] = defaultdict(int)

    @property
    def all(self) -> int:
        return (1 << len(self.places)) - 1

    def add(self, place: int, words: frozenset[str]) -> None:
        bit = 1 << len(self.places)
        self.places.append(place)
        self.denying[words & _DENIALS] |= bit
        for word in words:
            self.having[word] |= bit

    def any(self, words: frozenset[str]) -> int:
        """Those that have one of these words."""
        return reduce(or_, (self.having[word] for word in words), 0)

    def share(self, words: frozenset[str], least: int) -> int:
        """Those that have `least` of these words or more."""
        if not least:
            return self.all
        # Counts in binary, an integer per digit for all claims at once; they start so that `least` overflows.
        digits = len(words).bit_length()
        start = (1 << digits) - least
        counts = [self.all * (start >> digit & 1) for digit in range(digits)]
        enough = 0
        for word in words:
            carry = self.having[word]
            for digit, count in enumerate(counts):
                counts[digit], carry = count ^ carry, count & carry
            enough |= carry
        return enough


def _values(text: str) -> frozenset[str]:
    """What makes two claims of like words different: numbers and names."""
    words = content_words(text)
    names = content_words(" ".join(_NAME.findall(clean(text))))
    return frozenset(w for w in words if w[0].isdigit()) | names


def contradictions(claims: Sequence[Claim]) -> list[tuple[int, int]]:
    """Pairs of claims that cannot both hold: one denies the other, or they date one event differently.

    Each of them may be true of somebody, and a text that says every value of a slot has always said the right
    one; jointly it is wrong.

    Returns:
        Positions in `claims`: of every claim that clashes with an earlier one, after the first of those.
    """
    spelt: dict[tuple[frozenset[str], bool], int] = {}
    dated: defaultdict[frozenset[str], _Told] = defaultdict(_Told)
    pairs = []
    for n, claim in enumerate(claims):
        if claim.skip not in _READ:
            continue
        words = content_words(claim.text)
        bare = words - _DENIALS
        years = frozenset(word for word in bare if _YEAR.fullmatch(word))
        clashing = []
        if bare:
            clashing.append(spelt.get((bare, bare == words)))
            spelt.setdefault((bare, bare != words), n)
        if years and bare & _ONCE:
            same = dated[bare - years]
            others = same.all & ~same.any(years)
            if others:
                clashing.append(same.places[(others & -others).bit_length() - 1])
            same.add(n, years)
        first = min((other for other in clashing if other is not None), default=None)
        if first is not None:
            pairs.append((first, n))
    return pairs


class WholeText:
    """An extractor: the whole text is one claim, so that a judge looks at the parts together.

    `Verifier(WholeText(), search, judge)` is the joint check of a short text; its claim carries the question,
    which says what the text is about.

    Attributes:
        identity: changes with whatever changes the claim.
    """

    identity = "whole-text/1"

    def __call__(self, text: str, question: str = "", topic: str = "") -> list[Claim]:
        """One claim, marked by `factrl.verifier.claims.marks.mark`; none for a text that is empty or
        declines."""
        said = clean(text)
        if not said or abstains(said, question):
            return []
        statement = f"{question} {said}" if question else said
        return mark([Claim(statement, 0, len(text))])


@dataclass(frozen=True)
class Both:
    """What came of the reasoning and of the answer.

    Attributes:
        think, answer: their reports.
    """

    think: Report
    answer: Report

    @property
    def worse(self) -> float | None:
        """The lower of the two precisions; a part that claims nothing is left out, None when both do.

        Raises:
            Unscored: too many verdicts of a part are missing.
        """
        measured = [value for value in self._precisions() if value is not None]
        return min(measured, default=None)

    def _precisions(self) -> Iterator[float | None]:
        for report in (self.think, self.answer):
            if report.claims or report.failure is not None or report.floored:
                yield report.precision


def think_and_answer(
    verify: Callable[..., Report],
    blocks: Blocks,
    question: str = "",
    *,
    topic: str = "",
    evidence: Sequence[str | Passage] | None = None,
) -> Both:
    """Verify the reasoning and the answer, each as a text of its own.

    Pay by `Both.worse`: then neither made-up reasoning before a clean answer nor true reasoning before a
    false one earns what an honest completion does.

    Args:
        verify: a `Verifier`, or anything that is called like one.
        blocks: from `factrl.text.think_answer`, not malformed.

    Raises:
        ValueError: the blocks are malformed; floor such a completion first.
    """
    if blocks.think is None or blocks.answer is None:
        raise ValueError(f"malformed blocks ({blocks.malformed}); floor such a completion")
    parts = (blocks.think.text, blocks.answer.text)
    think, answer = (verify(part, question, topic=topic, evidence=evidence) for part in parts)
    return Both(think, answer)
