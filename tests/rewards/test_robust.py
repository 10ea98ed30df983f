"""The robust reward: its worked cases, and what a change of the text may do to it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from factrl.errors import ConfigError, Unscored
from factrl.llm import FakeLLM
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.types import Claim, Completion, Example, Passage, Result
from factrl.verifier import Verifier
from factrl.verifier.claims import SentenceClaims
from judging import Judge, JudgeBy

TRUE = [
    "Marie Curie was born in Poland.",
    "Marie Curie was born in 1867.",
    "Marie Curie died in France.",
    "Warsaw has an old castle.",
    "Curie won the Nobel Prize in physics.",
    "The city lies on the Vistula.",
]
PARAPHRASES = ["Poland is where Marie Curie was born.", "Born in Poland was Marie Curie."]
TOPIC = [f"Element number {number} has {number} protons." for number in range(1, 26)]
TRIVIA = ["A bachelor is unmarried.", "The year 2024 is after 2023.", "Paris is not in Peru."]
VAGUE = ["Marie Curie is a notable figure with several achievements."]
FALSE = ["Marie Curie was born in Lyon.", "Marie Curie was a lawyer.", "Curie left Peru in 1950."]
SUPPORTED = {*TRUE, *PARAPHRASES, *TOPIC, *TRIVIA, *VAGUE}
CURIE = Example(
    "In which city was Marie Curie born?", ("Warsaw",), id="curie", evidence=(Passage(" ".join(TRUE)),)
)


def by_heart(lost: Sequence[str] = ()) -> JudgeBy:
    """Supports the sentences it was given; everything else is refuted."""
    return JudgeBy(
        lambda said: "unjudged" if said in lost else "supported" if said in SUPPORTED else "refuted"
    )


def score(
    think: str | None, said: str, word: str = "incorrect", *, lost: Sequence[str] = (), **knobs: object
) -> Result:
    """The reward with a grader that says `word`, and no more than the tags around the two texts."""
    judge = (FakeLLM if word == "declines" else Judge)(lambda messages: f"So it is.\nVERDICT: {word}")
    reward = load_reward("robust").with_(
        grade=Grader(judge),
        verify=Verifier(SentenceClaims(), None, by_heart(lost), own_subject=False),
        **knobs,
    )
    text = said if think is None else f"<think>{think}</think><answer>{said}</answer>"
    return reward(CURIE, text)


def value(think: str | None, said: str, word: str = "incorrect", **more: object) -> float:
    found = score(think, said, word, **more).value  # type: ignore[arg-type]
    assert found is not None
    return found


FACTS = " ".join(TRUE)
HONEST = {
    "know": value(FACTS, "Warsaw"),
    "partial": value("It was long ago.", f"{TRUE[0]} {TRUE[1]} I have no idea, sorry.", "declines"),
    "abstain": value("It was long ago.", "I don't know."),
    "wrong": value(" ".join([*TRUE[:2], *FALSE]), "Lyon"),
}


def test_the_honest_answers_are_in_order_and_a_floored_one_is_not_above() -> None:
    assert HONEST["know"] > HONEST["partial"] > HONEST["abstain"] > HONEST["wrong"] >= value("", "Warsaw")
    assert HONEST["know"] == pytest.approx(1 + 0.5 * 6 / 12)
    assert HONEST["partial"] == pytest.approx(0.25 * 2 / 12)


def test_no_amount_of_facts_lifts_one_outcome_over_another() -> None:
    facts = " ".join(f"Marie Curie wrote letter {number} in {number + 1000}." for number in range(200))

    verify = Verifier(SentenceClaims(), None, JudgeBy(lambda _: "supported"), max_claims=500)
    judge = Judge(lambda messages: f"VERDICT: {word}")
    reward = load_reward("robust").with_(grade=Grader(judge, max_answer_chars=20_000), verify=verify)
    found = {}
    for word in ("correct", "not_attempted", "incorrect"):
        found[word] = reward(CURIE, f"<think>{facts}</think><answer>{facts}</answer>").value
    assert found == {"correct": 1.5, "not_attempted": -1, "incorrect": -1}


# What a change of the text may do (metamorphic relations)


@pytest.mark.parametrize("known", range(1, 6))
def test_more_and_false_and_repeated_claims(known: int) -> None:
    base = value(" ".join(TRUE[:known]), "Warsaw")
    assert value(" ".join(TRUE[: known + 1]), "Warsaw") > base  # R1: new and true
    assert value(" ".join([*TRUE[:known], FALSE[0]]), "Warsaw") < base  # R2: false
    assert value(" ".join([*TRUE[:known], TRUE[0]]), "Warsaw") == base  # R3: again
    assert value(" ".join([*TRUE[:known], PARAPHRASES[0]]), "Warsaw") == base  # R3: in other words
    assert value(" ".join(TRUE[:known][::-1]), "Warsaw") == base  # R4: in another order
    assert value(" ".join([*TRUE[:known], TOPIC[0]]), "Warsaw") == base  # R5: beside the question
    assert value("\n".join(f"- {fact}" for fact in TRUE[:known]), "Warsaw") == base  # R7: as a list
    hedged = ["Some people say that " + TRUE[0], *TRUE[1:known]]
    assert value(" ".join(hedged), "Warsaw") <= base  # R8
    assert value(" ".join(["She was nice.", *TRUE[1:known]]), "Warsaw") < base  # R9: uncheckable


def test_invisible_characters_change_nothing() -> None:  # R6
    assert value(FACTS.replace(". ", ".\r\n"), "War\u200bsaw ") == HONEST["know"]


@pytest.mark.parametrize(("answer", "outcome"), [("Lyon", -1), ("Warsaw", 1)])
def test_an_added_refusal_does_not_make_an_abstention(answer: str, outcome: float) -> None:  # R13
    word = "correct" if outcome == 1 else "incorrect"
    assert score("Hm.", f"{answer}. I don't know.", word).terms["outcome"] == outcome
    assert score("Hm.", f"I don't know. {answer}.", word).terms["outcome"] == outcome


# Partial answers


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (TRUE[0], 0.25 / 12),
        (f"{TRUE[0]} {TRUE[1]}", 0.25 * 2 / 12),
        (FALSE[1], -1),
        (f"{TRUE[0]} {FALSE[0]}", -1),
        ("Marie Curie was born in a city.", 0),
        (TOPIC[0], 0),
    ],
)
def test_what_stands_beside_a_refusal_must_be_true(said: str, expected: float) -> None:
    assert value("Hm.", f"{said} I have no idea, sorry.", "declines") == pytest.approx(expected)


def test_a_missing_verdict_that_decides_between_two_outcomes_masks() -> None:
    found = score("Hm.", f"{TRUE[0]} I have no idea, sorry.", "declines", lost=[TRUE[0]])
    assert (found.state, found.cause) == ("masked", "claims_unjudged")
    text = f"{TRUE[0]} {FALSE[0]} I have no idea, sorry."
    found = score("Hm.", text, "declines", lost=[TRUE[0]])
    assert found.value == -1  # the other claim decides


def test_our_own_failures_mask_and_the_policys_floor() -> None:
    def extract(text: str, question: str = "", topic: str = "") -> list[Claim]:
        raise Unscored("timeout", "no answer", stage="extract")

    reward = load_reward("robust").with_(grade=Grader())
    failing = reward.with_(verify=Verifier(extract, None, by_heart()))
    assert failing(CURIE, "<think>Hm.</think><answer>Warsaw</answer>").cause == "timeout"
    short = reward.with_(verify=Verifier(SentenceClaims(), None, by_heart(), max_chars=50))
    found = short(CURIE, Completion(f"{FACTS}</think><answer>Warsaw</answer>", prefill="<think>"))
    assert (found.state, found.cause, found.value) == ("floored", "oversize", -1.25)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"abstain": 0.3}, r"0\.05 to 0\.55 \(abstain\)"),
        ({"partial": 0.5}, "bands must not meet"),
        ({"floor": -0.5}, "bands must not meet"),
        ({"enough": 0}, "must be positive"),
        ({"answer": "boxed"}, "answer='boxed' is not tags or text"),
    ],
)
def test_settings_under_which_cheating_could_pay(knobs: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        score("Hm.", "Warsaw", **knobs)  # type: ignore[arg-type]
