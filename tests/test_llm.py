from __future__ import annotations

import asyncio
import contextlib
import gc
import gzip
import json
import logging
import os
import pickle
import select
import signal
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import pytest

import fault_server as fs
from factrl.errors import ConfigError, LLMError, SetupError
from factrl.llm import FakeLLM, connect, preflight
from factrl.llm.background import wait_for
from factrl.llm.openai_compatible import OpenAICompatible
from fault_server import Fault, FaultServer, answers, closed_port, completion, says

pytestmark = pytest.mark.alone

KEY = "sk-canary-0123456789abcdef"
ASK = [{"role": "user", "content": "Is water wet?"}]
HTML = b"<html><body>Welcome to nginx!</body></html>"


@pytest.fixture
def serve() -> Iterator[Callable[..., FaultServer]]:
    servers: list[FaultServer] = []

    def start(*script: Fault) -> FaultServer:
        servers.append(FaultServer(*script))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "FACTRL_JUDGE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


def client(server: FaultServer | str, model: str | None = "m", **limits: Any) -> OpenAICompatible:
    """A client whose deadlines are far away and whose retries follow at once."""
    url = server if isinstance(server, str) else server.url
    quick = {"timeout_attempt": 10.0, "timeout_call": 20.0, "max_attempts": 3, "backoff": 0.001}
    return OpenAICompatible(url, model, KEY, **{**quick, **limits})


def failure(llm: OpenAICompatible, **sampling: Any) -> LLMError:
    with pytest.raises(LLMError) as caught:
        llm.complete(ASK, **sampling)
    return caught.value


def until(condition: Callable[[], bool]) -> bool:
    """True once the condition holds; False when it does not within a generous time."""
    for _ in range(500):
        if condition():
            return True
        time.sleep(0.01)
    return False


# ---------------------------------------------------------------- good replies


def test_a_reply_is_read_whole(serve: Any) -> None:
    server = serve(says("wet"))
    reply = client(server).complete(ASK, temperature=0.3, max_tokens=9, top_p=0.9)
    assert (reply.text, reply.finish_reason, reply.model) == ("wet", "stop", "served")
    assert (reply.tokens_in, reply.tokens_out, reply.request_id, reply.attempts) == (7, 2, "chatcmpl-1", 1)
    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": "m",
        "messages": ASK,
        "temperature": 0.3,
        "max_tokens": 9,
        "top_p": 0.9,
    }


def test_no_key_no_header(serve: Any) -> None:
    server = serve(says())
    OpenAICompatible(server.url, "m").complete(ASK)
    assert "authorization" not in server.requests[0].headers


def test_unknown_token_counts_are_none(serve: Any) -> None:
    reply = client(serve(says(usage=None, id=None, model=None))).complete(ASK)
    assert (reply.tokens_in, reply.tokens_out, reply.request_id, reply.model) == (None, None, "", "")


def test_a_reply_that_cannot_be_read_is_paid_for(serve: Any) -> None:
    """A reasoning model that was cut off has no content, but a bill."""
    document = completion("", usage={"prompt_tokens": 1000, "completion_tokens": 500})
    document["choices"][0]["message"]["content"] = None
    server = serve(answers(200, document))
    paid = client(server, price=(1.0, 2.0), max_cost_usd=0.003)
    with pytest.raises(LLMError, match=r"max_cost_usd = 0\.003 is used up"):
        paid.complete(ASK)
    assert len(server.requests) == 2
    assert paid.usage.cost_usd == 0.004


def test_text_can_always_be_written_to_a_file(serve: Any) -> None:
    server = serve(says("half \ud83d pair"))
    assert client(server).complete([{"role": "user", "content": "\udc00"}]).text.encode()


HALF = r'{"choices": [{"message": {"content": "a\ud83d"}, "finish_reason": "stop"}], "model": "\ud83d"}'


@pytest.mark.fault("F14")
def test_what_a_server_calls_itself_can_be_written_to_a_file_too(serve: Any) -> None:
    reply = client(serve(answers(200, HALF.encode()))).complete(ASK)
    assert (reply.text, reply.model) == ("a?", "?")
    reply = client(serve(says("b", "\ud83d", model="m" * 5000, id="i\ud83d\n"))).complete(ASK)
    assert (reply.finish_reason, reply.model, reply.request_id) == ("?", "m" * 200, "i?")


