"""From grades to numbers: those of a benchmark, each with its interval and the count behind it.

With one sample per question, rates carry Wilson intervals and everything else a bootstrap over questions.
With several, a rate is the mean over questions of the share among a question's samples (Avg@k), and its
interval comes from a bootstrap over questions, as samples of one question are not independent.

A confidence is what the text states (`factrl.text.confidence`); or the agreement of a question's samples, the
share that gives the most frequent answer, which is then the question's one answer.  What states none is
counted and in no mean, and no threshold keeps it.

At a threshold, *coverage* is the share of all graded answers that are at least as sure, abstentions being
what is never kept, and *risk* the wrong share of those.  Each question weighs the same, whatever its samples.
`aurc` is the area under risk and coverage of Geifman, Uziel and El-Yaniv (arXiv 1805.08206): the mean, over
the answers that have a confidence, of the risk at each one's own, so ties need no order.  `coverage@90` is
the largest coverage with a risk of at most a tenth, 0 where no threshold has one; as the threshold is chosen
on the same questions, it flatters where they are few.

Of a long answer S of T claims are supported; missing verdicts count half, and mask the answer where a
share of it, such as its F1@K, is not known to within 0.05.  An answer without claims is 0, as in SAFE's
F1@K, KLCF's P, R@K and F1@K and VeriScore's paper, but for `factscore`, which leaves it out as
FActScore's code does; how many have some is `respond_ratio`.  `detail` is F and `precision` F/T of
"Learning to Reason for Factuality".  The published packages differ, given the same decisions: an answer
without claims is a ZeroDivisionError in FActScore 0.2.0 (arXiv 2305.14251) and in VeriScore 2.0.3 (arXiv
2406.19276), whose code leaves out answers that decline and whose K is the upper median of T over all
systems, where ours is fixed; they count repeats, and a call that fails is "supported" in FActScore and
"not supported" in VeriScore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np

from factrl.evals.catalogue import is_hopeless
from factrl.evals.metrics import (
    LABELS,
    OUTCOME_STATISTICS,
    Better,
    Floats,
    Interval,
    Number,
    Statistic,
    bootstrap,
    bootstraps,
    ratio,
    short_form,
    wilson,
)
from factrl.evals.samples import Claims, EvalSample, by_question
from factrl.text.answers import final_answer, normalize_answer, same_answer
from factrl.text.confidence import stated_confidence
from factrl.types import Label
from factrl.verifier.report import WIDTH

Numbers = dict[str, Number]
_ABOUT: Mapping[str, tuple[str, Better]] = {
    "accuracy": ("right answers / graded", "higher"),
    "abstention": ("declined / graded", "neither"),
    "hallucination": ("wrong answers / graded", "lower"),
    "truthfulness": ("accuracy − hallucination; the Omniscience index", "higher"),
    "correct_given_attempted": ("right answers / answers given", "higher"),
    "f_score": ("harmonic mean of accuracy and correct given attempted", "higher"),
    "guessed": ("decided by rules, as no judge was asked; people agree with 92 % of such guesses", "lower"),
    "ook": ("questions that no sample gets right", "lower"),
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
    "respond_ratio": ("answers with a claim / answers", "neither"),
    "factscore": ("supported / claims, lowered below 10 claims", "higher"),
    "precision": ("supported / claims, 0 without claims", "higher"),
    "detail": ("supported claims of an answer", "higher"),
}
COUNTED = ("detail",)  # numbers of claims; all others are shares


def numbers_of(kind: str, samples: Sequence[EvalSample]) -> Numbers:
    """Every number of a benchmark of this kind, in reading order; what is undefined is left out."""
    usual = [one for one in samples if usual_question(one)]
    shown = {"reasoning": ("accuracy",), "choice": ("accuracy", "abstention"), "long": ()}.get(kind)
    numbers = {name: one for name, one in _labels(usual).items() if shown is None or name in shown}
    numbers |= share("invalid", usual, lambda one: one.floored is not None)
    if any(_guessed(one) for one in usual):
        numbers |= share("guessed", usual, _guessed)
    answered = [one for one in samples if one.completion is not None]
    numbers |= share("cut_off", answered, lambda one: getattr(one.completion, "truncated", False))
    numbers |= _several(usual)
    if any(one.number for one in usual):
        labels = [ook for group in by_question(usual).values() if (ook := known(group)[0]) is not None]
        numbers |= mean("ook", [float(ook) for ook in labels])
    if hopeless := [one for one in samples if one.label and is_hopeless(one.example)]:
        declined = [one for one in samples if one.label == "abstained"]
        numbers |= share("abstention_recall", hopeless, lambda one: one.label == "abstained")
        numbers |= share("abstention_precision", declined, lambda one: is_hopeless(one.example))
    odd = _labels([one for one in samples if one.example.false_premise])
    shown = ("accuracy", "hallucination")
    return numbers | {f"false_premise_{name}": odd[name] for name in shown if name in odd}


def _guessed(sample: EvalSample) -> bool:
    return sample.grade is not None and sample.grade.how == "rules"


def usual_question(sample: EvalSample) -> bool:
    """Whether it has an answer, "invalid question" among them; the others have numbers of their own."""
    return not is_hopeless(sample.example)


def outcomes(group: Sequence[EvalSample]) -> list[float] | None:
    """The share of each of `LABELS` among the graded samples of a question; None without any."""
    labels = [sample.label for sample in group if sample.label is not None]
    return [labels.count(label) / len(labels) for label in LABELS] if labels else None


def _labels(samples: Sequence[EvalSample]) -> Numbers:
    """The metrics of `metrics.short_form`."""
    groups = list(by_question(samples).values())
    means = [row for row in map(outcomes, groups) if row is not None]
    n, attempted = len(means), sum(row[1] < 1 for row in means)
    if all(len(group) == 1 for group in groups):
        metrics = short_form([one.grade for one in samples]).metrics
    else:
        metrics = bootstraps(means, OUTCOME_STATISTICS)
    numbers: Numbers = {}
    for name, interval in metrics.items():
        numbers |= number(name, interval, attempted if name == "correct_given_attempted" else n)
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
    if interval is None:
        return {}
    usual, better = _ABOUT.get(name, ("", "higher"))
    fields = {**asdict(interval), "n": n, "about": about or usual, "better": better}
    return {name: Number(**fields, percent=name not in COUNTED)}


# -- What a model knows ------------------------------------------------------------------------------

MAX_UNGRADED = 0.1  # share of a question's samples that may lack a grade; above it, it has no label


def known(group: Sequence[EvalSample]) -> tuple[bool | None, float | None]:
    """Of a question's samples whether none is right, `ook`, and which share of the graded is, `pass_rate`.

    TruthRL (arXiv 2509.25760, section 3.2) draws 256 answers per question and calls it out of knowledge when
    none of them is correct.  Where too few could be graded to say so, `ook` is None.
    """
    labels = [one.label for one in group if one.label is not None]
    right = labels.count("correct")
    decided = right or len(group) - len(labels) <= MAX_UNGRADED * len(group)
    return (not right if decided else None), (right / len(labels) if labels else None)


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
    labelled = [(one.label, one.answer) for one in group if one.label]
    votes: dict[int, list[bool]] = {}
    for vote, (label, _) in zip(candidates(labelled), labelled, strict=True):
        votes.setdefault(vote, []).append(label == "correct")
    most = max(map(len, votes.values()), default=0)
    worth = [sum(right) / most for right in votes.values() if len(right) == most]
    return sum(worth) / len(worth) if worth else None


def candidates(answers: Sequence[tuple[str | None, str]]) -> list[int]:
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


# -- Confidence ---------------------------------------------------------------------------------------

BINS = 10
Source = Literal["stated", "agreement"]
"""Where a confidence is from: the text, or the samples of a question."""
Answers = Sequence[Sequence[tuple[float | None, Label]]]
"""By question, how sure each of its graded answers is, from 0 to 1 or None, and what became of it."""


def confidence_numbers(
    samples: Sequence[EvalSample], source: Source = "stated"
) -> tuple[Numbers, dict[str, Any]]:
    """How many answers state a confidence, its calibration, and how well it ranks right before wrong.

    Intervals are by resampling questions, as answers to one question are not independent.

    Returns:
        The numbers that are defined; and as plain data `confidence_bins`, outcomes by tenths,
        `risk_coverage`, what each threshold keeps, and `absent`, why the other numbers are undefined.
    """
    answers = answers_of(samples, source)
    levels, rows = _shares(answers)
    right, wrong = (half.any() for half in np.split(rows, 2, axis=1))
    why = "" if len(levels) else "no answer that was graded has one"
    if source == "agreement" and len(answers) == sum(one.label is not None for one in samples):
        why = "a question's only answer agrees with itself"
    absent = dict.fromkeys(("brier", "ece", "auroc", "aurc", "coverage@90"), why) if why else {}
    if not why and not (right and wrong):
        absent["auroc"] = f"every answer with a confidence is {'right' if right else 'wrong'}"
    numbers: Numbers = {}
    if source == "stated":
        attempts = [one for one in samples if one.label in ("correct", "incorrect")]
        numbers |= share("confidence_stated", attempts, lambda one: _stated(one) is not None)
    if not why:
        for name, interval in bootstraps(rows, _statistics(levels)).items():
            numbers |= number(name, interval, len(rows))
    kept = _thresholds(levels, rows) if len(levels) else []
    return numbers, {"confidence_bins": _bins(answers), "risk_coverage": kept, "absent": absent}


def answers_of(samples: Sequence[EvalSample], source: Source) -> Answers:
    """The graded answers; with `agreement` those that say what most of a question's do, of leaders all."""
    groups = []
    for group in by_question(one for one in samples if one.label).values():
        labels = [one.label for one in group if one.label]
        if source == "agreement":
            numbers = candidates([(label, one.answer) for label, one in zip(labels, group, strict=True)])
            counts = [numbers.count(one) for one in numbers]
            most = max(counts)
            groups.append(
                [
                    (most / len(counts), label)
                    for count, label in zip(counts, labels, strict=True)
                    if count == most
                ]
            )
        else:
            groups.append([(_stated(one), label) for one, label in zip(group, labels, strict=True)])
    return groups


