"""`factrl demo`: teach a small real model to say when it does not know, and show what that did.

    questions -> model -> warm start -> evaluate -> calibrate -> GRPO with each reward -> evaluate

To calibrate is R-Tuning by samples: where enough of the warm-started model's are right, one of those is
taught, elsewhere "I don't know.".  From there on GRPO finds where declining pays.  By itself it
needs twice the steps, and loses a fifth of what the model knew (docs/history.md).

Every arm starts from the same calibrated weights, and every number is of held-out questions whose
entities appear nowhere in training.  Each arm has a run folder with the page that any run has.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from safetensors.torch import load_model, save_model

from factrl.evals.confidence import answers_of, risk_coverage
from factrl.evals.plots import Point
from factrl.evals.samples import Row
from factrl.evals.shortqa import grade_completions
from factrl.lab.demo import (
    DemoSettings,
    Splits,
    SupervisedSettings,
    build_questions,
    demo_settings,
    with_passages,
)
from factrl.lab.demo.outcome import Arm, Knowledge, show
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.rewards.resources import supply
from factrl.runs.config import dump_toml
from factrl.runs.folder import Run
from factrl.runs.progress import Progress, clock
from factrl.runs.settings import RunSettings
from factrl.train.held_out import rates
from factrl.train.model import (
    embedded_policy,
    is_embedded,
    load_policy,
    render_prompts,
    save_memory,
    uses_bf16,
)
from factrl.train.online import optimise
from factrl.train.page import write_run_page
from factrl.train.supervised import supervise
from factrl.train.writing import answer
from factrl.types import Example

ABSTENTION = "I don't know."
AT_ONCE = 20  # questions whose samples are drawn between two words of progress
KNOWN_TEMPERATURE = 1.0  # the model's own distribution says what it knows
_NEXT = "your own  factrl train small/truthrl --model FOLDER --data FILE (columns: question, answers)"


def play(reward: str, overrides: Sequence[str] = (), *, quick: bool = False, retrieval: bool = False) -> Path:
    """Run the demo and print what it measured; returns the path of the main reward's page.

    Args:
        reward: the main reward, e.g. `truthrl:ternary`.
        overrides: `key=value` settings.
        quick: a few steps on a few questions, to see that everything works; it shows no effect.
        retrieval: ask with passages, and report apart where one helps and where none does.

    Raises:
        SetupError: the model or a data package is not there.
    """
    started = time.monotonic()
    save_memory()
    settings = demo_settings(list(overrides), reward, quick=quick, retrieval=retrieval)
    before, arms, knows = _run(settings)
    show(before, arms, knows, settings)
    report = [write_run_page(arm.folder) for arm in arms[1:]][-1]
    lines = ["This was --quick: it shows that everything works, not what training does."] if quick else []
    lines += ["", f"{clock(time.monotonic() - started)} minutes"]
    lines += [f"picture   {before.folder / 'demo.svg'}", f"report    {report}", _NEXT]
    Console().print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
    return report


def _run(settings: DemoSettings) -> tuple[Arm, list[Arm], Knowledge]:
    """The warm-started model, the arms with the main one last, and what the former knew."""
    if is_embedded(settings.model.name):
        with Progress("unpack the model", 1) as progress:
            embedded_policy(settings.model.name)
            progress.advance()
    contrast, steps = settings.demo.contrast, settings.demo.contrast_steps
    rewards = {contrast: steps, settings.paper: settings.train.steps or 1}
    stages = _Stages(settings)
    with Run.create(settings.run.dir, settings.run.name or "demo", dump_toml(settings)) as run:
        stages.warm()
        before, knows, samples = stages.before(run.path)
        calibrated = stages.calibrate(run.path / "calibrated", before, samples)
        start = run.path / "start.safetensors"  # on disk: a copy of the weights is half a gigabyte
        save_model(stages.model, str(start))
        try:
            told = (calibrated, start, stages.practice(samples))
            arms = [stages.arm(name, steps, *told) for name, steps in rewards.items() if name]
        finally:
            start.unlink()
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


class _Stages:
    """The stages of one demo on one model, whose weights they change in place."""

    def __init__(self, settings: DemoSettings) -> None:
        self.settings = settings
        self.questions = build_questions(seed := settings.run.seed)
        if settings.demo.retrieval:
            parts = (self.questions.warm, self.questions.train, self.questions.test)
            self.questions = Splits(*(with_passages(part, seed) for part in parts))
        self.model, self.tokenizer = load_policy(settings.model)
        self.test = self.questions.test[: settings.demo.test_questions]
        self.grader = Grader()  # by rules alone: every question has its accepted answers

    def warm(self) -> None:
        """A few supervised steps that teach the form of an answer, and that declining is one.

        The untouched model rambles and never declines, so there is nothing for a reward to strengthen.  The
        gold answers that are replaced by abstention are drawn at random, so they carry no hint about which
        questions to decline.
        """
        told, examples = self.settings.warm, self.questions.warm
        self.model.get_input_embeddings().requires_grad_(True)
        count = round(told.abstain_share * len(examples))
        declined = set(random.Random(self.settings.run.seed).sample(range(len(examples)), count))
        targets = [ABSTENTION if i in declined else example.answers[0] for i, example in enumerate(examples)]
        self._tune(examples, targets, told, "warm start")

    def calibrate(self, folder: Path, before: Arm, samples: Sequence[Sequence[Row]]) -> Arm:
        """Teach the warm-started model to decline where hardly any of its `samples` of a training question
        is right, and elsewhere what most of the right ones say; and go a part of the way there."""
        told, examples, targets = self.settings.calibrate, [], []
        for rows in samples:
            right = [(row.completion or "").strip() for row in rows if row.label == "correct"]
            examples.append(rows[0].example)
            targets.append(Counter(right).most_common(1)[0][0] if len(right) >= told.right else ABSTENTION)
        self.model.get_input_embeddings().requires_grad_(not self.settings.model.freeze_embeddings)
        starts = [(w, w.detach().clone()) for w in self.model.parameters() if w.requires_grad]
        self._tune(examples, targets, told, "calibrate")
        for weight, start in starts:
            weight.detach().lerp_(start, 1 - told.way)
        rows = self._rows()
        curve = [*before.curve, _point(told.steps, rates(rows))]
        return Arm("calibrated", rows, folder, curve, told.steps)

    def _tune(
        self,
        examples: Sequence[Example],
        targets: Sequence[str],
        told: SupervisedSettings,
        title: str,
    ) -> None:
        """Supervised steps on these answers."""
        data = self.settings.data
        with Progress(title, told.steps) as progress:
            supervise(
                self.model,
                self.tokenizer,
                render_prompts(examples, self.tokenizer, data),
                targets,
                **told.model_dump(include={"steps", "batch_size", "learning_rate"}),
                bf16=uses_bf16(self.settings.train),
                chat=data.chat,
                seed=self.settings.run.seed,
                on_step=progress.advance,
            )

    def before(self, folder: Path) -> tuple[Arm, Knowledge, list[list[Row]]]:
        """The warm-started model's answers, what it knows, and its samples of training questions."""
        told, calibrate = self.settings.demo, self.settings.calibrate
        rows = self._rows()
        arm = Arm("before", rows, folder, [_point(0, rates(rows))])
        train = self.questions.train[: calibrate.questions]
        with Progress("what does it know", len(self.test) + len(train)) as progress:
            asked = self._samples(self.test, told.base_samples, progress)
            taught = self._samples(train, calibrate.samples, progress)
        right = [sum(row.label == "correct" for row in rows) for rows in asked]
        known = [number for number, count in enumerate(right) if count >= told.base_correct]
        knows = Knowledge(
            right, known, *frontier_of(*([*chain.from_iterable(part)] for part in (asked, taught)))
        )
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

    def practice(self, samples: Sequence[Sequence[Row]]) -> list[Example]:
        """The questions of reinforcement learning: every one that half of the samples have right, and twice
        as many others.

        Of all questions three in four are others, and what is learned first is then to decline everywhere.
        """
        known, others = list[Example](), list[Example]()
        for rows in samples:
            right = sum(row.label == "correct" for row in rows)
            (known if 2 * right >= len(rows) else others).append(rows[0].example)
        draw = random.Random(self.settings.run.seed)
        asked = known + draw.sample(others, min(len(others), 2 * len(known)))
        draw.shuffle(asked)
        return asked or others

    def arm(self, name: str, steps: int, before: Arm, start: Path, questions: Sequence[Example]) -> Arm:
        """Train with one reward from the calibrated weights, which answered as `before`, and evaluate."""
        load_model(self.model, str(start))
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
