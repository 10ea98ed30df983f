"""What an evaluation keeps of every answer: one flat row, on disk as a line of `samples.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from factrl.errors import DataError
from factrl.types import Grade, Label


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer to one question of one benchmark.

    Attributes:
        number: which of the question's samples this is, from 0.
        answers: accepted answers.
        completion: what the model wrote; None where it was not asked to write, or nothing came.
        truncated: it ran into the length limit.
        label: what became of it; None for a long answer, and where it could not be graded.
        cause, detail: why it could not be graded; None where it could.
        answer, how, floored, why: as in `Grade`.
        confidence: how sure the model said it is, 0 to 1; None when it was not asked or did not say.
        values: other numbers of this answer, such as `mc2`.
        marks: what is known of the question: `answerable`, `false_premise`, `chance`; and `prefill`, with
            which the prompt began the completion.
    """

    benchmark: str
    id: str
    number: int
    question: str
    answers: Sequence[str]
    completion: str | None
    truncated: bool = False
    tokens: int | None = None
    label: Label | None = None
    answer: str = ""
    how: str = ""
    floored: str | None = None
    why: str = ""
    cause: str | None = None
    detail: str = ""
    confidence: float | None = None
    values: Mapping[str, float] = field(default_factory=dict, hash=False)
    marks: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def masked(self) -> bool:
        """Whether it could not be graded."""
        return self.cause is not None

    @property
    def grade(self) -> Grade | None:
        """None when there is no label."""
        if self.label is None:
            return None
        return Grade(self.label, self.answer, self.how, self.floored, self.why)


_FIELDS = frozenset(one.name for one in fields(Sample))


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    """One JSON object per line; half a character, which UTF-8 cannot say, as JSON's escape of it."""
    lines = (json.dumps(asdict(sample), ensure_ascii=False, allow_nan=False) for sample in samples)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", errors="backslashreplace")


def read_samples(path: Path) -> list[Sample]:
    """The rows that `write_samples` wrote.

    Raises:
        DataError: the file is missing, or a line of it is not such a row.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    samples = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
            samples.append(Sample(**{name: value for name, value in row.items() if name in _FIELDS}))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(f"{path}, line {number} is not a graded answer: {error}") from error
    return samples


def by_question(samples: Iterable[Sample]) -> dict[str, list[Sample]]:
    """The samples of every question, in the order of the questions and of their numbers."""
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.id, []).append(sample)
    return {name: sorted(group, key=lambda one: one.number) for name, group in groups.items()}
