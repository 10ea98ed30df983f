"""Documents from files: every format, and what every broken file is told."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from factrl.errors import DataError
from factrl.types import Passage
from factrl.verifier.search.sources import (
    KEPT_WORDS,
    MAX_WORDS,
    Source,
    cut,
    find_sources,
    read_passages,
)

ROWS = [
    {"id": "a", "title": "Marie Curie", "text": "She was born in Warsaw.", "url": "https://example.org/a"},
    {"id": "b", "title": "Kim, Lee", "text": 'He said "no",\nand left.', "url": "https://example.org/b"},
]
DOCUMENTS = [
    Passage("She was born in Warsaw.", "Marie Curie", "https://example.org/a", "a"),
    Passage('He said "no",\nand left.', "Kim, Lee", "https://example.org/b", "b"),
]
JSON_LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
QUOTED = "id,title,text,url\na,Marie Curie,She was born in Warsaw.,https://example.org/a\n"
QUOTED += 'b,"Kim, Lee","He said ""no"",\nand left.",https://example.org/b\n'


def read(path: Path) -> list[Passage]:
    return list(Source(path).documents())


def refusal(path: Path, content: bytes | str) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        read(path)
    return str(caught.value).replace(f"{path.parent}/", "")


# Formats


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.jsonl", JSON_LINES),
        ("x.json", JSON_LINES),
        ("x.JSONL", "\ufeff\n" + JSON_LINES),
        (
            "x.jsonl",
            '{"text": ""}\n{"text": null}\n{"text": " \\n"}\n' + JSON_LINES.replace('"text"', '"contents"'),
        ),
        ("x.csv", QUOTED),
        ("x.tsv", "text\ttitle\tid\tsource\n" + '"one\ttwo"\tT\t1\tS\n'),
    ],
)
def test_rows(tmp_path: Path, name: str, content: str, pack: Callable[[bytes], bytes]) -> None:
    suffix = {bytes: "", gzip.compress: ".gz"}[pack]
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(pack(content.encode()))
    assert read(path) == ([Passage("one\ttwo", "T", "S", "1")] if name == "x.tsv" else DOCUMENTS)


def test_parquet(tmp_path: Path) -> None:
    table = pyarrow.Table.from_pylist([{**row, "embedding": [0.5]} for row in ROWS])
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet") == DOCUMENTS


def test_the_database_of_factscore_and_knowrl(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "wiki.db")) as database, database:
        database.execute("CREATE TABLE documents (title PRIMARY KEY, text)")
        text = "<s>One two.</s>####SPECIAL####SEPARATOR####<s>Three four.</s>"
        database.execute("INSERT INTO documents VALUES ('T', ?), ('U', NULL)", (text,))
    (document,) = read(tmp_path / "wiki.db")
    assert (document.title, document.source) == ("T", "wiki.db")
    assert document.text.split() == ["One", "two.", "Three", "four."]


def test_a_text_file_is_a_document(tmp_path: Path) -> None:
    (tmp_path / "Marie_Curie.txt").write_text("\nBorn in\nWarsaw.\n")
    (tmp_path / "notes.md").write_text("# Pierre Curie\n\nBorn.")
    assert [(each.title, each.text, each.source) for each in read_passages([tmp_path])] == [
        ("Marie Curie", "Born in\nWarsaw.", "Marie_Curie.txt"),
        ("Pierre Curie", "Born.", "notes.md"),
    ]


def test_a_cirrus_dump(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"index": {"_type": "page", "_id": "7"}},
        {"title": "T", "namespace": 0, "text": "Prose."},
        {"index": {"_type": "page", "_id": "8"}},
        {"title": "Talk:T", "namespace": 1, "text": "Chatter."},
    ]
    with gzip.open(tmp_path / "wiki.json.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(map(json.dumps, lines)))
    assert [document.text for document in read(tmp_path / "wiki.json.gz")] == ["Prose."]


# Broken files


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.jsonl", '{"body": "a", "title": "b"}', "no column text or contents or passage; columns: body, t"),
        ("x.jsonl", '{"text": "a"}\n{"text"', "x.jsonl, line 2 is not JSON"),
        ("x.json", '[\n{"text": "a"}]', "a list of rows is written one row a line"),
        ("x.jsonl", '{"text": ["a"]}', "line 1: the text is a list, not a string"),
        ("x.csv", "text\na\nb,c\n", "line 3 has more fields than the first line"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}', "x.jsonl is not UTF-8 text: invalid start byte"),
        ("x.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99, mtime=0)[:-9], "cannot be read after"),
        ("x.parquet", b"PAR1", "x.parquet is not a parquet file"),
        ("x.db", b"no database at all" * 99, "cannot be read after 0 documents"),
        ("x.xml", "<mediawiki></mediawiki>", "of Wikipedia take the Cirrus dump, .json.gz"),
    ],
)  # fmt: skip
def test_broken_files(tmp_path: Path, name: str, content: bytes | str, told: str) -> None:
    assert told in refusal(tmp_path / name, content)


# Finding files


def test_a_folder_is_every_file_in_it_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / ".git").mkdir()
    for name in ("b.txt", "deep/a.md", "picture.png", ".git/c.txt", ".d.txt"):
        (tmp_path / name).write_text("x")
    found = find_sources([tmp_path, tmp_path / "b.txt"])
    assert [source.path.name for source in found] == ["b.txt", "a.md"]
    assert [source.path.name for source in find_sources([tmp_path], outside=tmp_path / "deep")] == ["b.txt"]


def test_names_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "passages.jsonl").write_text("")
    with pytest.raises(DataError, match=r"does not exist; did you mean 'passages\.jsonl'"):
        find_sources([tmp_path / "pasages.jsonl"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no file of a known format"):
        find_sources([tmp_path / "empty"])
    (tmp_path / "x.pdf").write_text("x")
    with pytest.raises(DataError, match=r"of no known format \(known: \.jsonl"):
        find_sources([tmp_path / "x.pdf"])
    for one in (str(tmp_path), tmp_path):  # its letters would be names
        with pytest.raises(DataError, match=r"files are a list, not '.*' alone; write \['"):
            read_passages(one)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DataError, match="no file was named"):
        find_sources([])


def test_a_fingerprint_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    seen = set()
    for content in ("a" * 200_000, "a" * 200_001, "b" + "a" * 199_999, "a" * 199_999 + "b"):
        path.write_text(content)
        seen.add(Source(path).fingerprint())
    assert len(seen) == 4
    other = tmp_path / "y.txt"
    other.write_text("a" * 199_999 + "b")
    assert Source(other).fingerprint() in seen


# Passages


def test_passages_end_at_the_ends_of_sentences() -> None:
    sentence = "The quick brown fox jumps over the lazy dog number 7."  # 11 words
    parts = cut(" ".join([sentence] * 50))
    assert [len(part.split()) for part in parts] == [110, 110, 110, 110, 110]
    assert all(part.endswith(".") for part in parts)
    assert [len(part.split()) for part in cut(" ".join([sentence] * 22))] == [110, 132]  # no scrap at the end
    assert [len(cut("word. " * count)) for count in (0, KEPT_WORDS, KEPT_WORDS + 1)] == [0, 1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "word " * 1000,
        "字" * 1000,
        "第一句。" * 300,
        "\n\n".join(["a few words here"] * 200),
        "**** " * 400,
    ],
)
def test_nothing_is_lost_and_nothing_is_long(text: str) -> None:
    parts = cut(text)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part.split()) <= 1.25 * MAX_WORDS and len(part) <= 30 * MAX_WORDS for part in parts)
    assert all(part == part.strip() != "" for part in parts)
