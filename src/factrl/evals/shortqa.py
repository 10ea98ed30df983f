"""Stored answers to short questions: graded side by side and summed up.

A row whose completion is null is masked, since nothing was generated there.  Questions known to rest on a
false premise have numbers of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from factrl.errors import ConfigError, DataError, FactrlError, RewardBug, Unscored, nearest
from factrl.evals.metrics import TRUTHRL, Interval, ShortForm, Weights, short_form
from factrl.evals.plots import OUTCOMES
from factrl.evals.prompts import final_part
from factrl.evals.samples import Row, graded, masked
from factrl.runs.data import ColumnName, load_examples
from factrl.text import Slice, boxed, tag
from factrl.text.escape import one_line
from factrl.types import Example, Grade

if TYPE_CHECKING:
    from rich.table import Table

Extract = Literal["text", "boxed", "answer"]


def _said(text: str) -> Slice | None:
    """All of a text but its reasoning; None when that does not end."""
    said = final_part(text)
    return None if said is None else Slice(said, 0, len(said))


# What finds the answer in a completion, and what the completion is floored with when it holds none.
_FINDERS: Mapping[str, tuple[Callable[[str], Slice | None], str]] = {
    "text": (_said, "no_answer"),
    "boxed": (boxed, "no_box"),
    "answer": (lambda text: tag(text, "answer"), "no_answer"),
}
COLUMNS = ("completion", "response", "prediction", "output")
NOTHING_STORED = Unscored("no_completion", "the file has no completion here")


class GradeAnswer(Protocol):
    """Anything that grades one answer, such as `factrl.rewards.grading.Grader`."""

    def __call__(
        self, question: str, prediction: str, answers: Sequence[str], *, false_premise: bool | None = None
    ) -> Grade:
        """What became of the answer; raises `Unscored` when it cannot be graded."""
        ...


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The rows of a file with their numbers.

    Attributes:
        summary: all questions but those known to rest on a false premise.
        false_premise: those; None when the file has none.
        masked, floored: questions by cause, over all rows; floored ones count as wrong answers.
        by: what a column says -> its rows alone, false premises too; empty where no column was named.
    """

    rows: Sequence[Row]
    summary: ShortForm
    false_premise: ShortForm | None
    masked: Mapping[str, int]
    floored: Mapping[str, int]
    by: Mapping[str, ShortForm] = field(default_factory=dict)

    def table(self) -> Table:
        """For a terminal: every metric with its interval, and what was masked as a row of its own."""
        from rich.table import Table
        from rich.text import Text

        table = Table("metric", "value", "95 % interval", "questions")
        for name, part in (("", self.summary), ("false premise: ", self.false_premise)):
            if part is None:
                continue
            counts = _counts(part)
            for metric, interval in part.metrics.items():
                table.add_row(
                    name + metric.replace("_", " "), *_cells(interval), counts.get(metric, str(part.n))
                )
            table.add_section()
        for name, causes in (("masked", self.masked), ("floored", self.floored)):
            told = ", ".join(f"{one_line(cause)} {count}" for cause, count in causes.items())
            # Causes are others' words: as Text they cannot carry console markup.
            table.add_row(name, "", Text(told), str(sum(causes.values())))
        return table

    def table_by(self, column: str) -> Table:
        """For a terminal: a row for each value of the column that the rows were parted by."""
        from rich.table import Table
        from rich.text import Text

        table = Table(column, "questions", *OUTCOMES)
        for name, part in self.by.items():
            numbers = (part.metrics[metric] for metric in OUTCOMES)
            cells = ("–" if number is None else str(number) for number in numbers)
            table.add_row(Text(one_line(name)), str(part.n), *cells)
        return table

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`, with one entry per row."""
        return {
            "summary": self.summary.to_json(),
            "false_premise": self.false_premise.to_json() if self.false_premise else None,
            "masked": dict(self.masked),
            "floored": dict(self.floored),
            "by": {name: part.to_json() for name, part in self.by.items()},
            "rows": [_plain(row) for row in self.rows],
        }


def evaluate_file(
    path: str | Path,
    grader: GradeAnswer,
    *,
    extract: Extract = "text",
    column: str = "",
    weights: Weights = TRUTHRL,
    workers: int = 16,
    limit: int | None = None,
) -> Evaluation:
    """Grade a file of stored completions.

    Args:
        path: .jsonl or .parquet with a question, its accepted answers and a completion per row.
        grader: grades one answer; called from several threads.
        extract: what of a completion is the answer, see `grade_completions`.
        column: the column of the completions; by default `completion`, `response`, `prediction` or `output`.
        weights: what an outcome is worth in truthfulness.
        workers: how many answers are graded at the same time.
        limit: only the first so many rows.

    Raises:
        DataError: a column or an accepted answer is missing; nothing has been graded then.
    """
    completions = load_completions(path, column, limit)
    check_gradable([example for example, _ in completions], path)
    return summarise(grade_completions(completions, grader, extract, workers), weights)


def load_completions(
    path: str | Path,
    column: str = "",
    limit: int | None = None,
    columns: Mapping[ColumnName, str] | None = None,
) -> list[tuple[Example, str | None]]:
    """The examples and completions of a file, see `evaluate_file`; accepted answers may be missing.

    Args:
        columns: what the file calls its other columns, as for `load_examples`.

    Raises:
        DataError: a column is missing.
    """
    examples = load_examples(path, limit=limit, columns=columns, require_answers=False)
    chosen = completions_column(path, column, [name for example in examples for name in example.meta])
    for number, example in enumerate(examples, start=1):
        if not isinstance(example.meta.get(chosen), (str, NoneType)):
            kind = type(example.meta[chosen]).__name__
            raise DataError(f"{path}, row {number}: {chosen} is a {kind}, not text or null")
    return [(example, example.meta.get(chosen)) for example in examples]


def completions_column(path: str | Path, column: str, columns: Iterable[str]) -> str:
    """Which column of a file holds the completions; `column` where it is given.

    Args:
        columns: of all rows, without the questions.

    Raises:
        DataError: there is none.
    """
    present = dict.fromkeys(columns)
    chosen = column or next((name for name in COLUMNS if name in present), "")
    if chosen not in present:
        told = "its rows hold only questions and what is known about them; add a column `completion`"
        if present:
            told = (
                f"columns beside the question: {', '.join(present)}; name the right one with --column NAME "
                "(column=... in Python)"
            )
        raise DataError(
            f"{path} has no column {column or 'for the completions'}{nearest(column, present)}; {told}"
        )
    return chosen


def check_gradable(examples: Sequence[Example], source: str | Path) -> None:
    """Refuse questions without an accepted answer, unless they are known to rest on a false premise.

    Raises:
        DataError: how many there are, and the first of them.
    """
    bare = [example for example in examples if not example.answers and not example.false_premise]
    if bare:
        raise DataError(
            f"{source}: {len(bare)} of {len(examples)} rows have no accepted answer, first "
            f"{_named(bare[0])}; fill them or leave the rows out"
        )


def summarise(rows: Sequence[Row], weights: Weights = TRUTHRL, by: str = "") -> Evaluation:
    """What graded rows come to.

    Args:
        by: a column of the file, or a field of `Example` such as `ook`, whose values part the rows.
    """
    parts: dict[str, list[Grade | None]] = {}
    for row in rows:
        if value := _part(row.example, by):
            parts.setdefault(value, []).append(row.grade)
    usual = [row.grade for row in rows if not row.example.false_premise]
    odd = [row.grade for row in rows if row.example.false_premise]
    return Evaluation(
        rows,
        short_form(usual, weights),
        short_form(odd, weights) if odd else None,
        _by_count(row.cause for row in rows if row.cause),
        _by_count(row.grade.floored for row in rows if row.grade and row.grade.floored),
        {name: short_form(grades, weights) for name, grades in sorted(parts.items())},
    )


def check_parts(examples: Sequence[Example], by: str) -> None:
    """Refuse a column to part the rows by that none of them has.

    Raises:
        DataError: which there are.
    """
    if by and not any(_part(example, by) for example in examples):
        columns = dict.fromkeys(name for example in examples for name in example.meta)
        known = f" (there are: {', '.join(columns)})" if columns else ""
        raise DataError(f"no row has a column {by!r}{nearest(by, columns)}{known}")


def _part(example: Example, by: str) -> str:
    value = example.meta.get(by, getattr(example, by, None)) if by else None
    return "" if value is None else str(value)


def grade_completions(
    completions: Sequence[tuple[Example, str | None]],
    grader: GradeAnswer,
    extract: Extract = "text",
    workers: int = 16,
    on_row: Callable[[], None] = lambda: None,
) -> list[Row]:
    r"""Grade completions side by side; the rows come back in their order.

    Args:
        completions: examples with what was written for them, None when nothing was.
        grader: grades one answer; called from several threads.
        extract: `text` the completion without its reasoning, `boxed` the last `\boxed{…}`, `answer` the last
            `<answer>` tag.  Without the box, the tag or the end of its reasoning a completion is wrong.
        workers: how many answers are graded at the same time.
        on_row: called after each row, in this thread.

    Raises:
        RewardBug: the grader raised something other than `Unscored`, or returned no grade.
    """
    if extract not in _FINDERS:
        raise ConfigError(
            f"extract {extract!r} is not one of {', '.join(_FINDERS)}{nearest(extract, _FINDERS)}"
        )
    if workers < 1:
        raise ConfigError(f"workers must be at least 1, not {workers}")

    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(_graded, example, text, grader, extract) for example, text in completions]
        rows = []
        for future, (example, _) in zip(futures, completions, strict=True):
            rows.append(_row(future, example))
            on_row()
        return rows
    finally:
        pool.shutdown(cancel_futures=True)


def find_answer(completion: str, extract: Extract) -> tuple[str | None, str]:
    """The answer in a completion, and what the completion is floored with when that is None."""
    find, missing = _FINDERS[extract]
    found = find(completion)
    return (None if found is None else found.text), missing


def short_answer(example: Example, said: str, grader: GradeAnswer, extract: Extract) -> Grade:
    """The grade of the answer in a text; a text without one is floored.

    Raises:
        Unscored: it could not be graded.
    """
    answer, missing = find_answer(said, extract)
    if answer is None:
        return Grade("incorrect", "", how="gate", floored=missing)
    grade = grader(example.question, answer, example.answers, false_premise=example.false_premise)
    if not isinstance(grade, Grade):
        raise RewardBug(f"the grader returned {grade!r} for {_named(example)}, not a Grade")
    return grade


def _graded(example: Example, text: str | None, grader: GradeAnswer, extract: Extract) -> Row:
    if text is None:
        return masked(example, NOTHING_STORED)
    return graded(example, text, lambda: (short_answer(example, text, grader, extract), {}))


def _row(future: Future[Row], example: Example) -> Row:
    error = future.exception()
    if isinstance(error, Exception) and not isinstance(error, FactrlError):
        raise RewardBug(f"the grader failed on {_named(example)}: {error!r}") from error
    return future.result()


def _named(example: Example) -> str:
    return f"example {example.id!r} ({example.question[:80]!r})"


def _by_count(causes: Iterable[str]) -> Mapping[str, int]:
    return dict(Counter(causes).most_common())


def _cells(interval: Interval | None) -> tuple[str, str]:
    if interval is None:
        return "–", ""
    value, limits = str(interval).split(" ", 1)
    return value, limits


def _counts(part: ShortForm) -> Mapping[str, str]:
    """Numerator and denominator of the metrics that are rates."""
    attempted = part.correct + part.incorrect
    return {
        "accuracy": f"{part.correct} of {part.n}",
        "abstention": f"{part.abstained} of {part.n}",
        "hallucination": f"{part.incorrect} of {part.n}",
        "correct_given_attempted": f"{part.correct} of {attempted}",
    }


def _plain(row: Row) -> dict[str, Any]:
    grade = asdict(row.grade) if row.grade else None
    return {"id": row.example.id, "grade": grade, "cause": row.cause, "detail": row.detail}
