"""What is read as a claim, and where a sentence ends: texts as chat models write them, frozen on 2026-11-27
before the rules were changed (tests/fixtures/read_as_claims.jsonl).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from factrl.runs.rows import read_rows
from factrl.text.sentences import sentences
from factrl.types import Passage
from factrl.verifier import open_verifier

ROWS = [dict(row) for row in read_rows(str(Path(__file__).parents[1] / "fixtures" / "read_as_claims.jsonl"))]
EVIDENCE = [Passage("The bridge opened in 1932.", "Bridge")]


def read(row: dict[str, Any]) -> bool:
    """Whether a text is read as the row says: its sentences, or what is judged of it and what is not."""
    text = row["text"]
    if "sentences" in row:
        return [text[one.start : one.end] for one in sentences(text)] == row["sentences"]
    report = open_verifier("local", judge="weak")(text, evidence=EVIDENCE)
    judged = [check.claim.text for check in report.checks if check.verdict is not None]
    return all(any(said in claim for claim in judged) for said in row["checked"]) and not any(
        said in claim for said in row["not"] for claim in judged
    )


@pytest.mark.parametrize("kind", dict.fromkeys(row["kind"] for row in ROWS))
def test_texts_are_read_as_a_person_would(kind: str) -> None:
    rows = [row for row in ROWS if row["kind"] == kind]
    assert [row["text"] for row in rows if not read(row)] == []
