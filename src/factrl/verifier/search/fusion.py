"""Several rankings made into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

K = 10
"""The constant of reciprocal rank fusion.  Cormack, Clarke and Büttcher (SIGIR 2009) use 60, which lets an
item that both searches rank low pass the best one of each: 4 points of hit@5 less on our passages."""

T = TypeVar("T", bound=int | str)


def fuse(rankings: Iterable[Sequence[T]]) -> list[tuple[T, float]]:
    """Reciprocal rank fusion: an item earns 1 / (10 + rank) from each ranking that has it.

    Scores of different searches cannot be compared, ranks can.

    Args:
        rankings: items, best first; ranks start at 1.

    Returns:
        Items with their sums, best first; of equal ones the one that was met first.
    """
    sums: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            sums[item] = sums.get(item, 0.0) + 1.0 / (K + rank)
    return sorted(sums.items(), key=lambda entry: -entry[1])
