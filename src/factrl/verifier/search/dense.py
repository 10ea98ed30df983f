"""Passages as vectors: a file of half floats, searched by comparing a query with all of them.

Row i of `vectors.f16` belongs to passage number i.  Exact and without an index of its own, so that adding is
appending; the time of a search grows with the number of passages, and docs/history.md says where that ends to
be useful.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from factrl.verifier.search.bm25 import Damaged

if TYPE_CHECKING:
    import numpy as np

NAME = "vectors.f16"
_BLOCK = 2048  # rows that are widened at a time: they stay in the processor's cache


class Embedder(Protocol):
    """Anything that turns texts into vectors; see `factrl.llm.local.embed`."""

    @property
    def identity(self) -> str:
        """Changes whenever the vectors would."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """One unit vector per text: float32 (N, dimension)."""
        ...


def encode(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """The vectors of some texts, checked, since wrong ones would only show as bad results.

    Raises:
        ValueError: another shape, or numbers that are not finite.
    """
    import numpy as np

    vectors = np.asarray(embedder.encode(list(texts)), dtype=np.float32)
    wanted = (len(texts), embedder.dimension)
    if vectors.shape != wanted or not np.isfinite(vectors).all():
        raise ValueError(f"{embedder.identity} gave vectors of shape {vectors.shape}, not finite {wanted}")
    return vectors


class Vectors:
    """The vectors of an index, mapped into memory.

    Args:
        folder: the index.
        rows: how many passages it has; rows behind them are of a commit that never happened.
        dimension: length of a vector.

    Raises:
        Damaged: the file holds fewer.
    """

    def __init__(self, folder: Path, rows: int, dimension: int) -> None:
        import numpy as np

        size = (folder / NAME).stat().st_size if (folder / NAME).exists() else 0
        if size < rows * dimension * 2:
            raise Damaged(f"{NAME} has {size:,} bytes instead of {rows * dimension * 2:,}")
        self._rows: Any = np.empty((0, dimension), np.float16)
        if rows:
            self._rows = np.memmap(folder / NAME, np.float16, "r", shape=(rows, dimension))

    def nearest(self, vector: np.ndarray, count: int, among: Sequence[int] | None = None) -> list[int]:
        """Numbers of the passages whose vectors are closest to `vector`, closest first.

        Args:
            among: only these passages.
        """
        import numpy as np

        if among is not None:
            numbers = np.asarray(among, dtype=np.int64)
            return [int(numbers[at]) for at in _best(_scores(self._rows[numbers], vector), count)]
        return [int(number) for number in _best(_scores(self._rows, vector), count)]


def append(folder: Path, rows: int, vectors: np.ndarray) -> None:
    """Put vectors behind the first `rows`, durably; whatever an interrupted build left there is dropped."""
    import numpy as np

    with (folder / NAME).open("r+b" if (folder / NAME).exists() else "w+b") as file:
        file.truncate(rows * vectors.shape[1] * 2)
        file.seek(0, os.SEEK_END)
        file.write(vectors.astype(np.float16).tobytes())
        file.flush()
        os.fsync(file.fileno())


def _scores(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The products of half-float rows with a vector, exactly, at five times numpy's speed of widening.

    A half float whose bits are moved 13 places is a single float 2^112 times too small; the sign, which is
    carried along, has to be cut out between.
    """
    import numpy as np

    scores = np.empty(len(rows), np.float32)
    wide = np.empty((min(_BLOCK, len(rows)), len(vector)), np.int32)
    larger = vector.astype(np.float32) * np.float32(2.0**112)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        part = wide[: len(block)]
        np.copyto(part, block.view(np.int16))
        part <<= 13
        part &= np.int32(-0x70002000)  # 0x8FFFE000: the sign, then exponent and fraction
        np.dot(part.view(np.float32), larger, out=scores[start : start + len(block)])
    return scores


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    import numpy as np

    if count < len(scores):
        top = np.argpartition(scores, -count)[-count:]
        return top[np.argsort(-scores[top], kind="stable")]
    return np.argsort(-scores, kind="stable")
