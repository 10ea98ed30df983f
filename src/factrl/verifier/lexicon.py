"""The words of `values.txt`: numbers and scales in some languages, and words that exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from factrl.text.words import CARDINALS, STOP_WORDS


@cache
def lexicon() -> tuple[Mapping[str, tuple[str, str]], Mapping[str, float]]:
    """Word -> the kind of its value, and which one; and the scales."""
    values: dict[str, tuple[str, str]] = {word: ("number", str(n)) for word, n in CARDINALS.items() if n > 1}
    scales: dict[str, float] = {}
    for line in files("factrl.verifier").joinpath("values.txt").read_text("utf-8").split("\n"):
        head, _, rest = line.partition(" ")
        if head == "-":
            continue
        if head.startswith("x"):
            scales.update(dict.fromkeys(rest.split(), float(head[1:])))
        elif head.isdigit():
            values.update(dict.fromkeys(rest.split(), ("number", head)))
        elif head and head != "#":
            for one in rest.split(" | "):
                words = one.split()
                values.update(
                    (word.lower() if head != "month" else word, (head, words[0].lower())) for word in words
                )
    return values, scales


@cache
def silent() -> frozenset[str]:
    """Words that carry no meaning: articles, pronouns, prepositions, forms of "be", in some languages."""
    lines = files("factrl.verifier").joinpath("values.txt").read_text("utf-8").split("\n")
    return STOP_WORDS.union(*(line[2:].split() for line in lines if line.startswith("- ")))
