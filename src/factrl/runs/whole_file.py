"""Files that a reader finds whole or not at all, whenever the writer is killed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
