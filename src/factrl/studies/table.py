"""What the rewards of the small studies ask: resources that judge by a table of facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from factrl.rewards import Reward
from factrl.rewards.grading import Grader
from factrl.rewards.needs import supply
from factrl.types import Claim, Passage
from factrl.verifier import Verifier
from factrl.verifier.judges.table import TableJudge

BY_TABLE = ("grade", "verify", "extract", "compare", "checklist", "truthfulness")
"""The resources that a table of facts stands in for."""
_MIN_SENTENCES = 3  # sentences that a text must have for `TableFacts.compare` to prefer it


@dataclass(frozen=True)
class TableFacts:
    """Resources that judge by a table of facts; the rewards of the small studies use them.

    Attributes:
        verify: takes claims out of a text and judges them by the judge's table.
    """

    judge: TableJudge
    verify: Verifier
    grade: Grader

    def supply(self, reward: Reward) -> Reward:
        """The reward with every resource that it lacks: by the table, or by rules where no table tells.

        Raises:
            ConfigError: it needs one that the small studies do not have.
        """
        known = {name: getattr(self, name) for name in BY_TABLE if name != "extract"}
        made = {"extract": self.judge.extract, **known}
        return supply(reward.with_(**{name: made[name] for name in reward.missing if name in made}))

    def checklist(self, question: str, text: str, items: Sequence[str]) -> list[str]:
        """Whether the text says each item, by the table's reading of both."""
        words = {"supported": "consistent", "refuted": "contradictory"}
        verdicts = self.judge.judge([(Claim(item, 0, len(item)), [Passage(text)]) for item in items])
        return [words.get(verdict.label, "missing") for verdict in verdicts]

    def truthfulness(self, claims: Sequence[str]) -> list[float]:
        """1 for a claim that the table has, 0 for any other."""
        pairs = [(Claim(claim, 0, len(claim)), self.judge.search(claim)) for claim in claims]
        return [float(verdict.label == "supported") for verdict in self.judge.judge(pairs)]

    def compare(self, question: str, text: str, **_: Any) -> float:
        """1 for a text of at least three sentences that all have one of the table's forms, else 0."""
        claims = self.judge.extract(text)
        return float(
            len(claims) >= _MIN_SENTENCES and all(self.judge.table.parse(one.text) for one in claims)
        )
