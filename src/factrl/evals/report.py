"""The pages of evaluations: every number with its interval, answers to read, what changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from markupsafe import Markup

from factrl.evals.longform import COUNTED
from factrl.evals.metrics import Interval
from factrl.evals.numbers import Better, Bin, Number
from factrl.evals.paired import Paired, WinRate
from factrl.evals.plots import OUTCOMES, Curves, path_chart, steps_chart
from factrl.evals.samples import Row
from factrl.evals.suite import PAGE, Output
from factrl.text.html import fragment, page, write_page
from factrl.types import Label


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
GRADED = [badge for label, badge in BADGES.items() if label]
_SHARES = ("accuracy", "abstention", "hallucination")  # of the badges' labels
_SHORT_FACT = 48
_SHOWN: Mapping[Label | None, int] = {"incorrect": 4, "abstained": 2, "correct": 2, None: 2}
_CHANGED = 12  # changed answers of a benchmark
_ACCEPTED = 6  # accepted answers of a question


def curves_section(curves: Curves) -> Markup:
    """Held-out questions while a run went on: all arms, the last one by step, and the numbers behind."""
    main = list(curves)[-1]
    return fragment(
        "evals/curves.html",
        charts=(path_chart(curves), steps_chart(main, curves[main])),
        names=OUTCOMES,
        curves=curves,
    )


def verdict(change: Interval | None, better: Better) -> tuple[str, str]:
    """Tone and words for a change: `good`, `bad` or `none`, and e.g. `▼ better`."""
    if change is None:
        return "none", ""
    if not change.excludes_zero:
        return "none", "no clear change"
    up = change.value > 0
    if better == "neither":
        return "none", "▲ more" if up else "▼ less"
    good = up == (better == "higher")
    return ("good" if good else "bad"), f"{'▲' if up else '▼'} {'better' if good else 'worse'}"


def reach_of(changes: Iterable[Interval | None]) -> float:
    """How far to both sides of zero the changes are drawn: to a whole ten points."""
    ends = [end for change in changes if change for end in (-change.low, change.high)]
    return math.ceil(10 * max([0.1, *ends])) / 10


def places(one: Interval, low: float, high: float) -> tuple[float, float, float]:
    """Low end, estimate and high end as shares of the way from `low` to `high`."""
    ends = ((end - low) / (high - low) for end in (one.low, one.value, one.high))
    return tuple(min(max(end, 0.0), 1.0) for end in ends)  # type: ignore[return-value]


# -- Evaluations ------------------------------------------------------------------------------------


def write_eval_page(output: Output) -> Path:
    """Write `report.html` into the folder of the evaluation.

    Raises:
        ConfigError: it cannot be written.
    """
    names = list(output.benchmarks)
    on = names[0] if len(names) == 1 else f"{len(names)} benchmarks"
    html = page(
        "evals/evaluation.html",
        title=f"{output.about.get('model')} on {on}",
        facts=_facts(output),
        badges=GRADED,
        benchmarks=[_benchmark(output, name) for name in names],
    )
    return write_page(output.folder / PAGE, html)


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


def main_number(numbers: Mapping[str, Number]) -> str | None:
    """The number that a benchmark is quoted by."""
    usual = ("mc2", "factscore", "truthfulness", "accuracy")
    at_k = [name for name in numbers if name.startswith("f1@") and "/" not in name]
    return next((name for name in (*usual[:1], *at_k, *usual[1:]) if name in numbers), None)


def _facts(output: Output) -> dict[str, str]:
    about = output.about
    sampling = about.get("sampling") or {}
    facts = {
        "judge": about.get("judge"),
        "samples per question": sampling.get("num_samples"),
        "temperature": sampling.get("temperature"),
        "seed": about.get("seed"),
        "documents shown": "yes" if about.get("evidence") else None,
        "first questions only": about.get("limit"),
        "factrl": about.get("factrl"),
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _benchmark(output: Output, name: str) -> Mapping[str, Any]:
    row, samples = output.benchmarks[name], output.samples.get(name, ())
    facts = {
        "questions": str(row["questions"]),
        "answers": str(row["answers"]),
        "from": str(row["source"]),
        "asked for": str(row["asked_for"]),
        "graded by": str(row["judge"]),
        "licence": str(row["licence"]),
    }
    if row["answers"] == row["questions"]:
        del facts["answers"]
    numbers = output.numbers(name)
    labels = [one.label for one in samples if one.label is not None]
    shares = [
        (badge, labels.count(label) / len(labels)) for label, badge in BADGES.items() if label and labels
    ]
    examples: list[Row] = []
    for label, count in _SHOWN.items():
        examples += [one for one in samples if one.label == label][:count]
    reasons = (("masked", "not graded, in no number"), ("floored", "wrong for their form"))
    return {
        "name": name,
        "row": row,
        "facts": facts,
        "shares": shares,
        "main": main_number(numbers),
        "numbers": [(name, number, _drawn(number)) for name, number in numbers.items()],
        "bins": [Bin(**one) for one in row["confidence_bins"]],
        "causes": [(about, row[key].items()) for key, about in reasons if row[key]],
        "examples": [_example(one, ("", one)) for one in examples],
    }


def _drawn(number: Number) -> tuple[float, float, float] | None:
    """A share between 0 and 1, or between -1 and 1 as truthfulness is."""
    return places(number.interval, 0 if number.low >= 0 else -1, 1) if number.percent else None


def _example(question: Row, *answers: tuple[str, Row], moved: str = "") -> Mapping[str, Any]:
    """A question and its answers by who gave them."""
    return {
        "question": question.example.question,
        "moved": moved,
        "accepted": question.example.answers[:_ACCEPTED],
        "more": max(0, len(question.example.answers) - _ACCEPTED),
        "answers": [(who, *_answer(sample)) for who, sample in answers],
    }


def _answer(sample: Row) -> tuple[str, Badge, str]:
    """What was written, its grade, and why that is the grade."""
    text = sample.completion if sample.completion is not None else sample.answer
    badge = BADGES[sample.label]
    if sample.label is None and sample.cause is None:
        badge = badge._replace(word=sample.answer)
    return text, badge, sample.floored or sample.cause or (sample.grade.how if sample.grade else "claims")


def _pair(pair: Paired, before: Output, after: Output, rate: WinRate | None) -> Mapping[str, Any]:
    first, second = before.numbers(pair.name), after.numbers(pair.name)
    changes = {name: one for name, one in pair.differences.items() if one and name not in COUNTED}
    reach = reach_of(changes.values())

    def line(name: str, change: Interval) -> Mapping[str, Any]:
        number = second.get(name) or first.get(name)
        tone, words = verdict(change, number.better if number else "neither")
        ends = [str(side[name]).partition(" ")[0] if name in side else "–" for side in (first, second)]
        told = {"tone": tone, "words": words, "drawn": places(change, -reach, reach)}
        return {"name": name, "ends": ends, "change": change.signed(), **told}

    return {
        "pair": pair,
        "p": None if pair.p is None else "below 0.001" if pair.p < 0.001 else f"{pair.p:.3f}",
        "rate": rate if rate and rate.rate is not None else None,
        "reach": reach,
        "main": main_number(second),
        "lines": [line(name, change) for name, change in changes.items()],
        "changed": [
            _example(new, ("before", old), ("after", new), moved=_moved(old, new))
            for old, new in pair.changed[:_CHANGED]
        ],
        "more": max(0, len(pair.changed) - _CHANGED),
    }


def _moved(before: Row, after: Row) -> str:
    return f"{BADGES[before.label].word} → {BADGES[after.label].word}; "
