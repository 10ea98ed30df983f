"""Equality of short answers, numbers, what surrounds an answer, and the gate before a judge."""

from __future__ import annotations

from decimal import Decimal

import pytest

from factrl.text.answers import (
    MASTER_KEYS,
    final_answer,
    is_contentless,
    matches,
    normalize_answer,
    normalize_released,
    same_answer,
)
from factrl.text.words import parse_number

# -- Normalising --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "released", "ours"),
    [
        ("", "", ""),
        ("The  Beatles!", "beatles", "beatles"),
        ("I don't know.", "i dont know", "i dont know"),
        ("I don’t know.", "i don’t know", "i dont know"),
        ("A an the", "", ""),
        ("Ｐａｒｉｓ", "ｐａｒｉｓ", "paris"),
        ("Pa\u200bris", "pa\u200bris", "paris"),
    ],
)
def test_normalize(raw: str, released: str, ours: str) -> None:
    assert (normalize_released(raw), normalize_answer(raw)) == (released, ours)


# -- Numbers ------------------------------------------------------------------------------------------


NUMBERS = {
    **{"0": "0", "-0": "0", "+7": "7", "−5": "-5", "007": "7", ".5": "0.5", "1,234,567.5": "1234567.5"},
    **{"10\u202f000": "10000", "2.5E-3": "0.0025", "3 × 10⁸": "300000000", "1.5 million": "1500000"},
    **{"٣": "3", "१२": "12", "9" * 64: "9" * 64},
    "0.1000000000000000000000000000000001": "0.1000000000000000000000000000000001",
}
NO_NUMBERS = [
    *("", " ", "-", "five", "NaN", "sNaN", "-inf", "Infinity", "1e999", "-1e999", "1e-999", "10/10", "½"),
    *("1,5", "1,0000", "12,34", "1.2.3", "1 00", "5.", "50%", "$5", "5 km", "0x10", "1_000", "10²", "--5"),
    *("9" * 65, "9" * 5000),
]


@pytest.mark.security("S18")
def test_a_number_is_read_exactly_or_not_at_all() -> None:
    found = {raw: parse_number(raw) for raw in NUMBERS}
    assert found == {raw: Decimal(value) for raw, value in NUMBERS.items()}
    assert str(found["-0"]) == "0"
    assert [raw for raw in NO_NUMBERS if parse_number(raw) is not None] == []


# -- Equality -----------------------------------------------------------------------------------------

SAME = [
    *[("Paris.", "paris"), ("The Beatles", "Beatles"), ("São Paulo", "Sao Paulo"), ("Łódź", "Lodz")],
    *[("Straße", "strasse"), ("Breakfast at Tiffany’s", "Breakfast at Tiffany's"), ("H₂O", "H2O")],
    *[("AC/DC", "ACDC"), ("1,000", "1000"), ("1.5 million", "1500000"), ("12.0", "12"), ("-5", "−5")],
    *[("50%", "50 percent"), ("1,000 km", "1000 km"), ("13th of March 2018", "2018-03-13")],
    *[("July 4", "4 July"), ("Sept 5, 1999", "September 5 1999"), ("K.", "K"), ("U.S.", "US"), ("no", "No")],
    *[("The The", "the the"), ("A", "A"), ("π", "π"), ("C++", "C++"), ("Pa\u200bris", "Paris")],
    *[
        ("足阳明 胃经", "足阳明胃经"),
        ("《红楼梦》", "红楼梦"),
        ("Argentina and Chile", "Argentina and Chile"),
    ],
]
DIFFERENT = [
    *[("", ""), ("", "Paris"), ("\u200b", "\u200b"), (".", ""), ("Paris or Lyon", "Paris")],
    *[
        ("Africa, Asia, Europe", "Asia"),
        ("yes and no", "no"),
        ("Paris / Lyon", "Paris"),
        ("not Paris", "Paris"),
    ],
    *[("New York", "York"), ("Parisian", "Paris"), ("New York City", "New York"), ("Lagos State", "Lagos")],
    *[
        ("k", "K"),
        ("CO", "Co"),
        ("potassium (K)", "K"),
        ("us", "US"),
        ("C++", "C"),
        ("A*", "A"),
        ("The", "A"),
    ],
    *[("-5", "5"), ("1.5", "15"), ("1.5 km", "15 km"), ("3:2", "32"), ("10/10", "1010"), ("10²", "102")],
    *[
        ("2½", "21/2"),
        ("1,5", "15"),
        ("1.5", "1,5"),
        ("2004-05", "200405"),
        ("3.14", "3.1416"),
        ("50", "50%"),
    ],
    *[("$5", "5"), ("5 km", "5"), ("1861", "July 21, 1861"), ("July 21, 1861", "July 22, 1861")],
    *[("1939–1945", "1939-46"), ("May", "May 1"), ("03/04/2018", "04/03/2018"), ("が", "か"), ("й", "и")],
    *[("東京大学", "東京"), ("北京、上海", "北京"), ("Рaris", "Paris"), ("Paris" * 300, "Paris" * 300)],
]