@pytest.mark.fault("F14")
@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("depth", [70, 400, 2000, 500_000])
def test_a_deep_reply_is_unreadable(serve: Any, opening: str, depth: int) -> None:
    closing = "]" if opening == "[" else "}"
    deep = f"{opening * depth}1{closing * depth}" if depth * len(opening) < 900_000 else opening * depth
    document = json.dumps(completion()).replace('"served"', deep)
    error = failure(client(serve(answers(200, document.encode()))))
    assert error.cause == "bad_body"


def test_compressed_replies_are_read(serve: Any) -> None:
    body = gzip.compress(json.dumps(completion("zipped")).encode())
    assert client(serve(answers(200, body, content_encoding="gzip"))).complete(ASK).text == "zipped"


# ---------------------------------------------------------------- faults

RETRIED: list[tuple[str, Fault, str, int | None]] = [
    ("reset", fs.reset, "connection", None),
    ("short content-length", fs.short, "connection", None),
    ("not http", fs.garbage, "connection", None),
    ("429", answers(429, {"error": {"message": "slow down"}}), "http_429", 429),
    ("429 with Retry-After", answers(429, {}, retry_after="0.01"), "http_429", 429),
    ("429 with Retry-After 0", answers(429, {}, retry_after="0"), "http_429", 429),
    ("429 with a past date", answers(429, {}, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"), "http_429", 429),
    ("429 with garbage", answers(429, {}, retry_after="soon, I hope"), "http_429", 429),
    ("429 with nan", answers(429, {}, retry_after="nan"), "http_429", 429),
    ("429 with a negative wait", answers(429, {}, retry_after="-5"), "http_429", 429),
    ("408", answers(408, b""), "http_408", 408),
    ("409", answers(409, b""), "http_409", 409),
    ("424", answers(424, b""), "http_424", 424),
    ("425", answers(425, b""), "http_425", 425),
    *[(str(code), answers(code, b"oops"), "http_5xx", code) for code in (500, 502, 503, 504, 529)],
    ("html", answers(200, HTML), "bad_body", 200),
    ("empty", answers(200, b""), "bad_body", 200),
    ("no content", answers(204, b""), "bad_body", 204),
    ("error in a 200", answers(200, {"error": {"message": "overloaded"}}), "bad_body", 200),
    ("cut json", answers(200, json.dumps(completion()).encode()[:-9]), "bad_body", 200),
    ("deep json", answers(200, b"[" * 100_000), "bad_body", 200),
    ("not utf-8", answers(200, b'{"choices": "\xff"}'), "bad_body", 200),
    ("no choices", answers(200, {"choices": []}), "bad_body", 200),
    ("null choices", answers(200, {"choices": None}), "bad_body", 200),
    ("a list", answers(200, [1, 2]), "bad_body", 200),
    ("a string", answers(200, "ok"), "bad_body", 200),
    ("null content", answers(200, completion(None)), "bad_body", 200),  # type: ignore[arg-type]
    ("parts as content", answers(200, completion([{"text": "x"}])), "bad_body", 200),  # type: ignore[arg-type]
    ("null finish_reason", answers(200, completion("x", None)), "bad_body", 200),  # type: ignore[arg-type]
    ("too long", answers(200, completion("x" * (1 << 20))), "bad_body", 200),
    ("bad gzip", answers(200, b"not gzip", content_encoding="gzip"), "bad_body", 200),
    ("unknown encoding", answers(200, b"??", content_encoding="br"), "bad_body", 200),
]

FINAL: list[tuple[str, Fault, str, int | None]] = [
    ("400", answers(400, {"error": {"message": "no such field"}}), "http_400", 400),
    ("401", answers(401, {"error": {"message": "bad key"}}), "auth", 401),
    ("403", answers(403, HTML), "auth", 403),
    ("404", answers(404, {"detail": "Not Found"}), "http_404", 404),
    ("413", answers(413, b""), "http_413", 413),
    ("422", answers(422, {"detail": [{"msg": "field required"}]}), "http_422", 422),
    (
        "context length",
        answers(400, {"error": {"message": "This model's maximum context length is 4096 tokens."}}),
        "context_length",
        400,
    ),
    ("redirect", answers(302, b"", location="http://169.254.169.254/latest"), "redirect", 302),
    ("a long wait", answers(429, {}, retry_after="600"), "http_429", 429),
    (
        "a far date",
        answers(503, {}, retry_after=format_datetime(datetime.now(timezone.utc) + timedelta(hours=1))),
        "http_5xx",
        503,
    ),
    ("a wait beyond the deadline", answers(429, {}, retry_after="50"), "http_429", 429),
]


def case(rows: list[tuple[str, Fault, str, int | None]]) -> Any:
    return pytest.mark.parametrize(
        ("fault", "cause", "status"), [row[1:] for row in rows], ids=[row[0] for row in rows]
    )


@case(RETRIED)
def test_a_passing_fault_is_retried(serve: Any, fault: Fault, cause: str, status: int | None) -> None:
    server = serve(fault, says())
    reply = client(server).complete(ASK)
    assert (reply.text, reply.attempts, len(server.requests)) == ("fine", 2, 2)


@case(RETRIED)
def test_a_lasting_fault_ends_after_the_last_attempt(
    serve: Any, fault: Fault, cause: str, status: int | None
) -> None:
    server = serve(fault)
    error = failure(client(server))
    assert (error.cause, error.facts["status"]) == (cause, status)
    assert error.facts["attempts"] == len(server.requests) == 3


@case(FINAL)
def test_a_final_fault_is_not_retried(serve: Any, fault: Fault, cause: str, status: int | None) -> None:
    server = serve(fault, says())
    error = failure(client(server))
    assert (error.cause, error.facts["status"]) == (cause, status)
    assert error.facts["attempts"] == len(server.requests) == 1


@pytest.mark.fault("F01")
def test_a_refused_connection_says_so() -> None:
    error = failure(client(closed_port()))
    assert (error.cause, error.facts["attempts"], error.facts["status"]) == ("connection", 3, None)
    assert "Connect" in error.detail
    assert "3 attempts" in error.detail


@pytest.mark.fault("F01")
@pytest.mark.parametrize("host", ["name.invalid", "a" * 70 + ".invalid"])
def test_a_name_that_leads_nowhere_is_a_connection_failure(host: str) -> None:
    assert failure(client(f"http://{host}/v1", max_attempts=1)).cause == "connection"


@pytest.mark.fault("F02", "F03")
@pytest.mark.parametrize("fault", [fs.hang, fs.drip])
def test_a_server_that_never_ends_is_cut(serve: Any, fault: Fault) -> None:
    server = serve(fault)
    error = failure(client(server, timeout_attempt=0.25, max_attempts=2))
    assert (error.cause, error.facts["attempts"], len(server.requests)) == ("timeout", 2, 2)
    assert not server.stop.is_set()  # it would have gone on


@pytest.mark.fault("F02")
def test_a_hang_is_retried(serve: Any) -> None:
    assert client(serve(fs.hang, says()), timeout_attempt=0.3).complete(ASK).attempts >= 2


@pytest.mark.fault("F02", "F03")
@pytest.mark.parametrize("fault", [fs.hang, fs.drip])
def test_the_call_deadline_is_above_all_attempts(serve: Any, fault: Fault) -> None:
    server = serve(fault)
    error = failure(client(server, timeout_attempt=0.1, timeout_call=0.35, max_attempts=1000))
    assert error.cause == "timeout"
    assert len(server.requests) <= 4


@pytest.mark.fault("F02", "F03")
@pytest.mark.parametrize("fault", [fs.hang, fs.drip])
def test_the_call_deadline_cuts_an_attempt(serve: Any, fault: Fault) -> None:
    error = failure(client(serve(fault), timeout_attempt=30.0, timeout_call=0.25))
    assert error.cause == "timeout"
    assert "within 0.25 s" in error.detail


def test_backoff_does_not_outlast_the_call(serve: Any) -> None:
    server = serve(answers(503, b""))
    error = failure(client(server, backoff=1000.0, timeout_call=2.0))
    assert (error.cause, len(server.requests)) == ("http_5xx", 1)


@pytest.mark.fault("F06")
def test_retry_after_is_waited_for(serve: Any) -> None:
    reply = client(serve(answers(429, {}, retry_after="0.3"), says())).complete(ASK)
    assert (reply.attempts, reply.elapsed >= 0.3) == (2, True)


@pytest.mark.fault("F06")
def test_a_date_is_waited_for(serve: Any) -> None:
    soon = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=1.5))
    reply = client(serve(answers(503, {}, retry_after=soon), says())).complete(ASK)
    assert (reply.attempts, reply.elapsed >= 0.4) == (2, True)


