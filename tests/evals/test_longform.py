"""Long answers: every metric as its definition, and the published packages, have it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import Unscored
from factrl.evals.catalogue import benchmarks
from factrl.evals.grade import check_texts, claims_of
from factrl.evals.metrics import Comparison, compare_rows
from factrl.evals.numbers import claim_numbers, claim_rows, columns, statistics, undecided
from factrl.evals.samples import Claims, EvalSample
from factrl.types import Claim, Completion, Example, Passage, Verdict, VerdictLabel
from factrl.verifier import Check, Report, Verifier
from factrl.verifier.judges import WeakJudge
from factrl.verifier.report import WIDTH

LETTERS: Mapping[str, VerdictLabel] = {"S": "supported", "R": "refuted", "U": "unknown", "?": "unjudged"}
PARITY: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "longform_parity.json").read_text("utf-8")
)
LONG = benchmarks()["factscore"]
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


def claims(verdicts: str, **about: Any) -> Claims:
    return claims_of(report(verdicts, **about))


def rows(*found: Claims | str, **named: Claims) -> list[EvalSample]:
    """Answers to a prompt each; those whose claims nobody could find are named by their cause."""
    given = {**{f"q{n}": one for n, one in enumerate(found)}, **named}
    return [
        EvalSample(Example("q", id=name), None, None, claims=one)
        if isinstance(one, Claims)
        else EvalSample(Example("q", id=name), None, None, one)
        for name, one in given.items()
    ]


def values(samples: Sequence[EvalSample], k: int) -> dict[str, float]:
    return {name: number.value for name, number in claim_numbers(samples, k).items()}


# --- numbers by hand ---------------------------------------------------------------------------


def test_every_metric_is_what_its_definition_says() -> None:
    # S, T: (2, 4), (3, 3), (0, 2); the third response has no evidence for one of its claims.
    found = values(rows(claims("SSRU"), claims("SSS"), claims("R0")), 4)
    p = (0.5 + 1 + 0) / 3
    f1 = (2 * 0.5 * 0.5 / 1 + 2 * 1 * 0.75 / 1.75 + 0) / 3
    recall = (2 / 4 + 3 / 4 + 0) / 3
    penalty = [math.exp(1 - 10 / t) for t in (4, 3, 2)]
    assert found == EXACT(
        {
            "respond_ratio": 1.0,
            "factscore": (0.5 * penalty[0] + penalty[1]) / 3,
            "precision": p,
            "detail": 5 / 3,
            "recall@4": recall,
            "f1@4": f1,
        },
        abs=1e-12,
    )


def test_a_response_without_claims_is_0_but_in_factscore() -> None:
    got = values(rows(claims("SSSS"), claims(""), claims("", abstained=True)), 4)
    assert got["respond_ratio"] == EXACT(1 / 3)
    assert got["factscore"] == EXACT(math.exp(1 - 10 / 4)), "FActScore: only those with claims"
    assert got["precision"] == got["f1@4"] == EXACT(1 / 3), "SAFE and KLCF: both are 0"
    assert got["detail"] == EXACT(4 / 3)


def test_what_counts_as_an_answer_and_as_a_claim() -> None:
    assert values(rows(claims("SR", abstained=True)), 2)["precision"] == 0.5
    skipped = claims("S.R.")
    assert (values(rows(skipped), 2)["precision"], skipped.skipped) == (0.5, 2)
    floored = values(rows(claims("SS"), claims("", floored="oversize")), 2)
    assert floored["precision"] == floored["f1@2"] == 0.5
    assert floored["respond_ratio"] == 1.0
    declined = values(rows(claims("", abstained=True)), 3)
    assert declined["respond_ratio"] == declined["precision"] == declined["f1@3"] == 0.0
    assert "factscore" not in declined
    assert claim_numbers([], 32) == claim_numbers(rows("timeout"), 32) == {}


def test_what_missing_verdicts_could_move_is_masked() -> None:
    assert undecided([claims("SS"), claims("S?"), claims("???")], 2) == [False, True, True]
    verdicts = "S" * 30 + "R" * 9 + "?"  # which cannot matter
    assert WIDTH > 1 / 40
    assert values(rows(claims(verdicts)), 32)["precision"] == EXACT(30.5 / 40)
    verdicts = "S" * 5 + "R" * 34 + "?"  # precision by 1/40, recall by 1/k
    assert [undecided([claims(verdicts)], k) for k in (64, 10)] == [[False], [True]]


# --- asking a verifier -------------------------------------------------------------------------


class Scripted:
    """A verifier whose texts are their own verdicts."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.topics: list[str] = []

    def batch(
        self, texts: Sequence[str], questions: Sequence[str], *, topics: Sequence[str], evidence: Any
    ) -> list[Report]:
        self.texts += texts
        self.topics += topics
        return [self.one(text) for text in texts]

    def one(self, text: str) -> Report:
        if text == "fail":
            return report("", failure=Unscored("timeout", "no claims in time"))
        if text == "long":
            return report("", floored="oversize")
        return report("", abstained=True) if text == "idk" else report(text)


