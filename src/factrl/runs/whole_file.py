"""Files that no kill, crash or second process spoils: written whole or not at all, by one writer.

The lock is the system's (`flock`), on a file that says whose it is.  It ends when its holder ends, however
that happens, so a file that was left behind stops nobody.  On a network file system it holds across machines
where the mount says so: NFS with Linux on both ends does, Lustre with `flock` does and with `localflock` does
not.  Where the system has no such lock, as on Windows, that is said and the run goes on; then nothing keeps
two processes from writing to the same place.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_LOG = logging.getLogger("factrl")


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """An empty file to write to: beside the place that it takes when the block ends without an error.

    Nobody else has its name: two writers of one file do not meet, and no link that waits there is followed.
    """
    unfinished = path.with_name(f"{secrets.token_hex(8)}.tmp")
    os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666))
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old or the new one, never a part."""
    with whole_file(path) as unfinished:
        unfinished.write_bytes(content)


class FileLock:
    """A lock that one holder at a time has, until it is released or its process ends.

    Args:
        path: the lock file; removed when the lock is released.
        what: what it guards, for the errors.

    Raises:
        ConfigError: somebody else has it, or the file cannot be made.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._owner = {"host": socket.gethostname(), "pid": os.getpid()}
        try:
            self._descriptor = _locked(path)
        except OSError as error:
            raise ConfigError(f"{what} cannot be written: {path}: {error.strerror}") from error
        if self._descriptor is None:
            owner = read_lock(path)
            who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
            remedy = f"wait for it, or delete {path} if it is gone"
            raise ConfigError(f"{what} is being written by {who}; {remedy}")
        with contextlib.suppress(OSError):  # on a full disk the lock holds, and says nothing of its holder
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, json.dumps(self._owner).encode())
        _HELD.add(self)

    def release(self) -> None:
        """Let others have it; a second call, or one in a fork of the holder, does nothing."""
        if self._descriptor is None:
            return
        if read_lock(self._path) == self._owner:
            with contextlib.suppress(OSError):  # somebody else removed it, or may not be written now
                self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = None


def read_lock(path: Path) -> dict[str, Any]:
    """Host and process of the holder, as its lock file says; empty when that cannot be read."""
    try:
        owner = json.loads(path.read_bytes())
        return {"host": str(owner["host"]), "pid": int(owner["pid"])}
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return {}


_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget() -> None:
    """In a forked child: it must not keep a lock that its parent has let go of."""
    for lock in _HELD:
        if lock._descriptor is not None:
            os.close(lock._descriptor)
            lock._descriptor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _locked(path: Path) -> int | None:
    """A descriptor of the lock file that has the lock; None when somebody else has it."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            if not _takes(descriptor):
                os.close(descriptor)
                return None
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its holder removed it between our opening and our locking it


def _takes(descriptor: int) -> bool:
    try:
        if fcntl is None:
            raise OSError(0, "no fcntl")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        _LOG.warning(
            "this disk gives no locks (%s): let no other process write to the same place", error.strerror
        )
    return True
