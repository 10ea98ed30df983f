"""What a demo shows: a table with intervals, ten questions before and after, a picture and a report."""

from __future__ import annotations

import json
import os
import platform
import random
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from factrl.evals.metrics import Interval
from factrl.evals.plots import write_picture
from factrl.evals.report import Answer, MetricRow, SideBySide, metric_rows, write_training_report
from factrl.lab.demo import demo_settings
from factrl.lab.demo.run import Arm, Outcome, run_demo
from factrl.runs.progress import clock
from factrl.text.escape import one_line

SHOWN = 10
_WORDS = {"correct_given_attempted": "right if answered"}
_MARKS = {"correct": ("C", "blue"), "abstained": ("A", "dim"), "incorrect": ("W", "red"), None: ("?", "")}


def play(reward: str, overrides: Sequence[str] = (), *, quick: bool = False) -> Path:
    """Run the demo, print what it measured and write the report; returns the report's path.

    Args:
        reward: the main reward, e.g. `truthrl:ternary`.
        overrides: `key=value` settings.
        quick: a few steps on a few questions, to see that everything works; it shows no effect.
    """
    outcome = run_demo(demo_settings(list(overrides), reward, quick=quick))
    rows = table_rows(outcome)
    curves = {short_name(arm): arm.curve for arm in outcome.arms}
    title, notes = _title(outcome), _notes(outcome, quick)
    picture = outcome.folder / "demo.svg"
    write_picture(curves, picture, title=title)
    examples = side_by_side(outcome, every=True)
    report = write_training_report(
        outcome.folder / "report.html",
        title=title,
        facts=_facts(outcome),
        table=rows,
        curves=curves,
        examples=examples,
        masked=outcome.masked,
        notes=notes,
    )
    _write_numbers(outcome, rows)
    console = Console()
    for arm in reversed(outcome.arms):
        console.print(terminal_table(outcome, arm, rows))
    console.print(_ten(side_by_side(outcome, every=False)))
    for note in notes:
        console.print(note, highlight=False)
    console.print(f"\n{clock(outcome.seconds)} minutes", highlight=False)
    console.print(f"picture  {picture}\nreport   {report}", highlight=False, soft_wrap=True)
    return report


def table_rows(outcome: Outcome) -> list[MetricRow]:
    """The report's metrics, and accuracy and abstention on what the model knew before."""
    rows = metric_rows(outcome.before.grades, {short_name(arm): arm.grades for arm in outcome.arms})
    told = outcome.settings.demo
    known = [index for index, knew in enumerate(outcome.known) if knew]
    if not known:
        return rows
    subset = metric_rows(
        [outcome.before.grades[i] for i in known],
        {short_name(arm): [arm.grades[i] for i in known] for arm in outcome.arms},
    )
    about = f"on {len(known)} questions, right in {told.base_correct} of {told.base_samples} samples before"
    for row in subset:
        if row.metric in ("accuracy", "abstention"):
            better = "higher" if row.metric == "accuracy" else "lower"
            rows.append(
                MetricRow(f"known: {row.metric}", row.before, row.after, row.difference, better, about)
            )
    return rows


