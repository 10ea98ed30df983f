"""The warm start: a few supervised steps that teach the form of an answer, and that declining is one.

The untouched model rambles and never declines, so there is nothing for a reward to strengthen.  A
random share of the gold answers is replaced by "I don't know." — random, so that it carries no hint
about which questions to decline.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from factrl.lab.demo.settings import WarmSettings
from factrl.train.packed import restore_forward, use_packed_logprobs
from factrl.types import Example

ABSTENTION = "I don't know."


class _OnStep(TrainerCallback):
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.call()


def warm_start(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    prompts: Sequence[str],
    folder: Path,
    *,
    settings: WarmSettings,
    bf16: bool,
    seed: int,
    on_step: Callable[[], None],
) -> None:
    """Fine-tune `model` in place on gold answers, a share of them replaced by abstention.

    Args:
        prompts: the full text before the answer, one per example.
        folder: where TRL may write.
        on_step: called after every optimizer step.
    """
    count = round(settings.abstain_share * len(examples))
    declined = set(random.Random(seed).sample(range(len(examples)), count))
    targets = [ABSTENTION if i in declined else example.answers[0] for i, example in enumerate(examples)]
    rows = {"prompt": list(prompts), "completion": [text + tokenizer.eos_token for text in targets]}
    config = SFTConfig(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.steps // 10,
        optim="adamw_torch_fused",
        weight_decay=0.0,
        completion_only_loss=True,
        gradient_checkpointing=False,
        bf16=bf16,
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=seed,
    )
    trainer = SFTTrainer(
        model,
        args=config,
        train_dataset=Dataset.from_dict(rows),
        processing_class=tokenizer,
        callbacks=[_OnStep(on_step)],
    )
    trainer.remove_callback(PrinterCallback)
    if not torch.cuda.is_available():
        use_packed_logprobs(model)
    trainer.train()
    restore_forward(model)