def _bins(answers: Answers) -> list[dict[str, Any]]:
    """Outcomes by confidence, in tenths, abstentions kept (TruthRL has such a picture): for each tenth that
    holds an answer or an abstention `low`, `high`, `n` answers, `abstained` beside them, the answers' mean
    confidence `stated`, and how many were `right`, with `right_low` and `right_high`."""
    bins = []
    for at in range(BINS):
        inside = [[one for one in group if one[0] is not None and _bin(one[0]) == at] for group in answers]
        attempts = [[one for one in group if one[1] != "abstained"] for group in inside]
        every = [sure for group in attempts for sure, _ in group if sure is not None]
        declined = sum(map(len, inside)) - len(every)
        rates = [sum(label == "correct" for _, label in one) / len(one) for one in attempts if one]
        right = mean("right", rates).get("right")
        if every or declined:
            fields = {"low": at / BINS, "high": (at + 1) / BINS, "n": len(every), "abstained": declined}
            limits = (right.value, right.low, right.high) if right else (None, None, None)
            shares = dict(zip(("right", "right_low", "right_high"), limits, strict=True))
            bins.append({**fields, "stated": sum(every) / len(every) if every else None, **shares})
    return bins


def _thresholds(levels: Floats, rows: Floats) -> list[dict[str, float]]:
    """What each `threshold` keeps, from the surest: `coverage` and `risk`."""
    covered, wrong = (part[0] for part in _kept(rows.mean(axis=0, keepdims=True)))
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


