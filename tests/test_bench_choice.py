"""Options by likelihood and by letter."""

from __future__ import annotations

import math

import pytest

from factrl.evals.shortqa import by_letter, by_likelihood, by_text, chosen
from factrl.types import Example

OPTIONS = ["Nothing happens", "You die", "You grow melons"]
YES = ["yes", "no"]
EXAMPLE = Example("What happens?", ("Nothing happens",), "1", meta={"choices": OPTIONS, "right": [1, 0, 0]})


@pytest.mark.parametrize(
    ("text", "choices", "number"),
    [
        ("A", OPTIONS, 0),
        ("B.", OPTIONS, 1),
        ("(C) You grow melons", OPTIONS, 2),
        ("**B**", OPTIONS, 1),
        ("The answer is C.", OPTIONS, 2),
        ("答案是B", OPTIONS, 1),
        ("I think that you die", OPTIONS, 1),
        ("A person who eats them is fine", OPTIONS, None),
        ("The answer is A. No, the answer is B.", OPTIONS, None),
        ("The answer is A or B.", OPTIONS, None),
        ("The answer is a common ancestor.", OPTIONS, None),
        ("Option A is wrong, so the answer is B", OPTIONS, 1),
        ("I don't know.", YES, None),
        ("No, it is not.", YES, 1),
        ("It came from a common ancestor.", ["a god", "a common ancestor"], 1),
        ("I think it is vitamin C.", ["Vitamin C", "Vitamin D", "Vitamin B"], 0),
        ("", ["", "yes"], None),
    ],
)
def test_the_option_that_a_reply_names(text: str, choices: list[str], number: int | None) -> None:
    assert chosen(text, choices) == number


def test_a_reply_that_names_none_is_wrong_unless_it_declines() -> None:
    assert by_letter(EXAMPLE, "I don't know")[0].label == "abstained"
    grade, values = by_letter(EXAMPLE, "Hm, melons are green")
    assert (grade.label, grade.floored, values) == ("incorrect", "no_choice", {})
    grade, values = by_letter(EXAMPLE, "A")
    assert (grade.label, grade.answer, values) == ("correct", "Nothing happens", {"chose_first": 1.0})


@pytest.mark.parametrize(
    ("text", "label", "floored"),
    [
        ("So: <answer>nothing happens.</answer>", "correct", None),
        ("<answer>You die</answer>", "incorrect", None),
        ("<answer>A</answer>", "incorrect", "no_choice"),  # there are no letters
        ("<answer>Nothing happens, or you die</answer>", "incorrect", "no_choice"),
        ("<answer>I don't know</answer>", "abstained", None),
        ("<answer></answer>", "incorrect", "no_choice"),
        ("Nothing happens", "incorrect", "no_answer"),
    ],
)
def test_a_candidate_is_named_by_its_text_between_tags(text: str, label: str, floored: str | None) -> None:
    grade, _ = by_text(EXAMPLE, text)
    assert (grade.label, grade.floored) == (label, floored)


def test_mc1_takes_the_highest_sum_and_mc2_the_share_of_the_true_options() -> None:
    grade, values = by_likelihood(EXAMPLE, [-9.0, -8.9, -30.0], several=False)
    assert (grade.label, values) == ("incorrect", {})
    example = Example("Q", ("a", "b"), "1", meta={"choices": ["a", "b", "c"], "right": [1, 1, 0]})
    grade, values = by_likelihood(example, [math.log(0.02), math.log(0.01), math.log(0.05)], several=True)
    assert grade.label == "incorrect"
    assert values["mc2"] == pytest.approx(3 / 8)
    far = by_likelihood(example, [-2000.0, -2001.0, -2002.0], several=True)[1]["mc2"]
    assert far == pytest.approx((1 + math.exp(-1)) / (1 + math.exp(-1) + math.exp(-2)))
