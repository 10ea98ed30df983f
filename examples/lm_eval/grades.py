"""What truthful.yaml counts.  An answer that could not be graded is in `masked`, and in no other mean."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from factrl import Grader, connect
from factrl.evals.grade import grade_completions
from factrl.runs.data import to_example


@functools.cache
def grader() -> Grader:
    """Rules, and for what they cannot decide the judge in FACTRL_JUDGE_BASE_URL, where there is one."""
    return Grader(connect("") if os.environ.get("FACTRL_JUDGE_BASE_URL") else None, form="sentence")


def of_answer(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float | None]:
    """The metrics of one answer; None where it could not be graded."""
    (row,) = grade_completions([(to_example(doc), results[0])], grader(), workers=1)
    names = {"accuracy": "correct", "abstention": "abstained", "hallucination": "incorrect"}
    if row.grade is None:
        return {**dict.fromkeys([*names, "truthfulness"]), "masked": 1.0}
    found = {name: float(row.grade.label == label) for name, label in names.items()}
    return {**found, "truthfulness": found["accuracy"] - found["hallucination"], "masked": 0.0}


def mean(values: Sequence[float | None]) -> float:
    """Of those that could be graded; NaN where none could."""
    graded = [value for value in values if value is not None]
    return sum(graded) / len(graded) if graded else float("nan")
