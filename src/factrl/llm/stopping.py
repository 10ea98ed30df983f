"""When to stop asking: a model's knowledge of a question is settled, or the model or its judge is gone."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from factrl.errors import TooManyMasked
from factrl.types import Label

LARGEST_ROUND = 64  # samples of one question that are asked together
MANY = 20  # questions, of which more than half cannot fail by chance
_OURS = {
    *("connection", "timeout", "auth", "redirect", "bad_body", "breaker_open", "budget", "local_model"),
}

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


def is_ours(cause: str | None) -> bool:
    """Whether a sample has no grade because of a server, a key or a budget, and not because of its text."""
    return cause is not None and (cause in _OURS or cause.startswith("http_"))


class Outage:
    """Tells a model or a judge that is gone from questions that cannot be answered or graded.

    A part of a probe may hold few questions, so those of parts in a row are taken together.
    """

    def __init__(self) -> None:
        self._questions, self._causes, self._samples = set[str](), Counter[str](), 0

    def suspected(self, part: Mapping[str, Sequence[str | None]]) -> bool:
        """Whether most samples of the part, and of the parts directly before it, failed on our side.

        Args:
            part: question -> why each of its samples has no grade, None where one has; without questions of
                which every earlier sample failed so, as more of the same would say nothing.

        Raises:
            TooManyMasked: they did, and that are enough questions.
        """
        if not part:
            return bool(self._questions)
        told = [cause for group in part.values() for cause in group]
        failed = Counter(cause for cause in told if cause and is_ours(cause))
        if failed.total() <= len(told) / 2:
            self._questions, self._causes, self._samples = set[str](), Counter[str](), 0
            return False
        self._questions |= part.keys()
        self._causes += failed
        self._samples += len(told)
        if len(self._questions) >= MANY:
            tally = ", ".join(f"{count} {cause}" for cause, count in self._causes.most_common())
            raise TooManyMasked(
                f"{self._causes.total()} of {self._samples} answers could not be written or graded "
                f"({tally}); they are not kept, and the same command goes on from here"
            )
        return True
