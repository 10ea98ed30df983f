"""The page of `factrl serve --page`: what its routes answer, and what a person does with it in a browser."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from browser import PROGRAM, Browser, browsing
from test_search import pdf

from factrl.cli import main
from factrl.errors import LLMError
from factrl.llm import FakeLLM
from factrl.types import Claim, Passage, Verdict
from factrl.verifier import open_verifier
from factrl.verifier.judges import LLMJudge
from pages import PAYLOADS, Page
from serving import Running, connect

page = pytest.importorskip("factrl.server.page")
from factrl.server import Service  # noqa: E402

KINDS = {"right": ("supported", 0.9), "perhaps": ("supported", 0.6), "wrong": ("refuted", 0.1)}
TEXT = "Paris is right here. Lyon is perhaps here. Nice is wrong here."
DOWN = LLMJudge(FakeLLM(lambda _: LLMError("connection", "nobody listens")))
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="needs chromium")


class Judge:
    """A judge that goes by a word of the claim; those with "held" wait until they may go on."""

    identity, per_call, weak = "words@1", 1, False

    def __init__(self) -> None:
        self.held, self.go = threading.Event(), threading.Event()

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        (claim, passages), *_ = pairs
        if "held" in claim.text:
            self.held.set()
            assert self.go.wait(60)
        label, p = next((kind for word, kind in KINDS.items() if word in claim.text), ("unknown", 0.2))
        return [Verdict(label, self.identity, p, (0, 0, len(passages[0].text)))]  # type: ignore[arg-type]


@pytest.fixture
def make() -> Iterator[Any]:
    started = []

    def start(judge: Any = None, token: str = "", **changed: Any) -> Running:
        verifier = open_verifier("local", judge=judge or Judge(), **changed)
        started.append(Running(Service({}, None, verifier, page=True), token))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def document(text: str | bytes = "Paris, Lyon and Nice are here.", name: str = "here.txt") -> dict[str, str]:
    data = text.encode() if isinstance(text, str) else text
    return {"name": name, "data": base64.b64encode(data).decode()}


def body(text: str = TEXT, *documents: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"text": text, "documents": [*documents] or [document()], **more}


def lines(server: Running, given: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    """The lines of a check."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(
        "POST", "/page/check", json.dumps(given), {"Content-Type": "application/json", **headers}
    )
    answer = connection.getresponse()
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson")
    found = [json.loads(line) for line in answer.read().decode().split("\n") if line]
    connection.close()
    return found


def checking(server: Running, given: dict[str, Any]) -> socket.socket:
    """A connection on which a check was requested and nothing was read yet."""
    sent = json.dumps(given).encode()
    head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
    return connect(server, b"POST /page/check HTTP/1.1\r\n" + head.encode() + sent)


# What its routes answer


def test_verdicts_are_shown_before_all_are_there_and_the_last_line_is_the_report(make: Any) -> None:
    judge = Judge()
    server = make(judge)
    with checking(server, body("Paris is right here. Lyon is held here.")) as connection:
        seen = b""
        while b'"done": 1' not in seen:
            seen += connection.recv(65_536)
        assert judge.held.wait(60)
        assert b"is held here.</h3>" not in seen
        judge.go.set()
        while b'"id": ' not in seen:
            seen += connection.recv(65_536)
    *_, last = lines(server, body(TEXT, sure=0.5))
    assert {*last} == {"html", "page", "summary", "id"}
    assert last["summary"].startswith("1 refuted, 2 supported of 3; precision 2/3 = 0.67")
    for part in ("Nice is wrong here.", "<mark>Paris, Lyon and Nice are here.</mark>", "here.txt"):
        assert part in last["html"]
    assert last["html"] in last["page"]
    assert "<script" not in last["page"]

    status, again = server.ask("/page/report", {"id": last["id"], "sure": 0.7})
    assert (status, again["summary"][:38]) == (200, "1 refuted, 1 unsure, 1 supported of 3;")
    for _ in range(page.KEPT):
        lines(server, body("Paris is right here."))
    status, gone = server.ask("/page/report", {"id": last["id"], "sure": 0.7})
    assert (status, gone["detail"]) == (404, "this report is not kept any more; check the text again")


DEAD = {
    "of verdicts": ({"judge": DOWN}, "none of the claims could be judged (3 connection"),
    "of claims": ({"judge": "llm", "llm": DOWN.llm}, "the text could not be checked: connection"),
}


@pytest.mark.parametrize("case", DEAD)
def test_with_a_dead_judge_the_page_gets_the_problem_and_no_verdict(make: Any, case: str) -> None:
    changed, message = DEAD[case]
    *_, last = lines(make(**changed), body())
    assert last["problem"].startswith(message)
    assert not {attrs["class"] for attrs in Page(last["html"]).by_class("claim")} - {"claim unjudged"}


