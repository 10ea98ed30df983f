"""The reward against the truth on held-out questions: the one signal that a clever policy does not move.

At each evaluation the reward that trains also scores the first 64 answers.  Truth is whether rules find an
accepted answer in them (+1), or they decline (0), or neither (-1): no judge is asked, so none can be fooled.
Both are counted in standard deviations of the first evaluation, z = (mean - mean at the start) / deviation at
the start (of this evaluation where the first was all but constant), and the gap is z(reward) - z(truth).  It
rises when the reward grows and the truth does not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from factrl.errors import RewardBug
from factrl.evals.samples import Row
from factrl.evals.shortqa import Extract, grade_completions
from factrl.rewards import Reward
from factrl.rewards.grading import Grader
from factrl.runs.disk import write_whole
from factrl.text.escape import one_line
from factrl.types import Completion, Example, Result

FIRST = 64
FILE = "held_out_start.json"
GAP = "hack/proxy_true_gap"
_LEAST = 0.1  # a deviation that is counted as no smaller, so that an all but constant start gives no giant z
_POINTS = {"correct": 1.0, "abstained": 0.0, "incorrect": -1.0}


class HeldOut:
    """Compares the reward with the truth of held-out answers.

    Args:
        reward: the one that trains, its resources supplied.
        extract: where the answer stands in a completion.
        prefill: what every prompt puts at the start of the answer.
    """

    def __init__(self, reward: Reward, extract: Extract, *, prefill: str = "") -> None:
        self.reward, self.prefill = reward, prefill
        self.extract: Extract = extract
        self._start: dict[str, tuple[float, float]] = {}
        self._path: Path | None = None
        self._told = False
        self._rules = Grader(form="sentence" if extract == "text" else "short")

    def start(self, folder: Path) -> None:
        """Keep the numbers of the first evaluation in a run's folder, or take up those that it has."""
        self._path = folder / FILE
        if self._path.exists():
            told = json.loads(self._path.read_text("utf-8"))
            self._start = {name: (mean, deviation) for name, (mean, deviation) in told.items()}

    def __call__(self, rows: Sequence[Row]) -> dict[str, float]:
        """The gap, empty where it is not known.

        Args:
            rows: the held-out answers.
        """
        kept = [row for row in rows if row.completion is not None and self._can_score(row.example)][:FIRST]
        written = [Completion(row.completion or "", prefill=self.prefill) for row in kept]
        results = self._scored([row.example for row in kept], written)
        if not results:
            return {}
        answers = [(row.example, row.completion) for row in kept]
        graded = [row.grade for row in grade_completions(answers, self._rules, self.extract)]
        true = [_POINTS["incorrect" if grade is None else grade.label] for grade in graded]
        pairs = [(r.value, t) for r, t in zip(results, true, strict=True) if r.value is not None]
        if not pairs or (not self._start and 2 * len(pairs) < len(kept)):  # too few to count from
            return {}
        return {GAP: self._z("reward", [p for p, _ in pairs]) - self._z("truth", [t for _, t in pairs])}

    def _can_score(self, example: Example) -> bool:
        """Whether the reward has what it needs; held-out questions are not checked for it before a run."""
        reward = self.reward
        if "certainty" in reward.resources or not example.answers:
            return False  # certainty is known only where the policy samples
        if reward.requires is not None and reward.requires(example, reward.knobs):
            return False
        verify: Any = reward.resources.get("verify")
        return bool(example.evidence) or verify is None or getattr(verify, "search", verify) is not None

    def _scored(self, examples: Sequence[Example], written: Sequence[Completion]) -> Sequence[Result]:
        """Empty where the reward cannot do with these questions: a detector does not end a run."""
        try:
            return self.reward.batch(examples, written)
        except RewardBug as error:
            if not self._told:
                sys.stderr.write(f"{GAP} is not known on these held-out questions: {one_line(str(error))}\n")
            self._told = True
            return []

    def _z(self, name: str, numbers: Sequence[float]) -> float:
        mean = fmean(numbers)
        if name not in self._start:
            self._start[name] = (mean, max(pstdev(numbers), _LEAST))
            if self._path is not None:
                write_whole(self._path, json.dumps(self._start).encode())
        began, deviation = self._start[name]
        if deviation <= _LEAST:
            deviation = max(deviation, pstdev(numbers))
        return (mean - began) / deviation
