"""What is shown of evaluations: tables, and pages with every number, answers to read and what changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from factrl.evals.folder import COLUMNS, PAGE, Output, output_lines
from factrl.evals.metrics import Better, Interval, Number
from factrl.evals.numbers import COUNTED
from factrl.evals.paired import Paired, WinRate
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
_CHANGED = 12  # changed answers of a benchmark
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
        "examples": [_example(one, ("", one)) for one in examples],
    }


def main_number(numbers: Mapping[str, Number]) -> str | None:
    """The number that a benchmark is quoted by."""
    at_k = [name for name in numbers if name.startswith("f1@")]
    return next((name for name in (*at_k, "factscore", "truthfulness", "accuracy") if name in numbers), None)


def _example(question: EvalSample, *answers: tuple[str, EvalSample], moved: str = "") -> Mapping[str, Any]:
    """A question and its answers by who gave them: what was written, its grade, and why that is the grade."""
    shown = []
    for who, one in answers:
        badge = BADGES[one.label]
        if one.label is None and one.cause is None:
            badge = badge._replace(word=one.answer)
        why = one.floored or one.cause or (one.grade.how if one.grade else "claims")
        shown.append((who, one.answer if one.completion is None else one.completion, badge, why))
    accepted = question.example.answers
    return {
        "question": question.example.question,
        "moved": moved,
        "accepted": accepted[:_ACCEPTED],
        "more": max(0, len(accepted) - _ACCEPTED),
        "answers": shown,
    }


# -- Two evaluations ---------------------------------------------------------------------------------


def write_paired_page(
    path: Path,
    before: Output,
    after: Output,
    pairs: Sequence[Paired],
    rates: Mapping[str, WinRate] = MappingProxyType({}),
) -> Path:
    """Write the page of two evaluations: differences with intervals, and the answers that changed.

    Args:
        rates: by benchmark, how often a judge prefers the later answers.

    Raises:
        ConfigError: it cannot be written.
    """
    html = page(
        "evals/paired.html",
        title=" → ".join(side_names(before, after)),
        facts={"before": str(before.folder), "after": str(after.folder)},
        pairs=[_pair(pair, before, after, rates.get(pair.name)) for pair in pairs],
    )
    return write_page(path, html)


def side_names(before: Output, after: Output) -> tuple[str, str]:
    """What to call the two: their models, or their folders where these are the same."""
    models = [str(side.about.get("completions") or side.about.get("model")) for side in (before, after)]
    if models[0] == models[1]:
        models = [str(side.folder) for side in (before, after)]
    return models[0], models[1]


def _pair(pair: Paired, before: Output, after: Output, rate: WinRate | None) -> Mapping[str, Any]:
    first, second = before.numbers(pair.name), after.numbers(pair.name)
    changes = {name: one for name, one in pair.differences.items() if one and name not in COUNTED}
    # How far to both sides of zero the changes are drawn: to a whole ten points.
    ends = [end for change in changes.values() for end in (-change.low, change.high)]
    reach = math.ceil(10 * max([0.1, *ends])) / 10
    lines = []
    for name, change in changes.items():
        number = second.get(name) or first.get(name)
        tone, words = verdict(change, number.better if number else "neither")
        sides = [str(side[name]).partition(" ")[0] if name in side else "–" for side in (first, second)]
        marks = {"tone": tone, "words": words, "drawn": places(change, -reach, reach)}
        lines.append({"name": name, "ends": sides, "change": change.signed(), **marks})
    changed = [
        (old, new, f"{BADGES[old.label].word} → {BADGES[new.label].word}; ")
        for old, new in pair.changed[:_CHANGED]
    ]
    return {
        "pair": pair,
        "p": None if pair.p is None else "below 0.001" if pair.p < 0.001 else f"{pair.p:.3f}",
        "rate": rate if rate and rate.rate is not None else None,
        "reach": reach,
        "main": main_number(second),
        "lines": lines,
        "changed": [
            _example(new, ("before", old), ("after", new), moved=moved) for old, new, moved in changed
        ],
        "more": max(0, len(pair.changed) - _CHANGED),
    }


def verdict(change: Interval, better: Better) -> tuple[str, str]:
    """Tone and words for a change: `good`, `bad` or `none`, and e.g. `▼ better`."""
    if not change.excludes_zero:
        return "none", "no clear change"
    up = change.value > 0
    if better == "neither":
        return "none", "▲ more" if up else "▼ less"
    good = up == (better == "higher")
    return ("good" if good else "bad"), f"{'▲' if up else '▼'} {'better' if good else 'worse'}"


def places(one: Interval, low: float, high: float) -> tuple[float, float, float]:
    """Low end, estimate and high end as shares of the way from `low` to `high`."""
    ends = ((end - low) / (high - low) for end in (one.low, one.value, one.high))
    return tuple(min(max(end, 0.0), 1.0) for end in ends)  # type: ignore[return-value]
