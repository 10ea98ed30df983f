from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factrl.errors import ConfigError, DataError, Unscored
from factrl.evals.claim_metrics import ClaimMetrics, Counts, median_k
from factrl.evals.judge_quality import JudgeQuality
from factrl.evals.longform import LongForm, LongRow, compare_long, row_of, score_batch, summarise_long
from factrl.types import Claim, Example, Finding, Verdict
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


def values(found: LongForm) -> dict[str, float | None]:
    return {name: interval.value if interval else None for name, interval in found.metrics.items()}


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
    found = values(summarise_long(rows("SSRU", "SSS", "R0"), ks=(4,)))
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
    found = summarise_long([*rows("SSSS"), row("", "b"), row("", "c", abstained=True)], ks=(4,), gamma=0)
    got = values(found)
    assert (found.n, found.declined, found.without_claims) == (3, 1, 1)
    assert got["respond_ratio"] == EXACT(1 / 3)
    assert got["factscore"] == 1.0, "FActScore: only those with claims"
    assert got["precision"] == got["f1@4"] == 0.5, "VeriScore: the one that declines is left out"
    assert got["precision/all"] == got["f1@4/all"] == EXACT(1 / 3), "SAFE and KLCF: both are 0"
    assert (got["claims"], got["detail"]) == (4.0, 2.0)


def test_an_abstention_with_claims_is_an_answer() -> None:
    found = summarise_long([row("SR", abstained=True)], ks=(2,))
    assert (found.declined, values(found)["precision"]) == (0, 0.5)


def test_claims_that_are_skipped_leave_the_denominator() -> None:
    found = summarise_long([row("S.R.")], ks=(2,))
    assert values(found)["precision"] == 0.5
    assert found.rows[0].skipped == 2


def test_a_floored_response_is_zero_and_not_an_abstention() -> None:
    found = summarise_long([*rows("SS"), row("", "b", floored="oversize")], ks=(2,), gamma=0)
    assert found.floored == {"oversize": 1}
    assert (found.declined, found.without_claims) == (0, 0)
    got = values(found)
    assert got["factscore"] == got["precision"] == got["f1@2/all"] == 0.5
    assert got["respond_ratio"] == 1.0


@pytest.mark.parametrize(("verdicts", "factor"), [("S" * 10, 1.0), ("S" * 9, math.exp(-1 / 9)), ("S", 1e-9)])
def test_the_length_penalty_ends_at_gamma(verdicts: str, factor: float) -> None:
    expected = math.exp(-9) if verdicts == "S" else factor
    assert values(summarise_long([row(verdicts)]))["factscore"] == EXACT(expected, rel=1e-12)


def test_nothing_at_all_is_undefined_everywhere() -> None:
    for found in (summarise_long([], ks=(32,)), summarise_long([LongRow("a", cause="timeout")], ks=(32,))):
        assert set(found.metrics.values()) == {None}
        assert set(found.bounds.values()) == {(None, None)}


def test_only_abstentions_have_no_precision_but_a_respond_ratio() -> None:
    found = values(summarise_long([row("", abstained=True)], ks=(3,)))
    assert found["respond_ratio"] == 0.0
    assert found["precision"] is found["factscore"] is found["precision_micro"] is found["f1_micro@3"] is None
    assert found["f1@3/all"] == 0.0


COUNTS = st.integers(0, 70).flatmap(
    lambda t: st.integers(0, t).flatmap(lambda s: st.tuples(st.just(s), st.just(t), st.integers(0, t - s)))
)


@given(COUNTS, st.integers(1, 70), st.integers(0, 30))
@settings(max_examples=60)
def test_a_single_response_has_the_scores_of_its_report(
    counts: tuple[int, int, int], k: int, gamma: int
) -> None:
    supported, claims, unjudged = counts
    one = report("S" * supported + "?" * unjudged + "R" * (claims - supported - unjudged))
    metrics = ClaimMetrics((k,), gamma)
    low, high = (metrics.point([row_of("a", one).counts], share) for share in (0.0, 1.0))
    pairs = {"precision": ("precision", None), f"recall@{k}": ("recall", k), f"f1@{k}": ("f1", k)}
    for name, (score, at) in pairs.items():
        assert (low[name], high[name]) == EXACT(one.bounds(score, at), abs=1e-12)
    if claims:
        assert (low["factscore"], high["factscore"]) == EXACT(one.bounds("factscore", gamma), abs=1e-12)


# --- K -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, -1, 2.5, "mean", True])
def test_a_wrong_k_is_refused(k: Any) -> None:
    with pytest.raises(ConfigError, match=f"K .*{k}"):
        summarise_long(rows("S"), ks=(k,))


def test_a_negative_gamma_is_refused() -> None:
    with pytest.raises(ConfigError, match="gamma must be at least 0, not -1"):
        summarise_long(rows("S"), gamma=-1)


