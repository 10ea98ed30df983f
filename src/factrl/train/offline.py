"""`factrl tune`: samples of a model are measured and made into rows, from which the model then learns.

    data/samples.jsonl     what the model wrote, question by question
    data/measured.jsonl    the grade or the value of each
    data/train.jsonl       the rows that it learns from: `prompt` and `completion`, or `chosen` and `rejected`
    data/left_out.json     how many questions gave none, and why
    evaluation.json        the held-out questions before and after
    iterates/N             the model after round N of several, the reference of the next; the last is `model`

With several rounds each has its own `data/round_N`.  A stage that is on disk is not repeated, so a run that
was killed goes on with the same rows and the same weights.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import Trainer
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from factrl.errors import ConfigError, DataError
from factrl.runs.config import dump_toml
from factrl.runs.disk import write_whole
from factrl.runs.folder import Run
from factrl.runs.rows import read_lines
from factrl.runs.settings import ModelSettings
from factrl.text import opened
from factrl.train.tuning.plan import TunePlan, demonstrated
from factrl.train.tuning.rules import Candidate, TargetFormat, given_text
from factrl.train.tuning.samples import (
    TuningResult,
    check_masked,
    grading,
    measure_samples,
    measurement,
    write_samples,
)
from factrl.train.tuning.settings import TUNE, TuneSettings, completion_for
from factrl.types import Example

from .callbacks import (
    Interrupted,
    RunCallback,
    check_setup,
    last_checkpoint,
    shared_arguments,
)
from .model import encode, load_policy, lora_config, render_prompts
from .shortcuts import restore_forward, use_packed_logprobs
from .supervised import encode_completions, imitation_rows
from .writing import PolicyWriter, unwrap_adapter

MODEL, EVALUATION, ROWS, LEFT_OUT = "model", "evaluation.json", "train.jsonl", "left_out.json"
TrainingRow = Mapping[str, Any]
Tell = Callable[[str], None]


def tune(plan: TunePlan, tell: Tell = lambda text: None) -> tuple[Path, TuningResult | None]:
    """Carry out a plan; returns the run folder and, with held-out questions, what changed on them.

    Args:
        tell: gets a line for a person after each stage.
    """
    settings = plan.settings
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("factrl tune runs in one process; start it without accelerate or torchrun")
    check_setup(plan.job)
    with _run_folder(settings) as run:
        steps = 0
        for number in range(1, settings.tune.rounds + 1):
            steps = _round(plan, run, number, steps, tell)
        outcome = _outcome(plan, run) if plan.held_out else None
    return run.path, outcome


def _run_folder(settings: TuneSettings) -> Run:
    if settings.run.resume:
        return Run.open(settings.run.resume)
    tune = settings.tune
    name = settings.run.name or "-".join(filter(None, (tune.method, tune.rule)))
    run = Run.create(settings.run.dir, name, settings.asking())
    write_whole(run.path / TUNE, dump_toml(settings).encode())
    return run


def _round(plan: TunePlan, run: Run, number: int, before: int, tell: Tell) -> int:
    """One round, from the model of the round before to its own; returns the steps done by then."""
    settings, rounds = plan.settings, plan.settings.tune.rounds
    part = f"round_{number}" if rounds > 1 else ""
    data, start = run.path / "data" / part, settings.model
    if number > 1:  # an adapter sits on it in the precision of the first
        iterate = str(run.path / "iterates" / str(number - 1))
        start = start.model_copy(update={"name": iterate, "revision": None})
    target = run.path / MODEL if number == rounds else run.path / "iterates" / str(number)
    marker = data / "done.json"
    data.mkdir(parents=True, exist_ok=True)
    if target.exists() and marker.exists():
        return json.loads(marker.read_text("utf-8"))["steps"]
    rows = _rows(plan, run, start, data, number, tell)
    target.parent.mkdir(exist_ok=True)
    if rows:
        before = _learn(settings, start, rows, run, run.checkpoints / part, target, before)
    elif number == 1:
        about = json.loads((data / LEFT_OUT).read_text("utf-8"))
        raise DataError(
            f"no question gives a row to learn from ({_summary(about)}); take more samples "
            "(sampling.num_samples), other questions or another rule, or ask so that the form is kept "
            "(data.prompt, data.prefill)"
        )
    else:  # every question's samples are alike by now
        tell(f"round {number}: no rows; its model is that of round {number - 1}")
        shutil.copytree(start.name, target, dirs_exist_ok=True)
    write_whole(marker, json.dumps({"steps": before}).encode())
    return before


# -- Rows ---------------------------------------------------------------------------------------------


def _rows(
    plan: TunePlan, run: Run, start: ModelSettings, data: Path, number: int, tell: Tell
) -> list[TrainingRow]:
    """The rows of a round: those on disk, or new ones."""
    file, settings = data / ROWS, plan.settings
    if not file.exists():
        writer = PolicyWriter.load(settings.model_copy(update={"model": start}))
        for problem in settings.unclosed(writer.begun):
            raise ConfigError(problem)
        samples: list[list[Candidate]] = [[] for _ in plan.examples]
        if settings.measure is not None:
            samples = _samples(plan, run, writer, data, number)
        causes = check_masked(samples, settings.train.max_masked_share, run.path)
        prompts = render_prompts(plan.examples, writer.tokenizer, settings.data)
        rows, left_out = make_rows(plan, samples, prompts, settings.run.seed + number)
        limit, made = settings.train.max_prompt_length, len(rows)
        if limit is not None and rows:
            lengths = map(len, encode([r["prompt"] for r in rows], writer.tokenizer, chat=settings.data.chat))
            rows = [row for row, length in zip(rows, lengths, strict=True) if length <= limit]
        floored = Counter(s.floored for group in samples for s in group if s.floored)
        about = {
            "questions": len(plan.examples),
            "probe": settings.tune.probe,
            "rows": len(rows),
            "left_out": left_out,
            "prompt_too_long": made - len(rows),
            "unmeasured_samples": causes,
            "floored_samples": dict(floored.most_common()),
        }
        write_whole(data / LEFT_OUT, json.dumps(about, indent=2).encode())
        write_whole(file, "".join(json.dumps(row) + "\n" for row in rows).encode())
        tell(_summary(about))
    return [*read_lines(file)]


def make_rows(
    plan: TunePlan, samples: Sequence[Sequence[Candidate]], prompts: Sequence[str], seed: int
) -> tuple[list[TrainingRow], Mapping[str, int]]:
    """The rows to learn from, and how many questions gave none by the reason.

    Args:
        samples: those of each question, measured; empty where the method needs none.
        seed: decides where chance does, for each question apart.
    """
    rows: list[TrainingRow] = []
    left_out: Counter[str] = Counter()
    for example, group, prompt in zip(plan.examples, samples, prompts, strict=True):
        draw = random.Random(f"{seed}:{example.id}")
        result = plan.settings.rule.rows(example, group, _target_format(plan, example, prompt, draw))
        if isinstance(result, str):
            left_out[result] += 1
        else:
            rows += [{"id": example.id, "prompt": prompt, **row} for row in result]
    return rows, dict(left_out.most_common())


def _target_format(plan: TunePlan, example: Example, prompt: str, draw: random.Random) -> TargetFormat:
    """How completions that are given are written: without the `<think>` that the prompt has opened."""
    tune, begun = plan.settings.tune, opened(prompt)

    def inside(text: str) -> str:
        rest = text.lstrip()
        return rest.removeprefix("<think>").lstrip() if begun and rest.startswith("<think>") else text

    chosen = None if tune.chosen is None else inside(given_text(example, tune.chosen))

    def write(answer: str) -> str:
        return inside(completion_for(plan.job, answer))

    return TargetFormat(write, tune.abstention, chosen, draw)


def _samples(
    plan: TunePlan, run: Run, writer: PolicyWriter, data: Path, number: int
) -> list[list[Candidate]]:
    """Measured samples: those of the probe in the first round, else fresh ones of the round's model."""
    settings, count = plan.settings, plan.settings.sampling.num_samples
    if plan.probed and number == 1:
        samples = [list(plan.probed[example.id]) for example in plan.examples]
        if settings.measure == "grade":
            return samples
        # As they were written, whatever a grader made of them.
        samples = [
            [replace(s, label=None, cause=s.cause if not s.text else None) for s in group[:count]]
            for group in samples
        ]
    else:
        own = writer.with_settings(demonstrated(settings))
        samples = write_samples(
            own,
            plan.examples,
            data / "samples.jsonl",
            numbers=range((number - 1) * count, number * count),
            model=_identity(own, run),
            label="sample",
            temperature=settings.sampling.temperature,
            top_p=settings.sampling.top_p,
            seed=settings.run.seed,
        )
    path = data / "measured.jsonl"
    return measure_samples(
        *measurement(plan.job), plan.examples, samples, path, prefill=writer.begun, label="measure"
    )


