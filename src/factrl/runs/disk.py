"""Files that survive kills, crashes and second processes: written whole, or row by row, by one writer.

Every result goes through `whole_file`: it is on the disk whole before it has its name, and it replaces a file
that a user named only where the same command made that file.

The lock is the system's (`flock`), on a file that names its holder.  It ends when its holder ends, however
that happens, so a lock file that was left behind blocks nobody.  On a network file system it holds across
machines where the mount supports it: NFS with Linux on both ends does, Lustre with `flock` does and with
`localflock` does not.  Where the system has no such lock, as on Windows, the run goes on with a warning; then
two processes can write to the same place.

A journal is a JSON Lines file of a long job's rows, each on disk as soon as it exists, so that nothing is
paid for twice.  Its first line says what the job is; every other line is one finished unit of it under a key.
A job that was killed opens the same file again, skips the units in it and goes on.  A last line that a crash
tore is dropped; the journal of another job is refused.
"""

from __future__ import annotations

import contextlib
import errno
import filecmp
import json
import logging
import os
import re
import secrets
import shutil
import socket
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError, FactrlError
from factrl.text.html import OWN_PAGE

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_LOG = logging.getLogger("factrl")
_KEY = "key"
_PAGE_HEAD = 1_000  # bytes of a page in which it says what made it
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What is left of these in libraries that write through other languages.
_FULL_IN_WORDS = (
    "No space left on device",
    "disk is full",
    "File too large",
    "PytorchStreamWriter failed writing",
    "unexpected pos ",
)


MayReplace = Callable[[Path], bool]
"""Whether a command made the file at this path, which it then may replace."""


def anything(_: Path) -> bool:
    """For files in a folder of the command's own: any file is replaced."""
    return True


def nothing(_: Path) -> bool:
    """For a file that a user names and that does not show which command made it: none is replaced."""
    return False


def check_free(path: Path, may_replace: MayReplace = nothing) -> None:
    """Refuse a path with a file that this command did not make; an empty file may be replaced.

    Raises:
        ConfigError: it is taken.
    """
    if path.is_dir() or (path.is_file() and path.stat().st_size and not may_replace(path)):
        raise ConfigError(f"{path} exists; name another file, or remove it")


def check_begun(journal: Path, *paths: Path) -> None:
    """Refuse to begin a job whose files exist without its journal: they are another job's.

    Raises:
        ConfigError: one of them exists.
    """
    for path in paths if not journal.exists() else ():
        check_free(path)