def test_the_median_is_the_upper_one_over_responses_that_do_not_decline() -> None:
    found = summarise_long([*rows("S", "SS", "SSS", "SSSS"), row("", "z", abstained=True)], ks=("median", 3))
    assert found.ks == (3,), "and the same K twice is one"
    assert median_k([Counts(0, t) for t in (5, 1, 1)]) == 1


def test_a_median_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="median of the claims, which is 0 over 2 responses"):
        summarise_long([row("", "a"), row("", "b")], ks=("median",))


# --- missing verdicts --------------------------------------------------------------------------


def test_what_missing_verdicts_could_move_is_masked_and_shown_with_its_bounds() -> None:
    found = summarise_long(rows("SS", "S?"), ks=(2,))
    assert (found.n, found.masked) == (1, {"claims_unjudged": 1})
    assert values(found)["precision"] == 1.0
    assert found.bounds["precision"] == (0.75, 1.0)
    assert found.bounds["detail"] == (1.5, 2.0)


def test_all_claims_unjudged_is_no_number() -> None:
    found = summarise_long(rows("???"), ks=(3,))
    assert (found.n, found.metrics["precision"]) == (0, None)
    assert found.bounds["precision"] == (0.0, 1.0)


def test_a_missing_verdict_that_cannot_matter_leaves_the_middle() -> None:
    verdicts = "S" * 30 + "R" * 9 + "?"
    assert WIDTH > 1 / 40
    found = summarise_long([row(verdicts)], ks=(32,))
    assert values(found)["precision"] == EXACT(30.5 / 40)
    assert values(found)["detail"] == 30.5


def test_the_widest_share_decides_which_rows_are_masked() -> None:
    verdicts = "S" * 5 + "R" * 34 + "?"
    assert not summarise_long([row(verdicts)], ks=(64,)).masked
    assert summarise_long([row(verdicts)], ks=(10,)).masked == {"claims_unjudged": 1}, "recall by 0.1"


# --- intervals ---------------------------------------------------------------------------------


def test_responses_to_one_prompt_are_drawn_together() -> None:
    apart = rows(*["SS"] * 20, *["RR"] * 20)
    together = [row(text, f"q{number % 10 + 10 * (text == 'RR')}") for number, text in enumerate(
        ["SS"] * 20 + ["RR"] * 20
    )]  # fmt: skip
    narrow, wide = (summarise_long(found, ks=(2,)) for found in (apart, together))
    assert (narrow.prompts, wide.prompts) == (40, 20)

    def width(found: LongForm) -> float:
        interval = found.metrics["precision"]
        assert interval
        assert interval.value == 0.5
        return interval.high - interval.low

    assert width(wide) == EXACT(width(narrow) * math.sqrt(2), rel=0.1)


def test_an_interval_is_about_as_wide_as_theory_has_it() -> None:
    rng = np.random.default_rng(0)
    sample = [
        row("S" * int(s) + "R" * (20 - int(s)), str(n)) for n, s in enumerate(rng.binomial(20, 0.6, 200))
    ]
    found = summarise_long(sample, ks=(20,)).metrics["precision"]
    assert found
    half = 1.96 * np.std([r.supported / 20 for r in sample]) / math.sqrt(200)
    assert (found.high - found.low) / 2 == EXACT(half, rel=0.1)
    assert found.low < found.value < found.high


def test_the_same_seed_gives_the_same_interval() -> None:
    sample = rows(*("S" * (n % 7) + "R" * (n % 11 + 1) for n in range(40)))
    assert summarise_long(sample).metrics == summarise_long(sample).metrics
    assert summarise_long(sample).metrics != summarise_long(sample, seed=1).metrics


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_confidence_is_a_share(confidence: float) -> None:
    with pytest.raises((ConfigError, ValueError), match="strictly between 0 and 1"):
        summarise_long(rows("S"), confidence=confidence)


# --- asking a verifier -------------------------------------------------------------------------


def test_rows_come_in_order_and_what_cannot_be_checked_is_masked() -> None:
    verifier = Scripted()
    texts = ["SSR", "fail", "idk", "long", "SS?"]
    examples = [Example("q", id=str(number), topic=f"t{number}") for number in range(5)]
    found = summarise_long(score_batch(examples, texts, verifier), ks=(3,))
    assert [r.id for r in found.rows] == list("01234")
    assert found.masked == {"timeout": 1, "claims_unjudged": 1}
    assert found.floored == {"oversize": 1}
    assert (found.n, found.declined, found.judges) == (3, 1, ("j",))
    assert [call[:2] for call in verifier.calls] == [(texts, ["t0", "t1", "t2", "t3", "t4"])]


def test_a_real_verifier_checks_the_examples_own_evidence() -> None:
    def claims(text: str, question: str, topic: str) -> list[Claim]:
        parts = [part.strip() for part in text.split(".") if part.strip()]
        return [Claim(part, 0, len(text)) for part in parts]

    from factrl.types import Passage

    example = Example("Tell me about Lima.", id="lima", evidence=(Passage("Lima is the capital of Peru."),))
    verifier = Verifier(claims, None, WeakJudge())
    checked = score_batch([example], ["Lima is the capital of Peru. Lima has 90 airports."], verifier)
    found = summarise_long(checked, ks=(2,))
    assert values(found)["precision"] == 0.5
    assert found.weak
    assert score_batch([], [], verifier) == []