def checked(verifier: Any, *texts: Any, **how: Any) -> list[EvalSample]:
    examples = [Example("q", id=str(number), topic=f"t{number}") for number in range(len(texts))]
    given = {(str(n), 0): Completion(text) if isinstance(text, str) else text for n, text in enumerate(texts)}
    return check_texts(LONG, examples, given, verifier, **how)


def test_rows_come_in_order_and_what_cannot_be_checked_is_masked() -> None:
    verifier = Scripted()
    said = ["SSR", "fail", "idk", "long", "SS?", Unscored("http_500"), *["S"] * 9]
    found = checked(verifier, *said)
    assert [one.example.id for one in found] == [str(n) for n in range(15)]
    assert [one.cause for one in found[:7]] == [
        *(None, "timeout", None, None, "claims_unjudged", "http_500", None)
    ]
    assert (found[3].floored, found[4].detail) == ("oversize", "1 of 3 claims have no verdict")
    assert verifier.topics == [f"t{n}" for n in range(15) if n != 5]
    assert [EvalSample.from_json(json.loads(json.dumps(one.to_json()))).claims for one in found] == [
        one.claims for one in found
    ]
    assert claim_numbers(found[4:5], 32) == {}


def test_the_verifier_does_not_see_reasoning() -> None:
    verifier = Scripted()
    first, second = checked(verifier, "<think>R?</think>S\n\nS\nQuestion: Who?", "<think>R", chat=False)
    assert verifier.texts == ["S\n\nS"]
    assert (first.cause, second.floored) == (None, "no_answer")


def test_a_real_verifier_checks_the_examples_own_evidence() -> None:
    def sentences(text: str, question: str = "", topic: str = "") -> list[Claim]:
        return [Claim(part.strip(), 0, len(text)) for part in text.split(".") if part.strip()]

    example = Example("Tell me about Lima.", id="1", evidence=(Passage("Lima is the capital of Peru."),))
    texts: Any = {("1", 0): Completion("Lima is the capital of Peru. Lima has 90 airports.")}
    verifier = Verifier(sentences, None, WeakJudge())
    assert values(check_texts(LONG, [example], texts, verifier), 2)["precision"] == 0.5


# --- differences -------------------------------------------------------------------------------


def compare_long(before: Sequence[EvalSample], after: Sequence[EvalSample], k: int) -> Comparison:
    first, second = claim_rows(before, k), claim_rows(after, k)
    return compare_rows([(first.get(key), second.get(key)) for key in {**first, **second}], statistics(k))


def test_two_runs_are_compared_on_the_prompts_of_both() -> None:
    before = rows(claims("SR"), claims("SR"), claims("SR"), "claims_unjudged")
    after = rows(claims("SS"), claims("SR"), claims("SS"), claims("SS"), other=claims("SS"))
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


def point(found: Sequence[Claims], k: int) -> dict[str, float | None]:
    """The metrics without their intervals."""
    means = columns(found, k).mean(axis=0, keepdims=True)
    each = {name: float(statistic(means)[0]) for name, statistic in statistics(k).items()}
    return {name: None if math.isnan(value) else value for name, value in each.items()}


def decided(system: str | None = None) -> list[Claims]:
    """The human decisions, through a report each; no annotation is an abstention."""
    return [
        claims((said or "").replace("1", "S").replace("0", "U"), abstained=said is None)
        for _, model, said in PARITY["responses"]
        if system in (None, model)
    ]


@pytest.mark.parametrize("system", [None, "ChatGPT", "InstructGPT", "PerplexityAI"])
def test_factscore_is_the_published_packages(system: str | None) -> None:
    reference = PARITY["factscore"]
    theirs = (reference["systems"][system] if system else reference["all"])["10"]
    ours = point(decided(system), 32)
    assert ours["factscore"] == EXACT(theirs["score"], abs=1e-9)
    assert ours["respond_ratio"] == EXACT(theirs["respond_ratio"], abs=1e-9)


def test_factscore_of_each_response_is_the_published_packages() -> None:
    ours = [point([one], 32)["factscore"] for one in decided()]
    assert len(ours) == len(PARITY["factscore"]["each"]) == 249
    assert ours == [None if x is None else EXACT(x, abs=1e-9) for x in PARITY["factscore"]["each"]]
    assert PARITY["factscore"]["given_no_facts"] == "ZeroDivisionError", "where ours is left out"


@pytest.mark.parametrize("system", ["ChatGPT", "InstructGPT", "PerplexityAI"])
def test_veriscore_is_the_published_packages(system: str) -> None:
    reference = PARITY["veriscore"]["systems"]
    k, longest = reference[""]["median"], reference[""]["max"]
    answered = [one for one in decided(system) if not one.abstained]  # as VeriScore's code counts
    ours = point(answered, k) | point(answered, longest)
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
