"""Mathematical answers: found in a text, and compared."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator

import pytest

from factrl.errors import MissingExtra, Unscored
from factrl.rewards.mathematics import MathGrader, final_result

needs_math = pytest.mark.skipif(not importlib.util.find_spec("math_verify"), reason="needs the extra eval")


@pytest.fixture(scope="module")
def math_grader() -> Iterator[MathGrader]:
    one = MathGrader(seconds=3.0)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("text", "number", "answer"),
    [
        ("First \\boxed{3}, then \\boxed{\\frac{1}{2}}.", False, "\\frac{1}{2}"),
        ("16 - 7 = 9\n#### 18", True, "18"),
        ("#### $1,234.50", True, "1,234.50"),
        ("She sells 9 eggs for 2 each and makes 18.", True, "18"),
        ("The answer is \\frac{1}{2}.", False, None),
        ("So he earns 70 000 dollars.", True, "70 000"),
        ("From 5 to 100, and 12 3456 is no number.", True, "3456"),
        ("Nobody knows.", True, None),
        ("\\boxed{}", True, None),
    ],
)
def test_where_the_answer_stands(text: str, number: bool, answer: str | None) -> None:
    assert final_result(text, number=number) == answer


@needs_math
@pytest.mark.parametrize(
    ("text", "gold", "label"),
    [
        ("\\boxed{1{,}000}", "1000", "correct"),
        ("\\boxed{\\frac{1}{2n+2}}", "\\frac{1}{2 n+2}", "correct"),
        ("\\boxed{(3, \\pi/2)}", "\\left( 3, \\frac{\\pi}{2} \\right)", "correct"),
        ("\\boxed{69,84}", "69$,$84", "correct"),
        ("\\boxed{6984}", "69,84", "incorrect"),
        ("\\boxed{x=5}", "5", "correct"),
        ("\\boxed{18\\text{ dollars}}", "18", "correct"),
        ("\\boxed{50}", "\\frac{1}{2}", "incorrect"),
        ("\\boxed{\\underline{50}}", "50", "correct"),
        ("\\boxed{19}", "18", "incorrect"),
    ],
)
def test_the_same_value(math_grader: MathGrader, text: str, gold: str, label: str) -> None:
    assert math_grader.grade(text, gold).label == label


@needs_math
def test_a_formula_without_end_is_wrong_and_stops(math_grader: MathGrader) -> None:
    assert math_grader.equal("1", "\\frac{2}{2}")  # loads sympy
    began = time.monotonic()
    grade = math_grader.grade("\\boxed{9^{9^{9^{9}}}}", "\\frac{2}{3}")
    assert (grade.label, grade.floored) == ("incorrect", "endless_formula")
    assert time.monotonic() - began < 30
    assert math_grader.grade("\\boxed{\\frac{4}{6}}", "\\frac{2}{3}").label == "correct"


def test_a_long_formula_and_none_at_all() -> None:
    one = MathGrader()
    assert one.grade("\\boxed{" + "1+" * 2000 + "1}", "2").floored == "oversize_answer"
    assert one.grade("no", "\\pi").floored == "no_answer"


def test_what_breaks_the_comparison_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def equal(answer: str, gold: str) -> bool:
        if "bad" in answer:
            raise Unscored("math_failed")
        return True

    one = MathGrader()
    monkeypatch.setattr(one, "equal", equal)
    assert one.grade("\\boxed{bad}", "\\pi").floored == "broken_formula"
    with pytest.raises(Unscored, match="math_failed"):
        one.grade("\\boxed{bad}", "bad gold")


def test_without_math_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    one = MathGrader()
    assert one.grade("\\boxed{18}", "18").label == "correct"
    with pytest.raises(MissingExtra, match=r"'\.\[eval\]'"):
        one.grade("\\boxed{\\pi}", "3")
