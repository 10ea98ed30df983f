"""Advantages from rewards: pure functions on tensors, where NaN marks a masked sample.

A masked sample has advantage 0 and does not move its siblings: means and deviations are over the
scored samples alone.  A group with fewer than two scored samples compares nothing and gives 0.
"""

from __future__ import annotations

from typing import Literal

import torch

Scale = Literal["group", "batch", "none"]


def group_advantages(
    rewards: torch.Tensor, group_size: int, *, scale: Scale = "group", epsilon: float = 1e-6
) -> torch.Tensor:
    """GRPO's advantage: the reward minus its group's mean, divided by a standard deviation.

    DeepSeekMath (arXiv:2402.03300), section 4.1.2; `scale="none"` is Dr. GRPO (arXiv:2503.20783).
    The deviation is the sample one (n - 1), as in TRL and verl.

    Args:
        rewards: (B,), groups one after the other; NaN where masked.
        scale: what the deviation is taken over; `none` divides by nothing.
        epsilon: added to the deviation (TRL 1e-4, verl 1e-6).

    Returns:
        (B,), 0 where masked.

    Raises:
        ValueError: rewards that do not form groups, or an unknown `scale`.

    >>> group_advantages(torch.tensor([1.0, 0.0, torch.nan, 2.0]), 4, scale="none").tolist()
    [0.0, -1.0, 0.0, 1.0]
    """
    if rewards.dim() != 1 or len(rewards) % group_size:
        raise ValueError(f"rewards of shape {tuple(rewards.shape)} do not form groups of {group_size}")
    precise = rewards.double()  # equal rewards then have exactly their mean, and no noise is scaled up
    groups = precise.view(-1, group_size)
    alone = (~groups.isnan()).sum(dim=1, keepdim=True) < 2
    centred = (groups - groups.nanmean(dim=1, keepdim=True)).masked_fill(alone, torch.nan)
    if scale == "group":
        centred = centred / (_deviation(groups, dim=1) + epsilon)
    elif scale == "batch":
        centred = centred / (_deviation(precise, dim=0) + epsilon)
    elif scale != "none":
        raise ValueError(f"scale={scale!r} is not group, batch or none")
    return centred.flatten().nan_to_num(nan=0.0).to(rewards.dtype)


def reinforce_pp_advantages(
    rewards: torch.Tensor, lengths: torch.Tensor, *, epsilon: float = 1e-8
) -> torch.Tensor:
    """REINFORCE++ (arXiv:2501.03262): rewards whitened over all tokens of the batch, no groups.

    With the reward at the last token and no discount, every token of a completion has the same return,
    so whitening over tokens is a mean and deviation weighted by length.  Equal to verl's
    `reinforce_plus_plus` with gamma 1.

    Args:
        rewards: (B,), NaN where masked.
        lengths: (B,) tokens of each completion.
        epsilon: added to the variance.

    Returns:
        (B,), 0 where masked.

    >>> whitened = reinforce_pp_advantages(torch.tensor([3.0, 1.0, torch.nan]), torch.tensor([1, 1, 5]))
    >>> whitened.round(decimals=2)
    tensor([ 0.7100, -0.7100,  0.0000])
    """
    weights = lengths.double().masked_fill(rewards.isnan(), 0)
    tokens = weights.sum()
    if (weights > 0).sum() < 2:
        return torch.zeros_like(rewards)
    values = rewards.double().nan_to_num(nan=0.0)
    mean = (values * weights).sum() / tokens
    variance = ((values - mean) ** 2 * weights).sum() / (tokens - 1)
    whitened = (values - mean) * torch.rsqrt(variance + epsilon)
    return whitened.masked_fill(rewards.isnan(), 0).to(rewards.dtype)


def flip_advantages(advantages: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """FSPO's step-wise credit (arXiv:2505.24630, Eq. 11): A where y * A >= 0, else -A.

    So a supported step is never discouraged and a contradicted one never encouraged; a neutral one (y = 0)
    keeps the advantage of its completion.

    Args:
        advantages: (B,) of completions, from any estimator; 0 where masked.
        signs: (B, T) of -1, 0 and 1: y, the sign of each token's step.

    Returns:
        (B, T).

    >>> flip_advantages(torch.tensor([0.5, -0.5]), torch.tensor([[1, 0, -1], [1, 0, -1]])).tolist()
    [[0.5, 0.5, -0.5], [0.5, -0.5, -0.5]]
    """
    rows = advantages.unsqueeze(1)
    return torch.where(signs * rows >= 0, rows, -rows)


def _deviation(rewards: torch.Tensor, dim: int) -> torch.Tensor:
    """Sample standard deviation along `dim`, NaN left out; NaN itself where fewer than two remain."""
    count = (~rewards.isnan()).sum(dim=dim, keepdim=True)
    squares = ((rewards - rewards.nanmean(dim=dim, keepdim=True)) ** 2).nansum(dim=dim, keepdim=True)
    return (squares / (count - 1)).sqrt()