def _identity(writer: PolicyWriter, run: Run) -> str:
    """The same wherever the run folder is named from."""
    return writer.identity.replace(str(run.path), "RUN")


def _summary(about: Mapping[str, Any]) -> str:
    parts = [f"{about['rows']} rows from {about['questions']} questions"]
    parts += [f"{count} left out: {reason}" for reason, count in about["left_out"].items()]
    parts += [f"{about['prompt_too_long']} prompts too long"] * bool(about["prompt_too_long"])
    parts += [f"{count} samples not used: {cause}" for cause, count in about["unmeasured_samples"].items()]
    parts += [f"{count} samples floored: {cause}" for cause, count in about["floored_samples"].items()]
    return "; ".join(parts)


# -- Held-out questions -------------------------------------------------------------------------------


def _outcome(plan: TunePlan, run: Run) -> TuningResult:
    """The held-out questions before and after, and `evaluation.json`."""
    first = plan.settings.model
    # The rest stays as it was, so that both are loaded in one precision.
    trained = first.model_copy(update={"name": str(run.path / MODEL)})
    before, after = (_answers(plan, run, *side) for side in ((first, "before"), (trained, "after")))
    outcome = TuningResult(plan.held_out, before, after)
    about = {
        "file": plan.settings.data.eval,
        "judge": getattr(plan.job.judge, "identity", None),
        "extract": plan.job.extract,
    }
    write_whole(run.path / EVALUATION, json.dumps({**about, **outcome.to_json()}, indent=2).encode())
    return outcome


