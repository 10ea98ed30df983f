"""What the majority of k answers comes to, for growing k (TruthRL, arXiv 2509.25760, Figure 2).

The figure's code is not released, so the vote is ours: see `factrl.evals.numbers.candidates`.  Which of
several leaders wins is drawn, so a tie counts for each of them in equal parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from factrl.evals.numbers import candidates
from factrl.evals.probe import Probed, ProbeSample
from factrl.types import Label

_DRAWS = 500  # subsets of k samples that are looked at; all of them where there are no more
_OUTCOMES: tuple[Label, ...] = ("correct", "abstained", "incorrect")


@dataclass(frozen=True, slots=True)
class Majority:
    """The vote of k answers: shares of the questions, which sum to 1."""

    k: int
    accuracy: float
    abstention: float
    hallucination: float

    @property
    def truthfulness(self) -> float:
        """Accuracy minus hallucination."""
        return self.accuracy - self.hallucination


def majority_curve(probed: Sequence[Probed], *, seed: int = 0) -> list[Majority]:
    """Votes of 1, 2, 4, … and of all samples, expected over the choice of k samples of each question.

    Samples without a grade do not vote: a question with fewer than k graded ones votes with all that it has.
    Questions without a label (`ook` None) are left out.

    Args:
        probed: questions that all got the same number of samples; where a probe stopped at the first correct
            answer, the samples are not a fair draw.
    """
    sizes = {len(found.samples) for found in probed}
    voters = [found for found in probed if found.ook is not None and found.graded]
    if len(sizes) != 1 or not voters:
        raise ValueError(f"a majority needs a full probe with graded answers, not {sorted(sizes)} samples")
    largest = sizes.pop()
    steps = [*itertools.takewhile(lambda k: k < largest, (2**i for i in itertools.count())), largest]
    rng = np.random.default_rng(seed)
    shares = np.zeros((len(steps), len(_OUTCOMES)))
    for found in voters:
        votes, worth = _votes([s for s in found.samples if s.label is not None])
        for step, k in enumerate(steps):
            chosen = _subsets(len(votes), min(k, len(votes)), rng)
            shares[step] += _elected(votes[chosen], len(worth)) @ worth
    shares /= len(voters)
    return [Majority(k, *map(float, row)) for k, row in zip(steps, shares, strict=True)]


def _votes(samples: Sequence[ProbeSample]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Each sample's candidate, and (candidates, 3) shares of their samples by outcome."""
    votes = candidates([(s.label, s.answer) for s in samples if s.label is not None])
    worth = np.zeros((max(votes) + 1, len(_OUTCOMES)))
    for vote, sample in zip(votes, samples, strict=True):
        worth[vote] += [sample.label == outcome for outcome in _OUTCOMES]
    return np.array(votes), worth / worth.sum(axis=1, keepdims=True)


def _subsets(n: int, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`(subsets, k)` places among n: all subsets where they are few, which is exact, else random ones."""
    if math.comb(n, k) <= _DRAWS:
        return np.array([*itertools.combinations(range(n), k)])
    return rng.permuted(np.tile(np.arange(n), (_DRAWS, 1)), axis=1)[:, :k]


def _elected(votes: NDArray[np.int64], candidates: int) -> NDArray[np.float64]:
    """How likely each candidate is to win, over the rows of votes; leaders share a row."""
    rows = np.arange(len(votes))[:, None]
    counts = np.bincount((rows * candidates + votes).ravel(), minlength=len(votes) * candidates)
    counts = counts.reshape(len(votes), candidates)
    leads = counts == counts.max(axis=1, keepdims=True)
    return (leads / leads.sum(axis=1, keepdims=True)).mean(axis=0)
