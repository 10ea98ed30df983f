"""What a killed job left is found again, whole, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from factrl.errors import ConfigError, DataError
from factrl.runs.journal import Journal

ABOUT = {"model": "m", "seed": 0, "sizes": (1, 2)}


def keys(path: Path) -> list[str]:
    with Journal(path, ABOUT) as journal:
        return list(journal)


def test_rows_come_back_and_are_added_to(tmp_path: Path) -> None:
    with Journal(tmp_path / "new" / "j.jsonl", ABOUT) as journal:
        journal.add("a", {"text": "\ud800 ü\r\n", "pair": (1, 2)})
        assert journal["a"] == {"text": "\ud800 ü\r\n", "pair": [1, 2]}
    with Journal(tmp_path / "new" / "j.jsonl", ABOUT) as journal:
        assert (dict(journal), journal.found) == ({"a": {"text": "\ud800 ü\r\n", "pair": [1, 2]}}, 1)
        journal.add("b", {})
    assert keys(tmp_path / "new" / "j.jsonl") == ["a", "b"]


@pytest.mark.fault("F20")
def test_a_torn_last_line_is_dropped_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, ABOUT) as journal:
        journal.add("a", {"n": 1})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key": "b", "n"')
    with Journal(path, ABOUT) as journal:
        assert list(journal) == ["a"]
        journal.add("b", {"n": 2})
    assert path.read_bytes() == whole + b'{"key": "b", "n": 2}\n'


@pytest.mark.parametrize("left", [b"", b'{"model": "m"'])
def test_a_journal_that_was_hardly_begun_begins_again(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(left)
    with Journal(path, ABOUT) as journal:
        journal.add("a", {})
    assert keys(path) == ["a"]


def test_another_job_is_refused_and_its_rows_stay(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, ABOUT) as journal:
        journal.add("a", {})
    with pytest.raises(ConfigError, match=r"j\.jsonl holds another job: its seed is 0, not 1; go on with"):
        Journal(path, {**ABOUT, "seed": 1})
    assert keys(path) == ["a"]  # and the lock was given back


def test_two_writers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, ABOUT), pytest.raises(ConfigError, match=r"j\.jsonl is being written by process"):
        Journal(path, ABOUT)


@pytest.mark.parametrize("left", ["", "{", '{"host": "elsewhere", "pid": 1, "start": "1"}'])
def test_a_lock_file_that_was_left_behind_stops_nobody(tmp_path: Path, left: str) -> None:
    path = tmp_path / "j.jsonl"
    (tmp_path / "j.jsonl.lock").write_text(left)
    with Journal(path, ABOUT) as journal:
        journal.add("a", {})
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.security("S28")
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"model": "m", "seed": 0, "sizes": [1, 2]}\n{"n": 1}\n{"key": "b"}\n')
    with pytest.raises(DataError, match=r"line 2 cannot be read"):
        Journal(path, ABOUT)
