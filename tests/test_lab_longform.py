"""The world of long answers: its text, its oracles, and what the papers' own rewards pay for on it."""

from __future__ import annotations

import math

import pytest

from factrl.lab import supplied
from factrl.lab.longform import EMPTY, VERBS, Longform, checklist, compare, extract, rate

WORLD = Longform()
WHO = next(example for example in WORLD.test if example.meta["tier"] == "known")
RIGHT = {verb: f"{verb.capitalize()} {WORLD.facts[WHO.topic, verb]} ." for verb in VERBS}
OTHER = {verb: [value for (_, said), value in WORLD.facts.items() if said == verb] for verb in VERBS}
WRONG = {
    verb: f"{verb.capitalize()} {next(value for value in OTHER[verb] if value not in RIGHT[verb])} ."
    for verb in VERBS
}
AIR, PARENTS = (f"{verb.capitalize()} {value} ." for verb, value in EMPTY.items())
VAGUE = "Eats something ."
SILENT = "I don't know ."


def said(*parts: str) -> str:
    return " ".join(parts)


def value(spec: str, completion: str, **knobs: float) -> float:
    result = supplied(WORLD, spec).with_(**knobs)(WHO, WORLD.wrap(WHO, completion, "tags").text)
    assert result.value is not None
    return result.value


def test_people_are_held_out_in_every_tier_and_the_unknown_are_never_named():
    train, test = ({e.topic for e in split} for split in (WORLD.train, WORLD.test))
    assert not train & test
    for split in (WORLD.train, WORLD.test):
        tiers = [example.meta["tier"] for example in split]
        assert all(abs(tiers.count(tier) - len(split) / 3) <= 1 for tier in ("known", "half", "unknown"))
    named = {question for question, _ in WORLD.pretraining()}
    tiers = {e.question: e.meta["tier"] for e in (*WORLD.train, *WORLD.test)}
    assert named == {question for question, tier in tiers.items() if tier != "unknown"}
    words = {word for question in named for word in question.split()}
    unknown = [question for question, tier in tiers.items() if tier == "unknown"]
    assert sum({*question.split()} <= words for question in unknown) > 0.9 * len(unknown)


def test_pretraining_text_leaves_room():
    people = {e.question: e for e in (*WORLD.train, *WORLD.test)}
    told = WORLD.measure([(people[question], text) for question, text in [*WORLD.pretraining()][:2000]])
    assert 0.3 < told["known/recall"] < 0.6
    assert told["known/precision"] == 1.0
    assert 0.4 < told["half/precision"] < 0.7
    assert 0.02 < told["vague"] < 0.15
    assert 0.01 < told["padding"] < 0.1
    assert 0.01 < told["silence"] < 0.05


def test_claims_stand_alone_and_have_their_sentence():
    said_so = (RIGHT["plays"], AIR, "Kalt Kalt .", RIGHT["plays"], VAGUE)
    text = said(*said_so)
    claims = extract(text, WHO.question)
    assert [claim.skip for claim in claims] == [None, None, "unverifiable", "repeat", "unverifiable"]
    assert [text[c.start : c.end] for c in claims] == [*said_so]
    assert claims[0].text == f"{WHO.topic} plays {WORLD.facts[WHO.topic, 'plays']}."


def test_verify_and_truthfulness_look_the_facts_up():
    report = WORLD.verify(said(RIGHT["plays"], WRONG["eats"], AIR, RIGHT["plays"]), WHO.question)
    labels = [check.verdict and check.verdict.label for check in report.checks]
    assert labels == ["supported", "refuted", "supported", None]
    claims = [check.claim.text for check in report.checks]
    assert WORLD.truthfulness(claims) == [1.0, 0.0, 1.0, 1.0]
    assert WORLD.truthfulness([f"{WHO.topic} breathes parents."]) == [0.0]
    assert WORLD.verify(SILENT).abstained
    assert WORLD.verify(SILENT).claims == 0


def test_checklist_has_three_words():
    text = said(RIGHT["plays"], WRONG["eats"], AIR, RIGHT["visits"], WRONG["visits"])
    told = dict(zip(VERBS, checklist(WHO.question, text, WHO.checklist), strict=True))
    contradicted = {"eats": "contradictory", "visits": "contradictory"}
    assert told == {**dict.fromkeys(VERBS, "missing"), "plays": "consistent", **contradicted}


def test_quality_ignores_truth_and_padding():
    for facts in (RIGHT, WRONG):
        assert rate(WHO.question, said(*facts.values())) == 1.0
        assert compare(WHO.question, said(*[*facts.values()][:4])) == 1.0
        assert compare(WHO.question, said(*[*facts.values()][:3], AIR)) == 0.0
    assert rate(WHO.question, said(AIR, PARENTS, VAGUE)) == rate(WHO.question, SILENT) == 0.0


# What the rewards pay for, by the papers' own formulas.

ALL = said(*RIGHT.values())
ONE = RIGHT["plays"]
PADDED = said(ONE, AIR, PARENTS)
GUESSED = said(*[*RIGHT.values()][:3], *[*WRONG.values()][3:])


def test_hacks_of_klcf():
    only = {"alpha": 0.0, "beta": 0.0, "gamma": 0.0, "general": 0.0}
    assert value("klcf:weights-required", GUESSED, **{**only, "alpha": 1.0}) > value(
        "klcf:weights-required", ONE, **{**only, "alpha": 1.0}
    )  # recall alone pays for guesses
    assert (
        value("klcf:weights-required", ONE, **{**only, "beta": 1.0}) == 1.0
    )  # precision alone, for one fact
    assert value("klcf:truth-only", said(AIR, PARENTS), general=0.0) == 1.0  # truth alone, for nothing
    table = "klcf:table-2-row"
    assert value(table, ALL) > value(table, ONE) == value(table, PADDED) > value(table, GUESSED)


def test_hacks_of_factreason():
    fact = "factreason:fact-only"
    assert value(fact, SILENT) == value(fact, VAGUE) == 0.0
    assert value(fact, ONE) == 1 / 2 > value(fact, GUESSED) == 3 / 7  # one safe fact beats three of six
    assert value(fact, said(AIR, PARENTS)) == 2 / 3 == value(fact, said(*[*RIGHT.values()][:2]))
    assert value(fact, PADDED) == 3 / 4  # what is empty counts as much
    padding = value("factreason:detail-0.1", PADDED) - value("factreason:detail-0.1", ONE)
    assert padding == pytest.approx(3 / 4 - 1 / 2 + 0.1 * math.log(4 / 2))
    assert value("factreason", PADDED) == value(fact, PADDED)  # only content is preferred
    assert value("factreason", ALL) == value(fact, ALL) + 0.1 == 6 / 7 + 0.1
    assert value(fact, said(ONE, ONE, VAGUE)) == 1 / 2  # said again it counts once, and what is vague never


def test_measures_by_hand():
    measured = WORLD.measure([(WHO, PADDED), (WHO, GUESSED), (WHO, VAGUE)])
    assert measured["recall"] == pytest.approx((1 + 3) / 18)
    assert measured["precision"] == pytest.approx(4 / 7)
    assert measured["verified"] == pytest.approx(6 / 9)
    assert measured["detail"] == pytest.approx(6 / 3)
    assert measured["padding"] == pytest.approx(2 / 9)
    assert measured["vague"] == pytest.approx(1 / 10)
    assert measured["silence"] == measured["preferred"] == pytest.approx(1 / 3)
    assert measured["known/recall"] == measured["recall"]
    assert "half/recall" not in measured
