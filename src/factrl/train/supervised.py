"""Supervised steps on given texts, on a model that is in memory already: the warm start of demo and studies.

`factrl tune sft` does the same from files, with checkpoints and a run folder.  Rows are tokenised here,
prompt and completion apart as in sampling, so that a prompt's tokens are those of sampling and evaluation.
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
from .sampling import unwrap_adapter
from .shortcuts import restore_forward, use_packed_logprobs


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
    seed: int = 0,
    stepped: Callable[[], None] = lambda: None,
) -> None:
    """Change the model's weights that require a gradient, by the loss of `texts` after their prompts.

    Args:
        prompts: rendered, as `factrl.train.model.render_prompts` makes them.
        texts: what is learned; an end token is added.
        steps: optimizer steps; the rate rises over a tenth of them and falls as a cosine.
        batch_size: texts of a step.
        stepped: called after each step.
    """
    rows = imitation_rows(
        encode(prompts, tokenizer, chat=False), encode_completions(tokenizer, texts, [False] * len(texts))
    )
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
        trainer = SFTTrainer(model, args=config, train_dataset=rows, processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(_After(stepped))
        if on_cpu:
            use_packed_logprobs(unwrap_adapter(model))
        trainer.train()
        restore_forward(unwrap_adapter(model))
    del trainer
    gc.collect()  # a trainer is part of a circle, and holds the optimizer's two copies of the weights


class _After(TrainerCallback):
    def __init__(self, stepped: Callable[[], None]) -> None:
        self._stepped = stepped

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._stepped()


def encode_completions(tokenizer: Any, texts: Sequence[str], cut: Sequence[bool]) -> list[list[int]]:
    """Token ids of completions, with the end token but where a text was cut off at the length limit."""
    ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    ends = ([] if truncated else [tokenizer.eos_token_id] for truncated in cut)
    return [[*one, *end] for one, end in zip(ids, ends, strict=True)]


def imitation_rows(prompts: Sequence[list[int]], completions: Sequence[list[int]]) -> Dataset:
    """The rows of an `SFTTrainer` whose loss is that of the completions."""
    both = list(zip(prompts, completions, strict=True))
    return Dataset.from_dict(
        {
            "input_ids": [prompt + text for prompt, text in both],
            "labels": [[-100] * len(prompt) + text for prompt, text in both],
        }
    )