def test_same() -> None:
    assert [pair for pair in SAME if not same_answer(*pair)] == []


def test_different() -> None:
    assert [pair for pair in DIFFERENT if same_answer(*pair) or matches(pair[0], [pair[1]])] == []


def test_matches_names_the_alias() -> None:
    assert matches("NYC", ["New York City", "nyc"]) == "nyc"
    assert matches("Boston", ["New York City", "NYC"]) is None
    assert matches("Paris", []) is None
    assert matches("Paris", iter(["Lyon", "paris"])) == "paris"


def test_an_answer_as_written_comes_before_its_reading() -> None:
    assert matches("The Man Who Was Thursday", ["The Man Who Was Thursday"])
    assert matches("The Future Is Female", ["The Future Is Female"])
    assert matches("The world is flat", ["The World Is Flat"])


# -- Around the answer --------------------------------------------------------------------------------


BARE = {
    **{
        "": "",
        ".": "",
        "Paris.": "Paris",
        "東京。": "東京",
        "**Answer:** Paris": "Paris",
        '"Paris".': "Paris",
    },
    **{"The answer is: **Paris**.": "Paris", "So, the final answer is 42.": "42", "答案是：巴黎。": "巴黎"},
    **{"It's Paris.": "Paris", "I think it's Paris.": "Paris", "Perhaps Paris": "Paris"},
    **{
        "The capital of France is Paris.": "Paris",
        "The study of birds is called ornithology.": "ornithology",
    },
    **{"$\\boxed{\\text{New York}}$": "New York", "The answer is the U.S.": "the U.S.", "It is": "It is"},
}
LEFT_ALONE = [
    *("U.S.", "'Til Tuesday", '"Heroes" and "Low"', "2**3", "It Is Written", "It's Complicated"),
    *("The Man Who Was Thursday", "The wrong answer is Paris", "The capital that is not meant is Paris"),
    *("The city, unlike what people say, is Paris", "Paris is the capital of France", "I doubt it is Paris"),
]
NOT_PARIS = [
    *(
        "The capital of France is not Paris.",
        "It isn't Paris",
        "The answer is Paris or Lyon.",
        "It is false: Paris",
    ),
    *("The answer is Lyon. It is not Paris", "The wrong answer is Paris", "Nobody thinks it is Paris"),
    *("It may be Paris, though possibly Lyon; sources differ.", "The capital nobody doubts is Paris"),
]


def test_final_answer() -> None:
    assert {raw: final_answer(raw) for raw in BARE} == BARE
    assert [raw for raw in LEFT_ALONE if final_answer(raw) != raw] == []
    assert [raw for raw in NOT_PARIS if matches(raw, ["Paris"])] == []


# -- The gate -----------------------------------------------------------------------------------------


CONTENTLESS = [
    *("", " ", ".", "…", "?!", "---", "###", "\u200b", "\u3164", "\ufeff\u2060", "\ufffd", "\x00", "$", "<>"),
    *("Thought process:", "Let’s solve this problem step by step", "**Solution:**", "解", "Final answer"),
    *("n/a", "Step 1:", "THE ANSWER IS:", "Ｓｏｌｕｔｉｏｎ", "So\u200blution", "答案：", *MASTER_KEYS),
]
SHORT = [
    *(
        "0",
        "K",
        "C++",
        "-5",
        "π",
        "中",
        "No",
        "The Who",
        "A",
        "7.",
        "∞",
        "🎳",
        "½",
        "I don't know",
        "Unknown",
    ),
    *("Solutions", "Answer me!", "Step 12", "解放", "No. 1", "A+", "Paris"),
]


@pytest.mark.security("S01")
def test_contentless() -> None:
    assert [raw for raw in CONTENTLESS if not is_contentless(raw)] == []
    assert [raw for raw in SHORT if is_contentless(raw)] == []
