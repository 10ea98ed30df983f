"""Passages of an index put into the rows of questions, for prompts that show documents (`{evidence}`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from factrl.runs.progress import Progress
from factrl.types import Example
from factrl.verifier.search import Index


def retrieve(
    rows: Sequence[Mapping[str, Any]], examples: Sequence[Example], index: Index, k: int
) -> list[dict[str, Any]]:
    """The rows with the `k` passages that bear most on their questions as `evidence`.

    Rows that come with evidence keep it, and all other columns stay as they are.

    Args:
        rows: rows of a dataset.
        examples: what was read from them, in the same order.
        k: passages of a row at most.  A prompt shows as many of them as fit (`factrl.runs.data.documents`).
    """
    written: list[dict[str, Any]] = []
    with Progress("retrieve", len(examples)) as progress:
        for row, example in zip(rows, examples, strict=True):
            found = [] if example.evidence else index.search(example.question, k)
            evidence = [{"title": p.title, "text": p.text, "source": p.source} for p in found]
            written.append({**row, **({} if example.evidence else {"evidence": evidence})})
            progress.advance(1)
    return written