@pytest.mark.security("S23")
def test_a_flood_is_not_read_to_its_end(serve: Any) -> None:
    server = serve(fs.flood)
    error = failure(client(server, max_attempts=1))
    assert "more than 1 MiB" in error.detail
    written = 0
    while written != server.sent:  # what the socket's buffers still took
        written = server.sent
        time.sleep(0.05)
    assert written < 25_000_000


@pytest.mark.security("S23")
def test_a_small_bomb_does_not_become_a_large_string(serve: Any) -> None:
    server = serve(answers(200, gzip.compress(b" " * 50_000_000), content_encoding="gzip"))
    llm = client(server, max_attempts=1)
    tracemalloc.start()
    error = failure(llm)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "more than 1 MiB" in error.detail
    assert peak < 20_000_000


# ---------------------------------------------------------------- cut replies


@pytest.mark.fault("F13")
def test_a_cut_reply_is_asked_for_once_more_with_twice_the_tokens(serve: Any) -> None:
    server = serve(says("the ver", "length"), says("the verdict"))
    reply = client(server).complete(ASK, max_tokens=40)
    assert (reply.text, reply.attempts) == ("the verdict", 2)
    assert [request.body["max_tokens"] for request in server.requests] == [40, 80]


@pytest.mark.fault("F13")
def test_a_reply_cut_twice_is_never_used(serve: Any) -> None:
    server = serve(says("the ver", "length"))
    error = failure(client(server), max_tokens=40)
    assert (error.cause, len(server.requests)) == ("truncated", 2)
    assert "80 tokens" in error.detail


