"""Files that a reader finds whole or not at all, whenever the writer is killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Where to write the file: beside its place, which it takes when the block ends without an error."""
    unfinished = path.with_name(f"{path.name}.tmp")
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
