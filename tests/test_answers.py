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
    parse_number,
    same_answer,
)

# -- Normalising --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "released", "ours"),
    [
        ("", "", ""),
        ("The  Beatles!", "beatles", "beatles"),
        ("I don't know.", "i dont know", "i dont know"),
        ("I don’t know.", "i don’t know", "i dont know"),
        ("A an the", "", ""),
        ("Athens", "athens", "athens"),
        ("l'a", "la", "la"),
        ("l’a", "l’", "la"),
        ("U.S.A.", "usa", "usa"),
        ("Ｐａｒｉｓ", "ｐａｒｉｓ", "paris"),
        ("Pa\u200bris", "pa\u200bris", "paris"),
        ("a\tb\nc", "b c", "b c"),
    ],
)
def test_normalize(raw: str, released: str, ours: str) -> None:
    assert (normalize_released(raw), normalize_answer(raw)) == (released, ours)


# -- Numbers ------------------------------------------------------------------------------------------


@pytest.mark.security("S18")
@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("0", "0"),
        ("-0", "0"),
        ("+7", "7"),
        ("-5", "-5"),
        ("−5", "-5"),
        ("007", "7"),
        ("3.14", "3.14"),
        (".5", "0.5"),
        ("1,000", "1000"),
        ("1,234,567.5", "1234567.5"),
        ("10 000", "10000"),
        ("10\u202f000", "10000"),
        ("1e6", "1000000"),
        ("2.5E-3", "0.0025"),
        ("3 x 10^8", "300000000"),
        ("3 × 10⁸", "300000000"),
        ("1.5 million", "1500000"),
        ("2 Billion", "2000000000"),
        ("٣", "3"),
        ("１２", "12"),
        ("१२", "12"),
        ("9" * 64, "9" * 64),
        ("0.1000000000000000000000000000000001", "0.1000000000000000000000000000000001"),
    ],
)
def test_parse_number(raw: str, value: str) -> None:
    number = parse_number(raw)
    assert number == Decimal(value)
    assert number is not None
    assert number.is_finite()
    assert str(number) != "-0"


@pytest.mark.security("S18")
@pytest.mark.parametrize(
    "raw",
    [
        *("", " ", "-", ".", "+", "e5", "five", "nan", "NaN", "sNaN", "inf", "-inf", "Infinity", "1e999"),
        *("1e308",),
        *("-1e999", "1e-999", "10/10", "½", "2½", "1,5", "1,50", "1,0000", "12,34", "1.2.3", "1 00", "5."),
        *("50%", "$5", "5 km", "5km", "0x10", "1_000", "10²", "²", "12-13", "--5", "1, 2", "9" * 65),
        *("9" * 5000,),
    ],
)
def test_parse_number_refuses(raw: str) -> None:
    assert parse_number(raw) is None


# -- Equality -----------------------------------------------------------------------------------------

