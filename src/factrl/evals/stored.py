"""Answers that exist already: a file of completions, matched to a benchmark's questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factrl.errors import DataError, Unscored, nearest
from factrl.evals.asking import Texts
from factrl.evals.benchmark import Benchmark
from factrl.runs.rows import read_rows
from factrl.types import Completion, Example

_COLUMNS = ("completion", "response", "prediction", "output")


def stored_texts(path: str | Path, column: str = "") -> Callable[[Benchmark, Sequence[Example]], Texts]:
    """A function that finds the answers to a benchmark's questions in a file.

    A row belongs to a question by its `question`, of equal ones by its `id` too, and without a `question` by
    its `id`; a column `benchmark`, where there is one, must agree.  Several rows of one question are its
    samples, in the order of the file.  A question without a row is masked.

    Args:
        path: .jsonl, .jsonl.gz, .json or .parquet; `samples.jsonl` of an earlier evaluation is one.
        column: of the completions; by default `completion`, `response`, `prediction` or `output`.

    Raises:
        DataError: the file or the column is not there.
    """
    rows = list(read_rows(str(path)))
    present = dict.fromkeys(name for row in rows for name in row)
    chosen = column or next((name for name in _COLUMNS if name in present), "")
    if chosen not in present:
        raise DataError(
            f"{path} has no column {column or 'for the completions'}{nearest(column, present)}; columns: "
            f"{', '.join(present) or 'none'}; name it with --column NAME"
        )

    def find(benchmark: Benchmark, examples: Sequence[Example]) -> Texts:
        both: dict[tuple[str | None, str | None], list[Any]] = {}
        for row in rows:
            if row.get("benchmark") in (None, benchmark.name):
                name, question = (None if row.get(k) is None else str(row[k]) for k in ("id", "question"))
                for key in {(name, question), (None, question)}:
                    both.setdefault(key, []).append(row.get(chosen))
        texts: Texts = {}
        for example in examples:
            keys = ((example.id, example.question), (None, example.question), (example.id, None))
            found = next((both[key] for key in keys if key in both), [None])
            for number, text in enumerate(found):
                texts[example.id, number] = (
                    Completion(text)
                    if isinstance(text, str)
                    else Unscored("no_completion", "the file has no completion here")
                )
        if all(isinstance(text, Unscored) for text in texts.values()):
            raise DataError(f"{path} answers none of the {len(examples)} questions of {benchmark.name}")
        return texts

    return find


def known_questions(path: str | Path, least: float = 0.5) -> dict[str, bool]:
    """Whether a base model gets a question right, from a file that `factrl probe` wrote.

    Args:
        path: rows with `pass_rate`, the share of right samples, or `ook`, that none was right.
        least: pass rate from which a question counts as known.

    Returns:
        By text of the question, of rows without one by id; questions whose probe is undecided are left out.

    Raises:
        DataError: the file is not there or has neither column.
    """
    known: dict[str, bool] = {}
    for row in read_rows(str(path)):
        knows = _knows(row, least)
        key = row.get("id") if row.get("question") is None else row["question"]
        if key is not None and knows is not None:
            known[str(key)] = knows
    if not known:
        raise DataError(f"{path} has no row with pass_rate or ook; give a file that factrl probe wrote")
    return known


def _knows(row: Mapping[str, Any], least: float) -> bool | None:
    rate, ook = row.get("pass_rate"), row.get("ook")
    if isinstance(rate, (int, float)) and rate == rate:
        return rate >= least
    return None if ook is None else not ook
