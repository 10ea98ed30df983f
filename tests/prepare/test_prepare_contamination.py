"""Questions of evaluation sets are found in whatever spelling, and nothing else is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import DataError
from factrl.prepare import Sieve, normalised
from factrl.types import Example


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


@pytest.mark.parametrize(
    "spelling",
    [
        "Who wrote the Iliad?",
        "Who wrote Iliad ?",
        "WHO WROTE AN ILIAD!",
        "¿Who wrote the Iliad?",
        "Ｗho wrote\u00a0the\u200b Iliad…",
    ],
)
def test_one_question_in_many_spellings(spelling: str) -> None:
    assert normalised(spelling) == "who wrote iliad"


def test_files_folders_and_columns_of_other_names(tmp_path: Path) -> None:
    write(
        tmp_path / "sets" / "deep" / "a.jsonl.gz", {"query": "Who wrote the Iliad?"}, {"claim": "no question"}
    )
    write(tmp_path / "sets" / "b.jsonl", {"prompt": "When was Oslo founded?"}, {"prompt": "..."})
    (tmp_path / "sets" / "SOURCE.json").write_text("{}")
    sieve = Sieve.read([tmp_path / "sets", write(tmp_path / "c.jsonl", {"problem": "1 + 1 = ?"})])
    assert set(sieve.known) == {"who wrote iliad", "when was oslo founded", "1 1"}
    assert (sieve.found_in("when was OSLO founded") or "").endswith("b.jsonl")
    assert sieve.found_in("???") is None  # nothing is left of it, and nothing is no question


def test_found_questions_are_dropped_and_told(tmp_path: Path) -> None:
    file = write(tmp_path / "e.jsonl", *({"question": f"question {n}"} for n in (0, 2, 3, 5, 9)))
    kept, report = Sieve.read([file]).sift([Example(f"Question {n}?", id=str(n)) for n in range(6)])
    assert [example.id for example in kept] == ["1", "4"]
    assert report == {"found": 4, "of": 6, "files": {str(file): 4}, "ids": ["0", "2", "3", "5"]}


def test_a_set_without_questions_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"claims\.jsonl holds no question; columns: claim; name"):
        Sieve.read([write(tmp_path / "claims.jsonl", {"claim": "Oslo is old."})])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty holds no \.jsonl"):
        Sieve.read([tmp_path / "empty"])
    with pytest.raises(DataError, match="does not exist"):
        Sieve.read([tmp_path / "none.jsonl"])
