"""Preference pairs from a question's own samples: the rules by which papers choose them.

A rule sees the samples of one question, each measured as the rule wants it, and gives pairs or the reason
why there is none.  A sample that could not be measured is in no pair.

correctness     TruthRL, its text (arXiv:2509.25760, section 4.1): a right answer over a wrong one; where the
                question is out of knowledge, "I don't know" over a wrong one
max-min         TruthRL, its code: the sample with the highest reward over the one with the lowest
margin-length   Learning to Reason for Factuality (arXiv:2508.05618): the pair that differs most in
                precision, of those that differ enough in it and little in length
factscore       FactTune-FS (arXiv:2311.08401): every two samples of different FActScore
factscore-ends  KLCF's baseline (arXiv:2509.23765): the highest FActScore over the lowest
klc             KLCF (arXiv:2509.23765): the highest value of its Eq. 11 over the lowest
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from factrl.errors import ConfigError, nearest
from factrl.types import Label

Measure = Literal["grade", "reward", "precision", "klcf"]
"""What a sample is measured by: the grade of its answer, a reward, the share of its claims that are
supported, or KLCF's Eq. 11."""

UNDECIDED = "the probe could not decide"
ROUNDING = 1e-9  # 0.4 - 0.3 is a little over 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """What a model wrote, measured.

    Attributes:
        text: the completion.
        length: tokens that the model wrote, without the end token; words where nobody counted tokens.
        truncated: it stopped at the length limit.
        label: what became of the answer; None unless it was graded.
        value: what a rule ranks by; None unless it was measured, or when it has no value (a text that
            declines has no precision).
        cause: why it could not be measured; then it has neither label nor value.
        floored: why the text itself has the lowest value, such as a form that it does not keep.
    """

    text: str
    length: int = 0
    truncated: bool = False
    label: Label | None = None
    value: float | None = None
    cause: str | None = None
    floored: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two completions of one question, the better one first.

    Attributes:
        why: what makes it the better one.
    """

    chosen: Sample
    rejected: Sample
    why: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What a rule is told beside the samples.

    Attributes:
        ook: the question is out of knowledge; None where no probe said.
        abstention: the completion that says "I don't know".
        draw: where chance decides.
        margin: two samples whose precision differs by no more make no pair.
        length_tolerance: nor do two of lengths l and m with |1 - l/m| over this, l that of the better one.
    """

    ook: bool | None = None
    abstention: str = "I don't know"
    draw: random.Random | None = None
    margin: float = 0.1
    length_tolerance: float = 0.1


Found = Sequence[Pair] | str
"""The pairs of one question, or in a word or two why it has none."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to make pairs.

    Attributes:
        measure: what the samples have to be measured by.
        pairs: the function.
        needs_ook: it has to know whether a question is out of knowledge.
    """

    measure: Measure
    pairs: Callable[[Sequence[Sample], Limits], Found]
    needs_ook: bool = False


def correctness(samples: Sequence[Sample], limits: Limits) -> Found:
    """A drawn right sample over a drawn wrong one; out of knowledge, the abstention over a wrong one."""
    draw = limits.draw or random.Random(0)
    right = [sample for sample in samples if sample.label == "correct"]
    wrong = [sample for sample in samples if sample.label == "incorrect"]
    if limits.ook is None:
        return UNDECIDED
    if not any(sample.label for sample in samples):
        return "nothing graded"
    if not wrong:
        return "no wrong sample"
    if limits.ook:
        return [Pair(Sample(limits.abstention), draw.choice(wrong), "out of knowledge: abstained over wrong")]
    if not right:
        return "no right sample"
    return [Pair(draw.choice(right), draw.choice(wrong), "right over wrong")]


def max_min(samples: Sequence[Sample], limits: Limits) -> Found:
    """The sample of the highest value over that of the lowest, the first where several have it."""
    measured = [(sample.value, sample) for sample in samples if sample.value is not None]
    if len(measured) < 2:
        return "fewer than two samples measured"
    best, chosen = max(measured, key=lambda pair: pair[0])
    worst, rejected = min(measured, key=lambda pair: pair[0])
    if best - worst <= ROUNDING:
        return "all samples equal"
    return [Pair(chosen, rejected, f"{best:.3g} over {worst:.3g}")]


def margin_length(samples: Sequence[Sample], limits: Limits) -> Found:
    """The pair of the largest difference in value, over the margin and of about the same length."""
    best, found = limits.margin + ROUNDING, None
    measured = [(sample.value, sample) for sample in samples if sample.value is not None]
    if len(measured) < 2:
        return "fewer than two samples measured"
    for (a, first), (b, second) in combinations(measured, 2):
        chosen, rejected = (first, second) if a > b else (second, first)
        near = rejected.length and abs(1 - chosen.length / rejected.length) <= (
            limits.length_tolerance + ROUNDING
        )
        if near and abs(a - b) > best:
            best = abs(a - b)
            why = f"{max(a, b):.3g} over {min(a, b):.3g}, lengths {chosen.length} and {rejected.length}"
            found = Pair(chosen, rejected, why)
    return [found] if found else "no pair within margin and length"


def every_two(samples: Sequence[Sample], limits: Limits) -> Found:
    """Every two samples of different value."""
    measured = [(sample.value, sample) for sample in samples if sample.value is not None]
    if len(measured) < 2:
        return "fewer than two samples measured"
    pairs = []
    for (a, first), (b, second) in combinations(measured, 2):
        if abs(a - b) > ROUNDING:
            chosen, rejected = (first, second) if a > b else (second, first)
            pairs.append(Pair(chosen, rejected, f"{max(a, b):.3g} over {min(a, b):.3g}"))
    return pairs or "all samples equal"


RULES: Mapping[str, Rule] = {
    "correctness": Rule("grade", correctness, needs_ook=True),
    "max-min": Rule("reward", max_min),
    "margin-length": Rule("precision", margin_length),
    "factscore": Rule("precision", every_two),
    "factscore-ends": Rule("precision", max_min),
    "klc": Rule("klcf", max_min),
}


def rule_of(name: str) -> Rule:
    """A rule by name.

    Raises:
        ConfigError: there is no such rule.
    """
    if name not in RULES:
        raise ConfigError(f"there is no rule {name!r}{nearest(name, RULES)} (there are: {', '.join(RULES)})")
    return RULES[name]
