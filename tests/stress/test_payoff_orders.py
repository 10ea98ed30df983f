"""Which way each published reward pushes: the order of what it pays, by the judges of `factrl show`.

A row has the order of pay-offs from which came what a table of trainings in made-up worlds showed
(notebook/training.md, "The lab"), and knobs, or all signs turned, with which the order does not hold.
Methods without a reward (SFT, RFT, R-Tuning, DPO) have no row.

A completion is written as

    right, declined, wrong, malformed     the answers of `payoffs`
    right:TF                              an answer behind a reasoning of a true and a false sentence
    TTFS                                  a long answer: sentences that are true, false, or true of everybody
    step:T                                the signs that its tokens get instead of what it earns
    right cited                           an answer with the passage that says it
    declined scattered                    in a group whose other answers all differ
    right sure, right unsure              with a confidence of 0.9, of 0.2
    even                                  half of what the right answer earns and half of the wrong one's

and behind it `@worst` (all else comes out badly), `@beyond` (out of the model's knowledge) or a threshold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from factrl.papers import form_of, load_reward
from factrl.rewards import Reward
from factrl.stress.payoffs import PROBE, Payoff, payoffs, scripted
from factrl.types import Completion, Example, Result, Score

UPSIDE_DOWN: dict[str, Any] = {}  # the mutant of rewards without a knob for it

ROWS: list[tuple[str, str, Mapping[str, Any]]] = [
    # people, and search with its documents given or looked up: who declines, and where
    ("truthrl:binary", "right > declined = wrong = malformed", {"abstain": 0.0}),
    ("truthrl:ternary", "right > declined > wrong", {"abstain": -1.0}),
    (
        "truthrl:knowledge-binary",
        "right > declined = wrong; declined@beyond > right@beyond = wrong@beyond",
        {"knowledge": False},
    ),
    (
        "truthrl:knowledge-ternary",
        "right > declined > wrong; declined@beyond > right@beyond = wrong@beyond",
        {"knowledge": False},
    ),
    ("knowrl:format", "right = declined = wrong > malformed", {"weight_correct": 1.0}),
    (
        "knowrl:format+fact",
        "right = declined = wrong > malformed; wrong:T > wrong:TF > right:F",
        {"weight_fact": 0.0},
    ),
    (
        "knowrl:format+correct",
        "right > declined > wrong > malformed; right:T = right:F",
        {"weight_fact": 1.0},
    ),
    (
        "knowrl:paper",
        "right > declined > wrong > malformed; declined:F > wrong:T; declined:T > declined:F",
        {"abstain": -1.0},
    ),
    ("knowrl:no-refusal", "right > declined = wrong > malformed; wrong:T > declined:F", {"abstain": 1.0}),
    # confidence: is it as sure as it is right
    (
        "rlcr:rlcr",
        "right sure > right unsure > wrong unsure > wrong sure; declined = wrong",
        {"calibration": 0.0},
    ),
    ("rlcr:rlvr", "right > declined = wrong > malformed", UPSIDE_DOWN),
    ("rlcr:rlvr-analysis", "right sure = right unsure > wrong unsure = wrong sure", {"calibration": 1.0}),
    ("threshold:threshold", "even@0.1 > declined@0.1 = declined@0.9 > even@0.9", UPSIDE_DOWN),
    ("threshold:bounded", "even@0.1 > declined@0.1 = declined@0.9 > even@0.9", UPSIDE_DOWN),
    ("truthrl:ternary", "even@0.1 = declined@0.1 = even@0.9", {"wrong": -2.0}),
    ("robust:robust", "right > declined > wrong > malformed", UPSIDE_DOWN),
    # steps: right steps beside a right answer
    ("fspo:outcome", "right:T = right:F > declined:T = wrong:T; step:T = step:F", {"fact": True}),
    (
        "fspo:outcome+fact",
        "right:T > right:TF > right:F; wrong:T > wrong:F; declined:S > wrong:F; step:T = step:F",
        {"fact": False},
    ),
    ("fspo:signs", "right:T = right:F > wrong:T; step:T > step:TF > step:F", {"signs": False}),
    (
        "fspo:fspo",
        "right:T > right:TF > right:F; wrong:T > wrong:F; step:T > step:TF > step:F",
        {"fact": False},
    ),
    # longform: more of what is true, or less, or only what is safe
    ("factreason:paper", "TTTT > TT > T > TF; TT > TT@worst", {"weight_preference": 0.0}),
    ("factreason:fact-only", "TTT = SSS > TTF; TTTTF > TTTTTTTTFFFF; TT = TT@worst", {"weight_detail": 0.1}),
    ("factreason:detail-0.1", "TTTTTTTTFFFF > TTTTF; TTT = SSS; TT > TT@worst", {"weight_detail": 0.0}),
    (
        "klcf:table-2-row",
        "TTTT > TTTF > T > SSS; TT > TTF; TT > TT@worst",
        {"alpha": 0.0, "beta": 0.0, "gamma": 1.0},
    ),
    ("klcf:truth-only", "TTTT = T = SSS > TTTF > F; TT > TT@worst", {"alpha": 0.4}),
    ("klcf:factscore", "TTTT = T = SSS > TTTF > TF > F; right > declined = wrong > malformed", UPSIDE_DOWN),
]

_THINGS = [*("school", "home", "choir", "bakery", "garden", "doctor", "market", "bridge"), *"abcd"]
_KINDS = {"T": "Curie's {} was in Warsaw.", "F": "Curie's {} was in Paris.", "S": "Curie's {} had a name."}
_ANSWERS = {"right": "Warsaw", "declined": "I don't know", "wrong": "Paris"}
_OUTCOMES = {"right": "correct", "declined": "abstained"}
_SURE = {"sure": 0.9, "unsure": 0.2}
_WHEN = {"worst": "all else at worst", "beyond": "out of knowledge"}
_CHECKLIST = tuple(_KINDS["T"].format(thing) for thing in _THINGS[:4])


def listed(question: str, text: str, items: tuple[str, ...]) -> list[str]:
    """A checklist's items in a text: said, said of Paris, or not."""
    said = {True: "consistent", False: "missing"}
    return ["contradictory" if i.replace("Warsaw", "Paris") in text else said[i in text] for i in items]


