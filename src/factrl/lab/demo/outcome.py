"""What a demo measured, as it is printed, drawn and kept in its run folder."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from factrl.evals.metrics import Interval, compare, short_form
from factrl.evals.plots import Point, write_picture
from factrl.evals.samples import Row
from factrl.runs.disk import write_whole
from factrl.text.escape import one_line
from factrl.types import Grade

from . import ArmSettings, DemoSettings

PARTS = ("known", "sure", "helped", "no help")  # of the held-out questions
SURE = 7 / 8  # of the samples right
SHOWN = 10  # questions with their answers
_WORDS = {
    "correct_given_attempted": "right if answered",
    **{f"{part}: accuracy": f"{part}: right" for part in PARTS},
    **{f"{part}: abstention": f"{part}: declined" for part in PARTS},
}
_MARKS = {"correct": ("C", "blue"), "abstained": ("A", "dim"), "incorrect": ("W", "red"), None: ("?", "")}
_NOTES = (
    "Answers are graded by rules alone, before and after alike: normalised equality with an accepted one.",
    "before: after a warm start that teaches the form of an answer; calibrated: then taught to decline where "
    "hardly any of its own samples is right. Both rewards start from there.",
)
Change = tuple[Interval | None, Interval | None, Interval | None]
"""A metric before and after training, and the paired difference."""


@dataclass(frozen=True)
class Knowledge:
    """What the warm-started model knows, by several samples of each held-out question.

    `frontier` is what its own agreement allows: at each threshold on the share of a question's samples that
    say the same, that answer where it is reached and an abstention elsewhere, from the most abstentions on.
    `best` is the one whose threshold has the highest truthfulness on training questions.
    """

    right: Sequence[int]  # of each question's samples
    known: Sequence[int]  # questions that enough of the samples got right
    frontier: Sequence[Point]
    best: Point


@dataclass(frozen=True)
class Arm:
    """One reward's model on the held-out questions, in their order, and its way there."""

    name: str
    rows: Sequence[Row]
    folder: Path
    curve: Sequence[Point] = ()
    steps: int = 0

    @property
    def grades(self) -> list[Grade | None]:
        return [row.grade for row in self.rows]


def show(before: Arm, arms: Sequence[Arm], knows: Knowledge, settings: DemoSettings) -> None:
    """Print the tables, and write `demo.svg` and `numbers.json` beside the arms."""
    told, console = settings.demo, Console()
    folder = before.folder
    model, against = Path(settings.model.name).name, " against ".join(arm.name for arm in arms[:0:-1])
    title = f"{model} on {len(before.rows)} held-out questions: {against} reward"
    drawn = sorted(
        random.Random(settings.run.seed).sample(range(len(before.rows)), min(SHOWN, len(before.rows)))
    )
    rows = [(before.rows[number], arms[-1].rows[number]) for number in drawn]
    write_picture(
        {arm.name: arm.curve for arm in (before, *arms)},
        folder / "demo.svg",
        title=title,
        frontier=knows.frontier,
        count=len(before.rows),
        answers=[(first.example.question, first.label, last.label) for first, last in rows],
    )
    sure = [number for number, right in enumerate(knows.right) if right >= SURE * told.base_samples]
    parts: dict[str, Sequence[int]] = {"known": knows.known, "sure": sure}
    if told.retrieval:
        for name, helped in zip(PARTS[2:], (True, False), strict=True):
            parts[name] = [i for i, row in enumerate(before.rows) if row.example.meta["helps"] is helped]
    numbers = {arm.name: changes(before, arm, parts) for arm in arms}
    plain = {
        arm: {
            name: [one and [one.value, one.low, one.high] for one in values] for name, values in some.items()
        }
        for arm, some in numbers.items()
    }
    allowed: dict[str, Any] = {
        "frontier": [asdict(point) for point in knows.frontier],
        "best": asdict(knows.best),
    }
    allowed |= {"samples": told.base_samples, "right of each question": list(knows.right)}
    write_whole(folder / "numbers.json", json.dumps(plain | {"allowed": allowed}, indent=2).encode())
    for arm in reversed(arms):
        console.print(_table(arm, numbers[arm.name], sum(grade is None for grade in before.grades)))
    knew = f"right in {told.base_correct} of {told.base_samples} samples before; sure, the"
    knew += f" {len(sure)} of them in {math.ceil(SURE * told.base_samples)}"
    console.print(f"\nknown: {len(knows.known)} questions, {knew}", highlight=False)
    console.print(_reached(before, arms[-1], knows, told), highlight=False)
    console.print(_side_by_side([before, *arms], drawn))
    for note in (*_NOTES, *_margin(settings.reward)):
        console.print(note, highlight=False)