def _answers(plan: TunePlan, run: Run, model: ModelSettings, when: str) -> list[Candidate]:
    """Greedy answers to the held-out questions, graded."""
    data, questions = run.path / "data", plan.held_out
    writer = PolicyWriter.load(plan.settings.model_copy(update={"model": model}))
    path, label = data / f"{when}.jsonl", f"answer {when}"
    texts = write_samples(writer, questions, path, numbers=(0,), model=_identity(writer, run), label=label)
    path = data / f"{when}_graded.jsonl"
    graded = measure_samples(*grading(plan.job), questions, texts, path, prefill=writer.begun, label="grade")
    return [group[0] for group in graded]


# -- Learning -----------------------------------------------------------------------------------------


def _learn(
    settings: TuneSettings,
    start: ModelSettings,
    rows: Sequence[TrainingRow],
    run: Run,
    checkpoints: Path,
    target: Path,
    before: int,
) -> int:
    """Train a model on rows and save it; goes on from the last complete checkpoint.

    Args:
        start: the model that learning starts from; for pairs also the reference.
        target: folder of the trained model, which appears whole or not at all.
        before: steps that the run did in earlier rounds; returns those done now.
    """
    model, tokenizer = load_policy(start)
    trainer = trainer_of(settings, start, model, tokenizer, rows, checkpoints)
    inner = unwrap_adapter(model)
    if not torch.cuda.is_available():
        for policy in filter(None, (inner, getattr(trainer, "ref_model", None))):
            use_packed_logprobs(policy)
    checkpoint = last_checkpoint(checkpoints)
    run.truncate_after(before + (checkpoint[1] if checkpoint else 0))
    if RunCallback(run, before=before, verb="tune").train(
        trainer, checkpoint, f"train {settings.tune.method}"
    ):
        raise Interrupted("tune", run.path, before + trainer.state.global_step)
    trained: Any = trainer.accelerator.unwrap_model(trainer.model)
    restore_forward(inner)
    if hasattr(trained, "merge_and_unload"):
        trained = trained.merge_and_unload()  # what the next round or stage starts from is whole
    unfinished = target.with_name(f"{target.name}.unfinished")
    trained.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    if target.exists():  # of a run that was killed before it could say that the round is done
        shutil.rmtree(target)
    unfinished.replace(target)
    return before + trainer.state.global_step


def trainer_of(
    settings: TuneSettings,
    start: ModelSettings,
    model: Any,
    tokenizer: Any,
    rows: Sequence[TrainingRow],
    checkpoints: Path,
) -> Trainer:
    """TRL's trainer of these rows: SFT of completions, DPO of pairs.

    `label_smoothing` e is conservative DPO: (1 - e) L(x) + e L(-x) for L(x) = -log sigmoid(x), as TRL's plain
    loss had it until its DPO trainer was rewritten.  Now TRL ignores it there, but adds up weighted losses,
    and this one is exactly 2 (1 - e) times the plain loss minus (1 - 2e) times the robust one.
    """
    tune, train = settings.tune, settings.train
    step = min(train.micro_batch_size, train.prompts_per_step)
    arguments = {
        **shared_arguments(settings, checkpoints),
        "per_device_train_batch_size": step,
        "gradient_accumulation_steps": train.prompts_per_step // step,
    }
    shared: dict[str, Any] = {"processing_class": tokenizer, "peft_config": lora_config(settings.model)}
    prompts = encode([row["prompt"] for row in rows], tokenizer, chat=settings.data.chat)

    def tokens(text: str, cut: str) -> list[list[int]]:
        return encode_completions(tokenizer, [row[text] for row in rows], [row[cut] for row in rows])

    if "completion" in rows[0]:
        sft = SFTConfig(**arguments, max_length=None, completion_only_loss=True)
        lessons = imitation_rows(prompts, tokens("completion", "truncated"))
        return SFTTrainer(model, args=sft, train_dataset=lessons, **shared)
    e, loss = tune.label_smoothing, {}
    if e:
        loss = {"loss_type": ["sigmoid", "robust"], "loss_weights": [2 * (1 - e), -(1 - 2 * e)]}
    data = {
        "prompt_ids": prompts,
        "chosen_ids": tokens("chosen", "chosen_truncated"),
        "rejected_ids": tokens("rejected", "rejected_truncated"),
    }
    dpo = DPOConfig(**arguments, **loss, max_length=None, beta=tune.beta, label_smoothing=e)
    # With an adapter the reference is the model without it.
    reference = None if settings.model.lora else load_policy(start)[0]
    some = Dataset.from_dict({"prompt": ["a"], "chosen": ["b"], "rejected": ["c"]})  # which TRL tokenises
    trainer = DPOTrainer(model, reference, args=dpo, train_dataset=some, **shared)
    trainer.train_dataset = Dataset.from_dict(data)
    return trainer
