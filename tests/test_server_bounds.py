"""What the server and its client do at their bounds: odd requests, odd answers, full queues, old answers."""

from __future__ import annotations

import errno
import fcntl
import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from factrl import Example, FakeLLM, Passage, remote
from factrl.cli import main
from factrl.llm.store import Store
from factrl.rewards import Reward, reward
from factrl.server.ledger import LASTING, Ledger
from factrl.server.opening import decides_of
from factrl.server.service import Service, TooMuch
from factrl.train.plan import run_settings
from fault_server import FaultServer
from serving import PARIS, RIGHT, WRONG, Make, request, servers


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with servers(tmp_path) as start:
        yield start


# OpenRLHF

PROMPT = "<|im_start|>user\nCapital?<|im_end|>\n<|im_start|>assistant\n"
ENDINGS = ["<|im_end|>", "<|im_end|>\n<|endoftext|>", "</s>", " <eos>\n", "<end_of_turn>", "<|eot_id|></s>"]


def test_the_special_tokens_that_end_a_turn_are_no_part_of_a_completion(make: Make) -> None:
    seen: list[str] = []

    @reward
    def look(example: Example, completion: str) -> dict[str, float]:
        seen.append(completion)
        return {"a": 1.0}

    server = make()
    rewards: Any = server.service.rewards
    rewards["look"] = look
    answers = [f"It is <|im_end|> Paris.{ending}" for ending in [*ENDINGS, "", "\n"]]
    count = len(answers)
    body = {"query": [PROMPT + a for a in answers], "prompts": [PROMPT] * count, "labels": ["Paris"] * count}
    assert server.ask("/v1/openrlhf/look", body)[0] == 200
    assert seen == ["It is <|im_end|> Paris."] * (count - 1) + ["It is <|im_end|> Paris.\n"]


@pytest.mark.security("S15")
def test_endings_are_found_in_one_pass(make: Make) -> None:
    hostile = ["x" + " " * 500_000 + "x", "</s>" * 100_000 + "x" + "</s> " * 100_000, "<|" * 200_000]
    body = {"query": hostile, "prompts": [""] * 3, "labels": ["Paris"] * 3}
    began = time.monotonic()
    assert make().ask("/v1/openrlhf/truthrl", body)[0] == 200
    assert time.monotonic() - began < 10


