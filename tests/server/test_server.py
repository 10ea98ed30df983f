"""The server on a loopback port: what it answers, once and again, and what its client believes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from factrl import Example, FakeLLM, Grader, Passage, load_reward, remote
from factrl.cli import main
from factrl.errors import ConfigError, DataError, LLMError, RewardBug
from factrl.llm.store import CachedLLM, Store
from factrl.rewards import reward
from fault_server import FaultServer, answers
from judging import Judge
from serving import PARIS, RIGHT, WRONG, Make, request, steps

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
    assert (status, report["counts"]["supported"]) == (200, 1)  # it stands there word for word


WRONG_REQUESTS = {
    "unknown reward": ("/v1/score", {**request(RIGHT), "reward": "truthr"}, 404, "did you mean 'truthrl'?"),
    "judge from the wire": ("/v1/score", {**request(RIGHT), "judge": "http://x"}, 422, '"judge"'),
    "own code from the wire": (
        "/v1/score",
        {**request(RIGHT), "reward": "own.py:mine"},
        404,
        "has no reward",
    ),
    "knob in the example": ("/v1/score", request(RIGHT, wrong=-9.0), 422, '"wrong"'),
    "text for a number": ("/v1/score", {"reward": "truthrl", "samples": [{"tokens": "5"}]}, 422, '"tokens"'),
    "no answers": ("/v1/score", request(RIGHT, answers=[]), 422, "it has no accepted answers"),
    "too many samples": ("/v1/score", request(*[RIGHT] * 1025), 422, '"samples"'),
    "no JSON": ("/v1/score", b'{"reward": ', 422, "json"),
    "unequal lists": (
        "/v1/openrlhf/truthrl",
        {"query": ["a"], "prompts": [], "labels": ["b"]},
        422,
        "1, 0 and 1",
    ),
    "nowhere to search": ("/v1/verify", {"text": "Paris is in France."}, 422, "has no search"),
}


def test_a_wrong_request_is_refused_by_field_and_its_text_is_not_repeated(make: Make) -> None:
    server = make()
    for case, (path, body, status, message) in WRONG_REQUESTS.items():
        code, answer = server.ask(path, body)
        text = json.dumps(answer)
        assert (code, message in text.replace("\\", "")) == (status, True), (case, text)
        assert len(text) < 2000


def test_nemo_gym_gets_its_row_back_with_the_reward_and_null_for_what_was_not_graded(make: Make) -> None:
    server = make(FakeLLM([LLMError("timeout", "no reply")]))
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": RIGHT}]}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "France."}]}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "The capital of France?"},
    ]
    row = {"responses_create_params": {"input": messages}, "answers": ["Paris"], "uuid": "7"}
    assert server.ask("/v1/nemo_gym/truthrl/seed_session", row) == (200, {})
    body = {**row, "response": {"output": [thought, message], "status": "completed"}}
    status, answer = server.ask("/v1/nemo_gym/truthrl/verify", body)
    paid = {"reward": 1.0, "term_outcome": 1.0, "state": "scored", "cause": None}
    assert (status, answer) == (200, {**body, **paid})

    message["content"][0]["text"] = WRONG
    body["instance_config"] = {"level": 2}
    _, answer = server.ask("/v1/nemo_gym/truthrl/verify", body)
    assert answer["reward"] is None
    assert answer["_ng_failure_class"] == "judge_failed"
    assert answer["instance_config"] == {"level": 2, "mask_sample": True}
    assert answer["cause"] == "timeout"

    body["response"] = {"output": [thought]}  # the policy's own doing, which is graded
    status, answer = server.ask("/v1/nemo_gym/truthrl/verify", body)
    assert (status, answer["reward"], answer["state"]) == (200, -1.0, "floored")
    body["response"] = {"output": []}
    status, answer = server.ask("/v1/nemo_gym/truthrl/verify", body)
    assert status == 422
    assert "response.output has neither a message nor reasoning" in str(answer)
    assert server.ask("/v1/nemo_gym/truthrll/seed_session", row)[0] == 404


def test_openrlhf_gets_numbers_and_never_one_for_what_was_not_graded(make: Make) -> None:
    server = make(FakeLLM([LLMError("timeout", "no reply")]))
    label = json.dumps({"answers": ["Paris", "Lutetia"]})
    labels = [json.dumps(["Paris", "Lutetia"]), '{"target": ["Lutetia"]}', "Lutetia"]
    body = {"query": [r"Capital? \boxed{Lutetia}"] * 3, "prompts": ["Capital? "] * 3, "labels": labels}
    assert server.ask("/v1/openrlhf/truthrl", body)[1]["rewards"] == [1.0] * 3
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
    assert "of 1" in answer["detail"]  # how many of the request, and why


def test_a_broken_reward_is_the_servers_fault_and_keeps_its_secrets(
    make: Make, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    @reward
    def broken(example: Example, completion: str) -> Any:
        raise KeyError("secret")

    server = make()
    monkeypatch.setitem(server.service.rewards, "steps", broken)
    status, answer = server.ask("/v1/score", request("x", reward="steps"))
    assert (status, answer) == (500, {"detail": "the reward is broken; the server's log says how"})
    assert "KeyError: 'secret'" in caplog.text
    with pytest.raises(RewardBug, match="broken"):
        remote(server.url, "steps").batch([PARIS] * 2, ["a", "b"])


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


@pytest.mark.parametrize(
    ("query", "label", "message"),
    [
        (f"<s>{PROMPT}{RIGHT}", "Paris", "does not begin with its prompt"),
        (PROMPT + RIGHT, json.dumps({"answers": [{"x" * 9000: 1}]}), "a label cannot be read"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(make: Make, query: str, label: str, message: str) -> None:
    status, answer = make().ask(
        "/v1/openrlhf/truthrl", {"query": [query], "prompts": [PROMPT], "labels": [label]}
    )
    assert (status, message in answer["detail"][0]["msg"], len(answer["detail"][0]["msg"]) <= 400) == (
        422,
        True,
        True,
    )


def test_a_request_sent_again_is_scored_again_without_asking_the_judge(make: Make, tmp_path: Path) -> None:
    judge = Judge(["VERDICT: correct"])
    stored = []
    for llm in (judge, Judge([])):
        llm.identity = "judge"  # type: ignore[attr-defined]
        stored.append(CachedLLM(llm, Store(tmp_path / "v.db")))
    old = {"Idempotency-Key": "k1"}  # clients of 0.1 send one
    first, second, third = make(stored[0]), make(stored[0]), make(stored[1])  # the last as after a restart
    answers = [server.ask("/v1/score", request(WRONG), headers=old) for server in (first, second, third)]
    assert (answers.count(answers[0]), answers[0][1]["results"][0]["value"]) == (3, 1.0)
    assert len(judge.calls) == 1


# Its client


def test_a_remote_reward_is_a_reward_like_any_other(make: Make) -> None:
    server = make(FakeLLM([LLMError("timeout", "no reply")]))
    completions = [RIGHT, "no box", WRONG] + [RIGHT] * 70
    here = load_reward("truthrl").with_(grade=Grader(FakeLLM([LLMError("timeout", "no reply")])))
    examples = [PARIS] * len(completions)
    assert remote(server.url, "truthrl").batch(examples, completions) == here.batch(examples, completions)
    assert remote(server.url, "steps")(PARIS, "x") == steps(PARIS, "x")
    assert remote(server.url, "steps")(PARIS, "") == steps(PARIS, "")


@pytest.mark.parametrize("document", [{}, [], {"results": None}, {"results": [1, 2]}, {"detail": "ok"}])
def test_a_reply_of_another_shape_is_no_outage(document: Any) -> None:
    """Waiting for the server to come back, or asking it again, would hold a run for a quarter of an hour."""
    with FaultServer(answers(200, document)) as server:
        results = remote(server.url, "truthrl").batch([PARIS] * 40, [RIGHT] * 40)
    assert {(result.state, result.cause) for result in results} == {("masked", "bad_body")}
    assert "factrl serve" in results[0].detail
    assert len(server.requests) == 2  # of 32 samples and of 8


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


def test_one_sample_that_is_refused_does_not_mask_the_others(make: Make) -> None:
    server = make(BODY_LIMIT=60_000)
    long = Example("Q?" * 20_000, ("Paris",))  # 422: longer than a question may be
    big = Example("Capital of France?", ("Paris",) * 256, topic="t" * 30_000, id="i" * 32_000)  # 413
    examples = [PARIS] * 9
    examples[2], examples[7] = long, big
    results = remote(server.url, "truthrl").batch(examples, [RIGHT] * 9)
    assert [r.cause for r in results if r.state == "masked"] == ["http_422", "http_413"]
    assert [n for n, r in enumerate(results) if r.value == 1.0] == [0, 1, 3, 4, 5, 6, 8]


def test_what_no_waiting_heals_is_an_error_at_once(make: Make) -> None:
    server = make()
    with pytest.raises(ConfigError, match="truthrl"):
        remote(server.url, "truthrI").batch([PARIS], [RIGHT])
    scored = remote(server.url, "truthrl")
    with pytest.raises(DataError, match="answers"):
        scored.batch([Example("Q?")] * 3, [RIGHT] * 3)
    assert scored(PARIS, RIGHT).value == 1.0
    assert scored(Example("Q?"), RIGHT).cause == "http_422"  # one row of a run that works


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
    "out of bounds": {"results": [{**GOOD, "value": 1e9, "terms": {"a": 1e9}}]},
    "too few": {"results": []},
    "not a sum": {"results": [{**GOOD, "value": 2.0}]},
    "other state": {"results": [{**GOOD, "state": "fine"}]},
    "span beyond": {"results": [{**GOOD, "spans": [{"start": 0, "end": 99, "sign": 1}]}]},
    "a number of 400 digits": {"results": [{**GOOD, "value": 10**400, "terms": {"a": 10**400}}]},
    "terms whose sum is infinite": {"results": [{**GOOD, "value": 1e308, "terms": {"a": 1e308, "b": 1e308}}]},
    "floored without a cause": {"results": [{**GOOD, "state": "floored"}]},
    "list": [1.0],
}


def test_what_the_server_should_not_say_is_masked() -> None:
    bodies = {name: lie if isinstance(lie, bytes) else json.dumps(lie).encode() for name, lie in LIES.items()}
    script = iter(bodies.values())
    with FaultServer(lambda handler: handler.send(200, next(script))) as server:
        scored = remote(server.url, "truthrl", max_attempts=1)
        results = {name: scored(PARIS, RIGHT) for name in bodies}
    states = {name: (result.state, result.value, result.cause) for name, result in results.items()}
    assert states == dict.fromkeys(bodies, ("masked", None, "bad_body"))


# As a program


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("truthrl --host 0.0.0.0", "can be reached from other machines; set FACTRL_SERVER_TOKEN"),
        ("truthrl truthrl", "the reward 'truthrl' is named twice"),
        ("reward.wrong=1", "name a reward to serve"),
        ("truthrl reward.wrang=1", "did you mean 'wrong'?"),
        ("truthrl intuitor", "'intuitor' cannot be served: how certain a policy was"),
        ("--page --workers 2", "--page keeps its reports in one process; leave --workers out"),
        ("--page judge.urk=x", "did you mean 'judge.url'?"),
        ("--page --host 0.0.0.0", "set FACTRL_SERVER_TOKEN"),
    ],
)
def test_a_mistake_ends_it_before_it_listens(
    words: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FACTRL_SERVER_TOKEN", raising=False)
    assert main(["serve", *words.split()]) == 2
    assert message in capsys.readouterr().err


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
