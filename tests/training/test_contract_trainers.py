"""The contract of tests/contract.py in TRL's trainer and in the function that verl calls."""

from __future__ import annotations

import asyncio
import pickle
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import contract as module
import pytest
from contract import ANSWERS, QUESTION, completions, contract, differences, worth

from factrl.bridges.trl import to_trl
from factrl.bridges.verl import compute_score

TEXTS = completions()


def test_trl_gets_none_for_what_was_not_graded() -> None:
    columns = {"question": [QUESTION] * len(TEXTS), "answers": [list(ANSWERS)] * len(TEXTS)}
    assert not differences(to_trl(contract)(["asked"] * len(TEXTS), TEXTS, **columns), TEXTS)
    chats = [[{"role": "assistant", "content": text}] for text in TEXTS]
    assert not differences(to_trl(contract)(["asked"] * len(TEXTS), chats, **columns), TEXTS)


def test_trls_asynchronous_trainer_gets_none_for_what_was_not_graded() -> None:
    """Its own scoring of a group, with the reward as its process gets it: pickled."""
    rollouts: Any = import_module("trl.experimental.async_grpo.async_rollout_worker")  # where it moved, fail
    accelerate = pytest.importorskip("accelerate")
    accelerate.PartialState(cpu=True)  # for its log
    function = pickle.loads(pickle.dumps(to_trl(contract)))  # noqa: S301
    loop = SimpleNamespace(
        reward_funcs=[function],
        reward_func_names=[function.__name__],
        _env_reward_types=[],
        _provides_rollout_reward=False,
    )
    asked = [{"role": "user", "content": QUESTION}]
    row = SimpleNamespace(input_ids=[1, 2], completion_mask=[0, 1], old_log_probs=[0.0, -1.0])
    group = rollouts.RolloutGroup(
        prompts=[asked] * len(TEXTS),
        reward_kwargs={"answers": [list(ANSWERS)] * len(TEXTS)},
        completions=[[{"role": "assistant", "content": text}] for text in TEXTS],
        completions_ids=[[2]] * len(TEXTS),
        completions_sequences=[[row]] * len(TEXTS),
        tool_call_counts=[0] * len(TEXTS),
        tool_failure_counts=[0] * len(TEXTS),
        model_version=0,
        group_id=0,
        env_rewards=[],
        rollout_rewards=[],
    )
    samples = asyncio.run(rollouts._AsyncRolloutLoop._score_group(loop, group))
    assert not differences([sample.metrics["reward"] for sample in samples], TEXTS)
    masked = [value is None for value in worth(TEXTS)]
    assert all(sample.advantage == 0 for sample, out in zip(samples, masked, strict=True) if out)


def test_verl_gets_nan_for_what_was_not_graded() -> None:
    paper = f"{Path(module.__file__)}:contract"
    known = {"question": QUESTION, "answers": list(ANSWERS)}

    async def scores() -> list[float]:
        told = [compute_score("set", text, "", known, paper=paper) for text in TEXTS]
        return [one["score"] for one in await asyncio.gather(*told)]

    assert not differences(asyncio.run(scores()), TEXTS)