WRONG = {
    "a path": (body(TEXT, document(name="../here.txt")), "pattern"),
    "no format": (body(TEXT, document(name="here")), "pattern"),
    "another format": (body(TEXT, document(name="here.db")), "here.db is of no format that is read here"),
    "an archive": (body(TEXT, document(name="here.txt.gz")), "here.txt.gz is of no format"),
    "no base64": (body(TEXT, {"name": "here.txt", "data": "%"}), "Only base64 data is allowed"),
    "an empty one": (body(TEXT, document(" \n")), "here.txt has no text"),
    "no PDF": (body(TEXT, document("text", "here.pdf")), "here.pdf cannot be read as .pdf"),
    "no DOCX": (body(TEXT, document("text", "here.docx")), "here.docx cannot be read as .docx"),
    "no UTF-8": (body(TEXT, document(b"\xff\xfe\xfd", "here.txt")), "here.txt is not UTF-8 text"),
    "a long one": (body(TEXT, document("Paris. " * 99)), "here.txt has too much text: 500 characters"),
    "no text": (body(" "), "the text is empty"),
    "nothing to check it by": ({"text": TEXT}, "this server has no documents of its own"),
    "no level": (body(sure=0.2), "sure"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_named_in_a_line(
    make: Any, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MAX_READ", 500)
    given, message = WRONG[case]
    status, answer = make().ask("/page/check", given)
    assert (status, message in json.dumps(answer)) == (422, True), answer
    assert "factrl-" not in json.dumps(answer), "of the server's own folder nothing is told"


CELL = {"cell_type": "markdown", "source": ["Paris is in a cell."]}


def test_documents_are_those_of_verify_docs_and_without_any_the_servers_own_are_searched(
    make: Any, tmp_path: Path
) -> None:
    own = tmp_path / "own.txt"
    own.write_text("Paris is the server's own.")
    server = make(docs=[own])
    files = [
        document(pdf("Paris is on\nthe first page."), "a.pdf"),
        document("Paris is in here, too.", "a.pdf.md"),
        document(json.dumps({"cells": [CELL]}), "a.ipynb"),
    ]
    *_, last = lines(server, body("Paris is right here.", *files))
    for shown in ("Paris is on the first page.", "Paris is in here, too.", "Paris is in a cell."):
        assert shown in last["html"]
    *_, last = lines(server, {"text": "Paris is right here."})
    assert "Paris is the server's own." in last["html"].replace("&#x27;", "'")


def test_a_server_that_stops_leaves_no_document_behind(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go = threading.Event(), threading.Event()

    def held(path: Path) -> list[Any]:
        assert path.is_file()
        reading.set()
        assert go.wait(60)
        return []

    monkeypatch.setattr(page, "documents", held)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    server = make()
    server.drain(0.1)
    with checking(server, body()):
        assert reading.wait(60)
        assert [*tmp_path.iterdir()]
        server.stop()
        assert not [*tmp_path.iterdir()]
        go.set()


def test_a_client_that_leaves_ends_the_check(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, going = threading.Event(), threading.Event()

    async def run(*_: Any) -> None:
        import asyncio

        going.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    monkeypatch.setattr(page, "run", run)
    with checking(make(), body()):
        assert going.wait(60)
    assert ended.wait(60)


def test_the_page_is_open_and_what_it_asks_needs_the_token_or_this_host(make: Any) -> None:
    server = make(token="secret")
    assert server.ask("/")[0] == 200
    assert server.ask("/", {})[0] == 405
    assert [server.ask(path, body())[0] for path in ("/page/check", "/page/report")] == [401, 401]
    assert lines(server, body(), Authorization="Bearer secret")[-1]["id"]
    server = make()
    for headers, status in (({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403)):
        assert server.ask("/", headers=headers)[0] == status
        assert server.ask("/page/check", body(), headers=headers)[0] == status
    bare = Running(Service({}, None, open_verifier("local", judge="weak")))
    try:
        assert [bare.ask("/")[0], bare.ask("/page/check", body())[0]] == [404, 404]
    finally:
        bare.stop()


def test_the_page_runs_its_own_script_alone_and_asks_its_own_server_alone(make: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", make().port, timeout=30)
    connection.request("GET", "/")
    answer = connection.getresponse()
    html = answer.read().decode()
    connection.close()
    assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert answer.headers["cache-control"] == "no-store"
    script = re.findall(r"<script>(.*?)</script>", html, re.S)
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert (len(script), html.count("<script")) == (1, 1)
    elements = Page(html).elements
    [policy] = [a["content"] for _, a in elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    for part in (
        f"script-src 'sha256-{digest}'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
    ):
        assert f"{part};" in f"{policy};"
    assert "unsafe" not in policy
    assert not [
        key for _, attrs in elements for key in attrs if key.startswith("on") or key in ("src", "style")
    ]
    assert not re.search(r"url\(|@import|https?://|\beval\b|localStorage|sessionStorage|\?token", html)


def test_the_page_answers_head_and_offers_what_can_be_read(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("factrl.server.page.find_spec", lambda name: None if name == "pypdf" else name)
    server = make()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("HEAD", "/")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()
    _, page = server.ask("/")
    assert ".csv" in page
    assert ".pdf" not in page


@pytest.mark.parametrize("terminal", [True, False])
def test_the_token_is_printed_for_a_terminal_alone_and_behind_the_hash(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setenv("FACTRL_SERVER_TOKEN", "se/c#ret")
    monkeypatch.setenv("FACTRL_SERVE", "")  # put back afterwards

    def run(where: str, announce: Any, options: Any) -> int:
        assert "8177" not in capsys.readouterr().err  # no address before it listens
        seen.append(options)
        announce()
        return 0

    monkeypatch.setattr("factrl.server.run_announced", run)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    assert main(["serve", "--page", "verifier.judge=weak", "--port", "8177"]) == 0
    secret = "#se%2Fc%23ret" if terminal else "#$FACTRL_SERVER_TOKEN"
    err = capsys.readouterr().err.replace("\n", "")
    assert f"http://127.0.0.1:8177/{secret} " in err.replace("  ", " ")
    assert "?" not in err
    assert seen[0]["log_level"] == "error"


# What a person does with it


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


def fill(browser: Browser, text: str, documents: str, question: str = "") -> None:
    for name, value in (("text", text), ("pasted", documents), ("question", question)):
        browser.js(f"document.getElementById({name!r}).value = {json.dumps(value)}")


def done(browser: Browser) -> None:
    browser.until("!document.getElementById('save').hidden || document.getElementById('problem').textContent")


@needs_browser
def test_a_text_is_checked_with_the_keyboard_alone(make: Any, browser: Browser) -> None:
    judge = Judge()
    server = make(judge, token="a/b")
    browser.open(f"{server.url}/#a%2Fb")
    assert browser.js("location.href") == f"{server.url}/", "the token does not stay in the address"
    focused = "document.activeElement.id || document.activeElement.textContent"
    order = []
    for text in (
        "Paris is right here. Lyon is perhaps held. Nice is wrong here.",
        "",
        "Paris, Lyon and Nice.",
    ):
        browser.press("Tab")
        order.append(browser.js(focused))
        browser.write(text)
    browser.press("Tab")
    order.append(browser.js(focused))
    browser.press("Tab")
    order.append(browser.js(focused))
    assert order == ["text", "question", "pasted", "files", "Check"]
    labels = "[...document.querySelectorAll('textarea, input')].every((one) => one.labels.length)"
    assert browser.js(labels)
    browser.press("Enter")
    browser.until("document.querySelectorAll('#results .claim').length == 2")  # as verdicts come in
    assert browser.js("document.getElementById('status').textContent") == "2 of 3 claims have a verdict."
    assert browser.js("getComputedStyle(document.querySelector('#results .sums')).display") == "none"
    assert browser.js("document.getElementById('save').hidden")
    judge.go.set()
    done(browser)
    live = "[...document.querySelectorAll('main > [role]')].map((one) => [one.role, one.textContent])"
    assert browser.js(live) == [
        ["alert", ""],
        ["status", "1 refuted, 1 unsure, 1 supported of 3; precision by the likelier verdicts 2/3 = 0.67"],
    ]
    lines = "document.querySelectorAll('#results .judged .line')"
    shown = f"[...{lines}].map((one) => one.className + one.textContent)"
    assert browser.js(shown) == [
        "line supported d0Paris is right here.",
        "line unsure d0Lyon is perhaps held.",
        "line refuted d0Nice is wrong here.",
    ]
    assert "Paris, Lyon and Nice." in browser.js("document.querySelector('#results mark').textContent")
    browser.press("Tab")
    assert browser.js(focused) == "sure"
    browser.press("ArrowLeft", "ArrowLeft")
    browser.until("document.querySelectorAll('#results .claim.supported').length == 2")
    assert browser.js("document.getElementById('level').textContent") == "0.60"
    browser.press("Tab")
    assert browser.js(focused) == "save"
    saved = browser.js("fetch(document.activeElement.href).then((it) => it.text(), () => null)")
    assert saved is None, "the policy lets the script read nothing but its server"
    assert browser.js("document.activeElement.download") == "factrl-report.html"
    assert {address for address in browser.asked if not address.startswith("blob:")} == {
        f"{server.url}/",
        f"{server.url}/page/check",
        f"{server.url}/page/report",
    }


@needs_browser
def test_the_saved_report_is_the_one_that_is_shown(make: Any, browser: Browser) -> None:
    browser.open(make().url)
    browser.js("URL.createObjectURL = (blob) => (window.saved = blob, 'blob:x')")
    fill(browser, TEXT, "Paris, Lyon and Nice are here.")
    browser.js("document.getElementById('check').requestSubmit()")
    done(browser)
    assert browser.js("window.saved.text()").startswith("<!doctype html>")
    same = """window.saved.text().then((html) => new DOMParser().parseFromString(html, 'text/html'))
        .then((page) => page.querySelector('main').innerHTML.trim() === results.innerHTML.trim())"""
    assert browser.js(same)


DROP = """(() => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(%r), (one) => one.charCodeAt(0))], 'curie.pdf'));
  const event = new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true });
  document.getElementById('drop').dispatchEvent(event);
  return event.defaultPrevented;
})()"""


@needs_browser
def test_a_file_that_is_dropped_is_evidence_until_it_is_removed(make: Any, browser: Browser) -> None:
    browser.open(make().url)
    fill(browser, "Paris is right here.", "")
    assert browser.js(DROP % document(pdf("Paris is on\nthe first page."))["data"])
    assert browser.js("document.getElementById('documents').textContent") == "curie.pdf Remove"
    browser.js("document.getElementById('check').requestSubmit()")
    done(browser)
    assert browser.js("document.querySelector('#results mark').textContent") == "Paris is on the first page."
    browser.js("document.querySelector('#documents button').click()")
    browser.js("document.getElementById('check').requestSubmit()")
    message = browser.until("document.getElementById('problem').textContent")
    assert message.startswith("The text could not be checked: this server has no documents of its own;")
    assert browser.js("document.getElementById('results').textContent") == ""


@needs_browser
def test_what_fails_is_said_and_no_verdict_is_invented(make: Any, browser: Browser) -> None:
    verdicts = "document.querySelectorAll('#results .claim:not(.unjudged)').length"
    problem = "document.getElementById('problem').textContent"
    browser.open(make(DOWN).url)
    fill(browser, TEXT, "Paris, Lyon and Nice are here.")
    browser.js("document.getElementById('check').requestSubmit()")
    assert browser.until(problem).startswith("none of the claims could be judged (3 connection")
    assert browser.js(verdicts) == 0
    browser.open(make(token="secret").url)
    fill(browser, TEXT, "Paris, Lyon and Nice are here.")
    browser.js("document.getElementById('check').requestSubmit()")
    assert "it needs the server's token" in browser.until(problem)
    server = make()
    browser.open(server.url)
    fill(browser, TEXT, "Paris, Lyon and Nice are here.")
    server.stop()
    browser.js("document.getElementById('check').requestSubmit()")
    assert browser.until(problem) == "The text could not be checked: the server does not answer"
    assert browser.js(verdicts) == 0


FORTY = " ".join(
    f"Sentence {number} of{' the_long_name_of_a_place_without_a_break' * (number == 7)} Paris is {word} here."
    for number, word in enumerate([*KINDS] * 13 + ["not known"])
)


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_forty_sentences_fit_any_screen(
    make: Any, browser: Browser, width: int, scheme: str, tmp_path: Path
) -> None:
    browser.open(make().url, width=width, scheme=scheme)
    fill(browser, FORTY, "Paris, Lyon and Nice are here.\n\nhttps://example.org/" + "x" * 200)
    browser.js(
        DROP.replace("curie.pdf", "a_long_name_" * 9 + ".pdf") % document(pdf("Paris is here."))["data"]
    )
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.js(wide) == 0
    browser.js("document.getElementById('check').requestSubmit()")
    done(browser)
    assert browser.js("document.querySelectorAll('#results .claim').length") == 40
    assert browser.js(wide) == 0
    assert browser.js("document.getElementById('status').getBoundingClientRect().top < innerHeight")
    browser.picture(tmp_path / f"{width}-{scheme}.png")
    ground = browser.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) > 384) == (scheme == "light")


@needs_browser
def test_nothing_of_others_runs_in_the_page(make: Any, browser: Browser) -> None:
    bad = " ".join(PAYLOADS).encode("utf-8", "replace").decode().replace("\0", "")  # no text has NUL
    browser.open(make().url)
    fill(browser, f"Paris is right here {bad}.", f"Paris {bad} is here.", f"Where is Paris {bad}?")
    browser.js(DROP.replace("curie", "<img src=x onerror=alert(1)>") % document(pdf("Paris."))["data"])
    browser.js("document.getElementById('check').requestSubmit()")
    done(browser)
    assert browser.js("document.querySelectorAll('#results .claim').length") >= 1
    assert browser.js("document.querySelectorAll('img, iframe, object, #results script').length") == 0
    assert browser.js("document.documentElement.dataset.pwned") is None
