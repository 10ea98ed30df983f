"""The words of a text with the values that they are: numbers, codes, months, units, and the words of
`values.txt` that exclude each other (open and closed, more and less)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

from factrl.text.words import CARDINALS, STOP_WORDS, stem

LONGEST = 1_000
"""Characters of a claim or a piece of evidence that are compared word by word."""
_LONGEST_NAME = 3  # words of a text in capitals that may be a name; in a longer one capitals mark none
_TOKEN = re.compile(
    r"(?P<clock>\d{1,2}:\d\d(?![\d:]))|(?P<number>\d{1,3}(?:[., '’]\d{3})+(?:[.,]\d{1,2})?(?!\d)(?![.,-]\d)"
    r"|\d+(?:[.,]\d+)?(?![\d.]*\.\d)(?!-?[A-Z])(?=[^\W\d_]{0,3}(?!\w)))"
    r"(?:(?:st|nd|rd|th)\b)?"
    r"|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
    r"|(?P<code>[^\W\d_]{0,8}[-./]?\d[^\W_]*(?:[-./][^\W_]+)*)|[€$£¥]|°[CF]"
    r"|[^\W\d_]{1,2}['’](?=[^\W\d_]{2})|[^\W\d_]+(?:['’-][^\W\d_]+)*"
)
NEGATIONS = frozenset(
    """
    cannot denied denies failed fails hardly neither never no nobody none nor not nothing unable without
    refuse refuses kein keine keinem keinen keiner keines nicht nie niemals ohne ne pas sans aucun aucune
    jamais no sin nunca non senza mai niet geen ně ani nie bez не нет без
    inte ingen inget inga ikke ikkje aldrig aldri não nem nenhum nenhuma ei eivät δεν μην değil
    """.split()  # noqa: SIM905
)


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


@lru_cache(maxsize=8_192)
def stemmed(word: str) -> str:
    return _ENDING.sub("", stem(word))


class Token(NamedTuple):
    """A word: its stem, whether it is written as a name, and the value that it is, as its kind and which."""

    key: str
    low: str
    named: bool
    value: tuple[str, str] | None
    start: int
    end: int
    opens: bool  # a sentence


_ENDINGS = {"month": (), "weekday": ("s",), "number": ()}  # others have those of adjectives and plurals
_ADJECTIVE = ("s", "e", "n", "en", "er", "es", "em", "ly", "a")
_ENDING = re.compile(r"(?<=...)(?:ern|e[nmrs]?|[ns])$")


def _value(low: str, word: str, *, opens: bool, counted: bool) -> tuple[str, str] | None:
    """The value that a word is; a number stands before it (`counted`), or it begins a sentence (`opens`)."""
    values = lexicon()[0]
    if word in ("March", "May"):
        return values[word]
    for form in (low, low[:-1], low[:-2]) if len(low) > 3 else (low,):
        one = values.get(form)
        if one is None or (form != low and low[len(form) :] not in _ENDINGS.get(one[0], _ADJECTIVE)):
            continue
        if one[0] == "number" and not opens and word != low:
            continue  # "the Cento"
        if len(form) > 2 or counted or one[0] in ("number", "halfday", "currency"):
            return one
    return None


class Read(NamedTuple):
    """The words of a text, and what they hold together."""

    words: tuple[Token, ...]
    keys: frozenset[str]
    values: frozenset[tuple[str, str]]
    content: frozenset[str]  # keys of the words that carry the meaning, without values and negations
    denies: bool


@lru_cache(maxsize=8_192)
def read(text: str) -> Read:
    """The words of a text, its first thousand characters, with what they hold together."""
    words = tokens(text)
    content = (one for one in words if not one.value and len(one.low) > 1 and one.low not in silent())
    return Read(
        words,
        frozenset(one.key for one in words),
        frozenset(one.value for one in words if one.value),
        frozenset(one.key for one in content if one.low not in NEGATIONS),
        any(map(denies, words)),
    )


@lru_cache(maxsize=8_192)
def tokens(text: str, most: int = LONGEST) -> tuple[Token, ...]:
    """The words of the first `most` characters of a text, with their values."""
    found: list[Token] = []
    scales = lexicon()[1]
    capitals = text.isupper() and len(text.split()) > _LONGEST_NAME
    opens = True
    for match in _TOKEN.finditer(text[:most]):
        word, low = match[0], match[0].lower().replace("’", "'")
        if "'" in low:
            low = low.removesuffix("'s").removesuffix("'")
        last = found[-1] if found else None
        value: tuple[str, str] | None
        if match["clock"]:  # 8:00 is 8
            value = ("number", low.removeprefix("0").removesuffix(":00") or "0")
        elif match["number"]:
            value = ("number", _plain(match["number"]))
        elif match["code"]:
            value = ("code", low)
        elif low in scales and last and last.value and last.value[0] == "number" and ":" not in last.low:
            scaled = f"{float(last.value[1]) * scales[low]:.12g}"
            found[-1] = last._replace(value=("number", scaled), key=scaled, end=match.end())
            continue
        else:
            counted = bool(
                last and last.value and last.value[0] == "number" and last.end >= match.start() - 1
            )
            titled = not word.islower() and text[match.end() + 1 : match.end() + 2].isupper()  # "Nine Doors"
            value = _value(low, word, opens=opens and not titled, counted=counted)
        named = not (
            capitals or word.islower() or word.lower() == word.upper() or (opens and low in silent())
        )
        key = value[1] if value and value[0] in ("number", "code") else stemmed(low)
        found.append(Token(key, low, named, value, *match.span(), opens))
        opens = text[match.end() : match.end() + 3].strip()[:1] in (".", "!", "?", ":", ";", "|")
    return tuple(found)


def denies(one: Token) -> bool:
    """Whether a word is a negation."""
    return one.low in NEGATIONS or one.low.endswith("n't")


def _plain(digits: str) -> str:
    """A number in one spelling: 1203 for "1,203" and "1 203", 1.5 for "1,5", 3 for "3.00".

    A zero behind another decimal stays: version 3.10 is not 3.1.
    """
    if re.fullmatch(r"\d{1,3}(?:[., '’]\d{3})+", digits) and not digits.startswith("0"):
        return re.sub(r"\D", "", digits)
    if re.search(r"[.,]\d{3}[.,]", digits):
        whole, _, part = re.sub(r"[ '’]", "", digits).rpartition(
            "," if digits.rfind(",") > digits.rfind(".") else "."
        )
        digits = re.sub(r"\D", "", whole) + "." + part
    plain = re.sub(r"[ '’]", "", digits).replace(",", ".")
    if plain.count(".") > 1 or len(plain) >= 16:
        return plain
    part = plain.partition(".")[2]
    return f"{float(plain):.{len(part) if part.strip('0') else 0}f}"
