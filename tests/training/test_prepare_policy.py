"""`factrl prepare klcf` with a policy in this process and an index of a few passages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import write
from factrl.cli import main
from factrl.verifier.search import Index

PASSAGES = [
    {"text": "Paris is the capital of France. The Seine flows through Paris.", "title": "Paris"},
    {"text": "Oslo is the capital of Norway.", "title": "Oslo"},
]


def test_many_samples_of_a_random_model(
    tiny_model: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write("facts.jsonl", *PASSAGES)
    Index.build(Path("kb"), ["facts.jsonl"])
    write("q.jsonl", *({"prompt": f"where is {name} from ?"} for name in ("ada", "bo", "cleo")))
    words = [
        "prepare",
        "klcf",
        "q.jsonl",
        "--output",
        "out",
        "--model",
        str(tiny_model),
        "sampling.num_samples=2",
    ]
    words += ["train.max_completion_length=6"]
    words += ["verifier.index=kb", "verifier.judge=weak", "verifier.cache=false"]
    code = main(words)
    assert code in (0, 3)  # a random model knows nothing
    counts = json.loads(Path("out/about.json").read_text())["counts"]
    assert (counts["prompts"], counts["samples"]) == (3, 6)
    kept = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    capsys.readouterr()
    assert main(words) == code
    assert "asked now: 0 samples, 0 checks, 0 choices" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == kept