def terminal_table(outcome: Outcome, arm: Arm, rows: Sequence[MetricRow]) -> Table:
    """One line per metric: before, after this arm's training, and the paired change; 80 columns wide."""
    name = short_name(arm)
    table = Table(
        title=f"\n{name}: {arm.steps} steps, {len(arm.rows)} held-out questions, points with 95 % intervals",
        title_justify="left",
        title_style="",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("", no_wrap=True)
    for column in ("before", "after", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        if row.metric == "f_score":
            continue
        change = row.difference[name]
        table.add_row(
            _WORDS.get(row.metric, row.metric),
            _cell(row.before),
            _cell(row.after[name]),
            change.signed() if change else "–",
        )
    table.add_row("masked", str(_masked(outcome.before)), str(_masked(arm)), "")
    return table


def _masked(arm: Arm) -> int:
    return sum(grade is None for grade in arm.grades)


def side_by_side(outcome: Outcome, *, every: bool) -> list[SideBySide]:
    """Questions with their answers before and after; all of them, or ten drawn by the run's seed."""
    indices = list(range(len(outcome.before.rows)))
    if not every:
        rng = random.Random(outcome.settings.run.seed)
        indices = sorted(rng.sample(indices, min(SHOWN, len(indices))))
    return [
        SideBySide(
            outcome.before.rows[i].example.question,
            outcome.before.rows[i].example.answers[:3],
            _answer(outcome.before, i),
            {short_name(arm): _answer(arm, i) for arm in outcome.arms},
        )
        for i in indices
    ]


def short_name(arm: Arm) -> str:
    """`truthrl:ternary` -> `ternary`."""
    return arm.name.rpartition(":")[2]


def _answer(arm: Arm, index: int) -> Answer:
    row = arm.rows[index]
    return Answer((row.completion or "").strip(), row.grade.label if row.grade else None)


def _ten(examples: Sequence[SideBySide]) -> Table:
    table = Table(
        title="\nTen of them, drawn by the seed (C correct, A abstained, W wrong)",
        title_justify="left",
        title_style="",
        box=SIMPLE,
    )
    for name in ("question", "accepted", "before", *(examples[0].after if examples else ())):
        table.add_column(name)
    for example in examples:
        answers = [example.before, *example.after.values()]
        table.add_row(
            Text(one_line(example.question)),
            Text(one_line(example.answers[0]) if example.answers else ""),
            *(Text.assemble(_MARKS[a.label], " ", one_line(a.text)) for a in answers),
        )
    return table


def _cell(interval: Interval | None) -> str:
    return str(interval) if interval else "–"


def _title(outcome: Outcome) -> str:
    arms = " against ".join(short_name(arm) for arm in reversed(outcome.arms))
    model = Path(outcome.settings.model.name).name
    return f"{model} on {len(outcome.before.rows)} held-out questions: {arms} reward"


def _facts(outcome: Outcome) -> dict[str, str]:
    settings = outcome.settings
    return {
        "model": Path(settings.model.name).name,
        "reward": settings.paper,
        "steps": ", ".join(f"{arm.steps} ({short_name(arm)})" for arm in outcome.arms),
        "seed": str(settings.run.seed),
        "questions": f"{len(outcome.before.rows)} held out",
        "time": f"{clock(outcome.seconds)} on {os.cpu_count()} cores",
        "versions": ", ".join(
            f"{name} {version(name)}" for name in ("factrl", "torch", "transformers", "trl")
        ),
        "platform": f"Python {platform.python_version()}, {platform.platform()}",
        "command": shlex.join(["factrl", *sys.argv[1:]]),
        "run folder": str(outcome.folder),
    }


def _notes(outcome: Outcome, quick: bool) -> list[str]:
    notes = []
    if quick:
        notes.append("This was --quick: it shows that everything works, not what training does.")
    notes.append(
        "Answers are graded by rules alone, before and after alike: normalised equality with an accepted one."
    )
    notes.append(
        "+1/0/-1 pays for declining wherever the model is right less than half the time, and on most of "
        "these questions it is: hallucination falls, and some right answers go with it."
    )
    return notes


def _write_numbers(outcome: Outcome, rows: Sequence[MetricRow]) -> None:
    """`numbers.json`: the table for programs, as fractions."""

    def plain(interval: Interval | None) -> list[float] | None:
        return [interval.value, interval.low, interval.high] if interval else None

    metrics = {
        row.metric: {
            "before": plain(row.before),
            "after": {arm: plain(i) for arm, i in row.after.items()},
            "change": {arm: plain(i) for arm, i in row.difference.items()},
        }
        for row in rows
    }
    numbers = {"metrics": metrics, "seconds": round(outcome.seconds, 1)}
    (outcome.folder / "numbers.json").write_text(json.dumps(numbers, indent=2), encoding="utf-8")
