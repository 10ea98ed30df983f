"""Advantages where something is masked or equal; `test_parity_trl` has the rest against TRL's own."""

from __future__ import annotations

import math

import pytest
import torch

from factrl.train.advantages import group_advantages, reinforce_pp_advantages

NAN = math.nan


@pytest.mark.parametrize("masked", [1, 2, 5])
@pytest.mark.parametrize("size", [6, 16])
def test_siblings_of_masked_samples_are_not_moved(size: int, masked: int) -> None:
    rewards = torch.randn(size, generator=torch.Generator().manual_seed(size + masked))
    hidden = rewards.clone()
    hidden[-masked:] = NAN
    with_masks = group_advantages(hidden, size)
    if size - masked >= 2:
        alone = group_advantages(rewards[:-masked], size - masked)
        torch.testing.assert_close(with_masks[:-masked], alone, atol=1e-6, rtol=0)
    assert with_masks[-masked:].tolist() == [0.0] * masked


@pytest.mark.parametrize("rewards", [[NAN] * 4, [2.0, NAN, NAN, NAN], [1.0, 1.0, 1.0, NAN]])
@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_group_that_compares_nothing_gives_zero(rewards: list[float], scale: str) -> None:
    found = group_advantages(torch.tensor(rewards), 4, scale=scale)  # pyright: ignore[reportArgumentType]
    assert found.tolist() == [0.0] * 4


def test_groups_must_divide_the_batch() -> None:
    with pytest.raises(ValueError, match="groups of 4"):
        group_advantages(torch.zeros(6), 4)


def _whitened(rewards: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """verl's masked whitening of token returns, written out on a (B, T) mask."""
    mask = (torch.arange(int(lengths.max())) < lengths.unsqueeze(1)).double()
    returns = rewards.double().unsqueeze(1) * mask
    mean = (returns * mask).sum() / mask.sum()
    variance = ((returns - mean) ** 2 * mask).sum() / mask.sum()
    variance = variance * mask.sum() / (mask.sum() - 1)
    return ((returns - mean) * torch.rsqrt(variance + 1e-8))[:, 0]


def test_reinforce_pp_whitens_over_tokens() -> None:
    rewards, lengths = torch.tensor([1.0, -1.0, 0.0, 1.0]), torch.tensor([3, 7, 1, 5])
    found = reinforce_pp_advantages(rewards, lengths)
    torch.testing.assert_close(found, _whitened(rewards, lengths).float(), atol=1e-6, rtol=0)


def test_reinforce_pp_leaves_masked_samples_out() -> None:
    rewards, lengths = torch.tensor([1.0, NAN, -1.0, 0.0]), torch.tensor([3, 50, 7, 1])
    kept = torch.tensor([0, 2, 3])
    found = reinforce_pp_advantages(rewards, lengths)
    torch.testing.assert_close(found[kept], reinforce_pp_advantages(rewards[kept], lengths[kept]))
    assert found[1] == 0


@pytest.mark.parametrize("rewards", [[NAN, NAN], [1.0, NAN], [1.0, 1.0]])
def test_reinforce_pp_with_nothing_to_compare_gives_zero(rewards: list[float]) -> None:
    assert reinforce_pp_advantages(torch.tensor(rewards), torch.tensor([2, 3])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("value", [-1.9, 0.7, 0.1])
@pytest.mark.parametrize("epsilon", [1e-6, 0.0])
def test_equal_rewards_are_no_advantage_and_no_noise(value: float, epsilon: float) -> None:
    rewards = torch.full((8,), value)
    rewards[3] = torch.nan
    assert not group_advantages(rewards, 8, epsilon=epsilon).any()
    assert not reinforce_pp_advantages(rewards, torch.arange(1, 9)).any()
