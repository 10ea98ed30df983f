"""`factrl verify` on several files, as JSON, and what CI servers and hooks make of it."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import factrl.verifier as presets
from factrl.cli import main
from factrl.errors import Unscored
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.report import Check, Report

ROOT = Path(__file__).parents[1]
TEXT = "Ann was born in Rome."
EVIDENCE = Passage("Ann was born in Oslo.", "Ann")
P = {"supported": 0.9, "refuted": 0.1, "unsure": 0.5, "unknown": 0.1}


def report_of(kind: str, text: str = TEXT) -> Report:
    """A text whose only claim, all of it, is shown so."""
    if kind == "failed":
        return Report(text, failure=Unscored("connection", "refused"))
    if kind == "oversize":
        return Report(text, floored="oversize")
    if kind == "no_claim":
        return Report(text)
    if kind == "hedge":
        return Report(text, checks=(Check(Claim("Perhaps so.", 0, len(text), skip="unverifiable")),))
    label: Any = "supported" if kind == "unsure" else kind
    cause = "timeout" if kind == "unjudged" else None
    verdict = Verdict(label, "fake", P.get(kind), (0, 0, 21), cause=cause)
    return Report(text, checks=(Check(Claim(text, 0, len(text)), (EVIDENCE,), verdict),))


class FakeVerifier:
    """Gives the report whose kind the text names."""

    max_chars = 5
    judge = type("FakeJudge", (), {"weak": False})

    def __call__(self, text: str, question: str = "", **_: Any) -> Report:
        return report_of(text.strip(), text)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with evidence, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "ann.txt").write_text(EVIDENCE.text, encoding="utf-8")
    return tmp_path


def verify(
    capsys: pytest.CaptureFixture[str], *words: str, docs: str = "--docs=notes"
) -> tuple[int, str, str]:
    code = main(["verify", docs, "--judge", "weak", "--no-cache", *words])
    return code, *capsys.readouterr()


def test_a_script_makes_of_json_what_ci_servers_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(presets, "open_verifier", lambda *_, **__: FakeVerifier())
    reports = runpy.run_path(str(ROOT / "examples" / "ci" / "reports.py"))
    kinds = ("supported", "refuted", "unsure", "unknown", "unjudged")
    for kind in kinds:
        Path(f"{kind}.md").write_text(f"\n{kind}")
    code, out, _ = verify(capsys, *(f"{kind}.md" for kind in kinds), "--strict", "--json")
    assert code == 3
    read = json.loads(out)
    assert [one["file"] for one in read] == [f"{kind}.md" for kind in kinds]
    (run,) = json.loads(reports["sarif"](read))["runs"]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [
        ("refuted", "error"),
        ("unsure", "warning"),
        ("unknown", "warning"),
        ("unjudged", "warning"),
    ]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "refuted.md"}, "region": {"startLine": 1}}
    root = ET.fromstring(reports["junit"](read))  # noqa: S314  # it is our own
    outcomes = [[child.tag for child in case] for case in root.iter("testcase")]
    assert outcomes == [[], ["failure"], ["failure"], ["failure"], ["error"]]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("a.md", "b.md", "--html", "out.html"), "--html is about one text"),
        (("Ann", "was", "born"), "'Ann' is no file, and several texts are read from files"),
        (("a.md", "gone.md"), "gone.md does not exist"),
        (("empty.md",), "empty.md: empty; give a text"),
        (("empty.md", "none.md"), "empty.md, none.md: empty; give a text"),
    ],
)
def test_what_cannot_be_reported_is_refused_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str
) -> None:
    for name, text in (("a.md", TEXT), ("b.md", TEXT), ("empty.md", " \n"), ("none.md", "")):
        Path(name).write_text(text)
    monkeypatch.setattr(presets, "open_verifier", lambda *_, **__: pytest.fail("it was opened"))
    code, out, err = verify(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert problem in err


def test_an_empty_file_among_others_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A hook names whatever was committed, an empty `CHANGES.md` too."""
    monkeypatch.setattr(presets, "open_verifier", lambda *_, **__: FakeVerifier())
    for name, text in (("a.md", "supported"), ("empty.md", " \n"), ("b.md", "supported")):
        Path(name).write_text(text)
    code, out, err = verify(capsys, "a.md", "empty.md", "b.md", "--strict")
    assert (code, err) == (0, "empty.md is empty and left out\n")
    assert re.findall(r"^\w+\.md:$", out, re.M) == ["a.md:", "b.md:"]


def test_of_several_files_the_one_that_failed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(presets, "open_verifier", lambda *_, **__: FakeVerifier())
    for kind in ("refuted", "failed", "supported"):
        Path(f"{kind}.md").write_text(kind)
    code, out, err = verify(capsys, "refuted.md", "failed.md", "supported.md", "--strict")
    assert (code, err) == (3, "factrl: failed.md: the text could not be checked: connection: refused\n")
    assert re.findall(r"^\w+\.md:$", out, re.M) == ["refuted.md:", "failed.md:", "supported.md:"]


def test_the_hook_checks_the_files_that_pre_commit_names(capsys: pytest.CaptureFixture[str]) -> None:
    """pre-commit appends `args` and then the files, and installs the extra that the manifest names."""
    manifest = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
    entry = re.search(r"^  entry: factrl (.*)$", manifest, re.M)
    assert entry is not None
    for name in ("notes/one.md", "two.md"):
        Path(name).write_text(TEXT)
    words = (*shlex.split(entry[1]), "--judge=weak", "--no-cache", "--docs=notes/", "notes/one.md", "two.md")
    assert main([*words]) == 1
    out, err = capsys.readouterr()
    assert re.findall(r"^(\S+):\nU unknown    Ann was born in Rome\.", out, re.M) == [
        "notes/one.md",
        "two.md",
    ]
    assert err == "notes/one.md is left out of --docs: it is the text that is checked\n"
    extra = re.search(r'additional_dependencies: \["\.\[(\w+)\]"\]', manifest)
    assert extra is not None
    assert f"\n{extra[1]} = [" in (ROOT / "pyproject.toml").read_text("utf-8")


def test_the_workflow_that_a_user_copies_runs_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    workflow = (ROOT / "examples" / "ci" / "factrl.yml").read_text("utf-8")
    lines = re.findall(r"^ +- run: factrl (.*)$", workflow, re.M)
    assert [line.split()[0] for line in lines] == ["models", "verify"]
    Path("docs").mkdir()
    Path("docs/a.md").write_text(TEXT)
    words, _, _ = lines[1].partition(" > ")
    words = words.replace("docs/*.md", "docs/a.md")
    assert main([*shlex.split(words), "--judge=weak", "--no-cache"]) == 1
    assert json.loads(capsys.readouterr().out)["claims"]
