"""Reading takes linear time, whatever the policy writes."""

from __future__ import annotations

import functools
import gc
import itertools
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest
import text_readers
from text_readers import Reader, called

from factrl.text import MAX_PAYLOAD

# Found by the search below, or by an attacker: (reader, before, unit, after).
FOUND = [
    ("llm.replies.read_verdicts", "", '"\\', ""),
    ("rewards.checklist.read_checklist", "", '"\\', ""),
    ("prepare.dataset.read_choices", '{"', '\\"', "\\"),
    ("rewards.guards.repeats", "", '"', ""),
    ("text.words.read", "", "\u0316\u0300", ""),
    ("text.mentions.mentions (answers)", "", "\u0316\u0300", ""),
    ("prepare.normalised", "$", "\u0316\u0300~", ""),
    ("verifier.Verifier.__call__", "", "。2 ", ""),
    ("verifier.Verifier.__call__", "| a | b |\n|---|---|\n", "| Ann Lee | 1 |\n", ""),
    ("verifier.Verifier.__call__ (header)", "", "Ann Lee ", ""),
    ("verifier.Verifier.__call__ (title)", "", "Ann Lee ", ""),
    ("runs.rows.read_separated (header)", "", "{n},", "end"),
]
# These read `MAX_PAYLOAD` characters and no more.
CAPPED = [
    *("answers.final_answer", "answers.is_contentless", "answers.normalize_answer", "words.parse_number"),
    *("answers.equals", "answers.contains", "abstention.abstains", "abstention.says_invalid_question"),
    *("words.read", "mentions.mentions", "unwrap_latex", "clean"),
]


@pytest.mark.parametrize("name", CAPPED)
def test_reading_stops_at_the_cap(name: str) -> None:
    """What lies behind it costs no more than copying it."""
    reader = text_readers.READERS[f"text.{name}"]

    def seconds(sample: str) -> float:
        start = time.thread_time()  # what other processes take does not count
        reader(sample)
        return time.thread_time() - start

    for unit in ("I don't know. ", "\ufdfa", "é"):
        some, many = (repeated("", unit, "", size) for size in (MAX_PAYLOAD, 32 * MAX_PAYLOAD))
        assert min(min(map(seconds, [many] * 3)) / min(map(seconds, [some] * 3)) for _ in range(3)) < 8


# -- Search -------------------------------------------------------------------------------------------

# `{n}` becomes another word each time: some readers take long for many different things alone.
TOKENS = [
    *"\"'\\`()[]{}<>|/*_#~-—+=$%&@^.,;:!?…¶•",
    *("\n", "\n\n", "\t", " ", "\u00a0", "\u2028", "\u200b", "\u200d", "\u0301", "\u0316\u0300", "\ufdfa"),
    *("\u0344", "\u202e", "\x1b[", "\x00", "\ud800", "👩\u200d👧"),
    *("0", "1", "9", "1,", "1.", "1,000,", "1867", "-1", "1e9", "½", "٣", "1st ", "2nd ", "million "),
    *("a", "A", "é", "ß", "İ", "中", "。", "，", "「", "か", "한", "א", "क्"),
    *("Ann ", "Ann Lee ", "McX ", "Ann{n} ", "{n} ", "{n}\n", "the ", "The ", "of ", "and ", "or ", "U.S. "),
    *("not ", "n't ", "never ", "no ", "but ", "is ", "was ", "It is ", "He was ", "born ", "in ", "who "),
    *("May ", "5 May 1867 ", "January ", ", ", ". ", "; ", "? ", "I don't know. ", "unknown ", "Paris "),
    *("- ", "1. ", "\n- ", "\n1. ", "# ", "> ", "| ", "|-", "```", "\n```\n", "***", "---"),
    *("[[", "]]", "{{", "}}"),
    *("{|", "|}", "<ref>", "</ref>", "<!--", "-->", "</", "http://a", "a@b.c", "sk-"),
    *("\\boxed{", "\\text{", "\\frac{", "\\{", "\\(", "$$"),
    *("<think>", "</think>", "<answer>", "</answer>", "[INST]", "<|im_start|>", "###", "Answer: ", "A) "),
    *('{"', '"}', '"verdict":', '{"id": "a", "verdict": "supported"}', "VERDICT: correct", "True"),
    *("According to ", "said that ", "(born ", "million ", "Q: ", "e.g. ", "Dr. "),
]
BEFORE = ["", "", "", '"', "(", "[", "{", "$", "|", "1", "- ", "I ", "It is ", "Ann Lee was ", "Answer: "]
BEFORE += ["```\n", "<think>", "<answer>", "<think>x</think><answer>", "\\boxed{", '{"a": "', '{"verdict": "']
AFTER = ["", "", "", '"', ")", "]", "}", "</think>", "</answer>", "$", ".", " x", "!", "\n", '"}', "?", "\\"]


