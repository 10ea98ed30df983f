"""How sure a model says it is: one reader, outcomes by tenths, calibration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from factrl.cli import main
from factrl.evals.confidence import confidence_bins, confidence_numbers
from factrl.evals.samples import Row, read_output
from factrl.text.confidence import agreement, stated_confidence
from factrl.types import Completion, Example, Grade


def sample(name: str, label: Any, sure: str) -> Row:
    example = Example(f"Q {name}?", ("gold",), name)
    return Row(example, Completion(f"Oslo\nConfidence: {sure}"), Grade(label, "Oslo", ""), benchmark="b")


@pytest.mark.parametrize(
    ("text", "rest", "sure"),
    [
        ("Oslo\nConfidence: 75", "Oslo", 0.75),
        ("Oslo\nConfidence: 0.9", "Oslo", 0.9),
        ("Oslo\nConfidence: 75/100", "Oslo", 0.75),
        ("Oslo\nConfidence: 9 / 10", "Oslo", 0.9),
        ("Oslo\nConfidence: 0.5 %", "Oslo", 0.005),
        ("Oslo\nConfidence: 1", "Oslo", 0.01),
        ("Oslo\nConfidence: 300", "Oslo\nConfidence: 300", None),
        ("<answer>Oslo</answer> <confidence> 0.8 </confidence>", "<answer>Oslo</answer>", 0.8),
        ("Oslo<confidence>1</confidence>", "Oslo", 1.0),
        ("Oslo<confidence>80%</confidence>", "Oslo", 0.8),
        ("Oslo <analysis>No map.</analysis>\n<confidence>0.25</confidence>", "Oslo", 0.25),
        ("<analysis>a</analysis> Oslo <confidence>0</confidence>", "<analysis>a</analysis> Oslo", 0.0),
        ("Confidence: 90\nOslo<confidence>0.1</confidence>", "Confidence: 90\nOslo", 0.1),
        ("Oslo<confidence>quite</confidence>", "Oslo<confidence>quite</confidence>", None),
        ("Oslo<confidence>-0.5</confidence>", "Oslo<confidence>-0.5</confidence>", None),
    ],
)
def test_how_a_confidence_is_written(text: str, rest: str, sure: float | None) -> None:
    found, number = stated_confidence(text)
    assert (found, number) == (rest, sure if sure is None else pytest.approx(sure))


def test_agreement_is_the_share_that_says_the_same() -> None:
    assert agreement([0, 1, 0, 0]) == [0.75, 0.25, 0.75, 0.75]


def test_answers_to_one_question_are_drawn_together() -> None:
    """Eight answers to each question make no interval narrower than one."""
    single = [sample(str(n), "correct" if n % 2 else "incorrect", "75") for n in range(10)]
    several = [replace(one, number=number) for one in single for number in range(8)]
    for name, number in confidence_numbers(single).items():
        more = confidence_numbers(several)[name]
        assert (more.value, more.n) == (pytest.approx(number.value), 10)
    (few,), (many,) = confidence_bins(single), confidence_bins(several)
    assert (few["n"], many["n"]) == (10, 80)
    assert many["right_high"] - many["right_low"] > 0.4


def test_abstentions_are_kept_beside_answers_that_are_as_sure() -> None:
    some = [sample(str(n), "abstained", "20") for n in (2, 3)]
    low, high = confidence_bins([sample("1", "correct", "90"), *some])
    assert (low["low"], low["n"], low["abstained"], low["right"]) == (0.2, 0, 2, None)
    assert (high["n"], high["abstained"], high["right"]) == (1, 0, 1.0)


def test_an_evaluation_says_how_often_each_level_is_right(tmp_path: Path) -> None:
    """The confidence is no part of the answer; an answer without one is counted and in no mean."""
    said = {"Rome": "Rome\nConfidence: 90", "Oslo": "Bergen\nConfidence: 0.4", "Lima": "Lima"}
    rows = (
        f'{{"question": "Which is {name}?", "answers": ["{name}"], "completion": {text!r}}}'.replace("'", '"')
        for name, text in said.items()
    )
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert (
        main(["eval", str(tmp_path / "rows.jsonl"), "--confidence", "--output", str(tmp_path / "out")]) == 0
    )
    output = read_output(tmp_path / "out")
    numbers = output.numbers("rows")
    assert numbers["accuracy"].value == pytest.approx(2 / 3)
    assert numbers["confidence_stated"].value == pytest.approx(2 / 3)
    assert numbers["brier"].value == pytest.approx((0.1**2 + 0.4**2) / 2)
    assert numbers["ece"].value == pytest.approx((0.1 + 0.4) / 2)
    assert "As sure as right?" in (tmp_path / "out" / "report.html").read_text("utf-8")
