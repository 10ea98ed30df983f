"""The numbers of a benchmark, each with its interval and the count behind it, from graded answers.

With one sample per question, rates carry Wilson intervals and everything else a bootstrap over questions.
With several, a rate is the mean over questions of the share among a question's samples (Avg@k), and its
interval comes from a bootstrap over questions, as samples of one question are not independent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from factrl.errors import DataError, nearest
from factrl.evals.catalogue import is_hopeless
from factrl.evals.metrics import (
    LABELS,
    OUTCOME_STATISTICS,
    Better,
    Floats,
    Interval,
    Number,
    bootstrap,
    bootstraps,
    short_form,
    wilson,
)
from factrl.evals.probe import Probed, ProbeSample
from factrl.evals.samples import EvalSample, by_question
from factrl.text.answers import final_answer, normalize_answer, same_answer
from factrl.types import Example, Label

Numbers = dict[str, Number]
_DRAWS = 500  # subsets of k samples that are looked at; all of them where there are no more
_ABOUT: Mapping[str, tuple[str, Better]] = {
    "accuracy": ("right answers / graded", "higher"),
    "abstention": ("declined / graded", "neither"),
    "hallucination": ("wrong answers / graded", "lower"),
    "truthfulness": ("accuracy − hallucination; the Omniscience index", "higher"),
    "correct_given_attempted": ("right answers / answers given", "higher"),
    "f_score": ("harmonic mean of accuracy and correct given attempted", "higher"),
    "true_steps": ("true steps / steps of a reasoning that claim something", "higher"),
    "mc2": ("probability of the true options, normalised", "higher"),
    "chose_first": ("chose the first option, of the replies that name one", "neither"),
    "invalid": ("no answer to read in the text; among the wrong ones", "lower"),
    "cut_off": ("ran into the length limit", "lower"),
    "abstention_recall": ("declined / questions that nobody can answer", "higher"),
    "abstention_precision": ("questions that nobody can answer / declined", "higher"),
    "confidence_stated": ("answers that state one / answers given", "neither"),
    "brier": ("mean of (confidence − right)²", "lower"),
    "ece": ("mean gap between confidence and accuracy, over ten bins", "lower"),
    "auroc": ("how likely a right answer is surer than a wrong one", "higher"),
    "aurc": ("wrong share of what is at least as sure as an answer, mean over answers", "lower"),
    "coverage@90": ("the most of all graded that a threshold keeps, 90 % of it right", "higher"),
}


def numbers_of(kind: str, samples: Sequence[EvalSample]) -> Numbers:
    """Every number of one benchmark, in reading order; what is undefined is left out.

    Args:
        kind: of the benchmark.
        samples: its graded answers.
    """
    usual = [one for one in samples if usual_question(one)]
    weighed = all(one.grade is not None and one.grade.how == "likelihood" for one in usual)
    numbers: Numbers = {}
    if kind in ("choice", "letter", "discrimination"):
        chance = [one.chance for one in samples if one.chance is not None]
        about = f"the right option; by chance {100 * sum(chance) / len(chance):.1f}" if chance else ""
        numbers |= _labels(usual, {"accuracy": about} | ({} if weighed else {"abstention": ""}))
    elif kind == "reasoning":
        numbers |= _labels(usual, {"accuracy": ""})
    elif kind == "short":
        numbers |= _labels(usual)
    if not weighed:
        numbers |= share("invalid", usual, lambda one: one.floored is not None)
    answered = [one for one in samples if one.completion is not None]
    numbers |= share("cut_off", answered, lambda one: getattr(one.completion, "truncated", False))
    for name in values_in(samples):
        every = (mean_value(group, name) for group in by_question(samples).values())
        numbers |= mean(name, [value for value in every if value is not None])
    numbers |= _several(usual)
    if hopeless := [one for one in samples if one.label and is_hopeless(one.example)]:
        declined = [one for one in samples if one.label == "abstained"]
        numbers |= share("abstention_recall", hopeless, lambda one: one.label == "abstained")
        numbers |= share("abstention_precision", declined, lambda one: is_hopeless(one.example))
    odd = [one for one in samples if one.example.false_premise]
    for name, one in _labels(odd, {"accuracy": "", "hallucination": ""}).items():
        numbers[f"false_premise_{name}"] = one
    return numbers


def numbers_by(samples: Sequence[EvalSample], column: str) -> dict[str, Numbers]:
    """By value of a column, or of a field of `Example` such as `ook`, the outcomes of its rows."""
    parts: dict[str, list[EvalSample]] = {}
    for one in samples:
        if value := _part(one.example, column):
            parts.setdefault(value, []).append(one)
    return {value: _labels(part) for value, part in sorted(parts.items())}


def check_parts(examples: Sequence[Example], column: str) -> None:
    """Refuse a column to part the rows by that none of them has.

    Raises:
        DataError: which there are.
    """
    if column and not any(_part(example, column) for example in examples):
        columns = dict.fromkeys(name for example in examples for name in example.meta)
        known = f" (there are: {', '.join(columns)})" if columns else ""
        raise DataError(f"no row has a column {column!r}{nearest(column, columns)}{known}")


def _part(example: Example, column: str) -> str:
    value = example.meta.get(column, getattr(example, column, None)) if column else None
    return "" if value is None else str(value)


def usual_question(sample: EvalSample) -> bool:
    """Whether it has an answer and rests on no false premise; the others have numbers of their own."""
    return not sample.example.false_premise and not is_hopeless(sample.example)


def shares(groups: Sequence[Sequence[EvalSample]]) -> Floats:
    """Mean one-hot labels `(N, 3)` of each question's graded samples; a question without one is left out."""
    rows = [[sample.label for sample in group if sample.label is not None] for group in groups]
    return np.array(
        [[labels.count(label) / len(labels) for label in LABELS] for labels in rows if labels], dtype=float
    ).reshape(-1, 3)


