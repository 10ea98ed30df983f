"""The term for citations: what a passage that supports the answer earns, and how it could be had for less."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from factrl.errors import Unscored
from factrl.papers import load_reward
from factrl.papers.truthrl import truthrl_search
from factrl.rewards.citations import numbers_in
from factrl.rewards.grading import Grader
from factrl.types import Claim, Completion, Example, Passage, Verdict
from factrl.verifier import Verifier
from factrl.verifier.claims import SentenceClaims

FACTS = tuple(
    Passage(text)
    for text in (
        "Ada was born in Rome.",
        "Bo was born in Oslo.",
        "Rome is where Ada was born.",
        "x",
        "y",
        "z",
    )
)
ADA = Example("Where was Ada born?", ("Rome",))


class Judge:
    """Supports a claim whose answer stands in the passage beside Ada; fails for "x"."""

    identity, weak, per_call = "scripted", False, 1_000

    def __init__(self) -> None:
        self.claims: list[str] = []

    async def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        verdicts = []
        for claim, passages in pairs:
            self.claims.append(claim.text)
            answer, text = claim.text.rpartition(" is ")[2].rstrip("."), passages[0].text
            if text == "x":
                verdicts.append(Verdict("unjudged", "scripted", cause="timeout"))
            else:
                verdicts.append(
                    Verdict("supported" if answer in text and "Ada" in text else "unknown", "scripted")
                )
        return verdicts


def scored(text: str, *, shown: Sequence[Passage] | None = FACTS, judge: Judge | None = None, **knobs: float):  # type: ignore[no-untyped-def]
    verify = Verifier(SentenceClaims(), None, judge or Judge())
    reward = load_reward("truthrl:search").with_(grade=Grader(), verify=verify, **{"citations": 0.5, **knobs})
    said = Completion(text)
    said.shown = None if shown is None else tuple(shown)
    return reward(ADA, said)


@pytest.mark.parametrize(
    ("text", "outcome", "citations"),
    [
        (r"Ada was born in Rome [1]. \boxed{Rome}", 1, 0.5),
        (r"[1][2] \boxed{Rome}", 1, 0.25),
        (r"[2] \boxed{Oslo}", -1, 0),  # it supports that of another person
        (r"\boxed{Rome}", 1, 0),
        (r"[1] [9] \boxed{Rome}", 1, 0),  # never shown
        (r"[1] [2] [3] [4] [5] [6] \boxed{Rome}", 1, 0),  # everything
        (r"[1] \boxed{I don't know}", 0, 0),
        (r"[1] Rome", -1, 0),  # no box
        (r"<think>[1]</think> \boxed{Rome}", 1, 0),
    ],
)
def test_what_a_citation_earns(text: str, outcome: float, citations: float) -> None:
    assert scored(text).terms == {"outcome": outcome, "citations": citations}


def test_what_is_judged_is_the_answer_to_the_question_by_one_passage_at_a_time() -> None:
    judge = Judge()
    result = scored(r"[1] [2] \boxed{Rome}", judge=judge)
    assert judge.claims == ['To the question "Where was Ada born" the answer is Rome.'] * 2
    assert (result.facts["cited"], result.facts["supporting"]) == ([1, 2], [1])


def test_without_an_environment_the_passages_are_those_of_the_prompt() -> None:
    verify = Verifier(SentenceClaims(), None, Judge())
    reward = load_reward("truthrl:search").with_(grade=Grader(), verify=verify, citations=1.0)
    shown = Example(ADA.question, ADA.answers, evidence=FACTS)
    assert reward(shown, r"[1] \boxed{Rome}").terms["citations"] == 1.0
    assert reward(ADA, r"[1] \boxed{Rome}").terms["citations"] == 0.0


def test_a_citation_that_could_not_be_judged_masks() -> None:
    assert scored(r"[4] \boxed{Rome}").state == "masked"
    assert scored(r"[4] \boxed{Rome}", citations=0.0).terms == {"outcome": 1.0}


def test_at_0_nobody_is_needed_and_truthrl_is_as_it_was() -> None:
    reward = load_reward("truthrl:search")
    assert reward.missing == ("grade",)
    assert reward.with_(citations=0.5).missing == ("grade", "verify")
    assert reward.with_(grade=Grader())(ADA, r"[1] \boxed{Rome}").terms == {"outcome": 1.0}
    assert "citations" not in load_reward("truthrl").knobs
    assert "citations:" in (truthrl_search.fn.__doc__ or "")


def test_a_failed_search_is_masked_before_anything_is_asked() -> None:
    said = Completion(r"[1] \boxed{Rome}")
    said.failed = Unscored("search_failed", "down")
    assert load_reward("truthrl:search").with_(grade=Grader())(ADA, said).cause == "search_failed"


@pytest.mark.parametrize(
    ("text", "found"),
    [("a [1] b [2,3]", [1, 2, 3]), ("[3][1][3]", [3, 1]), ("[ 1] [a] [1-2] [12345]", []), ("[1; 2]", [1, 2])],
)
def test_how_numbers_are_read(text: str, found: list[int]) -> None:
    assert numbers_in(Completion(text)) == found
