"""The index on disk: what it finds, what it refuses, and what it says when it is damaged."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tantivy")

from factrl.errors import ConfigError, DataError, SetupError
from factrl.verifier.search import BrokenIndex, Index
from factrl.verifier.search.sources import Source
from factrl.verifier.search.words import words

CURIE = [
    {"id": "c1", "title": "Marie Curie", "text": "Marie Curie was born in Warsaw in 1867.", "url": "https://x/mc"},
    {"id": "c2", "title": "Marie Curie", "text": "She won the Nobel Prize in Physics in 1903."},
    {"id": "e1", "title": "Albert Einstein", "text": "Albert Einstein was born in Ulm in 1879."},
    {"id": "u1", "title": "US", "text": "The United States is a country."},
    {"id": "u2", "title": "Us", "text": "Us is a horror film of 2019."},
    {"id": "j1", "title": "Alien; Aliens", "text": "Two films in one box."},
    {"id": "k1", "title": "", "text": "巴黎是法国的首都。"},
]  # fmt: skip


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("index")
    return Index.build(folder / "kb", [write(folder / "curie.jsonl", CURIE)])


def ids(found: Sequence[Any]) -> list[str]:
    return [passage.id.partition(":")[2] or passage.id for passage in found]


# Searching


def test_a_passage_comes_back_whole(index: Index) -> None:
    found = index.search("When was Marie Curie born?")
    assert ids(found) == ["c1", "c2", "e1"]
    best = found[0]
    assert (best.text, best.title, best.source) == (CURIE[0]["text"], "Marie Curie", "https://x/mc")
    assert best.id == "0:c1"
    assert found[1].source == "curie.jsonl"
    scores = [passage.score or 0.0 for passage in found]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] > 0
    assert repr(index) == f"Index({str(index.path)!r}, 7 passages)"
    assert ids(index.search("法国的首都是什么？")) == ["k1"]


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Marie Curie", ["c1", "c2"]),
        ("US", ["u1"]),
        ("uS", ["u1", "u2"]),
        ("Marie Curie;Albert Einstein", ["c1", "c2", "e1"]),
        ("Alien; Aliens", ["j1"]),
        ("Nobody", []),
        ("\ud800", []),
        ("x" * 5000, []),
    ],
)
def test_a_topic_is_a_title(index: Index, title: str, expected: list[str]) -> None:
    assert sorted(ids(index.search("Where was she born?", topic=title, k=9))) == expected


def test_a_topic_confines_the_search(index: Index) -> None:
    assert ids(index.search("Who was born in Ulm?", topic="Marie Curie")) == ["c1", "c2"]
    assert ids(index.search("the of", topic="Marie Curie")) == ["c1", "c2"]
    assert sorted(ids(index.search("born", topic="Albert Einstein;Marie Curie", k=9))) == ["c1", "c2", "e1"]
    assert index.search("born in Ulm", topic="Nobody") == []
    with pytest.raises(ConfigError, match="k must be at least 1, not 0"):
        index.search("born", k=0)


# S24: nothing in a query is an operator


@pytest.mark.security("S24")
@pytest.mark.parametrize(
    "query",
    [
        *('" OR 1=1', "NEAR(", "NEAR(a b, 5)", "*", "born*", '"', '"born', "'; DROP TABLE passages; --", "%"),
        *("title:born", "born AND", "NOT born", "-born", "(", "((((", "born^9", "a:b:c", "[1 TO 2]", "\\"),
        *("Marie Curie Warsaw " + "word " * 200_000, " ".join(map(str, range(100_000)))),
        *("", " ", "\x00", "\ud800", "born\x00Ulm", "/.*/", "born~2", "IN [a b]", "{born}", "\n", "💥", "﷽"),
    ],
)  # fmt: skip
def test_no_query_is_an_operator(index: Index, query: str) -> None:
    plain = " ".join(words(query)[:128])
    assert index.search(query, k=9) == index.search(plain, k=9)
    assert index.search(query, topic="Marie Curie", k=9) is not None
    assert index.search("born", topic=query) is not None
    known = set(words(query))
    for passage in index.search(query, k=9):
        assert known & set(words(f"{passage.title} {passage.text}"))


# Adding


def test_add(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", CURIE[:2])
    index = Index.build(tmp_path / "kb", [first])
    old = Index.open(tmp_path / "kb")
    index.add([first, write(tmp_path / "b.jsonl", CURIE[2:])])
    assert len(index) == 7
    assert ids(index.search("Ulm")) == ["e1"]
    assert len(old) == 2
    assert old.search("Ulm") == []
    assert len(Index.open(tmp_path / "kb")) == 7
    index.add([first])
    assert len(index) == len(Index.build(tmp_path / "kb", [first, tmp_path / "b.jsonl"])) == 7
    with pytest.raises(SetupError, match="already holds an index of other files; add these with"):
        Index.build(tmp_path / "kb", [first])
    write(first, CURIE)
    with pytest.raises(DataError, match=r"a\.jsonl has changed since it was read into"):
        index.add([first])


def test_searches_run_while_passages_are_added(tmp_path: Path) -> None:
    index = Index.build(tmp_path / "kb", [write(tmp_path / "a.jsonl", CURIE)])
    stop, failures = threading.Event(), []

    def search() -> None:
        while not stop.is_set():
            if ids(index.search("Marie Curie Warsaw", k=1)) != ["c1"]:
                failures.append("missing")

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(3):
        rows = [{"text": f"filler {turn} {number}"} for number in range(300)]
        index.add([write(tmp_path / f"{turn}.jsonl", rows)])
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(index) == 907


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", CURIE)
    Index.build(tmp_path / "kb", [path])
    import tantivy

    writer = tantivy.Index.open(str(tmp_path / "kb" / "words")).writer()
    with pytest.raises(SetupError, match="another process is adding to this index"):
        Index.open(tmp_path / "kb").add([write(tmp_path / "b.jsonl", [{"text": "x"}])])
    writer.wait_merging_threads()
    Index.open(tmp_path / "kb").add([tmp_path / "b.jsonl"])


# Refusals


def test_a_mended_file_goes_on(tmp_path: Path) -> None:
    good = write(tmp_path / "a.jsonl", CURIE)
    bad = tmp_path / "b.jsonl"
    bad.write_text('{"body": "x"}')
    with pytest.raises(DataError, match="columns: body"):
        Index.build(tmp_path / "kb", [good, bad])
    with pytest.raises(
        SetupError, match="is unfinished; wait for factrl index, or run the same command again"
    ):
        Index.open(tmp_path / "kb")
    bad.write_text('{"text": "x"}')
    assert len(Index.build(tmp_path / "kb", [good, bad])) == 8


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"there is no index in .*; build it with: factrl index FILES --out"):
        Index.open(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(SetupError, match="is there already and holds no index"):
        Index.build(tmp_path / "other", [write(tmp_path / "a.jsonl", CURIE)])
    with pytest.raises(SetupError, match="is there already and holds no index"):
        Index.build(tmp_path / "a.jsonl", [tmp_path / "a.jsonl"])
    assert (tmp_path / "other" / "thesis.tex").exists()


# Damage (F22)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("{", "", "is damaged"),
        ('"sources": [', '"sources": [7, ', "is damaged"),
        ('"format": 2', '"format": 1', "has the format 1, and this version reads 2"),
        ("   7\n", "   9\n", "holds 7 passages instead of 9"),
    ],
)
def test_a_manifest_that_cannot_be_true(index: Index, tmp_path: Path, old: str, new: str, told: str) -> None:
    copy = Path(shutil.copytree(index.path, tmp_path / "kb"))
    content = (copy / "index.json").read_text()
    assert old in content
    (copy / "index.json").write_text(content.replace(old, new))
    with pytest.raises(BrokenIndex, match=f"{told}.*; build it again: rm -r .*kb && factrl index .* --out"):
        Index.open(copy)


def damaged(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "deleted":
        path.unlink()
    else:
        half = len(content) // 2
        path.write_bytes({"empty": b"", "truncated": content[:half], "zeros": bytes(len(content))}[how])


def test_any_file_that_is_missing_or_cut_is_noticed(index: Index, tmp_path: Path) -> None:
    noticed = 0
    for path in sorted(index.path.rglob("*")):
        if not path.is_file() or path.suffix == ".lock" or path.name == ".managed.json":
            continue  # not needed for reading
        for how in ("deleted", "empty", "truncated", "zeros"):
            copy = Path(shutil.copytree(index.path, tmp_path / f"{path.name}-{how}"))
            damaged(copy / path.relative_to(index.path), how)
            with pytest.raises(SetupError, match="build it") as caught:
                Index.open(copy).search("Marie Curie was born in Warsaw.")
            noticed += 1
            if path.name != "index.json":
                assert isinstance(caught.value, BrokenIndex)
                assert f"curie.jsonl --out {copy}" in str(caught.value)
    assert noticed > 25


def test_a_flipped_bit_in_a_passage_is_noticed(tmp_path: Path) -> None:
    rng = random.Random(0)
    text = "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=4000))  # leaves the store nothing to compress
    index = Index.build(tmp_path / "kb", [write(tmp_path / "a.jsonl", [{"text": f"key {text[:1500]}"}])])
    (store,) = (index.path / "words").glob("*.store")
    content = bytearray(store.read_bytes())
    content[len(content) // 3] ^= 1
    store.unlink()  # not cut under the feet of `index`, which has mapped it
    store.write_bytes(content)
    with pytest.raises(BrokenIndex, match="is damaged"):
        Index.open(index.path).search("key")


# Kills


@pytest.mark.fault("F20")
@pytest.mark.parametrize("at", ["documents", "before the commit", "after the commit"])
def test_a_killed_build_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """Nothing is lost and nothing is indexed twice, wherever the second of three files was left."""
    sources = [
        write(tmp_path / f"{name}.jsonl", [{"text": f"Passage {name}{n}."} for n in range(9)])
        for name in "abc"
    ]
    script = f"""
