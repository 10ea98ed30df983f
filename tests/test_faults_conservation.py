"""Every sample that goes in comes out scored, masked or floored, and no masked one has a number.

A hundred thousand samples go through the reward layer with a client in this process that fails in every way
that the real one reports; over real sockets, where a call costs a millisecond of the server's time, it is
four hundred, through the client, the cache and a paper's reward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet
import pytest

import fault_server as fs
from factrl.errors import LLMError
from factrl.llm import FakeLLM, Message
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.llm.store import CachedLLM, Store
from factrl.papers import load_reward
from factrl.rewards import Reward, reward
from factrl.rewards.grading import Grader, has_grade, read_verdict
from factrl.runs.folder import Rollout, Run
from factrl.types import Completion, Example, Result, Score
from fault_server import FaultServer, answers, says

SAMPLES, BATCH = 100_000, 10_000
WHO = Example("Where was Marie Curie born?", ("Warsaw",), id="curie")
PAYS = {"correct": 1.0, "incorrect": -1.0, "not_attempted": 0.0}
TRACE = {"stage", "status", "attempts", "elapsed", "request_id"}

Outcome = tuple[str, float | None, str | None]


@reward
def asked(example: Example, completion: Completion, *, judge: Any, most: int = 64) -> Score:
    """Pays by the judge's verdict; what is too long, or says nothing, is the policy's own doing."""
    if len(completion) > most or not completion.strip():
        return Score({"outcome": -1.0}, floored="oversize" if completion.strip() else "empty")
    reply = judge.complete([{"role": "user", "content": completion}])
    facts = {"stage": "judge", "status": 200, "attempts": reply.attempts, "elapsed": 0.0, "request_id": ""}
    verdict = read_verdict(reply.text, PAYS, **facts)
    return Score({"outcome": PAYS[verdict], "brief": -0.25}, facts={"verdict": verdict})


def failed(cause: str, status: int | None = None) -> LLMError:
    return LLMError(cause, "no", stage="judge", status=status, attempts=4, elapsed=9.0, request_id="r")


JUDGE: Mapping[str, tuple[str | Exception, Outcome]] = {
    "right": ("So it is.\nVERDICT: correct", ("scored", 0.75, None)),
    "wrong": ("No.\nVERDICT: incorrect", ("scored", -1.25, None)),
    "none": ("VERDICT: not_attempted", ("scored", -0.25, None)),
    "two verdicts": ("VERDICT: correct\nVERDICT: incorrect", ("masked", None, "judge_unreadable")),
    "a letter": ("A", ("masked", None, "judge_unreadable")),
    "refusal": ("I can't help with that.", ("masked", None, "judge_unreadable")),
    "silence": ("", ("masked", None, "judge_unreadable")),
    **{
        cause: (failed(cause, status), ("masked", None, cause))
        for cause, status in {
            **dict.fromkeys(("connection", "timeout", "breaker_open", "budget", "redirect")),
            **{"http_429": 429, "http_5xx": 529, "auth": 401, "http_413": 413, "context_length": 400},
            **{"truncated": 200, "bad_body": 200},
        }.items()
    },
}
WRITTEN: Mapping[str, tuple[str, Outcome]] = {
    "blank": (" \n", ("floored", -1.0, "empty")),
    "flood": ("x" * 65, ("floored", -1.0, "oversize")),
}


def says_what_it_is_asked(messages: Sequence[Message]) -> str | Exception:
    return JUDGE[messages[-1]["content"].rpartition(" ")[0]][0]


@pytest.mark.slow
@pytest.mark.fault("F07", "F10", "F13", "F15", "F16", "F28")
def test_of_a_hundred_thousand_samples_none_is_lost_and_none_has_a_number_of_its_own(tmp_path: Path) -> None:
    kinds = Random(0).choices([*JUDGE, *WRITTEN], k=SAMPLES)
    texts = [WRITTEN[kind][0] if kind in WRITTEN else f"{kind} {n}" for n, kind in enumerate(kinds)]
    outcomes = {kind: outcome for kind, (_, outcome) in {**JUDGE, **WRITTEN}.items()}
    ready = asked.with_(judge=FakeLLM(says_what_it_is_asked))
    results: list[Result] = []
    for start in range(0, SAMPLES, BATCH):
        results += ready.batch([WHO] * BATCH, texts[start : start + BATCH])
    told = [(result.state, result.value, result.cause) for result in results]
    assert told == [outcomes[kind] for kind in kinds]
    states = Counter(result.state for result in results)
    assert states["scored"] + states["masked"] + states["floored"] == SAMPLES
    assert min(states.values()) > SAMPLES / 20
    assert all(result.facts.keys() >= TRACE for result in results if result.state == "masked")
    with Run.create(tmp_path, "conservation", 'paper = "truthrl"\n') as run:
        first = zip(texts[:BATCH], results, strict=False)
        file = run.write_rollouts(1, [Rollout("q", "Q", text, result, None) for text, result in first])
    written = pyarrow.parquet.read_table(file, columns=["state", "value", "cause"]).to_pydict()
    assert list(zip(*written.values(), strict=True)) == told[:BATCH]


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

    truth = [1.0 if number % 2 else -1.0 for number in range(CALLS)]
    texts = [f"\\boxed{{city number {number}}}" for number in range(CALLS)]
    limits: dict[str, Any] = {"timeout_attempt": 2.0, "timeout_call": 20.0, "max_attempts": 3}
    server = FaultServer(fs.sometimes(0.5, misbehaves, fs.replies(verdict), seed=2))
    store = Store(tmp_path / "verdicts.db")
    try:

        def through(llm: OpenAICompatible) -> Reward:
            return load_reward("truthrl").with_(grade=Grader(CachedLLM(llm, store, accept=has_grade)))

        limited = OpenAICompatible(server.url, "m", backoff=0.001, down_after=10_000, **limits)
        results = through(limited).batch([WHO] * CALLS, texts)
        states = Counter(result.state for result in results)
        assert states["scored"] + states["masked"] == CALLS
        assert min(states.values()) > CALLS / 20
        assert all(result.value in (None, right) for result, right in zip(results, truth, strict=True))
        masked = [result for result in results if result.state == "masked"]
        assert all(result.value is None and result.cause for result in masked)
        assert all(result.facts.keys() >= TRACE and result.facts["attempts"] <= 3 for result in masked)
        assert len({result.cause for result in masked}) >= 5
        assert len(server.requests) <= 3 * CALLS
        assert store.size() == states["scored"]  # what masked a sample is not kept
        server.play(fs.replies(verdict))
        before = len(server.requests)
        again = through(OpenAICompatible(server.url, "m")).batch([WHO] * CALLS, texts)
        assert [result.value for result in again] == truth
        assert len(server.requests) - before == states["masked"]  # and it alone is asked for again
    finally:
        server.close()