def values_in(samples: Iterable[EvalSample]) -> list[str]:
    """The numbers that single answers have."""
    return list(dict.fromkeys(name for one in samples for name in one.values))


def mean_value(group: Sequence[EvalSample], name: str) -> float | None:
    """Of one of the `values` of a question's answers; None where none of them has it."""
    values = [one.values[name] for one in group if name in one.values]
    return sum(values) / len(values) if values else None


def _labels(samples: Sequence[EvalSample], only: Mapping[str, str] | None = None) -> Numbers:
    """The metrics of `metrics.short_form`; `only` names some, with another description."""
    groups = list(by_question(samples).values())
    means = shares(groups)
    n, attempted = len(means), int((means[:, 1] < 1).sum())
    if not n:
        return {}
    if all(len(group) == 1 for group in groups):
        metrics = short_form([one.grade for one in samples]).metrics
    else:
        metrics = bootstraps(means, OUTCOME_STATISTICS)
    numbers: Numbers = {}
    for name, interval in metrics.items():
        if only is None or name in only:
            count = attempted if name == "correct_given_attempted" else n
            numbers |= number(name, interval, count, (only or {}).get(name, ""))
    return numbers


def share(name: str, samples: Sequence[EvalSample], test: Callable[[EvalSample], bool]) -> Numbers:
    """How many of the graded samples pass a test, by question."""
    groups = by_question(one for one in samples if one.label is not None).values()
    return mean(name, [sum(map(test, group)) / len(group) for group in groups])


def mean(name: str, values: Sequence[float], about: str = "") -> Numbers:
    """The mean of one value per question: as a rate where each is 0 or 1."""
    if not values:
        return {}
    rate = set(values) <= {0.0, 1.0}
    interval = wilson(int(sum(values)), len(values)) if rate else bootstrap(values)
    return number(name, interval, len(values), about)


def number(name: str, interval: Interval | None, n: int, about: str = "") -> Numbers:
    """An interval with what it is of, by name; nothing where it is undefined."""
    usual, better = _ABOUT.get(name, ("", "higher"))
    return (
        {}
        if interval is None
        else {name: Number(**asdict(interval), n=n, about=about or usual, better=better)}
    )


