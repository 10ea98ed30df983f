"""When a question has been asked often enough to say whether a model knows its answer."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from factrl.types import Label

LARGEST_ROUND = 64  # samples of one question that are asked together

Stop = Literal["first_correct", "confidence", "all_samples"]


@dataclass(frozen=True)
class Stopping:
    """When a question has been asked enough.

    Args:
        samples: answers per question, at most; TruthRL has 256.
        first_correct: stop at the first correct one.
        confidence: see `wrong_enough`; 1 keeps asking, so that the labels are exactly those of all samples.
    """

    samples: int = 256
    first_correct: bool = True
    confidence: float = 1.0

    @property
    def full(self) -> bool:
        """Whether every question gets all samples."""
        return not self.first_correct and self.confidence == 1

    @functools.cached_property
    def rounds(self) -> Sequence[range]:
        """The numbers of the samples that are asked together: four, four, eight, sixteen, …

        Small first rounds save answers to what is known, while every round reads the question again: where
        nothing stops at a correct answer, all rounds are large.
        """
        first, enough, rounds = 0, wrong_enough(self.samples, self.confidence), []
        while first < self.samples:
            size = min(max(4, first), LARGEST_ROUND) if self.first_correct else LARGEST_ROUND
            end = min(self.samples, first + size)
            if first < enough < end:
                end = enough
            rounds.append(range(first, end))
            first = end
        return rounds

    def why(self, labels: Sequence[Label | None]) -> Stop | None:
        """Why no more is asked after samples with these labels; None when more is.

        Args:
            labels: None where a sample could not be graded.
        """
        if len(labels) >= self.samples:
            return "all_samples"
        if self.first_correct and "correct" in labels:
            return "first_correct"
        graded = len(labels) - labels.count(None)
        if "correct" not in labels and graded >= wrong_enough(self.samples, self.confidence):
            return "confidence"
        return None


@functools.cache
def wrong_enough(samples: int, confidence: float) -> int:
    """How many wrong answers, and no correct one, are enough to call a question out of knowledge.

    Let k of n samples be wrong.  The early label differs from that of all n where one of the other n - k is
    correct, and at a pass rate of 1 - x that happens with probability x^k - x^n.  No x makes it larger than
    (1 - k/n) (k/n)^(k / (n - k)), about (1 - k/n) / e, and this bound must not exceed 1 - confidence.  So
    for every question, whatever its pass rate, the label is that of all n samples at least as often as
    `confidence` says, and nothing has to be assumed about pass rates.

    A statement about the questions that were closed early would need such an assumption: under even odds
    for every pass rate, the chance that the rest holds a correct answer is (n - k) / (n + 1), which allows no
    earlier stop.  An upper limit of the pass rate is no shortcut either: k wrong answers say little about
    rates of 1 / n, which are what the label depends on.
    """
    if confidence >= 1:
        return samples
    shares = (k / samples for k in range(samples))
    risks = ((1 - share) * share ** (share / (1 - share)) for share in shares)
    return next((k for k, risk in enumerate(risks) if risk <= 1 - confidence), samples)