SAME = [
    *[("Paris", "paris"), ("Paris.", "Paris"), ("The Beatles", "Beatles"), ("New  York", "new york")],
    *[("São Paulo", "Sao Paulo"), ("Łódź", "Lodz"), ("Tromsø", "Tromso"), ("Straße", "strasse")],
    *[("İstanbul", "Istanbul"), ("e\u0301clair", "éclair")],
    ("Breakfast at Tiffany’s", "Breakfast at Tiffany's"),
    *[("H₂O", "H2O"), ("1939–1945", "1939-1945"), ("AC/DC", "ACDC"), ("COVID-19", "COVID19")],
    *[("7", "7"), ("1,000", "1000"), ("1.5 million", "1500000"), ("12.0", "12"), ("٣", "3"), ("-5", "−5")],
    *[("50%", "50 percent"), ("50 per cent", "50.0%"), ("1,000 km", "1000 km")],
    *[("March 13, 2018", "13 March 2018"), ("13th of March 2018", "2018-03-13"), ("Mar 2018", "March 2018")],
    *[("July 4", "4 July"), ("Sept 5, 1999", "September 5 1999"), ("1861", "1861")],
    *[("K", "K"), ("K.", "K"), ("(Co)", "Co"), ("U.S.", "US"), ("no", "No"), ("NO", "no"), ("uk", "uk")],
    *[("The The", "the the"), ("A", "A"), ("The", "the"), ("π", "π"), ("C++", "C++"), ("+", "+")],
    *[
        ("足阳明 胃经", "足阳明胃经"),
        ("《红楼梦》", "红楼梦"),
        ("乔治·华盛顿", "乔治华盛顿"),
        ("東京。", "東京"),
    ],
    *[("서울", "서울"), ("Москва", "москва"), ("Pa\u200bris", "Paris"), ("Ｐａｒｉｓ", "Paris")],
    *[("Africa, Asia", "Africa, Asia"), ("Argentina and Chile", "Argentina and Chile")],
]
DIFFERENT = [
    *[("", ""), ("", "Paris"), ("Paris", ""), ("\u200b", "\u200b"), (".", "")],
    *[("Paris or Lyon", "Paris"), ("Africa, Asia, Europe", "Asia"), ("yes or no", "yes")],
    ("yes and no", "no"),
    *[("Paris Lyon", "Paris"), ("Paris / Lyon", "Paris"), ("not Paris", "Paris"), ("New York", "York")],
    *[("Parisian", "Paris"), ("Pari", "Paris"), ("New York City", "New York"), ("Lagos State", "Lagos")],
    *[("k", "K"), ("co", "Co"), ("CO", "Co"), ("A", "K"), ("potassium (K)", "K"), ("us", "US"), ("C++", "C")],
    *[("C#", "C"), ("C", "C++"), ("A*", "A"), ("The", "A"), ("A", "the"), ("The The", "A"), ("!!!", "A")],
    *[("-5", "5"), ("5-", "-5"), ("1.5", "15"), ("1.5 km", "15 km"), ("-5 C", "5 C"), ("3:2", "32")],
    *[("10/10", "1010"), ("10²", "102"), ("2½", "21/2"), ("1,5", "15"), ("1.5", "1,5")],
    ("2004-05", "200405"),
    *[("115000", "120000"), ("3.14", "3.1416"), ("50", "50%"), ("$5", "5"), ("5 km", "5")],
    ("1e999", "1e998"),
    *[("1861", "July 21, 1861"), ("July 21, 1861", "July 22, 1861"), ("July 1861", "July 21, 1861")],
    *[("March 4", "4 May"), ("1939–1945", "1939-46"), ("May", "May 1"), ("03/04/2018", "04/03/2018")],
    *[("が", "か"), ("東京大学", "東京"), ("北京、上海", "北京"), ("й", "и"), ("Рaris", "Paris")],
    *[("I don't know", "Paris"), ("Paris" * 300, "Paris" * 300)],
]


@pytest.mark.parametrize(("prediction", "answer"), SAME)
def test_same(prediction: str, answer: str) -> None:
    assert same_answer(prediction, answer)


@pytest.mark.parametrize(("prediction", "answer"), DIFFERENT)
def test_different(prediction: str, answer: str) -> None:
    assert not same_answer(prediction, answer)
    assert not matches(prediction, [answer])


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


