"""Web search against a loopback stub: a failure is never evidence, and never "nothing was found" (F27)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from fault_server import Fault, FaultServer, answers, hang, reset

pytest.importorskip("aiohttp")

from factrl.errors import Unscored
from factrl.llm.background import wait_for
from factrl.types import Passage
from factrl.verifier.search import WebSearch
from factrl.verifier.search.web import without_secrets

pytestmark = pytest.mark.alone

RESULT = {
    "title": "Marie Curie",
    "link": "https://example.org/mc",
    "snippet": "Born in Warsaw.",
    "position": 1,
}
GOOD = {"searchParameters": {"q": "x"}, "organic": [RESULT]}
CAPTCHA = b"<html><title>Sorry...</title>unusual traffic from your network: Warsaw</html>"
LIMITS: dict[str, Any] = {"timeout_attempt": 0.3, "timeout_call": 1.0, "max_attempts": 2, "backoff": 0.01}


@pytest.fixture
def servers() -> Iterator[list[FaultServer]]:
    opened: list[FaultServer] = []
    yield opened
    for server in opened:
        server.close()


def ask(
    servers: list[FaultServer], *script: Fault, query: str = "Where was Marie Curie born?", k: int = 5
) -> list[Passage]:
    server = FaultServer(*script)
    servers.append(server)
    return wait_for(WebSearch(server.url, "secret-key-1", **LIMITS).search(query, k))


def test_results_become_passages(servers: list[FaultServer]) -> None:
    assert ask(servers, answers(200, GOOD)) == [
        Passage("Born in Warsaw.", title="Marie Curie", source="https://example.org/mc")
    ]
    (request,) = servers[0].requests
    assert (request.method, request.path) == ("POST", "/v1/search")
    assert request.body == {"q": "Where was Marie Curie born?", "num": 5}
    assert request.headers["x-api-key"] == "secret-key-1"
    assert "authorization" not in request.headers


@pytest.mark.fault("F27")
def test_nothing_found_is_an_empty_list(servers: list[FaultServer]) -> None:
    organic = [{"title": "T", "link": "L"}, {**RESULT, "snippet": " "}]
    assert ask(servers, answers(200, {"organic": []})) == []
    assert ask(servers, answers(200, {"organic": organic})) == []
    assert len(ask(servers, answers(200, {"organic": [RESULT] * 10}), k=2)) == 2
    assert ask(servers, answers(200, GOOD), query=" ann.lee@example.org ") == []
    assert servers[-1].requests == []  # nothing is left to be sent
    assert len(ask(servers, answers(200, CAPTCHA), answers(200, GOOD))) == 1  # asked again


@pytest.mark.fault("F14")
def test_a_passage_can_always_be_written_to_a_file(servers: list[FaultServer]) -> None:
    half = {"snippet": "Born \ud83d.", "title": "\udc00", "link": "\ud83d", "position": 10**400}
    assert ask(servers, answers(200, {"organic": [half]})) == [Passage("Born ?.", title="?", source="?")]


@pytest.mark.security("S21", "S23")
@pytest.mark.fault("F27")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (answers(403, {"message": "quota exceeded"}), "auth"),
        (answers(200, CAPTCHA, content_type="text/html"), "bad_body"),
        (answers(200, {"error": "quota"}), "bad_body"),
        (answers(200, {"organic": ["Warsaw"]}), "bad_body"),
        (answers(200, {"organic": [{**RESULT, "snippet": ["Warsaw"]}]}), "bad_body"),
        (hang, "timeout"),
        (reset, "connection"),
    ],
)
def test_a_failed_search_is_not_a_result(servers: list[FaultServer], fault: Fault, reason: str) -> None:
    with pytest.raises(Unscored) as caught:
        ask(servers, fault)
    assert caught.value.cause == "search_failed"
    assert caught.value.facts["reason"] == reason
    assert caught.value.facts["stage"] == "search"
    assert "secret-key-1" not in str(caught.value)


@pytest.mark.security("S37")
def test_the_key_comes_from_the_environment(
    servers: list[FaultServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERPER_API_KEY", "from-the-environment")
    servers.append(FaultServer(answers(200, GOOD)))
    search = WebSearch(servers[0].url)
    assert "from-the-environment" not in repr(search)
    asyncio.run(search.search("x"))  # from a loop of one's own
    assert servers[0].requests[0].headers["x-api-key"] == "from-the-environment"


SECRETS = [
    *("ann.lee+x@mail.example.org", "sk-proj-abcDEF1234567890abcd", "AKIAIOSFODNN7EXAMPLE"),
    *("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "AIzaSyA1234567890abcdefghijklmnopqrstuv"),
    *("xoxb-123456789012-abcdefghijkl", "0123456789abcdef0123456789abcdef"),
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]
PLAIN = [
    "The skateboarding-championship of 1999 was held in Llanfairpwllgwyngyllgogerychwyrndrobwll.",
    "Pneumonoultramicroscopicsilicovolcanoconiosis has 45 letters.",
    "It sold 12,345,678,901,234,567,890 units @ 5 dollars.",
    "The risk-management-and-compliance office opened in 2001-02-03.",
]


@pytest.mark.security("S25")
def test_secrets_stay_here_and_words_are_no_secrets(servers: list[FaultServer]) -> None:
    ask(servers, answers(200, GOOD), query=f"Ann Lee ({SECRETS[0]}) was born in 1867.")
    assert servers[0].requests[0].body["q"] == "Ann Lee ( ) was born in 1867."
    sent = [without_secrets(f"Ann Lee ({secret}) was born in 1867.") for secret in SECRETS]
    assert sent == ["Ann Lee ( ) was born in 1867."] * len(SECRETS)
    assert [without_secrets(query) for query in PLAIN] == PLAIN
