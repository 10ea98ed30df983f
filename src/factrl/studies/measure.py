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
from dataclasses import dataclass
from typing import Any

import numpy as np

from factrl.evals.metrics import Interval, Statistic, bootstrap, ratio
from factrl.rewards.grading import Grader
from factrl.studies.world import PREFILLS, Task
from factrl.text import think_answer
from factrl.types import Completion, Example
from factrl.verifier import Verifier
from factrl.verifier.judges.table import Table


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


def measure(
    task: Task,
    examples: Sequence[Example],
    texts: Sequence[str],
    verifier: Verifier,
    grader: Grader,
    table: Table,
) -> list[Measured]:
    """The counts of every text, in order."""
    answers, checked = list[str | None](), list[str]()
    for text in texts:
        think, answer = blocks_of(task, text)
        answers.append(answer)
        checked.append("" if task == "short" else (answer or "") if task == "profile" else think)
    evidence = [one.evidence for one in examples]
    reports = verifier.batch(checked, topics=[one.topic for one in examples], evidence=evidence)
    measured = []
    for example, answer, report in zip(examples, answers, reports, strict=True):
        counts = report.counts
        fields = {"claims": report.claims, "true": counts["supported"], "false": counts["refuted"]}
        if task == "profile":
            quotes = {c.quote for c in report.checks if c.verdict and c.verdict.label == "supported"}
            fields |= {"facts": len(table.statements(example.topic)), "stated": len(quotes)}
        elif answer is not None:
            label = grader(example.question, answer, example.answers).label
            fields[{"correct": "right", "abstained": "declined", "incorrect": "wrong"}[label]] = 1
        else:
            fields["wrong"] = 1
        measured.append(Measured(example.topic, malformed=int(answer is None), **fields))
    return measured


def blocks_of(task: Task, text: str) -> tuple[str, str | None]:
    """The reasoning and the answer of a text; no answer where it is malformed."""
    if task == "short":
        return "", text.strip()
    blocks = think_answer(Completion(text, prefill=PREFILLS[task]), PREFILLS[task])
    if blocks.answer is None or blocks.think is None:
        return "", None
    return blocks.think.text, blocks.answer.text


Column = tuple[str, str, float]
"""What is counted, over what, and the unit (100 for percent)."""

COLUMNS: Mapping[Task, Mapping[str, Column]] = {
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
"""Title of a column -> what it has."""


def per_entity(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """The counts of each entity's texts, added up."""
    totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in rows:
        sums = totals[row["entity"]]
        sums["texts"] += 1
        for name, value in row.items():
            if name != "entity":
                sums[name] += value
    return totals


def _sums(rows: Sequence[Mapping[str, Any]], column: Column) -> list[list[float]]:
    """What a column counts and over what, of each entity, in the order of the texts."""
    return [[sums[name] for name in column[:2]] for sums in per_entity(rows).values()]


def value(rows: Sequence[Mapping[str, Any]], column: Column) -> Interval | None:
    """A column of one model with its bootstrap interval over entities; None without a denominator."""
    return bootstrap(_sums(rows, column), _quotient(column))


def change(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], column: Column
) -> Interval | None:
    """After minus before on the same questions, with a bootstrap interval over entities."""
    return bootstrap(_sums(after, column), _quotient(column), before=_sums(before, column))


def _quotient(column: Column) -> Statistic:
    return lambda means: column[2] * ratio(means[:, 0], means[:, 1])


def _number(rows: Sequence[Mapping[str, Any]], column: Column) -> float | None:
    """A column without its interval, which several seeds have no use for."""
    over, under = (sum(side) for side in zip(*_sums(rows, column), strict=True))
    return column[2] * over / under if under else None


def auc(of_true: Sequence[float], of_false: Sequence[float]) -> float | None:
    """How often a true claim's number is above a false one's; ties count half.  None where one side is empty.

    >>> auc([0.9, 0.4], [0.4, 0.1])
    0.875
    """
    if not of_true or not of_false:
        return None
    true, false = np.array(of_true)[:, None], np.array(of_false)
    return float(np.mean((true > false) + 0.5 * (true == false)))


_T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # Student's t, 1 to 9 degrees


def over_seeds(changes: Sequence[float]) -> Interval:
    """The mean of the seeds' values with the 95 % interval over seeds (Student's t).

    >>> over_seeds([2.0, 4.0]).value
    3.0
    """
    mean = statistics.fmean(changes)
    if len(changes) < 2:
        return Interval(mean, mean, mean)
    t = _T95[len(changes) - 2] if len(changes) <= len(_T95) + 1 else 1.96
    half = t * statistics.stdev(changes) / math.sqrt(len(changes))
    return Interval(mean, mean - half, mean + half)


# -- The table

Results = Mapping[int, Mapping[str, Mapping[str, Any]]]
"""Seed -> row (`start`, `STUDY/ROW`) -> what the engine measured of it."""


def lines(
    results: Results, study: str, task: Task, rows: Sequence[str], how: str = "greedy"
) -> list[list[str]]:
    """The table of a study: the start's line, then each row's value and change in every column.

    Args:
        how: `greedy` or `sampled`.
    """
    start, columns = f"start-{task}", [*COLUMNS[task].values()]
    starts = [seed[start][how] for seed in results.values() if start in seed]
    table = [["start", *(_start_cell([_number(one, column) for one in starts]) for column in columns)]]
    for row in rows:
        name = f"{study}/{row}"
        pairs = [(seed[start][how], seed[name][how]) for seed in results.values() if {start, name} <= {*seed}]
        if held := sum(name in seed for seed in results.values()):
            title = row if held == len(starts) else f"{row} ({held} of {len(starts)} seeds)"
            table.append([title, *(_cell(pairs, column) for column in columns)])
    return table


def _start_cell(numbers: Sequence[float | None]) -> str:
    """The mean of the start's numbers, with the digits of a row's."""
    known = [one for one in numbers if one is not None]
    return _digits(statistics.fmean(known))[0] if known else "–"


def _digits(number: float) -> tuple[str, int]:
    digits = 1 if abs(number) >= 10 else 2
    return f"{number:.{digits}f}", digits


def _cell(pairs: Sequence[tuple[Any, Any]], column: Column) -> str:
    """A row's value and its change against the start with an interval; a dash where a seed has none.

    Args:
        pairs: what was measured of the start and of the row, for each seed that has both.
    """
    now, moved = None, None
    if len(pairs) == 1:
        [(before, after)] = pairs
        now, moved = value(after, column), change(before, after, column)
    elif pairs:
        numbers = [(_number(before, column), _number(after, column)) for before, after in pairs]
        known = [(new, new - old) for old, new in numbers if old is not None and new is not None]
        if len(known) == len(pairs):
            now, moved = (over_seeds(side) for side in zip(*known, strict=True))
    if now is None:
        return "–"
    text, digits = _digits(now.value)
    if moved is not None:
        low, high = moved.low, moved.high
        text += f" ({moved.value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}])"
        text = text.replace("-", "−")
    return text
