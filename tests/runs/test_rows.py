"""JSON Lines end at a line feed and at nothing else, and one line cannot take all memory."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from factrl.errors import DataError
from factrl.runs import rows
from factrl.runs.disk import Journal, whole_lines
from factrl.runs.folder import read_metrics
from factrl.runs.rows import read_rows
from factrl.verifier.search.sources import documents

# What `str.splitlines` and universal newlines also cut at, of what JSON may hold as it is.
MARKS = "a\u2028b\u2029c\x85d\x7f"
LINES = [f'{{"text":\r"{MARKS}",\r"step": 1}}', '{"text": "plain", "step": 2}\r']
CONTENT = "".join(f"{line}\n" for line in LINES).encode()
WANTED = [{"text": MARKS, "step": 1}, {"text": "plain", "step": 2}]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_rows_are_cut_at_line_feeds_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    packed = gzip.compress(b"\xef\xbb\xbf" + CONTENT) if name.endswith(".gz") else b"\xef\xbb\xbf" + CONTENT
    path.write_bytes(packed)
    assert list(read_rows(str(path))) == WANTED
    assert [document.text for document in documents(path)] == [MARKS, "plain"]


@pytest.mark.parametrize("suffix", [".JSONL", ".Jsonl.GZ", ".JSON", ".CSV", ".TSV", ".tsv.GZ", ".Tsv"])
def test_a_suffix_is_read_in_any_case(tmp_path: Path, suffix: str) -> None:
    mark = "\t" if "tsv" in suffix.lower() else ","
    content = {"jsonl": '{"a": "1", "b": "x"}\n', "json": '[{"a": "1", "b": "x"}]'}.get(
        suffix.lower().split(".")[1], f"a{mark}b\n1{mark}x\n"
    ).encode()
    (tmp_path / f"train{suffix}").write_bytes(gzip.compress(content) if "GZ" in suffix else content)
    for source in (tmp_path / f"train{suffix}", tmp_path):
        assert [*read_rows(str(source))] == [{"a": "1", "b": "x"}]
    with pytest.raises(DataError, match="does not exist"):
        [*read_rows(f"none{suffix}")]


def test_files_that_are_appended_to_are_cut_there_too(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    assert whole_lines(path) == []
    path.write_bytes(CONTENT + b'{"torn')
    assert [line.decode() for line in whole_lines(path)] == [f"{line}\n" for line in LINES]
    (tmp_path / "metrics.jsonl").write_bytes(CONTENT)
    assert read_metrics(tmp_path) == WANTED
    path.write_bytes(b'{"job":\r1}\n' + CONTENT.replace(b'"step"', b'"key"').replace(b"1}", b'"1"}'))
    with Journal(path, {"job": 1}) as journal:
        assert journal["1"] == {"text": MARKS}


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv.gz", "a.txt.gz"])
def test_a_line_without_an_end_is_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(rows, "LONGEST_LINE", 1 << 16)
    opener = {"gz": gzip.open}.get(name[-2:], open)
    path = tmp_path / name
    with opener(path, "wb") as file:
        file.write(b'{"text": "short"}\n' if "json" in name else b"text\n")
        for _ in range(40):
            file.write(b"x" * (1 << 20))
    readers = [lambda: list(documents(path))]
    if name in ("a.jsonl", "a.jsonl.gz"):
        readers.append(lambda: list(read_rows(str(path))))
    for read in readers:
        tracemalloc.start()
        with pytest.raises(DataError, match=rf"{name}(, line 2)? has more than"):
            read()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20


def test_parquet_is_unpacked_in_small_batches(tmp_path: Path) -> None:
    """A value that is stored once, and stands in every row."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"a": ["x" * 20_000] * 5_000, "b": [[{"text": "y" * 20_000}]] * 5_000}
    parquet.write_table(pyarrow.table(columns), tmp_path / "packed.parquet", compression="zstd")
    columns.clear()
    rows = read_rows(str(tmp_path / "packed.parquet"))
    assert len(next(rows)["a"]) == 20_000
    assert pyarrow.total_allocated_bytes() < 50_000_000
    assert sum(1 for _ in rows) == 4_999
    one = pyarrow.table({"a": [f"{n}" + "x" * 100_000_000 for n in range(4)]})
    parquet.write_table(one, tmp_path / "long.parquet", compression="zstd")
    with pytest.raises(DataError, match="row_group_size"):
        list(read_rows(str(tmp_path / "long.parquet")))