def _margin(reward: Mapping[str, Any]) -> list[str]:
    """Where declining begins to pay, of a reward that pays for the outcome."""
    if not {"correct", "abstain", "wrong"} <= {*reward}:
        return []
    correct, abstain, wrong = reward["correct"], reward["abstain"], reward["wrong"]
    line = 100 * (abstain - wrong) / (correct - wrong)
    text = f"The reward is {correct:+g}/{abstain:g}/{wrong:+g}: declining pays where the model is right less "
    usual = "" if line == 50 else " TruthRL's own +1/0/-1 has 50 there, and costs more of what was known."
    return [f"{text}than {line:.0f} times in 100.{usual}"]


def _reached(before: Arm, arm: Arm, knows: Knowledge, told: ArmSettings) -> str:
    """The arm's truthfulness as a share of what the model's own agreement allows, counted from the start."""
    start, end, best = before.curve[-1].truthfulness, arm.curve[-1].truthfulness, knows.best.truthfulness
    text = f"what its own knowledge allows: truthfulness {100 * best:.1f}, by declining where too few of "
    text += f"{told.base_samples} samples agree"
    if best > start:
        text += f";\n{arm.name} has {(end - start) / (best - start):.0%} of that gain, in one sample"
    return text.replace("-", "−")


def changes(before: Arm, arm: Arm, parts: Mapping[str, Sequence[int]]) -> dict[str, Change]:
    """Every metric of an arm, and accuracy and abstention of each part of the questions, told by numbers."""

    def of(numbers: Sequence[int]) -> dict[str, Change]:
        first, last = ([side.grades[number] for number in numbers] for side in (before, arm))
        moved = compare(first, last).differences
        then, now = short_form(first).metrics, short_form(last).metrics
        return {name: (then[name], now[name], moved[name]) for name in then if name != "f_score"}

    found = of(range(len(before.rows)))
    for part, numbers in parts.items():
        subset = of(numbers) if numbers else {}
        found |= {f"{part}: {name}": subset[name] for name in ("accuracy", "abstention") if subset}
    return found


def _table(arm: Arm, numbers: Mapping[str, Change], masked: int) -> Table:
    """One line per metric: before, after this arm's training, and the paired change; 80 columns wide."""
    title = f"\n{arm.name}: {arm.steps} steps, {len(arm.rows)} held-out questions, with 95 % intervals"
    table = Table(
        title=title, title_justify="left", title_style="", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("", no_wrap=True, min_width=len("right if answered"))
    for column in ("before", "after", "change"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, (then, now, moved) in numbers.items():
        cells = (str(then or "–"), str(now or "–"), moved.signed() if moved else "–")
        table.add_row(_WORDS.get(name, name), *cells)
    table.add_row("masked", str(masked), str(sum(grade is None for grade in arm.grades)), "")
    return table


def _side_by_side(arms: Sequence[Arm], numbers: Sequence[int]) -> Table:
    """Questions with their answers before and after."""
    title = "\nSome of them, drawn by the seed (C correct, A abstained, W wrong)"
    table = Table("question", "accepted", *(arm.name for arm in arms), title=title, title_justify="left")
    for number in numbers:
        example = arms[0].rows[number].example
        rows = [arm.rows[number] for arm in arms]
        answers = [
            Text.assemble(_MARKS[row.label], " ", one_line((row.completion or "").strip())) for row in rows
        ]
        table.add_row(Text(one_line(example.question)), Text(one_line(example.answers[0])), *answers)
    return table
