"""What a reward may ask the trainer for: the policy's certainty, a completion's group, how the run goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelerate.utils import gather_object

from factrl.types import Completion, TrainingState

from .certainty import self_certainty
from .sampling import evaluating

ACCURACY = "eval/accuracy"  # the metric that a run logs for the share of right answers to held-out questions


def attach_context(
    trainer: Any,
    texts: Sequence[Completion],
    prompt_ids: Sequence[Sequence[int]],
    completion_ids: Sequence[Sequence[int]],
) -> None:
    """Set `certainty`, `group` and `course` of completions, where the reward of a trainer has the resource.

    Args:
        trainer: a `FactualGRPOTrainer`.
        texts: the B completions of this process.
        prompt_ids, completion_ids: (B, *) tokens.
    """
    resources = trainer.reader.reward.resources.keys()
    if "certainty" in resources:
        policy = trainer.accelerator.unwrap_model(trainer.model)
        with evaluating(policy), trainer.accelerator.autocast():
            certainties = self_certainty(policy, prompt_ids, completion_ids)
        for text, certainty in zip(texts, certainties, strict=True):
            text.certainty = certainty
    if {"group", "course"} & resources:
        gathered, size = gather_object(list(texts)), trainer.group_size
        [stalled, *_] = gather_object([_stalled(trainer)])  # only the first process evaluates
        course = TrainingState(tuple(gathered), stalled)
        first = trainer.accelerator.process_index * len(texts)
        for place, text in enumerate(texts, start=first):
            start = place - place % size
            text.group, text.course = tuple(gathered[start : start + size]), course


def _stalled(trainer: Any) -> int:
    """How many held-out evaluations followed the most accurate one."""
    logged = [entry[ACCURACY] for entry in trainer.state.log_history if entry.get(ACCURACY) is not None]
    return len(logged) - 1 - logged.index(max(logged)) if logged else 0