def spoken(kinds: str) -> str:
    return " ".join(_KINDS[kind].format(thing) for kind, thing in zip(kinds, _THINGS, strict=False))


def earned(spec: str, reward: Reward, name: str, known: Sequence[Payoff]) -> float:
    """What the reward pays for a completion, as it is written here; `known` is from `payoffs`."""
    name, _, when = name.partition("@")
    what, _, more = name.partition(" ") if " " in name else name.partition(":")
    form = form_of(spec, reward)
    if when[:1].isdigit():
        example = replace(PROBE, meta={"threshold": float(when)})
        paid = {one: _paid(reward, example, _written(form, one, "")) for one in _ANSWERS}
        paid["even"] = (paid["right"] + paid["wrong"]) / 2
        return paid[what]
    if not more and set(what) - set(_KINDS):
        found = next((one for one in known if one.when == _WHEN.get(when)), known[0])
        return _value(found.results[_OUTCOMES.get(what, what)])
    example = replace(PROBE, checklist=_CHECKLIST)
    if what == "step":
        return sum(
            span.sign for span in _result(reward, example, _written(form, "right", spoken(more))).spans
        )
    if not more:
        text = spoken(what) if form == "text" else f"<think>Hm.</think><answer>{spoken(what)}</answer>"
        return _paid(reward, example, text, good=when != "worst")
    text = _written(form, what, spoken(more) if set(more) <= set(_KINDS) else "")
    if more in _SURE:
        text += f"<analysis>Hm.</analysis><confidence>{_SURE[more]}</confidence>"
    others = tuple(text.replace(_ANSWERS[what], city) for city in ("Lyon", "Paris", "Berlin", "Vienna"))
    return _paid(reward, example, text + " [1]" * (more == "cited"), others=others)


def _written(form: str, answer: str, thought: str) -> str:
    said = f"\\boxed{{{_ANSWERS[answer]}}}" if form == "boxed" else f"<answer>{_ANSWERS[answer]}</answer>"
    return f"<think>{thought or 'Hm.'}</think>{said}"


def _result(
    reward: Reward, example: Example, text: str, others: tuple[str, ...] = (), good: bool = True
) -> Result:
    own = {"checklist": listed, "group": lambda completion: (completion, *others)}
    judged = scripted(reward, good=good)
    judged = judged.with_(**{name: made for name, made in own.items() if name in reward.resources})
    return judged(example, Completion(text))


def _paid(*given: Any, **more: Any) -> float:
    return _value(_result(*given, **more))


def _value(result: Result) -> float:
    assert result.value is not None, result.cause
    return result.value


def broken(spec: str, reward: Reward, order: str) -> Iterator[str]:
    """The steps of an order that a reward does not keep."""
    known = payoffs(reward)
    for chain in order.split("; "):
        names, signs = re.split(r" [>=] ", chain), re.findall(r" ([>=]) ", chain)
        paid = [earned(spec, reward, name, known) for name in names]
        for n, sign in enumerate(signs):
            kept = paid[n] > paid[n + 1] + 1e-9 if sign == ">" else paid[n] == pytest.approx(paid[n + 1])
            if not kept:
                yield f"{names[n]} {sign} {names[n + 1]}: {paid[n]:g}, {paid[n + 1]:g}"


def upside_down(reward: Reward) -> Reward:
    """The reward with the sign of all that it pays wrong."""

    def fn(*given: Any, **named: Any) -> Score:
        made = reward.fn(*given, **named)
        score = made if isinstance(made, Score) else Score(made)
        return replace(score, terms={name: -value for name, value in score.terms.items()})

    return replace(reward, fn=fn)


@pytest.mark.parametrize(("spec", "order", "knobs"), ROWS, ids=[row[0] for row in ROWS])
def test_a_reward_pays_in_the_order_that_its_training_showed(
    spec: str, order: str, knobs: Mapping[str, Any]
) -> None:
    reward = load_reward(spec)
    assert [*broken(spec, reward, order)] == []
    assert [*broken(spec, reward.with_(**knobs) if knobs else upside_down(reward), order)] != []
    if ">" in order.partition("step:")[0]:
        assert [*broken(spec, upside_down(reward), order)] != []
