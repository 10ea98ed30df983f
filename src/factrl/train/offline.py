"""`factrl tune`: rows are made from samples or answers, or are given, and the model then learns from them.

    data/samples.jsonl     what the model wrote, question by question
    data/graded.jsonl      the grade of each
    data/train.jsonl       the rows that it learns from: `prompt` and `completion`, or `chosen` and `rejected`
    data/left_out.json     how many questions gave none, and why

What is on disk is not repeated, so a run that was killed goes on with the same rows and the same weights.  Of
several processes the first one makes the rows, and all of them train.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import Trainer
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from factrl.errors import ConfigError, DataError
from factrl.runs.disk import write_whole
from factrl.runs.folder import Run
from factrl.runs.resume import settings_text
from factrl.runs.rows import read_lines
from factrl.runs.settings import DataSettings
from factrl.text import opened
from factrl.train.tuning.given import Given
from factrl.train.tuning.plan import TunePlan
from factrl.train.tuning.rules import RULES, Candidate, TargetFormat
from factrl.train.tuning.samples import check_masked, grading, measure_samples, write_samples
from factrl.train.tuning.settings import TUNE, TuneSettings, completion_for

from .answering import open_writer
from .callbacks import (
    Interrupted,
    RunCallback,
    check_setup,
    is_finished,
    keep_model,
    last_checkpoint,
    open_run,
    replace_folder,
    same_trackers,
    say_done,
    shared_arguments,
)
from .model import (
    beginning,
    encode,
    fit_prompts,
    load_policy,
    load_tokenizer,
    lora_config,
    prompts_note,
    refuse_long,
    render_prompts,
)
from .sampling import unwrap_adapter
from .shortcuts import restore_forward, use_packed_logprobs
from .supervised import encode_completions, imitation_rows

MODEL, ROWS, LEFT_OUT = "model", "train.jsonl", "left_out.json"
_LOOKS = 0.5  # seconds between two looks for the rows that another process makes
TrainingRow = Mapping[str, Any]
Tell = Callable[[str], None]


def tune(plan: TunePlan, tell: Tell = lambda text: None) -> Path:
    """Carry out a plan; returns the run folder.

    Args:
        tell: gets a line for a person after each stage.
    """
    settings, state = plan.settings, PartialState(cpu=not torch.cuda.is_available())
    tune = settings.tune
    _check_processes(settings)
    check_setup(plan.job)
    name = settings.run.name or "-".join(filter(None, (tune.method, tune.rule)))
    files = {"config.toml": settings.asking(), TUNE: settings_text(settings)}
    with open_run(settings, name, files) as run, same_trackers(run):
        rows = _rows(plan, run, tell)
        if not is_finished(last_checkpoint(run.checkpoints), settings.train.steps):
            _learn(settings, rows, run)
        if not state.is_main_process:
            return run.path
        checkpoint, done = last_checkpoint(run.checkpoints) or (run.checkpoints, 0)
        _keep(settings, checkpoint, run.path / MODEL)
        say_done(run, done)
    return run.path


def _check_processes(settings: TuneSettings) -> None:
    """Refuse so many processes that a step has no rows for each."""
    train, processes = settings.train, int(os.environ.get("WORLD_SIZE", "1"))
    part = min(train.micro_batch_size, train.prompts_per_step)
    if train.prompts_per_step % (part * processes):
        raise ConfigError(
            f"train.micro_batch_size = {train.micro_batch_size} on {processes} processes does not divide the "
            f"{train.prompts_per_step} rows of a step (train.prompts_per_step)"
        )


# -- Rows ---------------------------------------------------------------------------------------------


def _rows(plan: TunePlan, run: Run, tell: Tell) -> list[TrainingRow]:
    """The rows to learn from: those on disk, or new ones, which one process makes."""
    file = run.path / "data" / ROWS
    if not file.exists() and PartialState().is_main_process:
        file.parent.mkdir(exist_ok=True)
        _write_rows(plan, run, file, tell)
    while not file.exists():  # samples and grades take longer than a process may wait for another
        time.sleep(_LOOKS)
    return [*read_lines(file)]


def _write_rows(plan: TunePlan, run: Run, file: Path, tell: Tell) -> None:
    settings, tokenizer = plan.settings, load_tokenizer(plan.settings.model)
    ungraded: Mapping[str, int] = {}
    left_out: Mapping[str, int] = {}
    if plan.given:
        made = given_rows(plan, tokenizer)
        lengths, limit = map(len, _prompt_ids(made, tokenizer)), settings.train.max_prompt_length
        rows = [row for row, length in zip(made, lengths, strict=True) if limit is None or length <= limit]
        num_prompts, too_long, cut = len(made), len(made) - len(rows), 0
    else:
        begun = beginning(tokenizer, settings.data.prefill, chat=settings.data.chat)
        for problem in settings.unclosed(begun):
            raise ConfigError(problem)
        samples: list[list[Candidate]] = [[] for _ in plan.examples]
        if settings.samples:
            samples = _samples(plan, run)
        ungraded = check_masked(samples, settings.train.max_masked_share, run.path)
        fitted = fit_prompts(plan.examples, tokenizer, settings)
        rows, left_out = make_rows(plan, samples, fitted.prompts, settings.run.seed)
        num_prompts, too_long, cut = len(plan.examples), fitted.too_long, fitted.cut
    if note := prompts_note(too_long, cut, num_prompts, settings):
        tell(note)
    refuse_long(too_long, num_prompts, settings)
    about = {
        "questions": len(plan.examples),
        "probe": settings.tune.probe,
        "rows": len(rows),
        "left_out": left_out,
        "prompts_too_long": too_long,
        "prompts_cut": cut,
        "ungraded_samples": ungraded,
    }
    write_whole(file.with_name(LEFT_OUT), json.dumps(about, indent=2).encode())
    tell(_summary(about))
    if not rows:
        raise DataError(
            f"no question gives a row to learn from ({_summary(about)}); take more samples "
            "(sampling.num_samples), other questions or another method, or ask so that the form is kept "
            "(data.prompt, data.prefill)"
        )
    write_whole(file, "".join(json.dumps(row) + "\n" for row in rows).encode())


def given_rows(plan: TunePlan, tokenizer: Any) -> list[TrainingRow]:
    """Rows that say themselves what is learned; a completion does not open the `<think>` of its prompt."""
    data, rows = plan.settings.data, list[TrainingRow]()
    for one in plan.given:
        prompt, chat = _given_prompt(one, tokenizer, data)
        texts = {name: _inside(text, prompt) for name, text in one.texts.items()}
        rows.append({"id": one.example.id, "prompt": prompt, "chat": chat, **texts, "why": "given"})
    return rows


def _given_prompt(one: Given, tokenizer: Any, data: DataSettings) -> tuple[str, bool]:
    """The prompt as the model reads it, and whether chat markup holds its special tokens."""
    if one.prompt is None:
        [prompt] = render_prompts([one.example], tokenizer, data)
        return prompt, data.chat
    if isinstance(one.prompt, str):
        return one.prompt, False
    if not tokenizer.chat_template:
        raise ConfigError("the model has no chat template; write each prompt as one text")
    ends = one.prompt[-1]["role"] == "assistant"  # what the completion goes on with
    how = {"continue_final_message": True} if ends else {"add_generation_prompt": True}
    return tokenizer.apply_chat_template([*one.prompt], tokenize=False, **how), True


def _inside(text: str, prompt: str) -> str:
    """A completion without the `<think>` that the prompt has opened."""
    rest = text.lstrip()
    return rest.removeprefix("<think>").lstrip() if opened(prompt) and rest.startswith("<think>") else text


def _prompt_ids(rows: Sequence[TrainingRow], tokenizer: Any) -> list[list[int]]:
    ids: list[list[int]] = [[] for _ in rows]
    for chat in (True, False):
        places = [place for place, row in enumerate(rows) if row["chat"] is chat]
        found = encode([rows[place]["prompt"] for place in places], tokenizer, chat=chat) if places else ()
        for place, one in zip(places, found, strict=True):
            ids[place] = one
    return ids


def make_rows(
    plan: TunePlan, samples: Sequence[Sequence[Candidate]], prompts: Sequence[str | None], seed: int
) -> tuple[list[TrainingRow], Mapping[str, int]]:
    """The rows to learn from, and how many questions gave none by the reason.

    Args:
        samples: those of each question, graded; empty where the method needs none.
        prompts: None where one is too long.
        seed: decides where chance does, for each question apart.
    """
    rows: list[TrainingRow] = []
    left_out: Counter[str] = Counter()
    tune, chat = plan.settings.tune, plan.settings.data.chat
    rule = RULES[tune.rule or tune.method]
    for example, group, prompt in zip(plan.examples, samples, prompts, strict=True):
        if prompt is None:
            left_out["prompt too long"] += 1
            continue
        draw = random.Random(f"{seed}:{example.id}")

        def write(answer: str, prompt: str = prompt) -> str:
            return _inside(completion_for(plan.job, answer), prompt)

        result = rule.rows(example, group, TargetFormat(write, tune.abstention, draw))
        if isinstance(result, str):
            left_out[result] += 1
        else:
            rows += [{"id": example.id, "prompt": prompt, "chat": chat, **row} for row in result]
    return rows, dict(left_out.most_common())


def _samples(plan: TunePlan, run: Run) -> list[list[Candidate]]:
    """Graded samples: those of the probe, else new ones."""
    settings, data = plan.settings, run.path / "data"
    if plan.probed:
        return [list(plan.probed[example.id]) for example in plan.examples]
    writer: Any = open_writer(settings)
    samples = write_samples(
        writer,
        plan.examples,
        data / "samples.jsonl",
        settings.sampling,
        seed=settings.run.seed,
        model=writer.identity.replace(str(run.path), "RUN"),  # the same wherever the folder is named from
    )
    path, begun = data / "graded.jsonl", writer.begun
    writer.close()  # training needs the memory
    return measure_samples(*grading(plan.job), plan.examples, samples, path, prefill=begun)


def _summary(about: Mapping[str, Any]) -> str:
    parts = [f"{about['rows']} rows from {about['questions']} questions"]
    parts += [f"{count} left out: {reason}" for reason, count in about["left_out"].items()]
    parts += [f"{count} samples not used: {cause}" for cause, count in about["ungraded_samples"].items()]
    return "; ".join(parts)


# -- Learning -----------------------------------------------------------------------------------------


def _learn(settings: TuneSettings, rows: Sequence[TrainingRow], run: Run) -> None:
    """Train the model on rows, from its start or from the last complete checkpoint to a further one."""
    model, tokenizer = load_policy(settings.model)
    trainer = trainer_of(settings, model, tokenizer, rows, run.checkpoints)
    inner = unwrap_adapter(model)
    if not torch.cuda.is_available():
        for policy in filter(None, (inner, getattr(trainer, "ref_model", None))):
            use_packed_logprobs(policy)
    checkpoint = last_checkpoint(run.checkpoints)
    if trainer.accelerator.is_main_process:
        run.truncate_after(checkpoint[1] if checkpoint else 0)
    stopped = RunCallback(run, verb="tune").train(trainer, checkpoint, f"train {settings.tune.method}")
    restore_forward(inner)
    if stopped:
        raise Interrupted("tune", run.path, trainer.state.global_step)


def _keep(settings: TuneSettings, checkpoint: Path, target: Path) -> None:
    """The trained model, whole: an adapter is merged, so that a next stage can start from it."""
    if not settings.model.lora:
        return keep_model(checkpoint, target)
    from peft import PeftModel

    model, tokenizer = load_policy(settings.model)
    merged: Any = PeftModel.from_pretrained(model, str(checkpoint)).merge_and_unload()
    unfinished = target.with_name(f"{target.name}.unfinished")
    merged.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    replace_folder(unfinished, target)


def trainer_of(
    settings: TuneSettings,
    model: Any,
    tokenizer: Any,
    rows: Sequence[TrainingRow],
    checkpoints: Path,
) -> Trainer:
    """TRL's trainer of these rows: SFT of completions, DPO of pairs."""
    tune, train = settings.tune, settings.train
    step = min(train.micro_batch_size, train.prompts_per_step)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    arguments = {
        **shared_arguments(settings, checkpoints),
        "per_device_train_batch_size": step,
        "gradient_accumulation_steps": train.prompts_per_step // (step * processes),
    }
    shared: dict[str, Any] = {"processing_class": tokenizer, "peft_config": lora_config(settings.model)}
    prompts = _prompt_ids(rows, tokenizer)

    def tokens(text: str, cut: str) -> list[list[int]]:
        truncated = [row.get(cut, False) for row in rows]
        return encode_completions(tokenizer, [row[text] for row in rows], truncated)

    if "completion" in rows[0]:
        sft = SFTConfig(**arguments, max_length=None, completion_only_loss=True)
        lessons = imitation_rows(prompts, tokens("completion", "truncated"))
        return SFTTrainer(model, args=sft, train_dataset=lessons, **shared)
    data = {
        "prompt_ids": prompts,
        "chosen_ids": tokens("chosen", "chosen_truncated"),
        "rejected_ids": tokens("rejected", "rejected_truncated"),
    }
    dpo = DPOConfig(**arguments, max_length=None, beta=tune.beta)
    # With an adapter the reference is the model without it.
    reference = None if settings.model.lora else load_policy(settings.model)[0]
    some = Dataset.from_dict({"prompt": ["a"], "chosen": ["b"], "rejected": ["c"]})  # which TRL tokenises
    trainer = DPOTrainer(model, reference, args=dpo, train_dataset=some, **shared)
    trainer.train_dataset = Dataset.from_dict(data)
    return trainer
