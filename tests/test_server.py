"""The server on a loopback port: what it answers, whom it lets in, and what its client believes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from factrl import Example, FakeLLM, Grader, Passage, Score, Span, load_reward, remote
from factrl.cache import Store
from factrl.cli import main
from factrl.errors import LLMError
from factrl.rewards import Reward, reward
from factrl.verifier.presets import open_verifier
from fault_server import FaultServer

uvicorn = pytest.importorskip("uvicorn")
from factrl.server.app import make_app  # noqa: E402
from factrl.server.describe import description  # noqa: E402
from factrl.server.service import Service  # noqa: E402

RIGHT, WRONG = r"\boxed{Paris}", r"\boxed{a town on the Rhone}"
QUESTION = {"question": "Capital of France?", "answers": ["Paris"]}
PARIS = Example("Capital of France?", ("Paris",))


@reward
def steps(example: Example, completion: str) -> Score:
    """Credit for the first word, a floor for an empty text."""
    return Score(
        {"a": 0.1, "b": 0.2}, (Span(0, 1, 1),) if completion else (), None if completion else "empty"
    )


class Running:
    """A service behind uvicorn on a port of its own."""

    def __init__(self, service: Service, token: str = "", **limits: Any) -> None:
        config = uvicorn.Config(make_app(service, token, **limits), port=0, log_level="error", lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def ask(
        self, path: str, body: Any = None, method: str = "", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and JSON of an answer; `body` is sent as JSON unless it is bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        plain = {"Content-Type": "application/json"} if data is not None else {}
        connection.request(
            method or ("GET" if data is None else "POST"), path, data, {**plain, **(headers or {})}
        )
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, json.loads(text) if text[:1] in b"{[" else text.decode()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()


Make = Callable[..., Running]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    started: list[Running] = []

    def start(judge: Any = None, token: str = "", limits: Any = None, **more: Any) -> Running:
        rewards: dict[str, Reward] = {
            "truthrl": load_reward("truthrl").with_(grade=Grader(judge)),
            "steps": steps,
        }
        verifier = open_verifier("local", judge="weak")
        service = Service(rewards, judge, verifier, Store(tmp_path / "answers.db"), **more)
        started.append(Running(service, token, **(limits or {})))
        return started[-1]

    yield start
    for running in started:
        running.stop()


def request(*completions: str, reward: str = "truthrl", **example: Any) -> dict[str, Any]:
    return {
        "reward": reward,
        "samples": [{"example": {**QUESTION, **example}, "completion": c} for c in completions],
    }


# What it answers


def test_a_sample_is_scored_masked_or_floored_and_a_masked_one_has_no_value(make: Make) -> None:
    server = make(FakeLLM([LLMError("timeout", "no reply")]))
    status, answer = server.ask("/v1/score", request(RIGHT, "no box", WRONG))
    assert status == 200
    assert [(r["state"], r["value"], r["cause"]) for r in answer["results"]] == [
        ("scored", 1.0, None),
        ("floored", -1.0, "no_box"),
        ("masked", None, "timeout"),
    ]
    [metrics] = [text for code, text in [server.ask("/metrics")] if code == 200]
    assert 'factrl_samples_total{cause="timeout",reward="truthrl",state="masked"} 1.0' in metrics
    assert "Paris" not in metrics


def test_claims_are_verified_against_the_evidence_of_the_request(make: Make) -> None:
    evidence = [{"text": "Paris is the capital of France."}]
    status, report = make().ask(
        "/v1/verify", {"text": "Paris is the capital of France.", "evidence": evidence}
    )
    assert (status, report["counts"]["supported"]) == (200, 1)


WRONG_REQUESTS = {
    "unknown reward": ("/v1/score", {**request(RIGHT), "reward": "truthr"}, 404, "did you mean 'truthrl'?"),
    "judge from the wire": ("/v1/score", {**request(RIGHT), "judge": "http://x"}, 422, '"judge"'),
    "file from the wire": ("/v1/score", {**request(RIGHT), "cache": "/etc"}, 422, '"cache"'),
    "own code from the wire": (
        "/v1/score",
        {**request(RIGHT), "reward": "own.py:mine"},
        404,
        "has no reward",
    ),
    "knob in the example": ("/v1/score", request(RIGHT, wrong=-9.0), 422, '"wrong"'),
    "null for a list": ("/v1/score", request(RIGHT, answers=None), 422, '"answers"'),
    "text for a number": ("/v1/score", {"reward": "truthrl", "samples": [{"tokens": "5"}]}, 422, '"tokens"'),
    "nothing to score": ("/v1/score", {"reward": "truthrl", "samples": []}, 422, '"samples"'),
    "no answers": ("/v1/score", request(RIGHT, answers=[]), 422, "it has no accepted answers"),
    "too many samples": ("/v1/score", request(*[RIGHT] * 1025), 422, '"samples"'),
    "NaN": ("/v1/score", b'{"reward": NaN, "samples": []}', 422, '"reward"'),
    "no JSON": ("/v1/score", b'{"reward": ', 422, "json"),
    "unequal lists": (
        "/v1/openrlhf/truthrl",
        {"query": ["a"], "prompts": [], "labels": ["b"]},
        422,
        "1, 0 and 1",
    ),
    "a list for a text": ("/v1/verify", {"text": ["a"]}, 422, '"text"'),
}


@pytest.mark.parametrize("case", WRONG_REQUESTS)
def test_a_wrong_request_is_refused_by_field_and_its_text_is_not_repeated(make: Make, case: str) -> None:
    path, body, status, told = WRONG_REQUESTS[case]
    code, answer = make().ask(path, body)
    text = json.dumps(answer)
    assert (code, told in text.replace("\\", "")) == (status, True), text
    assert len(text) < 2000


def test_a_long_value_is_not_echoed(make: Make) -> None:
    code, answer = make().ask("/v1/score", request(RIGHT, ook="x" * 5000))
    assert (code, "xxx" in json.dumps(answer)) == (422, False)


def test_openrlhf_gets_numbers_and_never_one_for_what_was_not_graded(make: Make) -> None:
    server = make(FakeLLM([LLMError("timeout", "no reply")]))
    label = json.dumps({"answers": ["Paris", "Lutetia"]})
    body = {
        "query": [f"Capital? {RIGHT}", r"Capital? \boxed{Lutetia}", "Capital? x"],
        "prompts": ["Capital? "] * 3,
    }
    status, answer = server.ask(
        "/v1/openrlhf/truthrl", {**body, "labels": ["Paris", label, "Paris"], "extra": 1}
    )
    assert (status, answer["rewards"], answer["scores"]) == (200, [1.0, 1.0, -1.0], [1.0, 1.0, -1.0])
    assert answer["extra_logs"] == {"outcome": [1.0, 1.0, -1.0], "floored": [0.0, 0.0, 1.0]}
    body = {"query": [f"Capital? {WRONG}"], "prompts": ["Capital? "], "labels": ["Paris"]}
    status, answer = server.ask("/v1/openrlhf/truthrl", body)
    assert (status, answer["detail"][:30]) == (503, "a sample could not be graded, ")


def test_a_broken_reward_is_the_servers_fault_and_keeps_its_secrets(make: Make, monkeypatch: Any) -> None:
    @reward
    def broken(example: Example, completion: str) -> Any:
        raise KeyError("secret")

    server = make()
    monkeypatch.setitem(running_rewards(server), "steps", broken)
    status, answer = server.ask("/v1/score", request("x", reward="steps"))
    assert (status, answer) == (500, {"detail": "the reward is broken; the server's log says how"})


def running_rewards(server: Running) -> dict[str, Reward]:
    config: Any = server._server.config
    api = config.app._app
    score = next(route for route in api.routes if getattr(route, "path", "") == "/v1/score")
    return next(
        c.cell_contents for c in score.endpoint.__closure__ if isinstance(c.cell_contents, Service)
    ).rewards


# Sent again


def test_a_request_sent_again_is_answered_again_without_asking_the_judge(make: Make) -> None:
    judge = FakeLLM(["VERDICT: correct"])
    server, key = make(judge), {"Idempotency-Key": "k1"}
    first = server.ask("/v1/score", request(WRONG), headers=key)
    assert server.ask("/v1/score", request(WRONG), headers=key) == first
    server.stop()
    assert make(FakeLLM([])).ask("/v1/score", request(WRONG), headers=key) == first  # after a restart
    assert (first[0], len(judge.calls)) == (200, 1)
    status, answer = make(FakeLLM([])).ask("/v1/score", request(RIGHT), headers=key)
    assert (status, answer["detail"]) == (
        409,
        "the Idempotency-Key was used for another request; use a new one",
    )


def test_the_same_request_at_the_same_time_is_worked_on_once(make: Make) -> None:
    def slow(_: Any) -> str:
        time.sleep(0.3)
        return "VERDICT: incorrect"

    judge = FakeLLM(slow)
    servers, key = [make(judge), make(judge)], {"Idempotency-Key": "k2"}  # two of them on one store
    with ThreadPoolExecutor(6) as pool:
        answers = list(
            pool.map(lambda n: servers[n % 2].ask("/v1/score", request(WRONG), headers=key), range(6))
        )
    assert (answers.count(answers[0]), answers[0][0]) == (6, 200)
    assert len(judge.calls) <= 2  # locks are by process, and these two are one process


def test_an_outage_is_not_kept(make: Make) -> None:
    server, key = make(FakeLLM([LLMError("timeout", ""), "VERDICT: correct"])), {"Idempotency-Key": "k3"}
    states = [
        server.ask("/v1/score", request(WRONG), headers=key)[1]["results"][0]["state"] for _ in range(2)
    ]
    assert states == ["masked", "scored"]


# Who may enter, and with what


@pytest.mark.parametrize(
    "given",
    [{}, {"Authorization": ""}, {"Authorization": "Bearer sec"}, {"Authorization": "Bearer " + "x" * 9000}],
)
def test_without_the_token_nothing_is_done(make: Make, given: dict[str, str]) -> None:
    server = make(token="secret")
    status, answer = server.ask("/v1/score", request(RIGHT), headers=given)
    assert (status, answer) == (401, {"detail": "give the server's token: Authorization: Bearer TOKEN"})
    assert server.ask("/health/live")[0] == 200
    assert server.ask("/v1/score", request(RIGHT), headers={"Authorization": "Bearer secret"})[0] == 200


def test_guessing_tokens_is_stopped(make: Make) -> None:
    server = make(token="secret")
    statuses = [server.ask("/metrics", headers={"Authorization": f"Bearer {n}"})[0] for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert server.ask("/metrics", headers={"Authorization": "Bearer secret"})[0] == 429


def raw(server: Running, *parts: bytes, pause: float = 0.0) -> bytes:
    """The answer to bytes that no well-behaved client sends."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:
                break
            time.sleep(pause)
        answer = b""
        while b"\r\n\r\n" not in answer and (more := connection.recv(4096)):
            answer += more
        return answer.split(b"\r\n")[0]


