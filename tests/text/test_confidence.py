"""How sure a model says it is: one reader, outcomes by tenths, calibration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factrl.cli import main
from factrl.evals.folder import read_output
from factrl.evals.numbers import confidence_numbers
from factrl.evals.samples import EvalSample
from factrl.text.confidence import stated_confidence
from factrl.types import Completion, Example, Grade


def sample(name: str, label: Any, sure: str) -> EvalSample:
    example = Example(f"Q {name}?", ("gold",), name)
    return EvalSample(
        example, Completion(f"Oslo\nConfidence: {sure}"), Grade(label, "Oslo", ""), benchmark="b"
    )


EIGHTY = [
    *(
        "0,8",
        ".8",
        "0.80",
        "80",
        "80.",
        "80 percent",
        "80 per cent.",
        "80 %",
        "80,0 %",
        "8/10",
        "8 out of 10",
    ),
    *("0.8/1", "0.8 / 1.0", "~80%", "８０％"),
]
UNREADABLE = [
    *("1000", "80-90", "80 – 90%", "75 to 80", "-5", "0.8.5", "8e5", "8e-1", "0x50", "about 75", "high"),
    *("3 out of 4", "1 in 4", "75‰", "75 or 80", "75, or 80", "75 of the sources agree"),
]


@pytest.mark.parametrize(
    ("text", "rest", "sure"),
    [
        ("Oslo\nConfidence: 0.9", "Oslo", 0.9),
        ("Oslo\nConfidence: 75/100", "Oslo", 0.75),
        ("Oslo\nConfidence: 1", "Oslo", 0.01),
        ("Oslo\nConfidence: 300", "Oslo", None),
        ("<answer>Oslo</answer> <confidence> 0.8 </confidence>", "<answer>Oslo</answer>", 0.8),
        ("Oslo<confidence>1</confidence>", "Oslo", 1.0),
        ("Oslo <analysis>No map.</analysis>\n<confidence>0.25</confidence>", "Oslo", 0.25),
        ("Confidence: 90\nOslo<confidence>0.1</confidence>", "Confidence: 90\nOslo", 0.1),
        ("Oslo<confidence>80</confidence>", "Oslo", None),
        ("Oslo<confidence>quite</confidence>", "Oslo", None),
        *[(f"Oslo\nConfidence: {eighty}", "Oslo", 0.8) for eighty in EIGHTY],
        *[(f"Oslo\nConfidence: {no}", "Oslo", None) for no in UNREADABLE],
        ("Oslo\n**Confidence:** 80%**", "Oslo", 0.8),
        ("Oslo\nConfidence: 80, as the map shows.", "Oslo", 0.8),
        ("Confidence: 80. Oslo", "Oslo", 0.8),
        ("I say with confidence: Oslo", "I say with confidence: Oslo", None),
        ("Oslo<confidence>0,8</confidence>", "Oslo", 0.8),
        ("Oslo<confidence>80 percent</confidence>", "Oslo", 0.8),
        ("Confidence: 90\nOslo\nConfidence: 1000", "Confidence: 90\nOslo", None),
    ],
)
def test_how_a_confidence_is_written(text: str, rest: str, sure: float | None) -> None:
    found, number = stated_confidence(text)
    assert (found, number) == (rest, sure if sure is None else pytest.approx(sure))


def test_answers_to_one_question_are_drawn_together() -> None:
    """Eight answers to each question make no interval narrower than one."""
    single = [sample(str(n), "correct" if n % 2 else "incorrect", "75") for n in range(10)]
    several = [replace(one, number=number) for one in single for number in range(8)]
    (once, about), (often, more_about) = map(confidence_numbers, (single, several))
    for name, number in once.items():
        more = often[name]
        assert (more.value, more.low, more.n) == (pytest.approx(number.value), pytest.approx(number.low), 10)
    (few,), (many,) = about["confidence_bins"], more_about["confidence_bins"]
    assert (few["n"], many["n"]) == (10, 80)
    assert many["right_high"] - many["right_low"] > 0.4


PAIRS = st.lists(
    st.tuples(
        st.sampled_from(["10", "50", "50", "90"]), st.sampled_from(["correct", "incorrect", "abstained"])
    ),
    min_size=1,
    max_size=9,
)


@given(PAIRS)
def test_what_ranks_answers_is_what_its_definition_counts(told: list[tuple[str, str]]) -> None:
    """Pair by pair and threshold by threshold, ties among them; nothing undefined has a number."""
    samples = [sample(str(at), label, sure) for at, (sure, label) in enumerate(told)]
    numbers, about = confidence_numbers(samples)
    kept = [(int(sure), label == "correct") for sure, label in told if label != "abstained"]
    pairs = [(a > b) + (a == b) / 2 for a, right in kept for b, other in kept if right and not other]
    risks = {at: [not right for sure, right in kept if sure >= at] for at, _ in kept}
    wanted = {"auroc": sum(pairs) / len(pairs)} if pairs else {}
    if kept:
        wanted["aurc"] = sum(sum(risks[at]) / len(risks[at]) for at, _ in kept) / len(kept)
        good = [len(wrong) for wrong in risks.values() if sum(wrong) <= 0.1 * len(wrong)]
        wanted["coverage@90"] = max(good, default=0) / len(told)
    ranked = {name: numbers[name].value for name in ("auroc", "aurc", "coverage@90") if name in numbers}
    assert ranked == pytest.approx(wanted)
    assert {*about["absent"]} & {*numbers} == set()
    assert ("auroc" in about["absent"]) == (not pairs)
    assert [(one["coverage"], one["risk"]) for one in about["risk_coverage"]] == [
        (pytest.approx(len(risks[at]) / len(told)), pytest.approx(sum(risks[at]) / len(risks[at])))
        for at in sorted(risks, reverse=True)
    ]


def test_agreement_is_about_the_answer_that_most_samples_give() -> None:
    """Three of four say what is right; two of four abstain and two are wrong, so half of each counts."""
    said = {"1": ["correct"] * 3 + ["incorrect"], "2": ["abstained", "abstained", "incorrect", "incorrect"]}
    samples = [
        replace(sample(name, label, "75"), number=at, grade=Grade(label, label, ""))
        for name, labels in said.items()
        for at, label in enumerate(labels)
    ]
    numbers, about = confidence_numbers(samples, "agreement")
    assert (numbers["auroc"].value, numbers["coverage@90"].value) == (1.0, 0.5)
    assert numbers["brier"].value == pytest.approx((0.25**2 * 1 + 0.5**2 * 0.5) / 1.5)
    assert (about["absent"], "confidence_stated" in numbers) == ({}, False)
    numbers, about = confidence_numbers(samples[:1], "agreement")
    assert (numbers, about["absent"]["aurc"]) == ({}, "a question's only answer agrees with itself")


def test_abstentions_are_kept_beside_answers_that_are_as_sure() -> None:
    some = [sample(str(n), "abstained", "20") for n in (2, 3)]
    low, high = confidence_numbers([sample("1", "correct", "90"), *some])[1]["confidence_bins"]
    assert (low["low"], low["n"], low["abstained"], low["right"]) == (0.2, 0, 2, None)
    assert (high["n"], high["abstained"], high["right"]) == (1, 0, 1.0)


def test_an_evaluation_says_how_often_each_level_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The confidence is no part of the answer; an answer without one is counted and in no mean."""
    said = {"Rome": "Rome\nConfidence: 90", "Oslo": "Bergen\nConfidence: 0.4", "Lima": "Lima"}
    rows = (
        f'{{"question": "Which is {name}?", "answers": ["{name}"], "completion": {text!r}}}'.replace("'", '"')
        for name, text in said.items()
    )
    (tmp_path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    words = ["grade.confidence=stated", "--output", str(tmp_path / "out")]
    assert main(["eval", str(tmp_path / "rows.jsonl"), *words]) == 0
    output = read_output(tmp_path / "out")
    numbers = output.numbers("rows")
    assert numbers["accuracy"].value == pytest.approx(2 / 3)
    assert numbers["confidence_stated"].value == pytest.approx(2 / 3)
    assert numbers["brier"].value == pytest.approx((0.1**2 + 0.4**2) / 2)
    assert numbers["ece"].value == pytest.approx((0.1 + 0.4) / 2)
    assert output.benchmarks["rows"]["absent"] == {}
    assert numbers["auroc"].value == 1.0
    assert "aurc" in capsys.readouterr().out
    assert "As sure as right?" in (tmp_path / "out" / "report.html").read_text("utf-8")
