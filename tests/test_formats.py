"""Reports for CI servers: what SARIF and JUnit say of every ending, where, and of texts that mean harm."""

from __future__ import annotations

import json
import re
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import factrl.verifier as presets
from factrl.cli import main
from factrl.errors import Unscored
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.formats import to_junit, to_sarif
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


def parsed(junit: str) -> ET.Element:
    return ET.fromstring(junit)  # noqa: S314  # it is our own


def outcomes(junit: str) -> list[str]:
    """What became of every case; the counts of suites and document agree with them."""
    root = parsed(junit)
    for element in (root, *root.iter("testsuite")):
        for count, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
            assert int(element.attrib[count]) == len([*element.iter(tag)])
        assert int(element.attrib["errors"]) == len([*element.iter("error")])
    return [child.tag for case in root.iter("testcase") for child in case] or ["passed"]


@pytest.mark.parametrize(
    ("kind", "level", "outcome", "strict", "codes"),
    [
        ("supported", [], "passed", "passed", (0, 0)),
        ("refuted", ["error"], "failure", "failure", (0, 1)),
        ("unsure", ["warning"], "skipped", "failure", (0, 1)),
        ("unknown", ["warning"], "skipped", "failure", (0, 1)),
        ("hedge", ["note"], "skipped", "failure", (0, 1)),
        ("no_claim", [], "skipped", "failure", (0, 1)),
        ("unjudged", ["warning"], "error", "error", (3, 3)),
        ("failed", [], "error", "error", (3, 3)),
        ("oversize", [], "error", "error", (2, 2)),
    ],
)
def test_every_ending_in_both_formats(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    level: list[str],
    outcome: str,
    strict: str,
    codes: tuple[int, int],
) -> None:
    monkeypatch.setattr(presets, "open_verifier", lambda *_, **__: FakeVerifier())
    for words, said, expected in (((), outcome, codes[0]), (("--strict",), strict, codes[1])):
        code, junit, _ = verify(capsys, kind, "--format", "junit", *words)
        assert (code, outcomes(junit)) == (expected, [said])
        if words:
            assert (said == "passed") == (code == 0)
        code, sarif, _ = verify(capsys, kind, "--format", "sarif", *words)
        run = json.loads(sarif)["runs"][0]
        assert (code, [one["level"] for one in run["results"]]) == (expected, level)
        assert [one["ruleId"] for one in run["results"]] == ([kind] if level else [])
        assert {one["ruleId"] for one in run["results"]} <= {
            one["id"] for one in run["tool"]["driver"]["rules"]
        }
        assert run["invocations"][0]["executionSuccessful"] == (code < 2)
        assert len(run["invocations"][0]["toolExecutionNotifications"]) == 1


def cut(text: str, region: Mapping[str, int]) -> str:
    """What a viewer marks: lines end at a line feed, columns count characters, the end is exclusive."""
    lines = text.split("\n")[region["startLine"] - 1 : region["endLine"]]
    lines[-1] = lines[-1][: region["endColumn"] - 1]
    return "\n".join([lines[0][region["startColumn"] - 1 :], *lines[1:]])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Ann was born in Rome.", (1, 1, 1, 22)),
        ("Hello.\r\n\r\nOh 😀! Ann was born in Rome.\r\n", (3, 7, 3, 28)),
        ("\ufeffAnn was born in Rome.", (1, 1, 1, 22)),
        ("# Life\n\n- Ann was born\n  in Rome.\n", (3, 3, 4, 11)),
        ("```\ncode\n```\n\n\u2028Ann was born in Rome.", (5, 2, 5, 23)),
    ],
)
def test_a_result_is_at_its_sentence(
    capsys: pytest.CaptureFixture[str], text: str, place: tuple[int, ...]
) -> None:
    Path("answer.md").write_bytes(text.encode())
    run = json.loads(verify(capsys, "answer.md", "--format", "sarif")[1])["runs"][0]
    physical = run["results"][-1]["locations"][0]["physicalLocation"]
    region = physical["region"]
    assert physical["artifactLocation"] == {"index": 0, "uri": "answer.md"}
    assert " ".join(cut(text.removeprefix("\ufeff"), region).split()) == "Ann was born in Rome."
    assert tuple(region[key] for key in ("startLine", "startColumn", "endLine", "endColumn")) == place
    case = [*parsed(verify(capsys, "answer.md", "--format", "junit")[1]).iter("testcase")][-1]
    assert (case.attrib["file"], case.attrib["line"]) == ("answer.md", str(place[0]))