HEAD = b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_body_that_is_too_large_is_refused_before_it_has_come(make: Make) -> None:
    server = make(limits={"body_limit": 100_000})
    assert b" 413 " in raw(server, HEAD + b"Content-Length: 99999999\r\n\r\n")
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    assert b" 413 " in raw(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 12)
    assert server.ask("/health/live")[0] == 200


def test_a_body_that_never_ends_is_given_up(make: Make) -> None:
    server = make(limits={"body_seconds": 0.3})
    assert b" 408 " in raw(server, HEAD + b"Content-Length: 100\r\n\r\n", b"{", b" ", pause=0.1)


@pytest.mark.parametrize(
    "headers",
    [{"Content-Type": "application/octet-stream"}, {"Content-Encoding": "gzip"}, {"Content-Type": ""}],
)
def test_what_is_not_plain_json_is_refused_unread(make: Make, headers: dict[str, str]) -> None:
    assert make().ask("/v1/score", b"\x80\x04", headers=headers)[0] == 415


def test_too_many_samples_at_once_are_turned_away_and_told_when_to_return(make: Make) -> None:
    go = threading.Event()

    def wait(_: Any) -> str:
        go.wait(20)
        return "VERDICT: incorrect"

    server = make(FakeLLM(wait), in_flight=3)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.ask, "/v1/score", request(WRONG, WRONG))
        while "factrl_samples_in_flight 2.0" not in server.ask("/metrics")[1]:
            time.sleep(0.01)
        status, answer = server.ask("/v1/score", request(RIGHT, RIGHT))
        assert (status, "2 samples wait here" in answer["detail"]) == (429, True)
        assert server.ask("/v1/score", request(RIGHT))[0] == 200
        go.set()
        assert first.result()[0] == 200


