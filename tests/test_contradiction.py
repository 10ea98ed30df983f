"""The judge of Binary RAR: what it is shown, and when there is no verdict."""

from __future__ import annotations

import json

import pytest

from factrl.errors import ConfigError, Unscored
from factrl.llm import FakeLLM
from factrl.papers import load_reward
from factrl.rewards.contradiction import contradiction_judge, refuted_claims
from factrl.rewards.resources import Supplier, supply
from factrl.runs.settings import JudgeSettings, VerifierSettings
from factrl.types import Completion, Example, Passage
from factrl.verifier import open_verifier

FOUND = [Passage(f"Ada Bell was born in {year}.", "Ada Bell") for year in (1801, 1802, 1803)]


class Finds:
    """A search that finds something for questions alone, as where an answer is made of unknown words."""

    def __init__(self, *known: str) -> None:
        self.known, self.asked = known, list[str]()

    def search(self, query: str, k: int = 5, *, topic: str = "") -> list[Passage]:
        self.asked.append(query)
        return FOUND[:k] if query in self.known else []


def test_the_judge_sees_request_answer_and_the_passages_that_fit_both() -> None:
    judge = FakeLLM(["VERDICT: contradicted"])
    assert contradiction_judge(judge, k=2)("Who was Ada?", "She was born in 1803.", FOUND)
    data = json.loads(str(judge.calls[0][-1]["content"]).splitlines()[-2])
    assert data["request"] == "Who was Ada?"
    assert data["checked_answer"] == "She was born in 1803."
    assert len(data["passages"]) == 2
    assert data["passages"][0] == "Ada Bell: Ada Bell was born in 1803."


def test_an_answer_for_which_nothing_is_found_is_held_against_what_the_question_finds() -> None:
    search = Finds("Who was Ada?")
    judge = FakeLLM(["VERDICT: consistent"])
    assert not contradiction_judge(judge, search)("Who was Ada?", "Xyzzy.", ())
    assert search.asked == ["Who was Ada?\nXyzzy.", "Who was Ada?"]
    with pytest.raises(Unscored, match="nothing was found for 'Who is Bo"):
        contradiction_judge(FakeLLM([]), search)("Who is Bo?", "Xyzzy.", ())


def test_it_needs_a_judge_and_a_dead_one_earns_nothing() -> None:
    with pytest.raises(ConfigError, match="a reward for answers without contradictions needs a judge"):
        supply(load_reward("rar"))
    example = Example("Who was Ada?", evidence=tuple(FOUND))
    down = FakeLLM([Unscored("timeout", "no reply", stage="judge")] * 9)
    told = Supplier(down, JudgeSettings(), VerifierSettings(cache=False))
    result = supply(load_reward("rar"), supplier=told)(example, Completion("She was born in 1801."))
    assert (result.state, result.value, result.cause) == ("masked", None, "timeout")


def test_without_a_judge_rules_look_for_contradictions_where_they_are_asked_to() -> None:
    rules = Supplier(None, JudgeSettings(), VerifierSettings(judge="weak", cache=False))
    reward = supply(load_reward("rar"), supplier=rules)
    about = Example("When was Ada Bell born?", evidence=(FOUND[0],))
    said = ("Ada Bell was born in 1801.", "Ada Bell was born in 1901.", "I don't know.")
    assert [reward(about, Completion(text)).value for text in said] == [1.0, 0.0, 1.0]


def test_a_claim_that_has_no_verdict_by_the_texts_own_doing_counts_as_refuted() -> None:
    contradicts = refuted_claims(open_verifier(judge="weak", max_claims=1))
    said = "Ada Bell was born in 1801. Ada Bell was born in 1901."
    assert contradicts("When was Ada Bell born?", said, [FOUND[0]])
