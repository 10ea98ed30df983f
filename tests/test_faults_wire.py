"""Replies that nobody asked for, on the wire between a judge and its client: no grade is another question's.

The server here is plain sockets: it keeps every connection open, whatever the client asks for, and says more
on it than it was asked.
"""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from factrl.llm.openai_compatible import OpenAICompatible
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.types import Example
from fault_server import completion

pytestmark = pytest.mark.alone

WHO = Example("Where was Marie Curie born?", ("Warsaw",), id="curie")
Manner = Callable[["Talk", bytes], None]


def reply(text: str, status: str = "200 OK", behind: bytes = b"") -> bytes:
    """A whole answer, with so much behind the end of its body."""
    body = json.dumps(completion(text)).encode()
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s%s" % (status.encode(), len(body), body, behind)


STRAY = reply("VERDICT: correct")


class Talk(socketserver.StreamRequestHandler):
    """One connection, and how many questions came on it."""

    server: Talker  # pyright: ignore[reportIncompatibleVariableOverride]
    questions = 0

    def handle(self) -> None:
        self.server.open.append(self.request)
        with contextlib.suppress(OSError):
            while self.rfile.readline():
                length = 0
                while head := self.rfile.readline().strip():
                    name, _, value = head.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                asked = json.loads(self.rfile.read(length))["messages"][-1]["content"]
                self.questions += 1
                self.server.longest = max(self.server.longest, self.questions)
                number = int(asked.rpartition("city number ")[2].partition('"')[0])
                self.server.manner(self, reply(f"VERDICT: {'correct' if number % 2 else 'incorrect'}"))

    def say(self, data: bytes) -> None:
        self.request.sendall(data)


class Talker(socketserver.ThreadingTCPServer):
    """Judges by whether a city's number is odd, in its own manner.

    Attributes:
        open: the connections so far.
        longest: questions that came on one connection, at most.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, manner: Manner) -> None:
        super().__init__(("127.0.0.1", 0), Talk)
        self.manner, self.longest = manner, 0
        self.open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@contextlib.contextmanager
def talker(manner: Manner) -> Iterator[Talker]:
    with Talker(manner) as server:
        try:
            yield server
        finally:
            server.shutdown()


def grades(server: Talker, count: int, **limits: Any) -> list[float | None]:
    quick = {"timeout_attempt": 5.0, "timeout_call": 20.0, "max_attempts": 4, "backoff": 0.001}
    judged = load_reward("truthrl").with_(
        grade=Grader(OpenAICompatible(server.url, "m", **{**quick, **limits}))
    )
    texts = [f"\\boxed{{city number {number}}}" for number in range(count)]
    return [result.value for result in judged.batch([WHO] * count, texts)]


def right(count: int) -> list[float]:
    return [1.0 if number % 2 else -1.0 for number in range(count)]


@pytest.mark.fault("F17")
def test_f17_unasked_replies_at_random_moments_make_no_wrong_grade() -> None:
    dice, count, over = Random(4), 120, threading.Event()

    def answer(talk: Talk, answer: bytes) -> None:
        talk.say(answer + STRAY * dice.choice([0, 0, 1, 2]))
        answered.append(talk.request)

    def babble() -> None:
        while not over.wait(dice.random() / 500):
            with contextlib.suppress(OSError, IndexError):
                dice.choice(answered[-8:]).sendall(dice.choice([STRAY, STRAY[:99], STRAY * 2]))

    answered: list[socket.socket] = []
    with talker(answer) as server:
        babbler = threading.Thread(target=babble, daemon=True)
        babbler.start()
        told = grades(server, count, max_concurrency=4)
        over.set()
        babbler.join()
        assert server.longest == 1  # where a second one follows, its reply cannot be told from a stray one
    assert [pair for pair in zip(told, right(count), strict=True) if pair[0] not in (None, pair[1])] == []
    assert sum(value is not None for value in told) > count * 0.9
