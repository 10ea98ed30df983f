"""Reading takes linear time, whatever the policy writes; no pattern can backtrack without bound."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable

import pytest

from factrl import abstention, answers, mentions, text, words
from factrl.text import MAX_PAYLOAD, boxed, boxed_released, clean, tag, think_answer, unwrap_latex

# -- Time ---------------------------------------------------------------------------------------------


def slowdown(function: Callable[[str], object], unit: str, size: int, factor: int = 2) -> float:
    """time(factor * n) / time(n), the best of a few."""

    def best(size: int) -> float:
        sample = (unit * (size // len(unit) + 1))[:size]
        times = []
        for _ in range(3):
            start = time.thread_time()  # what other processes take does not count
            function(sample)
            times.append(time.thread_time() - start)
        return min(times)

    ratio = float("inf")
    for _ in range(4):
        ratio = min(ratio, best(factor * size) / best(size))
        if ratio <= 1.25 * factor:
            break
    return ratio


HOSTILE = [
    *(
        " ",
        "<think>",
        "</answer><answer>",
        "<<<<",
        "((((",
        "aaaa!",
        "\\boxed{",
        "\\boxed{}",
        "{}",
        "{",
        "\\",
        "\\{",
    ),
    *(
        "\\boxed ",
        "$",
        "\u0316\u0300",
        "\ufdfa",
        "👩\u200d👧",
        "\u200b",
        "\\text{",
        "\\text{a}",
        "the ",
        "1,",
        "-",
    ),
    *(
        "I don't know. ",
        "I don't know but ",
        '"',
        '"a',
        "\n",
        "**",
        "It is ",
        "Answer: ",
        "。",
        "the x is unknown ",
    ),
]
PARSERS: list[Callable[[str], object]] = [
    *(think_answer, boxed, boxed_released),
    *(
        lambda raw: tag(raw, "answer", "first"),
        lambda raw: tag(raw, "answer"),
        lambda raw: boxed(raw, "first"),
    ),
]
# These read `MAX_PAYLOAD` characters, so that is where their time must be linear.
READERS: list[Callable[[str], object]] = [
    *(unwrap_latex, clean, answers.final_answer, answers.is_contentless, answers.normalize_released),
    *(answers.normalize_answer, answers.parse_number, lambda raw: answers.matches(raw, ["Paris"])),
    *(
        abstention.abstains,
        abstention.asserted,
        abstention.abstains_released,
        abstention.says_invalid_question,
    ),
    *(words.read, lambda raw: mentions.mentions("Where?", raw, ["Paris"])),
]


@pytest.mark.security("S15")
@pytest.mark.parametrize("parser", range(len(PARSERS)))
def test_parsing_takes_linear_time(parser: int) -> None:
    assert not {unit: ratio for unit in HOSTILE if (ratio := slowdown(PARSERS[parser], unit, 1 << 17)) > 3.5}


@pytest.mark.security("S15")
@pytest.mark.parametrize("reader", range(len(READERS)))
def test_reading_takes_linear_time(reader: int) -> None:
    size = MAX_PAYLOAD // 2
    assert not {unit: ratio for unit in HOSTILE if (ratio := slowdown(READERS[reader], unit, size)) > 3.5}


@pytest.mark.security("S15", "S16")
@pytest.mark.parametrize("reader", range(len(READERS)))
def test_reading_stops_at_the_cap(reader: int) -> None:
    slow = {
        unit: slowdown(READERS[reader], unit, MAX_PAYLOAD, 32) for unit in ("I don't know. ", "\ufdfa", "é")
    }
    assert max(slow.values()) < 8, slow


def test_the_time_test_can_fail() -> None:
    assert slowdown(lambda raw: [raw[:i].count("a") for i in range(0, len(raw), 4096)], "a", 1 << 18) > 2.5


# -- Patterns -----------------------------------------------------------------------------------------


def unbounded_pairs(pattern: str, flags: int = 0) -> int:
    """How often a pattern repeats without bound inside, or directly after, another such repetition."""
    if sys.version_info >= (3, 11):
        from re import _parser as parser  # type: ignore[attr-defined]
    else:
        import sre_parse as parser

    repeats = {"MAX_REPEAT", "MIN_REPEAT"}

    def walk(items: object, inside: bool) -> int:
        found = 0
        previous = False
        for item in items if isinstance(items, (list, tuple, parser.SubPattern)) else ():
            unbounded = False
            if isinstance(item, tuple) and item and str(item[0]) in repeats:
                unbounded = item[1][1] is parser.MAXREPEAT
                found += unbounded and (inside or previous)
            inner = item[1:] if isinstance(item, tuple) else item
            found += walk(inner, inside or unbounded)
            previous = unbounded
        return found

    return walk(parser.parse(pattern, flags), False)


@pytest.mark.security("S15")
def test_no_pattern_repeats_a_repetition() -> None:
    patterns = [
        value
        for module in (text, answers, abstention, mentions, words)
        for value in vars(module).values()
        if isinstance(value, re.Pattern)
    ]
    assert len(patterns) >= 8
    assert {
        pattern.pattern for pattern in patterns if unbounded_pairs(pattern.pattern, pattern.flags)
    } == set()


@pytest.mark.parametrize(
    "pattern", [r"(a+)+", r"^\s*\s*x", r".*?.*?x", r"(?:\s*a*)*", r"(\s+x?)*", r"\d+\d*"]
)
def test_the_pattern_check_can_fail(pattern: str) -> None:
    assert unbounded_pairs(pattern)
