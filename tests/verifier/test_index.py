"""The index on disk: what it finds, what it refuses, and what it says when it is damaged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.cli import main
from factrl.errors import SetupError
from factrl.verifier.search import BrokenIndex, Index
from factrl.verifier.search.sources import words

CURIE = [
    {"id": "c1", "title": "Marie Curie", "text": "Marie Curie was born in Warsaw in 1867.", "url": "https://x/mc"},
    {"id": "c2", "title": "Marie Curie", "text": "She won the Nobel Prize in Physics in 1903."},
    {"id": "e1", "title": "Albert Einstein", "text": "Albert Einstein was born in Ulm in 1879."},
    {"id": "u1", "title": "US", "text": "The United States is a country."},
    {"id": "u2", "title": "Us", "text": "Us is a horror film of 2019."},
    {"id": "j1", "title": "Alien; Aliens", "text": "Two films in one box."},
    {"id": "k1", "title": "", "text": "巴黎是法国的首都。"},
]  # fmt: skip


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    folder = tmp_path_factory.mktemp("index")
    return Index.build(folder / "kb", [write(folder / "curie.jsonl", *CURIE)])


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
    assert ids(index.search("法国的首都是什么？")) == ["k1"]


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Marie Curie", ["c1", "c2"]),
        ("Marie Curie;Albert Einstein", ["c1", "c2", "e1"]),
        ("Alien; Aliens", ["j1"]),
        ("Nobody", []),
        ("\ud800", []),
    ],
)
def test_a_topic_is_a_title(index: Index, title: str, expected: list[str]) -> None:
    assert sorted(ids(index.search("Where was she born?", topic=title, k=9))) == expected


# S24: nothing in a query is an operator


@pytest.mark.parametrize(
    "query",
    [
        *(
            '" OR 1=1',
            "NEAR(a b, 5)",
            "born*",
            '"born',
            "'; DROP TABLE passages; --",
            "title:born",
            "NOT born",
        ),
        *("-born", "((((", "born^9", "[1 TO 2]", "\\", "", "\x00", "\ud800", "/.*/", "born~2", "IN [a b]"),
        "Marie Curie Warsaw " + "word " * 200_000,
    ],
)
def test_no_query_is_an_operator(index: Index, query: str) -> None:
    plain = " ".join(words(query)[:128])
    assert index.search(query, k=9) == index.search(plain, k=9)
    assert index.search(query, topic="Marie Curie", k=9) is not None
    assert index.search("born", topic=query) is not None
    known = set(words(query))
    for passage in index.search(query, k=9):
        assert known & set(words(f"{passage.title} {passage.text}"))


# Building


def test_an_index_is_built_once_and_whole(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.jsonl", *CURIE[:2]), write(tmp_path / "b.jsonl", *CURIE[2:])
    assert len(Index.build(tmp_path / "kb", [first, second])) == 7
    assert len(Index.build(tmp_path / "kb", [first, second])) == 7
    for others in ([first], [first, write(second, *CURIE)]):
        with pytest.raises(SetupError, match="already holds an index of other files, or they have changed"):
            Index.build(tmp_path / "kb", others)


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    import tantivy

    path, folder = write(tmp_path / "a.jsonl", *CURIE), tmp_path / "kb"
    manifest = Index.build(folder, [path]).path / "index.json"
    manifest.write_text(manifest.read_text().replace("7", "null"))
    writer = tantivy.Index.open(str(folder / "words")).writer()
    with pytest.raises(SetupError, match="another process"):
        Index.build(folder, [path])
    writer.wait_merging_threads()
    assert len(Index.build(folder, [path])) == 7


# Refusals


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="factrl index FILES --output"):
        Index.open(tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(SetupError, match="is there already and holds no index"):
        Index.build(tmp_path / "other", [write(tmp_path / "a.jsonl", *CURIE)])
    with pytest.raises(SetupError, match="is there already and holds no index"):
        Index.build(tmp_path / "a.jsonl", [tmp_path / "a.jsonl"])
    assert (tmp_path / "other" / "thesis.tex").exists()


# Damage (F22)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("{", "", "is damaged"),
        ('"sources": [', '"sources": [7, ', "is damaged"),
        ('"format": 3', '"format": 2', "has the format 2, and this version reads 3"),
        ('"passages": 7', '"passages": 9', "holds 7 passages instead of 9"),
    ],
)
def test_a_manifest_that_cannot_be_true(index: Index, tmp_path: Path, old: str, new: str, told: str) -> None:
    copy = Path(shutil.copytree(index.path, tmp_path / "kb"))
    content = (copy / "index.json").read_text()
    assert old in content
    (copy / "index.json").write_text(content.replace(old, new))
    with pytest.raises(
        BrokenIndex, match=f"{told}.*; build it again: rm -r .*kb && factrl index .* --output"
    ):
        Index.open(copy)


def test_any_file_that_is_missing_or_cut_is_noticed(index: Index, tmp_path: Path) -> None:
    noticed = 0
    for path in sorted(index.path.rglob("*")):
        if not path.is_file() or path.suffix == ".lock" or path.name == ".managed.json":
            continue  # not needed for reading
        content = path.read_bytes()
        for how, left in {
            "deleted": None,
            "cut": content[: len(content) // 2],
            "zeros": bytes(len(content)),
        }.items():
            copy = Path(shutil.copytree(index.path, tmp_path / f"{path.name}-{how}"))
            broken = copy / path.relative_to(index.path)
            broken.unlink() if left is None else broken.write_bytes(left)
            with pytest.raises(SetupError, match="build it") as caught:
                Index.open(copy).search("Marie Curie was born in Warsaw.")
            noticed += 1
            if path.name != "index.json":
                assert isinstance(caught.value, BrokenIndex)
                assert f"curie.jsonl --output {copy}" in str(caught.value)
    assert noticed > 19


def test_a_killed_build_begins_anew(tmp_path: Path) -> None:
    """Nothing is lost and nothing is indexed twice."""
    sources = [
        write(tmp_path / f"{name}.jsonl", *[{"text": f"Passage {name}{n}."} for n in range(9)])
        for name in "ab"
    ]
    script = f"""
import os
from factrl.verifier.search import Index, index
read = index.passages_of
def passages_of(document):
    yield from read(document)
    if document.text == "Passage b5.":
        os._exit(9)
index.passages_of = passages_of
Index.build({str(tmp_path / "kb")!r}, {list(map(str, sources))!r})
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    with pytest.raises(SetupError, match="is unfinished"):
        Index.open(tmp_path / "kb")
    index = Index.build(tmp_path / "kb", sources)
    assert len(index) == 18
    assert len(index.search("passage", k=99)) == 18


# The verb


def test_the_verb(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("a.jsonl"), *CURIE)
    for _ in range(2):  # the second time the folder holds the index as well
        assert main(["index", ".", "--output", "kb"]) == 0
        assert capsys.readouterr().out.startswith("kb: 7 passages, 0.0 MB, ")
    Path("empty.jsonl").write_text("\n")
    assert main(["index", "a.jsonl", "empty.jsonl", "--output", "beside"]) == 0
    assert "no text in empty" in caplog.text
    capsys.readouterr()
    assert main(["index", "empty.jsonl", "--output", "other"]) == 2
    assert "no text in empty" in capsys.readouterr().err
    assert not Path("other").exists()
