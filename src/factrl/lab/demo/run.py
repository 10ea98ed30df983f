"""`factrl demo`: teach a small real model to say when it does not know, and show what that did.

    questions -> model -> warm start -> evaluate -> calibrate -> GRPO with each reward -> evaluate

To calibrate is R-Tuning by samples: where enough of the warm-started model's are right, one of those is
taught, elsewhere "I don't know.".  From there on GRPO finds where declining pays.  By itself it
needs twice the steps, and loses a fifth of what the model knew (docs/history.md).

Every arm starts from the same calibrated weights, and every number is of held-out questions whose
entities appear nowhere in training.  Each arm has a run folder with the page that any run has.
"""

from __future__ import annotations

import copy
import gc
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from rich.text import Text
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from factrl.evals.confidence import answers_of, risk_coverage
from factrl.evals.metrics import Interval, compare, known_mask, short_form
from factrl.evals.plots import Point, write_picture
from factrl.evals.samples import Row
from factrl.evals.shortqa import grade_completions
from factrl.lab.demo import ArmSettings, DemoSettings, SupervisedSettings, build_questions, demo_settings
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.rewards.resources import supply
from factrl.runs.config import dump_toml
from factrl.runs.folder import Run
from factrl.runs.progress import Progress, clock
from factrl.runs.settings import RunSettings
from factrl.text.escape import one_line
from factrl.train.held_out import rates
from factrl.train.model import embedded_policy, is_embedded, load_policy, render_prompts, uses_bf16
from factrl.train.online import optimise
from factrl.train.page import write_run_page
from factrl.train.shortcuts import restore_forward, use_packed_logprobs
from factrl.train.writing import answer
from factrl.types import Example, Grade

