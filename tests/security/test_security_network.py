"""Where the package connects to and what it tells: addresses of others, redirects, and keys."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fault_server as fs
from factrl import Passage, remote
from factrl.cli import main
from factrl.errors import ConfigError, LLMError, SetupError, Unscored
from factrl.llm.background import wait_for
from factrl.llm.client import JSONClient
from factrl.llm.models import get
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.llm.store import Store
from factrl.rewards.needs import Supplier
from factrl.verifier import open_verifier
from factrl.verifier.search import WebSearch
from fault_server import FaultServer, Handler, answers
from serving import PARIS, RIGHT, Make, request

CANARY = "sk-canary-" + "Zq7x" * 30  # as long as the longest keys there are


@pytest.fixture
def contacted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that is connected to or looked up while the test runs."""
    seen: list[Any] = []
    connect, getaddrinfo = socket.socket.connect, socket.getaddrinfo

    def watched(self: socket.socket, address: Any) -> Any:
        seen.append(address[1] if isinstance(address, tuple) else address)
        return connect(self, address)

    def looked_up(host: Any, *args: Any, **named: Any) -> Any:
        if host not in ("127.0.0.1", None):
            seen.append(host)
        return getaddrinfo(host, *args, **named)

    monkeypatch.setattr(socket.socket, "connect", watched)
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return seen


# ---------------------------------------------------------------- addresses of others

INSIDE = [
    *("127.0.0.1", "localhost", "10.0.0.1", "169.254.169.254", "100.64.0.1", "[::1]", "[fd00:ec2::254]"),
    *("[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"),
    *("localhost.", "example.org@127.0.0.1", "①②⑦.0.0.1", "127。0。0。1", "metadata.google.internal"),
]  # fmt: skip
SCHEMES = [
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_INFO",
    "ftp://127.0.0.1/",
    "data:text/html,x",
    "//127.0.0.1/",
]


def test_no_address_in_results_claims_or_evidence_is_ever_visited(
    serve: Callable[..., FaultServer], contacted: list[Any], tmp_path: Path
) -> None:
    """Results of a search, claims and evidence are full of addresses of the inside."""
    urls = [f"http://{host}:9/latest/meta-data" for host in INSIDE] + SCHEMES
    results = [{"title": url, "link": url, "snippet": f"Ann Lee was born at {url} in 1867."} for url in urls]
    server = serve(answers(200, {"organic": results}))
    search = WebSearch(server.url, "a-key-of-the-search", max_attempts=1)
    verifier = open_verifier("local", judge="weak", web=search)
    report = verifier(f"Ann Lee was born in 1867. See {urls[0]} and {urls[3]}. {urls[9]} is big.")
    assert report.claims >= 1
    assert server.requests
    assert "169.254.169.254" in report.to_html(tmp_path / "a.html").read_text("utf-8")
    evidence = [Passage(f"Ann Lee was born in 1867. {url}", url, url) for url in urls]
    given = open_verifier("local", judge="weak")("Ann Lee was born in 1867.", evidence=evidence)
    assert given.claims == 1
    given.to_html(tmp_path / "b.html")
    assert {*contacted} == {server.port}


def test_a_query_changes_neither_the_address_nor_the_form_of_a_search(
    serve: Callable[..., FaultServer],
) -> None:
    server = serve(answers(200, {"organic": []}))
    hostile = ['"} , "num": 999', "?q=x&num=9#", "../../admin", "%2e%2e%2f"]
    hostile += ["\r\nX-Injected: 1", "' OR 1=1 --"]
    for query in hostile:
        wait_for(WebSearch(server.url, "a-key-of-the-search").search(f"Ann Lee {query}"))
    for sent, query in zip(server.requests, hostile, strict=True):
        assert (sent.method, sent.path, sent.body["num"]) == ("POST", "/v1/search", 5)
        assert sent.body == {"q": " ".join(f"Ann Lee {query}".split()), "num": 5}
        assert "x-injected" not in sent.headers


@pytest.mark.parametrize(
    "url", [*SCHEMES, "javascript:alert(1)", "unix:///run/docker.sock", "http://", "http:///x"]
)
def test_only_web_servers_can_be_named(url: str, contacted: list[Any]) -> None:
    for make in (
        WebSearch,
        JSONClient,
        lambda given: OpenAICompatible(given, "m"),
        lambda given: remote(given, "r"),
    ):
        with pytest.raises(ConfigError):
            make(url)
    with pytest.raises(SetupError):
        get(url, download=False)
    assert contacted == []


@pytest.mark.parametrize("status", [301, 307])
def test_no_server_sends_its_client_elsewhere(
    status: int, serve: Callable[..., FaultServer], contacted: list[Any]
) -> None:
    quick: dict[str, Any] = {"max_attempts": 3, "timeout_attempt": 1.0, "timeout_call": 2.0}
    server = serve(answers(status, b"", location="http://127.0.0.1:9/latest/meta-data"))
    with pytest.raises(LLMError) as judged:
        OpenAICompatible(server.url, "m", CANARY, **quick).complete([{"role": "user", "content": "x"}])
    with pytest.raises(Unscored) as searched:
        wait_for(WebSearch(server.url, CANARY, **quick).search("Ann Lee"))
    scored = remote(server.url, "truthrl", token=CANARY, **quick)(PARIS, RIGHT)
    assert (judged.value.cause, searched.value.facts["reason"], scored.cause) == ("redirect",) * 3
    assert len(server.requests) == 3
    assert {*contacted} == {server.port}


