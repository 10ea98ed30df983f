"""Search on real passages: the answers of public questions are among the first five (FACTRL_DATA)."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tantivy")

from factrl.text.answers import normalize_answer
from factrl.types import Passage
from factrl.verifier.search import Index

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif("FACTRL_DATA" not in os.environ, reason="needs FACTRL_DATA"),
]
QUESTIONS = 150


def rows(name: str) -> Iterator[dict[str, Any]]:
    path = Path(os.environ["FACTRL_DATA"]) / name
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


@pytest.fixture(scope="module")
def wanted() -> list[dict[str, Any]]:
    """Questions with an answer that can be searched for, and the evidence that came with them."""
    found = (r for r in rows("hotpotqa_2wiki_eval/eval.jsonl") if r["evidence"])
    return list(
        islice((r for r in found if normalize_answer(r["answers"][0]) not in ("yes", "no")), QUESTIONS)
    )


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The first passages of the corpus, which are not made for these questions, and those that are."""
    folder = tmp_path_factory.mktemp("data")
    with (folder / "slice.jsonl").open("w", encoding="utf-8") as out:
        for number, row in enumerate(rows("evidence_corpus/passages.jsonl.gz")):
            if number < 4_000 or row["source"] == "wikipedia-hotpotqa-fspo":
                out.write(json.dumps(row) + "\n")
    return Index.build(folder / "kb", [folder / "slice.jsonl"])


def hits(search: Any, questions: list[dict[str, Any]]) -> float:
    def is_hit(found: list[Passage], answers: list[str]) -> bool:
        texts = [f" {normalize_answer(f'{passage.title} {passage.text}')} " for passage in found]
        return any(f" {normalize_answer(answer)} " in text for answer in answers for text in texts)

    return sum(is_hit(search(row["question"], 5), row["answers"]) for row in questions) / len(questions)


def test_the_answer_is_among_five_passages(index: Index, wanted: list[dict[str, Any]]) -> None:
    found = hits(index.search, wanted)
    random = hits(lambda query, k: index.search("american film", k), wanted)
    assert found > 0.75
    assert random < 0.1
