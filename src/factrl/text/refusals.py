"""The words and phrases with which a text declines to answer: `refusals.toml`, read once."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

SPELLINGS = {
    **{"can't": "cannot", "cant": "cannot", "won't": "will not", "dont": "do not", "didnt": "did not"},
    **{"doesnt": "does not", "isnt": "is not", "couldnt": "could not", "im": "i am", "i'm": "i am"},
    **{"i've": "i have", "i'd": "i would", "i'll": "i will", "it's": "it is", "that's": "that is"},
    **{"there's": "there is", "we're": "we are", "we've": "we have", "idk": "i do not know"},
    **{"dunno": "do not know", "isn't": "is not", "ain't": "is not", "i-i": "i"},
}
"""What contractions are spelt out as."""

Phrases = tuple[str, ...]
Words = frozenset[str]


@dataclass(frozen=True, slots=True)
class Refusals:
    """The tables; the file says what each one is for.

    Attributes:
        phrases: by name; each ends in a space, so that whole words match.
        bare: what declines as the complete clause, or before a question word ("No idea who").
        spaceless: by name; of scripts without spaces.
        words: by name.
        grammar: small words of six languages.
        talk: words of talk about what is not known.
        stems: beginnings of such words.
        sources: where people are sent to look, and who made the model.
        chinese: what such talk is made of.
        japanese: the same.
    """

    phrases: dict[str, Phrases]
    bare: Words
    spaceless: dict[str, Phrases]
    words: dict[str, Words]
    grammar: Words
    talk: Words
    stems: Words
    sources: Words
    chinese: re.Pattern[str]
    japanese: re.Pattern[str]


@cache
def refusals() -> Refusals:
    """Every table of `refusals.toml`."""
    raw = tomllib.loads((Path(__file__).parent / "refusals.toml").read_text(encoding="utf-8"))
    words = {name: frozenset(text.split()) for name, text in raw["words"].items()}
    lists = {name: text.split() for name, text in raw["talk"].items()}
    talk = [*lists["english"], *lists["european"]]
    scripts = (sorted(lists[name], key=len, reverse=True) for name in ("chinese", "japanese"))
    chinese, japanese = (re.compile("|".join(map(re.escape, variants))) for variants in scripts)
    phrases = {name: tuple(f"{phrase} " for phrase in _split(text)) for name, text in raw["phrases"].items()}
    negations = ("does not", "do not", "did not")
    phrases["silent"] += tuple(f"{no} {verb} " for no in negations for verb in sorted(words["saying"]))
    words["clause_words"] |= words["contrasts"]
    return Refusals(
        phrases,
        frozenset(phrase.strip() for phrase in phrases["bare"]),
        {name: _split(text) for name, text in raw["spaceless"].items()},
        words,
        frozenset(lists["grammar"]),
        frozenset(word for word in talk if not word.endswith("-")),
        frozenset(word[:-1] for word in talk if word.endswith("-")),
        frozenset(lists["sources"]),
        chinese,
        japanese,
    )


def _split(text: str) -> Phrases:
    return tuple(" ".join(phrase.split()) for phrase in text.split("|"))
