"""The server on a loopback port: what it answers, once and again, and what its client believes."""

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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from factrl import Example, FakeLLM, Grader, Passage, load_reward, remote
from factrl.cli import main
from factrl.errors import LLMError
from factrl.rewards import reward
from factrl.server.describe import description
from fault_server import FaultServer
from serving import PARIS, RIGHT, WRONG, Make, request, servers, steps


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with servers(tmp_path) as start:
        yield start


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
    "nowhere to search": ("/v1/verify", {"text": "Paris is in France."}, 422, "has no search"),
    "a list for a text": ("/v1/verify", {"text": ["a"]}, 422, '"text"'),
}


@pytest.mark.security("S33", "S34")
@pytest.mark.parametrize("case", WRONG_REQUESTS)
def test_a_wrong_request_is_refused_by_field_and_its_text_is_not_repeated(make: Make, case: str) -> None:
    path, body, status, told = WRONG_REQUESTS[case]
    code, answer = make().ask(path, body)
    text = json.dumps(answer)
    assert (code, told in text.replace("\\", "")) == (status, True), text
    assert len(text) < 2000


@pytest.mark.security("S33")
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


@pytest.mark.security("S37")
@pytest.mark.fault("F30")
def test_a_broken_reward_is_the_servers_fault_and_keeps_its_secrets(make: Make, monkeypatch: Any) -> None:
    @reward
    def broken(example: Example, completion: str) -> Any:
        raise KeyError("secret")

    server = make()
    monkeypatch.setitem(server.service.rewards, "steps", broken)
    status, answer = server.ask("/v1/score", request("x", reward="steps"))
    assert (status, answer) == (500, {"detail": "the reward is broken; the server's log says how"})


# Sent again


@pytest.mark.security("S35")
@pytest.mark.fault("F19")
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


@pytest.mark.security("S35")
@pytest.mark.fault("F19")
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


@pytest.mark.security("S35")
@pytest.mark.fault("F19")
def test_an_outage_is_not_kept(make: Make) -> None:
    server, key = make(FakeLLM([LLMError("timeout", ""), "VERDICT: correct"])), {"Idempotency-Key": "k3"}
    states = [
        server.ask("/v1/score", request(WRONG), headers=key)[1]["results"][0]["state"] for _ in range(2)
    ]
    assert states == ["masked", "scored"]


# Its client


def test_a_remote_reward_is_a_reward_like_any_other(make: Make) -> None:
    server = make(FakeLLM([LLMError("timeout", "no reply")]))
    completions = [RIGHT, "no box", WRONG] + [RIGHT] * 70
    here = load_reward("truthrl").with_(grade=Grader(FakeLLM([LLMError("timeout", "no reply")])))
    examples = [PARIS] * len(completions)
    assert remote(server.url, "truthrl").batch(examples, completions) == here.batch(examples, completions)
    assert remote(server.url, "steps")(PARIS, "x") == steps(PARIS, "x")
    assert remote(server.url, "steps")(PARIS, "") == steps(PARIS, "")


def test_requests_of_one_batch_are_under_way_side_by_side(make: Make) -> None:
    server, all_here = make(), threading.Barrier(64)

    @reward
    def together(example: Example, completion: str) -> dict[str, float]:
        all_here.wait(60)
        return {"a": 1.0}

    rewards: Any = server.service.rewards
    rewards["together"] = together
    results = remote(server.url, "together").batch([PARIS] * 64, ["x"] * 64)
    assert [result.value for result in results] == [1.0] * 64


def test_evidence_and_checklist_travel(make: Make) -> None:
    seen = []

    @reward
    def look(example: Example, completion: str) -> dict[str, float]:
        seen.append(example)
        return {"a": 0.0}

    server, example = make(), Example("Q?", ("A",), "7", "t", True, False, (Passage("p", "t", "s"),), ("c",))
    rewards: Any = server.service.rewards
    rewards["look"] = look
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
    "a number of 400 digits": {"results": [{**GOOD, "value": 10**400, "terms": {"a": 10**400}}]},
    "a span that ends nowhere": {"results": [{**GOOD, "spans": [{"start": 0, "end": 10**400, "sign": 1}]}]},
    "a term without a name": {"results": [{**GOOD, "terms": [[7, 1.0]]}]},
    "a label that is a list": {"results": [{**GOOD, "facts": {"label": ["correct"]}}]},
    "facts without a bottom": json.dumps({"results": [{**GOOD, "facts": {"deep": "DEEP"}}]})
    .replace('"DEEP"', "[" * 400 + "]" * 400)
    .encode(),
    "page": b"<html>ok</html>",
    "list": [1.0],
}


@pytest.mark.security("S36")
@pytest.mark.parametrize("lie", LIES)
def test_what_the_server_should_not_say_is_masked(lie: str) -> None:
    body = LIES[lie] if isinstance(LIES[lie], bytes) else json.dumps(LIES[lie]).encode()
    with FaultServer(lambda handler: handler.send(200, body)) as server:
        result = remote(server.url, "truthrl", max_attempts=1)(PARIS, RIGHT)
    assert (result.state, result.value, result.cause) == ("masked", None, "bad_body")


@pytest.mark.security("S21", "S36")
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


@pytest.mark.security("S30")
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


@pytest.mark.fault("F32")
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
