"""What a batch of calls becomes when the server misbehaves: nothing is lost, nothing is asked too often.

The numbers F01, F02, … are those of the fault matrix that the client was built to.  Times are scaled down: a
breaker probes every 50 ms here, every 5 s by default.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import fault_server as fs
from factrl.errors import ConfigError, LLMError
from factrl.llm import Message, Reply
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.llm.replies import read_verdict
from factrl.llm.store import CachedLLM, Store
from factrl.papers import load_reward
from factrl.rewards import Reward
from factrl.rewards.grading import Grader
from factrl.runs.folder import Rollout, Run
from factrl.types import Example
from fault_server import FaultServer, answers, completion, says

PROBES = 0.05
Serve = Callable[..., FaultServer]


client = partial(fs.client, backoff=0.01, max_concurrency=32, pause=20.0, probe_every=PROBES)


def question(n: int) -> list[Message]:
    return [{"role": "user", "content": f"question {n}"}]


def batch(llm: Any, calls: int, **sampling: Any) -> list[Reply | LLMError]:
    """Replies, or the errors in their place, of so many different questions asked at once."""

    async def all_of_them() -> list[Any]:
        asked = [llm.acomplete(question(n), **sampling) for n in range(calls)]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_of_them())


def causes(results: list[Reply | LLMError]) -> Counter[str]:
    return Counter(result.cause if isinstance(result, LLMError) else "fine" for result in results)


def paused(llm: OpenAICompatible) -> bool:
    endpoint = llm._http._endpoints.get(os.getpid())
    return endpoint is not None and endpoint.limiter.down_since is not None


def when(condition: Callable[[], bool], do: Callable[[], Any], after: float = 0.0) -> None:
    """Have something done, so many seconds after the condition holds for the first time."""

    def wait() -> None:
        while not condition():
            time.sleep(0.002)
        time.sleep(after)
        do()

    threading.Thread(target=wait, daemon=True).start()


# ---------------------------------------------------------------- a server that is not there


def test_f01_a_server_that_never_comes_is_given_up_after_the_pause() -> None:
    llm = client(fs.closed_port(), pause=0.3)
    results = batch(llm, 100)
    assert sum(causes(results).values()) == 100
    assert causes(results)["breaker_open"] >= 100 - 20 - 32
    assert paused(llm)
    errors = [result for result in results if isinstance(result, LLMError)]
    assert max(error.facts["attempts"] for error in errors) <= 4 + 0.3 / PROBES + 1
    assert "was down for longer than pause = 0.3 s" in errors[-1].detail


def test_f18_a_restart_in_the_middle_of_a_batch_loses_nothing(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    old = serve(fs.slowly(0.01, says()))
    llm = client(old)
    new: list[FaultServer] = []

    when(lambda: len(old.requests) > 100, old.close)
    when(lambda: paused(llm), lambda: new.append(serve(fs.slowly(0.01, says()), port=old.port)), after=0.5)
    assert causes(batch(llm, 600)) == {"fine": 600}
    assert len(new) == 1  # it did go down before the batch was done
    assert len(new[0].requests) > 100
    assert llm.usage.requests <= 1.2 * 600
    assert [record.levelname for record in caplog.records if "is down" in record.message] == ["WARNING"]
    assert any("answers again" in record.message for record in caplog.records)


# ---------------------------------------------------------------- a server that is asked too much


def test_f05_refusals_without_a_header_lose_nothing_and_cost_few_requests(serve: Serve) -> None:
    server = serve(says())
    llm = client(server)
    assert causes(batch(llm, 100)) == {"fine": 100}
    server.play(answers(429, {"error": "slow down"}))
    when(lambda: paused(llm), lambda: server.play(says()), after=0.5)
    assert causes(batch(llm, 400)) == {"fine": 400}
    assert llm.usage.requests <= 1.2 * 500
    assert llm.usage.retries == llm.usage.requests - 500


def test_f06_a_wait_that_the_server_names_holds_everyone(serve: Serve) -> None:
    server = serve(answers(429, {}, retry_after="0.5"), says())
    llm = client(server, max_concurrency=1)
    assert causes(batch(llm, 5)) == {"fine": 5}
    at = [request.at for request in server.requests]
    assert len(at) == 6
    assert 0.5 <= at[1] - at[0] < 1.0  # the machine may be slow
    assert max(end - start for start, end in pairwise(at[1:])) < 0.4
    assert not paused(llm)


# ---------------------------------------------------------------- a server that fails now and then


def test_f07_passing_failures_cost_few_samples(serve: Serve) -> None:
    codes = iter(range(10**9))
    failing = [answers(code, b"oops") for code in (500, 502, 503, 504, 529)]
    server = serve(
        fs.sometimes(0.2, lambda handler: failing[next(codes) % len(failing)](handler), says(), seed=1)
    )
    llm = client(server, backoff=0.001)
    results = batch(llm, 400)
    assert causes(results)["fine"] >= 396
    assert llm.usage.retries >= 0.2 * 400 * 0.7  # there was something to survive
    assert max(result.attempts for result in results if isinstance(result, Reply)) > 1


def test_f08_final_answers_are_neither_repeated_nor_held_against_the_server(serve: Serve) -> None:
    server = serve(answers(422, {"error": "no"}))
    llm = client(server)
    results = batch(llm, 100)
    assert sum(causes(results).values()) == len(server.requests) == 100
    assert causes(results)["fine"] == 0
    assert not paused(llm)


def test_f08_a_refused_key_ends_the_pause_at_once(serve: Serve) -> None:
    server = serve(answers(500, b""))
    llm = client(server)
    when(lambda: paused(llm), lambda: server.play(answers(401, {})), after=0.2)
    assert causes(batch(llm, 100)) == {"auth": 100}  # and none waits for the end of the pause


# ---------------------------------------------------------------- replies that are none


def test_f14_f15_f16_what_the_parser_rejects_is_handed_on_but_not_stored(
    serve: Serve, tmp_path: Path
) -> None:
    text = "Supported? Hard to say"
    server = serve(says(text))
    store = Store(tmp_path / "cache.sqlite")
    llm = CachedLLM(client(server), store).accepting(partial(read_verdict, words=["supported"]))
    assert [llm.complete(question(0)).text for _ in range(2)] == [text] * 2
    assert len(server.requests) == 2
    assert store.size() == 0
    server.play(says("VERDICT: supported"))
    assert [llm.complete(question(0)).text for _ in range(2)] == ["VERDICT: supported"] * 2
    assert len(server.requests) == 3


# ---------------------------------------------------------------- the cached model


def test_identical_questions_at_the_same_time_are_one_request(serve: Serve, tmp_path: Path) -> None:
    server = serve(fs.slowly(0.1, says()))
    inner = client(server)
    llm = CachedLLM(inner, Store(tmp_path / "cache.sqlite"))
    replies: list[str] = []
    threads = [
        threading.Thread(target=lambda: replies.append(llm.complete(question(0)).text)) for _ in range(20)
    ]
    for thread in threads:
        thread.start()

    async def same() -> list[Reply]:
        return await asyncio.gather(*[llm.acomplete(question(0)) for _ in range(30)])

    replies += [reply.text for reply in asyncio.run(same())]
    for thread in threads:
        thread.join(10)
    assert replies == ["fine"] * 50
    assert len(server.requests) == 1
    assert (inner.usage.calls, inner.usage.cached) == (1, 49)


def test_whatever_changes_the_reply_is_part_of_the_key(serve: Serve, tmp_path: Path) -> None:
    server, store = serve(says()), Store(tmp_path / "cache.sqlite")
    ask: dict[str, Any] = {"temperature": 0.0, "max_tokens": 9}
    where: dict[str, Any] = {"model": "m"}
    variants: list[tuple[dict[str, Any], dict[str, Any], list[Message]]] = [
        (where, ask, question(0)),
        ({"model": "other"}, ask, question(0)),
        (where, {**ask, "max_tokens": 10}, question(0)),
        (where, {**ask, "temperature": 0.5, "seed": 1}, question(0)),
        (where, {**ask, "seed": 1}, question(0)),
        (where, {**ask, "top_p": 0.9}, question(0)),
        (where, {**ask, "response_format": {"type": "json_object"}}, question(0)),
        (where, ask, question(1)),
        (where, ask, [{"role": "system", "content": "question 0"}]),
        (where, ask, [*question(0), *question(1)]),
        (where, ask, [{"role": "user", "content": "question 0question 1"}]),
    ]
    for _ in range(2):
        for model, request, messages in variants:
            CachedLLM(OpenAICompatible(server.url, **model), store).complete(messages, **request)
    assert len(server.requests) == store.size() == len(variants)
    other = serve(says())
    CachedLLM(OpenAICompatible(other.url, "m"), store).complete(question(0), **ask)
    assert len(other.requests) == 1
    assert CachedLLM(OpenAICompatible(server.url, "m"), store).complete(
        question(0), temperature=0, max_tokens=9
    )
    assert store.size() == len(variants) + 1  # 0 and 0.0 are the same temperature


def test_two_samples_of_one_prompt_are_two(serve: Serve, tmp_path: Path) -> None:
    server, store = serve(says()), Store(tmp_path / "cache.sqlite")
    llm = CachedLLM(client(server), store)
    for _ in range(3):
        llm.complete(question(0), temperature=1.0)
    assert (len(server.requests), store.size()) == (3, 0)


# ---------------------------------------------------------------- budget and counts


def test_dollars_end_with_what_was_in_flight(serve: Serve) -> None:
    server = serve(says(usage={"prompt_tokens": 1000, "completion_tokens": 100}))
    llm = client(server, max_concurrency=4, price=(1.0, 10.0), max_cost_usd=0.02)  # 0.002 a call
    results = batch(llm, 100)
    assert 10 <= causes(results)["fine"] <= 10 + 4
    assert causes(results)["budget"] == 100 - causes(results)["fine"]
    assert llm.usage.cost_usd == pytest.approx(0.002 * causes(results)["fine"])
    with pytest.raises(ConfigError, match="max_cost_usd=1 needs the price of m at"):
        client(server, max_cost_usd=1.0)


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": -5, "completion_tokens": "many"}])
def test_a_server_that_does_not_count_is_counted_for(serve: Serve, usage: Any) -> None:
    llm = client(serve(says("x" * 400, usage=usage)), price=(1.0, 1.0))
    llm.complete([{"role": "user", "content": "y" * 4000}])
    assert 1000 <= llm.usage.tokens_in <= 1020
    assert llm.usage.tokens_out == 100
    assert llm.usage.cost_usd == pytest.approx((llm.usage.tokens_in + 100) / 1e6)


ODD = ["1" + "0" * 5000, "1e999", "100000000", "-7", "NaN", '"7"']


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd[:9])
def test_f14_what_a_server_says_of_itself_ends_no_call_and_no_wait(serve: Serve, odd: str) -> None:
    usage = {"prompt_tokens": "ODD", "completion_tokens": "ODD", "total_tokens": "ODD", "cost": "ODD"}
    logprobs = {"content": [{"token": "f", "logprob": "ODD"}], "ODD": "ODD"}
    document = completion(usage=usage, created="ODD", id="ODD", model="ODD", service_tier="ODD")
    document["choices"][0] |= {"index": "ODD", "logprobs": logprobs}
    headers = {"x_request_id": odd, "x_ratelimit_remaining_tokens": odd, "x_ratelimit_reset_tokens": odd}
    body = json.dumps(document).replace('"ODD":', '"x":').replace('"ODD"', odd).encode()
    server = serve(answers(200, body, retry_after=odd, **headers))
    llm = client(server, max_concurrency=1, price=(1.0, 1.0), max_cost_usd=1.0, max_attempts=2)
    prompt = len(json.dumps(question(0)))

    async def all_of_them() -> list[Any]:
        asked = [llm.acomplete(question(n), max_tokens=20) for n in range(10)]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)

    assert [type(reply) for reply in asyncio.run(all_of_them())] == [Reply] * 10
    assert llm.usage.tokens_in <= 10 * (prompt + 1200)
    assert llm.usage.tokens_out <= 10 * max(20, len(body))
    assert llm.usage.cost_usd is not None
    assert llm.usage.cost_usd < 1.0


def test_what_was_sent_is_counted(serve: Serve) -> None:
    server = serve(
        answers(500, b""), says(), answers(503, {}, retry_after="0.2"), says("x", "length"), says()
    )
    llm = client(server)
    llm.complete(question(0))
    llm.complete(question(1), max_tokens=5)
    usage = llm.usage
    assert (usage.calls, usage.requests, usage.retries) == (2, 5, 3)
    assert (usage.tokens_in, usage.tokens_out, usage.cost_usd) == (21, 6, None)


# ---------------------------------------------------------------- event loops, forks, other servers


def test_a_proxy_may_want_a_password(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = serve(says("proxied"))
    monkeypatch.setenv("HTTP_PROXY", f"http://me:secret@127.0.0.1:{proxy.port}")
    assert client("http://judge.invalid/v1").complete(question(0)).text == "proxied"
    assert proxy.requests[0].headers["proxy-authorization"].startswith("Basic ")
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{proxy.port}")
    with pytest.raises(LLMError, match="501") as caught:  # this one knows no CONNECT
        client("https://judge.invalid/v1", max_attempts=1).complete(question(0))
    assert "secret" not in str(caught.value) + repr(caught.value.facts)
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigError, match="proxy"):
        client("http://judge.invalid/v1").complete(question(0))


# ---------------------------------------------------------------- from the wire to a number

WHO = Example("Where was Marie Curie born?", ("Warsaw",), id="curie")
TRACE = {"stage", "status", "attempts", "elapsed", "request_id"}
CALLS = 200
MISBEHAVIOURS = [
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


def cities(count: int) -> list[str]:
    """So many answers, which a judge has to tell apart by their numbers."""
    return [f"\\boxed{{city number {number}}}" for number in range(count)]


def verdict(message: str) -> str:
    """The judge: every reply offers an answer, and a city with an odd number is right."""
    if '"reply":' in message:
        return "VERDICT: offers"
    number = int(message.rpartition("city number ")[2].partition('"')[0])
    return f"VERDICT: {'correct' if number % 2 else 'incorrect'}"


def truth(count: int) -> list[float]:
    return [1.0 if number % 2 else -1.0 for number in range(count)]


def test_over_real_sockets_a_number_is_always_the_judges_own(serve: Serve, tmp_path: Path) -> None:
    """From a server that fails in every way, through client, store and a reward to the rows of a run."""
    dice = random.Random(1)

    def misbehaves(handler: fs.Handler) -> None:
        dice.choice(MISBEHAVIOURS)(handler)

    unboxed = "I would say: a city."  # its own doing, whatever becomes of the judge
    texts = [unboxed if number % 10 == 0 else boxed for number, boxed in enumerate(cities(CALLS))]
    server = serve(fs.sometimes(0.5, misbehaves, fs.replies(verdict), seed=2))
    store = Store(tmp_path / "verdicts.db")

    def through(llm: OpenAICompatible) -> Reward:
        return load_reward("truthrl").with_(grade=Grader(CachedLLM(llm, store)))

    limited = fs.client(server, timeout_attempt=2.0, max_attempts=3, down_after=10_000)
    results = through(limited).batch([WHO] * CALLS, texts)
    states = Counter(result.state for result in results)
    assert states["scored"] + states["masked"] + states["floored"] == CALLS
    assert states["floored"] == CALLS / 10
    assert min(states.values()) > CALLS / 20
    assert all(result.value in (None, right) for result, right in zip(results, truth(CALLS), strict=True))
    masked = [result for result in results if result.state == "masked"]
    assert all(result.value is None and result.cause for result in masked)
    assert all(result.facts.keys() >= TRACE and result.facts["attempts"] <= 3 for result in masked)
    assert len({result.cause for result in masked}) >= 5
    with Run.create(tmp_path, "conservation", 'paper = "truthrl"\n') as run:
        rows = [Rollout("q", "Q", text, result, None) for text, result in zip(texts, results, strict=True)]
        written = pyarrow.parquet.read_table(run.write_rollouts(1, rows)).to_pydict()
    assert written["value"] == [result.value for result in results]
    assert len(server.requests) <= 2 * 3 * CALLS  # two questions for each
    server.play(fs.replies(verdict))
    before = len(server.requests)
    again = through(OpenAICompatible(server.url, "m")).batch([WHO] * CALLS, texts)
    assert [result.value for result in again] == truth(CALLS)
    # What masked a sample is not kept, and it alone is asked for again: one of its two questions, or both.
    assert states["masked"] <= len(server.requests) - before <= 2 * states["masked"]


def test_f17_unasked_replies_at_random_moments_make_no_wrong_grade(serve: Serve) -> None:
    """The server keeps every connection open, whatever the client asks for, and sends more replies on it."""
    dice, count, over = random.Random(4), 120, threading.Event()
    questions: Counter[fs.Handler] = Counter()  # by connection
    answered: list[socket.socket] = []

    def reply(text: str) -> bytes:
        body = json.dumps(completion(text)).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    stray = reply("VERDICT: correct")

    def answer(handler: fs.Handler) -> None:
        handler.close_connection = False
        questions[handler] += 1
        whole = reply(verdict(handler.asked.body["messages"][-1]["content"]))
        handler.connection.sendall(whole + stray * dice.choice([0, 0, 1, 2]))
        answered.append(handler.connection)

    def babble() -> None:
        while not over.wait(dice.random() / 500):
            with contextlib.suppress(OSError, IndexError):
                dice.choice(answered[-8:]).sendall(dice.choice([stray, stray[:99], stray * 2]))

    llm = fs.client(serve(answer), timeout_attempt=5.0, max_attempts=4, max_concurrency=4)
    babbler = threading.Thread(target=babble, daemon=True)
    babbler.start()
    reward = load_reward("truthrl").with_(grade=Grader(llm))
    values = [result.value for result in reward.batch([WHO] * count, cities(count))]
    over.set()
    babbler.join()
    assert max(questions.values()) == 1  # a second one's reply could not be told from a stray one
    assert [pair for pair in zip(values, truth(count), strict=True) if pair[0] not in (None, pair[1])] == []
    assert sum(value is not None for value in values) > count * 0.9