def test_ready_says_why_not(make: Make) -> None:
    assert make(FakeLLM(["ok"])).ask("/health/ready") == (200, {"status": "ready", "detail": ""})
    status, answer = make(FakeLLM([LLMError("connection", "nobody listens")])).ask("/health/ready")
    assert (status, answer["status"], "nobody listens" in answer["detail"]) == (503, "not ready", True)


# Its client


def test_a_remote_reward_is_a_reward_like_any_other(make: Make) -> None:
    server = make(FakeLLM([LLMError("timeout", "no reply")]))
    completions = [RIGHT, "no box", WRONG] + [RIGHT] * 70
    here = load_reward("truthrl").with_(grade=Grader(FakeLLM([LLMError("timeout", "no reply")])))
    examples = [PARIS] * len(completions)
    assert remote(server.url, "truthrl").batch(examples, completions) == here.batch(examples, completions)
    assert remote(server.url, "steps")(PARIS, "x") == steps(PARIS, "x")
    assert remote(server.url, "steps")(PARIS, "") == steps(PARIS, "")


def test_evidence_and_checklist_travel(make: Make) -> None:
    seen = []

    @reward
    def look(example: Example, completion: str) -> dict[str, float]:
        seen.append(example)
        return {"a": 0.0}

    server, example = make(), Example("Q?", ("A",), "7", "t", True, False, (Passage("p", "t", "s"),), ("c",))
    running_rewards(server)["look"] = look
    remote(server.url, "look")(example, "x")
    assert seen == [example]