ABSTENTION = "I don't know."
AT_ONCE = 20  # questions whose samples are drawn between two words of progress
KNOWN_TEMPERATURE = 1.0  # the model's own distribution says what it knows
SHOWN = 10  # questions with their answers
_WORDS = {"correct_given_attempted": "right if answered"}
_MARKS = {"correct": ("C", "blue"), "abstained": ("A", "dim"), "incorrect": ("W", "red"), None: ("?", "")}
_NOTES = (
    "Answers are graded by rules alone, before and after alike: normalised equality with an accepted one.",
    "before: after a warm start that teaches the form of an answer; calibrated: then taught to decline where "
    "hardly any of its own samples is right. Both rewards start from there.",
    "+1/0/-1 pays for declining wherever the model is right less than half the time, and on most of these "
    "questions it is: hallucination falls, and some right answers go with it.",
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


def play(reward: str, overrides: Sequence[str] = (), *, quick: bool = False) -> Path:
    """Run the demo and print what it measured; returns the path of the main reward's page.

    Args:
        reward: the main reward, e.g. `truthrl:ternary`.
        overrides: `key=value` settings.
        quick: a few steps on a few questions, to see that everything works; it shows no effect.

    Raises:
        SetupError: the model or a data package is not there.
    """
    started = time.monotonic()
    settings = demo_settings(list(overrides), reward, quick=quick)
    told, console = settings.demo, Console()
    before, arms, knows = _run(settings)
    folder = before.folder
    model, against = Path(settings.model.name).name, " against ".join(arm.name for arm in arms[:0:-1])
    title = f"{model} on {len(before.rows)} held-out questions: {against} reward"
    curves = {arm.name: arm.curve for arm in arms}
    write_picture(curves, folder / "demo.svg", title=title, frontier=knows.frontier)
    numbers = {arm.name: changes(before, arm, knows.known) for arm in arms}
    plain = {
        arm: {
            name: [each and [each.value, each.low, each.high] for each in told] for name, told in some.items()
        }
        for arm, some in numbers.items()
    }
    allowed = {"frontier": [asdict(point) for point in knows.frontier], "best": asdict(knows.best)}
    (folder / "numbers.json").write_text(json.dumps(plain | {"allowed": allowed}, indent=2), encoding="utf-8")
    for arm in reversed(arms):
        console.print(_table(arm, numbers[arm.name], sum(grade is None for grade in before.grades)))
    knew = f"right in {told.base_correct} of {told.base_samples} samples before"
    console.print(f"\nknown: {len(knows.known)} questions, {knew}", highlight=False)
    console.print(_reached(before, arms[-1], knows, told), highlight=False)
    drawn = random.Random(settings.run.seed).sample(range(len(before.rows)), min(SHOWN, len(before.rows)))
    console.print(_side_by_side([before, *arms], sorted(drawn)))
    quickly = ("This was --quick: it shows that everything works, not what training does.",) if quick else ()
    for note in (*quickly, *_NOTES):
        console.print(note, highlight=False)
    report = [write_run_page(arm.folder) for arm in arms[1:]][-1]
    console.print(f"\n{clock(time.monotonic() - started)} minutes", highlight=False)
    console.print(f"picture  {folder / 'demo.svg'}\nreport   {report}", highlight=False, soft_wrap=True)
    return report


def _run(settings: DemoSettings) -> tuple[Arm, list[Arm], Knowledge]:
    """The warm-started model, the arms with the main one last, and what the former knew."""
    if is_embedded(settings.model.name):
        with Progress("unpack the model", 1) as progress:
            embedded_policy(settings.model.name)
            progress.advance()
    told = settings.demo
    rewards = {told.contrast: told.contrast_steps, settings.paper: settings.train.steps or 1}
    stages = _Stages(settings)
    with Run.create(settings.run.dir, settings.run.name or "demo", dump_toml(settings)) as run:
        stages.warm(run.path / "warm")
        before, knows, samples = stages.before(run.path)
        calibrated = stages.calibrate(run.path / "calibrated", before, samples)
        start = copy.deepcopy(stages.model.state_dict())
        arms = [stages.arm(reward, steps, calibrated, start) for reward, steps in rewards.items() if reward]
    return before, [calibrated, *arms], knows


def frontier_of(test: Sequence[Row], train: Sequence[Row]) -> tuple[list[Point], Point]:
    """What a threshold on the agreement of a question's samples gives, and the best one's point.

    Args:
        test: several graded samples of each held-out question.
        train: the same of questions that choose the threshold with the highest truthfulness.

    Returns:
        A point for each threshold that parts the held-out questions, the highest first, after one that
        declines everything; and the one of the chosen threshold.
    """

    def points(samples: Sequence[Row]) -> list[tuple[float, Point]]:
        found = [(2.0, Point(0, 0.0, 1.0, 0.0))]  # above every agreement
        for one in risk_coverage(answers_of(samples, "agreement")):
            kept, wrong = one["coverage"], one["coverage"] * one["risk"]
            found.append((one["threshold"], Point(0, kept - wrong, 1 - kept, wrong)))
        return found

    level = max(points(train), key=lambda pair: pair[1].truthfulness)[0]
    allowed = points(test)
    return [point for _, point in allowed], [point for at, point in allowed if at >= level][-1]


def _reached(before: Arm, arm: Arm, knows: Knowledge, told: ArmSettings) -> str:
    """The arm's truthfulness as a share of what the model's own agreement allows, counted from the start."""
    start, end, best = before.curve[-1].truthfulness, arm.curve[-1].truthfulness, knows.best.truthfulness
    text = f"what its own knowledge allows: truthfulness {100 * best:.1f}, by declining where too few of "
    text += f"{told.base_samples} samples agree"
    if best > start:
        text += f";\n{arm.name} has {(end - start) / (best - start):.0%} of that gain, in one sample"
    return text.replace("-", "−")


def changes(before: Arm, arm: Arm, known: Sequence[int]) -> dict[str, Change]:
    """Every metric of an arm, and accuracy and abstention on the questions that were known before."""

    def of(numbers: Sequence[int]) -> dict[str, Change]:
        first, last = ([side.grades[number] for number in numbers] for side in (before, arm))
        moved = compare(first, last).differences
        then, now = short_form(first).metrics, short_form(last).metrics
        return {name: (then[name], now[name], moved[name]) for name in then if name != "f_score"}

    found = of(range(len(before.rows)))
    if known:
        subset = of(known)
        found |= {f"known: {name}": subset[name] for name in ("accuracy", "abstention")}
    return found


def _table(arm: Arm, numbers: Mapping[str, Change], masked: int) -> Table:
    """One line per metric: before, after this arm's training, and the paired change; 80 columns wide."""
    title = f"\n{arm.name}: {arm.steps} steps, {len(arm.rows)} held-out questions, with 95 % intervals"
    table = Table(
        title=title, title_justify="left", title_style="", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    table.add_column("", no_wrap=True)
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


class _OnStep(TrainerCallback):
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.call()


class _Stages:
    """The stages of one demo on one model, whose weights they change in place."""

    def __init__(self, settings: DemoSettings) -> None:
        self.settings = settings
        self.questions = build_questions(settings.run.seed)
        self.model, self.tokenizer = load_policy(settings.model)
        self.test = self.questions.test[: settings.demo.test_questions]
        self.grader = Grader()  # by rules alone: every question has its accepted answers

    def warm(self, folder: Path) -> None:
        """A few supervised steps that teach the form of an answer, and that declining is one.

        The untouched model rambles and never declines, so there is nothing for a reward to strengthen.  The
        gold answers that are replaced by abstention are drawn at random, so they carry no hint about which
        questions to decline.
        """
        told, examples = self.settings.warm, self.questions.warm
        count = round(told.abstain_share * len(examples))
        declined = set(random.Random(self.settings.run.seed).sample(range(len(examples)), count))
        targets = [ABSTENTION if i in declined else example.answers[0] for i, example in enumerate(examples)]
        self._tune(examples, targets, told, folder, "warm start")

    def calibrate(self, folder: Path, before: Arm, samples: Sequence[Sequence[Row]]) -> Arm:
        """Teach the warm-started model to decline where hardly any of its `samples` of a training question
        is right, and elsewhere what most of the right ones say."""
        told, examples, targets = self.settings.calibrate, [], []
        for rows in samples:
            right = [(row.completion or "").strip() for row in rows if row.label == "correct"]
            examples.append(rows[0].example)
            targets.append(Counter(right).most_common(1)[0][0] if len(right) >= told.right else ABSTENTION)
        self.model.get_input_embeddings().requires_grad_(not self.settings.model.freeze_embeddings)
        self._tune(examples, targets, told, folder, "calibrate")
        rows = self._rows()
        curve = [*before.curve, _point(told.steps, rates(rows))]
        return Arm("calibrated", rows, folder, curve, told.steps)

    def _tune(
        self,
        examples: Sequence[Example],
        targets: Sequence[str],
        told: SupervisedSettings,
        folder: Path,
        title: str,
    ) -> None:
        """Supervised steps on these answers."""
        prompts = render_prompts(examples, self.tokenizer, self.settings.data)
        on_cpu = not torch.cuda.is_available()
        rows = {"prompt": prompts, "completion": [text + self.tokenizer.eos_token for text in targets]}
        config = SFTConfig(
            output_dir=str(folder),
            max_steps=told.steps,
            per_device_train_batch_size=told.batch_size,
            learning_rate=told.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=told.steps // 10,
            optim="adamw_torch_fused",
            weight_decay=0.0,
            completion_only_loss=True,
            gradient_checkpointing=False,
            bf16=uses_bf16(self.settings.train),
            use_cpu=on_cpu,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=self.settings.run.seed,
        )
        with Progress(title, told.steps) as progress:
            trainer = SFTTrainer(
                self.model,
                args=config,
                train_dataset=Dataset.from_dict(rows),
                processing_class=self.tokenizer,
                callbacks=[_OnStep(progress.advance)],
            )
            trainer.remove_callback(PrinterCallback)
            if on_cpu:
                use_packed_logprobs(self.model)
            trainer.train()
            restore_forward(self.model)
        del trainer
        gc.collect()  # a trainer is part of a circle, and holds the optimizer's two copies of the weights

    def before(self, folder: Path) -> tuple[Arm, Knowledge, list[list[Row]]]:
        """The warm-started model's answers, what it knows, and its samples of training questions."""
        told, calibrate = self.settings.demo, self.settings.calibrate
        rows = self._rows()
        arm = Arm("before", rows, folder, [_point(0, rates(rows))])
        train = self.questions.train[: calibrate.questions]
        with Progress("what does it know", len(self.test) + len(train)) as progress:
            asked = self._samples(self.test, told.base_samples, progress)
            taught = self._samples(train, calibrate.samples, progress)
        grades = [[row.grade for row in rows] for rows in asked]
        known = [number for number, knew in enumerate(known_mask(grades, told.base_correct)) if knew]
        knows = Knowledge(known, *frontier_of(*([*chain.from_iterable(part)] for part in (asked, taught))))
        return arm, knows, taught

    def _samples(self, questions: Sequence[Example], size: int, progress: Progress) -> list[list[Row]]:
        """`size` graded samples of each question."""
        found = []
        for start in range(0, len(questions), AT_ONCE):
            part = questions[start : start + AT_ONCE]
            asked = (self.model, self.tokenizer, part, self.settings)
            groups = answer(*asked, num_samples=size, temperature=KNOWN_TEMPERATURE)
            for example, texts in zip(part, groups, strict=True):
                found.append(grade_completions([(example, text) for text in texts], self.grader))
                progress.advance()
        return found

    def arm(self, name: str, steps: int, before: Arm, start: Mapping[str, Any]) -> Arm:
        """Train with one reward from the calibrated weights, which answered as `before`, and evaluate."""
        self.model.load_state_dict(start)
        # Knobs that the settings change; the rest is what tells one arm's reward from the other's.
        usual = load_reward(self.settings.paper).knobs
        told = {name: value for name, value in self.settings.reward.items() if value != usual[name]}
        reward = supply(load_reward(name).with_(**told), None)
        values = {field: getattr(self.settings, field) for field in RunSettings.model_fields}
        values["train"] = self.settings.train.model_copy(update={"steps": steps})
        settings = RunSettings.model_validate({**values, "paper": name, "reward": dict(reward.knobs)})
        rows, curve = before.rows, [replace(before.curve[-1], step=0)]

        def on_the_way(model: Any, step: int) -> Mapping[str, float | None]:
            nonlocal rows
            rows = self._rows()
            curve.append(_point(step, values := rates(rows)))
            return values

        questions = self.questions.train
        prompts = render_prompts(questions, self.tokenizer, settings.data)
        with Run.create(before.folder.parent / "arms", name.replace(":", "-"), dump_toml(settings)) as run:
            optimise(settings, self.model, self.tokenizer, reward, questions, prompts, run, on_the_way)
        gc.collect()
        return Arm(name.rpartition(":")[2], rows, run.path, curve, steps)

    def _rows(self) -> list[Row]:
        groups = answer(self.model, self.tokenizer, self.test, self.settings)
        texts = [group[0] for group in groups]
        return grade_completions(list(zip(self.test, texts, strict=True)), self.grader)


def _point(step: int, values: Mapping[str, float | None]) -> Point:
    return Point(step, *(values[name] or 0.0 for name in ("accuracy", "abstention", "hallucination")))
