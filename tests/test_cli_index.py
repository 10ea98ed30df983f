"""`factrl index`: what it prints, and the one line that every mistake gets."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("tantivy")

from factrl.cli import index as verb
from factrl.errors import ConfigError, DataError
from factrl.verifier.search import Index


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("a.jsonl", "Marie Curie was born in Warsaw.")
    write("b.jsonl", "Einstein was born in Ulm.", "He died in Princeton.")


def write(name: str, *texts: str) -> None:
    Path(name).write_text("".join(json.dumps({"text": text, "title": "T"}) + "\n" for text in texts))


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    verb.add_verbs(parser.add_subparsers())
    args = parser.parse_args(["index", *words])
    return args.run(args)


def test_build_and_add(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("a.jsonl", "--out", "kb") == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"kb: 1 passages, 0\.0 MB, \d+\.\d s\n", out)
    assert err.startswith("index (KiB): started\n")
    assert run("b.jsonl", "--out", "kb", "--add") == 0
    assert capsys.readouterr().out.startswith("kb: 3 passages (2 new), ")
    assert [p.text for p in Index.open("kb").search("Ulm")] == ["Einstein was born in Ulm."]


def test_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # the second time the folder holds the index as well
        assert run(".", "--out", "kb") == 0
        assert capsys.readouterr().out.startswith("kb: 3 passages")
    write("c.jsonl", "More.")
    assert run(".", "--out", "kb", "--add") == 0
    assert capsys.readouterr().out.startswith("kb: 4 passages (1 new)")


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        (["c.jsonl", "--out", "kb"], DataError, "c.jsonl does not exist; did you mean"),
        (["thesis.pdf", "--out", "kb"], DataError, "thesis.pdf is of no known format"),
        (["a.jsonl", "--out", "kb", "--add"], ConfigError, "no index in kb to add to; leave out --add"),
        (["empty.jsonl", "--out", "kb"], DataError, "there is no text in empty.jsonl"),
    ],
)
def test_mistakes(words: list[str], kind: type[Exception], told: str) -> None:
    Path("thesis.pdf").write_text("%PDF")
    Path("empty.jsonl").write_text("\n")
    with pytest.raises(kind) as caught:
        run(*words)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
