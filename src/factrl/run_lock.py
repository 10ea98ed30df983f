"""Which process writes a run folder or a journal: a file that says so.

The lock is a file that only its creator can have made (O_EXCL), because advisory locks are missing or
unreliable on the network file systems that clusters keep runs on.  The price is that it outlives a killed
process; the pid and start time inside tell such a leftover from a live owner.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError


def take_lock(path: Path, what: str) -> dict[str, Any]:
    """Take the lock; returns who holds it now: host, process and when that started.

    Args:
        path: the lock file.
        what: what it guards, for the errors.

    Raises:
        ConfigError: a live process holds it.
    """
    owner = {"host": socket.gethostname(), "pid": os.getpid(), "start": _start_time(os.getpid())}
    for _ in range(2):
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError:
            _remove_if_stale(path, owner["host"], what)
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(json.dumps(owner).encode())
        return owner
    raise ConfigError(f"{what} was taken by another process just now")


def release_lock(path: Path, owner: dict[str, Any]) -> None:
    """Give up a lock that this process took; in a fork, or when it is another's by now, nothing happens."""
    if owner["pid"] == os.getpid() and read_lock(path) == owner:
        path.unlink()


def read_lock(path: Path) -> dict[str, Any]:
    """Who holds the lock; empty when it is gone, or was made but not yet written."""
    try:
        owner = json.loads(path.read_bytes())
        return {key: owner[key] for key in ("host", "pid", "start")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _remove_if_stale(path: Path, host: str, what: str) -> None:
    """Remove the lock of a dead process of this machine, else say who holds it."""
    owner = read_lock(path)
    if owner.get("host") != host or _alive(owner["pid"], owner["start"]):
        who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
        raise ConfigError(f"{what} is being written by {who}; wait for it, or delete {path} if it is gone")
    # Two processes can find the same leftover.  Renaming decides which of them removes it, and looking at
    # what was renamed makes sure that it was the leftover and not the lock the other one made meanwhile.
    aside = path.with_name(f"{path.name}-{os.getpid()}")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return
    if read_lock(aside) != owner:
        os.rename(aside, path)
        raise ConfigError(f"{what} was taken by another process just now")
    aside.unlink()


def _alive(pid: int, start: str | None) -> bool:
    """Whether that very process still runs, and not another one that got its number."""
    if os.name == "nt":
        return True  # signal 0 is Ctrl-C there; a leftover has to be removed by hand
    with contextlib.suppress(PermissionError):  # somebody else's process
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return start == _start_time(pid)


def _start_time(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None when it has ended or /proc does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]  # Z: killed, but nobody has asked how it ended