@pytest.mark.security("S33")
@pytest.mark.parametrize(
    ("query", "label", "told"),
    [
        (f"<s>{PROMPT}{RIGHT}", "Paris", "does not begin with its prompt"),
        (PROMPT + RIGHT, "[" * 100_000, "nested too deeply"),
        (PROMPT + RIGHT, json.dumps({"answers": [{"x" * 9000: 1}]}), "a label cannot be read"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(make: Make, query: str, label: str, told: str) -> None:
    status, answer = make().ask(
        "/v1/openrlhf/truthrl", {"query": [query], "prompts": [PROMPT], "labels": [label]}
    )
    assert (status, told in answer["detail"][0]["msg"], len(answer["detail"][0]["msg"]) <= 400) == (
        422,
        True,
        True,
    )


# Odd requests


@pytest.mark.security("S33")
def test_long_and_many_keys_are_not_repeated(make: Make) -> None:
    server = make()
    status, answer = server.ask("/v1/score", {**request(RIGHT), "k" * 100_000: 1})
    assert (status, len(json.dumps(answer)) < 2000) == (422, True)
    many = {f"k{n}": 1 for n in range(33)}
    rlhf = {"query": ["a"], "prompts": ["a"], "labels": ["a"]}
    for path, body in (("/v1/score", {**request(RIGHT), **many}), ("/v1/openrlhf/truthrl", {**rlhf, **many})):
        status, answer = server.ask(path, body)
        assert (status, len(answer["detail"])) == (422, 1)
        assert "more than 32" in answer["detail"][0]["msg"]


def test_one_sample_that_is_refused_does_not_mask_the_others(make: Make) -> None:
    server = make(limits={"body_limit": 60_000})
    long = Example("Q?" * 20_000, ("Paris",))  # 422: longer than a question may be
    big = Example("Capital of France?", ("Paris",) * 256, topic="t" * 30_000, id="i" * 32_000)  # 413
    examples = [PARIS] * 9
    examples[2], examples[7] = long, big
    results = remote(server.url, "truthrl").batch(examples, [RIGHT] * 9)
    assert [r.cause for r in results if r.state == "masked"] == ["http_422", "http_413"]
    assert [n for n, r in enumerate(results) if r.value == 1.0] == [0, 1, 3, 4, 5, 6, 8]


@pytest.mark.security("S32")
@pytest.mark.parametrize("pieces", [20, 60])
def test_samples_that_are_too_large_together_are_sent_apart(make: Make, pieces: int) -> None:
    large = Example("Capital of France?", ("Paris",), evidence=(Passage("x" * 900_000),) * pieces)
    some = Example("Capital of France?", ("Paris",), evidence=(Passage("x" * 900_000),) * 5)
    results = remote(make().url, "truthrl").batch([some, PARIS, large, some], [RIGHT] * 4)
    assert [r.cause or r.value for r in results] == [1.0, 1.0, "http_413", 1.0]


# Odd answers

GOOD = {"state": "scored", "value": 0, "terms": {}, "spans": [], "cause": None, "detail": "", "facts": {}}
ODD = {
    "no terms": GOOD,
    "a term called sum": {**GOOD, "terms": {"sum": 0.0}},
    "a number without end": {**GOOD, "value": 10**400, "terms": {"a": 10**400}},
    "terms whose sum is infinite": {**GOOD, "value": 1e308, "terms": {"a": 1e308, "b": 1e308}},
    "floored without a cause": {**GOOD, "state": "floored", "terms": {"a": 0.0}},
    "floored with a number": {**GOOD, "state": "floored", "terms": {"a": 0.0}, "cause": 7},
    "half a character": {**GOOD, "terms": {"a": 0.0}, "spans": [{"start": 0.5, "end": 1, "sign": 1}]},
}


@pytest.mark.security("S36")
@pytest.mark.parametrize("odd", ODD)
def test_an_odd_answer_is_masked_and_ends_no_run(odd: str) -> None:
    body = json.dumps({"results": [ODD[odd]]}).encode()
    with FaultServer(lambda handler: handler.send(200, body)) as server:
        [result] = remote(server.url, "truthrl", max_attempts=1).batch([PARIS], [RIGHT])
    assert (result.state, result.cause) == ("masked", "bad_body")


# Full queues


@pytest.mark.security("S47")
def test_further_requests_are_told_to_come_back_and_the_client_does(make: Make) -> None:
    go = threading.Event()

    def wait(_: Any) -> str:
        go.wait(20)
        return "VERDICT: correct"

    server = make(FakeLLM(wait), limits={"inside": 1})
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(server.ask, "/v1/score", request(WRONG))
        server.wait_until_waiting(1)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("POST", "/v1/score", b"{}", {"Content-Type": "application/json"})
        response = connection.getresponse()
        assert (response.status, response.headers["retry-after"]) == (429, "2")
        connection.close()
        assert server.ask("/health/live")[0] == 200
        second = pool.submit(remote(server.url, "truthrl"), PARIS, RIGHT)
        time.sleep(0.3)
        go.set()
        assert first.result()[0] == 200
        assert second.result().value == 1.0


@pytest.mark.security("S47")
def test_more_requests_than_anyio_has_threads_reach_the_back_pressure(make: Make) -> None:
    """60 requests of one sample where 50 samples may wait: 10 are turned away and none is held up unseen."""
    go = threading.Event()

    def wait(_: Any) -> str:
        go.wait(30)
        return "VERDICT: correct"

    server = make(FakeLLM(wait), in_flight=50)
    with ThreadPoolExecutor(60) as pool:
        waiting = [pool.submit(server.ask, "/v1/score", request(WRONG)) for _ in range(60)]
        deadline = time.monotonic() + 20
        while sum(one.done() for one in waiting) < 10 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sum(one.done() for one in waiting) == 10
        go.set()
        assert sorted(one.result()[0] for one in waiting) == [200] * 50 + [429] * 10


@pytest.mark.fault("F32")
@pytest.mark.parametrize(("seconds", "ends_after"), [(0.2, 8.0), (20.0, 0.2)])
def test_a_server_that_stops_turns_away_what_waits_and_waits_for_the_rest_but_not_for_ever(
    tmp_path: Path, seconds: float, ends_after: float
) -> None:
    go = threading.Event()

    @reward
    def stuck(example: Example, completion: str) -> dict[str, float]:
        go.wait(30)
        return {"a": 1.0}

    rewards: dict[str, Reward] = {"stuck": stuck}
    service = Service(rewards, None, None, Store(tmp_path / "answers.db"))
    asked = _score_request("stuck")
    with ThreadPoolExecutor(12) as pool:
        waiting = [pool.submit(service.score, asked, "") for _ in range(12)]
        while service._waiting < 12:
            time.sleep(0.01)
        timer = threading.Timer(ends_after, go.set)
        timer.daemon = True
        timer.start()
        began = time.monotonic()
        service.close(seconds)
        assert time.monotonic() - began < 5
        with pytest.raises(TooMuch, match="is stopping"):
            service.score(asked, "")
        go.set()
        errors = [type(one.exception()) for one in waiting]
    assert (errors.count(TooMuch), errors.count(type(None))) == (4, 8)


def _score_request(name: str) -> Any:
    from factrl.server.schema import ScoreRequest

    return ScoreRequest.model_validate(request(RIGHT, reward=name))


# Answers that are given again


def test_a_deadlock_that_is_none_is_waited_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lockf, refused = fcntl.lockf, []

    def seen_as_deadlock(descriptor: int, command: int, *where: int) -> Any:
        if command == fcntl.LOCK_EX and len(refused) < 2:
            refused.append(1)
            raise OSError(errno.EDEADLK, "Resource deadlock avoided")
        return lockf(descriptor, command, *where)

    monkeypatch.setattr(fcntl, "lockf", seen_as_deadlock)
    assert Ledger(Store(tmp_path / "a.db"), {}).once("k", "b", lambda: {"a": 1}) == {"a": 1}
    assert len(refused) == 2


@pytest.mark.security("S35")
def test_answers_are_kept_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now = Store(tmp_path / "a.db"), time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    assert Ledger(store, {}).once("k", "b", lambda: {"a": 1}) == {"a": 1}
    now += LASTING - 1
    ledger = Ledger(store, {})
    assert ledger.once("k", "b", lambda: {"a": 2}) == {"a": 1}
    now += 2
    assert ledger.once("k", "b", lambda: {"a": 3}) == {"a": 3}
    assert store.size() == 2


@pytest.mark.fault("F26")
def test_a_clock_that_is_set_back_loses_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    ledger = Ledger(Store(tmp_path / "a.db"), {})
    assert ledger.once("k", "b", lambda: {"a": 1}) == {"a": 1}
    now -= 3600
    for again in (ledger, Ledger(Store(tmp_path / "a.db"), {})):  # the same process, and a new one
        assert again.once("k", "b", lambda: {"a": 2}) == {"a": 1}


@pytest.mark.security("S35")
def test_all_that_decides_an_answer_is_in_its_scope(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("from factrl import reward\n@reward\ndef mine(e, c):\n    return {'a': 1.0}\n", "utf-8")

    def decides(*words: str, judges: Any = ()) -> str:
        named = ["data.train=none", "model.name=none", f"paper={own}:mine"]
        return json.dumps(decides_of([run_settings(None, [*named, *words])], judges))

    plain = decides()
    assert decides() == plain
    told = [decides(f"{word}=2") for word in ("verifier.k", "judge.reward_model", "judge.truthfulness_model")]
    judge = FakeLLM([])
    judge.identity = "one"  # type: ignore[attr-defined]
    told.append(decides(judges=[judge]))
    own.write_text(own.read_text("utf-8").replace("1.0", "2.0"), "utf-8")
    assert len({plain, decides(), *told}) == 6


def test_a_judge_is_asked_which_model_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from factrl import connect

    with FaultServer(lambda handler: handler.send(200, b'{"data": [{"id": "m1"}]}')) as server:
        [told] = decides_of([], [connect(f"{server.url}/v1")])["models"]
        url = server.url
    assert told.endswith("/v1#m1")
    down = [decides_of([], [connect(f"{url}/v1", max_attempts=1)])["models"] for _ in range(2)]
    assert down[0] != down[1]  # nobody knows whether it is the same


# The command


@pytest.mark.security("S30", "S31")
def test_an_address_is_that_of_the_connection_and_a_token_has_no_line_break(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr("uvicorn.run", lambda _, **options: told.update(options))
    monkeypatch.setenv("FACTRL_SERVE", "")
    assert main(["serve", "truthrl"]) == 0
    assert told["proxy_headers"] is False
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", "\n")
    assert main(["serve", "truthrl", "--host", "0.0.0.0"]) == 2  # noqa: S104


def test_a_reward_that_only_a_trainer_can_compute_is_not_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "truthrl", "intuitor"]) == 2
    assert "'intuitor' cannot be served: how certain a policy was" in capsys.readouterr().err


def test_a_token_may_end_in_a_line_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from factrl.server import app

    monkeypatch.setattr("factrl.server.opening.open_service", lambda _: object())
    monkeypatch.setattr(app, "make_api", lambda _: None)
    monkeypatch.setenv("FACTRL_SERVE", "{}")
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", "secret\n")
    assert app.serve_from_environment()._token == b"secret"
