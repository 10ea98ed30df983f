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
from factrl.text.abstention import abstains, abstains_released, asserted, says_invalid_question
from factrl.text.answers import is_contentless
from factrl.text.ignorance import refusals

FIXTURES = Path(__file__).parent / "fixtures" / "abstention.jsonl"
# Lines the rules get wrong; a change that repairs one takes it out of here.
KNOWN_FAILURES = {
    "My memory fails me here.",
    "Nobody Knows the Trouble I've Seen",
    "IDK by Somebody",
    "Who Knows Where the Time Goes",
    "I know the film, but I don't remember who directed it.",
    "Undisclosed / not known",
    "Nobody Knows",
    "My information on this is too limited to answer.",
    "Sorry, the information needed to answer this is missing.",
}


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
def test_fixtures() -> None:
    rows = fixtures()
    truth, found = judged(rows)
    assert len(rows) >= 800
    assert min(truth.count(True), truth.count(False)) >= 350
    assert macro_f1(truth, found) >= 0.98
    wrong = {row["text"] for row, a, b in zip(rows, truth, found, strict=True) if a != b}
    assert wrong == KNOWN_FAILURES


@pytest.mark.security("S17")
def test_fixtures_that_no_phrase_was_written_for() -> None:
    # Written in one go and never repaired for: what is missed here shows how far the phrases reach.
    rows = fixtures("test")
    truth, found = judged(rows)
    assert len(rows) >= 130
    assert macro_f1(truth, found) >= 0.87  # measured 0.876: 48 of 64 found, no answer taken for one
    assert not [row["text"] for row, a, b in zip(rows, truth, found, strict=True) if b and not a]


@pytest.mark.security("S17")
def test_an_abstention_asserts_nothing_and_an_answer_beside_it_is_graded() -> None:
    for text in [row["text"] for row in fixtures() if row["label"] == "abstain"]:
        if text not in KNOWN_FAILURES:
            assert asserted(text) == "", text
            for joined in (f"{text} It is Lyon.", f"{text}\nLyon", f"Lyon. {text}"):
                assert not abstains(joined), joined
                assert asserted(joined) != "", joined


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
    assert asserted(text) == rest


@pytest.mark.security("S17")
@pytest.mark.parametrize("gap", [10, MAX_PAYLOAD // 2, MAX_PAYLOAD, 1 << 20])
@pytest.mark.parametrize("filler", [" ", "\n", "\u200b", "—", ". ", "¶"])
def test_an_answer_cannot_hide_behind_the_cap(gap: int, filler: str) -> None:
    assert not abstains("I don't know" + filler * gap + " It is Paris")


@pytest.mark.security("S17")
@given(st.text(max_size=200))
def test_never_raises_and_the_classes_exclude_each_other(text: str) -> None:
    if abstains(text):
        assert asserted(text) == ""
        assert not says_invalid_question(text)
    assert "¶" not in asserted("I don't know.\n" + text.replace("¶", ""))


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


# -- The lexicon --------------------------------------------------------------------------------------


def test_every_phrase_declines() -> None:
    assert [phrase for phrase in refusals().phrases["declines"] if not abstains(phrase.strip() + ".")] == []


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


@pytest.mark.parametrize(
    ("text", "question"),
    [
        (
            "I'm sorry, but I cannot find any information on a person named Orla Venn. It is possible that "
            "the name is misspelled, or that they are not a public figure.",
            "Tell me a bio of Orla Venn.",
        ),
        ("Orla Venn is not mentioned in any of the provided search results.", "Who is Orla Venn?"),
        (
            "Unfortunately, the provided search result is not about Orla Venn. Instead it is about Per Holm, "
            "a painter born in Oslo in 1912. It also mentions that he is married.",
            "Tell me a bio of Orla Venn.",
        ),
        ("As of my last update in 2023 I have no record of that.", "Who won the cup?"),
    ],
)
def test_abstentions_in_more_than_a_phrase(text: str, question: str) -> None:
    assert abstains(text, question)


BLIND = Path(__file__).parent / "fixtures" / "abstention_blind.jsonl"


def test_the_blind_set() -> None:
    # 300 replies in eight languages, half of them traps, frozen on 2026-11-23 before the code they measure.
    # Measured: precision 0.92, recall 0.45; with phrases alone 0.81 and 0.09 (docs/history.md).
    rows = [json.loads(line) for line in BLIND.read_text(encoding="utf-8").split("\n") if line]
    truth = [row["label"] == "abstain" for row in rows]
    found = [abstains(row["text"], row["question"]) for row in rows]
    hits = sum(a and b for a, b in zip(truth, found, strict=True))
    assert (len(rows), sum(truth)) == (300, 150)
    assert hits / sum(found) >= 0.85
    assert hits / sum(truth) >= 0.42


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
    # EVOUNA (Wang et al. 2023): measured 0 of 9,625 answers that people accept.
    rows = public(f"evouna/evouna_{part}.jsonl.gz")
    right = [str(row["prediction"]) for row in rows if row["human_correct"]]
    assert sum(map(abstains, right)) <= len(right) / 1000
