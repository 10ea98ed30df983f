"""Every paper on the shelf: its worked cases, and what its file promises."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from factrl.errors import ConfigError, LLMError
from factrl.llm import FakeLLM, Message
from factrl.papers import (
    Gold,
    check_gold,
    gold_of,
    load_paper,
    load_reward,
    paper_names,
    rewards_of,
)
from factrl.rewards import Reward
from factrl.rewards.grading import Grader
from factrl.train.plan import run_settings
from factrl.types import Example

CASES = [(name, *found) for name in paper_names() for found in gold_of(name)]
ROME = Example("Capital of Italy?", ("Rome",), id="rome")
OWN = """
from __future__ import annotations
from dataclasses import dataclass
from factrl import Example, reward
from factrl.papers import Gold

@dataclass
class Length:
    words: int

@reward
def short(example, completion, *, words=2):
    return {"short": float(Length(len(completion.split())).words <= words)}

@reward
def right(example, completion, *, grade):
    return {"right": float(grade(example.question, completion, example.answers).label == "correct")}

ROME = Example("Capital of Italy?", ("Rome",))
GOLD = [
    Gold("two words are short", ROME, "in Rome", {"short": 1.0}, variant="short"),
    Gold("the answer is right", ROME, "Rome", {"right": 1}, variant="right"),
    Gold("about whatever is named", ROME, "Rome", {"right": 1}),
]
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("reward", "case"),
    [(reward, case) for _, _, reward, case in CASES],
    ids=[f"{name}:{variant}: {case.why}" for name, variant, _, case in CASES],
)
def test_gold(reward: Reward, case: Gold) -> None:
    assert check_gold(reward, case) == ""


@pytest.mark.parametrize("name", paper_names())
def test_a_paper_is_complete(name: str) -> None:
    module = load_paper(name)
    assert len((module.__doc__ or "").splitlines()[0]) <= 100
    assert "arXiv:" in (module.__doc__ or "")
    assert {variant for variant, _, _ in gold_of(name)} == {*module.VARIANTS}
    assert len(gold_of(name)) >= 12
    assert all(len(key) == 3 and isinstance(value, float) for key, value in module.PUBLISHED.items())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"terms": {"outcome": 1 + 1e-6}}, "terms {'outcome': 1.0}, not {'outcome': 1.000001}"),
        ({"terms": {}}, "terms {'outcome': 1.0}, not {}"),
        ({"terms": {"outcome": 1 + 1e-10}}, ""),
        ({"state": "floored"}, "scored, not floored"),
        ({"replies": ("VERDICT: correct",)}, "the judge was asked 0 times, not 1"),
        ({"completion": "\\boxed{the eternal city}"}, "FakeLLM has 0 replies and was called 1 times"),
        (
            {"completion": "\\boxed{the eternal city}", "replies": ("hm", "hm")},
            "masked (judge_unreadable: the judge's reply does not end with "
            "'VERDICT: correct|incorrect|not_attempted' but with 'hm'), not scored",
        ),
    ],
)
def test_a_case_that_does_not_hold_is_told(change: dict[str, object], problem: str) -> None:
    holds = Gold("", ROME, "\\boxed{Rome}", {"outcome": 1})
    assert check_gold(load_reward("truthrl"), holds) == ""
    found = check_gold(load_reward("truthrl"), dataclasses.replace(holds, **change))
    assert problem in found
    assert bool(problem) == bool(found)


# What a judge says of an answer -> state, value and cause of the sample.
SAID: dict[str, tuple[str | Exception, tuple[str, float | None, str | None]]] = {
    "the eternal city": ("Its name.\nVERDICT: correct", ("scored", 1.0, None)),
    "a town in Spain": ("No.\nVERDICT: incorrect", ("scored", -1.0, None)),
    "a riddle": ("It is NOT CORRECT, I think", ("masked", None, "judge_unreadable")),
    "an outage": (LLMError("timeout", "no reply"), ("masked", None, "timeout")),
}
WRITTEN = {
    "\\boxed{Rome}": ("scored", 1.0, None),
    "\\boxed{I don't know}": ("scored", 0.0, None),
    "Rome": ("floored", -1.0, "no_box"),
    **{f"\\boxed{{{answer}}}": end for answer, (_, end) in SAID.items()},
}