@pytest.mark.fault("F13")
def test_cut_replies_and_faults_share_the_attempts(serve: Any) -> None:
    server = serve(answers(500, b""), says("x", "length"), answers(500, b""))
    error = failure(client(server))
    assert (error.cause, len(server.requests)) == ("http_5xx", 3)
    server = serve(says("x", "length"))
    assert failure(client(server, max_attempts=1)).cause == "truncated"
    assert len(server.requests) == 1


# ---------------------------------------------------------------- what an error tells, and what not


@pytest.mark.security("S42")
def test_an_error_carries_what_is_known(serve: Any) -> None:
    server = serve(answers(404, {"error": {"message": "no model\nm\x1b[31m"}}, x_request_id="req-7"))
    error = failure(client(server))
    assert dict(error.facts) == {
        "stage": "judge",
        "status": 404,
        "attempts": 1,
        "elapsed": error.facts["elapsed"],
        "request_id": "req-7",
        "base_url": server.url,
    }
    assert "no model m [31m" in error.detail
    assert pickle.loads(pickle.dumps(error)).facts == error.facts  # noqa: S301


@pytest.mark.security("S37", "S38")
@pytest.mark.fault("F08")
def test_a_refused_key_is_named_not_shown(serve: Any) -> None:
    server = serve(answers(401, {"error": {"message": f"Incorrect API key: {KEY}"}}))
    assert "FACTRL_JUDGE_API_KEY" in failure(client(server)).detail
    assert "MY_KEY" in failure(OpenAICompatible(server.url, "m", KEY, key_variable="MY_KEY")).detail


