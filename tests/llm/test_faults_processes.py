"""Whole processes that die, clocks that jump, forks and event loops: what was judged is not judged again.

Servers and their clients are real processes on loopback ports; the judge counts what it is asked.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fault_server as fs
from factrl import Example, FakeLLM, remote
from factrl.errors import LLMError
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.llm.store import CachedLLM, Store
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from fault_server import FaultServer, answers, says, until
from serving import PARIS, request, servers

SAMPLES = 120


def offers(message: str) -> bool:
    """Whether it asks if a text offers an answer: only where the learnt score is not sure."""
    return '"reply": "' in message.rpartition("DATA ")[2]


def verdict(message: str) -> str:
    """What the judge says to a sample: it depends on the sample alone."""
    if offers(message):
        return "It names one.\nVERDICT: offers"
    number = int(message.rpartition("town number ")[2].partition('"')[0])
    return f"The name is another.\nVERDICT: {'correct' if number % 3 == 0 else 'incorrect'}"


def about(messages: list[Any]) -> Counter[tuple[bool, str]]:
    """How often each sample was asked about: whether it offers an answer, and whether that is right."""
    texts = [message.body["messages"][-1]["content"] for message in messages if message.body]
    texts = [text for text in texts if "town number " in text]
    return Counter((offers(text), text.rpartition("town number ")[2].partition('"')[0]) for text in texts)


@pytest.fixture
def judge() -> Iterator[FaultServer]:
    server = FaultServer(fs.slowly(0.01, fs.replies(verdict)))
    yield server
    server.close()


# ---------------------------------------------------------------- a reward server that dies


def serve(port: int, judge: FaultServer, folder: Path) -> subprocess.Popen[bytes]:
    words = ["serve", "truthrl", "--judge", f"{judge.url}#m", "--port", str(port)]
    return subprocess.Popen(
        [sys.executable, "-m", "factrl", *words],
        cwd=folder,
        env={**os.environ, "FACTRL_CACHE": str(folder)},
        stderr=subprocess.DEVNULL,
    )


def test_a_reward_server_is_killed_in_the_middle_of_a_batch_and_started_again(
    judge: FaultServer, tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    texts = [f"\\boxed{{town number {number}}}" for number in range(SAMPLES)]
    patient = remote(f"http://127.0.0.1:{port}", "truthrl", down_after=2, probe_every=0.2)
    results: list[Any] = []
    batch = threading.Thread(target=lambda: results.extend(patient.batch([PARIS] * SAMPLES, texts)))
    process = serve(port, judge, tmp_path)
    try:
        batch.start()
        until(lambda: len(judge.requests) >= 60)
        process.kill()
        process.wait()
        assert batch.is_alive()
        until(lambda: judge.active == 0)
        judged, lost = Store(tmp_path / "verdicts.db").size(), len(judge.requests)
        process = serve(port, judge, tmp_path)
        batch.join(120)
    finally:
        process.kill()
        process.wait()
    values = [1.0 if number % 3 == 0 else -1.0 for number in range(SAMPLES)]
    assert [result.value for result in results] == values
    questions = len(about(judge.requests))
    assert 0 < judged < questions
    again = len(judge.requests) - lost - (questions - judged)
    assert 0 <= again <= 10  # nothing that was judged is asked again; a server that starts asks for itself


def test_ready_is_taken_back_when_the_judge_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    from factrl import server as service

    assert service.READY_SECONDS <= 10
    monkeypatch.setattr(service, "READY_SECONDS", 0.2)
    dead = threading.Event()
    llm = FakeLLM(lambda _: LLMError("connection", "nobody listens") if dead.is_set() else "ok")
    with servers() as make:
        server = make(llm)
        assert server.ask("/health/ready")[0] == 200
        dead.set()
        until(lambda: server.ask("/health/ready")[0] == 503)
        asked = len(llm.calls)
        assert server.ask("/health/live")[0] == 200
        assert len(llm.calls) == asked  # who is alive need not be able
        status, answer = server.ask("/v1/score", request(r"\boxed{Lyon}"))
        assert (status, answer["results"][0]["state"]) == (200, "masked")


# ---------------------------------------------------------------- clocks


def test_a_wall_clock_that_jumps_moves_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    jumps, real = iter(range(10**9)), time.time
    monkeypatch.setattr(time, "time", lambda: real() + (3600 if next(jumps) % 2 else -3600))
    limits: dict[str, Any] = {"timeout_attempt": 0.3, "timeout_call": 1.0, "backoff": 0.01}
    with FaultServer(answers(500, b""), fs.hang, says()) as server:
        reply = OpenAICompatible(server.url, "m", rpm=60_000, **limits).complete(
            [{"role": "user", "content": "x"}]
        )
        assert (reply.text, reply.attempts) == ("fine", 3)
        assert 0.3 <= reply.elapsed < 60
        server.play(fs.hang)
        with pytest.raises(LLMError) as caught:
            OpenAICompatible(server.url, "m", **limits).complete([{"role": "user", "content": "x"}])
    assert caught.value.cause == "timeout"
    assert 1.0 <= caught.value.facts["elapsed"] < 60
    assert caught.value.facts["attempts"] in (3, 4)


# ---------------------------------------------------------------- forks and event loops


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_loops_threads_and_forks_share_a_judge_and_a_store(judge: FaultServer, tmp_path: Path) -> None:
    llm = CachedLLM(OpenAICompatible(judge.url, "m"), Store(tmp_path / "v.db"))
    ready = load_reward("truthrl").with_(grade=Grader(llm))
    example, values = Example("Where?", ("Paris",)), [1.0 if n % 3 == 0 else -1.0 for n in range(60)]

    def score(numbers: range) -> list[float | None]:
        texts = [f"\\boxed{{town number {n}}}" for n in numbers]
        return [result.value for result in ready.batch([example] * len(texts), texts)]

    async def on_a_loop_of_its_own() -> list[float | None]:
        return score(range(60))  # blocks it, as a trainer's reward function does

    scored: list[list[float | None]] = []
    threads = [
        threading.Thread(target=lambda: scored.append(asyncio.run(on_a_loop_of_its_own()))) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    children = []
    for start in (0, 60):  # what the parent is asking at this moment, and what nobody has asked
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            code = 1
            try:
                code = 0 if score(range(start, start + 60)) == values else 2
            finally:
                os._exit(code)
        children.append(child)
    for thread in threads:
        thread.join(60)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
    assert scored == [values] * 5
    asked = about(judge.requests)
    assert sum(not offer for offer, _ in asked) == 120
    assert max(asked.values()) <= 2  # the parent and one child
    before = len(judge.requests)
    assert score(range(120)) == values * 2
    assert len(judge.requests) == before