def test_of_thousands_side_by_side_none_is_lost_and_no_masked_one_has_a_number() -> None:
    def judge(messages: Sequence[Message]) -> str | Exception:
        asked = messages[-1]["content"].rpartition("DATA ")[2]
        return next((said for answer, (said, _) in SAID.items() if answer in asked), "I cannot tell.")

    texts = Random(0).choices([*WRITTEN], k=5_000)
    results = load_reward("truthrl").with_(grade=Grader(FakeLLM(judge))).batch([ROME] * len(texts), texts)
    assert [(one.state, one.value, one.cause) for one in results] == [WRITTEN[text] for text in texts]


def test_only_the_cases_of_a_variant() -> None:
    assert {variant for variant, _, _ in gold_of("truthrl:binary")} == {"binary"}
    ternary = [case.variant for variant, _, case in gold_of("truthrl:ternary") if variant == "ternary"]
    assert len(ternary) == len(gold_of("truthrl:ternary")) > 10
    assert "" in ternary


# A file of one's own


def test_rewards_and_cases_of_a_file(own: str) -> None:
    assert [*rewards_of(load_paper(own))] == ["short", "right"]
    assert load_reward(f"{own}:short").knobs == {"words": 2}
    assert [case.why for _, _, case in gold_of(f"{own}:short")][:1] == ["two words are short"]
    found = gold_of(f"{own}:right")
    assert [(variant, check_gold(reward, case)) for variant, reward, case in found] == [("right", "")] * 2


def test_a_file_with_one_reward_needs_no_name(own: str) -> None:
    path = Path(own)
    path.write_text(OWN.replace("@reward\ndef short", "def short").partition("GOLD")[0], encoding="utf-8")
    assert load_reward(own).name == "right"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("trutrl", "unknown paper 'trutrl'; did you mean 'truthrl'? (there are: "),
        (
            "truthrl:binry",
            "paper 'truthrl' has no variant 'binry'; did you mean 'binary'? (it has: ternary, ",
        ),
        ("{folder}/owm.py:short", "owm.py does not exist; did you mean 'own.py'?"),
        ("{folder}/none/own.py:short", "own.py does not exist"),
        ("{folder}/own.py:shrt", "own.py has no reward 'shrt'; did you mean 'short'? (it has: short, right)"),
        ("{folder}/own.py", "own.py has several rewards; name one: "),
        ("{folder}/empty.py:a", "empty.py has no reward; decorate a function of it with @factrl.reward"),
    ],
)
def test_what_cannot_be_loaded(own: str, spec: str, message: str) -> None:
    folder = Path(own).parent
    (folder / "empty.py").write_text("a = 1\n", encoding="utf-8")
    for load in (load_reward, gold_of):
        with pytest.raises(ConfigError) as caught:
            load(spec.format(folder=folder))
        assert message in str(caught.value)


def test_a_papers_name_brings_its_settings_and_overrides_come_after(own: str) -> None:
    needed = ["model.name=m", "data.train=d"]
    by_name = run_settings(None, ["paper=truthrl:binary", *needed, "train.beta=0.5"])
    assert "boxed" in by_name.data.prompt
    assert (by_name.train.prompts_per_step, by_name.train.beta) == (64, 0.5)
    assert run_settings(None, [f"paper={own}:short", *needed]).data.prompt == "{question}"


def test_a_file_without_cases(own: str) -> None:
    Path(own).write_text(OWN.partition("GOLD")[0], encoding="utf-8")
    with pytest.raises(ConfigError, match=r"has no worked cases; add to .*own\.py: GOLD = "):
        gold_of(f"{own}:right")
