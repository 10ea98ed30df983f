"""Answers from the policy as it is now, for evaluations before, during and after training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from factrl import papers
from factrl.evals.metrics import short_form
from factrl.evals.samples import Row
from factrl.evals.shortqa import Extract, GradeAnswer, grade_completions
from factrl.rewards import Reward
from factrl.runs.settings import RunSettings
from factrl.train.held_out import HeldOut
from factrl.train.tuning.extraction import extract_of
from factrl.types import Example

from .model import uses_bf16
from .prompts import encode, render_prompts
from .sampling import sample


def answer(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    settings: RunSettings,
    *,
    num_samples: int = 1,
    temperature: float = 0.0,
) -> list[list[str]]:
    """Answers to questions, asked as in training.

    Args:
        num_samples: answers per question.
        temperature: 0 is greedy.

    Returns:
        For every question its answers.
    """
    prompts = encode(render_prompts(examples, tokenizer, settings.data), tokenizer, chat=settings.data.chat)
    training = model.training
    model.eval()
    with torch.autocast(model.device.type, torch.bfloat16, enabled=uses_bf16(settings.train)):
        groups = sample(
            model,
            prompts,
            num_samples=num_samples,
            max_new_tokens=settings.train.max_completion_length,
            temperature=temperature,
            eos_ids=end_tokens(model, tokenizer),
        )
    model.train(training)
    return [tokenizer.batch_decode(group, skip_special_tokens=True) for group in groups]


def greedy(model: Any, tokenizer: Any, examples: Sequence[Example], settings: RunSettings) -> list[str]:
    """The most likely answer to every question."""
    return [group[0] for group in answer(model, tokenizer, examples, settings)]


def evaluator(
    examples: Sequence[Example],
    tokenizer: Any,
    settings: RunSettings,
    grader: GradeAnswer,
    extract: Extract,
    held_out: HeldOut | None = None,
) -> Callable[[Any, int], Mapping[str, float | None]]:
    """A function of a model and a step that answers the questions greedily and returns their metrics.

    Args:
        held_out: adds its metrics of the same answers.
    """

    def evaluate(model: Any, step: int) -> Mapping[str, float | None]:
        texts = greedy(model, tokenizer, examples, settings)
        rows = grade_completions(list(zip(examples, texts, strict=True)), grader, extract)
        return {**rates(rows), **({} if held_out is None else held_out(rows))}

    return evaluate


def rates(rows: Sequence[Row]) -> Mapping[str, float | None]:
    """The short-form metrics of graded answers and the share that could not be graded."""
    summary = short_form([row.grade for row in rows])
    values = {name: i.value if i else None for name, i in summary.metrics.items()}
    return {**values, "masked": summary.masked / len(rows)}


def extraction(reward: Reward) -> Extract:
    """Where this reward finds the answer in a completion, for an evaluation that reads it the same way."""
    package, _, paper = reward.fn.__module__.rpartition(".")
    return extract_of(paper if package == papers.__name__ else "", reward.knobs)


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer."""
    ids = model.generation_config.eos_token_id
    many = ids if isinstance(ids, list) else [ids]
    return [i for i in {*many, tokenizer.eos_token_id} if i is not None]
