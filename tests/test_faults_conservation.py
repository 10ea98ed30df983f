"""Every sample that goes in comes out scored, masked or floored, and no masked one has a number.

Over real sockets, from a server that fails in every way, through client, store and a paper's reward to the
rows of a run.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet
import pytest

import fault_server as fs
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.llm.store import CachedLLM, Store
from factrl.papers import load_reward
from factrl.rewards import Reward
from factrl.rewards.grading import Grader
from factrl.runs.folder import Rollout, Run
from factrl.types import Example
from fault_server import FaultServer, answers, says

WHO = Example("Where was Marie Curie born?", ("Warsaw",), id="curie")
TRACE = {"stage", "status", "attempts", "elapsed", "request_id"}
CALLS = 200
FAULTS = [
    answers(500, b"oops"),
    answers(502, b""),
    answers(503, {}),
    answers(529, {}),
    answers(429, {}, retry_after="0"),
    answers(200, b"<html>nginx</html>"),
    answers(200, b""),
    answers(200, {"error": {"message": "overloaded"}}),
    answers(200, b'{"choices": [{"message": {"content": "VERDICT: corr'),
    answers(200, {"choices": None}),
    answers(400, {"error": {"message": "no such field"}}),
    says("VERDICT: corr", "length"),
    says("VERDICT: correct", "content_filter"),
    says("VERDICT: incorrect", "abort"),
    says("It is NOT CORRECT, I think"),
    says("I can't help with that."),
    fs.reset,
    fs.short,
    fs.garbage,
    fs.hang,
]


@pytest.mark.fault("F02", "F04", "F07", "F10", "F11", "F12", "F13", "F15", "F16")
def test_over_real_sockets_a_number_is_always_the_judges_own(tmp_path: Path) -> None:
    dice = Random(1)

    def misbehaves(handler: fs.Handler) -> None:
        dice.choice(FAULTS)(handler)

    def verdict(message: str) -> str:
        number = int(message.rpartition("city number ")[2].partition('"')[0])
        return f"VERDICT: {'correct' if number % 2 else 'incorrect'}"

    unboxed = "I would say: a city."  # its own doing, whatever becomes of the judge
    truth = [1.0 if number % 2 else -1.0 for number in range(CALLS)]
    texts = [unboxed if number % 10 == 0 else f"\\boxed{{city number {number}}}" for number in range(CALLS)]
    limits: dict[str, Any] = {"timeout_attempt": 2.0, "timeout_call": 20.0, "max_attempts": 3}
    server = FaultServer(fs.sometimes(0.5, misbehaves, fs.replies(verdict), seed=2))
    store = Store(tmp_path / "verdicts.db")
    try:

        def through(llm: OpenAICompatible) -> Reward:
            return load_reward("truthrl").with_(grade=Grader(CachedLLM(llm, store)))

        limited = OpenAICompatible(server.url, "m", backoff=0.001, down_after=10_000, **limits)
        results = through(limited).batch([WHO] * CALLS, texts)
        states = Counter(result.state for result in results)
        assert states["scored"] + states["masked"] + states["floored"] == CALLS
        assert states["floored"] == CALLS / 10
        assert min(states.values()) > CALLS / 20
        assert all(result.value in (None, right) for result, right in zip(results, truth, strict=True))
        masked = [result for result in results if result.state == "masked"]
        assert all(result.value is None and result.cause for result in masked)
        assert all(result.facts.keys() >= TRACE and result.facts["attempts"] <= 3 for result in masked)
        assert len({result.cause for result in masked}) >= 5
        with Run.create(tmp_path, "conservation", 'paper = "truthrl"\n') as run:
            rows = [
                Rollout("q", "Q", text, result, None) for text, result in zip(texts, results, strict=True)
            ]
            written = pyarrow.parquet.read_table(run.write_rollouts(1, rows)).to_pydict()
        assert written["value"] == [result.value for result in results]
        assert len(server.requests) <= 3 * CALLS
        assert store.size() == states["scored"]  # what masked a sample is not kept
        server.play(fs.replies(verdict))
        before = len(server.requests)
        again = through(OpenAICompatible(server.url, "m")).batch([WHO] * CALLS, texts)
        assert [result.value for result in again] == truth
        assert len(server.requests) - before == states["masked"]  # and it alone is asked for again
    finally:
        server.close()
