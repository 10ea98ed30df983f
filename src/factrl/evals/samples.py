"""One graded answer, a line of `samples.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from factrl.evals.catalogue import is_hopeless
from factrl.types import Completion, Example, Grade, Label

KINDS = ("question_type", "threshold")
"""Columns of a question that are kept with its answers, to part them by."""

_GRADE = ("label", "answer", "how", "floored", "why")


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a long answer by verdict, and text and verdict, or `skipped`, of each in `claims`.

    Attributes:
        skipped: claims that do not count, such as repeats.
        abstained: the answer declines.
        floored: why the answer was not read, such as `oversize`; it is 0 everywhere.
    """

    supported: int = 0
    refuted: int = 0
    unknown: int = 0
    unjudged: int = 0
    skipped: int = 0
    abstained: bool = False
    floored: str | None = None
    claims: tuple[tuple[str, str], ...] = ()

    @property
    def total(self) -> int:
        """Claims that count, judged or not."""
        return self.supported + self.refuted + self.unknown + self.unjudged


@dataclass(frozen=True, slots=True)
class EvalSample:
    """One question, what the model wrote and what became of it.

    Attributes:
        completion: None where the model was not asked to write, or nothing came.
        grade: None when masked, and of a long answer, which is neither right nor wrong.
        cause, detail: why it could not be graded; None where it could.
        number: which of the question's samples this is, from 0.
        claims: what was found of a long answer; None where its claims are not known.
    """

    example: Example
    completion: str | None
    grade: Grade | None
    cause: str | None = None
    detail: str = ""
    benchmark: str = ""
    number: int = 0
    claims: Claims | None = None

    @property
    def label(self) -> Label | None:
        return self.grade.label if self.grade else None

    @property
    def floored(self) -> str | None:
        """Why the model's own text could not be read, else None."""
        return self.claims.floored if self.claims else self.grade.floored if self.grade else None

    @property
    def answer(self) -> str:
        """What was graded, in a few words."""
        if self.claims and self.cause is None:
            return f"{self.claims.supported} of {self.claims.total} claims supported"
        return self.grade.answer if self.grade else ""

    def to_json(self) -> dict[str, Any]:
        """One flat line of `samples.jsonl`."""
        example, grade, text = self.example, self.grade, self.completion
        marks = {
            "answerable": False if is_hopeless(example) else None,
            "false_premise": example.false_premise,
            **{column: example.meta.get(column) for column in KINDS},
            "prefill": getattr(text, "prefill", None) or None,
            "claims": self.claims and asdict(self.claims),
        }
        return {
            "benchmark": self.benchmark,
            "id": example.id,
            "number": self.number,
            "question": example.question,
            "answers": list(example.answers),
            "completion": None if text is None else str(text),
            "truncated": getattr(text, "truncated", False),
            "tokens": getattr(text, "tokens", None),
            "label": self.label,
            "answer": self.answer,
            "how": "claims" if self.claims else grade.how if grade else "",
            "floored": self.floored,
            "why": grade.why if grade else "",
            "cause": self.cause,
            "detail": self.detail,
            "marks": {name: mark for name, mark in marks.items() if mark is not None},
        }

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> EvalSample:
        """What `to_json` gave."""
        marks, text, claims = line["marks"], line["completion"], None
        if "claims" in marks:
            pairs = tuple((claim, verdict) for claim, verdict in marks["claims"]["claims"])
            claims = Claims(**{**marks["claims"], "claims": pairs})
        meta = {name: marks[name] for name in ("answerable", *KINDS) if name in marks}
        premise = marks.get("false_premise")
        options = {name: line[name] for name in ("truncated", "tokens")}
        return cls(
            Example(line["question"], tuple(line["answers"]), line["id"], false_premise=premise, meta=meta),
            None if text is None else Completion(text, prefill=marks.get("prefill", ""), **options),
            Grade(**{name: line[name] for name in _GRADE}) if line["label"] else None,
            **{name: line[name] for name in ("cause", "detail", "benchmark", "number")},
            claims=claims,
        )


def by_question(samples: Iterable[EvalSample]) -> dict[str, list[EvalSample]]:
    """The samples of every question, in the order of the questions and of their numbers."""
    groups: dict[str, list[EvalSample]] = {}
    for sample in samples:
        groups.setdefault(sample.example.id, []).append(sample)
    return {name: sorted(group, key=lambda one: one.number) for name, group in groups.items()}
