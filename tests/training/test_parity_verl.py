"""Our advantages and losses are those of verl's own functions, number for number, on random groups.

Masked rows are left out of what verl is given; it groups by an index, so groups may differ in size.
"""

from __future__ import annotations

import math
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from factrl.train.advantages import Scale, group_advantages, reinforce_pp_advantages
from test_parity_trl import LONGEST, PROMPTS, SIZES, Given, Ours, log_probs, our_trainer, prepared

NAN = math.nan
# TRL's name of a loss, verl's aggregation and whether verl divides by the deviation.
LOSSES = {
    "grpo": ("seq-mean-token-mean", True),
    "dr_grpo": ("seq-mean-token-sum-norm", False),
    "dapo": ("token-mean", True),
    "bnpo": ("token-mean", True),
}


@pytest.fixture(scope="module")
def verl() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of verl and Ray
        return pytest.importorskip("verl.trainer.ppo.core_algos", reason="needs verl", exc_type=ImportError)


@pytest.fixture(scope="module")
def ours(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ours:
    return our_trainer(tiny_model, tmp_path_factory.mktemp("parity"))


def rows(verl: Any, name: str, rewards: torch.Tensor, mask: torch.Tensor, index: Any, **options: Any) -> Any:
    """verl's (B, T) advantages for rewards of shape (B,)."""
    last = mask.sum(dim=1).long() - 1
    scores = torch.zeros_like(mask).scatter(1, last.unsqueeze(1), rewards.unsqueeze(1))
    config = verl.AlgoConfig(gamma=1.0)
    return verl.get_adv_estimator_fn(name)(
        token_level_rewards=scores, response_mask=mask, index=np.asarray(index), config=config, **options
    )[0]


# --- advantages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_group_advantages(verl: Any, size: int) -> None:
    """Of five groups; a third of the completions is masked, but for two of each group."""
    draw = torch.Generator().manual_seed(size)
    estimators = [("grpo", "group", True), ("grpo", "none", False), ("grpo_vectorized", "group", True)]
    for scores in (torch.randn(5 * size, generator=draw), torch.randint(0, 2, (5 * size,), generator=draw)):
        rewards = scores.double()
        hidden = torch.rand(5, size, generator=draw) < 1 / 3
        hidden[:, :2] = False
        rewards[hidden.flatten()] = NAN
        kept = ~rewards.isnan()
        index = np.arange(5).repeat(size)[kept.numpy()]
        mask = torch.ones(int(kept.sum()), 3, dtype=torch.double)
        for name, scale, divide in estimators:
            their = rows(verl, name, rewards[kept], mask, index, norm_adv_by_std_in_grpo=divide)
            chosen: Scale = "group" if scale == "group" else "none"
            found = group_advantages(rewards, size, scale=chosen, epsilon=1e-6)
            torch.testing.assert_close(found[kept], their[:, 0], atol=1e-6, rtol=0)
            assert found[~kept].count_nonzero() == 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("masked", [0, 1, 5])
def test_reinforce_pp_advantages(verl: Any, size: int, masked: int) -> None:
    draw = torch.Generator().manual_seed(size)
    rewards = torch.randn(2 * size, generator=draw).double()
    lengths = torch.randint(1, 30, (2 * size,), generator=draw)
    rewards[: min(masked, 2 * size - 2)] = NAN
    kept = ~rewards.isnan()
    mask = (torch.arange(30) < lengths[kept].unsqueeze(1)).double()
    their = rows(verl, "reinforce_plus_plus", rewards[kept], mask, np.zeros(int(kept.sum())))
    found = reinforce_pp_advantages(rewards, lengths)
    torch.testing.assert_close(found[kept], their[:, 0], atol=1e-6, rtol=0)
    torch.testing.assert_close(their, their[:, :1] * mask, atol=1e-6, rtol=0)  # one value per completion
    assert found[~kept].count_nonzero() == 0


# --- losses ----------------------------------------------------------------------------------------------


def verl_loss(verl: Any, trainer: Ours, batch: dict[str, Any], given: Given, loss: str, beta: float) -> float:
    """verl's estimator, clipped loss, KL penalty and aggregation on the rows that are not masked."""
    reinforce = loss == "reinforce++"
    aggregation, divide = ("token-mean", True) if reinforce else LOSSES[loss]
    kept = given.kept
    lengths = torch.tensor([len(given.ids[row]) for row in kept])
    mask = (torch.arange(batch["completion_ids"].size(1)) < lengths.unsqueeze(1)).float()
    rewards = torch.tensor([given.values[row] for row in kept], dtype=torch.float)
    index = [row // given.size for row in kept]
    options = {} if reinforce else {"norm_adv_by_std_in_grpo": divide}
    advantages = rows(verl, "reinforce_plus_plus" if reinforce else "grpo", rewards, mask, index, **options)
    for row, original in enumerate(kept):
        for token, sign in enumerate(given.signs[original]):
            if sign * advantages[row, token] < 0:
                advantages[row, token] *= -1
    batch_info = {"loss_scale_factor": LONGEST} if loss == "dr_grpo" else {}
    config = verl.ActorConfig(
        strategy="fsdp", rollout_n=given.size, use_dynamic_bsz=True, global_batch_info=batch_info
    )
    new, old, reference = (
        values[kept]
        for values in (
            log_probs(trainer, {**batch, "completion_mask": batch["completion_ids"] != 0}),
            batch["old_per_token_logps"],
            batch["ref_per_token_logps"],
        )
    )
    policy, _ = verl.compute_policy_loss_vanilla(old, new, advantages, mask, aggregation, config)
    kl = verl.kl_penalty(new, reference, "low_var_kl")
    return (policy + beta * verl.agg_loss(kl, mask, aggregation, **batch_info)).item()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spans", [False, True])
def test_losses(verl: Any, ours: Ours, size: int, spans: bool) -> None:
    """The loss that our trainer computes, through TRL, against verl's functions."""
    for number, loss in enumerate([*LOSSES, "reinforce++"]):
        given = Given(size, number, spans=spans)
        draw = random.Random(size + number)
        for group in range(PROMPTS):  # as many as may be, and not the same number in every group
            for row in draw.sample(range(size), draw.randint(0, size - 2)):
                given.values[group * size + row] = None
        ours.args.advantage_estimator = "reinforce++" if loss == "reinforce++" else "group"
        ours.scale_rewards = "none" if loss == "dr_grpo" else "group"
        batch = prepared(ours, given)
        beta = (number + size) % 2 * 0.04
        ours.loss_type = "dapo" if loss == "reinforce++" else loss
        ours.beta = beta
        found = ours.compute_loss(ours.model, batch["raw"]).item()
        ours.beta = 0.0
        assert found == pytest.approx(verl_loss(verl, ours, batch, given, loss, beta), abs=1e-6)
        assert found != 0 or not batch["advantages"].any()
