"""The store where it hurts: a hundred kills, disks that take or lock nothing, any bit of its files."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from factrl.llm.store import Store, digest

NOBODY = 65534
KILLS = 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "verdicts.sqlite"


def keys(count: int) -> list[str]:
    return [digest({"n": n}) for n in range(count)]


# ---------------------------------------------------------------- kill -9

# One process imports, and forks the writers: a hundred interpreters would take a minute to start.  Every
# other writer is killed at any moment after the fork, while it opens the file or before; the others after
# their first acknowledgement.  A line of this length reaches a pipe whole or not at all.
KILLED = """
import os, random, signal, sys, threading, time
from factrl.llm.store import Store

def write(kill, tell):
    store = Store(sys.argv[1])
    if kill % 3 == 0:
        store._opened[0].execute("PRAGMA wal_autocheckpoint = 16")  # so that kills hit checkpoints too
    def work(me):
        for n in range(10**9):
            key = f"{kill} {me} {n}"
            store.put_many({key: {"key": key, "text": "evidence " * 40}})
            os.write(1, f"{key}\\n".encode())
            os.write(tell, b".")
    for me in range(3):
        threading.Thread(target=work, args=(me,)).start()
    threading.Event().wait()

dice = random.Random(0)
for kill in range(int(sys.argv[2])):
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        write(kill, tell)
    os.close(tell)
    if kill % 2:
        os.read(told, 1)
    time.sleep(dice.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(told)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.fault("F20")
def test_a_hundred_kills_lose_nothing_that_was_acknowledged(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", KILLED, str(path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    acknowledged = done.stdout.splitlines()
    assert len({key.split()[0] for key in acknowledged}) >= KILLS // 2
    store = Store(path)
    found = store.get_many(acknowledged)
    assert [key for key in acknowledged if key not in found] == []
    assert all(value["key"] == key for key, value in found.items())
    assert caplog.records == []  # nothing damaged, nothing moved aside
    with sqlite3.connect(path) as check:
        assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


# ---------------------------------------------------------------- a disk that takes nothing

READ_ONLY = f"""
import logging, os, sys
from pathlib import Path
from factrl.llm.background import background_loop
from factrl.llm.store import Store
from factrl.llm.store import CachedLLM
from factrl.llm import FakeLLM
background_loop()
logging.basicConfig(stream=sys.stdout, format="%(levelname)s")
if os.getuid() == 0:  # who may write everywhere
    os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
path = Path(sys.argv[1])
print(os.access(path.parent, os.X_OK), os.access(path.parent, os.W_OK), os.access(path, os.W_OK))
fake = FakeLLM(lambda messages: messages[-1]["content"].upper())
fake.identity = "fake"
llm = CachedLLM(fake, Store(path))
ask = lambda n: llm.complete([{{"role": "user", "content": f"question {{n}}"}}]).text
for _ in range(2):
    assert [ask(n) for n in range(50)] == [f"QUESTION {{n}}" for n in range(50)]
print(len(fake.calls))
"""


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A folder that this user may read and nobody may write; `tmp_path` lies behind a closed one."""
    folder = Path(tempfile.mkdtemp(prefix="factrl-read-only-"))
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users")
@pytest.mark.parametrize("begun", [False, True], ids=["no file", "a file"])
@pytest.mark.fault("F21")
def test_a_read_only_folder_costs_the_cache_and_nothing_else(theirs: Path, begun: bool) -> None:
    path = theirs / "verdicts.sqlite"
    if begun:
        store = Store(path)
        store.put_many({"before": 1})
        store.close()
    before = {file.name: file.read_bytes() for file in theirs.iterdir()}
    for file in [*theirs.iterdir(), theirs]:
        if os.getuid() == 0:
            os.chown(file, NOBODY, NOBODY)
        file.chmod(0o500 if file is theirs else 0o400)
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True)
    assert done.stdout.split("\n") == ["True False False", "WARNING", "50", ""]  # warned of once
    assert done.stderr == ""
    assert {file.name: file.read_bytes() for file in theirs.iterdir()} == before


@pytest.mark.fault("F25")
def test_a_disk_that_knows_no_locks_is_not_written_to(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("locking protocol")  # NFS without its lock daemon

    monkeypatch.setattr(sqlite3, "connect", no_locks)
    store = Store(path)
    store.put_many(dict.fromkeys(keys(50), "kept"))
    assert store.get_many(keys(50)) == dict.fromkeys(keys(50), "kept")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "locking protocol" in caplog.text


# ---------------------------------------------------------------- its file goes while it is open


def rest(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if file != path]


def foreign(path: Path, statement: str) -> None:
    """Somebody else's database, in its place."""
    for file in (path, *rest(path)):
        file.unlink()
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


HARM: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "deleted with its lock and log": lambda path: [file.unlink() for file in (path, *rest(path))],
    "its folder deleted": lambda path: shutil.rmtree(path.parent),
    "one whose table has another form": lambda path: foreign(path, "CREATE TABLE entries_1 (x)"),
}


def in_time(work: Callable[[], object]) -> None:
    """Do it on a thread of its own; one that hangs fails the test, and does not stop the others."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"


@pytest.mark.parametrize("harm", HARM)
def test_a_store_that_loses_its_file_goes_on(harm: str, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(path, busy=2)
    store.put_many({"before": 1})
    HARM[harm](path)

    def use() -> None:
        for n in range(3):
            store.put_many({f"after {n}": n})
            assert store.get(f"after {n}") == n
        asyncio.run(store.aput_many({"last": 9}))
        assert store.get_many(["after 0", "after 2", "last", "never"]) == {
            "after 0": 0,
            "after 2": 2,
            "last": 9,
        }

    in_time(use)
    assert 1 <= len(caplog.records) <= 2  # what became of it, and what that costs
    store.close()
    in_time(lambda: store.put_many({"again": 1}))
