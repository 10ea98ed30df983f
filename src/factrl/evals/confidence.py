"""How often answers are right, by how sure of them a model is, and what a threshold on that would keep.

A confidence is what the text states (`factrl.text.confidence`); or the agreement of a question's samples, the
share that gives the most frequent answer, which is then the question's one answer; or the likelihood of the
text, the geometric mean of its tokens' probabilities, without a temperature.  What states none is
counted and in no mean, and no threshold keeps it.

Each question weighs the same, whatever its samples.  At a threshold, *coverage* is the share of all graded
answers that are at least as sure, abstentions being what is never kept, and *risk* the wrong share of those.
`aurc` is the area under risk and coverage of Geifman, Uziel and El-Yaniv (arXiv 1805.08206): the mean, over
the answers that have a confidence, of the risk at each one's own, so ties need no order.  `coverage@90` is
the largest coverage with a risk of at most a tenth, 0 where no threshold has one; as the threshold is chosen
on the same questions, it flatters where they are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from factrl.evals.metrics import Floats, Statistic, bootstraps, ratio
from factrl.evals.numbers import Numbers, candidates, mean, number, share
from factrl.evals.samples import EvalSample, by_question
from factrl.text.confidence import agreement, stated_confidence
from factrl.types import Label

BINS = 10
Source = Literal["stated", "agreement", "likelihood"]
"""Where a confidence is from: the text, the samples of a question, or the probabilities of its tokens."""
Answers = Sequence[Sequence[tuple[float | None, Label]]]
"""By question, how sure each of its graded answers is, from 0 to 1 or None, and what became of it."""


def answers_of(samples: Sequence[EvalSample], source: Source) -> Answers:
    """The graded answers; with `agreement` those that say what most of a question's do, of leaders all."""
    groups = []
    for group in by_question(one for one in samples if one.label).values():
        labelled: list[tuple[Label, str]] = [(one.label, one.answer) for one in group if one.label]
        if source == "agreement":
            surest = agreement(candidates(labelled))
            groups.append(
                [
                    (max(surest), label)
                    for sure, (label, _) in zip(surest, labelled, strict=True)
                    if sure == max(surest)
                ]
            )
        else:
            read = _stated if source == "stated" else lambda one: one.values.get("likelihood")
            groups.append([(read(one), label) for one, (label, _) in zip(group, labelled, strict=True)])
    return groups


def confidence_bins(answers: Answers) -> list[dict[str, Any]]:
    """Outcomes by confidence, in tenths, abstentions kept (TruthRL has such a picture): for each tenth that
    holds an answer or an abstention `low`, `high`, `n` answers, `abstained` beside them, the answers' mean
    confidence `stated`, and how many were `right`, with `right_low` and `right_high`."""
    bins = []
    for at in range(BINS):
        inside = [
            [(sure, label) for sure, label in group if sure is not None and _bin(sure) == at]
            for group in answers
        ]
        attempts = [[one for one in group if one[1] != "abstained"] for group in inside]
        every = [sure for group in attempts for sure, _ in group]
        declined = sum(map(len, inside)) - len(every)
        rates = [sum(label == "correct" for _, label in one) / len(one) for one in attempts if one]
        right = mean("right", rates).get("right")
        if every or declined:
            limits = (right.value, right.low, right.high) if right else (None, None, None)
            stated = sum(every) / len(every) if every else None
            fields = {"low": at / BINS, "high": (at + 1) / BINS, "n": len(every), "abstained": declined}
            shares = dict(zip(("right", "right_low", "right_high"), limits, strict=True))
            bins.append({**fields, "stated": stated, **shares})
    return bins


def confidence_numbers(
    samples: Sequence[EvalSample], source: Source = "stated", answers: Answers | None = None
) -> Numbers:
    """How many answers state a confidence, its calibration, and how well it ranks right before wrong; without
    those that `absent_numbers` gives a reason for.

    Intervals are by resampling questions, as answers to one question are not independent.

    Args:
        answers: what `answers_of` makes of both, where it is known already.
    """
    answers = answers_of(samples, source) if answers is None else answers
    attempts = [one for one in samples if one.label in ("correct", "incorrect")]
    numbers: Numbers = {}
    if source == "stated":
        numbers |= share("confidence_stated", attempts, lambda one: _stated(one) is not None)
    if "aurc" not in absent_numbers(samples, source, answers):
        levels, rows = _shares(answers)
        for name, interval in bootstraps(rows, _statistics(levels)).items():
            numbers |= number(name, interval, len(rows))
    return numbers


