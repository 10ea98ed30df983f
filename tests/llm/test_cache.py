"""The store under everything that can happen to a file: kills, damage, full disks, many processes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import ConfigError
from factrl.llm.store import Store, digest

NOBODY = 65534
KILLS = 40
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
quiet_fork = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "verdicts.sqlite"


def keys(count: int) -> list[str]:
    return [digest({"n": n}) for n in range(count)]


def filled(path: Path, count: int = 200) -> list[str]:
    """The keys of a store that was filled and closed; each value can be found in the file."""
    store = Store(path)
    store.put_many({key: {"verdict": f"<{key}>", "n": n} for n, key in enumerate(keys(count))})
    store.close()
    return keys(count)


def run_in_child(work: Callable[[], Any]) -> int:
    """The exit status of a forked child that does `work`."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# ---------------------------------------------------------------- keys


def test_nothing_can_move_from_one_field_into_the_next() -> None:
    pairs = [
        ({"a": "x|y", "b": "z"}, {"a": "x", "b": "y|z"}),
        ({"a": "x", "b": ""}, {"a": "", "b": "x"}),
        ({"a": 'x","b":"y'}, {"a": "x", "b": "y"}),
        ({"a": ["x", "y"]}, {"a": ["xy"]}),
        ({"a": 1}, {"a": "1"}),
        ({"a": None}, {}),
        ({"a": {"b": 1}}, {"a": "{'b': 1}"}),
    ]
    for one, other in pairs:
        assert digest(one) != digest(other)
    assert digest({"a": 1, "b": [2, "ü\ud83d"]}) == digest({"b": [2, "ü\ud83d"], "a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        digest({"a": float("nan")})


# ---------------------------------------------------------------- what a store does


@pytest.mark.parametrize(
    "value",
    [False, {"deep": [{"er": [1, None, "é\u2028\ud83d"]}]}, "x" * 2_000_000],
)
def test_a_value_comes_back_as_it_was_also_from_the_disk(path: Path, value: Any) -> None:
    store = Store(path)
    store.put_many({"key": value})
    assert store.get("key") == value
    store.close()
    assert Store(path).get("key") == value


@pytest.mark.parametrize("value", [float("nan"), b"bytes"])
def test_what_is_not_json_is_refused_whole(path: Path, value: Any) -> None:
    store = Store(path)
    with pytest.raises((TypeError, ValueError)):
        store.put_many({"good": 1, "bad": value})
    assert store.size() == 0


# ---------------------------------------------------------------- whose file it is


def test_folder_and_files_are_for_their_owner_only(path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(path)
        store.put_many({"a": 1})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert len(files) == 3  # itself, its log, the log's index
    assert set(files.values()) == {0o600}
    store.close()
    path.chmod(0o644)
    Store(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_database_of_something_else_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE passages (text)")
        other.execute("INSERT INTO passages VALUES ('precious')")
    other.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="something else"):
        Store(path)
    assert path.read_bytes() == before


# ---------------------------------------------------------------- F21: a disk that takes nothing


FULL = """
import logging, resource, signal, sys
from factrl.llm.store import Store
logging.basicConfig(stream=sys.stdout, format="%(levelname)s")
store = Store(sys.argv[1])
store.put_many({"before": 1})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for n in range(300):
    store.put_many({f"after {n}": "x" * 2000})
values = store.get_many([f"after {n}" for n in range(300)])
print(len(values), store.get("before"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs setrlimit")
def test_f21_a_full_disk_goes_on_in_memory_and_keeps_what_it_had(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split("\n") == ["WARNING", "300 1", ""]
    assert done.stderr == ""
    again = Store(path)
    assert again.get("before") == 1
    kept = again.get_many([f"after {n}" for n in range(300)])
    assert 0 < len(kept) < 300
    assert set(kept.values()) == {"x" * 2000}  # no torn rows


# ---------------------------------------------------------------- F22, F23: damage


def begun_anew(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*.corrupt-*"))


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "not a database": lambda _: b"an error page\n" * 100,
    "cut in a page": lambda data: data[:6000],
    "a page of noise": lambda data: data[:8192] + random.Random(1).randbytes(4096) + data[12288:],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_f22_a_damaged_file_is_moved_aside_and_the_run_goes_on(
    path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    wanted = filled(path)
    path.write_bytes(damaged := damage(path.read_bytes()))
    start = time.monotonic()
    store = Store(path)
    values = store.get_many(wanted)
    assert all(value["verdict"] == f"<{key}>" for key, value in values.items())
    store.put_many(dict.fromkeys(wanted, "again"))
    assert store.get_many(wanted) == dict.fromkeys(wanted, "again")
    assert time.monotonic() - start < store._busy, "it was taken for a file that somebody has locked"
    store.close()
    for aside in begun_anew(path)[:1]:
        assert aside.read_bytes()[:4096] == damaged[:4096]
        assert "begun anew" in caplog.text
    with sqlite3.connect(path) as check:
        assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


def test_f22_what_another_process_began_anew_is_not_moved_aside_again(path: Path) -> None:
    wanted = filled(path)
    first, second = Store(path), Store(path)
    path.write_bytes(b"noise" * 10_000)
    second.put_many({"second": 1})
    assert first.get_many(wanted) == {}
    first.put_many({"first": 2})
    assert (first.get("second"), second.get("first")) == (1, 2)
    assert len([file for file in begun_anew(path) if not file.name.endswith(("-wal", "-shm"))]) == 1


def test_f23_every_flipped_byte_is_caught(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wanted = filled(path)
    data, dice = bytearray(path.read_bytes()), random.Random(1)
    flipped = dice.sample(wanted, 100)
    for key in flipped:
        at = data.index(f"<{key}>".encode()) + dice.randrange(66)
        data[at] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    with sqlite3.connect(path) as check:  # SQLite itself sees nothing
        assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()
    store = Store(path)
    values = store.get_many(wanted)
    assert set(values) == set(wanted) - set(flipped)
    assert "100 damaged entries" in caplog.text
    store.put_many({flipped[0]: "again"})
    assert store.get_many(flipped) == {flipped[0]: "again"}
    assert begun_anew(path) == []


def test_f23_a_row_under_anothers_key_or_of_another_kind_is_caught(path: Path) -> None:
    a, b, c, d = filled(path, 4)
    with sqlite3.connect(path) as other:
        value, check_sum = other.execute("SELECT value, sum FROM entries_1 WHERE key = ?", (a,)).fetchone()
        other.execute("UPDATE entries_1 SET value = ?, sum = ? WHERE key = ?", (value, check_sum, b))
        other.execute("UPDATE entries_1 SET value = ? WHERE key = ?", (value.decode(), c))
        other.execute("UPDATE entries_1 SET sum = NULL WHERE key = ?", (d,))
    other.close()
    store = Store(path)
    assert set(store.get_many([a, b, c, d])) == {a}


# ---------------------------------------------------------------- F24, F31: many processes, forks

WRITER = """
import sys
from factrl.llm.store import Store
store, me = Store(sys.argv[1]), sys.argv[2]
for n in range(0, 2000, 20):
    store.put_many({f"{me} {m}": {"me": me, "n": m} for m in range(n, n + 19)})
    store.put_many({f"{me} {n + 19}": {"me": me, "n": n + 19}})
    assert store.get(f"{me} {n}") == {"me": me, "n": n}
"""


def test_f24_four_processes_on_one_file(path: Path) -> None:
    commands = [[sys.executable, "-c", WRITER, str(path), str(me)] for me in range(4)]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    complaints = [child.communicate(timeout=120)[1] for child in children]
    assert complaints == [""] * 4
    store = Store(path)
    assert store.size() == 8_000
    values = store.get_many(f"{me} {n}" for me in range(4) for n in range(2000))
    assert all(value == {"me": key.split()[0], "n": int(key.split()[1])} for key, value in values.items())
    assert len(values) == 8_000


def test_f24_a_lock_that_is_never_given_back_is_not_waited_for_for_ever(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(path, busy=1.0)
    store.put_many({"a": 1})
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        store.put_many({"b": 2})
        waited = time.monotonic() - start
        assert 1.0 <= waited < 30.0, "it waits as long as it is told, and not as by default"
        assert store.get_many(["a", "b"]) == {"a": 1, "b": 2}
        start = time.monotonic()
        store.put_many({"c": 3})
        assert time.monotonic() - start < waited / 2  # it does not wait again
    assert ["is locked" in record.message for record in caplog.records] == [True]


@needs_fork
@quiet_fork
def test_f31_a_fork_while_others_write(path: Path) -> None:
    store, stop = Store(path), threading.Event()

    def write() -> None:
        while not stop.is_set():
            store.put_many(dict.fromkeys(keys(20), 1))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()

    def child() -> None:
        signal.alarm(30)
        store.put_many({f"child {os.getpid()}": 1})
        assert store.get(f"child {os.getpid()}") == 1

    try:
        assert [run_in_child(child) for _ in range(10)] == [0] * 10
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert store.size() == 20 + 10


# ---------------------------------------------------------------- kill -9

# One process imports, and forks the writers: as many interpreters would take long to start.  Every
# other writer is killed at any moment after the fork, while it opens the file or before; the others after
# their first acknowledgement.  A line of this length reaches a pipe whole or not at all.
KILLED = """
import os, random, signal, sys, threading, time
from factrl.llm.store import Store

def write(kill, acknowledge):
    store = Store(sys.argv[1])
    if kill % 3 == 0:
        store._opened[0].execute("PRAGMA wal_autocheckpoint = 16")  # so that kills hit checkpoints too
    def work(me):
        for n in range(10**9):
            key = f"{kill} {me} {n}"
            store.put_many({key: {"key": key, "text": "evidence " * 40}})
            os.write(1, f"{key}\\n".encode())
            os.write(acknowledge, b".")
    for me in range(3):
        threading.Thread(target=work, args=(me,)).start()
    threading.Event().wait()

dice = random.Random(0)
for kill in range(int(sys.argv[2])):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        write(kill, writer)
    os.close(writer)
    if kill % 2:
        os.read(reader, 1)
    time.sleep(dice.uniform(0.0, 0.03))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)
"""


@needs_fork
def test_kills_lose_nothing_that_was_acknowledged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", KILLED, str(path), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    acknowledged = done.stdout.splitlines()
    assert len({key.split()[0] for key in acknowledged}) >= KILLS // 2
    store = Store(path)
    values = store.get_many(acknowledged)
    assert [key for key in acknowledged if key not in values] == []
    assert all(value["key"] == key for key, value in values.items())
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
def read_only() -> Iterator[Path]:
    """A folder that this user may read and nobody may write; `tmp_path` lies behind a closed one."""
    folder = Path(tempfile.mkdtemp(prefix="factrl-read-only-"))
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs users")
@pytest.mark.parametrize("begun", [False, True], ids=["no file", "a file"])
def test_a_read_only_folder_costs_the_cache_and_nothing_else(read_only: Path, begun: bool) -> None:
    path = read_only / "verdicts.sqlite"
    if begun:
        store = Store(path)
        store.put_many({"before": 1})
        store.close()
    before = {file.name: file.read_bytes() for file in read_only.iterdir()}
    for file in [*read_only.iterdir(), read_only]:
        if os.getuid() == 0:
            os.chown(file, NOBODY, NOBODY)
        file.chmod(0o500 if file is read_only else 0o400)
    done = subprocess.run([sys.executable, "-c", READ_ONLY, str(path)], capture_output=True, text=True)
    assert done.stdout.split("\n") == ["True False False", "WARNING", "50", ""]  # warned of once
    assert done.stderr == ""
    assert {file.name: file.read_bytes() for file in read_only.iterdir()} == before


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

HARM: dict[str, Callable[[Path], object]] = {
    "deleted": Path.unlink,
    "deleted with its lock and log": lambda path: [file.unlink() for file in path.parent.iterdir()],
    "its folder deleted": lambda path: shutil.rmtree(path.parent),
}


@pytest.mark.parametrize("harm", HARM)
def test_a_store_that_loses_its_file_goes_on(harm: str, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(path, busy=2)
    store.put_many({"before": 1})
    HARM[harm](path)
    for n in range(3):
        store.put_many({f"after {n}": n})
    assert store.get_many(["after 0", "after 2", "never"]) == {"after 0": 0, "after 2": 2}
    assert 1 <= len(caplog.records) <= 2  # what became of it, and what that costs
    store.close()
    store.put_many({"again": 1})
