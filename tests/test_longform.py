from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factrl.errors import Unscored
from factrl.evals.longform import (
    compare_long,
    point,
    row_of,
    score_batch,
    summarise_long,
    undecided,
)
from factrl.evals.metrics import Interval
from factrl.evals.samples import LongRow, Row
from factrl.types import Claim, Example, Finding, Passage, Verdict
from factrl.verifier import Check, Report, Verifier
from factrl.verifier.judges import WeakJudge
from factrl.verifier.report import WIDTH

LETTERS: Mapping[str, Finding] = {"S": "supported", "R": "refuted", "U": "unknown", "?": "unjudged"}
PARITY: dict[str, Any] = json.loads(
    (Path(__file__).parent / "fixtures" / "longform_parity.json").read_text("utf-8")
)
EXACT = pytest.approx  # of numbers that only rounding may tell apart


def report(verdicts: str, **about: Any) -> Report:
    """One claim per letter; "." is a claim that is skipped, "0" one without evidence."""
    checks = []
    for number, letter in enumerate(verdicts):
        claim = Claim(f"claim {number}", 0, 1, skip="repeat" if letter == "." else None)
        verdict = Verdict("unknown", by="j", cause="no_evidence") if letter == "0" else None
        if letter in LETTERS:
            verdict = Verdict(LETTERS[letter], by="j", cause="timeout" if letter == "?" else None)
        checks.append(Check(claim, (), verdict))
    return Report(text=verdicts, checks=tuple(checks), judge="j", **about)


def row(verdicts: str, name: str = "a", **about: Any) -> LongRow:
    return row_of(name, report(verdicts, **about))


def rows(*verdicts: str) -> list[LongRow]:
    return [row(text, f"q{number}") for number, text in enumerate(verdicts)]


def values(found: Mapping[str, Interval | None]) -> dict[str, float | None]:
    return {name: interval.value if interval else None for name, interval in found.items()}


