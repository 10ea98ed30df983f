"""Resampled column means, drawn once for many statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 10_000
_CELLS_AT_ONCE = 2_000_000


def resampled_means(rows: Floats, seed: int | tuple[int, ...] = 0, n: int = RESAMPLES) -> Floats:
    """Column means of `n` samples of rows, each as large as `rows` and drawn with replacement.

    Identical rows make the resampling a multinomial draw, as in `factrl.bench.metrics.bootstrap`.

    Args:
        rows: `(N, d)`, one row per unit that is drawn as a whole, such as a prompt; N at least 1.

    Returns:
        `(n, d)`.
    """
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    rng = np.random.default_rng(seed)
    at_once = max(1, _CELLS_AT_ONCE // len(distinct))
    parts = [
        rng.multinomial(len(rows), counts / len(rows), size=min(at_once, n - start)) @ distinct / len(rows)
        for start in range(0, n, at_once)
    ]
    return np.concatenate(parts)


def summed(keys: Sequence[str], rows: Floats) -> tuple[list[str], Floats]:
    """The rows of each key added up, in the order in which keys first occur: `(N, d)` to `(keys, d)`."""
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    sums = np.zeros((len(numbers), rows.shape[1]))
    np.add.at(sums, [numbers[key] for key in keys], rows)
    return list(numbers), sums
