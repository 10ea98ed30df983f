"""`factrl prepare klcf` with a policy in this process and an index of a few passages."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.cli import prepare
from factrl.errors import TooManyMasked
from factrl.verifier.search import Index

PASSAGES = [
    {"text": "Paris is the capital of France. The Seine flows through Paris.", "title": "Paris"},
    {"text": "Oslo is the capital of Norway.", "title": "Oslo"},
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("facts.jsonl", *PASSAGES)
    Index.build(Path("kb"), ["facts.jsonl"])


def run(questions: list[str], *told: str) -> dict[str, Any]:
    write("q.jsonl", *({"prompt": question} for question in questions))
    verbs = argparse.ArgumentParser().add_subparsers()
    prepare.add_verbs(verbs)
    told = (
        "q.jsonl",
        "--output",
        "out",
        *told,
        "verifier.index=kb",
        "verifier.judge=weak",
        "verifier.cache=false",
    )
    args = verbs.choices["prepare klcf"].parse_intermixed_args(list(told))
    with contextlib.suppress(TooManyMasked):  # a random model knows nothing
        args.run(args)
    return json.loads(Path("out/about.json").read_text())


def test_many_samples_of_a_random_model(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = [f"where is {name} from ?" for name in ("ada", "bo", "cleo")]
    told = ("--model", str(tiny_model), "--samples", "2", "train.max_completion_length=6")
    first = run(questions, *told)
    assert (first["counts"]["prompts"], first["counts"]["samples"]) == (3, 6)
    kept = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    capsys.readouterr()
    assert run(questions, *told) == first
    assert "asked now: 0 samples, 0 checks, 0 choices" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == kept
