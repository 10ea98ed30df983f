"""`factrl verify`: what is read, what is printed where, and which exit code every ending has."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import factrl.verifier as presets
from factrl.cli import main
from factrl.errors import ConfigError, DataError, LLMError, Unscored
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.judges import WeakJudge
from factrl.verifier.report import Check, Report, page
from fault_server import FaultServer, says

TEXT = "Marie Curie was born in Warsaw in 1868. She won two Nobel Prizes."
CURIE = (
    "Marie Curie was a physicist and chemist. Marie Curie was born in Warsaw in 1867. "
    "Marie Curie won two Nobel Prizes.\n"
)
PASSAGE = Passage(CURIE, "Marie Curie", "curie.txt")
DOCS = ["--docs", "curie.txt"]
WEAK = ["verifier.judge=weak"]
Say = Callable[..., Any]


class FakeJudge:
    identity, per_call, weak = "fake", 8, False


class FakeVerifier:
    """Gives the report, or raises the error, that a test made; keeps what it was asked."""

    def __init__(self, comes: Report | Exception, weak: bool = False) -> None:
        self.comes, self.judge = comes, FakeJudge()
        self.judge.weak = weak  # type: ignore[misc]
        self.opened: dict[str, Any] = {}
        self.asked: tuple[Any, ...] = ()

    def batch(self, texts: Any, questions: Any, *, watch: Any, seen: Any = None) -> list[Report]:
        self.asked = (*texts, *questions)
        watch(1, 2)
        watch(2, 2)
        if isinstance(self.comes, Exception):
            raise self.comes
        for check in self.comes.checks if seen else ():
            seen(0, check)
        return [self.comes]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No word on progress because this machine is slow."""
    monkeypatch.setattr("factrl.cli.verify._QUIET", 600.0)


def made(*labels: str, **fields: Any) -> Report:
    """A report with one claim per label."""
    checks = tuple(
        Check(
            Claim(f"Claim {number}.", 0, len(TEXT)),
            (PASSAGE,),
            Verdict(label, "fake", 0.9, (0, 41, 80), cause="timeout" if label == "unjudged" else None),  # type: ignore[arg-type]
        )
        for number, label in enumerate(labels, start=1)
    )
    return Report(TEXT, checks=checks, judge="fake", **fields)


DOWN = Report(
    TEXT,
    checks=(
        Check(
            Claim("Claim 1.", 0, len(TEXT)),
            (PASSAGE,),
            Verdict("unjudged", "fake", why="http://host could not be reached", cause="connection"),
        ),
    ),
)


@pytest.fixture(autouse=True)
def evidence(folder: Path) -> None:
    Path("curie.txt").write_text(CURIE, encoding="utf-8")
    Path("answer.txt").write_text("\ufeffZürich is in Switzerland.", encoding="utf-8")
    Path("latin.txt").write_bytes("Zürich is in Switzerland.".encode("latin-1"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeVerifier]:
    """Puts a verifier in the place of the one that the options describe."""

    def put(comes: Report | Exception, **fields: Any) -> FakeVerifier:
        verifier = FakeVerifier(comes, **fields)

        def open_verifier(preset: str, **options: Any) -> FakeVerifier:
            verifier.opened = {"preset": preset, **options}
            return verifier

        monkeypatch.setattr(presets, "open_verifier", open_verifier)
        return verifier

    return put


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes, terminal: bool = False) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(data))
    stdin.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", stdin)


# What is read


@pytest.mark.parametrize(
    ("words", "piped", "read"),
    [
        ([TEXT], b"", TEXT),
        (["answer.txt"], b"", "Zürich is in Switzerland."),
        (["-"], "Zürich.".encode(), "Zürich."),
        ([], b"\xef\xbb\xbfFrom a pipe.\r\n", "From a pipe.\r\n"),
        (["x" * 5000], b"", "x" * 5000),
    ],
)
def test_what_is_read(
    fake: Say, monkeypatch: pytest.MonkeyPatch, words: list[str], piped: bytes, read: str
) -> None:
    verifier = fake(made("supported"))
    pipe(monkeypatch, piped)
    assert main(["verify", *words, *DOCS]) == 0
    assert verifier.asked == (read, "")


