"""What is shown of evaluations: a table, and a page with every number and answers to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from factrl.evals.folder import COLUMNS, PAGE, Output, output_lines
from factrl.evals.metrics import Interval, Number
from factrl.evals.plots import OUTCOMES, Point, outcomes_chart
from factrl.evals.samples import EvalSample
from factrl.runs.disk import write_page
from factrl.text.escape import one_line
from factrl.text.html import fragment, page
from factrl.types import Label

if TYPE_CHECKING:
    from rich.table import Table


class Badge(NamedTuple):
    """One letter, one word and one colour each: never colour alone."""

    letter: str
    word: str
    fill: str


BADGES: Mapping[Label | None, Badge] = {
    "correct": Badge("C", "correct", "c"),
    "abstained": Badge("A", "abstained", "a"),
    "incorrect": Badge("W", "wrong", "w"),
    None: Badge("–", "not graded", "m"),
}
GRADED = {label: badge for label, badge in BADGES.items() if label}
_SHOWN: Mapping[Label | None, int] = {"incorrect": 4, "abstained": 2, "correct": 2, None: 2}
_ACCEPTED = 6  # accepted answers of a question


def output_table(output: Output) -> Table:
    """For a terminal: every number of every benchmark with its interval, and what was left out."""
    from rich.table import Table
    from rich.text import Text

    # Names, causes and values of columns are others' words: as Text they cannot carry console markup.
    table = Table(*COLUMNS)
    for lines in output_lines(output):
        for line in lines:
            table.add_row(*(Text(one_line(cell)) for cell in line))
        table.add_section()
    return table


def curves_section(points: Sequence[Point]) -> Markup:
    """Held-out questions while a run went on: every outcome by step, and the numbers behind."""
    return fragment("evals/curves.html", chart=outcomes_chart(points), names=OUTCOMES, points=points)


def write_eval_page(output: Output) -> Path:
    """Write `report.html` into the folder of the evaluation.

    Raises:
        ConfigError: it cannot be written.
    """
    names, about = list(output.benchmarks), output.about
    sampling = about.get("sampling") or {}
    facts = {
        "judge": about.get("judge"),
        "samples per question": sampling.get("num_samples"),
        "temperature": sampling.get("temperature"),
        "seed": about.get("seed"),
        "first questions only": about.get("limit"),
        "factrl": about.get("factrl"),
    }
    html = page(
        "evals/evaluation.html",
        title=f"{about.get('model')} on {names[0] if len(names) == 1 else f'{len(names)} benchmarks'}",
        facts={name: str(value) for name, value in facts.items() if value is not None},
        badges=list(GRADED.values()),
        benchmarks=[_benchmark(output, name) for name in names],
    )
    return write_page(output.folder / PAGE, html)


def _benchmark(output: Output, name: str) -> Mapping[str, Any]:
    row, samples, numbers = output.benchmarks[name], output.samples.get(name, ()), output.numbers(name)
    facts = {
        "questions": str(row["questions"]),
        "answers": str(row["answers"]),
        "from": str(row["source"]),
        "graded by": str(row["judge"]),
        "licence": str(row["licence"]),
    }
    if row["answers"] == row["questions"]:
        del facts["answers"]
    if not row["licence"]:  # questions of one's own
        del facts["licence"]
    labels = [one.label for one in samples if one.label is not None]
    examples: list[EvalSample] = []
    for label, count in _SHOWN.items():
        examples += [one for one in samples if one.label == label][:count]
    reasons = (("masked", "not graded, in no number"), ("floored", "wrong for their form"))
    return {
        "name": name,
        "row": row,
        "facts": facts,
        "shares": [(badge, labels.count(label) / len(labels)) for label, badge in GRADED.items() if labels],
        "main": main_number(numbers),
        # A share is drawn between 0 and 1, or between -1 and 1 as truthfulness is.
        "numbers": [
            (name, one, places(one, -1 if one.low < 0 else 0, 1) if one.percent else None)
            for name, one in numbers.items()
        ],
        "bins": row.get("confidence_bins"),
        "absent": row.get("absent", {}),
        "causes": [(about, row[key].items()) for key, about in reasons if row[key]],
        "examples": [_example(one) for one in examples],
    }


def main_number(numbers: Mapping[str, Number]) -> str | None:
    """The number that a benchmark is quoted by."""
    at_k = [name for name in numbers if name.startswith("f1@")]
    return next((name for name in (*at_k, "factscore", "truthfulness", "accuracy") if name in numbers), None)


def _example(one: EvalSample) -> Mapping[str, Any]:
    """A question and what was answered: the text, its grade, and why that is the grade."""
    badge = BADGES[one.label]
    if one.label is None and one.cause is None:
        badge = badge._replace(word=one.answer)
    accepted = one.example.answers
    return {
        "question": one.example.question,
        "accepted": accepted[:_ACCEPTED],
        "more": max(0, len(accepted) - _ACCEPTED),
        "said": one.answer if one.completion is None else one.completion,
        "badge": badge,
        "why": one.floored or one.cause or (one.grade.how if one.grade else "claims"),
    }


def places(one: Interval, low: float, high: float) -> tuple[float, float, float]:
    """Low end, estimate and high end as shares of the way from `low` to `high`."""
    ends = ((end - low) / (high - low) for end in (one.low, one.value, one.high))
    return tuple(min(max(end, 0.0), 1.0) for end in ends)  # type: ignore[return-value]
