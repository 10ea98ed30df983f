"""What a sentence says, where no judge can be asked: what each principle guesses."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from factrl.rewards.grading import Grader
from factrl.text.mentions import MAX_MENTIONS, mentions

SHORT, SENTENCE = Grader(), Grader(form="sentence")
CAPITAL = "What is the capital of France?"

# By principle: a question, its accepted answer, texts that give it, texts that do not.
PRINCIPLES = {
    "half of its words": (
        "Who won the war?",
        "the Grand Duchy of Lithuania",
        ["It was the Duchy of Lithuania.", "Lithuania's Grand Duchy did."],
        ["Poland did.", "It is not known."],
    ),
    "every number": ("How many?", "1,000", ["one thousand", "There were 1000."], ["100", "There were 10."]),
    "a number in its unit": ("How high?", "29,029 ft", ["It is 29,029 feet high."], ["It is 29,029 m high."]),
    "a date to the year": (
        "When was it signed?",
        "9 February 2018",
        ["In February 2018, on the 9th: 9 February 2018.", "It was signed in 2018."],
        ["On 11 February 2017.", "On 9 March 2018."],
    ),
    "a day where one is asked for": (
        "On what day was it signed?",
        "9 February 2018",
        ["On 9 February 2018."],
        ["In 2018."],
    ),
    "a surname": ("Who wrote Emma?", "Jane Austen", ["Austen wrote it."], ["John Austen wrote it."]),
    "no other word in the place of one of its own": (
        "Which team was it?",
        "Manchester City",
        ["Manchester City."],
        ["It was Manchester United.", "Manchester United won it in 1999."],
    ),
    "what is denied is not said": (
        CAPITAL,
        "Paris",
        ["It is Paris, not Lyon."],
        ["The capital is not Paris.", "It isn't Paris but Lyon."],
    ),
    "one of several candidates is not said": (
        CAPITAL,
        "Paris",
        ["Paris."],
        ["It is Paris or Lyon.", "Lyon or Paris"],
    ),
    "an answer that denies": ("What was the verdict?", "not guilty", ["He was not guilty."], ["Guilty."]),
    "yes and no": (
        "Is it legal in Texas?",
        "No",
        ["No, it is banned.", "It is not legal there."],
        ["Yes.", "Yes, though not for minors."],
    ),
    "spaces aside": ("What did she sell?", "sea shells", ["She sold seashells."], ["She sold shoes."]),
    "a script without spaces": (
        "首都是哪里？",
        "巴黎",
        ["首都是巴黎，不是里昂。", "法国的首都巴黎很大。"],
        ["首都不是巴黎。", "首都是里昂。"],
    ),
    "the question's words do not count": (
        "Which river runs through Cologne?",
        "River Rhine",
        ["The Rhine."],
        ["A river."],
    ),
}


@pytest.mark.parametrize("name", PRINCIPLES)
def test_a_principle_guesses(name: str) -> None:
    question, answer, right, wrong = PRINCIPLES[name]
    assert [text for text in right if mentions(question, text, ["Atlantis", answer]) != answer] == []
    assert [text for text in wrong if mentions(question, text, [answer]) is not None] == []


def test_a_text_that_is_too_long_gives_nothing() -> None:
    assert mentions(CAPITAL, "Paris. " * (MAX_MENTIONS // 7 + 1), ["Paris"]) is None
    assert mentions(CAPITAL, "", ["Paris"]) is None


def test_numbers_of_footnotes_are_left_out() -> None:
    assert mentions("When did it open?", "It opened in 19521, in Oslo2.", ["1952"]) == "1952"
    assert mentions("Who sang it?", "It was sung by the Ramones1[2].", ["Ramones"]) == "Ramones"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("I first thought of Paris. The final answer is Lyon.", "incorrect"),
        ("I first thought of Lyon. The final answer is Paris.", "correct"),
        ("Lyon? No. **Answer:** Paris. I checked it twice.", "correct"),
        ("I'm sorry, but I do not have any information about that.", "abstained"),
        ("<think>Paris or Lyon?</think>I don't know.", "abstained"),
        ("<think>It is Paris.", "incorrect"),
        ("Paris. " * 900, "incorrect"),
    ],
)
def test_the_answer_is_found_before_it_is_graded(text: str, label: str) -> None:
    assert SENTENCE(CAPITAL, text, ["Paris"]).label == label


def test_a_sentence_is_graded_by_rule_only_where_it_is_asked_for() -> None:
    text = "Paris has been the capital of France for centuries."
    assert SHORT(CAPITAL, text, ["Paris"]).label == "incorrect"
    grade = SENTENCE(CAPITAL, text, ["Paris"])
    assert (grade.label, grade.how) == ("correct", "rules")


@pytest.mark.data
@pytest.mark.skipif(
    not os.environ.get("FACTRL_DATA"), reason="set FACTRL_DATA to a folder with the public data sets"
)
@pytest.mark.parametrize(("part", "least"), [("nq", 0.91), ("tq", 0.955)])
def test_against_human_judgement(part: str, least: float) -> None:
    # EVOUNA (Wang et al. 2023); docs/results.md has what was measured on all rows.
    path = Path(os.environ["FACTRL_DATA"]) / "evouna" / f"evouna_{part}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][::8]
    same = [
        (SENTENCE(row["question"], row["prediction"], row["gold"]).label == "correct") == row["human_correct"]
        for row in rows
    ]
    assert sum(same) / len(same) >= least