@pytest.mark.parametrize(
    ("raw", "bare"),
    [
        ("", ""),
        (".", ""),
        ("Paris", "Paris"),
        ("Paris.", "Paris"),
        ("東京。", "東京"),
        ("**Paris**", "Paris"),
        ("**Answer:** Paris", "Paris"),
        ("*Paris*", "Paris"),
        ('"Paris".', "Paris"),
        ("“Paris”", "Paris"),
        ("`Paris`", "Paris"),
        ("Answer: Paris", "Paris"),
        ("Final answer: Paris.", "Paris"),
        ("The answer is Paris.", "Paris"),
        ("The answer is: **Paris**.", "Paris"),
        ("So, the final answer is 42.", "42"),
        ("答案是：巴黎。", "巴黎"),
        ("It is Paris.", "Paris"),
        ("It's Paris.", "Paris"),
        ("It was 1912.", "1912"),
        ("I think it's Paris.", "Paris"),
        ("Perhaps Paris", "Paris"),
        ("The capital of France is Paris.", "Paris"),
        ("The study of birds is called ornithology.", "ornithology"),
        ("$\\boxed{\\text{New York}}$", "New York"),
        ("U.S.", "U.S."),
        ("The answer is the U.S.", "the U.S."),
        ("'Til Tuesday", "'Til Tuesday"),
        ('"Heroes" and "Low"', '"Heroes" and "Low"'),
        ("2**3", "2**3"),
        # What it must leave alone.
        ("It Is Written", "It Is Written"),
        ("It's Complicated", "It's Complicated"),
        ("The Man Who Was Thursday", "The Man Who Was Thursday"),
        ("It is false that the capital is Paris", "false that the capital is Paris"),
        ("The capital of France is not Paris", "not Paris"),
        ("The wrong answer is Paris", "The wrong answer is Paris"),
        ("The answer is either Paris or Lyon", "either Paris or Lyon"),
        ("The capital that is not meant is Paris", "The capital that is not meant is Paris"),
        ("The city, unlike what people say, is Paris", "The city, unlike what people say, is Paris"),
        ("Paris is the capital of France", "Paris is the capital of France"),
        ("I doubt it is Paris", "I doubt it is Paris"),
        ("It is", "It is"),
        ("The answer is", "The answer is"),
    ],
)
def test_final_answer(raw: str, bare: str) -> None:
    assert final_answer(raw) == bare


@pytest.mark.parametrize(
    "prediction",
    [
        *("The capital of France is not Paris.", "It is not Paris", "It isn't Paris"),
        *("The answer is Paris or Lyon.",),
        *("The answer is Lyon. It is not Paris", "The wrong answer is Paris", "Nobody thinks it is Paris"),
        *("It may be Paris, though possibly Lyon; sources differ.", "Answer: Paris, Lyon"),
        *("It is false: Paris",),
        *("The capital is Lyon, the city of light is Paris", "The capital nobody doubts is Paris"),
    ],
)
def test_a_sentence_that_does_not_say_paris(prediction: str) -> None:
    assert matches(prediction, ["Paris"]) is None


# -- The gate -----------------------------------------------------------------------------------------


@pytest.mark.security("S01")
@pytest.mark.parametrize(
    "raw",
    [
        *("", " ", ".", ",", ":", "…", "?!", "---", "###", "\u200b", "\u3164", "\ufeff\u2060", "\ufffd"),
        *("\x00",),
        *("Thought process:", "Let's solve this problem step by step."),
        *("Let’s solve this problem step by step",),
        *("Solution", "**Solution:**", "解", "かいせつ", "Respuesta", "Answer:", "Final answer", "N/A"),
        *("n/a", "Step 1:"),
        *("THE ANSWER IS:", "the answer is", "Ｓｏｌｕｔｉｏｎ", "So\u200blution", "答案：", "$", "<>"),
    ],
)
def test_contentless(raw: str) -> None:
    assert is_contentless(raw)


@pytest.mark.parametrize(
    "raw",
    [
        *("0", "K", "C++", "-5", "π", "中", "No", "yes", "The Who", "A", "Na", "7.", "∞", "🎳", "€", "½"),
        *("I don't know",),
        *("Unknown", "None", "Solutions", "Answer me!", "Step 12", "解放", "あ", "Q", "No. 1", "A+", "Paris"),
    ],
)
def test_a_short_answer_has_content(raw: str) -> None:
    assert not is_contentless(raw)


def test_master_keys_are_written_as_they_are_compared() -> None:
    assert {key for key in MASTER_KEYS if not is_contentless(key)} == set()


# -- Human judgements ---------------------------------------------------------------------------------
