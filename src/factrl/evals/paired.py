"""Two evaluations of the same questions side by side: what changed, and whether that is more than chance.

Only questions that were graded in both count; the same ones carry every difference (paired bootstrap), and
McNemar's exact test says how likely the changes between right and not right are if neither side is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from factrl.errors import DataError
from factrl.evals.longform import compare_long, rows_of
from factrl.evals.metrics import Interval, Weights, bootstrap, bootstraps, outcome_statistics
from factrl.evals.numbers import mean_value, shares, usual_question
from factrl.evals.samples import Row, by_question
from factrl.evals.suite import Output
from factrl.types import Label

# Changed answers in the order in which a reader wants to see them.
_ORDER: Sequence[tuple[Label, Label]] = (
    ("correct", "incorrect"),
    ("correct", "abstained"),
    ("abstained", "incorrect"),
    ("incorrect", "correct"),
    ("incorrect", "abstained"),
    ("abstained", "correct"),
)


@dataclass(frozen=True)
class Paired:
    """One benchmark in two evaluations, after minus before.

    Attributes:
        n: questions graded in both; as in the numbers of each, without those that rest on a false premise
            or that nobody can answer.
        left_out: other such questions, that are in one only, or could not be graded in one.
        differences: by metric; None where it is undefined.
        fixed, broken: questions whose first answer was not right and is, and the other way round.
        p: McNemar's exact two-sided p-value of these two; None without single labelled answers.
        changed: pairs of answers to any question with another label, in the order of `_ORDER`.
        notes: what makes the two hard to compare.
    """

    name: str
    n: int
    left_out: int
    differences: Mapping[str, Interval | None]
    fixed: int
    broken: int
    p: float | None
    changed: Sequence[tuple[Row, Row]]
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`."""
        found = {
            name: None if one is None else {"value": one.value, "low": one.low, "high": one.high}
            for name, one in self.differences.items()
        }
        return {
            "n": self.n,
            "left_out": self.left_out,
            "differences": found,
            "fixed": self.fixed,
            "broken": self.broken,
            "mcnemar_p": self.p,
            "changed": [
                {"id": after.example.id, "number": after.number, "before": before.label, "after": after.label}
                for before, after in self.changed
            ],
            "notes": list(self.notes),
        }


def compare_outputs(before: Output, after: Output) -> list[Paired]:
    """Every benchmark that is in both.

    Raises:
        DataError: there is none, or the two share no question.
    """
    names = [name for name in before.benchmarks if name in after.benchmarks]
    if not names:
        raise DataError(
            f"{before.folder} has {', '.join(before.benchmarks) or 'nothing'} and {after.folder} has "
            f"{', '.join(after.benchmarks) or 'nothing'}: no benchmark is in both"
        )
    pairs = [_paired(name, before, after, _weights(after)) for name in names]
    if not any(pair.n for pair in pairs):
        raise DataError(
            f"{before.folder} and {after.folder} share no question with an answer that was graded in both"
        )
    return pairs


def _weights(output: Output) -> Weights:
    return Weights(*output.about.get("weights", (1.0, 0.0, 1.0)))


def mcnemar(fixed: int, broken: int) -> float:
    """The exact two-sided p-value of so many changes each way, if both ways are equally likely."""
    n, few = fixed + broken, min(fixed, broken)
    tail = sum(math.comb(n, k) for k in range(few + 1))
    return min(1.0, 2 * tail / 2**n)


def _paired(name: str, before: Output, after: Output, weights: Weights) -> Paired:
    sides = [by_question(side.samples.get(name, ())) for side in (before, after)]
    if any(one.claims for side in sides for group in side.values() for one in group):
        return _long(name, before, after)
    graded = [
        key for key in sides[0] if key in sides[1] and all(any(s.label for s in side[key]) for side in sides)
    ]
    odd = {key for side in sides for key, group in side.items() if not all(map(usual_question, group))}
    every = [key for key in {**sides[0], **sides[1]} if key not in odd]
    both = [key for key in graded if key not in odd]
    first, second = ([side[key] for key in both] for side in sides)
    firsts, seconds = ([side[key] for key in graded] for side in sides)
    differences: dict[str, Interval | None] = {}
    if both:
        shown = {*before.numbers(name), *after.numbers(name)}
        statistics = {metric: one for metric, one in outcome_statistics(weights).items() if metric in shown}
        differences = bootstraps(shares(second), statistics, before=shares(first))
    differences |= _values(firsts, seconds)
    single = bool(both) and all(len(group) == 1 for group in (*first, *second))
    right = [[group[0].label == "correct" for group in side] for side in (first, second)]
    moves = list(zip(*right, strict=True)) if single else []
    fixed, broken = moves.count((False, True)), moves.count((True, False))
    return Paired(
        name,
        len(both),
        len(every) - len(both),
        differences,
        fixed,
        broken,
        mcnemar(fixed, broken) if single else None,
        _changed(firsts, seconds),
        _notes(name, before, after),
    )


def _long(name: str, before: Output, after: Output) -> Paired:
    numbers = before.numbers(name)
    ks = [int(key.removeprefix("f1@")) for key in numbers if key.startswith("f1@") and "/" not in key]
    found = compare_long(rows_of(before.samples[name]), rows_of(after.samples[name]), ks[0] if ks else 32)
    notes = _notes(name, before, after)
    return Paired(name, found.n, found.left_out, found.differences, 0, 0, None, (), notes)


def _values(first: Sequence[Sequence[Row]], second: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Differences of the numbers that single answers have, on the questions where both have them."""
    found: dict[str, Interval | None] = {}
    every = (one for groups in (first, second) for group in groups for one in group)
    for metric in dict.fromkeys(name for one in every for name in one.values if name != "mc1"):
        means = [
            (mean_value(one, metric), mean_value(other, metric))
            for one, other in zip(first, second, strict=True)
        ]
        known = np.array([pair for pair in means if None not in pair], dtype=float).reshape(-1, 2)
        found[metric] = bootstrap(known[:, 1], before=known[:, 0]) if len(known) else None
    return found


def _changed(first: Sequence[Sequence[Row]], second: Sequence[Sequence[Row]]) -> list[tuple[Row, Row]]:
    pairs = [(one[0], other[0]) for one, other in zip(first, second, strict=True)]
    rank: Callable[[tuple[Row, Row]], int] = lambda pair: _ORDER.index(_move(pair))  # noqa: E731
    return sorted((pair for pair in pairs if _move(pair) in _ORDER), key=rank)


def _move(pair: tuple[Row, Row]) -> Any:
    return pair[0].label, pair[1].label


def _notes(name: str, before: Output, after: Output) -> list[str]:
    """What differs between the two beside the model."""
    told = {
        "prompt_hash": "they were asked with different prompts",
        "asked_for": "one chose by likelihood, the other by letter",
        "source": "their questions are from different sources",
        "judge": "they were graded by different judges",
    }
    first, second = before.benchmarks[name], after.benchmarks[name]
    notes = [about for key, about in told.items() if first.get(key) != second.get(key)]
    if before.about.get("sampling") != after.about.get("sampling"):
        notes.append("they were sampled differently")
    if _weights(before) != _weights(after):
        notes.append(
            "their truthfulness weighs outcomes differently; the change is with the weights of the latter"
        )
    return notes