# -- Long answers -------------------------------------------------------------------------------------

GAMMA = 10  # claims below which FActScore is lowered for brevity
_ALL, _RESPONDED, _SUPPORTED, _PRECISION, _FACTSCORE, _RECALL, _F1 = range(7)


def columns(rows: Sequence[Claims], k: int, share: float = 0.5) -> Floats:
    """What the metrics are means and ratios of, `(N, 7)`.

    Args:
        k: facts that a good answer gives.
        share: of the missing verdicts that are taken for `supported`: 0 is the lower bound of every column
            and 1 the upper one; in between, columns lie as far between their bounds.
    """
    if share not in (0.0, 1.0):
        return (1 - share) * columns(rows, k, 0.0) + share * columns(rows, k, 1.0)
    claims = np.array([row.total for row in rows], dtype=np.float64)
    supported = np.array([row.supported + share * row.unjudged for row in rows], dtype=np.float64)
    precision = supported / np.maximum(claims, 1.0)
    penalty = np.exp(np.minimum(1.0 - GAMMA / np.maximum(claims, 1.0), 0.0))
    recall = np.minimum(supported / k, 1.0)
    both = precision + recall
    f1 = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0)
    responded = [row.total > 0 or row.floored is not None for row in rows]
    every = (np.ones_like(claims), responded, supported, precision, precision * penalty, recall, f1)
    return np.column_stack(every)


def statistics(k: int) -> Mapping[str, Statistic]:
    """Every metric, in reading order, as a function of column means `(R, 7)`."""

    def over(column: int, by: int = _ALL) -> Statistic:
        return lambda means: ratio(means[:, column], means[:, by])

    return {
        "respond_ratio": over(_RESPONDED),
        "factscore": over(_FACTSCORE, _RESPONDED),
        "precision": over(_PRECISION),
        "detail": over(_SUPPORTED),
        f"recall@{k}": over(_RECALL),
        f"f1@{k}": over(_F1),
    }


def undecided(rows: Sequence[Claims], k: int) -> list[bool]:
    """Which answers have a share, such as F1@K, that missing verdicts could move by over `WIDTH`."""
    width = (columns(rows, k, 1.0) - columns(rows, k, 0.0))[:, _PRECISION:]
    return (width.max(axis=1) > WIDTH + 1e-9).tolist()


def claim_numbers(samples: Sequence[EvalSample], k: int) -> Numbers:
    """The metrics of answers that are not masked; intervals by resampling prompts."""
    rows = [row for row in claim_rows(samples, k).values() if row is not None]
    if not rows:
        return {}
    sums = np.array(rows)
    metrics = bootstraps(sums, statistics(k))
    if (sums[:, _ALL] == 1).all():
        metrics["respond_ratio"] = wilson(int(sums[:, _RESPONDED].sum()), len(sums))
    numbers: Numbers = {}
    for name, interval in metrics.items():
        numbers |= number(name, interval, len(rows))
    return numbers


def claim_rows(samples: Sequence[EvalSample], k: int) -> dict[str, Floats | None]:
    """By prompt the columns of its unmasked answers, added up; None without any."""
    rows: dict[str, Floats | None] = {}
    for one in samples:
        sums = rows.setdefault(one.example.id, None)
        if one.claims is not None and one.cause is None:
            more = columns([one.claims], k)[0]
            rows[one.example.id] = more if sums is None else sums + more
    return rows