@pytest.mark.security("S37", "S38")
@pytest.mark.parametrize(
    "fault",
    [
        answers(401, {"error": {"message": f"Incorrect API key: {KEY}"}}),
        answers(403, f"<p>{KEY}</p>".encode(), x_request_id=KEY),
        answers(500, KEY.encode()),
        answers(302, b"", location=f"http://elsewhere/?key={KEY}"),
        answers(200, {"error": KEY}),
        answers(200, f"bearer {KEY}".encode()),
        fs.garbage,
        fs.hang,
    ],
)
def test_the_key_is_never_shown(serve: Any, fault: Fault) -> None:
    llm = client(serve(fault), timeout_attempt=0.3 if fault is fs.hang else 10.0, max_attempts=1)
    error = failure(llm)
    shown = [repr(error), str(error), repr(error.facts), "".join(traceback.format_exception(error))]
    shown += [repr(llm), repr(vars(llm)), pickle.dumps(error).decode("latin-1")]
    locals_seen = "".join(repr(frame.f_locals) for frame, _ in traceback.walk_tb(error.__traceback__))
    assert all(KEY not in text for text in [*shown, locals_seen])
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.security("S37")
@pytest.mark.parametrize("fault", [says(), answers(401, KEY.encode())])
def test_the_key_is_never_logged(serve: Any, fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with contextlib.suppress(LLMError):
        client(serve(fault)).complete(ASK)
    assert caplog.records
    assert KEY not in caplog.text


@pytest.mark.security("S37")
@pytest.mark.parametrize("key", ["sk-with\nbreak", "sk-with\x00nul", "sk-ключ", "sk with space"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match="FACTRL_JUDGE_API_KEY") as caught:
        OpenAICompatible("http://localhost/v1", "m", key)
    assert key not in str(caught.value)


def test_a_key_from_a_file_may_end_in_a_line_break(serve: Any) -> None:
    server = serve(says())
    OpenAICompatible(server.url, "m", f"{KEY}\n").complete(ASK)
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.security("S37")
@pytest.mark.parametrize("url", [f"http://me:{KEY}@host/v1", f"http://host/v1?key={KEY}"])
def test_a_key_in_the_address_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="FACTRL_JUDGE_API_KEY") as caught:
        OpenAICompatible(url, "m")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"timeout_attempt": 0}, "timeout_attempt"),
        ({"timeout_call": float("nan")}, "timeout_call"),
        ({"timeout_call": float("inf")}, "timeout_call"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_concurrency": 0}, "max_concurrency"),
    ],
)
def test_a_limit_that_cannot_work_is_named(limits: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        client("http://localhost/v1", **limits)


# ---------------------------------------------------------------- threads, loops, forks


@pytest.mark.fault("F31")
def test_many_threads_share_a_client_and_its_limit(serve: Any) -> None:
    waiting, most, lock = 0, 0, threading.Lock()

    def counted(handler: Any) -> None:
        """Those that wait; a client that has its answer may ask again before the server has noticed."""
        nonlocal waiting, most
        with lock:
            waiting += 1
            most = max(most, waiting)
        time.sleep(0.02)
        with lock:
            waiting -= 1
        says()(handler)

    llm = client(serve(counted), max_concurrency=4)
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: llm.complete(ASK).text, range(40)))
    assert replies == ["fine"] * 40
    assert 2 <= most <= 4


def test_waiting_for_a_turn_does_not_use_up_the_deadline(serve: Any) -> None:
    llm = client(serve(fs.slowly(0.15, says())), max_concurrency=1, timeout_call=0.7)
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda _: llm.complete(ASK).text, range(6))) == ["fine"] * 6


@pytest.mark.fault("F31")
def test_callers_with_their_own_event_loops(serve: Any) -> None:
    llm = client(serve(says()))

    async def caller() -> tuple[str, str]:
        return llm.complete(ASK).text, (await asyncio.to_thread(llm.complete, ASK)).text

    for _ in range(3):
        assert asyncio.run(caller()) == ("fine", "fine")


@pytest.mark.fault("F31")
def test_a_call_that_would_wait_for_itself_is_refused(serve: Any) -> None:
    llm = client(serve(says()))

    async def nested() -> str:
        return llm.complete(ASK).text

    with pytest.raises(RuntimeError, match="own event loop"):
        wait_for(nested())


@pytest.mark.fault("F31")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_makes_its_own_connections(serve: Any) -> None:
    server = serve(says())
    llm = client(server)
    assert llm.complete(ASK).text == "fine"
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            os.write(write, llm.complete(ASK).text.encode())
        finally:
            os._exit(0)
    os.close(write)
    ready, _, _ = select.select([read], [], [], 20)
    assert ready
    assert os.read(read, 100) == b"fine"
    os.close(read)
    os.waitpid(child, 0)
    assert llm.complete(ASK).text == "fine"


@pytest.mark.fault("F32")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs setitimer")
def test_an_interrupted_caller_leaves_no_request_behind(serve: Any) -> None:
    server = serve(fs.drip)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            client(server).complete(ASK)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert until(lambda: server.active == 0)


def test_a_collected_client_leaves_no_request_and_no_session_behind(serve: Any) -> None:
    server = serve(says())
    llm = client(server)
    llm.complete(ASK)
    [line] = llm._http._lines.values()
    del llm
    gc.collect()
    assert until(lambda: line.session.closed)


