"""A file is there whole or as it was before, has one writer, and what a killed job left is found again."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from factrl.errors import ConfigError, DataError
from factrl.runs.disk import FileLock, Journal, whole_file, write_whole

ABOUT = {"model": "m", "seed": 0, "sizes": (1, 2)}


# Files that are written whole


def test_a_reader_finds_the_old_file_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_whole(path, b"old\n")

    def stopped() -> None:
        with whole_file(path) as unfinished:
            unfinished.write_bytes(b"hal")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert path.read_bytes() == b"old\n"
    with whole_file(path) as first, whole_file(path) as second:  # two writers do not meet
        first.write_bytes(b"a long first row\n")
        second.write_bytes(b"second\n")
        assert path.read_bytes() == b"old\n"
    assert path.read_bytes() == b"a long first row\n"
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


# The lock


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lock"


def test_one_holder_at_a_time(lock: Path) -> None:
    held = FileLock(lock, "run r")
    message = f"run r is being written by process {os.getpid()} on .*; wait for it, or delete .*lock if it is"
    with pytest.raises(ConfigError, match=message):
        FileLock(lock, "run r")
    lock.write_text("\0{")  # whatever it says, it is held
    with pytest.raises(ConfigError, match="is being written by another process"):
        FileLock(lock, "run r")
    held.release()
    held.release()
    assert not lock.exists()


@pytest.mark.parametrize("left", ["", "{", '{"host": "elsewhere", "pid": 1}', "\0" * 9])
def test_a_lock_file_that_was_left_behind_stops_nobody(lock: Path, left: str) -> None:
    lock.write_text(left)  # a full disk, a kill, another machine
    held = FileLock(lock, "run r")
    assert json.loads(lock.read_text())["pid"] == os.getpid()
    held.release()
    assert not lock.exists()


def test_one_that_was_deleted_and_taken_by_another_is_left_to_it(lock: Path) -> None:
    first = FileLock(lock, "run r")
    lock.unlink()
    second = FileLock(lock, "run r")
    first.release()
    assert lock.exists()
    second.release()


def test_the_lock_of_a_killed_process_is_taken_over(lock: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from factrl.runs.disk import FileLock\n"
        "held = FileLock(Path(sys.argv[1]), 'run r'); os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(lock)], timeout=60)
    assert done.returncode == 9
    assert lock.exists()
    FileLock(lock, "run r").release()


def test_a_lock_goes_where_no_link_leads(lock: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    lock.symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"run r cannot be written: .*lock"):
        FileLock(lock, "run r")
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_disk_without_locks_is_warned_about(
    lock: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    for _ in range(2):
        FileLock(lock, "run r")
    assert caplog.text.count("gives no locks (No locks available)") == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_neither_frees_the_lock_nor_keeps_it(lock: Path) -> None:
    held = FileLock(lock, "run r")
    child = os.fork()
    if child == 0:
        held.release()
        time.sleep(60)
        os._exit(0)
    try:
        with pytest.raises(ConfigError, match="is being written by"):
            FileLock(lock, "run r")
        held.release()
        FileLock(lock, "run r").release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


# Journals


@pytest.mark.parametrize("theirs", [b"a note without a line end", b'{"model": "n', b"{}", b"\0"])
def test_a_file_that_is_no_journal_is_not_cut_to_make_one(tmp_path: Path, theirs: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(theirs)
    with pytest.raises(ConfigError, match="exists, and is no journal"):
        Journal(path, ABOUT)
    assert path.read_bytes() == theirs
    path.write_bytes(b'{"model": "m", "se')  # what a crash left of the first line
    with Journal(path, ABOUT) as journal:
        journal.add("a", {"text": "x"})
    with Journal(path, ABOUT) as journal:
        assert [*journal] == ["a"]


def keys(path: Path) -> list[str]:
    with Journal(path, ABOUT) as journal:
        return list(journal)


def test_rows_come_back_and_are_added_to(tmp_path: Path) -> None:
    path = tmp_path / "new" / "j.jsonl"
    with Journal(path, ABOUT) as journal:
        journal.add("a", {"text": "\ud800 ü\r\n", "pair": (1, 2)})
        with pytest.raises(ConfigError, match=r"j\.jsonl is being written by process"):
            Journal(path, ABOUT)
    with Journal(path, ABOUT) as journal:
        assert (dict(journal), journal.resumed) == ({"a": {"text": "\ud800 ü\r\n", "pair": [1, 2]}}, 1)
        journal.add("b", {})
    assert keys(path) == ["a", "b"]
    assert [*path.parent.iterdir()] == [path]


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


def test_another_job_is_refused_and_its_rows_stay(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    with Journal(path, ABOUT) as journal:
        journal.add("a", {})
    with pytest.raises(ConfigError, match=r"j\.jsonl holds another job: its seed is 0, not 1; go on with"):
        Journal(path, {**ABOUT, "seed": 1})
    assert keys(path) == ["a"]  # and the lock was given back


@pytest.mark.parametrize("line", [b'{"n": 1}', b"[]", b"{", b"5"])
def test_a_broken_line_in_the_middle_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "j.jsonl"
    path.write_bytes(b'{"model": "m", "seed": 0, "sizes": [1, 2]}\n' + line + b'\n{"key": "b"}\n')
    with pytest.raises(DataError, match=r"line 2 cannot be read"):
        Journal(path, ABOUT)
