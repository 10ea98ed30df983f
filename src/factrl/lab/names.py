"""Names of people and places that exist nowhere, so that no model has read of them."""

from __future__ import annotations

import random

_STARTS = ("B", "Br", "D", "F", "G", "H", "J", "K", "L", "M", "N", "P", "R", "S", "T", "V", "W", "Z")
_VOWELS = ("a", "e", "i", "o", "u")
_MIDDLES = ("d", "g", "l", "ll", "m", "n", "r", "rd", "st", "v")
_ENDS = ("k", "l", "n", "nd", "r", "s", "th", "x")


def invented(count: int, seed: int | str) -> list[str]:
    """`count` different names of one word and two syllables each; the same ones for the same seed."""
    rng = random.Random(f"names {seed}")
    found: dict[str, None] = {}
    while len(found) < count:
        parts = (_STARTS, _VOWELS, _MIDDLES, _VOWELS, _ENDS)
        found["".join(map(rng.choice, parts))] = None
    return [*found]


def pairs(count: int, first: list[str], last: list[str], seed: int | str) -> list[str]:
    """`count` different full names of two words, in which every word belongs to several people.

    Raises:
        ValueError: so many cannot be made of these words.
    """
    every = [f"{one} {other}" for one in first for other in last]
    if count > len(every):
        raise ValueError(f"{len(first)} first and {len(last)} last names make no {count} people")
    return random.Random(f"pairs {seed}").sample(every, count)