def test_what_exists_and_is_no_folder_is_read(fake: Say) -> None:
    verifier = fake(made("supported"))
    Path("a.txt.gz").write_bytes(gzip.compress(b"Packed."))
    ours, theirs = os.pipe()
    os.write(theirs, b"From a shell.")
    os.close(theirs)
    for name, text in (("a.txt.gz", "Packed."), (f"/dev/fd/{ours}", "From a shell.")):
        assert main(["verify", name, *DOCS]) == 0
        assert verifier.asked == (text, "")
    os.close(ours)
    os.mkfifo("pipe")
    assert main(["verify", "pipe", *DOCS]) == 2


@pytest.mark.parametrize(
    ("words", "piped", "message"),
    [
        ([""], b"", "TEXT | FILE | - is empty"),
        (["answr.txt"], b"", "answr.txt does not exist; did you mean 'answer.txt'?"),
        (["no such file.txt"], b"", "no such file.txt does not exist"),
        (["answer.docx"], b"", "answer.docx does not exist"),
        (["answer.md.gz"], b"", "answer.md.gz does not exist"),
        (["/dev/null"], b"", "/dev/null: empty"),
        (["-"], "Open.".encode("utf-16-be"), "stdin is not UTF-8 text: NUL"),
        (["-"], rb"{\rtf1 Hello}", "stdin is a document in RTF"),
        (["latin.txt"], b"", "latin.txt is not UTF-8 text: invalid start byte at byte 1"),
        (["-"], b"x" * (2**24 + 1), "stdin has more than 16 MiB"),
        (["."], b"", ". is a folder; name a file, or give the text itself"),
        (["A text.", "reward.wrong=3"], b"", "reward.wrong is a setting that factrl verify does not read"),
    ],
)
def test_a_mistake_gets_one_line(
    fake: Say,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    piped: bytes,
    message: str,
) -> None:
    verifier = fake(made("supported"))
    pipe(monkeypatch, piped)
    assert main(["verify", *words, *DOCS]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"factrl: {message}") or message in err
    assert verifier.asked == ()


def test_words_behind_two_dashes_are_no_options(fake: Say, folder: Path) -> None:
    for name in ("-dash.txt", "--json"):
        Path(name).write_text("Lima is in Peru.", encoding="utf-8")
        verifier = fake(made("supported"))
        assert main(["verify", *DOCS, "--", name]) == 0
        assert "Lima is in Peru." in str(verifier.asked)


