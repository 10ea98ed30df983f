from __future__ import annotations

import gzip
import json
import pickle
import signal
import time
import traceback
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import factrl as fx
import fault_server as fs
from factrl.errors import ConfigError, LLMError, SetupError
from factrl.llm import FakeLLM, connect, preflight
from factrl.llm.background import wait_for
from factrl.llm.limits import RateLimiter
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.llm.store import CachedLLM, Store
from factrl.rewards.checklist import Checklist
from factrl.rewards.grading import Grader, reasoning_judge
from factrl.rewards.preference import rating_judge
from factrl.verifier.judges import LLMJudge
from fault_server import Fault, FaultServer, answers, completion, says, until

KEY = "sk-canary-0123456789abcdef"
ASK = [{"role": "user", "content": "Is water wet?"}]
HTML = b"<html><body>Welcome to nginx!</body></html>"


client = partial(fs.client, key=KEY, max_attempts=3)


def failure(llm: OpenAICompatible, **sampling: Any) -> LLMError:
    with pytest.raises(LLMError) as caught:
        llm.complete(ASK, **sampling)
    return caught.value


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


def test_a_request_counts_as_what_it_may_use_until_it_is_answered(
    serve: Callable[..., FaultServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    enter, used = RateLimiter.enter, RateLimiter.used
    monkeypatch.setattr(
        RateLimiter, "enter", lambda self, tokens=0: counted.append(tokens) or enter(self, tokens)
    )
    monkeypatch.setattr(RateLimiter, "used", lambda self, more: counted.append(more) or used(self, more))
    client(serve(says()), tpm=1e6).complete([{"role": "user", "content": "a" * 4000}], max_tokens=100)
    assert 1100 <= counted[0] <= 1120
    assert sum(counted) == 7 + 2  # as the server said


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


# ---------------------------------------------------------------- servers as they are


def document(reason: Any = "stop", **message: Any) -> dict[str, Any]:
    """A completion with these fields in its message; without an end where that is `...`."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return completion(choices=[{k: v for k, v in choice.items() if v is not ...}])


def part(text: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": text}


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "dry?"}]}


@pytest.mark.parametrize(
    ("sent", "text", "reason"),
    [
        (document(None, content="wet"), "wet", "stop"),
        (document(..., content="wet"), "wet", "stop"),
        (document("", content="wet"), "wet", "stop"),
        (document("STOP", content="wet"), "wet", "stop"),
        (document("eos_token", content="wet"), "wet", "stop"),
        (document("end_turn", content="wet"), "wet", "stop"),
        (document("tool_calls", content="wet"), "wet", "tool_calls"),
        (document(content=[part("wet")]), "wet", "stop"),
        (document(content=[part("w"), part("et", "output_text")]), "wet", "stop"),
        (document(content=[THOUGHT, part("wet")]), "wet", "stop"),
        (document(content=[part("dry?", "reasoning"), part("wet")]), "wet", "stop"),
        (document(content="wet", reasoning_content="dry?"), "wet", "stop"),
        (document(content=None, refusal="I can't say."), "I can't say.", "stop"),
        (document(content="", refusal="I can't say."), "I can't say.", "stop"),
        (document(refusal="I can't say."), "I can't say.", "stop"),
        (document(content=[{"type": "refusal", "refusal": "I can't say."}]), "I can't say.", "stop"),
        (document(content="wet", refusal=None), "wet", "stop"),
    ],
)
def test_a_reply_is_read_in_the_form_that_the_server_gives_it(
    serve: Any, sent: Any, text: str, reason: str
) -> None:
    reply = client(serve(answers(200, sent))).complete(ASK)
    assert (reply.text, reply.finish_reason, reply.attempts) == (text, reason, 1)


@pytest.mark.parametrize(
    ("sent", "cause", "requests", "words"),
    [
        (document(content=None, reasoning_content="It is wet."), "no_text", 1, "in reasoning_content alone"),
        (document(content=None, reasoning="It is wet."), "no_text", 1, "in reasoning_content alone"),
        (document("tool_calls", content=None, tool_calls=[{}]), "no_text", 1, "a call of a tool"),
        (document("content_filter", content=None), "truncated", 1, "content_filter"),
        (document("content_filter"), "truncated", 1, "content_filter"),
        (document("SAFETY", content=""), "truncated", 1, "content_filter"),
        (document("error", content=None), "bad_body", 3, "answered with an error"),
        (completion(choices=[]), "bad_body", 3, "a completion that has no choice"),
        (completion(choices=[{"error": {"message": "upstream"}}]), "bad_body", 3, "upstream"),
        (document(content=7), "bad_body", 3, "something other than a chat completion"),
    ],
)
def test_a_reply_without_text_is_named(serve: Any, sent: Any, cause: str, requests: int, words: str) -> None:
    server = serve(answers(200, sent))
    error = failure(client(server))
    assert (error.cause, len(server.requests), words in error.detail) == (cause, requests, True), error


@pytest.mark.parametrize(
    "message", [{"content": None}, {}, {"content": []}, {"content": None, "reasoning": "Hm"}]
)
@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS"])
def test_a_reply_that_ended_before_its_text_began_is_asked_for_with_more_tokens(
    serve: Any, message: dict[str, Any], reason: str
) -> None:
    server = serve(answers(200, document(reason, **message)), says("wet"))
    assert client(server).complete(ASK, max_tokens=40).text == "wet"
    assert [request.body["max_tokens"] for request in server.requests] == [40, 80]
    assert failure(client(serve(answers(200, document(reason, **message))))).cause == "truncated"


def takes_no(field: str, complaint: Any, status: int = 400) -> Fault:
    """A server that refuses every request with this field."""
    return lambda handler: (answers(status, complaint) if field in handler.asked.body else says("wet"))(
        handler
    )


OPENAI = {
    "message": "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead.",
    "param": "max_tokens",
    "code": "unsupported_parameter",
}
EXTRA = {"type": "extra_forbidden", "loc": ["body", "max_tokens"], "msg": "Extra inputs are not permitted"}
DEFAULT = (
    "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported."
)


@pytest.mark.parametrize(
    ("field", "complaint", "status"),
    [
        ("max_tokens", {"error": OPENAI}, 400),
        ("max_tokens", {"detail": [EXTRA]}, 422),
        ("max_tokens", {"error": "max_tokens is deprecated"}, 400),
        ("temperature", {"error": {"message": DEFAULT, "param": "temperature"}}, 400),
        ("temperature", {"error": {"message": "`temperature` is deprecated for this model."}}, 400),
        ("temperature", {"error": {"message": "invalid temperature: only 1 is allowed for this model"}}, 400),
    ],
)
def test_a_field_that_a_server_takes_no_request_with_is_said_otherwise_from_then_on(
    serve: Any, field: str, complaint: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(takes_no(field, complaint, status))
    llm = client(server, max_attempts=1)
    assert [llm.complete(ASK, max_tokens=40).text for _ in range(3)] == ["wet"] * 3
    bodies = [request.body for request in server.requests]
    assert [field in body for body in bodies] == [True, False, False, False]
    assert ("max_completion_tokens" in bodies[-1]) == (field == "max_tokens")
    assert [field in record.message for record in caplog.records if record.levelname == "WARNING"] == [True]


@pytest.mark.parametrize(
    ("complaint", "sampling"),
    [
        ("max_tokens is too large: 512. This model supports at most 256", {}),
        ("temperature must be between 0 and 2", {}),
        ("unknown model m", {}),
        (DEFAULT, {"temperature": 0.7}),  # what is to be sampled at another one is not sampled at 1
    ],
)
def test_a_value_that_a_server_refuses_is_its_error(serve: Any, complaint: str, sampling: Any) -> None:
    server = serve(answers(400, {"error": {"message": complaint}}))
    error = failure(client(server), **sampling)
    assert (len(server.requests), complaint in error.detail) == (1, True)


# ---------------------------------------------------------------- other processes


def test_what_asks_a_server_is_pickled_without_its_key_and_its_connections(
    serve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = serve(says("VERDICT: correct"))
    monkeypatch.setenv("FACTRL_JUDGE_API_KEY", KEY)
    llm = connect(f"{server.url}#m")
    llm.complete(ASK)  # so that there is something that is this process's alone
    store = Store(tmp_path / "verdicts.db")
    for thing in (
        *(Grader(llm), Grader(CachedLLM(llm, store)), Grader(FakeLLM(["VERDICT: correct"]))),
        *(
            LLMJudge(llm, controls=True),
            Checklist(CachedLLM(llm, store)),
            rating_judge(llm),
            reasoning_judge(llm),
        ),
        fx.remote(server.url, "truthrl"),
    ):
        pickled = pickle.dumps(thing)
        assert KEY.encode() not in pickled
        again = pickle.loads(pickled)  # noqa: S301
        if isinstance(again, Grader):
            assert again("Who?", "Jo Ann", ["Joan"]).label == "correct"
    assert server.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    with pytest.raises(ConfigError, match="FACTRL_JUDGE_API_KEY"):
        pickle.dumps(Grader(connect(f"{server.url}#m", api_key="another-key")))


# ---------------------------------------------------------------- faults

RETRIED: list[tuple[str, Fault, str, int | None]] = [
    ("reset", fs.reset, "connection", 200),
    ("two content-lengths", fs.short, "bad_body", None),
    ("not http", fs.garbage, "bad_body", None),
    ("429", answers(429, {"error": {"message": "slow down"}}), "http_429", 429),
    ("429 with Retry-After", answers(429, {}, retry_after="0.01"), "http_429", 429),
    ("429 with garbage", answers(429, {}, retry_after="soon, I hope"), "http_429", 429),
    ("408", answers(408, b""), "http_408", 408),
    ("529", answers(529, b"oops"), "http_5xx", 529),
    ("html", answers(200, HTML), "bad_body", 200),
    ("error in a 200", answers(200, {"error": {"message": "overloaded"}}), "bad_body", 200),
    ("cut json", answers(200, json.dumps(completion()).encode()[:-9]), "bad_body", 200),
    ("deep json", answers(200, b"[" * 100_000), "bad_body", 200),
    ("a list", answers(200, [1, 2]), "bad_body", 200),
    ("null content", answers(200, completion(None)), "bad_body", 200),  # type: ignore[arg-type]
    ("bad gzip", answers(200, b"not gzip", content_encoding="gzip"), "bad_body", 200),
]

FINAL: list[tuple[str, Fault, str, int | None]] = [
    ("400", answers(400, {"error": {"message": "no such field"}}), "http_400", 400),
    ("401", answers(401, {"error": {"message": "bad key"}}), "auth", 401),
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
def test_a_passing_fault_is_retried_and_a_lasting_one_ends_after_the_last_attempt(
    serve: Any, fault: Fault, cause: str, status: int | None
) -> None:
    server = serve(fault, says())
    reply = client(server).complete(ASK)
    assert (reply.text, reply.attempts, len(server.requests)) == ("fine", 2, 2)
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


@pytest.mark.parametrize("fault", [fs.hang, fs.drip])
@pytest.mark.parametrize(
    ("limits", "requests", "words"),
    [
        ({"timeout_attempt": 0.1, "timeout_call": 0.35, "max_attempts": 1000}, 4, ""),
        ({"timeout_attempt": 30.0, "timeout_call": 0.25}, 1, "within 0.25 s"),
    ],
    ids=["above all attempts", "cuts an attempt"],
)
def test_the_deadline_of_a_call(
    serve: Any, fault: Fault, limits: dict[str, Any], requests: int, words: str
) -> None:
    server = serve(fault)
    error = failure(client(server, **limits))
    assert error.cause == "timeout"
    assert words in error.detail
    assert len(server.requests) <= requests


def test_a_flood_is_not_read_to_its_end(serve: Any) -> None:
    server = serve(fs.flood)
    error = failure(client(server, max_attempts=1))
    assert "more than 1 MiB" in error.detail
    written = 0
    while written != server.sent:  # what the socket's buffers still took
        written = server.sent
        time.sleep(0.05)
    assert written < 25_000_000


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


def test_a_cut_reply_is_asked_for_once_more_with_twice_the_tokens(serve: Any) -> None:
    server = serve(says("the ver", "length"), says("the verdict"))
    reply = client(server).complete(ASK, max_tokens=40)
    assert (reply.text, reply.attempts) == ("the verdict", 2)
    assert [request.body["max_tokens"] for request in server.requests] == [40, 80]


def test_a_reply_cut_twice_is_never_used(serve: Any) -> None:
    server = serve(says("the ver", "length"))
    error = failure(client(server), max_tokens=40)
    assert (error.cause, len(server.requests)) == ("truncated", 2)
    assert "80 tokens" in error.detail


def test_cut_replies_and_faults_share_the_attempts(serve: Any) -> None:
    server = serve(answers(500, b""), says("x", "length"), answers(500, b""))
    error = failure(client(server))
    assert (error.cause, len(server.requests)) == ("http_5xx", 3)
    server = serve(says("x", "length"))
    assert failure(client(server, max_attempts=1)).cause == "truncated"
    assert len(server.requests) == 1


# ---------------------------------------------------------------- what an error tells, and what not


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


@pytest.mark.parametrize(
    "fault",
    [
        answers(401, {"error": {"message": f"Incorrect API key: {KEY}"}}),
        answers(302, b"", location=f"http://elsewhere/?key={KEY}", x_request_id=KEY),
        answers(200, {"error": KEY}),
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


@pytest.mark.parametrize("key", ["sk-with\nbreak", "sk-ключ"])
def test_a_key_that_cannot_be_sent_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match="FACTRL_JUDGE_API_KEY") as caught:
        OpenAICompatible("http://localhost/v1", "m", key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("url", [f"http://me:{KEY}@host/v1", f"http://host/v1?key={KEY}"])
def test_a_key_in_the_address_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="FACTRL_JUDGE_API_KEY") as caught:
        OpenAICompatible(url, "m")
    assert KEY not in str(caught.value)


# ---------------------------------------------------------------- threads, loops, forks


def test_waiting_for_a_turn_does_not_use_up_the_deadline(serve: Any) -> None:
    llm = client(serve(fs.slowly(0.15, says())), max_concurrency=1, timeout_call=0.7)
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda _: llm.complete(ASK).text, range(6))) == ["fine"] * 6


def test_a_call_that_would_wait_for_itself_is_refused(serve: Any) -> None:
    llm = client(serve(says()))

    async def nested() -> str:
        return llm.complete(ASK).text

    with pytest.raises(RuntimeError, match="own event loop"):
        wait_for(nested())


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
    until(lambda: server.active == 0)


# ---------------------------------------------------------------- connect


@pytest.mark.parametrize(
    ("spec", "environment", "url", "model"),
    [
        ("http://localhost:8000/v1#qwen", {}, "http://localhost:8000/v1", "qwen"),
        ("http://localhost:8000/v1/", {}, "http://localhost:8000/v1", None),
        ("openai/gpt-4o-mini", {}, "https://api.openai.com/v1", "gpt-4o-mini"),
        ("openai/gpt-4o-mini", {"OPENAI_BASE_URL": "http://gate/v1/"}, "http://gate/v1", "gpt-4o-mini"),
        ("openai/a", {"FACTRL_JUDGE_BASE_URL": "http://mine/v1"}, "http://mine/v1", "a"),
        ("openai/a", {"FACTRL_JUDGE_MODEL": "b"}, "https://api.openai.com/v1", "b"),
        ("", {"FACTRL_JUDGE_BASE_URL": "http://mine/v1"}, "http://mine/v1", None),
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
        *("", "gpt-4o-mini", "localhost:8000", "openai/", "anthropic/claude", "http://host:port/v1"),
    ],
)
def test_a_bad_spec_shows_a_right_one(spec: str) -> None:
    with pytest.raises(ConfigError, match="http://localhost:8000/v1#model-name"):
        connect(spec)


@pytest.mark.parametrize(
    ("api_key", "environment", "sent"),
    [
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


@pytest.mark.parametrize("names", [(), ("a", "b")])
def test_which_model_is_not_guessed(serve: Any, names: tuple[str, ...]) -> None:
    server = serve(models(*names))
    with pytest.raises(ConfigError, match=f"{server.url}#{names[0] if names else 'model-name'}"):
        client(server, model=None).complete(ASK)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (answers(401, {"error": "no"}), ["401", "FACTRL_JUDGE_API_KEY", "check that key"]),
        (answers(404, {"error": "no such model"}), ["404", "no such model", "/v1"]),
        (answers(200, HTML), ["Welcome to nginx", "OpenAI-compatible"]),
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
