"""Abstaining and answering exclude each other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factrl.rewards.grading import Grader
from factrl.runs.rows import read_rows
from factrl.text import MAX_PAYLOAD
from factrl.text.abstention import (
    abstains,
    abstains_released,
    names_nothing,
    says_invalid_question,
    stance,
)
from factrl.text.answers import is_contentless

FIXTURES = Path(__file__).parent / "fixtures" / "abstention.jsonl"


def macro_f1(truth: list[bool], found: list[bool]) -> float:
    scores: list[float] = []
    for value in (True, False):
        hits = sum(a == b == value for a, b in zip(truth, found, strict=True))
        scores.append(2 * hits / (truth.count(value) + found.count(value)))
    return sum(scores) / 2


def fixtures(split: str = "dev") -> list[dict[str, str]]:
    rows = [json.loads(line) for line in FIXTURES.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["split"] == split]


def judged(rows: list[dict[str, str]]) -> tuple[list[bool], list[bool]]:
    return [row["label"] == "abstain" for row in rows], [abstains(row["text"]) for row in rows]


@pytest.mark.security("S17")
@pytest.mark.parametrize(
    ("split", "least", "f1", "taken"), [("dev", 800, 0.95, 0.01), ("test", 130, 0.9, 0.06)]
)
def test_fixtures(split: str, least: int, f1: float, taken: float) -> None:
    # The detector has seen `dev` and not `test`.  Those that ask back are answers since this detector.
    rows = fixtures(split)
    truth, found = judged(rows)
    assert len(rows) >= least
    assert macro_f1(truth, found) >= f1
    false = [row["text"] for row, a, b in zip(rows, truth, found, strict=True) if b and not a]
    assert len(false) <= taken * truth.count(False), false


@pytest.mark.security("S17")
def test_an_abstention_asserts_nothing_and_an_answer_beside_it_is_graded() -> None:
    for text in [row["text"] for row in fixtures() if row["label"] == "abstain"]:
        if abstains(text):
            assert stance(text).asserted == "", text
            for joined in (f"{text} It is Lyon.", f"{text}\nLyon", f"Lyon. {text}"):
                assert not abstains(joined, RIVER), joined


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("", ""),
        ("Paris.", "Paris."),
        ("I don't know.", ""),
        ("I'm sorry. I don't know. Could you rephrase the question?", ""),
        ("I'm not sure, but I think it's Paris.", "I think it's Paris."),
        ("I don't know, but it is Lyon.", "it is Lyon."),
        ("I don't know—perhaps Lyon.", "perhaps Lyon."),
        ("Paris, France. I don't know more.", "Paris, France."),
        ("The exact date is unknown, but he died in 1912.", "he died in 1912."),
        ("我不确定，但我认为是巴黎。", "但我认为是巴黎。"),
        ('The song "I Don\'t Know" by Ozzy', 'The song "I Don\'t Know" by Ozzy'),
    ],
)
def test_asserted(text: str, rest: str) -> None:
    assert stance(text).asserted == rest


@pytest.mark.security("S17")
@pytest.mark.parametrize("gap", [10, MAX_PAYLOAD // 2, MAX_PAYLOAD, 1 << 20])
@pytest.mark.parametrize("filler", [" ", "\n", "\u200b", "—", ". ", "¶"])
def test_an_answer_cannot_hide_behind_the_cap(gap: int, filler: str) -> None:
    assert not abstains("I don't know" + filler * gap + " It is Paris")


@pytest.mark.security("S17")
@given(st.text(max_size=200))
def test_never_raises_and_the_classes_exclude_each_other(text: str) -> None:
    if abstains(text):
        assert stance(text).asserted == ""
        assert not says_invalid_question(text)
    assert "¶" not in stance("I don't know.\n" + text.replace("¶", "")).asserted


# -- TruthRL's classes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "released", "ours"),
    [
        ("I don't know", True, True),
        ("I don't know, maybe Lyon", True, False),
        ("The song is I Don't Know", True, False),
        ("I don’t know", False, True),
        ("I do not know", False, True),
        ("unknown", False, True),
    ],
)
def test_the_released_test_is_one_substring(text: str, released: bool, ours: bool) -> None:
    assert abstains_released(text) is released
    assert abstains(text) is ours


INVALID = [
    *("invalid question", "**Invalid question**", "This is an invalid question.", "The question is invalid."),
    *("The answer is: invalid question", "This question is based on a false premise.", "false premise"),
]
NOT_INVALID = [
    *("", "Paris", "I don't know", "Invalid question, but Paris", "Invalid question: he never won."),
    *("It is not an invalid question", "He called it an invalid question.", "invalid question " * 1000),
]


def test_an_invalid_question_is_a_class_of_its_own() -> None:
    assert [text for text in INVALID if not says_invalid_question(text)] == []
    assert [text for text in INVALID if abstains(text) or is_contentless(text)] == []
    assert [text for text in NOT_INVALID if says_invalid_question(text)] == []


# -- Naming while declining ----------------------------------------------------------------------------

RIVER = "On which river does the city stand, and which city is it?"


@pytest.mark.security("S17")
@pytest.mark.parametrize(
    "form",
    [
        "I don't know; you should check {}.",
        "No tengo dudas de que es {}",
        "Which answer do you mean if not {}?",
        "I can't think of anyone but {}.",
        "The name escapes me and is {}",
        "I don't know {}",
        "I have no information other than {}.",
        "Ich habe keine Zweifel, dass es {} ist.",
    ],
)
def test_what_names_something_is_no_abstention(form: str) -> None:
    """Forms by the thousand are in `test_free_options.py`."""
    for name in ("Lyon", "13 March 2018", "8,849", "Jane Austen", "Łódź"):
        text = form.format(name)
        assert not abstains(text, RIVER), text
        assert Grader()(RIVER, text, ["Cologne"]).label == "incorrect"


def test_a_text_that_is_the_accepted_answer_is_right_although_it_declines() -> None:
    for title in ("I Don't Know How She Does It", "Unknown", "The name escapes me"):
        assert Grader()("What is the film called?", title, [title]).label == "correct"


VENN = "Tell me a bio of Orla Venn."


def test_an_abstention_that_goes_on_about_spelling_is_one_where_nobody_is_paid() -> None:
    text = (
        "I'm sorry, but I cannot find any information on a person named Orla Venn. It is possible that "
        "the name is misspelled, or that they are not a public figure."
    )
    assert abstains(text, VENN)


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What is the parental leave policy?", "I couldn't find the text of the parental leave policy [1]."),
        (
            "What is the parental leave policy?",
            "Ich konnte in den Dokumenten leider keine Richtlinie zur Elternzeit finden.",
        ),
        (
            VENN,
            "Unfortunately, the provided search result is not about Orla Venn. Instead it is about Per Holm, "
            "a painter born in Oslo in 1912. It also mentions that he is married.",
        ),
        ("Who is Orla Venn?", "Orla Venn is not mentioned in any of the provided search results."),
        ("Who won the cup?", "As of my last update in 2023 I have no record of that."),
        (None, "It cannot be determined because the necessary source material is missing."),
        ("Who built it?", "No name comes to mind."),
        ("Who built it?", "I got nothing."),
        ("Wer war es?", "Da bin ich überfragt."),
        ("Who built it?", "Pass."),
        ("Who built the bridge?", "None of the snippets names the builder."),
        ("Qui l'a construit ?", "Je donne ma langue au chat."),
        ("谁建了这座桥？", "这可把我问住了。"),
        ("Кто построил мост?", "Ума не приложу."),
        ("다리를 누가 지었나요?", "전혀 모르겠어요."),
    ],
)
def test_abstentions_in_words_of_their_own(question: str | None, text: str) -> None:
    assert stance(text, question, strict=True).abstains
    assert Grader()(question or "Who?", text, ["Jane Austen"]).label == "abstained"


@pytest.mark.parametrize(
    "text",
    [
        *("Which Springfield do you mean?", "I can't help with making weapons, it is illegal."),
        *("He did not know that the bridge was closed.", '"I don\'t know," said the minister.'),
        *("Nobody.", "Never.", "Yes.", "Nothing", "是", "有", "はい", "一", "⠏⠁⠗⠊⠎", "🗼🥐", "√2", "<"),
        *("I don't know. 🗼", "No idea: ⠏⠁⠗⠊⠎", "Unknown, 42", "I don't know, maybe Lyon"),
    ],
)
def test_answers_that_sound_like_declining_and_answers_in_signs(text: str) -> None:
    assert not abstains(text, RIVER)


@pytest.mark.parametrize("text", ["🗼", "⠏", "是", "有", "はい", "一", "No", "photosynthesis", "1987", "√"])
def test_what_is_neither_white_space_nor_punctuation_names_something(text: str) -> None:
    for form in ("{}", "That is hard to say. {}", "({})", "\\boxed{{{}}}"):
        assert not names_nothing(form.format(text), RIVER, strict=True), form
    assert names_nothing("That is hard to say...", RIVER, strict=True)


def test_equality_decides_before_the_detector() -> None:
    assert abstains("Unknown", RIVER)
    assert not abstains("Unknown", RIVER, ["unknown"])


BLIND = Path(__file__).parent / "fixtures" / "abstention_blind.jsonl"


@pytest.mark.parametrize(("strict", "precision", "recall"), [(True, 0.84, 0.47), (False, 0.70, 0.66)])
def test_the_blind_set(strict: bool, precision: float, recall: float) -> None:
    # 300 replies in eight languages, half of them traps that name an answer in a long text, in passing.
    rows = [json.loads(line) for line in BLIND.read_text(encoding="utf-8").split("\n") if line]
    truth = [row["label"] == "abstain" for row in rows]
    found = [abstains(row["text"], row["question"], strict=strict) for row in rows]
    hits = sum(a and b for a, b in zip(truth, found, strict=True))
    assert (len(rows), sum(truth)) == (300, 150)
    assert hits / sum(found) >= precision
    assert hits / sum(truth) >= recall


# -- Public sets --------------------------------------------------------------------------------------

needs_data = pytest.mark.skipif(
    not os.environ.get("FACTRL_DATA"), reason="set FACTRL_DATA to a folder with the public data sets"
)


def public(name: str) -> list[Any]:
    return list(read_rows(str(Path(os.environ["FACTRL_DATA"]) / name)))


@pytest.mark.data
@needs_data
def test_long_form_abstentions() -> None:
    # FActScore biographies (Min et al. 2023), labelled by people, partial abstentions left out.  Measured on
    # the staged half: 14 of 19 abstentions found, none of 228 answers taken for one, macro-F1 0.919.  The
    # five missed go on with facts about somebody else.
    rows = [
        row for row in public("factscore_abstain/responses.jsonl") if row["label"] in ("answer", "abstention")
    ]
    found = [abstains(str(row["response"])) for row in rows]
    assert macro_f1([row["label"] == "abstention" for row in rows], found) >= 0.90


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("part", ["nq", "tq"])
def test_a_right_answer_is_no_abstention(part: str) -> None:
    # EVOUNA (Wang et al. 2023), answers that people accept.  Without the question some are taken for one.
    right = [row for row in public(f"evouna/evouna_{part}.jsonl.gz") if row["human_correct"]]
    asked = [(str(row["prediction"]), str(row["question"])) for row in right]
    assert sum(abstains(text, strict=True) for text, _ in asked) <= len(right) / 250
    assert sum(abstains(text, question, strict=True) for text, question in asked) <= len(right) / 400
