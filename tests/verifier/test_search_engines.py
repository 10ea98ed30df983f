"""Search engines: how each is asked and what its replies become, on replies as its documentation has them."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from factrl.errors import ConfigError, Unscored
from factrl.llm.background import wait_for
from factrl.types import Passage
from factrl.verifier.search import WebSearch, without_secrets
from factrl.verifier.search.web import PROVIDERS
from fault_server import Fault, FaultServer, answers, hang, reset

Serve = Callable[..., FaultServer]

KEY = "a-key-of-the-search-1"
LIMITS: dict[str, Any] = {"timeout_attempt": 0.3, "timeout_call": 1.0, "max_attempts": 2, "backoff": 0.01}
QUERY = "Where was Marie Curie born?"
CURIE, RADIUM = "https://example.org/curie", "https://example.org/radium"
BORN, FOUND = "Marie Curie was born in Warsaw.", "She discovered radium."
PASSAGES = [Passage(BORN, "Marie Curie", CURIE), Passage(FOUND, "Radium", RADIUM)]

# Of each engine a reply with the two passages, one with no result, and one whose results have no text.
REPLIES: Mapping[str, tuple[Any, Any, Any]] = {
    "serper": (
        {
            "searchParameters": {"q": QUERY, "type": "search", "engine": "google"},
            "organic": [
                {"title": "Marie Curie", "link": CURIE, "snippet": BORN, "position": 1},
                {"title": "Radium", "link": RADIUM, "snippet": FOUND, "position": 2},
            ],
            "credits": 1,
        },
        {"searchParameters": {"q": QUERY}, "organic": []},
        {"organic": [{"title": "Marie Curie", "link": CURIE, "position": 1}]},
    ),
    "searxng": (
        {
            "query": QUERY,
            "number_of_results": 0,
            "results": [
                {"url": CURIE, "title": "Marie Curie", "content": BORN, "engine": "bing", "score": 4.0},
                {"url": RADIUM, "title": "Radium", "content": FOUND, "engine": "bing", "score": 1.0},
            ],
            "answers": [],
            "infoboxes": [],
            "unresponsive_engines": [["duckduckgo", "CAPTCHA"]],
        },
        {"query": QUERY, "number_of_results": 0, "results": [], "unresponsive_engines": []},
        {"query": QUERY, "results": [{"url": CURIE, "title": "Marie Curie", "content": None}]},
    ),
    "tavily": (
        {
            "query": QUERY,
            "follow_up_questions": None,
            "answer": None,
            "images": [],
            "results": [
                {"url": CURIE, "title": "Marie Curie", "content": BORN, "score": 0.9, "raw_content": None},
                {"url": RADIUM, "title": "Radium", "content": FOUND, "score": 0.5, "raw_content": None},
            ],
            "response_time": 1.09,
        },
        {"query": QUERY, "results": [], "response_time": 0.4},
        {"query": QUERY, "results": [{"url": CURIE, "title": "Marie Curie", "content": ""}]},
    ),
    "brave": (
        {
            "type": "search",
            "query": {"original": QUERY, "more_results_available": True},
            "web": {
                "type": "search",
                "results": [
                    {"type": "search_result", "title": "Marie Curie", "url": CURIE, "description": BORN},
                    {"type": "search_result", "title": "Radium", "url": RADIUM, "description": FOUND},
                ],
            },
        },
        {"type": "search", "query": {"original": QUERY, "more_results_available": False}},
        {"type": "search", "web": {"results": [{"title": "Marie Curie", "url": CURIE}]}},
    ),
    "exa": (
        {
            "requestId": "b5947044c4b78efa9552a7c89b306d95",
            "results": [
                {"title": "Marie Curie", "url": CURIE, "id": CURIE, "author": None, "text": BORN},
                {"title": "Radium", "url": RADIUM, "id": RADIUM, "author": None, "text": FOUND},
            ],
            "costDollars": {"total": 0.007},
        },
        {"requestId": "b5947044c4b78efa9552a7c89b306d95", "results": []},
        {"results": [{"title": None, "url": CURIE, "id": CURIE}]},
    ),
    "wikipedia": (
        {
            "batchcomplete": True,
            "continue": {"gsroffset": 2, "continue": "gsroffset||"},
            "query": {
                "pages": [  # in the order of their numbers
                    {"pageid": 7, "title": "Radium", "index": 2, "extract": FOUND, "fullurl": RADIUM},
                    {"pageid": 9, "title": "Marie Curie", "index": 1, "extract": BORN, "fullurl": CURIE},
                ]
            },
        },
        {"batchcomplete": True},
        {"batchcomplete": True, "query": {"pages": [{"title": "Radium", "index": 1, "fullurl": RADIUM}]}},
    ),
}
ASKED: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "serper": ("POST", "/v1/search", {"q": QUERY, "num": 2}),
    "searxng": ("GET", "/v1/search", {"format": "json", "q": QUERY}),
    "tavily": ("POST", "/v1/search", {"query": QUERY, "max_results": 2}),
    "brave": ("GET", "/v1/res/v1/web/search", {"text_decorations": "false", "q": QUERY, "count": "2"}),
    "exa": (
        *("POST", "/v1/search"),
        {"contents": {"text": {"maxCharacters": 2000}}, "query": QUERY, "numResults": 2},
    ),
    "wikipedia": (
        *("GET", "/v1/w/api.php"),
        {
            **{"action": "query", "format": "json", "formatversion": "2", "generator": "search"},
            **{"prop": "extracts|info", "exintro": "1", "explaintext": "1", "exlimit": "max"},
            **{"inprop": "url", "gsrsearch": QUERY, "gsrlimit": "2"},
        },
    ),
}
KEYED = {
    "serper": "x-api-key",
    "tavily": "authorization",
    "brave": "x-subscription-token",
    "exa": "x-api-key",
}
ENGINES = [*PROVIDERS]


def ask(server: FaultServer, engine: str, query: str = QUERY, k: int = 2) -> list[Passage]:
    return wait_for(WebSearch(f"{engine}:{server.url}", **LIMITS).search(query, k))


def fields_of(server: FaultServer) -> Mapping[str, Any]:
    request = server.requests[-1]
    return request.body or {name: value for name, [value] in parse_qs(urlsplit(request.path).query).items()}


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider in PROVIDERS.values():
        if provider.key_variable:
            monkeypatch.setenv(provider.key_variable, KEY)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_is_asked_in_its_form_and_its_results_become_passages(
    serve: Serve, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    found, nothing, textless = REPLIES[engine]
    server = serve(answers(200, found), answers(200, nothing), answers(200, textless))
    assert ask(server, engine) == PASSAGES
    (request,) = server.requests
    assert (request.method, urlsplit(request.path).path, fields_of(server)) == ASKED[engine]
    sent = {name: value for name, value in request.headers.items() if KEY in value}
    bearer = "Bearer " if KEYED.get(engine) == "authorization" else ""
    assert sent == ({KEYED[engine]: bearer + KEY} if engine in KEYED else {})
    assert request.headers["user-agent"] == "factrl"
    assert [ask(server, engine), ask(server, engine)] == [[], []]
    assert KEY not in caplog.text
    assert "Curie" not in caplog.text  # nor what was asked
    assert len(ask(serve(answers(200, found)), engine, k=1)) == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("fault", "reason", "requests"),
    [
        (answers(401, {"detail": {"error": f"Unauthorized: {KEY}"}}), "auth", 1),
        (answers(403, b"<html>403 Forbidden</html>", content_type="text/html"), "auth", 1),
        (answers(422, {"error": {"code": "SUBSCRIPTION_TOKEN_INVALID"}}), "http_422", 1),
        (answers(429, {"error": "slow down"}, retry_after="9"), "http_429", 1),  # longer than the call may be
        (answers(200, b"<html>unusual traffic</html>", content_type="text/html"), "bad_body", 2),
        (answers(200, {"error": {"code": "internal_api_error", "info": KEY}}), "bad_body", 2),
        (answers(200, {"other": []}), "bad_body", 2),
        (answers(200, [{"results": []}]), "bad_body", 2),
        (answers(200, "a type of results"), "bad_body", 2),
        (answers(500, {"error": "down"}), "http_5xx", 2),
        (hang, "timeout", 2),
        (reset, "connection", 2),
    ],
)
def test_a_search_that_failed_is_not_one_that_found_nothing(
    serve: Serve, engine: str, fault: Fault, reason: str, requests: int
) -> None:
    server = serve(fault)
    with pytest.raises(Unscored) as caught:
        ask(server, engine)
    facts = caught.value.facts
    assert (caught.value.cause, facts["reason"], facts["stage"]) == ("search_failed", reason, "search")
    assert len(server.requests) == requests
    assert KEY not in f"{caught.value} {caught.value!r} {facts}" or engine not in KEYED
    variable = PROVIDERS[engine].key_variable
    assert ("(the key is read from " in str(caught.value)) == (reason == "auth" and bool(variable))
    for status, hint in PROVIDERS[engine].hints.items():
        assert (hint in str(caught.value)) == (facts["status"] == status)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_result_whose_text_is_no_text_is_a_failure(serve: Serve, engine: str) -> None:
    reply = json.loads(json.dumps(REPLIES[engine][0]).replace(json.dumps(BORN), json.dumps([BORN])))
    with pytest.raises(Unscored, match="list of results"):
        ask(serve(answers(200, reply)), engine)


def test_an_engine_that_says_when_to_come_again_is_asked_then(serve: Serve) -> None:
    busy = answers(429, {"error": "slow down"}, retry_after="0.05")
    assert ask(serve(busy, answers(200, REPLIES["brave"][0])), "brave") == PASSAGES


def test_no_results_of_engines_that_did_not_answer_are_a_failure(serve: Serve) -> None:
    reply = {**REPLIES["searxng"][1], "unresponsive_engines": [["google", "CAPTCHA"]]}
    with pytest.raises(Unscored, match=r"did not answer: \[\['google', 'CAPTCHA'\]\]"):
        ask(serve(answers(200, reply)), "searxng")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_query_is_words_to_every_engine_and_no_longer_than_it_takes(serve: Serve, engine: str) -> None:
    server, provider = serve(answers(200, REPLIES[engine][1])), PROVIDERS[engine]
    for query in (
        "a&format=html#b",
        "100% +1 ?q=x&num=9",
        "../../admin%2e",
        "\u017b\u00f3raw \u4e2d",
        "\\r\\nX: 1",
    ):
        ask(server, engine, query)
        assert fields_of(server)[provider.query] == query
        assert urlsplit(server.requests[-1].path).path == ASKED[engine][1]
    ask(server, engine, "half \ud83d of a pair")
    assert fields_of(server)[provider.query] in ("half ? of a pair", "half \ud83d of a pair")
    ask(server, engine, "word " * 300, k=500)
    sent = fields_of(server)[provider.query]
    assert len(sent) <= provider.chars
    assert len(sent.split()) <= provider.words
    if provider.count:
        assert int(fields_of(server)[provider.count]) == provider.most


@pytest.mark.parametrize(
    ("engine", "provider", "url"),
    [
        ("wikipedia", "wikipedia", "https://en.wikipedia.org"),
        ("wikipedia:https://de.wikipedia.org/", "wikipedia", "https://de.wikipedia.org"),
        ("searxng:http://localhost:8888", "searxng", "http://localhost:8888"),
        ("https://api.tavily.com/", "tavily", "https://api.tavily.com"),
        ("https://google.serper.dev", "serper", "https://google.serper.dev"),
        ("http://localhost:1234/x", "serper", "http://localhost:1234/x"),  # one that speaks like it
        ("exa", "exa", "https://api.exa.ai"),
    ],
)
def test_an_engine_is_named_or_known_by_its_address(engine: str, provider: str, url: str) -> None:
    search = WebSearch(engine)
    assert search.provider == PROVIDERS[provider]
    assert repr(search) == f"WebSearch({url!r})"
    assert repr(pickle.loads(pickle.dumps(search))) == repr(search)  # noqa: S301  for a spawned process


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        ("searxng", "searxng:http://localhost:8888"),
        ("tavly", r"unknown search engine 'tavly'; did you mean 'tavily'\?"),
        ("", "unknown search engine ''"),
        ("searxng:localhost", "not the address of a server"),
        ("wikipedia:de", "'de' is not the address of a server; write it like wikipedia:https://en.wikipedia"),
        ("searxng:http://me:pass@host", "holds a password or a key; leave it out"),
        ("brave:http://host/?key=x", "use BRAVE_API_KEY instead"),
        ("brave", "the search engine https://api.search.brave.com needs a key; set BRAVE_API_KEY"),
        ("https://google.serper.dev", "needs a key; set SERPER_API_KEY"),
    ],
)
def test_an_engine_that_cannot_be_asked_is_refused_at_once(
    engine: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("BRAVE_API_KEY", "SERPER_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ConfigError, match=problem) as caught:
        WebSearch(engine)
    assert "pass@" not in str(caught.value)


def test_a_server_that_was_down_is_tried_with_a_search_of_the_same_form(serve: Serve) -> None:
    search = WebSearch(f"wikipedia:{serve(answers(200, {})).url}")
    assert search.client.ping is not None
    ping = search.client.ping()
    assert ping is not None
    assert (ping[0], ping[2]) == ("GET", None)
    assert "gsrsearch=weather" in ping[1]


def test_what_cannot_be_sent_is_not_asked_and_a_captcha_is_asked_again(serve: Serve) -> None:
    nobody = serve(answers(200, REPLIES["serper"][0]))
    assert ask(nobody, "serper", " ann.lee@example.org ") == []
    assert nobody.requests == []  # nothing is left to be sent
    captcha = answers(200, b"<html>unusual traffic: Warsaw</html>", content_type="text/html")
    assert ask(serve(captcha, answers(200, REPLIES["serper"][0])), "serper") == PASSAGES


SECRETS = [
    *("ann.lee+x@mail.example.org", "sk-proj-abcDEF1234567890abcd", "AKIAIOSFODNN7EXAMPLE"),
    *("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "AIzaSyA1234567890abcdefghijklmnopqrstuv"),
    *("xoxb-123456789012-abcdefghijkl", "0123456789abcdef0123456789abcdef"),
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
]
PLAIN = [
    "The skateboarding-championship of 1999 was held in Llanfairpwllgwyngyllgogerychwyrndrobwll.",
    "It sold 12,345,678,901,234,567,890 units @ 5 dollars.",
    "The risk-management-and-compliance office opened in 2001-02-03.",
]


def test_secrets_stay_here_and_words_are_no_secrets(serve: Serve) -> None:
    server = serve(answers(200, REPLIES["serper"][0]))
    ask(server, "serper", f"Ann Lee ({SECRETS[0]}) was born in 1867.")
    assert fields_of(server)["q"] == "Ann Lee ( ) was born in 1867."
    sent = [without_secrets(f"Ann Lee ({secret}) was born in 1867.") for secret in SECRETS]
    assert sent == ["Ann Lee ( ) was born in 1867."] * len(SECRETS)
    assert [without_secrets(query) for query in PLAIN] == PLAIN
