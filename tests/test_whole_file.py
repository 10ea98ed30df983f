"""A file is there whole, or as it was before."""

from __future__ import annotations

from pathlib import Path

import pytest

from factrl.whole_file import whole_file, write_whole


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
