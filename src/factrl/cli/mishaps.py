"""What the user's disk does to a command, as one line; a bug of ours stays one, with its traceback."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from factrl.errors import ConfigError, FactrlError

_FULL = "free some space, then give the same command again"
_PLACE = "name another place, or change what is there"
# What a disk, its rights and names do.  Others, such as EINVAL and EBADF, are mistakes of the program.
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "name another place, or change its rights"),
    **dict.fromkeys(
        (errno.EISDIR, errno.ENOTDIR, errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENXIO), _PLACE
    ),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP), "give a shorter name"),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "raise the limit on open files: ulimit -n"),
    **dict.fromkeys((errno.EIO, errno.ENODEV, errno.ESTALE), "look after the disk or the mount"),
}
# Libraries that write through other languages keep only the words of the system.
_SAID = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "File too large": errno.EFBIG,
    "Read-only file system": errno.EROFS,
    "database or disk is full": errno.ENOSPC,
    "PytorchStreamWriter failed writing": errno.ENOSPC,
    "unexpected pos ": errno.ENOSPC,  # torch, when the end of its file could not be written
}


def mishap(error: BaseException) -> str | None:
    """The line for an error that the user's disk made, with its remedy; None for any other error."""
    if isinstance(error, FactrlError) or not isinstance(error, Exception):
        return None
    for cause in _chain(error):
        number = cause.errno if isinstance(cause, OSError) else None
        text = str(cause)
        if number not in _REMEDIES:
            number = next((number for words, number in _SAID.items() if words in text), None)
            text = f"a file could not be written whole: {text}"
        if number is not None:
            if isinstance(cause, OSError) and cause.strerror:
                name = cause.filename2 or cause.filename
                text = f"{name}: {cause.strerror}" if name is not None else cause.strerror
            return f"{' '.join(text.split())}; {_REMEDIES[number]}"
    return None


@contextmanager
def writing(option: str, path: Path | str) -> Iterator[None]:
    """Names the option whose file a block could not write.

    Raises:
        ConfigError: the disk, its rights or the name did not let it.
    """
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be written: {error.strerror or error}") from error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and those that led to it on purpose: what it was raised `from`."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__