class Scripted:
    """A verifier whose texts are their own verdicts."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], list[str], Any]] = []

    def batch(
        self,
        texts: Sequence[str],
        questions: Sequence[str] | None = None,
        *,
        topics: Sequence[str] | None = None,
        evidence: Any = None,
    ) -> list[Report]:
        self.calls.append((list(texts), list(topics or ()), evidence))
        return [self.one(text) for text in texts]

    def one(self, text: str) -> Report:
        if text == "fail":
            return report("", failure=Unscored("timeout", "no claims in time"))
        if text == "long":
            return report("", floored="oversize")
        return report("", abstained=True) if text == "idk" else report(text)


# --- numbers by hand ---------------------------------------------------------------------------


def test_every_metric_is_what_its_definition_says() -> None:
    # S, T: (2, 4), (3, 3), (0, 2); the third response has no evidence for one of its claims.
    found = values(summarise_long(rows("SSRU", "SSS", "R0"), 4))
    p = (0.5 + 1 + 0) / 3
    f1 = (2 * 0.5 * 0.5 / 1 + 2 * 1 * 0.75 / 1.75 + 0) / 3
    recall = (2 / 4 + 3 / 4 + 0) / 3
    penalty = [math.exp(1 - 10 / t) for t in (4, 3, 2)]
    assert found == EXACT(
        {
            "respond_ratio": 1.0,
            "factscore": (0.5 * penalty[0] + penalty[1]) / 3,
            "factscore_unpenalised": p,
            "precision": p,
            "precision_micro": 5 / 9,
            "detail": 5 / 3,
            "claims": 3.0,
            "recall@4": recall,
            "f1@4": f1,
            "f1_micro@4": 2 * (5 / 9) * recall / (5 / 9 + recall),
            "precision/all": p,
            "recall@4/all": recall,
            "f1@4/all": f1,
        },
        abs=1e-12,
    )


def test_the_three_treatments_of_a_response_without_claims() -> None:
    found = summarise_long([*rows("SSSS"), row("", "b"), row("", "c", abstained=True)], 4, gamma=0)
    got = values(found)
    assert got["respond_ratio"] == EXACT(1 / 3)
    assert got["factscore"] == 1.0, "FActScore: only those with claims"
    assert got["precision"] == got["f1@4"] == 0.5, "VeriScore: the one that declines is left out"
    assert got["precision/all"] == got["f1@4/all"] == EXACT(1 / 3), "SAFE and KLCF: both are 0"
    assert (got["claims"], got["detail"]) == (4.0, 2.0)


def test_what_counts_as_an_answer_and_as_a_claim() -> None:
    assert values(summarise_long([row("SR", abstained=True)], 2))["precision"] == 0.5
    skipped = row("S.R.")
    assert (values(summarise_long([skipped], 2))["precision"], skipped.skipped) == (0.5, 2)
    floored = values(summarise_long([*rows("SS"), row("", "b", floored="oversize")], 2, gamma=0))
    assert floored["factscore"] == floored["precision"] == floored["f1@2/all"] == 0.5
    assert floored["respond_ratio"] == 1.0
    declined = values(summarise_long([row("", abstained=True)], 3))
    assert declined["respond_ratio"] == declined["f1@3/all"] == 0.0
    for name in ("precision", "factscore", "precision_micro", "f1_micro@3"):
        assert declined[name] is None
    for nothing in ([], [LongRow("a", cause="timeout")]):
        assert {*summarise_long(nothing, 32).values()} == {*point([], 32).values()} == {None}


COUNTS = st.integers(0, 70).flatmap(
    lambda t: st.integers(0, t).flatmap(lambda s: st.tuples(st.just(s), st.just(t), st.integers(0, t - s)))
)


@given(COUNTS, st.integers(0, 30))
@settings(max_examples=60)
def test_a_single_response_has_the_scores_of_its_report(counts: tuple[int, int, int], gamma: int) -> None:
    supported, claims, unjudged = counts
    one = report("S" * supported + "?" * unjudged + "R" * (claims - supported - unjudged))
    low, high = (point([row_of("a", one)], 2, gamma, share) for share in (0.0, 1.0))
    assert (low["precision"], high["precision"]) == EXACT(one.bounds(), abs=1e-12)
    if claims and not unjudged:
        assert low["factscore"] == EXACT(one.factscore(gamma), abs=1e-12)


def test_what_missing_verdicts_could_move_is_masked() -> None:
    assert undecided(rows("SS", "S?", "???"), 2) == [False, True, True]
    found = summarise_long(rows("SS", "S?", "???"), 2)
    assert values(found)["precision"] == 1.0
    verdicts = "S" * 30 + "R" * 9 + "?"  # which cannot matter
    assert WIDTH > 1 / 40
    assert values(summarise_long([row(verdicts)], 32))["precision"] == EXACT(30.5 / 40)
    verdicts = "S" * 5 + "R" * 34 + "?"  # precision by 1/40, recall by 1/k
    assert [undecided([row(verdicts)], k) for k in (64, 10)] == [[False], [True]]


# --- asking a verifier -------------------------------------------------------------------------


def test_rows_come_in_order_and_what_cannot_be_checked_is_masked() -> None:
    verifier: Any = Scripted()
    texts = ["SSR", "fail", "idk", "long", "SS?"]
    examples = [Example("q", id=str(number), topic=f"t{number}") for number in range(5)]
    found = score_batch(examples, texts, verifier)
    assert [r.id for r in found] == list("01234")
    assert [r.cause for r in found] == [None, "timeout", None, None, None]
    assert (found[3].floored, found[4].unjudged, found[0].judge) == ("oversize", 1, "j")
    assert [call[:2] for call in verifier.calls] == [(texts, ["t0", "t1", "t2", "t3", "t4"])]
    kept = [Row(one, None, None, benchmark="b", claims=r) for one, r in zip(examples, found, strict=True)]
    assert [Row.from_json(json.loads(json.dumps(r.to_json()))).claims for r in kept] == found


def test_a_real_verifier_checks_the_examples_own_evidence() -> None:
    def claims(text: str, question: str = "", topic: str = "") -> list[Claim]:
        parts = [part.strip() for part in text.split(".") if part.strip()]
        return [Claim(part, 0, len(text)) for part in parts]

    example = Example("Tell me about Lima.", id="lima", evidence=(Passage("Lima is the capital of Peru."),))
    verifier = Verifier(claims, None, WeakJudge())
    checked = score_batch([example], ["Lima is the capital of Peru. Lima has 90 airports."], verifier)
    assert values(summarise_long(checked, 2))["precision"] == 0.5
    assert score_batch([], [], verifier) == []


# --- differences -------------------------------------------------------------------------------


def test_two_runs_are_compared_on_the_prompts_of_both() -> None:
    before = rows("SR", "SR", "SR", "S?")
    after = [*rows("SS", "SR", "SS"), row("SS", "q3"), row("SS", "only here")]
    found = compare_long(before, after, 2)
    assert (found.n, found.left_out) == (3, 2)
    precision = found.differences["precision"]
    assert precision
    assert precision.value == EXACT(1 / 3)
    assert compare_long(before[:1], after[4:], 32).differences["precision"] is None
    same = compare_long(before, before, 2).differences["precision"]
    assert same
    assert (same.value, same.low, same.high) == (0, 0, 0)


# --- parity with the published packages --------------------------------------------------------


def decided(system: str | None = None) -> list[LongRow]:
    """The human decisions, through a report each; no annotation is an abstention."""
    found = []
    for name, model, said in PARITY["responses"]:
        if system in (None, model):
            verdicts = (said or "").replace("1", "S").replace("0", "U")
            found.append(row(verdicts, name, abstained=said is None))
    return found


@pytest.mark.parametrize("gamma", [10, 0, 25])
@pytest.mark.parametrize("system", [None, "ChatGPT", "InstructGPT", "PerplexityAI"])
def test_factscore_is_the_published_packages(system: str | None, gamma: int) -> None:
    reference = PARITY["factscore"]
    theirs = (reference["systems"][system] if system else reference["all"])[str(gamma)]
    ours = point(decided(system), 32, gamma)
    assert ours["factscore"] == EXACT(theirs["score"], abs=1e-9)
    assert ours["factscore_unpenalised"] == EXACT(theirs.get("init_score", theirs["score"]), abs=1e-9)
    assert ours["respond_ratio"] == EXACT(theirs["respond_ratio"], abs=1e-9)
    assert ours["claims"] == EXACT(theirs["num_facts_per_response"], abs=1e-9)


def test_factscore_of_each_response_is_the_published_packages() -> None:
    ours = [point([r], 32)["factscore"] for r in decided()]
    assert len(ours) == len(PARITY["factscore"]["each"]) == 249
    assert ours == [None if x is None else EXACT(x, abs=1e-9) for x in PARITY["factscore"]["each"]]
    assert PARITY["factscore"]["given_no_facts"] == "ZeroDivisionError", "where ours is left out"


@pytest.mark.parametrize("system", ["ChatGPT", "InstructGPT", "PerplexityAI"])
def test_veriscore_is_the_published_packages(system: str) -> None:
    reference = PARITY["veriscore"]["systems"]
    k, longest = reference[""]["median"], reference[""]["max"]
    ours = point(decided(system), k) | point(decided(system), longest)
    theirs = reference[system]
    pairs = {
        "precision": "precision",
        f"recall@{k}": "recall_median",
        f"recall@{longest}": "recall_max",
        f"f1@{k}": "f1_median",
        f"f1@{longest}": "f1_max",
        "detail": "supported",
    }
    assert {b: ours[a] for a, b in pairs.items()} == EXACT({b: theirs[b] for b in pairs.values()}, abs=1e-9)
    assert PARITY["veriscore"]["no_claims"] == "ZeroDivisionError", "where ours is 0"
