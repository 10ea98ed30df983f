"""`factrl serve` in this process, behind uvicorn on a loopback port of its own."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from factrl import Example, FakeLLM, Grader, Score, Span, load_reward
from factrl.rewards import Reward, reward
from factrl.verifier import open_verifier

uvicorn = pytest.importorskip("uvicorn")
from factrl.server import Service, gate, make_api  # noqa: E402

RIGHT, WRONG = r"\boxed{Paris}", r"\boxed{a town on the Rhone}"
QUESTION = {"question": "Capital of France?", "answers": ["Paris"]}
PARIS = Example("Capital of France?", ("Paris",))


@reward
def steps(example: Example, completion: str) -> Score:
    """Credit for the first word, a floor for an empty text."""
    return Score(
        {"a": 0.1, "b": 0.2}, (Span(0, 1, 1),) if completion else (), None if completion else "empty"
    )


class Listening:
    """An ASGI application behind uvicorn on a port of its own."""

    def __init__(self, app: Any, **options: Any) -> None:
        # A test that fails leaves its connections open.
        config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=10, **options)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def drain(self, seconds: float) -> None:
        """How long requests under way may take after `stop`."""
        self._server.config.timeout_graceful_shutdown = seconds  # type: ignore[assignment]

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()


class Running(Listening):
    """A service as `factrl serve` runs it."""

    def __init__(self, service: Service, token: str = "") -> None:
        self.service = service
        app = gate.Gate(make_api(service), token)
        super().__init__(app, http="h11", ws="none", lifespan="on")

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


def raw(server: Running, *parts: bytes, pause: float = 0.0) -> bytes:
    """The status line that answers bytes which no well-behaved client sends."""
    with connect(server) as connection:
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


def connect(server: Running, *parts: bytes) -> socket.socket:
    """A connection to a server on which something was sent."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    for part in parts:
        connection.sendall(part)
    return connection


def to_the_end(connection: socket.socket) -> bytes:
    """All that comes before the server closes a connection; a test fails after 20 s without anything."""
    whole = b""
    try:
        while more := connection.recv(65_536):
            whole += more
    except ConnectionError:  # closed with something unread
        pass
    connection.close()
    return whole


Make = Callable[..., Running]


@contextmanager
def servers() -> Iterator[Make]:
    """Starts servers, and stops them; `limits` are constants of the gate."""
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())

        def start(judge: Any = None, token: str = "", **limits: float) -> Running:
            for name, value in limits.items():
                patch.setattr(gate, name, value)
            truthrl = load_reward("truthrl").with_(grade=Grader(judge))
            rewards: dict[str, Reward] = {"truthrl": truthrl, "steps": steps}
            service = Service(rewards, judge, open_verifier("local", judge="weak"))
            running = Running(service, token)
            stack.callback(running.stop)
            return running

        yield start


def request(*completions: str, reward: str = "truthrl", **example: Any) -> dict[str, Any]:
    """The body of `/v1/score` for completions of one question."""
    return {
        "reward": reward,
        "samples": [{"example": {**QUESTION, **example}, "completion": c} for c in completions],
    }


class Held:
    """A judge that answers when it is let go; `asked` is set once somebody waits for it."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self.llm = FakeLLM(self._reply)

    def _reply(self, _: Any) -> str:
        self.asked.set()
        self.go.wait(20)
        return "VERDICT: correct"
