"""`factrl show`: where a paper's values are from, and what its reward pays."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from factrl.cli import main
from factrl.papers import load_paper, load_reward, paper_names
from factrl.rewards import reward
from factrl.stress.payoffs import OUTCOMES, Payoff, payoffs
from factrl.types import Completion, Example, Result, Score

if sys.version_info >= (3, 11):
    pass
else:
    pass

SPECS = [f"{name}:{variant}" for name in paper_names() for variant in load_paper(name).variants]
# Knobs that a variant leaves to the user.
GIVEN = {"klcf:weights-required": {"alpha": 1.0, "beta": 1.0, "gamma": 1.0}}
OWN = """
from factrl import Example, Unscored, reward

@reward
def right(example, completion, *, grade, bonus=1.0):
    '''Pays for right answers.

    Args:
        bonus: what a right answer pays.
    '''
    return {"right": bonus * (grade(example.question, completion, example.answers).label == "correct")}

@reward
def odd(example, completion, *, oracle):
    return {"odd": oracle(completion)}

@reward
def mine(example, completion):
    return {"mine": example.meta["mine"]}

@reward
def masked(example, completion):
    raise Unscored("odd", "nobody knows")
"""


@pytest.fixture(autouse=True)
def own_file(folder: Path) -> None:
    (folder / "own.py").write_text(OWN)


def out_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


# show


def test_what_it_pays_in_words_and_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    out = out_of(capsys, "show", "truthrl")
    assert re.search(r"^correct +1 = outcome 1 *$", out, re.M)
    assert re.search(r"^malformed +-1 = outcome -1 \(floored: no_box\)", out, re.M)
    assert "\nanswering pays above 50% confidence\ncorrect > abstained > wrong >= malformed holds\n" in out
    assert re.search(r"^abstain +0\.0 +what each outcome pays", out, re.M)
    assert re.search(r"^grade +rules, and judge\.url", out, re.M)


def test_it_follows_the_knobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert "answering pays above 75% confidence" in out_of(capsys, "show", "truthrl", "reward.wrong=-3")
    assert "answering always pays" in out_of(capsys, "show", "truthrl:binary")
    out = out_of(capsys, "show", "truthrl", "reward.abstain=2")
    assert "answering never pays more than abstaining" in out
    assert "does not hold: correct is not above abstained" in out


def test_what_else_counts_has_columns_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    out = out_of(capsys, "show", "truthrl:reasoning-additive")
    assert re.search(r"^it pays +all else at best +all else at worst", out, re.M)
    assert re.search(r"^abstained +0\.5 = outcome 0 \+ reasoning 0\.5 +0 = outcome 0", out, re.M)
    out = out_of(capsys, "show", "truthrl:knowledge-ternary")
    assert re.search(r"^it pays +within knowledge +out of knowledge", out, re.M)
    assert "out of knowledge: a right answer pays no more than a wrong one" in out


def test_a_reward_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    out = out_of(capsys, "show", "own.py:right", "reward.bonus=2")
    assert out.startswith("own.py:right: Pays for right answers.\n")
    assert re.search(r"^correct +2 = right 2", out, re.M)
    assert re.search(r"^bonus +2(\.0)? +what a right answer pays\.", out, re.M)


@pytest.mark.parametrize(
    ("name", "code", "why"),
    [
        ("odd", 1, "it depends on oracle, which nothing here can stand in for"),
        ("mine", 2, "reward 'mine' failed on example 'probe' with KeyError: 'mine'"),
        ("masked", 1, "none of the probes could be graded"),
    ],
)
def test_pay_that_is_not_known_is_said_and_fails(
    name: str, code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", f"own.py:{name}"]) == code
    out, err = capsys.readouterr()
    assert err == f"factrl: what own.py:{name} pays is not known: {why}\n"
    assert re.search(rf"^variant +what differs[\s\S]*^{name} ", out, re.M)
    assert "holds" not in out


def test_a_right_answer_never_earns_less_than_a_wrong_one() -> None:
    for spec in sorted(SPECS):
        for payoff in payoffs(load_reward(spec).with_(**GIVEN.get(spec, {}))):
            right, wrong = payoff.value("correct"), payoff.value("wrong")
            assert {*payoff.results} == {*OUTCOMES}
            assert right is not None, spec
            assert wrong is not None, spec
            assert right >= wrong, spec


@pytest.mark.parametrize(
    ("values", "above"),
    [
        ((1.0, 0.0, -1.0), 0.5),
        ((1.0, -1.0, -1.0), 0.0),
        ((-1.0, 0.0, -1.0), None),
        ((1.0, None, -1.0), None),
    ],
)
def test_confidence_from_which_answering_pays(
    values: tuple[float | None, float | None, float | None], above: float | None
) -> None:
    results = {
        outcome: Result("masked" if value is None else "scored", value)
        for outcome, value in zip(OUTCOMES, values, strict=False)
    }
    values = Payoff("", results).answering_pays_above
    assert values == (None if above is None else pytest.approx(above))


@pytest.mark.parametrize(
    ("form", "read"),
    [
        ("tags", lambda text: text.partition("<answer>")[2].partition("<")[0]),
        ("box", lambda text: text.partition("{")[2].partition("}")[0]),
        ("text", lambda text: "" if "<" in text else text),
        ("sentence", lambda text: text if text.endswith(".") and "<" not in text else ""),
    ],
)
def test_the_form_that_a_reward_reads_is_found(form: str, read: Callable[[str], str]) -> None:
    @reward
    def reads(example: Example, completion: Completion, *, grade: Any) -> Score:
        grade = grade(example.question, read(completion), example.answers)
        value = {"correct": 3.0, "abstained": 1.0, "incorrect": -1.0}[grade.label]
        return Score({form: value}, floored=grade.floored)

    (payoff,) = payoffs(reads)
    assert [payoff.value(outcome) for outcome in OUTCOMES] == [3, 1, -1, -1, -1]
    assert payoff.answering_pays_above == 0.5
    assert payoff.broken == []
