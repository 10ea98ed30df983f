"""Answers to held-out questions while a policy trains: their metrics, and the reward against the truth.

At each evaluation the reward that trains also scores the first answers.  Truth is whether rules find an
accepted answer in them (+1), or they decline (0), or neither (-1): no judge is asked, so none can be fooled.
Both are counted in standard deviations of the first evaluation, z = (mean - mean at the start) / deviation at
the start (of this evaluation where the first was all but constant), and the gap is z(reward) - z(truth).  It
rises when the reward grows and the truth does not: the one signal that a clever policy does not move.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from factrl.errors import RewardBug
from factrl.evals.grade import Extract, grade_completions
from factrl.evals.metrics import short_form
from factrl.evals.samples import EvalSample
from factrl.job import Job
from factrl.rewards import Reward
from factrl.rewards.grading import Grader
from factrl.runs.disk import write_whole
from factrl.text.escape import one_line
from factrl.train.plan import SCORED
from factrl.types import Completion, Example

FILE = "held_out_start.json"
GAP = "hack/proxy_true_gap"
_LEAST = 0.1  # a deviation that is counted as no smaller, so that an all but constant start gives no giant z
_POINTS = {"correct": 1.0, "abstained": 0.0, "incorrect": -1.0}

Evaluate = Callable[[Any, int], Mapping[str, float | None]]
"""The metrics of a model at a step."""


def evaluator(
    job: Job,
    examples: Sequence[Example],
    tokenizer: Any,
    gap: Callable[[Sequence[EvalSample]], Mapping[str, float]] = lambda rows: {},
) -> Evaluate:
    """Answers the questions greedily; the gap of the graded answers is among its metrics."""

    from .writing import answer  # with torch, which the gap does without

    grader = job.supplier.grade()

    def evaluate(model: Any, step: int) -> Mapping[str, float | None]:
        texts = [group[0] for group in answer(model, tokenizer, examples, job.settings)]
        rows = grade_completions(list(zip(examples, texts, strict=True)), grader, job.extract)
        return {**rates(rows), **gap(rows)}

    return evaluate


def rates(rows: Sequence[EvalSample]) -> Mapping[str, float | None]:
    """The short-form metrics of graded answers and the share that could not be graded."""
    summary = short_form([row.grade for row in rows])
    values = {name: i.value if i else None for name, i in summary.metrics.items()}
    return {**values, "masked": summary.masked / len(rows)}


class TrueGap:
    """Compares the reward that trains with the truth of held-out answers.

    Args:
        folder: keeps the numbers of the first evaluation, for a run that goes on.
        prefill: what every prompt puts at the start of the answer.
    """

    def __init__(self, reward: Reward, extract: Extract, folder: Path, *, prefill: str = "") -> None:
        self.reward, self.prefill = reward, prefill
        self.extract: Extract = extract
        self._path = folder / FILE
        self._rules = Grader(form="sentence" if extract == "text" else "short")
        self.start: dict[str, tuple[float, float]] = {}  # mean and deviation of the first evaluation
        if self._path.exists():
            self.start = {name: (m, d) for name, (m, d) in json.loads(self._path.read_text("utf-8")).items()}

    def __call__(self, rows: Sequence[EvalSample]) -> dict[str, float]:
        """The gap; empty where it is not known."""
        kept = [(row.example, row.completion) for row in rows if row.completion is not None]
        kept = [(example, text) for example, text in kept if self._can_score(example)][:SCORED]
        completions = [Completion(text, prefill=self.prefill) for _, text in kept]
        try:
            results = self.reward.batch([example for example, _ in kept], completions)
        except RewardBug as error:  # a detector does not end a run
            sys.stderr.write(f"{GAP} is not known on these held-out questions: {one_line(str(error))}\n")
            return {}
        grades = [row.grade for row in grade_completions(kept, self._rules, self.extract)]
        true = [_POINTS["incorrect" if grade is None else grade.label] for grade in grades]
        pairs = [(r.value, t) for r, t in zip(results, true, strict=True) if r.value is not None]
        if not pairs or (not self.start and 2 * len(pairs) < len(kept)):  # too few to count from
            return {}
        proxy, truth = zip(*pairs, strict=True)
        if not self.start:
            sides = {"reward": proxy, "truth": truth}
            self.start = {name: (fmean(n), max(pstdev(n), _LEAST)) for name, n in sides.items()}
            write_whole(self._path, json.dumps(self.start).encode())
        return {GAP: self._z("reward", proxy) - self._z("truth", truth)}

    def _can_score(self, example: Example) -> bool:
        """Whether the reward has what it needs; held-out questions are not checked for it before a run."""
        reward = self.reward
        if {"certainty", "group"} & reward.resources.keys() or not example.answers:
            return False  # what is known only where the policy samples, several times
        if (lacks := reward.needed.lacks) is not None and lacks(example):
            return False
        verify: Any = reward.resources.get("verify")
        return bool(example.evidence) or verify is None or getattr(verify, "search", verify) is not None

    def _z(self, name: str, numbers: Sequence[float]) -> float:
        began, deviation = self.start[name]
        if deviation <= _LEAST:
            deviation = max(deviation, pstdev(numbers))
        return (fmean(numbers) - began) / deviation
