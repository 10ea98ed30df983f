"""A file is there whole, or as it was before."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from factrl.runs.whole_file import whole_file, write_whole


def test_a_reader_finds_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_whole(path, b"old\n")
    with whole_file(path) as unfinished:
        unfinished.write_text("new\n", encoding="utf-8")
        assert path.read_bytes() == b"old\n"
    assert path.read_bytes() == b"new\n"
    assert [*tmp_path.iterdir()] == [path]


def test_what_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_whole(path, b"old\n")

    def stopped() -> None:
        with whole_file(path) as unfinished:
            unfinished.write_bytes(b"hal")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert path.read_bytes() == b"old\n"
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_that_waits_for_the_unfinished_file_is_not_followed(tmp_path: Path) -> None:
    path, mine = tmp_path / "rows.jsonl", tmp_path / "mine"
    mine.write_bytes(b"mine\n")
    with whole_file(path) as first:
        pass
    for name in (f"{path.name}.tmp", f"{path.name}.partial", first.name):
        (tmp_path / name).symlink_to(mine)
    write_whole(path, b"new\n")
    assert mine.read_bytes() == b"mine\n"
    assert not path.is_symlink()
    assert path.read_bytes() == b"new\n"


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with whole_file(path) as first, whole_file(path) as second:
        first.write_bytes(b"a long first row\n")
        second.write_bytes(b"second\n")
    assert path.read_bytes() == b"a long first row\n"
    assert [*tmp_path.iterdir()] == [path]


def test_the_rights_are_those_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "rows.jsonl", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "rows.jsonl").stat().st_mode) == 0o640
