"""Stand-ins for what a reward may ask for, by rules that know what is true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from factrl.text.abstention import abstains
from factrl.text.answers import is_contentless
from factrl.types import Claim, Grade, Passage, TrainingState, Verdict
from factrl.verifier import Verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.search import Given

_ITEMS = {True: "consistent", False: "contradictory", None: "missing"}


@dataclass(frozen=True)
class Truth:
    """Makes stand-ins for resources, by rules: they know what is true, and find all else `good`.

    Attributes:
        holds: whether a text is right; None for a text that says nothing right and nothing wrong.
        good: the result for such a text, and for reasoning, quality and certainty.
        others: completions beside one in its group.
        evidence: what a search finds for a question that comes without evidence.
    """

    holds: Callable[[str], bool | None]
    good: bool = True
    others: Sequence[str] = ()
    evidence: Sequence[Passage] = ()

    def of(self, text: str) -> bool:
        """Whether a text is found good."""
        known = self.holds(text)
        return self.good if known is None else known

    def grade(self) -> Callable[..., Grade]:
        def graded(question: str, prediction: str, answers: Sequence[str], **_: Any) -> Grade:
            if is_contentless(prediction):  # as the real grader
                return Grade("incorrect", prediction, how="gate", floored="contentless")
            if self.holds(prediction):
                return Grade("correct", prediction, how="scripted")
            return Grade("abstained" if abstains(prediction) else "incorrect", prediction, how="scripted")

        return graded

    def verify(self) -> Any:
        return Verifier(SentenceClaims(), Given(self.evidence), _TruthJudge(self))


@dataclass(frozen=True)
class _TruthJudge:
    truth: Truth
    identity, weak, per_call = "scripted", False, 1_000

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        return [
            Verdict("supported" if self.truth.of(claim.text) else "refuted", self.identity)
            for claim, _ in pairs
        ]


def stand_ins(truth: Truth) -> Mapping[str, Any]:
    """Name of a resource -> its stand-in."""

    def same(*_: Any, **__: Any) -> float:
        return float(truth.good)

    return {
        "grade": truth.grade(),
        "reason": same,
        "verify": truth.verify(),
        "extract": SentenceClaims(),
        "compare": same,
        "rate": same,
        "checklist": lambda question, text, listed: [_ITEMS[truth.holds(text)] for _ in listed],
        "truthfulness": lambda claims: [float(truth.of(claim)) for claim in claims],
        "certainty": same,
        "group": lambda completion: (completion, *truth.others),
        "course": lambda completion: TrainingState((), stalled=1_000),
    }