def test_the_text_and_reports_about_it_are_no_evidence(
    fake: Say, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    verifier = fake(made("supported"))
    assert main(["verify", "answer.txt", "--docs", "."]) == 0
    assert [path.name for path in verifier.opened["docs"]] == ["curie.txt", "latin.txt"]
    assert "answer.txt is left out of --docs: it is the text" in capsys.readouterr().err
    assert main(["verify", "answer.txt", "--docs", str(folder / "answer.txt")]) == 2
    assert "--docs names nothing but answer.txt" in capsys.readouterr().err


def test_options_reach_the_verifier_and_verdicts_are_kept(fake: Say, folder: Path) -> None:
    verifier = fake(made("supported"))
    server = FaultServer(says("ok"))
    Path("notes.md").write_text("# Notes")
    words = "--docs curie.txt latin.txt verifier.judge=nli:x --docs notes.md "
    words += "--index wiki --web http://s verifier.preset=knowrl"
    more = "--question Who? verifier.k=3 verifier.max_claims=9 --judge"
    try:
        assert main(["verify", TEXT, *words.split(), *more.split(), f"{server.url}#qwen"]) == 0
    finally:
        server.close()
    assert verifier.asked == (TEXT, "Who?")
    store = verifier.opened.pop("store")
    assert store.path == folder / "cache" / "verdicts.db"
    store.close()
    assert verifier.opened.pop("llm").model == "qwen"
    assert verifier.opened == {
        "preset": "knowrl",
        "docs": [Path("curie.txt"), Path("latin.txt"), Path("notes.md")],
        **{"index": "wiki", "web": "http://s", "judge": "nli:x"},
        **{"k": 3, "max_claims": 9, "max_chars": 16 * 2**20, "accepted": []},
        **{"embedder": "", "trust_remote_code": False, "controls": False},
    }


# What comes out


@pytest.mark.parametrize(
    ("words", "line", "code"),
    [
        ([], "? unsure     Claim 2.  p=0.65", 0),
        (["--strict"], "1 unsure, 1 supported of 2; precision by the likelier verdicts 2/2 = 1.00", 1),
        (["--strict", "--sure", "0.65"], "S supported  Claim 2.  p=0.65", 0),
        (["--sure", "95"], "'95' is no number from 0.5 to 1", 2),
    ],
)
def test_a_verdict_near_one_half_is_unsure(
    fake: Say, capsys: pytest.CaptureFixture[str], words: list[str], line: str, code: int
) -> None:
    report = made("supported", "supported")
    verdict = Verdict("supported", "fake", 0.65, (0, 41, 80))
    fake(replace(report, checks=(report.checks[0], replace(report.checks[1], verdict=verdict))))
    assert main(["verify", TEXT, *DOCS, *words]) == code
    assert line in "".join(capsys.readouterr())


# Endings


@pytest.mark.parametrize(
    ("comes", "code", "line"),
    [
        (made("supported", "unjudged"), 0, "1 of 2 claims have no verdict; run again to judge only those."),
        (Report("I do not know.", abstained=True), 0, ""),
        (made("unjudged", "unjudged"), 3, "none of the claims could be judged (2 timeout)"),
        (DOWN, 3, "none of the claims could be judged (1 connection: http://host could not be reached)"),
        (
            made(failure=Unscored("connection", "refused")),
            3,
            "the text could not be checked: connection: refused",
        ),
        (LLMError("timeout", "no answer"), 3, "the text could not be checked: timeout: no answer"),
        (
            Report("x" * (2**24 + 1), floored="oversize"),
            2,
            "the text has 16,777,217 characters, more than the 16,777,216 that are read; shorten it",
        ),
        (
            Report("x", floored="oversize"),
            3,
            "could not be checked (oversize): the model cannot list its claims",
        ),
        (ConfigError("no evidence; name files with --docs"), 2, "no evidence; name files with --docs"),
    ],
)
def test_every_ending_has_a_code(
    fake: Say, capsys: pytest.CaptureFixture[str], comes: Report | Exception, code: int, line: str
) -> None:
    fake(comes)
    assert main(["verify", TEXT, *DOCS]) == code
    out, err = capsys.readouterr()
    assert line in err
    assert err.count("\n") == bool(line)
    shown = isinstance(comes, Report) and not comes.failure and not comes.floored
    assert out == (f"{comes}\n" if shown else ""), "without a result there is nothing on stdout"
    if isinstance(comes, Report):
        assert main(["verify", TEXT, *DOCS, "--json"]) == code
        assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(comes.to_json()))


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("Marie Curie was born in Paris.<|im_end|>", "U unknown    Marie Curie was born in Paris.", 1),
        (
            "<think>Where?</think>Marie Curie was born in Paris.",
            "not read   <think>Where?</think> (reasoning)",
            1,
        ),
        ("<think>Marie Curie was born in Warsaw.", "not read   <think>Marie Curie was born in W", 1),
        ("I hope this helps!", "no claim", 1),
        ("I don't know.", "the text declines to answer: no claims", 1),
        ("## Overview", "not read   Overview (heading)", 1),
        ("Let's say Marie Curie won seven Nobel Prizes.", "Let's say Marie Curie won seven", 1),
    ],
)
def test_a_text_that_is_not_checked_is_no_success_under_strict(
    capsys: pytest.CaptureFixture[str], text: str, line: str, code: int
) -> None:
    assert main(["verify", text, *DOCS, *WEAK, "--strict"]) == code
    assert line in capsys.readouterr().out
    assert main(["verify", text, *DOCS, *WEAK, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["precision"] is None) == (not any(claim["verdict"] for claim in document["claims"]))


def test_json_python_and_the_screen_say_one_thing(fake: Say, capsys: pytest.CaptureFixture[str]) -> None:
    report = made("refuted", "refuted")
    verdicts = [Verdict("refuted", "fake", p) for p in (0.1, 0.41)]
    checks = [replace(check, verdict=verdict) for check, verdict in zip(report.checks, verdicts, strict=True)]
    report = replace(report, checks=tuple(checks))
    fake(report)
    assert main(["verify", TEXT, *DOCS, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    shown = ["refuted", "unsure"]
    assert [check.shown for check in report.checks] == [one["shown"] for one in document["claims"]] == shown
    assert [one["verdict"]["label"] for one in document["claims"]] == shown
    nothing = dict.fromkeys(("unknown", "unjudged", "supported"), 0)
    assert report.counts == document["counts"] == {"refuted": 1, "unsure": 1, **nothing}
    assert "1 refuted, 1 unsure of 2" in str(report)
    assert report.likelier["refuted"] == 2  # what scores count


def test_headings_and_code_are_told_and_not_dropped() -> None:
    text = "# Curie\n\nShe won.\n\n```python\nx = {}\n```\n"
    report = Report(text, checks=(Check(Claim("She won.", 9, 17), (), Verdict("supported", "fake", 0.9)),))
    assert "– not read   Curie (heading)\n– not read   ```python" in str(report)
    assert "1 × heading, 1 × code" in page(report)
    headed = replace(report, checks=(Check(Claim("Curie", 2, 7), (), Verdict("supported", "fake", 0.9)),))
    assert [part.kind for part in headed.unread()] == ["code"]


# With the real parts, and the judge that needs no model


def test_a_text_is_checked_from_end_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["verify", TEXT, "--docs", "curie.txt", *WEAK, "--output", "out.html"]
    Path("half.bin").write_bytes(b"\x94")
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out
    assert re.search(r"^R refuted .*1868", out, re.M), out
    assert re.search(r"^S supported .*Nobel", out, re.M), out
    assert "“Marie Curie was born in Warsaw in 1867.”" in out
    assert "weak: compared by words and numbers only" in out
    assert err == "report: out.html\n"
    html = Path("out.html").read_text(encoding="utf-8")
    assert "<mark>Marie Curie was born in Warsaw in 1867.</mark>" in html
    assert "Weak: this is not a verification." in html
    assert "<script" not in html
    assert main([*words[:-1], "out.txt"]) == 2
    assert "out.txt" in capsys.readouterr().err
    assert main([*words[:-2], "--ignore", "half.bin"]) == 2
    assert "half.bin is not UTF-8" in capsys.readouterr().err
    assert main([*words[:-2], "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["weak"] is True
    assert document["passages"][0]["text"].strip() in CURIE
    assert main(["verify", TEXT, "--docs", "out.html", *WEAK]) == 2
    assert "no text in out.html" in capsys.readouterr().err


def test_a_judge_that_takes_long_is_not_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spoke = threading.Event()

    def tell(text: str) -> None:
        assert text.startswith("checking; ")
        spoke.set()

    class Slow(FakeVerifier):
        def batch(self, *args: Any, **named: Any) -> list[Report]:
            assert spoke.wait(60), "nothing was said while the judge was at work"
            return [made("supported")]

    monkeypatch.setattr("factrl.cli.verify._QUIET", 0.0)
    monkeypatch.setattr("factrl.cli.verify.tell", tell)
    monkeypatch.setattr(presets, "open_verifier", lambda *_, **__: Slow(made("supported")))
    assert main(["verify", TEXT, "--docs", str(tmp_path / "curie.txt"), "--no-cache"]) == 0
    assert "supported" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("docs", "problem"),
    [
        ([Passage("Warsaw.")], "a file is a name, not a Passage; passages go in evidence"),
        (Passage("Warsaw."), "files are a list of names, not a Passage; passages go in evidence"),
        ([None], "a file is a name, not a NoneType"),
        ([""], "a file has an empty name"),
        ([" "], "a file has an empty name"),
    ],
)
def test_what_is_no_file_is_refused_by_name(docs: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        presets.verify(TEXT, docs=docs, judge="weak")


def test_a_broken_pdf_is_one_line_and_an_empty_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.pdf").write_bytes(b"no pdf")
    for docs, problem in (("broken.pdf", "broken.pdf"), ("", "--docs is empty")):
        command = [sys.executable, "-m", "factrl", "verify", TEXT, "--docs", docs, *WEAK]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert problem in done.stderr
        assert "EOF marker" not in done.stderr
        assert "invalid pdf" not in done.stderr


# Many texts, accepted claims, options from a file


def test_several_texts_of_several_formats_share_one_page_and_accepted_claims(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.txt").write_text(TEXT, "utf-8")
    Path("b.html").write_text("<h1>Marie Curie</h1><p>She was born in <b>Paris</b>.</p>", "utf-8")
    cell = {"cell_type": "markdown", "source": ["Marie Curie was ", "born in Rome."]}
    Path("c.ipynb").write_text(json.dumps({"cells": [{"cell_type": "code", "source": "x=1"}, cell]}), "utf-8")
    Path("ok.txt").write_text(f"# seen on Monday\n{TEXT.partition('.')[0]}\nGone for good.\n", "utf-8")
    Path("verify.toml").write_text(
        'verifier = {judge = "weak", docs = ["curie.txt"], max_claims = 9}\n',
        "utf-8",
    )
    words = ["verify", "a.txt", "b.html", "c.ipynb", "--config", "verify.toml"]
    assert main([*words, "--strict", "--ignore", "ok.txt", "--output", "out.html"]) == 1
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if line.endswith(":")] == ["a.txt:", "b.html:", "c.ipynb:"]
    assert re.search(r"skipped .*1868.*\(accepted\)", out)
    assert re.search(r"U unknown .*She was born in Paris\.", out)
    assert "Marie Curie was born in Rome." in out
    assert "x=1" not in out
    assert "no text has this claim any more: Gone for good." in err
    html = Path("out.html").read_text("utf-8")
    assert html.count('class="panels"') == 3
    numbers = re.findall(r'<article [^>]*id="claim-(\d+)"', html)
    assert len({*numbers}) == len(numbers)
    assert {*re.findall(r'href="#([\w-]+)"', html)} <= {*re.findall(r'id="([\w-]+)"', html)}
    assert "words, names and numbers alone" in html.partition("<details")[0]
    accepted = ["verify", "a.txt", "--config", "verify.toml", "--strict", "--ignore", "ok.txt"]
    assert main(accepted) == 0, "accepted or supported"
    capsys.readouterr()
    assert main([*words, "--json", "--strict"]) == 1
    files = [json.loads(line)["file"] for line in capsys.readouterr().out.splitlines()]
    assert files == ["a.txt", "b.html", "c.ipynb"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("rows.jsonl", b"{}", "rows.jsonl holds rows"),
        ("sheet.csv", b"a,b", "sheet.csv holds rows"),
        ("page.txt", b" <!DOCTYPE html><p>x", ".html"),
        ("page.md", b"%PDF-1.7", ".pdf"),
        ("letter.txt", b"PK\x03\x04", ".docx"),
        ("letter.rtf", b"{\\rtf1 Hello.}", "RTF"),
        ("letter.doc", b"\xd0\xcf\x11\xe0", "UTF-8"),
        ("letter.txt.gz", b"none", "letter.txt.gz cannot be read: Not a gzipped file"),
        ("letter.docx", b"none", "letter.docx cannot be read as .docx"),
        ("v.toml", b"verifier.dcos = ['a']", "did you mean 'verifier.docs'"),
    ],
)
def test_what_is_no_text_or_no_option_is_refused_in_plain_words(
    capsys: pytest.CaptureFixture[str], name: str, content: bytes, problem: str
) -> None:
    Path(name).write_bytes(content)
    named = [TEXT, "--config", name] if name.endswith(".toml") else [name]
    assert main(["verify", *named, *DOCS, *WEAK]) == 2
    out, err = capsys.readouterr()
    assert problem in err
    assert (out, err.count("\n")) == ("", 1)


def test_a_claim_is_printed_before_the_next_one_is_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: list[str] = []

    class OneByOne(WeakJudge):
        alone = per_call = 1

        def __init__(self) -> None:
            self.turn = asyncio.Lock()

        async def judge(self, pairs: Any) -> list[Verdict]:  # pyright: ignore[reportIncompatibleMethodOverride]
            async with self.turn:
                printed.append(capsys.readouterr().out)
                return super().judge(pairs)

    monkeypatch.setattr(presets, "_judge", lambda *_: OneByOne())
    text = "Marie Curie was born in Paris. Marie Curie died in Rome. Marie Curie knew Einstein."
    assert main(["verify", text, *DOCS, "--no-cache"]) == 0
    assert [place in "".join(printed) for place in ("Paris", "Rome", "Einstein")] == [True, True, False]
    assert "Einstein" in capsys.readouterr().out


def test_minutes_are_told_before_a_long_check_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Model(WeakJudge):
        weak = False

    clock = iter(range(0, 10_000, 30))
    monkeypatch.setattr(presets, "_judge", lambda *_: Model())
    monkeypatch.setattr("factrl.cli.verify.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    text = " ".join(f"Marie Curie wrote {number} letters." for number in range(40))
    assert main(["verify", text, *DOCS, "--no-cache"]) == 0
    assert "40 claims: about 20 minutes at most" in capsys.readouterr().err