# ---------------------------------------------------------------- keys


def shouting(status: int, before: int) -> Callable[[Handler], None]:
    """A refusal that repeats the key, after `before` other characters."""

    def fault(handler: Handler) -> None:
        key = handler.headers.get("Authorization", "").removeprefix("Bearer ") or handler.headers["X-API-KEY"]
        handler.send(status, json.dumps({"error": {"message": "x" * before + f" key: {key}"}}).encode())

    return fault


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("before", [0, 188])
def test_a_key_that_a_server_repeats_is_hidden_also_where_its_message_is_cut(
    status: int, before: int, serve: Callable[..., FaultServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = serve(shouting(status, before))
    with pytest.raises(LLMError) as judged:
        OpenAICompatible(server.url, "m", CANARY, max_attempts=1).complete([{"role": "user", "content": "x"}])
    with pytest.raises(Unscored) as searched:
        wait_for(WebSearch(server.url, CANARY, max_attempts=1).search("Ann Lee"))
    shown = "".join(
        [str(judged.value), repr(judged.value), str(searched.value), repr(searched.value), caplog.text]
    )
    assert "[key]" in shown or before == 188
    assert CANARY[:9] not in shown
    assert "Zq7x" not in shown


KEYS = (
    "FACTRL_JUDGE_API_KEY",
    "SERPER_API_KEY",
    "TAVILY_API_KEY",
    "BRAVE_API_KEY",
    "EXA_API_KEY",
    "FACTRL_SERVER_TOKEN",
    "OPENAI_API_KEY",
    "HF_TOKEN",
    "WANDB_API_KEY",
)


def test_no_key_is_in_anything_that_is_written_or_said(
    serve: Callable[..., FaultServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Everything that asks a server, once well and once with a server that repeats what it was sent."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Supplier, "_store", lambda _: Store(tmp_path / "cache" / "verdicts.db"))
    for name in KEYS:
        monkeypatch.setenv(name, CANARY)
    row = {"question": "Capital of Norway?", "answers": ["Oslo"], "completion": "\\boxed{a town on a fjord}"}
    Path("in.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    Path("docs.jsonl").write_text(
        json.dumps({"text": "Oslo lies on a fjord.", "title": "Oslo"}), encoding="utf-8"
    )

    def judged(message: str) -> str:
        word = "offers" if '"reply": "' in message.rpartition("DATA ")[2] else "incorrect"
        return f"It is.\nVERDICT: {word}"

    good = serve(fs.replies(judged))
    search = serve(
        answers(200, {"organic": [{"title": "Oslo", "link": "x", "snippet": "Oslo lies on a fjord."}]})
    )
    bad = serve(shouting(401, 120))
    near = "Oslo lies near the sea."  # it stands nowhere word for word, so a judge is asked
    endings = []
    for server in (good, bad):
        judge = f"{server.url}#m"
        endings += [
            main(f"eval in.jsonl --paper truthrl --judge {judge} --output {server.port}.jsonl".split()),
            main(f"eval in.jsonl --judge {judge} grade.extract=boxed --output {server.port}".split()),
            main(["verify", near, *f"--docs docs.jsonl --judge {judge} --output a.html".split()]),
            main(["train", "truthrl", "--model", "m", "--data", "in.jsonl", "--judge", judge, "--dry-run"]),
        ]
    web = ["verifier.judge=weak", "--output", "b.html"]
    endings += [main(["verify", "Oslo lies on a fjord.", "--web", one.url, *web]) for one in (search, bad)]
    endings.append(main(["doctor", "--json"]))
    assert endings[:2] == [0, 0]
    assert good.requests[-1].headers["authorization"] == f"Bearer {CANARY}", "the key was in use"
    assert search.requests[-1].headers["x-api-key"] == CANARY
    assert bad.requests
    shown = "".join(capsys.readouterr()) + caplog.text
    assert "[key]" in shown
    assert "Zq7x" not in shown
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {".html", ".json", ".jsonl", ".db"} <= {file.suffix for file in files}
    assert [str(file) for file in files if b"Zq7x" in file.read_bytes()] == []


# ---------------------------------------------------------------- bodies that the reward server must bear


def test_a_hostile_body_is_a_refusal_and_nothing_else(make: Make) -> None:
    server = make()
    for body in (
        b"[" * 100_000,
        b'{"reward": "truthrl", "samples": ' + b"9" * 5_000 + b"}",
        b'{"reward": "truthrl", "samples": [{"completion": 1e999}]}',
        b"\xff\xfe" * 1_000,
        b"",
    ):
        status, answer = server.ask("/v1/score", body)
        assert status in (400, 422), (body[:16], status, answer)
        assert len(json.dumps(answer)) < 5_000
        assert server.ask("/v1/score", request(RIGHT))[0] == 200
