"""The engine: what reaches which stage, what is asked once, and what happens when a stage fails."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from functools import partial

import pytest

from factrl.errors import ConfigError, SetupError, Unscored
from factrl.types import Claim, Passage, Verdict
from factrl.verifier import Check, Report, Verifier


def per_line(text, question="", topic=""):
    """Every line is a claim."""
    claims, start = [], 0
    for number, line in enumerate(text.split("\n")):
        if line:
            claims.append(Claim(line, start, start + len(line), number))
        start += len(line) + 1
    return claims


plain = partial(Verifier, own_subject=False)  # whole passages, and nothing is settled by its words


class Echo:
    """Finds one passage per query, which says the query."""

    def __init__(self):
        self.queries = []

    def search(self, query, k=5, *, topic=""):
        self.queries.append(query)
        return [Passage(f"about {query}", title=topic)]


class Says:
    """Judges by what the claim says: `yes` supported, `no` refuted, anything else unknown."""

    identity, weak = "says", False

    def __init__(self, per_call=1):
        self.per_call, self.calls = per_call, []

    def judge(self, pairs):
        self.calls.append([claim.text for claim, _ in pairs])
        return [self.verdict(claim.text) for claim, _ in pairs]

    def verdict(self, text):
        label = "supported" if "yes" in text else "refuted" if "no" in text else "unknown"
        return Verdict(label, by=self.identity)


def labels(report):
    return [check.verdict.label if check.verdict else check.claim.skip for check in report.checks]


def checked(counts, **named):
    """A report with that many verdicts of each label."""
    checks = [
        Check(Claim("c", 0, 1), (), Verdict(label, by="t", cause="timeout" if label == "unjudged" else None))
        for label, count in counts.items()
        for _ in range(count)
    ]
    return Report("text", checks=tuple(checks), judge="t", **named)


def test_each_claim_gets_the_verdict_of_its_own_evidence():
    search, judge, seen = Echo(), Says(), []
    report = plain(per_line, search, judge)("yes a\nno b\nc", topic="T", watch=lambda *at: seen.append(at))
    assert sorted(seen) == [(1, 3), (2, 3), (3, 3)]
    assert labels(report) == ["supported", "refuted", "unknown"]
    assert [check.passages[0].text for check in report.checks] == ["about yes a", "about no b", "about c"]
    assert {check.passages[0].title for check in report.checks} == {"T"}
    assert [report.text[c.claim.start : c.claim.end] for c in report.checks] == ["yes a", "no b", "c"]
    assert report.precision == pytest.approx(1 / 3)


def test_scores():
    report = checked({"supported": 6, "refuted": 1, "unknown": 1})
    assert report.precision == 0.75
    assert report.factscore() == pytest.approx(0.75 * math.exp(1 - 10 / 8))
    assert report.factscore(gamma=0) == report.factscore(gamma=8) == 0.75
    none = checked({"refuted": 2})
    assert (none.precision, none.factscore()) == (0.0, 0.0)
    empty = checked({})
    assert (empty.precision, empty.factscore()) == (0, 0)
    assert checked({}, abstained=True).precision is None
    with pytest.raises(ConfigError, match="gamma must be at least 0, not -1"):
        report.factscore(-1)


def test_a_score_with_missing_verdicts_is_an_interval_and_a_number_only_when_narrow():
    wide = checked({"supported": 3, "refuted": 4, "unjudged": 1})
    assert wide.bounds() == (3 / 8, 4 / 8)
    with pytest.raises(Unscored, match=r"1 of 8 claims have no verdict \(timeout 1\)"):
        _ = wide.precision
    narrow = checked({"supported": 30, "refuted": 9, "unjudged": 1})
    assert narrow.precision == pytest.approx(30.5 / 40)
    assert "between 0.38 and 0.50 (1 without a verdict)" in str(wide)


def test_equal_claims_of_one_question_are_judged_once_and_near_ones_are_not():
    search, judge = Echo(), Says()
    verifier = plain(per_line, search, judge)
    reports = verifier.batch(["yes in 1867", "yes in 1867\nyes in 1868"], ["q", "q"])
    assert [labels(report) for report in reports] == [["supported"], ["supported"] * 2]
    assert sorted(judge.calls) == [["yes in 1867"], ["yes in 1868"]]
    assert sorted(search.queries) == ["yes in 1867", "yes in 1868"]
    judge.calls.clear()
    verifier.batch(["yes", "yes"], ["q", "another"])
    assert judge.calls == [["yes"], ["yes"]]


def test_a_flood_of_claims_counts_against_the_text_and_is_not_judged():
    judge = Says()
    report = plain(per_line, Echo(), judge, max_claims=2)("\n".join(f"yes {i}" for i in range(5)))
    assert labels(report) == ["supported"] * 2 + ["unknown"] * 3
    assert report.checks[-1].verdict.cause == "over_limit"
    assert (len(judge.calls), report.precision) == (2, 0.4)


def test_an_over_long_text_is_floored_and_asks_nothing():
    search, judge = Echo(), Says()
    verifier = plain(per_line, search, judge, max_chars=100)
    long, short = verifier.batch(["yes\n" * 1000, "yes"])
    assert (long.floored, long.precision, short.precision) == ("oversize", 0.0, 1.0)
    assert len(judge.calls) == 1


def test_no_evidence_is_unknown_and_a_failed_search_is_unjudged():
    class Broken:
        def search(self, query, k=5, *, topic=""):
            if "down" in query:
                raise Unscored("search_failed", "answered 429", status=429)
            return []

    judge = Says()
    report = plain(per_line, Broken(), judge)("yes down\nyes")
    assert labels(report) == ["unjudged", "unknown"]
    assert [check.verdict.cause for check in report.checks] == ["search_failed", "no_evidence"]
    assert report.checks[0].verdict.facts["status"] == 429
    assert judge.calls == []
    shared = plain(per_line, Broken(), judge, share=True).batch(["yes down"], ["down?"])[0]
    assert [check.verdict.cause for check in shared.checks] == ["search_failed"]


def test_a_failed_extraction_is_a_failure_and_never_no_claims():
    def extract(text, question="", topic=""):
        if text == "bad":
            raise Unscored("extract_unreadable", "empty reply")
        return per_line(text)

    bad, good = plain(extract, Echo(), Says()).batch(["bad", "yes"])
    with pytest.raises(Unscored, match="extract_unreadable"):
        _ = bad.precision
    with pytest.raises(Unscored, match="extract_unreadable"):
        bad.bounds()
    assert good.precision == 1.0
    assert "could not be checked" in str(bad)


@pytest.mark.parametrize("error", [SetupError("fix me"), KeyError("bug")])
def test_bugs_and_setup_errors_stop_the_batch(error):
    class Raises(Says):
        def judge(self, pairs):
            raise error

    with pytest.raises(type(error)):
        plain(per_line, Echo(), Raises()).batch(["yes", "no"])


def test_a_judge_that_loses_a_verdict_is_named():
    class Short(Says):
        def judge(self, pairs):
            return super().judge(pairs)[:-1]

    with pytest.raises(RuntimeError, match=r"'says' .*1 verdicts for 2 claims"):
        plain(per_line, Echo(), Short(per_call=2))("yes\nno")


def test_at_the_deadline_what_is_done_counts_and_the_rest_is_unjudged():
    """F09: one of 512 hangs."""
    cancelled = threading.Event()

    class Hangs(Says):
        async def judge(self, pairs):
            if pairs[0][0].text == "hang":
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancelled.set()
                    raise
            return super().judge(pairs)

    texts = [f"yes {number}" for number in range(511)] + ["hang"]
    started = time.monotonic()
    reports = plain(per_line, Echo(), Hangs(), deadline=5.0).batch(texts)
    assert time.monotonic() - started < 30
    assert [report.precision for report in reports[:511]] == [1.0] * 511
    assert labels(reports[511]) == ["unjudged"]
    assert reports[511].checks[0].verdict.cause == "deadline"
    assert cancelled.wait(5)


def test_an_extraction_that_hangs_is_a_failure_at_the_deadline():
    async def extract(text, question="", topic=""):
        await asyncio.sleep(60)

    report = plain(extract, Echo(), Says(), deadline=0.2)("yes")
    assert report.failure is not None
    assert report.failure.cause == "deadline"


def test_shared_evidence_searches_for_one_text_of_the_group():
    class Knows:
        def __init__(self):
            self.queries = []

        async def search(self, query, k=5, *, topic=""):
            self.queries.append(query)
            return [Passage("Warsaw lies on the Vistula."), Passage(f"More on {query}")]

    search, judge = Knows(), Says(per_call=8)
    texts = [
        "Warsaw lies on the Vistula.\nWarsaw is yes large.",
        "Warsaw lies on the Vistula.\nWarsaw is old.\nWarsaw is yes flat.",
    ]
    reports = plain(per_line, search, judge, share=True).batch(texts, ["Where is Warsaw?"] * 2)
    assert search.queries[0] == "Where is Warsaw?"
    assert len(search.queries) == 4  # the question and three sentences of the longer text
    assert len(judge.calls) == 1
    assert all(check.passages for report in reports for check in report.checks)


def test_evidence_can_come_with_the_text():
    verifier = plain(per_line, None, Says())
    report = verifier("yes the river", evidence=["The river is long.", Passage("Another thing.", title="X")])
    assert report.checks[0].passages[0].text == "The river is long."
    own = plain(per_line, Echo(), Says(), share=True)
    reports = own.batch(["red"] * 3, ["q"] * 3, evidence=[["red a"], ["red b"], None])
    assert [each.checks[0].passages[0].text for each in reports] == ["red a", "red b", "about red"]
    assert own.batch([]) == []
    with pytest.raises(ConfigError, match="has no search"):
        verifier("yes")
    with pytest.raises(ConfigError, match="not one text"):
        verifier("yes the river", evidence="The river is long.")
    with pytest.raises(ConfigError, match="questions has 1 entries for 2 texts"):
        verifier.batch(["a", "b"], ["q"])


def test_the_same_batch_in_another_order_gives_the_same_verdicts_and_a_store_answers_it(tmp_path):
    from factrl.llm.store import Store

    texts = [f"yes {number}\nno {number % 3}\nwhat {number}" for number in range(20)]
    questions = [f"q{number % 4}" for number in range(20)]
    judge = Says(per_call=4)
    verifier = plain(per_line, Echo(), judge, store=Store(tmp_path / "verdicts.sqlite"))
    first = {report.text: labels(report) for report in verifier.batch(texts, questions)}
    assert judge.calls
    judge.calls.clear()
    again = verifier.batch(texts[::-1], questions[::-1])
    assert {report.text: labels(report) for report in again} == first
    alone = [verifier(text, question) for text, question in zip(texts, questions, strict=True)]
    assert {report.text: labels(report) for report in alone} == first
    assert judge.calls == []


def test_failures_are_not_stored(tmp_path):
    from factrl.llm.store import Store

    class Recovers(Says):
        def judge(self, pairs):
            self.calls.append([claim.text for claim, _ in pairs])
            if len(self.calls) == 1:
                return [Verdict("unjudged", by=self.identity, cause="timeout")]
            return [self.verdict(claim.text) for claim, _ in pairs]

    verifier = plain(per_line, Echo(), Recovers(), store=Store(tmp_path / "verdicts.sqlite"))
    assert [labels(verifier("yes")) for _ in range(3)] == [["unjudged"], ["supported"], ["supported"]]
    assert len(verifier.judge.calls) == 2


def test_what_is_kept_of_a_report_is_short_and_has_the_evidence():
    text = "é" * 500
    passage = Passage(text, title=text, id="p")
    judged = Check(Claim(text, 0, 500), (passage,), Verdict("supported", "j", quote=(0, 0, 500)))
    bare = Check(Claim("It is red", 0, 9), (), Verdict("unknown", "j", cause="no_evidence"))
    skipped = Check(Claim("It is red", 0, 9, skip="repeat"))
    report = Report(text, checks=(skipped, judged, bare, *[bare] * 20))
    first, second, *rest = report.checked()
    assert first == {"claim": "é" * 160, "verdict": "supported", "quote": "é" * 160, "source": "é" * 80}
    assert second == {"claim": "It is red", "verdict": "unknown", "quote": "", "source": ""}
    assert len(rest) == 6
    # 32 of them are one answer of a reward server, of which a client reads one MiB.
    assert 32 * len(json.dumps([first] * 8)) < 0.7 * (1 << 20)
    assert Report("no", abstained=True).checked() == []


def test_verdicts_are_kept_only_under_the_name_of_the_model_that_gave_them(tmp_path):
    from factrl.llm.store import Store

    class Asks(Says):
        identity = "?"
        down = True

        async def ready(self):
            if self.down:
                raise Unscored("connection", "refused")
            self.identity = "served"

    judge, store = Asks(), Store(tmp_path / "verdicts.sqlite")
    verifier = plain(per_line, Echo(), judge, store=store)
    assert (labels(verifier("yes")), store.size()) == (["supported"], 0)
    judge.down = False
    assert (verifier("yes").judge, store.size()) == ("served", 1)
