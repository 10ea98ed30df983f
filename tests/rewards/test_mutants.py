"""What no other test noticed when a guard or an invariant was switched off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from factrl.llm.bodies import Unreadable, document_of
from factrl.llm.store import Store
from factrl.papers import load_reward
from factrl.rewards.grading import Grade
from factrl.types import Claim, Example, Passage
from factrl.verifier import Verifier
from factrl.verifier.claims import SentenceClaims, mark
from judging import JudgeBy


def one_claim(text: str, question: str = "", topic: str = "") -> list[Claim]:
    return [Claim(text, 0, len(text))]


def labels(verifier: Verifier, text: str, evidence: str) -> list[str | None]:
    report = verifier(text, "Where is it?", evidence=[Passage(evidence)])
    return [check.verdict.label if check.verdict else None for check in report.checks]


BERN = "Bern lies on the Aare."


def test_a_kept_verdict_holds_for_its_evidence_alone(tmp_path: Path) -> None:
    label = "supported"
    judge = JudgeBy(lambda _: label)
    verifier = Verifier(one_claim, None, judge, store=Store(tmp_path / "verdicts.db"))
    assert labels(verifier, BERN, "Bern lies on the river Aare.") == ["supported"]
    label = "refuted"
    assert labels(verifier, BERN, "Bern lies on the river Aare.") == ["supported"]
    assert labels(verifier, BERN, "Bern lies on the river Rhine.") == ["refuted"]
    assert judge.asked == [BERN] * 2


def test_a_kept_verdict_holds_for_its_judge_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "verdicts.db")
    for label, identity in (("supported", "one"), ("refuted", "another"), ("unknown", "one")):
        verifier = Verifier(one_claim, None, JudgeBy(lambda _, said=label: said, identity), store=store)
        found = labels(verifier, BERN, "Bern lies on the river Aare.")
        assert found == ["supported" if identity == "one" else "refuted"]


def test_claims_that_differ_in_a_number_are_judged_apart_on_the_same_evidence() -> None:
    judge = JudgeBy(lambda _: "supported")
    texts = ["Bern has 3 bridges.", "Bern has 18 bridges.", "Bern has 3 bridges."]
    verifier = Verifier(one_claim, None, judge)
    evidence = [Passage("The bridges of Bern are 18 by one count and 3 by another.")]  # neither word for word
    verifier.batch(texts, ["Where?"] * 3, evidence=[evidence] * 3)
    assert sorted(judge.asked) == sorted({*texts})


def test_a_claim_with_another_number_is_no_repeat() -> None:
    texts = ("Bern has 3 bridges", "Bern has 18 bridges", "Bern has 3 bridges")
    assert [claim.skip for claim in mark(Claim(text, 0, len(text)) for text in texts)] == [
        None,
        None,
        "repeat",
    ]


@pytest.mark.parametrize("denial", ["Marie Curie was not a fish.", "Marie Curie never lived in Peru."])
def test_what_is_not_so_pays_nothing(denial: str) -> None:
    def declines(question: str, prediction: str, *_: object, **__: object) -> Grade:
        return Grade("abstained", prediction, how="judge")

    reward = load_reward("robust").with_(
        grade=declines,
        verify=Verifier(SentenceClaims(), None, JudgeBy(lambda _: "supported")),
    )
    curie = Example("In which city was Marie Curie born?", ("Warsaw",), evidence=(Passage(BERN),))

    def value(said: str) -> float | None:
        return reward(curie, f"<think>Hm.</think><answer>{said}</answer>").value

    assert value(f"I don't know the city. {denial}") == value("I don't know the city.") == 0
    told = value("I don't know the city. Marie Curie was born in Poland.")
    assert told is not None
    assert told > 0  # else it shows nothing


def test_an_error_in_a_reply_is_an_error_whatever_stands_beside_it() -> None:
    class Content:
        async def iter_any(self) -> AsyncIterator[bytes]:
            choice = {"message": {"content": "VERDICT: correct"}, "finish_reason": "stop"}
            yield json.dumps({"choices": [choice], "error": {"message": "out of memory"}}).encode()

    class Response:
        headers: dict[str, str] = {}  # noqa: RUF012
        content = Content()

    response: Any = Response()
    with pytest.raises(Unreadable, match="out of memory"):
        asyncio.run(document_of(response))
