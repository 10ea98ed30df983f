"""The server's door: bodies that nobody may send, names for this machine, connections that only wait."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from factrl import FakeLLM
from factrl.cli import main
from factrl.errors import LLMError
from serving import RIGHT, Make, connect, raw, request, to_the_end

gate = pytest.importorskip("factrl.server.gate")

JSON = b"Content-Type: application/json\r\n"
HOST = b"Host: localhost\r\n"
TOKEN = {"Authorization": "Bearer secret"}
LENGTH, CHUNKS = b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"


HEAD = b"POST /v1/score HTTP/1.1\r\n" + HOST + JSON


# Tokens and bodies


NO_TOKENS = [
    *("", "Bearer sec", "Bearer " + "x" * 9000, "Bearer SECRET"),
    *("Basic secret", "secret", "Bearersecret", "Bearer secret x"),
]


def test_without_the_token_nothing_is_done(make: Make) -> None:
    server = make(token="secret")
    for headers in ({}, *({"Authorization": given} for given in NO_TOKENS)):
        status, answer = server.ask("/v1/score", request(RIGHT), headers=headers)
        assert (status, answer) == (401, {"detail": "give the server's token: Authorization: Bearer TOKEN"})
    assert server.ask("/health/live")[0] == 200
    for given in ("Bearer secret", "bearer secret", "BEARER secret", "Bearer  secret"):
        assert server.ask("/v1/score", request(RIGHT), headers={"Authorization": given})[0] == 200
    good = b"Authorization: Bearer secret\r\n"
    twice = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n" + good + good + b"\r\n"
    assert b" 401 " in raw(make(token="secret"), twice), "a token that is given twice is none"


@pytest.mark.parametrize("token", ["se\ncret", "se\rcret", "two words", "se\tcret", "gehé", "\x7f"])
def test_a_token_that_no_header_can_bring_is_refused_at_the_start(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", token)
    assert main(["serve", "truthrl", "--host", "::"]) == 2
    assert "FACTRL_SERVER_TOKEN holds a space, a line break" in capsys.readouterr().err
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", " secret\n")  # as a file has it
    assert pytest.importorskip("factrl.server").server_token() == "secret"


def test_a_body_that_is_too_large_is_refused_before_it_has_come(make: Make) -> None:
    server = make(BODY_LIMIT=100_000)
    assert b" 413 " in raw(server, HEAD + b"Content-Length: 99999999\r\n\r\n")
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    assert b" 413 " in raw(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 12)
    assert server.ask("/health/live")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [{"Content-Type": "application/octet-stream"}, {"Content-Encoding": "gzip"}, {"Content-Type": ""}],
)
def test_what_is_not_plain_json_is_refused_unread(make: Make, headers: dict[str, str]) -> None:
    assert make().ask("/v1/score", b"\x80\x04", headers=headers)[0] == 415


def test_ready_says_why_not(make: Make) -> None:
    assert make(FakeLLM(["ok"])).ask("/health/ready") == (200, {"status": "ready", "detail": ""})
    status, answer = make(FakeLLM([LLMError("connection", "nobody listens")])).ask("/health/ready")
    assert (status, answer["status"], "nobody listens" in answer["detail"]) == (503, "not ready", True)


def test_a_flood_without_a_length_is_never_held_whole(make: Make) -> None:
    """100 MB in chunks: what is held is the limit and not the flood, and nobody else is kept waiting."""
    server = make(BODY_LIMIT=8 << 20)
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    before = resident()
    assert b" 413 " in raw(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 100)
    assert resident() - before < 50 << 20
    assert server.ask("/v1/score", request(RIGHT))[0] == 200


def test_slow_bodies_keep_nobody_waiting(make: Make) -> None:
    server = make()
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


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


UNASKED = {
    "POST /health/live": 405,
    "GET /health/live": 400,
    "POST http://localhost/health/live": 401,
    "POST /v1/score": 401,
}


@pytest.mark.parametrize("body", [LENGTH, CHUNKS], ids=["length", "chunks"])
def test_without_the_token_no_path_waits_for_a_body(make: Make, body: bytes) -> None:
    server = make(token="secret")
    for line, status in UNASKED.items():
        head = line.encode() + b" HTTP/1.1\r\nExpect: 100-continue\r\n" + HOST + JSON
        answer = to_the_end(connect(server, head + body))
        assert answer.startswith(b"HTTP/1.1 %d " % status), (line, answer)


def test_a_body_has_one_length(make: Make) -> None:
    server = make()
    head = b"POST /v1/score HTTP/1.1\r\n" + HOST + JSON
    both = b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert b" 400 " in raw(server, head + both)
    assert b" 400 " in raw(server, head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}")


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/openapi.json"])
def test_what_can_be_got_can_be_asked_for_its_head(make: Make, path: str) -> None:
    answer = to_the_end(
        connect(make(), b"HEAD %b HTTP/1.1\r\nConnection: close\r\n" % path.encode() + HOST + b"\r\n")
    )
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\n")


# What is told


def test_only_who_has_the_token_learns_why_a_server_is_not_ready(make: Make) -> None:
    server = make(FakeLLM([LLMError("connection", "http://10.0.0.7:8000/v1#judge")]), token="secret")
    mute = (503, {"status": "not ready", "detail": ""})
    assert server.ask("/health/ready") == mute
    assert server.ask("/health/ready", headers={"Authorization": "Bearer wrong"}) == mute
    status, answer = server.ask("/health/ready", headers=TOKEN)
    assert (status, "10.0.0.7" in answer["detail"]) == (503, True)


# Names for this machine

HERE = ["LOCALHOST:1", "127.0.0.1", "[::1]:8100"]
ELSEWHERE = [
    *("", "evil.example", "localhost.evil.example:80", "127.0.0.1.nip.io"),
    *("evil.example@localhost", "10.0.0.1", "[::1].evil.example", "2130706433"),
]


def test_a_server_without_a_token_answers_to_names_of_this_machine_alone(make: Make) -> None:
    server = make()
    for path in (b"/health/live", b"/health/ready", b"/openapi.json"):
        line = b"GET %b HTTP/1.1\r\n" % path
        for host in HERE:
            assert b" 200 " in raw(server, line + b"Host: %b\r\n\r\n" % host.encode()), host
        for host in ELSEWHERE:
            assert b" 421 " in raw(server, line + b"Host: %b\r\n\r\n" % host.encode()), host
    assert b" 421 " in raw(server, b"GET /health/live HTTP/1.0\r\n\r\n")
    assert b" 400 " in raw(server, b"GET /health/live HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n")
    status, answer = server.ask("/v1/score", request(RIGHT), headers={"Host": "evil.example"})
    assert (status, "no token" in answer["detail"], "localhost" in answer["detail"]) == (421, True, True)


def test_a_server_without_a_token_answers_no_page_of_another_host(make: Make) -> None:
    server = make()
    for host in ("localhost:3000", "127.0.0.1", "[::1]:8888"):
        assert server.ask("/health/live", headers={"Origin": f"http://{host}"})[0] == 200
    for origin in ["null", "", "localhost", "file://", *(f"https://{host}" for host in ELSEWHERE)]:
        status, answer = server.ask("/v1/score", request(RIGHT), headers={"Origin": origin})
        assert (status, "pages of other hosts" in answer["detail"]) == (403, True), origin
    two = b"Origin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n"
    assert b" 403 " in raw(server, b"GET /health/live HTTP/1.1\r\n" + HOST + two)


def test_nobody_is_sent_to_a_host_of_a_clients_choice(make: Make) -> None:
    headers = {**TOKEN, "Host": "evil.example"}
    assert make(token="secret").ask("/openapi.json/", headers=headers)[0] == 404


# What the command is told


def test_the_command_listens_here_alone_through_such_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    config: dict[str, Any] = {}
    monkeypatch.setattr("factrl.server.run_announced", lambda _, __, options: config.update(options) or 0)
    monkeypatch.setenv("FACTRL_SERVE", "")
    assert main(["serve", "truthrl"]) == 0
    assert (config["host"], config["http"], config["ws"]) == ("127.0.0.1", "h11", "none")
    assert (config["limit_concurrency"], config["timeout_keep_alive"]) == (512, 30)
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", "\n")
    assert main(["serve", "truthrl", "--host", "192.0.2.1"]) == 2
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", "secret")
    assert main(["serve", "truthrl", "--host", "192.0.2.1"]) == 0
    assert config["host"] == "192.0.2.1"


NO_NUMBERS = ["65536", "0", "9" * 5000, "1e3", "", "٨٠"]


def test_what_cannot_be_served_on_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("factrl.server.run_announced", lambda *_: pytest.fail("it went on"))
    monkeypatch.setenv("FACTRL_SERVE", "")
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", "secret")

    def line(*words: str) -> str:
        assert main(["serve", "truthrl", *words]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert len(line) < 200
        return line

    for number in filter(str.strip, NO_NUMBERS):
        assert "is not a whole number" in line(f"--port={number}")
        assert "is not a whole number" in line(f"--workers={number}")
    for host in ("a" * 300, "::1::"):
        assert "cannot listen on --host" in line("--host", host)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert f"cannot listen on --host 127.0.0.1 --port {port}" in line("--port", port, "--workers", "2")
