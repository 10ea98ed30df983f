"""verl for tests: imported without its warnings, its configuration composed, batches as it makes them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch


def imported(module: str) -> Any:
    """A module of verl, or of factrl's bridge to it; skips where verl is not whole."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of verl and Ray
        for needed in ("hydra", "transfer_queue", "verl.trainer.ppo.v1"):
            pytest.importorskip(needed, reason=f"needs {needed}", exc_type=ImportError)
        return pytest.importorskip(module, exc_type=ImportError)


def composed(*words: str, checked: bool = False) -> Any:
    """The configuration that `python -m verl.trainer.main_ppo` reads; and as it checks it."""
    folder = Path(imported("verl").__file__).parent / "trainer" / "config"
    import hydra

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with hydra.initialize_config_dir(str(folder), version_base=None):
            config = hydra.compose("ppo_trainer", overrides=["actor_rollout_ref.rollout.name=vllm", *words])
        if checked:
            from verl.trainer.ppo.utils import need_critic, need_reference_policy
            from verl.utils.config import validate_config

            validate_config(config, need_reference_policy(config), need_critic(config))
    return config


def batch_of(ids: Sequence[Sequence[int]], scores: Sequence[float], uids: Sequence[str]) -> Any:
    """A batch with one completion per row, its score on its last token."""
    from verl import DataProto

    width = max(map(len, ids))
    mask = torch.tensor([[1.0] * len(row) + [0.0] * (width - len(row)) for row in ids])
    rewards = torch.zeros_like(mask)
    for row, score in enumerate(scores):
        rewards[row, len(ids[row]) - 1] = score
    import numpy as np

    tensors = {"response_mask": mask, "token_level_rewards": rewards}
    return DataProto.from_dict(tensors, non_tensors={"uid": np.array(uids, dtype=object)})
