"""Answers of a model behind a server: what arrives, what is cut, what fails, and what a sample depends on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

import fault_server
from factrl.errors import Unscored
from factrl.llm import FakeLLM, Message, Reply
from factrl.llm.writers import ServerWriter, seed_of
from factrl.runs.settings import AskSettings, DataSettings
from factrl.train.answering import open_writer
from factrl.types import Completion, Example
from fault_server import FaultServer, answers, says

DATA = DataSettings(train="unused")
ASKED = [Example(f"Capital of {land}?", ("x",), id=land) for land in ("Peru", "Chile", "Norway")]


class Recorder:
    """An LLM that remembers what each sample was asked with and answers with its seed."""

    identity = "recorder"

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._lock = threading.Lock()

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        options = {"temperature": temperature, "max_tokens": max_tokens, **sampling}
        with self._lock:
            self.requests.append((messages[-1]["content"], options))
        return Reply(f"{messages[-1]['content']} {sampling.get('seed')}", "stop", "recorder", tokens_out=3)


client = partial(fault_server.client, retry_cut=False, max_attempts=2)


def settings(name: str, **sections: dict[str, Any]) -> AskSettings:
    document = {"model": {"name": name}, "data": {"train": "unused"}, **sections}
    return AskSettings.model_validate(document)


# --- what is asked ---------------------------------------------------------------------------------


def test_a_question_is_asked_with_its_prompt_and_system_message() -> None:
    llm = FakeLLM(lambda messages: "|".join(f"{m['role']}: {m['content']}" for m in messages))
    data = DataSettings(train="unused", prompt="Q: {question}", system="Be short.")
    done: list[int] = []
    [[first], [second], _] = ServerWriter(llm, data, 8).write(ASKED, on_done=lambda: done.append(1))
    assert first == "system: Be short.|user: Q: Capital of Peru?"
    assert second == "system: Be short.|user: Q: Capital of Chile?"
    assert isinstance(first, Completion)
    assert not first.truncated
    assert len(done) == 3


def test_seeds_differ_by_number_question_and_seed_and_by_nothing_else() -> None:
    def texts(examples: Sequence[Example], numbers: Sequence[int], seed: int = 0) -> dict[Any, str]:
        groups = ServerWriter(Recorder(), DATA, 8).write(examples, numbers, temperature=1.0, seed=seed)
        return {
            (example.id, number): str(text)
            for example, group in zip(examples, groups, strict=True)
            for number, text in zip(numbers, group, strict=True)
        }

    all_at_once = texts(ASKED, range(4))
    assert len({text.split()[-1] for text in all_at_once.values()}) == 12
    apart = {**texts(ASKED[::-1], (3, 1)), **texts(ASKED[:1], (0,)), **texts(ASKED[1:], (2, 0))}
    apart |= texts(ASKED[:1], (2,))
    assert apart == all_at_once
    assert not {*all_at_once.values()} & {*texts(ASKED, range(4), seed=1).values()}
    assert 0 <= seed_of(2**32 - 1, "x", 255) < 2**31, "some servers take 32 bits with a sign"


def test_sampling_is_passed_on_and_what_the_server_cuts_by_itself_is_turned_off() -> None:
    llm = Recorder()
    writer = ServerWriter(llm, DATA, 8, whole={"top_k": 0})
    writer.write(ASKED[:1], (5,), temperature=0.7, top_p=0.9, seed=3)
    sampling = {"temperature": 0.7, "top_p": 0.9, "top_k": 0, "seed": seed_of(3, "Peru", 5), "max_tokens": 8}
    assert llm.requests == [("Capital of Peru?", sampling)]


# --- what comes back -------------------------------------------------------------------------------


def test_what_was_cut_is_kept_as_cut(serve: Callable[..., FaultServer]) -> None:
    server = serve(says("It is the city of", finish_reason="length"))
    [[text]] = ServerWriter(client(server), DATA, 5).write(ASKED[:1])
    assert (text, getattr(text, "truncated", None), getattr(text, "tokens", None)) == (
        *("It is the city of", True, 5),
    )
    assert [request.body["max_tokens"] for request in server.requests] == [5], "a sample is not asked again"


def test_what_fails_stands_among_the_texts_with_its_cause(serve: Callable[..., FaultServer]) -> None:
    server = serve(says("Lima"), answers(400, {"error": {"message": "too long"}}), says("Oslo"))
    written = ServerWriter(client(server), DATA, 5, workers=1).write(ASKED)
    assert [str(group[0]) for group in (written[0], written[2])] == ["Lima", "Oslo"]
    failed = written[1][0]
    assert isinstance(failed, Unscored)
    assert failed.cause == "http_400"


def test_an_interrupt_does_not_wait_for_the_calls_that_have_not_begun() -> None:
    class Slow(Recorder):
        def complete(self, messages: Sequence[Message], **request: Any) -> Reply:
            time.sleep(0.01)
            return super().complete(messages, **request)

    def interrupt() -> None:
        raise KeyboardInterrupt

    llm = Slow()
    with pytest.raises(KeyboardInterrupt):
        ServerWriter(llm, DATA, 5, workers=2).write(ASKED, range(100), temperature=1.0, on_done=interrupt)
    assert 100 <= len(llm.requests) < 150, "the first question's, and those in flight"


# --- opening ---------------------------------------------------------------------------------------


def test_a_server_is_opened_by_its_address_and_asked_as_told(
    serve: Callable[..., FaultServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTRL_POLICY_API_KEY", "sk-policy")
    monkeypatch.setenv("FACTRL_JUDGE_API_KEY", "sk-judge")
    server = serve(says("ok"), says("It is the", finish_reason="length"))
    writer = open_writer(settings(f"{server.url}#served", train={"max_completion_length": 3}))
    assert writer.identity.startswith(f"{server.url}#served ")
    [[text]] = writer.write(ASKED[:1], (2,), temperature=1.0)
    assert getattr(text, "truncated", False)
    ping, request = server.requests
    assert ping.headers["authorization"] == request.headers["authorization"] == "Bearer sk-policy"
    assert request.body == {
        "model": "served",
        "messages": [{"role": "user", "content": "Capital of Peru?"}],
        "temperature": 1.0,
        "max_tokens": 3,
        "top_p": 1.0,
        "seed": seed_of(0, "Peru", 2),
    }
