"""Options by their letter in a box."""

from __future__ import annotations

import pytest

from factrl.evals.grade import by_letter
from factrl.types import Completion, Example

OPTIONS = ["Nothing happens", "You die", "You grow melons"]
ASKED = Example("What happens?", ("Nothing happens",), "1", meta={"choices": OPTIONS, "right": [1, 0, 0]})


@pytest.mark.parametrize(
    ("text", "label", "floored"),
    [
        ("I think B at first. \\boxed{A}", "correct", None),
        ("\\boxed{(a).}", "correct", None),
        ("\\boxed{\\text{A}}", "correct", None),
        ("\\boxed{B}, no: \\boxed{A}", "correct", None),
        ("\\boxed{nothing happens.}", "correct", None),
        ("\\boxed{C}", "incorrect", None),
        ("\\boxed{D}", "incorrect", "no_choice"),
        ("\\boxed{A or B}", "incorrect", "no_choice"),
        ("\\boxed{I don't know}", "abstained", None),
        ("I don't know.", "abstained", None),
        ("The answer is A.", "incorrect", "no_box"),
        ("", "incorrect", "no_box"),
    ],
)
def test_the_letter_in_the_box_counts(text: str, label: str, floored: str | None) -> None:
    grade = by_letter(ASKED, text)
    assert (grade.label, grade.floored) == (label, floored)


def test_where_answers_stand_between_tags_the_letter_does_too() -> None:
    text = Completion("A.</think><answer>B</answer>", prefill="<think>")
    assert by_letter(ASKED, text, "answer").answer == "You die"
    assert by_letter(ASKED, "\\boxed{A}", "answer").label == "incorrect"