# -- Several answers to a question -------------------------------------------------------------------


def _several(samples: Sequence[EvalSample]) -> Numbers:
    """majority@k, for questions that were answered several times; their accuracy is Avg@k."""
    groups = by_question(samples).values()
    k = max(map(len, groups), default=1)
    won = [vote for vote in map(majority, groups) if vote is not None] if k > 1 else []
    return mean(f"majority@{k}", won, "the most frequent answer of a question's samples is right")


def majority(group: Sequence[EvalSample]) -> float | None:
    """How likely the most frequent answer is right; leaders of equal length count in equal parts.

    None when no sample could be graded.
    """
    labelled: list[tuple[Label | None, str]] = [(one.label, one.answer) for one in group if one.label]
    votes: dict[int, list[bool]] = {}
    for vote, (label, _) in zip(candidates(labelled), labelled, strict=True):
        votes.setdefault(vote, []).append(label == "correct")
    most = max(map(len, votes.values()), default=0)
    worth = [sum(right) / most for right in votes.values() if len(right) == most]
    return sum(worth) / len(worth) if worth else None


def candidates(answers: Sequence[tuple[Label | None, str]]) -> list[int]:
    """The number of the candidate that each answer votes for, from 0 in their order, from labels and answers.

    Abstentions are one candidate; other answers vote together when they are certainly the same one
    (`factrl.text.answers.same_answer`), whatever became of them.

    >>> candidates([("correct", "Rome"), ("abstained", "I don't know."), ("correct", "It is Rome.")])
    [0, 1, 0]
    """
    named = [None if label == "abstained" else final_answer(answer) for label, answer in answers]
    numbers: dict[str | None, int] = {}
    alike: dict[str, list[str]] = {}  # `same_answer` is slow, and hardly ever holds outside of these
    for answer in named:
        if answer in numbers:
            continue
        near = [] if answer is None else alike.setdefault(normalize_answer(answer) or answer, [])
        same = next((other for other in near if answer is not None and same_answer(other, answer)), None)
        numbers[answer] = len({*numbers.values()}) if same is None else numbers[same]
        if answer is not None:
            near.append(answer)
    return [numbers[answer] for answer in named]


# -- The majority of k answers ------------------------------------------------------------------------


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

    TruthRL, arXiv:2509.25760, Figure 2, whose code is not released, so the vote is ours: see `candidates`.
    Which of several leaders wins is drawn, so a tie counts for each of them in equal parts.

    Samples without a grade do not vote: a question with fewer than k graded ones votes with all that it has.
    Questions without a label (`ook` None) are left out.

    Args:
        probed: questions that all got the same number of samples; where a probe stopped at the first correct
            answer, the samples are not a fair draw.
    """
    sizes = {len(probe.samples) for probe in probed}
    voters = [probe for probe in probed if probe.ook is not None and probe.graded]
    if len(sizes) != 1 or not voters:
        raise ValueError(f"a majority needs a full probe with graded answers, not {sorted(sizes)} samples")
    largest = sizes.pop()
    steps = [*itertools.takewhile(lambda k: k < largest, (2**i for i in itertools.count())), largest]
    rng = np.random.default_rng(seed)
    shares = np.zeros((len(steps), len(LABELS)))
    for probe in voters:
        votes, worth = _votes([s for s in probe.samples if s.label is not None])
        for step, k in enumerate(steps):
            chosen = _subsets(len(votes), min(k, len(votes)), rng)
            shares[step] += _elected(votes[chosen], len(worth)) @ worth
    shares /= len(voters)
    return [Majority(k, *map(float, row)) for k, row in zip(steps, shares, strict=True)]


def _votes(samples: Sequence[ProbeSample]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Each sample's candidate, and (candidates, 3) shares of their samples by outcome."""
    votes = candidates([(s.label, s.answer) for s in samples if s.label is not None])
    worth = np.zeros((max(votes) + 1, len(LABELS)))
    for vote, sample in zip(votes, samples, strict=True):
        worth[vote] += [sample.label == outcome for outcome in LABELS]
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
