"""The world of written steps: its text, its oracle, and FSPO's own rewards on it."""

from __future__ import annotations

import pytest

from factrl.lab import supplied
from factrl.lab.steps import Steps, verify
from factrl.types import Example, Passage

WORLD = Steps()
FACTS = "Mira Volt works at Arden . Arden is in Brone . Brone is in Kalt ."
MIRA = Example(
    "In which country does Mira Volt work ?",
    ("Kalt",),
    topic="Mira Volt",
    evidence=(Passage(FACTS),),
    meta={"tier": "known"},
)
RIGHT = f"{FACTS} so Kalt"
LUCKY = "Mira Volt works at Famor . Famor is in Brone . Brone is in Kalt . so Kalt"  # -1, unknown, +1
WRONG = "Mira Volt works at Arden . Arden is in Famel . Famel is in Fanor . so Fanor"  # +1, -1, unknown


def score(spec: str, completion: str):
    return supplied(WORLD, spec)(MIRA, WORLD.wrap(MIRA, completion, "tags").text)


def test_pretraining_text_is_often_right_with_a_wrong_step():
    people = {e.question: e for e in (*WORLD.train, *WORLD.test)}
    told = WORLD.measure([(people[question], text) for question, text in [*WORLD.pretraining()][:2000]])
    assert told["malformed"] == 0
    assert told["accuracy"] > 0.9
    assert told["lucky"] > 0.4
    assert told["known/sound"] > told["half/sound"] + 0.15


@pytest.mark.parametrize(
    ("completion", "answer", "fact", "signs"),
    [
        (RIGHT, 1.0, 1.0, [1, 1, 1]),
        (LUCKY, 1.0, 0.0, [-1, 0, 1]),
        (WRONG, 0.0, 0.0, [1, -1, 0]),
        ("Mira Volt works at Arden . so Kalt", 1.0, 1.0, [1]),
    ],
)
def test_rewards_of_fspo(completion, answer, fact, signs):
    result = score("fspo", completion)
    assert (result.state, dict(result.terms)) == ("scored", {"answer": answer, "fact": fact})
    assert [span.sign for span in result.spans] == signs
    assert dict(score("fspo:outcome", completion).terms) == {"answer": answer}
    assert dict(score("fspo:outcome+fact", completion).terms) == {"answer": answer, "fact": fact}
    assert score("fspo:outcome+fact", completion).spans == ()
    assert dict(score("fspo:signs", completion).terms) == {"answer": answer}
    assert score("fspo:signs", completion).spans == result.spans


def test_spans_are_the_sentences_and_words_know_where_they_stand():
    wrapped = WORLD.wrap(MIRA, LUCKY, "tags")
    assert wrapped.text == (
        "<think>Mira Volt works at Famor . Famor is in Brone . Brone is in Kalt . "
        "</think> <answer>Kalt</answer>".replace("<answer>Kalt", "<answer>Kalt ")
    )
    words = LUCKY.split()
    for word, start in zip(words, wrapped.starts, strict=True):
        assert wrapped.text.startswith("</think>" if word == "so" else word, start)
    spans = score("fspo", LUCKY).spans
    said = [
        [word for word, start in zip(words, wrapped.starts, strict=True) if span.start <= start < span.end]
        for span in spans
    ]
    assert [" ".join(some) for some in said] == [
        "Mira Volt works at Famor .",
        "Famor is in Brone .",
        "Brone is in Kalt .",
    ]


def test_verify_judges_what_the_evidence_speaks_of():
    text = f"{FACTS} Arden is in Kalt . Brone is in Kalt . Famor is in Brone ."
    report = verify(text, evidence=MIRA.evidence)
    labels = [check.verdict and check.verdict.label for check in report.checks]
    assert labels == ["supported"] * 3 + ["refuted", None, "unknown"]
    assert report.checks[4].claim.skip == "repeat"
    assert [text[c.claim.start : c.claim.end] for c in report.checks] == [c.claim.text for c in report.checks]
    assert report.checks[3].quote == "Arden is in Brone ."


def test_measures_by_hand():
    half = Example(MIRA.question, MIRA.answers, evidence=MIRA.evidence, meta={"tier": "half"})
    measured = WORLD.measure([(MIRA, RIGHT), (MIRA, LUCKY), (half, WRONG), (half, FACTS)])
    assert measured["accuracy"] == measured["lucky"] == 0.5
    assert measured["entailed"] == pytest.approx((1 + 1 / 3 + 1 / 3 + 0) / 4)
    assert measured["contradicted"] == pytest.approx((0 + 1 / 3 + 1 / 3 + 0) / 4)
    assert (measured["sound"], measured["malformed"]) == (0.25, 0.25)
    assert (measured["known/accuracy"], measured["half/accuracy"], measured["half/lucky"]) == (1, 0, 0)
