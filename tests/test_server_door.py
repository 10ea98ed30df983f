"""The server's door: bodies that nobody may send, names for this machine, connections that only wait."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from factrl import FakeLLM
from factrl.cli import main
from factrl.errors import LLMError
from serving import RIGHT, WRONG, Make, connect, raw, request, servers, to_the_end

connection = pytest.importorskip("factrl.server.connection")

JSON = b"Content-Type: application/json\r\n"
HOST = b"Host: localhost\r\n"
TOKEN = {"Authorization": "Bearer secret"}
LENGTH, CHUNKS = b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with servers(tmp_path) as start:
        yield start


# Bodies


UNASKED = {
    "POST /health/live": 405,
    "POST /health/ready": 405,
    "PUT /health/live": 405,
    "DELETE /health/%6cive": 405,
    "OPTIONS /health/ready": 405,
    "TRACE /health/live": 405,
    "X" * 3000 + " /health/live": 405,
    "GET /health/live": 400,
    "HEAD /health/ready": 400,
    "POST //health/live": 401,
    "POST /health/live/": 401,
    "POST /health/live%00": 401,
    "POST /HEALTH/LIVE": 401,
    "POST /health/../v1/score": 401,
    "POST http://localhost/health/live": 401,
    "POST /v1/score": 401,
    "POST /v1/score?token=secret": 401,
    "POST /nothing": 401,
    "PUT /v1/score": 401,
    "OPTIONS *": 401,
}


@pytest.mark.security("S31", "S32")
@pytest.mark.parametrize("body", [LENGTH, CHUNKS], ids=["length", "chunks"])
def test_without_the_token_no_path_waits_for_a_body(
    make: Make, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("factrl.server.gate.FAILURES", 100)
    server = make(token="secret", limits={"body_seconds": 60.0})
    for line, status in UNASKED.items():
        head = line.encode() + b" HTTP/1.1\r\nExpect: 100-continue\r\n" + HOST + JSON
        answer = to_the_end(connect(server, head + body))
        assert answer.startswith(b"HTTP/1.1 %d " % status), (line, answer)


@pytest.mark.security("S32", "S47")
def test_slow_posts_without_the_token_take_nobodys_place(make: Make) -> None:
    server = make(token="secret", limits={"body_seconds": 60.0, "inside": 2})
    slow = [
        connect(server, b"POST /health/%b HTTP/1.1\r\n" % path + HOST + JSON + LENGTH)
        for path in (b"live", b"ready") * 4
    ]
    assert server.ask("/v1/score", request(RIGHT), headers=TOKEN)[0] == 200
    assert all(to_the_end(one).startswith(b"HTTP/1.1 405 ") for one in slow)


@pytest.mark.security("S32", "S47")
def test_the_slowest_body_gives_way_to_who_comes(make: Make) -> None:
    server = make(limits={"body_seconds": 60.0, "inside": 2})
    slow = [connect(server, b"POST /v1/score HTTP/1.1\r\n" + HOST + JSON + LENGTH) for _ in range(8)]
    assert server.ask("/v1/score", request(RIGHT))[0] == 200
    for one in slow[:6]:
        assert one.recv(4096).startswith(b"HTTP/1.1 429 ")
    for one in slow:
        one.close()


@pytest.mark.security("S32")
def test_all_bodies_together_are_bounded(make: Make) -> None:
    server = make(limits={"body_seconds": 60.0, "bodies": 1 << 20})
    head = b"POST /v1/score HTTP/1.1\r\n" + HOST + JSON + b"Content-Length: 600000\r\n\r\n"
    slow = [connect(server, head, b" " * 400_000) for _ in range(8)]
    given_up = [one.recv(4096) for one in slow[:6]]  # two of them fit
    assert all(answer.startswith(b"HTTP/1.1 429 ") for answer in given_up)
    assert server.ask("/v1/score", request(RIGHT))[0] == 200
    for one in slow:
        one.close()


@pytest.mark.security("S32")
def test_a_body_has_one_length(make: Make) -> None:
    server = make()
    head = b"POST /v1/score HTTP/1.1\r\n" + HOST + JSON
    both = b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    assert b" 400 " in raw(server, head + both)
    assert b" 400 " in raw(server, head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}")


# What is told


@pytest.mark.security("S31", "S37")
def test_only_who_has_the_token_learns_why_a_server_is_not_ready(make: Make) -> None:
    server = make(FakeLLM([LLMError("connection", "http://10.0.0.7:8000/v1#judge")]), token="secret")
    mute = (503, {"status": "not ready", "detail": ""})
    assert server.ask("/health/ready") == mute
    assert server.ask("/health/ready", headers={"Authorization": "Bearer wrong"}) == mute
    status, answer = server.ask("/health/ready", headers=TOKEN)
    assert (status, "10.0.0.7" in answer["detail"]) == (503, True)
    for n in range(9):  # or tokens could be guessed here
        server.ask("/health/ready", headers={"Authorization": f"Bearer {n}"})
    assert server.ask("/health/ready", headers=TOKEN) == mute
    assert server.ask("/openapi.json", headers=TOKEN)[0] == 429


def test_health_is_told_by_head_too(make: Make) -> None:
    answer = to_the_end(connect(make(token="secret"), b"HEAD /health/live HTTP/1.0\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert answer.endswith(b"\r\n\r\n")


# Names for this machine

HERE = ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:65535", "127.255.0.9", "[::1]", "[::1]:8100"]
ELSEWHERE = [
    *(
        "",
        ":80",
        "x",
        "evil.example",
        "localhost.evil.example:80",
        "127.0.0.1.nip.io",
        "localhost@evil.example",
    ),
    *("evil.example@localhost", "localhost:80:80", "localhost:x", "localhost/", "0.0.0.0", "10.0.0.1"),  # noqa: S104
    *("[::]", "[::1", "::1", "[::1].evil.example", "[evil.example]", "2130706433", "localhost, evil.example"),
]


@pytest.mark.security("S49")
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
    status, told = server.ask("/v1/score", request(RIGHT), headers={"Host": "evil.example"})
    assert (status, "no token" in told["detail"], "localhost" in told["detail"]) == (421, True, True)


@pytest.mark.security("S49")
def test_a_server_without_a_token_answers_no_page_of_another_host(make: Make) -> None:
    server = make()
    for host in ("localhost:3000", "127.0.0.1", "[::1]:8888"):
        assert server.ask("/health/live", headers={"Origin": f"http://{host}"})[0] == 200
    for origin in ["null", "", "localhost", "file://", *(f"https://{host}" for host in ELSEWHERE)]:
        status, told = server.ask("/v1/score", request(RIGHT), headers={"Origin": origin})
        assert (status, "pages of other hosts" in told["detail"]) == (403, True), origin
    two = b"Origin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n"
    assert b" 403 " in raw(server, b"GET /health/live HTTP/1.1\r\n" + HOST + two)


def test_with_a_token_a_server_has_any_name(make: Make) -> None:
    headers = {**TOKEN, "Host": "rewards.example:8100", "Origin": "https://page.example"}
    assert make(token="secret").ask("/v1/score", request(RIGHT), headers=headers)[0] == 200


@pytest.mark.security("S49")
def test_nobody_is_sent_to_a_host_of_a_clients_choice(make: Make) -> None:
    headers = {**TOKEN, "Host": "evil.example"}
    assert make(token="secret").ask("/openapi.json/", headers=headers)[0] == 404


# Connections

LIVE = b"GET /health/live HTTP/1.1\r\n" + HOST + b"\r\n"
GREEDY = (b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n") * 2_000


@pytest.mark.security("S50")
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX: ", LIVE, LIVE * 9, LIVE + b"GET / HT"])
def test_a_connection_that_asks_nothing_is_closed(
    make: Make, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.3)
    waiting = connect(make(), sent)
    assert to_the_end(waiting).count(b" 200 OK") == sent.count(LIVE)


@pytest.mark.security("S50")
def test_a_head_that_drips_is_closed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.3)
    dripping = connect(make(), b"GET / HTTP/1.1\r\n")

    def drip() -> None:
        for _ in range(2_000):
            dripping.sendall(b"X: y\r\n")
            time.sleep(0.01)

    with dripping, pytest.raises(ConnectionError):
        drip()


@pytest.mark.security("S50")
def test_an_answer_that_nobody_fetches_is_dropped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.3)
    server = make()
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.settimeout(20)
    lazy.connect(("127.0.0.1", server.port))
    lazy.sendall(GREEDY)
    here, deadline = server._server.server_state.connections, time.monotonic() + 20
    while not here and time.monotonic() < deadline:
        time.sleep(0.01)
    assert here
    while here and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not here
    lazy.close()


@pytest.mark.security("S50")
def test_the_rest_of_a_body_that_was_refused_is_not_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.3)
    server = make(limits={"inside": 0})
    busy = connect(server, b"POST /v1/score HTTP/1.1\r\n" + HOST + JSON + LENGTH)
    assert to_the_end(busy).startswith(b"HTTP/1.1 429 ")


def test_work_that_takes_longer_is_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.2)

    def slow(_: Any) -> str:
        time.sleep(1.0)
        return "VERDICT: correct"

    assert make(FakeLLM(slow)).ask("/v1/score", request(WRONG))[0] == 200


@pytest.mark.security("S50")
def test_connections_are_few_and_those_without_a_request_make_room(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS", 8)
    go = threading.Event()

    def wait(_: Any) -> str:
        go.wait(20)
        return "VERDICT: correct"

    server = make(FakeLLM(wait))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.ask, "/v1/score", request(WRONG))
        server.wait_until_waiting(1)
        idle = [connect(server) for _ in range(40)]
        assert [to_the_end(one) for one in idle[:32]] == [b""] * 32
        assert len(server._server.server_state.connections) <= 8
        assert server.ask("/health/live")[0] == 200
        go.set()
        assert first.result()[0] == 200, "what was asked first is still answered"
    for one in idle:
        one.close()


@pytest.mark.security("S50")
def test_the_command_serves_through_such_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr("uvicorn.run", lambda _, **options: told.update(options))
    monkeypatch.setenv("FACTRL_SERVE", "")
    assert main(["serve", "truthrl"]) == 0
    assert (told["http"], told["ws"]) == ("factrl.server.connection:Connection", "none")
    assert connection.CONNECTIONS + told["backlog"] < 1024


# What the command is told


@pytest.fixture
def not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: pytest.fail("it went on"))
    monkeypatch.setenv("FACTRL_SERVE", "")


NO_NUMBERS = ["99999", "65536", "0", "-1", "9" * 5000, "abc", "1e3", "", " 80", "٨٠", "1.5", "8100\n8101"]


@pytest.mark.usefixtures("not_begun")
@pytest.mark.parametrize("option", ["--port", "--workers"])
@pytest.mark.parametrize("number", NO_NUMBERS, ids=lambda number: number[:8])
def test_what_is_no_number_of_a_port_or_of_workers_is_one_line(
    option: str, number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "truthrl", f"{option}={number}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "is not a whole number from 1 to" in line
    assert len(line) < 150


@pytest.mark.usefixtures("not_begun")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_is_one_line(workers: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert main(["serve", "truthrl", "--port", port, "--workers", workers]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"cannot listen on --host 127.0.0.1 --port {port}" in line


@pytest.mark.usefixtures("not_begun")
@pytest.mark.parametrize("host", ["a" * 300, "::1::"])
def test_a_host_that_is_none_is_one_line(
    host: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", "secret")
    assert main(["serve", "truthrl", "--host", host]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "cannot listen on --host" in line


@pytest.mark.usefixtures("not_begun")
@pytest.mark.parametrize("name", ["FACTRL_CACHE"])
@pytest.mark.parametrize("place", ["/dev/null/x", "file", "~nobody-of-this-name/x"])
def test_a_place_that_cannot_be_written_is_one_line(
    name: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("", "utf-8")
    monkeypatch.setenv(name, place)
    assert main(["serve", "truthrl"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "cannot be kept" in line
    assert f"set {name}" in line


def test_a_server_that_does_not_come_up_ends_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise SystemExit(3)

    monkeypatch.setattr("uvicorn.run", fails)
    monkeypatch.setenv("FACTRL_SERVE", "")
    assert main(["serve", "truthrl"]) == 2
