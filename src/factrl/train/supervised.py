"""Supervised steps on given texts, on a model that is in memory already: the warm start of demo and studies.

`factrl tune sft` does the same from files, with checkpoints and a run folder.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from .model import encode
from .shortcuts import restore_forward, use_packed_logprobs
from .writing import unwrap_adapter


def supervise(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    texts: Sequence[str],
    *,
    steps: int,
    batch_size: int,
    learning_rate: float,
    bf16: bool,
    chat: bool = False,
    seed: int = 0,
    on_step: Callable[[], None] = lambda: None,
) -> None:
    """Change the model's weights that require a gradient, by the loss of `texts` after their prompts.

    Args:
        prompts: rendered, as `factrl.train.model.render_prompts` makes them.
        texts: what is learned; an end token is added.
        steps: optimizer steps; the rate rises over a tenth of them and falls as a cosine.
        batch_size: texts of a step.
    """
    prompt_ids = encode(prompts, tokenizer, chat=chat)
    text_ids = [
        [*ids, tokenizer.eos_token_id]
        for ids in tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    ]
    rows = list(zip(prompt_ids, text_ids, strict=True))
    data = {
        "input_ids": [prompt + text for prompt, text in rows],
        "labels": [[-100] * len(prompt) + text for prompt, text in rows],
    }
    on_cpu = not torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as scratch:
        config = SFTConfig(
            output_dir=scratch,
            max_steps=steps,
            per_device_train_batch_size=batch_size,
            learning_rate=learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=steps // 10,
            optim="adamw_torch_fused",
            weight_decay=0.0,
            max_length=None,
            completion_only_loss=True,
            gradient_checkpointing=False,
            bf16=bf16,
            use_cpu=on_cpu,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            seed=seed,
        )
        trainer = SFTTrainer(
            model,
            args=config,
            train_dataset=Dataset.from_dict(data),
            processing_class=tokenizer,
            callbacks=[_OnStep(on_step)],
        )
        trainer.remove_callback(PrinterCallback)
        if on_cpu:
            use_packed_logprobs(unwrap_adapter(model))
        trainer.train()
        restore_forward(unwrap_adapter(model))
    del trainer
    gc.collect()  # a trainer is part of a circle, and holds the optimizer's two copies of the weights


class _OnStep(TrainerCallback):
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.call()