import os
from factrl.verifier.search import Index, index
read, save = index.passages_of, index.Manifest.save
def passages_of(document):
    yield from read(document)
    if {at!r} == "documents" and document.text == "Passage b5.":
        os._exit(9)
def saved(self, folder):
    if {at!r} == "after the commit" and len(self.sources) == 3:
        os._exit(9)
    save(self, folder)
    if {at!r} == "before the commit" and len(self.sources) == 2:
        os._exit(9)
index.passages_of, index.Manifest.save = passages_of, saved
Index.build({str(tmp_path / "kb")!r}, {list(map(str, sources))!r})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    with pytest.raises(SetupError, match="is unfinished"):
        Index.open(tmp_path / "kb")
    read = []
    documents = Source.documents
    monkeypatch.setattr(Source, "documents", lambda one: read.append(one.path.stem) or documents(one))
    index = Index.build(tmp_path / "kb", sources)
    assert read == (["c"] if at == "after the commit" else ["b", "c"])
    assert sorted(p.text for p in index.search("passage", k=99)) == sorted(
        f"Passage {name}{n}." for name in "abc" for n in range(9)
    )


@pytest.mark.fault("F20")
def test_an_addition_that_was_killed_before_its_commit_is_made_again(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.jsonl", CURIE), write(tmp_path / "b.jsonl", [{"text": "More."}])
    index = Index.build(tmp_path / "kb", [first])
    manifest = json.loads((index.path / "index.json").read_text())
    manifest["sources"].append([str(second), Source(second).fingerprint(), 8])
    (index.path / "index.json").write_text(json.dumps(manifest))
    assert len(Index.open(index.path)) == 7
    assert len(Index.build(index.path, [first, second])) == 8
    assert len(Index.build(index.path, [first, second])) == 8


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Of Python's own; the engine's is bounded by its heap, and measured in docs/history.md."""
    peaks = []
    for rows in (500, 3_000):
        path = write(tmp_path / f"{rows}.jsonl", [{"text": f"{row} " + "word " * 100} for row in range(rows)])
        tracemalloc.start()
        Index.build(tmp_path / f"kb{rows}", [path])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 300_000  # of 1.3 MB more text