def test_rows_survive_a_journal() -> None:
    sample = [row("SRU?.0", "a"), row("", "b", abstained=True), row("", "c", failure=Unscored("x", "y"))]
    assert [LongRow.from_json(json.loads(json.dumps(r.to_json()))) for r in sample] == sample
    assert sample[0].claims[4] == ("claim 4", "skipped")


# --- corrected ---------------------------------------------------------------------------------


def test_precision_is_corrected_over_the_claims_that_were_judged() -> None:
    quality = JudgeQuality(((9, 1, 2, 8),) * 40, "j")
    found = summarise_long(rows("SSS0", "SRRR", "SSSS", "SSRR"), quality=quality)
    micro = found.corrected["judged_precision_micro"]
    assert micro.raw.value == EXACT(10 / 15), "the claim without evidence is not the judge's doing"
    assert micro.value == EXACT((10 / 15 + 0.8 - 1) / 0.7)
    macro = found.corrected["judged_precision"]
    assert macro.value == EXACT(((1 + 0.25 + 1 + 0.5) / 4 - 0.2) / 0.7)


def test_another_judges_quality_is_refused_and_so_is_that_of_a_useless_one() -> None:
    with pytest.raises(DataError, match="about the judge 'other', not 'j'"):
        summarise_long(rows("S"), quality=JudgeQuality(((9, 1, 2, 8),) * 40, "other"))
    with pytest.raises(DataError, match="no better than chance"):
        summarise_long(rows("S"), quality=JudgeQuality(((1, 1, 1, 1),) * 60, "j"))


def test_rows_of_two_judges_are_not_corrected() -> None:
    mixed = [LongRow("a", supported=1, judge="j"), LongRow("b", supported=1, judge="k")]
    with pytest.raises(DataError, match="2 judges"):
        summarise_long(mixed, quality=JudgeQuality(((9, 1, 2, 8),) * 40))


# --- differences -------------------------------------------------------------------------------


def test_two_runs_are_compared_on_the_prompts_of_both() -> None:
    before = rows("SR", "SR", "SR", "S?")
    after = [*rows("SS", "SR", "SS"), row("SS", "q3"), row("SS", "only here")]
    found = compare_long(before, after, ks=(2,))
    assert (found.n, found.left_out) == (3, 2)
    precision = found.differences["precision"]
    assert precision
    assert precision.value == EXACT(1 / 3)
    assert compare_long(before[:1], after[4:]).differences["precision"] is None
    same = compare_long(before, before).differences["precision"]
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
    ours = ClaimMetrics((), gamma).point([r.counts for r in decided(system)])
    assert ours["factscore"] == EXACT(theirs["score"], abs=1e-9)
    assert ours["factscore_unpenalised"] == EXACT(theirs.get("init_score", theirs["score"]), abs=1e-9)
    assert ours["respond_ratio"] == EXACT(theirs["respond_ratio"], abs=1e-9)
    assert ours["claims"] == EXACT(theirs["num_facts_per_response"], abs=1e-9)


def test_factscore_of_each_response_is_the_published_packages() -> None:
    metrics = ClaimMetrics((), 10)
    ours = [metrics.point([r.counts])["factscore"] for r in decided()]
    assert len(ours) == len(PARITY["factscore"]["each"]) == 249
    assert ours == [None if x is None else EXACT(x, abs=1e-9) for x in PARITY["factscore"]["each"]]
    assert PARITY["factscore"]["given_no_facts"] == "ZeroDivisionError", "where ours is left out"


@pytest.mark.parametrize("system", ["ChatGPT", "InstructGPT", "PerplexityAI"])
def test_veriscore_is_the_published_packages(system: str) -> None:
    reference = PARITY["veriscore"]["systems"]
    k, longest = median_k(r.counts for r in decided()), reference[""]["max"]
    assert k == reference[""]["median"]
    ours = ClaimMetrics((k, longest)).point([r.counts for r in decided(system)])
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


@pytest.mark.data
@pytest.mark.skipif("FACTRL_DATA" not in os.environ, reason="needs FACTRL_DATA")
def test_the_fixture_holds_the_annotators_decisions() -> None:
    path = Path(os.environ["FACTRL_DATA"]) / "factscore_human" / "responses.jsonl"
    stored = {name: said for name, _, said in PARITY["responses"]}
    people = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert len(people) == len(stored)
    for one in people:
        labels = [f["label"] for part in one["sentences"] or () for f in part["human_facts"] or ()]
        said = "".join("1" if x == "S" else "0" for x in labels if x != "IR")
        assert (stored[one["id"]] or "") == said
        if one["human_factscore"] is not None:
            ours = ClaimMetrics((), 0).point([Counts(said.count("1"), len(said))])["factscore"]
            assert ours == EXACT(one["human_factscore"], abs=5.1e-5)