@contextmanager
def whole_file(path: Path, may_replace: MayReplace = anything) -> Iterator[Path]:
    """An empty file to write to, which is renamed to `path` when the block ends without an error.

    Its random name keeps two writers apart, and no link with that name is followed.  It is on the disk before
    it is renamed.  A device or a pipe is written to directly.

    Args:
        may_replace: what may be replaced.  With anything but `anything` a user named the path: a link there
            is followed, and of two processes that find it free one is refused, unless both wrote the same.

    Raises:
        ConfigError: something is there that may not be replaced.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        yield path
        return
    place = path if may_replace is anything else Path(os.path.realpath(path))
    unfinished = place.with_name(f"{secrets.token_hex(8)}.tmp")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(unfinished, flags, 0o666))
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        if may_replace is anything or not _is_first(unfinished, place):
            if may_replace is not anything and place.is_file():
                if not filecmp.cmp(unfinished, place, shallow=False):
                    check_free(path, may_replace)
                shutil.copymode(place, unfinished)
            os.replace(unfinished, place)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(unfinished)):
            error.filename = str(path)  # what the user named
        raise


def _is_first(unfinished: Path, place: Path) -> bool:
    """Give a file its name where no file has it; False where one has, or the disk has no hard links."""
    try:
        os.link(unfinished, place)
    except OSError:
        return False
    unfinished.unlink()
    return True


def write_whole(path: Path, content: bytes, may_replace: MayReplace = anything) -> None:
    """Write a file so that a reader sees the old or the new one, never a part.

    Raises:
        ConfigError: as `whole_file`.
    """
    with whole_file(path, may_replace) as unfinished:
        unfinished.write_bytes(content)


def write_page(path: str | Path, html: str) -> Path:
    """Write a page, with the folders that are missing; a page of the same template is replaced.

    Raises:
        ConfigError: it cannot be written, or something else is there.
    """
    path, made = Path(path), re.search(rf'{OWN_PAGE} (.*?)">', html[:_PAGE_HEAD])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, html.encode(), (lambda there: is_page(there, made[1])) if made else nothing)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path


def is_page(path: Path, template: str) -> bool:
    """Whether a file is a page of this template, which the same command may replace."""
    with path.open("rb") as file:
        return f'{OWN_PAGE} {template}">'.encode() in file.read(_PAGE_HEAD)


def is_full(error: BaseException | None) -> bool:
    """Whether an error of a program that was writing says that the disk took no more.

    >>> is_full(RuntimeError("I/O error: No space left on device (os error 28)"))
    True
    """
    if not isinstance(error, Exception) or isinstance(error, FactrlError):
        return False
    if isinstance(error, OSError) and error.errno:
        return error.errno in _FULL
    return any(words in str(error) for words in _FULL_IN_WORDS)


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file that is appended to, without a last one that a crash left torn."""
    return [line + b"\n" for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


class FileLock:
    """A lock with one holder at a time, until it is released or its process ends.

    Args:
        path: the lock file; removed when the lock is released.
        what: what it guards, for the errors.

    Raises:
        ConfigError: another process has it, or the file cannot be made.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except OSError as error:
            raise ConfigError(f"{what} cannot be written: {path}: {error.strerror}") from error
        # Its holder may remove it between our opening and our locking it: then it is no lock any more.
        if not _takes(descriptor) or not _is_at(descriptor, path):
            os.close(descriptor)
            remedy = f"wait for it, or delete {path} if it is gone"
            raise ConfigError(f"{what} is being written by {_holder(path)}; {remedy}")
        self._descriptor = descriptor
        owner = {"host": socket.gethostname(), "pid": os.getpid()}
        with contextlib.suppress(OSError):  # on a full disk the lock holds, and says nothing of its holder
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(owner).encode())
        _HELD.add(self)

    def release(self) -> None:
        """Let others have it; a second call, or one in a fork of the holder, does nothing."""
        if self._descriptor is None:
            return
        if _is_at(self._descriptor, self._path):  # unless somebody removed it, and another has it now
            with contextlib.suppress(OSError):
                self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = None


_HELD: weakref.WeakSet[FileLock] = weakref.WeakSet()


@contextlib.contextmanager
def no_empty_folder(folder: Path) -> Iterator[None]:
    """Where a folder is made inside and nothing is left in it, it is removed again."""
    is_new = not folder.exists()
    try:
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # there is something in it, or it was never made
                folder.rmdir()


def _forget() -> None:
    """In a forked child: it must not keep a lock that its parent has released."""
    for lock in _HELD:
        if lock._descriptor is not None:
            os.close(lock._descriptor)
            lock._descriptor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


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


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except OSError:
        return False


def _holder(path: Path) -> str:
    """The holder of a lock, as its file, which can hold anything, names it."""
    try:
        owner = json.loads(path.read_bytes())
        return f"process {int(owner['pid'])} on {str(owner['host'])[:100]}"
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "another process"


class Journal(Mapping[str, Mapping[str, Any]]):
    """Rows by key, in the order in which they were added; use as a context manager.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "rows.jsonl")
    >>> with Journal(path, {"model": "m", "seed": 0}) as journal:
    ...     journal.add("question 1", {"answer": "Lima"})
    >>> with Journal(path, {"model": "m", "seed": 0}) as journal:  # the same job, started again
    ...     journal.resumed, journal["question 1"]
    (1, {'answer': 'Lima'})

    Args:
        path: the file; made, with its folder, when it does not exist.
        about: everything that decides what the rows are: model, prompts, settings, seed.  JSON values.

    Attributes:
        resumed: how many rows an earlier process left.

    Raises:
        ConfigError: the file is that of another job, or another process is writing it.
        DataError: a line that is not the last cannot be read.
    """

    def __init__(self, path: Path | str, about: Mapping[str, Any]) -> None:
        self.path = Path(path)
        about = json.loads(json.dumps(about))  # as it will be read back: tuples as lists
        self._rows: dict[str, Mapping[str, Any]] = {}
        if self.path.exists() and not self.path.is_file():
            raise ConfigError(f"{self.path} is no file that can be read back; name another one")
        with contextlib.ExitStack() as undo:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                lock = self.path.with_name(f"{self.path.name}.lock")
                undo.callback(FileLock(lock, f"{self.path}").release)
                whole = self._read(about)
                self._file = undo.enter_context(self.path.open("r+b" if whole else "wb", buffering=0))
                self._file.truncate(whole)
                self._file.seek(whole)
                if not whole:
                    self._write(about)
            except OSError as error:
                raise ConfigError(f"{self.path} cannot be written: {error.strerror}") from error
            self._open = undo.pop_all()
        self.resumed = len(self._rows)

    def add(self, key: str, row: Mapping[str, Any]) -> None:
        """Keep a finished row; for a reader it replaces an earlier one with the same key."""
        row = json.loads(json.dumps(row, allow_nan=False))
        self._write({_KEY: key, **row})
        self._rows[key] = row

    def close(self) -> None:
        """Let other processes write to the file; a second call does nothing."""
        self._open.close()

    def __getitem__(self, key: str) -> Mapping[str, Any]:
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, document: Mapping[str, Any]) -> None:
        line = memoryview(json.dumps(document, allow_nan=False).encode() + b"\n")
        start = self._file.tell()
        try:
            while line:  # unbuffered: a killed process loses nothing that the system has
                line = line[self._file.write(line) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # a torn line may be the last one only
                self._file.truncate(start)
                self._file.seek(start)
            raise ConfigError(
                f"{self.path} cannot be written: {error.strerror}; what it holds is kept: make room, then "
                "give the same command again"
            ) from error

    def _read(self, about: Mapping[str, Any]) -> int:
        """Take the rows of the same job; returns how many bytes of the file are whole lines."""
        lines = whole_lines(self.path)
        torn = self.path.read_bytes() if self.path.exists() and not lines else b""
        if not json.dumps(about).encode().startswith(torn):  # what a crash left of our first line
            raise ConfigError(f"{self.path} exists, and is no journal; name another file, or remove it")
        for number, line in enumerate(lines, start=1):
            try:
                document = json.loads(line)
            except (ValueError, RecursionError):
                document = None
            if not isinstance(document, dict) or (number > 1 and _KEY not in document):
                raise DataError(f"{self.path}, line {number} cannot be read; remove that line")
            if number > 1:
                self._rows[document.pop(_KEY)] = document
            elif document != about:
                self._refuse(document, about)
        return sum(map(len, lines))

    def _refuse(self, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        name = next(name for name in (*wanted, *stored) if stored.get(name) != wanted.get(name))
        was, now = (json.dumps(about.get(name)) for about in (stored, wanted))
        raise ConfigError(
            f"{self.path} holds another job: its {name} is {was[:80]}, not {now[:80]}; go on with the same "
            "settings, or name another file"
        )
