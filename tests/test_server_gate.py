"""Who may enter the server, with what and how slowly: attacks on the door (reliability S30 to S32)."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from factrl import FakeLLM
from factrl.cli import main
from factrl.errors import LLMError
from serving import RIGHT, WRONG, Make, raw, request, servers


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with servers(tmp_path) as start:
        yield start


@pytest.mark.security("S31")
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


@pytest.mark.security("S31")
def test_guessing_tokens_is_stopped(make: Make) -> None:
    server = make(token="secret")
    statuses = [server.ask("/openapi.json", headers={"Authorization": f"Bearer {n}"})[0] for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert server.ask("/openapi.json", headers={"Authorization": "Bearer secret"})[0] == 429


HEAD = b"POST /v1/score HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.mark.security("S32")
def test_a_body_that_is_too_large_is_refused_before_it_has_come(make: Make) -> None:
    server = make(limits={"body_limit": 100_000})
    assert b" 413 " in raw(server, HEAD + b"Content-Length: 99999999\r\n\r\n")
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    assert b" 413 " in raw(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 12)
    assert server.ask("/health/live")[0] == 200


@pytest.mark.security("S32")
def test_a_body_that_never_ends_is_given_up(make: Make) -> None:
    server = make(limits={"body_seconds": 0.3})
    assert b" 408 " in raw(server, HEAD + b"Content-Length: 100\r\n\r\n", b"{", b" ", pause=0.1)


@pytest.mark.security("S32")
@pytest.mark.parametrize(
    "headers",
    [{"Content-Type": "application/octet-stream"}, {"Content-Encoding": "gzip"}, {"Content-Type": ""}],
)
def test_what_is_not_plain_json_is_refused_unread(make: Make, headers: dict[str, str]) -> None:
    assert make().ask("/v1/score", b"\x80\x04", headers=headers)[0] == 415


@pytest.mark.security("S47")
def test_too_many_samples_at_once_are_turned_away_and_told_when_to_return(make: Make) -> None:
    go = threading.Event()

    def wait(_: Any) -> str:
        go.wait(20)
        return "VERDICT: incorrect"

    server = make(FakeLLM(wait), in_flight=3)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.ask, "/v1/score", request(WRONG, WRONG))
        server.wait_until_waiting(2)
        status, answer = server.ask("/v1/score", request(RIGHT, RIGHT))
        assert (status, "2 samples wait here" in answer["detail"]) == (429, True)
        assert server.ask("/v1/score", request(RIGHT))[0] == 200
        go.set()
        assert first.result()[0] == 200


def test_ready_says_why_not(make: Make) -> None:
    assert make(FakeLLM(["ok"])).ask("/health/ready") == (200, {"status": "ready", "detail": ""})
    status, answer = make(FakeLLM([LLMError("connection", "nobody listens")])).ask("/health/ready")
    assert (status, answer["status"], "nobody listens" in answer["detail"]) == (503, "not ready", True)


@pytest.mark.security("S31")
def test_the_token_is_no_use_in_part_twice_or_without_end(make: Make) -> None:
    server = make(token="secret")
    plain = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
    good = b"Authorization: Bearer secret\r\n"
    assert b" 200 " in raw(server, plain + good + b"\r\n")
    assert b" 401 " in raw(server, plain + good + b"Authorization: Bearer other\r\n\r\n")
    assert b" 401 " in raw(server, plain + good + good + b"\r\n")
    endless = raw(server, plain + b"Authorization: Bearer " + b"x" * (1 << 20) + b"\r\n\r\n")
    assert b" 200 " not in endless
    assert server.ask("/health/live")[0] == 200


@pytest.mark.security("S32")
def test_a_flood_without_a_length_is_never_held_whole(make: Make) -> None:
    """100 MB in chunks: what is held is the limit and not the flood, and nobody else is kept waiting."""
    server = make(limits={"body_limit": 8 << 20})
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    before = resident()
    assert b" 413 " in raw(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 100)
    assert resident() - before < 50 << 20
    assert server.ask("/v1/score", request(RIGHT))[0] == 200


@pytest.mark.security("S32")
def test_slow_bodies_keep_nobody_waiting(make: Make) -> None:
    server = make(limits={"body_seconds": 60.0})
    slow = []
    try:
        for _ in range(100):
            slow.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            slow[-1].sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        assert server.ask("/v1/score", request(RIGHT))[0] == 200
        assert server.ask("/health/live")[0] == 200
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.security("S32")
def test_a_length_that_is_no_length_is_refused(make: Make) -> None:
    server = make()
    for length in (b"-1", b"1e3", b"9" * 20, b"9" * 5000):
        assert raw(server, HEAD + b"Content-Length: " + length + b"\r\n\r\n")[9:10] == b"4"


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.security("S30")
def test_it_listens_on_this_machine_alone_unless_it_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr("uvicorn.run", lambda _, **options: told.update(options))
    monkeypatch.setenv("FACTRL_SERVE", "")
    assert main(["serve", "truthrl"]) == 0
    assert told["host"] == "127.0.0.1"
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", "secret")
    assert main(["serve", "truthrl", "--host", "192.0.2.1"]) == 0
    assert told["host"] == "192.0.2.1"
