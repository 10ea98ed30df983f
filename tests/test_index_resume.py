"""A build that is killed at any moment goes on where it was: nothing is lost, nothing is indexed twice."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tantivy")

from factrl.errors import SetupError
from factrl.verifier.search import Index
from factrl.verifier.search.bm25 import WordIndex
from factrl.verifier.search.build import load_manifest

PASSAGES, KILLS = 1_500, 3

BUILD = """
import sys, time
import numpy as np
from factrl.verifier.search import Index, build

class Sums:
    identity, dimension = "sums", 4
    def encode(self, texts):
        time.sleep(0.02)
        return np.array([[sum(text.encode()) % 97, len(text), 1, 0] for text in texts], np.float32) / 100

build.BATCH = 100
Index.build(sys.argv[1], sys.argv[2:], embedder=Sums())
"""


def start(folder: Path, sources: list[Path]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILD, str(folder), *map(str, sources)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def committed(folder: Path) -> int:
    """Passages that the index claims to have; 0 before there is one."""
    try:
        return load_manifest(folder).states[0].passages
    except SetupError:
        return 0


def kill_after_some_progress(folder: Path, sources: list[Path], wait: float) -> bool:
    """Start a build and kill -9 it a moment after it has got ahead; False when it was done before."""
    before = committed(folder)
    process = start(folder, sources)
    deadline = time.monotonic() + 60
    while committed(folder) <= before and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.002)
    time.sleep(wait)
    finished = process.poll() is not None
    process.kill()
    _, told = process.communicate()
    assert not finished or process.returncode == 0, told
    return not finished


@pytest.mark.slow
@pytest.mark.fault("F20")
def test_killed_again_and_again(tmp_path: Path) -> None:
    rng = random.Random(0)
    sources = []
    for number in range(3):
        path = tmp_path / f"{number}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for row in range(number, PASSAGES, 3):
                text = f"Passage {row} speaks of w{row % 50}. " + "word " * (row % 200)  # some are cut in two
                file.write(json.dumps({"id": str(row), "title": f"T{row % 100}", "text": text}) + "\n")
        sources.append(path)

    killed = tmp_path / "killed"
    kills = sum(kill_after_some_progress(killed, sources, rng.uniform(0, 0.06)) for _ in range(KILLS))
    assert kills >= 2
    assert not load_manifest(killed).built
    process = start(killed, sources)
    _, told = process.communicate()
    assert process.returncode == 0, told

    whole = tmp_path / "whole"
    process = start(whole, sources)
    _, told = process.communicate()
    assert process.returncode == 0, told

    one, other = Index.open(whole), Index.open(killed)
    assert len(one) == len(other) > PASSAGES
    everything = list(range(len(one)))
    assert WordIndex(whole).numbered(everything).keys() == WordIndex(killed).numbered(everything).keys()
    for number, passage in WordIndex(whole).numbered(everything).items():
        assert WordIndex(killed).numbered([number])[number].text == passage.text
    assert one.titled("T7") == other.titled("T7") != []
    assert one.search("w7", k=500) == other.search("w7", k=500) != []
    vectors = [np.fromfile(folder / "vectors.f16", np.float16) for folder in (whole, killed)]
    assert np.array_equal(*vectors)
    assert len(vectors[0]) == 4 * len(one)


@pytest.mark.fault("F20")
@pytest.mark.parametrize("survives", [True, False])
def test_killed_around_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survives: bool) -> None:
    """The moment that matters: between the note of what is about to be committed and the commit."""
    from factrl.verifier.search import bm25, build

    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": f"Passage {row}."}) + "\n" for row in range(30)))
    monkeypatch.setattr(build, "BATCH", 10)
    commit, turns = bm25.Writer.commit, []

    def dies(self: bm25.Writer) -> None:
        turns.append(None)
        if len(turns) == 2:
            if survives:
                commit(self)
            raise KeyboardInterrupt
        commit(self)

    monkeypatch.setattr(bm25.Writer, "commit", dies)
    with pytest.raises(KeyboardInterrupt):
        Index.build(tmp_path / "kb", [path])
    assert len(WordIndex(tmp_path / "kb")) == (20 if survives else 10)
    monkeypatch.setattr(bm25.Writer, "commit", commit)
    index = Index.build(tmp_path / "kb", [path])
    assert sorted(p.text for p in index.search("passage", k=99)) == sorted(f"Passage {n}." for n in range(30))


def test_memory_is_that_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Python's own; the engine's is bounded by its heap, and measured in docs/history.md."""
    from factrl.verifier.search import build

    monkeypatch.setattr(build, "BATCH", 200)
    peaks = []
    for rows in (500, 3_000):
        path = tmp_path / f"{rows}.jsonl"
        path.write_text(
            "".join(json.dumps({"text": f"{row} " + "word " * 100}) + "\n" for row in range(rows))
        )
        tracemalloc.start()
        Index.build(tmp_path / f"kb{rows}", [path])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 300_000  # of 1.3 MB more text