@pytest.mark.security("S42")
@pytest.mark.parametrize(
    "bad",
    [
        "".join(map(chr, range(32))),
        "\x7f\x85\ud800\udfff\ufdd0\ufffe\uffff\U0001ffff",
        "]]></failure><failure/>&lt;&#0;",
        "\"'<!--<![CDATA[",
        "\u202e\u2028 \U000e0041😀",
        "x" * 100_000,
        "[Rome](1) {0}",
    ],
)
def test_texts_of_others_stay_text(bad: str) -> None:
    passage = Passage(bad, bad, bad)
    verdict = Verdict("refuted", "fake", 0.1, (0, 0, len(bad)), cause=bad)
    checks = tuple(Check(Claim(bad, 0, end), (passage,), verdict) for end in (0, 1, len(bad), len(bad) + 9))
    reports = [(bad, Report(bad, checks=checks)), (bad, Report(bad, failure=Unscored("parse", bad)))]
    junit = to_junit(reports)
    assert junit.isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", junit)
    assert outcomes(junit) == ["failure"] * 4 + ["error"]
    names = [case.attrib["name"] for case in parsed(junit).iter("testcase")]
    assert len({*names}) == len(names)
    assert max(map(len, names)) < 250
    sarif = json.dumps(to_sarif([("", Report(bad, checks=checks))]))
    run = json.loads(sarif)["runs"][0]
    kept = run["artifacts"][0]["contents"]["text"]
    assert (len(kept), kept.encode().decode()) == (len(bad), kept)  # no halves of pairs
    regions = [one["locations"][0]["physicalLocation"].get("region") for one in run["results"]]
    assert [region is None for region in regions] == [True, False, False, False]
    assert "](" not in run["results"][0]["message"]["text"]


def test_files_of_one_name_and_addresses_outside(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    names = ["a/x.md", "b/x.md", "a/ü: 1%.md", "../out.md"]
    for name in names:
        path = inner / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(TEXT, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(inner)
        words = (*names, "./a/x.md", str(inner / "b" / "x.md"))  # twice is once
        code, sarif, _ = verify(capsys, *words, "--format", "sarif", docs="--docs=../notes")
        assert code == 0
        run = json.loads(sarif)["runs"][0]
        uris = [one["location"]["uri"] for one in run["artifacts"]]
        assert uris == ["a/x.md", "b/x.md", "a/%C3%BC%3A%201%25.md", (folder / "out.md").as_uri()]
        assert len(run["results"]) == 4
        code, junit, _ = verify(capsys, *names, "--format", "junit", docs="--docs=../notes")
        suites = [suite.attrib["name"] for suite in parsed(junit).iter("testsuite")]
        assert suites == names
        code, out, _ = verify(capsys, *names[:2], docs="--docs=../notes")
        assert re.findall(r"^(\S+x\.md):$", out, re.M) == names[:2]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("a.md", "b.md", "--json"), "--json and --html are about one text"),
        (("a.md", "b.md", "--html", "out.html"), "--json and --html are about one text"),
        (("a.md", "--json", "--format", "sarif"), "--json and --format sarif exclude each other"),
        (("Ann", "was", "born"), "'Ann' is no file, and several texts are read from files"),
        (("a.md", "gone.md"), "gone.md does not exist"),
        (("empty.md",), "empty.md: empty; give a text"),
        (("empty.md", "none.md"), "empty.md, none.md: empty; give a text"),
        (("a.md", "--format", "json"), "invalid choice: 'json'"),
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
    words, _, file = lines[1].partition(" > ")
    assert f"sarif_file: {file}" in workflow
    words = words.replace("docs/*.md", "docs/a.md")
    assert main([*shlex.split(words), "--judge=weak", "--no-cache"]) == 1
    assert json.loads(capsys.readouterr().out)["runs"][0]["results"]
