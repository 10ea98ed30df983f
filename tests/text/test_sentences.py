"""Sentences with offsets: what a reader takes for one, in prose, lists, tables and code."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factrl.text.sentences import sentences


def split(text: str) -> list[str]:
    return [text[sentence.start : sentence.end] for sentence in sentences(text)]


def kinds(text: str) -> list[tuple[str, str]]:
    return [(sentence.kind, text[sentence.start : sentence.end]) for sentence in sentences(text)]


# `|` marks where one sentence ends and the next begins.
PROSE = [
    "He was born in 1903.| She was born in Warsaw, Poland, on Nov. 7, 1867, and moved…| Dr. A. B. Smith of"
    ' Acme Inc. said the U.S. GDP grew 2.3% in Q4.| "Is it true?" he asked.',
    "He lived in the U.S.| He died in 1990.",
    "She moved to Washington, D.C., in 1990.",
    "He works at Apple Inc.| The company grew.",
    "It was founded by John F. Kennedy.| He won.",
    "See p. 5 for more.| No. 3 is best.",
    'She said "Stop."| He did.',
    "(He died in 1990.)| She lived.",
    "Smith (b. 1900. d. 1950) was a poet.| He wrote.",
    "He studied at Oxford.[1]| He then moved.[2][3]| It was good.",
    "this text has no capitals.| it goes on. and on.",
    "Visit example.com for more.| It is free.",
    "She was born in Warsaw.|She moved to Paris.",
    "He played in World War I.| The war ended.",
    "Mr. and Mrs. Smith et al. (2010) said so.",
    "What a day!| Really?| Yes.",
    "居里夫人出生于华沙。|她获得了两次诺贝尔奖。|真的吗？|是的！",
    "「行くよ。」と彼は言った。|彼女は笑った。",
]


def test_prose() -> None:
    assert [split(marked.replace("|", "")) for marked in PROSE] == [
        [part.strip() for part in marked.split("|")] for marked in PROSE
    ]


def test_a_text_of_many_kinds() -> None:
    text = (
        "# Marie Curie\n\n"
        "She was a physicist. She won twice.\n"
        "Her prizes:\n"
        "- **Physics**, in 1903. It was shared\n"
        "  with her husband\n"
        "1. Chemistry\n"
        "2) Another one\n"
        "* 1984 is a novel\n"
        "\n---\n\n"
        "| Year | Prize |\n|:--|---|\n| 1903 | Physics |\n\n"
        "```python\nx = 1\n```\n"
        "**Later life**\n"
        "> She died in 1934.\n"
    )
    assert kinds(text) == [
        ("heading", "Marie Curie"),
        ("prose", "She was a physicist."),
        ("prose", "She won twice."),
        ("prose", "Her prizes:"),
        ("item", "**Physics**, in 1903."),
        ("item", "It was shared\n  with her husband"),
        ("item", "Chemistry"),
        ("item", "Another one"),
        ("item", "1984 is a novel"),
        ("heading", "Year | Prize"),
        ("row", "1903 | Physics"),
        ("code", "```python\nx = 1\n```"),
        ("heading", "**Later life**"),
        ("prose", "She died in 1934."),
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("She was born in\nWarsaw and died there.", ["She was born in\nWarsaw and died there."]),
        ("Born: 1867\nDied: 1934", ["Born: 1867", "Died: 1934"]),
        ("1.Abigail Adams (1797-1801)\n2.Hillary Clinton", ["Abigail Adams (1797-1801)", "Hillary Clinton"]),
        ("3.5 million people live there.", ["3.5 million people live there."]),
        ("Er starb am 2. Februar 2023. Sie 2024.", ["Er starb am 2. Februar 2023.", "Sie 2024."]),
        ("Es war 1969. Juli kam.", ["Es war 1969.", "Juli kam."]),
        ("①第一\n②第二", ["第一", "第二"]),
        ("| a |", ["a"]),
        ("~~~\nShe was a physicist.\nShe won twice.\n~~~", ["She was a physicist.", "She won twice."]),
        ("```md\n# Life\nBorn: 1867\n```", ["Life", "Born: 1867"]),
        ("```yaml\nName: Life\nBorn: 1867\n```", ["```yaml\nName: Life\nBorn: 1867\n```"]),
        ("```\n# Life\nShe was a physicist.\n```", ["Life", "She was a physicist."]),
        ("```\nShe never closed it. She went on.", ["She never closed it.", "She went on."]),
    ],
)
def test_lines(text: str, parts: list[str]) -> None:
    assert split(text) == parts


@given(
    st.one_of(
        st.text(max_size=300),
        st.lists(
            st.sampled_from([*"aA1.!?。 \n\r\t|-*#`~\"'()[]:,…éμ中😀\u200b\u2028", "Mr.", "```\n", "U.S."])
        ).map("".join),
    )
)
@settings(max_examples=300, deadline=None)
def test_sentences_are_in_order_and_hold_everything_said(text: str) -> None:
    last = 0
    for sentence in sentences(text):
        assert last <= sentence.start < sentence.end <= len(text)
        part = text[sentence.start : sentence.end]
        assert part == part.strip()
        assert any(map(str.isalnum, part))
        left_out = text[last : sentence.start]
        assert not re.search(r"[^\W\d_]{2}", left_out), left_out
        last = sentence.end
    assert not re.search(r"[^\W\d_]{2}", text[last:])
