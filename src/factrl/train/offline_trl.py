"""Imitation and preference learning on rows, by TRL's SFT and DPO trainers.

The rows are tokenised here, prompt and completion apart as in sampling, so that the prompt's tokens are those
of sampling and of evaluation.  The end token is part of a completion unless it was cut at the length limit.

`label_smoothing` e is conservative DPO: (1 - e) L(x) + e L(-x) for L(x) = -log sigmoid(x), as TRL's plain
loss had it until its DPO trainer was rewritten.  Now TRL ignores it there, but adds up weighted losses, and
this one is exactly 2 (1 - e) times the plain loss minus (1 - 2e) times the robust one.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import Trainer
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from factrl.runs.folder import Run
from factrl.runs.settings import ModelSettings
from factrl.train.tuning.settings import TuneSettings

from .callbacks import Beside, Interrupted, last_checkpoint
from .model import load_policy, lora_config, uses_bf16
from .packed import restore_forward, use_packed_logprobs

TrainingRow = Mapping[str, Any]


class _Tokenised(DPOTrainer):
    """DPO on rows of `prompt_ids`, `chosen_ids` and `rejected_ids`."""

    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        return dataset


def learn(
    settings: TuneSettings,
    start: ModelSettings,
    rows: Sequence[TrainingRow],
    run: Run,
    checkpoints: Path,
    target: Path,
    *,
    before: int = 0,
    whole: bool = False,
) -> int:
    """Train a model on rows and save it; goes on from the last complete checkpoint.

    Args:
        start: the model that learning starts from; for pairs also the reference.
        rows: with `prompt` and either `completion`, or `chosen` and `rejected`.
        target: folder of the trained model, which appears whole or not at all.
        before: steps that the run did in earlier rounds.
        whole: save an adapter merged into its model.

    Returns:
        The steps that the run has done then.

    Raises:
        Interrupted: SIGINT or SIGTERM; a checkpoint was written.
    """
    model, tokenizer = load_policy(start)
    model.get_input_embeddings().requires_grad_(not settings.model.freeze_embeddings)
    make = _preference if "chosen" in rows[0] else _imitation
    trainer = make(settings, start, model, tokenizer, rows, checkpoints)
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not torch.cuda.is_available():
        for policy in filter(None, (inner, getattr(trainer, "ref_model", None))):
            use_packed_logprobs(policy)
    checkpoint = last_checkpoint(checkpoints)
    run.truncate_after(before + (checkpoint[1] if checkpoint else 0))
    if Beside(run, before=before).train(trainer, checkpoint, f"train {settings.tune.method}"):
        raise Interrupted("tune", run.path, before + trainer.state.global_step)
    trained: Any = trainer.accelerator.unwrap_model(trainer.model)
    restore_forward(inner)
    if whole and hasattr(trained, "merge_and_unload"):
        trained = trained.merge_and_unload()
    unfinished = target.with_name(f"{target.name}.unfinished")
    trained.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    if target.exists():  # of a run that was killed before it could say that the round is done
        shutil.rmtree(target)
    unfinished.replace(target)
    return before + trainer.state.global_step


def _imitation(
    settings: TuneSettings,
    start: ModelSettings,
    model: Any,
    tokenizer: Any,
    rows: Sequence[TrainingRow],
    checkpoints: Path,
) -> Trainer:
    prompts = _ids(tokenizer, [row["prompt"] for row in rows], special=not settings.data.chat)
    texts = _completions(tokenizer, rows, "completion", "truncated")
    data = {
        "input_ids": [prompt + text for prompt, text in zip(prompts, texts, strict=True)],
        "labels": [[-100] * len(prompt) + text for prompt, text in zip(prompts, texts, strict=True)],
    }
    return SFTTrainer(
        model,
        args=SFTConfig(**_arguments(settings, checkpoints), max_length=None, completion_only_loss=True),
        train_dataset=Dataset.from_dict(data),
        processing_class=tokenizer,
        peft_config=lora_config(settings.model),
    )


def _preference(
    settings: TuneSettings,
    start: ModelSettings,
    model: Any,
    tokenizer: Any,
    rows: Sequence[TrainingRow],
    checkpoints: Path,
) -> Trainer:
    told = settings.tune
    e, loss = told.label_smoothing, {}
    if e:
        loss = {"loss_type": ["sigmoid", "robust"], "loss_weights": [2 * (1 - e), -(1 - 2 * e)]}
    config = DPOConfig(
        **_arguments(settings, checkpoints), **loss, max_length=None, beta=told.beta, label_smoothing=e
    )
    data = {
        "prompt_ids": _ids(tokenizer, [row["prompt"] for row in rows], special=not settings.data.chat),
        "chosen_ids": _completions(tokenizer, rows, "chosen", "chosen_truncated"),
        "rejected_ids": _completions(tokenizer, rows, "rejected", "rejected_truncated"),
    }
    return _Tokenised(
        model,
        # With an adapter the reference is the model without it.
        ref_model=None if settings.model.lora else load_policy(start)[0],
        args=config,
        train_dataset=Dataset.from_dict(data),
        processing_class=tokenizer,
        peft_config=lora_config(settings.model),
    )


def _arguments(settings: TuneSettings, checkpoints: Path) -> dict[str, Any]:
    """What both of TRL's configurations are told."""
    told = settings.train
    rows = min(told.micro_batch_size, told.prompts_per_step)
    return {
        "output_dir": str(checkpoints),
        "max_steps": told.steps or -1,
        "num_train_epochs": told.epochs,
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": told.prompts_per_step // rows,
        "learning_rate": told.learning_rate,
        "lr_scheduler_type": told.lr_scheduler_type,
        "warmup_steps": told.warmup_steps,
        "weight_decay": told.weight_decay,
        "max_grad_norm": told.max_grad_norm,
        "optim": "adamw_torch_fused",
        "gradient_checkpointing": told.gradient_checkpointing,
        "bf16": uses_bf16(told),
        "use_cpu": not torch.cuda.is_available(),
        "save_strategy": "steps",
        "save_steps": told.save_steps,
        "save_total_limit": 2,
        "logging_steps": 1,
        "report_to": list(told.report_to),
        "disable_tqdm": True,
        "seed": settings.run.seed,
    }


def _completions(tokenizer: Any, rows: Sequence[TrainingRow], text: str, cut: str) -> list[list[int]]:
    ids = _ids(tokenizer, [row[text] for row in rows], special=False)
    return [one if row[cut] else [*one, tokenizer.eos_token_id] for one, row in zip(ids, rows, strict=True)]


def _ids(tokenizer: Any, texts: Sequence[str], *, special: bool) -> list[list[int]]:
    return tokenizer(list(texts), add_special_tokens=special)["input_ids"]