GOOD = {
    "state": "scored",
    "value": 1.0,
    "terms": {"a": 1.0},
    "spans": [],
    "cause": None,
    "detail": "",
    "facts": {},
}
LIES = {
    "NaN": b'{"results": [{"state": "scored", "value": NaN, "terms": {"a": NaN}, "spans": [], "cause": null, '
    b'"detail": "", "facts": {}}]}',
    "huge": {"results": [{**GOOD, "value": 1e9, "terms": {"a": 1e9}}]},
    "too few": {"results": []},
    "too many": {"results": [GOOD, GOOD]},
    "not a sum": {"results": [{**GOOD, "value": 2.0}]},
    "text": {"results": [{**GOOD, "value": "1"}]},
    "other state": {"results": [{**GOOD, "state": "fine"}]},
    "span beyond": {"results": [{**GOOD, "spans": [{"start": 0, "end": 99, "sign": 1}]}]},
    "page": b"<html>ok</html>",
    "list": [1.0],
}


@pytest.mark.parametrize("lie", LIES)
def test_what_the_server_should_not_say_is_masked(lie: str) -> None:
    body = LIES[lie] if isinstance(LIES[lie], bytes) else json.dumps(LIES[lie]).encode()
    with FaultServer(lambda handler: handler.send(200, body)) as server:
        result = remote(server.url, "truthrl", max_attempts=1)(PARIS, RIGHT)
    assert (result.state, result.value, result.cause) == ("masked", None, "bad_body")


def test_a_redirect_is_not_followed_and_a_dead_server_masks() -> None:
    with FaultServer(lambda handler: handler.send(302, b"", location="http://127.0.0.1:1/")) as server:
        assert remote(server.url, "truthrl", max_attempts=1)(PARIS, RIGHT).cause == "redirect"
        url = server.url
    assert remote(url, "truthrl", max_attempts=1)(PARIS, RIGHT).cause == "connection"


# As a program


def test_the_description_that_is_checked_in_is_the_servers(tmp_path: Path) -> None:
    file = Path(__file__).parents[1] / "docs" / "openapi.json"
    wanted = json.loads(json.dumps(description(tmp_path)))
    assert json.loads(file.read_text(encoding="utf-8")) == wanted, (
        "run: python -m factrl.server.describe > docs/openapi.json"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("truthrl --host 0.0.0.0", "can be reached from other machines; set FACTRL_SERVER_TOKEN"),
        ("truthr", "did you mean 'truthrl'?"),
        ("truthrl truthrl", "the reward 'truthrl' is named twice"),
        ("reward.wrong=1", "name a reward to serve"),
        ("truthrl reward.wrang=1", "did you mean 'wrong'?"),
    ],
)
def test_a_mistake_ends_it_before_it_listens(
    words: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FACTRL_SERVER_TOKEN", raising=False)
    assert main(["serve", *words.split()]) == 2
    assert told in capsys.readouterr().err


def test_sigterm_lets_what_is_under_way_finish(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "own.py").write_text(
        "import time\nfrom factrl import reward\n@reward\ndef slow(example, completion):\n"
        "    time.sleep(1.5)\n    return {'a': 1.0}\n",
        encoding="utf-8",
    )
    words = [sys.executable, "-m", "factrl", "serve", "own.py:slow", "--port", str(port)]
    process = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, "FACTRL_CACHE": str(tmp_path)})
    try:
        slow = remote(f"http://127.0.0.1:{port}", "own.py:slow", max_attempts=1)
        deadline = time.monotonic() + 60
        while slow_answers(port) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(slow, PARIS, "x")
            time.sleep(0.7)
            process.send_signal(signal.SIGTERM)
            assert result.result().value == 1.0
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)  # uvicorn ends by the signal it got
    finally:
        process.kill()


def slow_answers(port: int) -> int | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/health/live")
        return connection.getresponse().status
    except OSError:
        return None
    finally:
        connection.close()
