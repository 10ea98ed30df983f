"""What a model learns from: the rows that a question gives, or the reason why it gives none.

Imitation, a row of one completion:

sft          the accepted answer
r-tuning     the accepted answer, "I don't know" where the question is out of knowledge
rft          an own sample that is right; where the question is out of knowledge, an own sample that abstains

Preference, a row of a better completion over a worse one, both of the model's own samples:

correctness  a right answer over a wrong one; where the question is out of knowledge, "I don't know" over a
             wrong one

All are TruthRL's baselines (arXiv:2509.25760, section 4.1; its R-Tuning is not that paper's own).  A sample
that could not be graded is in no row.  Rows that say themselves what is learned are `tuning.given`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from factrl.types import Example, Label

INVALID = "invalid question"
"""The accepted answer of a question on a false premise that has no other."""
UNDECIDED = "the probe could not decide"


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a model wrote, graded.

    Attributes:
        text: the completion.
        length: tokens that the model wrote, without the end token; words where nobody counted tokens.
        truncated: it stopped at the length limit.
        label: what became of the answer; None unless it was graded.
        cause: why it could not be graded; then it has no label.
    """

    text: str
    length: int = 0
    truncated: bool = False
    label: Label | None = None
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class TargetFormat:
    """How an answer is written, and what decides where several samples would do."""

    write: Callable[[str], str] = str  # an answer -> the completion that gives it
    abstention: str = "I don't know"
    draw: random.Random = field(default_factory=lambda: random.Random(0))


Rows = list[Mapping[str, Any]] | str
"""The rows of one question, or in a word or two why it has none."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to make rows."""

    rows: Callable[[Example, Sequence[Candidate], TargetFormat], Rows]
    samples: bool = False  # of the model's own, graded
    needs_ook: bool = False  # whether a question is out of knowledge


def _imitate(sample: Candidate, why: str) -> Rows:
    return [{"completion": sample.text, "truncated": sample.truncated, "why": why}]


def _prefer(chosen: Candidate, rejected: Candidate, why: str) -> Mapping[str, Any]:
    return {
        "chosen": chosen.text,
        "rejected": rejected.text,
        "chosen_truncated": chosen.truncated,
        "rejected_truncated": rejected.truncated,
        "why": why,
    }


def _accepted(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    answer = example.answers[0] if example.answers else INVALID if example.false_premise else ""
    return _imitate(Candidate(target.write(answer)), "accepted answer") if answer else "no accepted answer"


def _accepted_or_abstention(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    if example.ook is None:
        return UNDECIDED
    if example.ook:
        return _imitate(Candidate(target.write(target.abstention)), "out of knowledge: abstention")
    return _accepted(example, samples, target)


def _own(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    if example.ook is None:
        return UNDECIDED
    wanted, word = ("abstained", "abstaining") if example.ook else ("correct", "right")
    fitting = [sample for sample in samples if sample.label == wanted]
    if not any(sample.label for sample in samples):
        return "nothing graded"
    if not fitting:
        return f"no {word} sample" + (" (out of knowledge)" if example.ook else "")
    why = f"own {word} sample, 1 of {len(fitting)} among {len(samples)}"
    return _imitate(target.draw.choice(fitting), why)


def _correctness(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    if example.ook is None:
        return UNDECIDED
    if not any(sample.label for sample in samples):
        return "nothing graded"
    wrong = [sample for sample in samples if sample.label == "incorrect"]
    if not wrong:
        return "no wrong sample"
    if example.ook:
        abstained = Candidate(target.write(target.abstention))
        return [_prefer(abstained, target.draw.choice(wrong), "out of knowledge: abstained over wrong")]
    right = [sample for sample in samples if sample.label == "correct"]
    if not right:
        return "no right sample"
    return [_prefer(target.draw.choice(right), target.draw.choice(wrong), "right over wrong")]


RULES: Mapping[str, Rule] = {
    "sft": Rule(_accepted),
    "r-tuning": Rule(_accepted_or_abstention, needs_ook=True),
    "rft": Rule(_own, samples=True, needs_ook=True),
    "correctness": Rule(_correctness, samples=True, needs_ook=True),
}
"""By the name of a rule, or of a method that has none."""
