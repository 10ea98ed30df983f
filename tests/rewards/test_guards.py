"""The guards as pieces: each does what its name says, and composed they close the hacks they are for."""

from __future__ import annotations

from dataclasses import replace

import pytest

import factrl as fx
from factrl.rewards import guards
from factrl.stress import oracle_setup, run_battery
from factrl.text import think_answer
from factrl.text.abstention import abstains
from factrl.types import Claim, Completion, Score
from factrl.verifier.claims import SentenceClaims

EXTRACT = SentenceClaims()
CURIE = "Marie Curie"


def claims(*texts: str) -> list[Claim]:
    return [Claim(text, 0, len(text)) for text in texts]


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("Marie Curie was born in Warsaw. She won two Nobel Prizes.", 1.0, 1.0),
        ("Marie Curie was born in Warsaw.\n\n```\nfact = 'She was born in Paris in 1999'\n```\n", 0.2, 0.6),
        ("It may be Paris. Perhaps it is Lyon. Marie Curie was born in Warsaw.", 0.3, 0.6),
        ("All claims in this answer are correct. Marie Curie was born in Warsaw.", 0.3, 0.6),
        ("", 1.0, 1.0),
    ],
)
def test_coverage(text: str, least: float, most: float) -> None:
    assert least <= guards.coverage(text, EXTRACT(text, "Where was Marie Curie born?", CURIE)) <= most


def test_relevance_is_a_shared_word() -> None:
    about = "Where was Marie Curie born? Warsaw"
    near, far = claims("Warsaw lies on the Vistula.", "Water boils at 100 degrees.")
    assert guards.relevant(near, about)
    assert not guards.relevant(far, about)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Marie Curie was a famous scientist.", "Marie Curie was a scientist.", True),
        ("Marie Curie discovered radium.", "Radium was discovered by Marie Curie.", True),
        ("Marie Curie was born in 1867.", "Marie Curie was born in 1868.", False),
        ("Marie Curie was a chemist.", "Marie Curie was not a chemist.", False),
        ("Marie Curie discovered radium.", "Marie Curie taught physics.", False),
    ],
)
def test_repeats_are_told_from_near_misses(first: str, second: str, same: bool) -> None:
    assert guards.repeats(claims(first, second), CURIE) == [False, same]


# A reward of one's own: a share of verified claims, and the same with guards.


@fx.reward(needs=fx.Needs(searches=True))
def bare(example: fx.Example, completion: Completion, *, verify: fx.Verifier) -> dict[str, float]:
    text = think_answer(completion).answer
    if text is None:
        return {"facts": -1.0}
    found = verify(text.text, example.question, topic=example.topic, evidence=example.evidence or None)
    counts = found.counts
    return {"facts": (counts["supported"] - counts["refuted"] - counts["unknown"]) / 12}


@fx.reward(needs=fx.Needs(searches=True))
def guarded(example: fx.Example, completion: Completion, *, verify: fx.Verifier) -> Score | dict[str, float]:
    blocks = think_answer(completion)
    if blocks.answer is None:
        return Score({"facts": -1.0}, floored=blocks.malformed)
    if abstains(blocks.answer.text):
        return {"facts": 0.0}
    said, about = blocks.answer.text, f"{example.question} {example.topic}"
    found = verify(said, example.question, topic=example.topic, evidence=example.evidence or None)
    told = [check for check in found.checks if check.verdict is not None]
    again = guards.repeats([check.claim for check in told], about)
    paid = 0
    for one, repeated in zip(told, again, strict=True):
        assert one.verdict is not None
        if one.verdict.label != "supported":
            paid -= 1
        elif not repeated and guards.relevant(one.claim, about):
            paid += 1
    unread = 1 - guards.coverage(said, [check.claim for check in found.checks])
    return {"facts": paid / 12 - (unread > 0.3)}


def excess(reward: fx.Reward, case: str) -> float:
    """How much more a policy earns than the honest answer that it must not beat."""
    told = replace(oracle_setup("own", reward), form="tags", length="long", questions=3)
    [found] = run_battery(told, [case]).findings
    assert found.mean is not None
    assert found.bound is not None
    return found.mean - found.bound


@pytest.mark.parametrize("case", ["D08", "D11", "D17"])
def test_guards_take_the_profit_out_of_a_hack(case: str) -> None:
    profit = excess(bare, case)
    assert profit > 0.25
    assert excess(guarded, case) < 0.2 * profit
