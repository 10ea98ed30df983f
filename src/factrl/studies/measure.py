"""What a study measures of a model's texts, and the table that compares its rows.

Every number is of held-out entities.  A row's change against the start is paired by entity, and with several
seeds its interval is over the seeds (Student's t of the seeds' changes), because trainings differ by more
than the questions of one training do.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from factrl.evals.metrics import Interval, bootstrap, ratio
from factrl.rewards.grading import Grader
from factrl.studies.world import Task
from factrl.text import think_answer
from factrl.types import Completion, Example
from factrl.verifier import Verifier


@dataclass(frozen=True)
class Measured:
    """Counts of one text; `claims` are those of a profile, or of the reasoning."""

    entity: str
    right: int = 0
    declined: int = 0
    wrong: int = 0
    malformed: int = 0
    claims: int = 0
    true: int = 0
    false: int = 0
    facts: int = 0  # that the table has of the entity
    stated: int = 0  # of these, those that the text states

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    task: Task,
    examples: Sequence[Example],
    texts: Sequence[str],
    verifier: Verifier,
    grader: Grader,
    prefill: str = "",
) -> list[Measured]:
    """The counts of every text, in order.

    Args:
        prefill: what the prompt has begun the text with.
    """
    answers, checked = list[str | None](), list[str]()
    for text in texts:
        blocks = think_answer(Completion(text, prefill=prefill), prefill)
        answer = text.strip() if task == "short" else blocks.answer and blocks.answer.text
        think = blocks.think.text if blocks.think and blocks.answer else ""
        answers.append(answer)
        checked.append("" if task == "short" else (answer or "") if task == "profile" else think)
    evidence = [one.evidence for one in examples]
    reports = verifier.batch(checked, topics=[one.topic for one in examples], evidence=evidence)
    found = []
    for example, answer, report in zip(examples, answers, reports, strict=True):
        counts = report.counts
        told = {"claims": report.claims, "true": counts["supported"], "false": counts["refuted"]}
        if task == "profile":
            quotes = {c.quote for c in report.checks if c.verdict and c.verdict.label == "supported"}
            told |= {"facts": example.evidence[0].text.count(". ") + 1, "stated": len(quotes)}
        elif answer is not None:
            label = grader(example.question, answer, example.answers).label
            told[{"correct": "right", "abstained": "declined", "incorrect": "wrong"}[label]] = 1
        else:
            told["wrong"] = 1
        found.append(Measured(example.topic, malformed=int(answer is None), **told))
    return found


COLUMNS: Mapping[Task, Mapping[str, tuple[str, str, float]]] = {
    "profile": {
        "precision": ("true", "claims", 100),
        "recall": ("stated", "facts", 100),
        "true sentences": ("true", "texts", 1),
        "claims": ("claims", "texts", 1),
        "malformed": ("malformed", "texts", 100),
    },
    "reasoned": {
        "right": ("right", "texts", 100),
        "declined": ("declined", "texts", 100),
        "wrong": ("wrong", "texts", 100),
        "true steps": ("true", "claims", 100),
        "false steps": ("false", "claims", 100),
        "steps": ("claims", "texts", 1),
    },
    "short": {
        "right": ("right", "texts", 100),
        "declined": ("declined", "texts", 100),
        "wrong": ("wrong", "texts", 100),
    },
}
"""Column -> what is counted, over what, and its unit (100 for percent)."""


def per_entity(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The counts of each entity's texts, added up."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        sums = found[row["entity"]]
        sums["texts"] += 1
        for name, value in row.items():
            if name != "entity":
                sums[name] += value
    return found


def value(rows: Sequence[Mapping[str, Any]], column: tuple[str, str, float]) -> Interval | None:
    """A column of one model with its bootstrap interval over entities; None without a denominator."""
    over, under, scale = column
    sums = per_entity(rows).values()
    found = bootstrap(
        [[s[over], s[under]] for s in sums], lambda means: scale * ratio(means[:, 0], means[:, 1])
    )
    return found


def change(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], column: tuple[str, str, float]
) -> Interval | None:
    """After minus before on the same entities, with a bootstrap interval over entities."""
    over, under, scale = column
    first, second = per_entity(before), per_entity(after)
    both = [one for one in first if one in second]
    sides = [[[side[one][over], side[one][under]] for one in both] for side in (second, first)]
    return bootstrap(sides[0], lambda means: scale * ratio(means[:, 0], means[:, 1]), before=sides[1])


_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # Student's t, 1 to 9 degrees


def over_seeds(changes: Sequence[float]) -> Interval:
    """The mean of the seeds' values with the 95 % interval over seeds (Student's t)."""
    mean = statistics.fmean(changes)
    if len(changes) < 2:
        return Interval(mean, mean, mean)
    t = _T95[len(changes) - 2] if len(changes) <= len(_T95) + 1 else 1.96
    half = t * statistics.stdev(changes) / math.sqrt(len(changes))
    return Interval(mean, mean - half, mean + half)


# -- The table

Results = Mapping[int, Mapping[str, Mapping[str, Any]]]
"""Seed -> row (`start`, `STUDY/ROW`) -> what the engine measured of it."""


@dataclass(frozen=True)
class Cell:
    """A value and its change against the start, each with a 95 % interval; None where one is undefined."""

    value: Interval | None
    change: Interval | None
    seeds: int

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        digits = 1 if abs(self.value.value) >= 10 else 2
        text = f"{self.value.value:.{digits}f}"
        if self.change is None:
            return text
        low, high = self.change.low, self.change.high
        return f"{text} ({self.change.value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}])".replace(
            "-", "−"
        )


def cells(results: Results, row: str, start: str, how: str, column: tuple[str, str, float]) -> Cell:
    """One row's value and change in a column, over the seeds that have both.

    Args:
        start: name of the start's results.
        how: `greedy` or `sampled`.
    """
    both = [held for held in results.values() if row in held and start in held]
    values = [value(held[row][how], column) for held in both]
    moved = [change(held[start][how], held[row][how], column) for held in both]
    if not both or None in values or None in moved:
        return Cell(None, None, len(both))
    kept = [one for one in values if one], [one for one in moved if one]
    if len(both) == 1:
        return Cell(kept[0][0], kept[1][0], 1)
    first, second = (over_seeds([one.value for one in side]) for side in kept)
    return Cell(first, second, len(both))


def lines(
    results: Results, study: str, task: Task, rows: Sequence[str], how: str = "greedy"
) -> list[list[str]]:
    """The table of a study: the start's line, then each row's value and change in every column."""
    start = f"start-{task}"
    columns = COLUMNS[task]
    first = [
        f"{values.value:.1f}" if (values := _start(results, start, how, c)) else "–" for c in columns.values()
    ]
    found = [["start", *first]]
    for row in rows:
        name = f"{study}/{row}"
        if any(name in held for held in results.values()):
            found.append([row, *(str(cells(results, name, start, how, c)) for c in columns.values())])
    return found


def _start(results: Results, start: str, how: str, column: tuple[str, str, float]) -> Interval | None:
    values = [value(held[start][how], column) for held in results.values() if start in held]
    kept = [one for one in values if one]
    return (kept[0] if len(kept) == 1 else over_seeds([one.value for one in kept])) if kept else None