@pytest.mark.fault("F17")
def test_every_request_has_a_connection_of_its_own(serve: Any) -> None:
    server = serve(answers(500, b""), says())
    llm = client(server)
    for _ in range(2):
        llm.complete(ASK)
    assert [request.headers["connection"] for request in server.requests] == ["close"] * 3
    assert until(lambda: server.connections == 0)


def test_a_proxy_is_not_for_this_machine(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, server = serve(says("proxied")), serve(says("direct"))
    monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
    assert client(server).complete(ASK).text == "direct"
    assert client("http://judge.invalid/v1").complete(ASK).text == "proxied"


# ---------------------------------------------------------------- connect


@pytest.mark.parametrize(
    ("spec", "environment", "url", "model"),
    [
        ("http://localhost:8000/v1#qwen", {}, "http://localhost:8000/v1", "qwen"),
        ("http://localhost:8000/v1#meta/llama-3", {}, "http://localhost:8000/v1", "meta/llama-3"),
        ("http://localhost:8000/v1/", {}, "http://localhost:8000/v1", None),
        ("http://localhost:8000/v1#", {}, "http://localhost:8000/v1", None),
        (" https://judge.example/v1#m ", {}, "https://judge.example/v1", "m"),
        ("openai/gpt-4o-mini", {}, "https://api.openai.com/v1", "gpt-4o-mini"),
        ("openai/gpt-4o-mini", {"OPENAI_BASE_URL": "http://gate/v1/"}, "http://gate/v1", "gpt-4o-mini"),
        ("openai/a", {"FACTRL_JUDGE_BASE_URL": "http://mine/v1"}, "http://mine/v1", "a"),
        ("openai/a", {"FACTRL_JUDGE_MODEL": "b"}, "https://api.openai.com/v1", "b"),
        ("", {"FACTRL_JUDGE_BASE_URL": "http://mine/v1"}, "http://mine/v1", None),
        (
            "openai/a",
            {"FACTRL_JUDGE_BASE_URL": ""},
            "https://api.openai.com/v1",
            "a",
        ),
    ],
)
def test_a_spec_names_a_server(
    spec: str, environment: dict[str, str], url: str, model: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    llm = connect(spec)
    assert (llm.base_url, llm.model) == (url, model)


@pytest.mark.parametrize(
    "spec",
    [
        *(
            "",
            " ",
            "gpt-4o-mini",
            "localhost:8000",
            "openai/",
            "anthropic/claude",
            "ftp://host/v1",
            "http://",
        ),
        *("http://#m", "http://host:port/v1", "http://host:99999/v1", "http://[::1/v1", "file:///etc/passwd"),
    ],
)
def test_a_bad_spec_shows_a_right_one(spec: str) -> None:
    with pytest.raises(ConfigError, match="http://localhost:8000/v1#model-name"):
        connect(spec)


@pytest.mark.security("S37")
@pytest.mark.parametrize(
    ("api_key", "environment", "sent"),
    [
        (None, {}, None),
        ("given", {"FACTRL_JUDGE_API_KEY": "judge"}, "given"),
        (None, {"FACTRL_JUDGE_API_KEY": "judge", "OPENAI_API_KEY": "openai"}, "judge"),
        (None, {"OPENAI_API_KEY": "openai"}, None),  # not to a server that is not OpenAI's
        (None, {"OPENAI_API_KEY": "openai", "OPENAI_BASE_URL": "{url}/"}, "openai"),
    ],
)
def test_keys_go_only_where_they_belong(
    serve: Any,
    api_key: str | None,
    environment: dict[str, str],
    sent: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = serve(says())
    for name, value in environment.items():
        monkeypatch.setenv(name, value.format(url=server.url))
    connect(f"{server.url}#m", api_key=api_key).complete(ASK)
    assert server.requests[0].headers.get("authorization") == (f"Bearer {sent}" if sent else None)


def test_a_refused_openai_key_is_named_by_its_variable(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve(answers(401, {}))
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert "OPENAI_API_KEY" in failure(connect("openai/gpt")).detail
    assert "FACTRL_JUDGE_API_KEY" in failure(connect(serve(answers(401, {})).url + "#m")).detail


def test_limits_reach_the_client(serve: Any) -> None:
    server = serve(answers(500, b""))
    assert failure(connect(f"{server.url}#m", max_attempts=2, backoff=0.001)).facts["attempts"] == 2


# ---------------------------------------------------------------- which model, and is it there


def models(*names: str) -> Fault:
    return answers(200, {"object": "list", "data": [{"id": name} for name in names]})


def test_the_only_model_is_found_once(serve: Any) -> None:
    server = serve(models("qwen"), says())
    llm = client(server, model=None, max_attempts=1)
    preflight(llm)
    assert llm.complete(ASK).attempts == 1
    assert llm.model == "qwen"
    asked = [(request.method, request.path) for request in server.requests]
    assert asked == [("GET", "/v1/models"), *[("POST", "/v1/chat/completions")] * 2]
    assert server.requests[-1].body["model"] == "qwen"


@pytest.mark.parametrize("names", [(), ("a", "b"), tuple("abcdefgh")])
def test_which_model_is_not_guessed(serve: Any, names: tuple[str, ...]) -> None:
    server = serve(models(*names))
    with pytest.raises(ConfigError, match=f"{server.url}#{names[0] if names else 'model-name'}"):
        client(server, model=None).complete(ASK)


@pytest.mark.parametrize("document", [{}, [], {"data": None}, {"data": ["a"]}, {"data": [{}]}, {"data": "a"}])
def test_a_strange_list_of_models_is_a_fault(serve: Any, document: Any) -> None:
    assert failure(client(serve(answers(200, document)), model=None)).cause == "bad_body"


def test_preflight_passes_when_the_model_answers(serve: Any) -> None:
    server = serve(says("ok"))
    preflight(client(server))
    assert len(server.requests) == 1
    preflight(FakeLLM(["ok"]))


def test_preflight_accepts_a_model_that_talks_too_much(serve: Any) -> None:
    preflight(client(serve(says("Well, let me think about", "length"))))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (answers(401, {"error": "no"}), ["401", "FACTRL_JUDGE_API_KEY", "check that key"]),
        (answers(404, {"error": "no such model"}), ["404", "no such model", "/v1"]),
        (answers(200, HTML), ["Welcome to nginx", "OpenAI-compatible"]),
        (answers(500, b"CUDA error"), ["500", "CUDA error", "log"]),
        (answers(301, b"", location="http://x/v1"), ["http://x/v1", "redirect"]),
        (fs.hang, ["no complete reply", "loading"]),
    ],
)
def test_preflight_says_what_to_do(serve: Any, fault: Fault, words: list[str]) -> None:
    server = serve(fault)
    with pytest.raises(SetupError) as caught:
        preflight(client(server), timeout=0.3 if fault is fs.hang else 10.0)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in [server.url, *words])
    assert KEY not in message
    assert len(server.requests) <= 2


def test_preflight_without_a_server() -> None:
    url = closed_port()
    with pytest.raises(SetupError, match=rf"{url} could not be reached.*start the server"):
        preflight(client(url))


def test_preflight_of_any_other_llm() -> None:
    with pytest.raises(SetupError, match="the line is dead"):
        preflight(FakeLLM([LLMError("connection", "the line is dead")]))


# ---------------------------------------------------------------- FakeLLM


def test_a_script_is_played_in_order() -> None:
    fake = FakeLLM(["one", LLMError("timeout", "late"), "three"])
    assert fake.complete(ASK).text == "one"
    with pytest.raises(LLMError, match="late"):
        fake.complete(ASK)
    assert fake.complete(ASK, temperature=1.0, max_tokens=5).text == "three"
    with pytest.raises(RuntimeError, match="3 replies and was called 4 times"):
        fake.complete(ASK)
    assert fake.calls == [ASK] * 4


def test_a_function_answers() -> None:
    fake = FakeLLM(lambda messages: messages[-1]["content"].upper())
    assert fake.complete(ASK).text == "IS WATER WET?"
    with pytest.raises(LLMError, match="gone"):
        FakeLLM(lambda _: LLMError("connection", "gone")).complete(ASK)


def test_threads_never_get_the_same_reply() -> None:
    fake = FakeLLM([str(n) for n in range(200)])
    start = threading.Barrier(8)

    def take(_: int) -> list[str]:
        start.wait()
        return [fake.complete(ASK).text for _ in range(25)]

    with ThreadPoolExecutor(8) as pool:
        taken = [text for texts in pool.map(take, range(8)) for text in texts]
    assert sorted(map(int, taken)) == list(range(200))


def test_a_string_is_not_a_script() -> None:
    with pytest.raises(TypeError, match="VERDICT: correct"):
        FakeLLM("VERDICT: correct")