def repeated(before: str, unit: str, after: str, size: int) -> str:
    """About `size` characters of `unit`, with something before and after them."""
    if "{n}" not in unit:
        return before + (unit * (size // len(unit) + 1))[:size] + after
    parts = itertools.product("bdfgklmn", "aeiou", "bdfgklmn", "aeiou", "bdfgklmn", "aeiou", "bdfgklmn")
    words = ("".join(reversed(part)) for part in itertools.islice(parts, size // (len(unit) + 4) + 1))
    return before + "".join(unit.replace("{n}", word) for word in words) + after


@functools.cache
def caches() -> list[Any]:
    """Those of the package, in which a second reading of a text would be found."""
    kind = functools._lru_cache_wrapper
    found = [one for one in gc.get_objects() if type(one) is kind]  # isinstance asks objects that warn
    return [one for one in found if one.__module__.startswith("factrl") and one.cache_parameters()["maxsize"]]


def growth(reader: Reader, before: str, unit: str, after: str, *, worth: float, most: int) -> float:
    """How much longer a text of four times the length takes, per length: 1 when linear, 4 when quadratic.

    Args:
        worth: seconds from which on a time is a time and no noise; what takes less up to `most` is not slow.
    """

    def seconds(size: int, tries: int = 1) -> float:
        text, taken = repeated(before, unit, after, size), []
        for _ in range(tries):
            for one in caches():
                one.cache_clear()
            start = time.process_time()  # some readers work on threads of their own
            reader(text)
            taken.append(time.process_time() - start)
        return min(taken)

    def found(size: int) -> float:
        least = 4.0
        for tries in (1, 2, 4):  # the smallest of several: what disturbs a measurement makes it longer
            took = seconds(size, tries)
            least = min(
                least,
                took / seconds(size // 4, tries) / 4,
                (took / max(seconds(size // 16, tries), worth / 100) / 16) ** 0.5,
            )
            if least < SUPERLINEAR:
                break
        return least

    size = 1 << 9
    while True:
        took = seconds(size)
        slower = found(size) if took >= worth else 1.0
        if slower > SUPERLINEAR or took > 4 * worth or size >= most:
            return slower
        size *= 4


SUPERLINEAR = 2.5


def search(
    names: Sequence[str], seed: object, tries: int, *, worth: float, most: int
) -> list[tuple[str, ...]]:
    """Readers with inputs for which they take superlinear time, among `tries` drawn at random."""
    dice = random.Random(f"{seed}")
    slow = []
    for _ in range(tries):
        unit = "".join(dice.choice(TOKENS) for _ in range(dice.choice((1, 1, 2, 2, 3))))
        before, after, name = dice.choice(BEFORE), dice.choice(AFTER), dice.choice(names)
        if (
            growth(called(text_readers.READERS[name]), before, unit, after, worth=worth, most=most)
            > SUPERLINEAR
        ):
            slow.append((name, before, unit, after))
    return slow


@pytest.mark.parametrize("name", text_readers.READERS)
def test_no_nasty_text_takes_a_reader_long(name: str) -> None:
    """A sample; `python tests/security/test_linear_time.py SECONDS` looks for longer, and at longer texts."""
    called(text_readers.READERS[name])("Ann Lee was born in 1867.\n" * 9)  # what is loaded when first used
    assert search([name], name, 2, worth=0.005, most=1 << 14) == []


@pytest.mark.parametrize(("name", "before", "unit", "after"), FOUND)
def test_what_was_found_takes_linear_time(name: str, before: str, unit: str, after: str) -> None:
    reader = called(text_readers.READERS[name])
    assert growth(reader, before, unit, after, worth=0.02, most=1 << 19) < SUPERLINEAR


def test_the_search_can_fail() -> None:
    def reader(raw: str) -> object:
        return sum(range(len(raw) ** 3 // 5000))  # cubic: a busy machine does not make that linear

    assert growth(reader, "", "{n} ", "", worth=0.01, most=1 << 14) > SUPERLINEAR
    assert growth(str.split, "", "{n} ", "", worth=0.001, most=1 << 16) < SUPERLINEAR


if __name__ == "__main__":
    everywhere, until = [*text_readers.READERS], time.monotonic() + float(sys.argv[1])
    for one in everywhere:
        called(text_readers.READERS[one])("Ann Lee was born in 1867.\n" * 99)
    for turn in itertools.count():
        for slow in search(everywhere, (sys.argv[2:], turn), 1, worth=0.05, most=1 << 17):
            sys.stdout.write(f"{slow}\n")
            sys.stdout.flush()
        if time.monotonic() > until:
            sys.stdout.write(f"{turn} inputs\n")
            break