def absent_numbers(
    samples: Sequence[EvalSample], source: Source = "stated", answers: Answers | None = None
) -> dict[str, str]:
    """Of the numbers that there are not, by name, why not; arguments are those of `confidence_numbers`."""
    answers = answers_of(samples, source) if answers is None else answers
    labels = {label for group in answers for sure, label in group if sure is not None} - {"abstained"}
    single = source == "agreement" and len(answers) == sum(one.label is not None for one in samples)
    if single or not labels:
        why = "a question's only answer agrees with itself" if single else "no answer that was graded has one"
        return dict.fromkeys(("brier", "ece", "auroc", "aurc", "coverage@90"), why)
    only = "right" if "correct" in labels else "wrong"
    return {"auroc": f"every answer with a confidence is {only}"} if len(labels) == 1 else {}


def risk_coverage(answers: Answers) -> list[dict[str, float]]:
    """What each `threshold` keeps, from the surest: `coverage` and `risk`; empty without a confidence."""
    if not any(sure is not None and label != "abstained" for group in answers for sure, label in group):
        return []
    levels, rows = _shares(answers)
    means = rows.mean(axis=0, keepdims=True)
    covered, wrong = (part[0] for part in _kept(means))
    return [
        {"threshold": float(level), "coverage": float(kept), "risk": float(bad / kept)}
        for level, kept, bad in zip(levels, covered, wrong, strict=True)
    ]


def _shares(answers: Answers) -> tuple[Floats, Floats]:
    """The L different confidences in thousandths, the surest first, and (questions, 2L) of each question's
    answers the share that is right at each level, then the share that is wrong."""
    attempts = [
        [(round(sure, 3), label) for sure, label in group if sure is not None and label != "abstained"]
        for group in answers
    ]
    levels = sorted({sure for group in attempts for sure, _ in group}, reverse=True)
    column = {
        (sure, label): at
        for label, start in (("correct", 0), ("incorrect", len(levels)))
        for at, sure in enumerate(levels, start)
    }
    rows = np.zeros((len(answers), 2 * len(levels)))
    for row, (group, every) in enumerate(zip(attempts, answers, strict=True)):
        for pair in group:
            rows[row, column[pair]] += 1 / len(every)
    return np.array(levels), rows


def _kept(means: Floats) -> tuple[Floats, Floats]:
    """What the threshold at each level keeps, and the wrong part of it, as (R, L) shares of all graded."""
    right, wrong = np.split(means, 2, axis=1)
    return (right + wrong).cumsum(axis=1), wrong.cumsum(axis=1)


def _statistics(levels: Floats) -> Mapping[str, Statistic]:
    bins = np.eye(BINS)[[_bin(sure) for sure in levels.tolist()]]

    def halves(means: Floats) -> tuple[Floats, Floats, Floats]:
        right, wrong = np.split(means, 2, axis=1)
        return right, wrong, means.sum(axis=1)

    def brier(means: Floats) -> Floats:
        right, wrong, every = halves(means)
        return ratio(right @ (1 - levels) ** 2 + wrong @ levels**2, every)

    def ece(means: Floats) -> Floats:
        right, wrong, every = halves(means)
        return ratio(np.abs(((right + wrong) * levels - right) @ bins).sum(axis=1), every)

    def auroc(means: Floats) -> Floats:
        right, wrong, _ = halves(means)
        below = wrong.sum(axis=1, keepdims=True) - wrong.cumsum(axis=1) + wrong / 2
        return ratio((right * below).sum(axis=1), right.sum(axis=1) * wrong.sum(axis=1))

    def aurc(means: Floats) -> Floats:
        right, wrong, every = halves(means)
        covered, bad = _kept(means)
        return ratio(((right + wrong) * np.nan_to_num(ratio(bad, covered))).sum(axis=1), every)

    def coverage(means: Floats) -> Floats:
        covered, bad = _kept(means)
        return np.where(bad <= 0.1 * covered + 1e-12, covered, 0.0).max(axis=1)

    return {"brier": brier, "ece": ece, "auroc": auroc, "aurc": aurc, "coverage@90": coverage}


def _stated(one: EvalSample) -> float | None:
    return None if one.completion is None else stated_confidence(one.completion)[1]


def _bin(sure: float) -> int:
    return min(int(sure * BINS), BINS - 1)
