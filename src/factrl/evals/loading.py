"""The questions of a benchmark: from the folder `FACTRL_DATA` when the file is there, else from the hub."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from factrl.errors import ConfigError, DataError
from factrl.evals.catalogue import Benchmark, Source
from factrl.evals.readers import with_meta
from factrl.runs.data import documents
from factrl.runs.rows import read_rows
from factrl.types import Example

VARIABLE = "FACTRL_DATA"


@dataclass(frozen=True, slots=True)
class Questions:
    """What a benchmark asks.

    Attributes:
        examples: the questions, each with an id of its own.
        source: where the questions are from: a path under `FACTRL_DATA`, or a hub dataset.
    """

    examples: Sequence[Example]
    source: str


def load_questions(benchmark: Benchmark, *, limit: int | None = None, evidence: bool = False) -> Questions:
    """The questions of a benchmark, in its order.

    Args:
        limit: only the first so many.
        evidence: the questions must have documents; those few that have none are told so.

    Raises:
        DataError: the questions are not there, or cannot be read.
        ConfigError: evidence that the benchmark does not have.
    """
    rows, source = _read(benchmark, benchmark.test)
    rows = rows[:limit]
    if evidence:
        rows = _with_documents(benchmark, rows)
    return Questions([_lettered(benchmark, example) for example in rows], source)


def local_path(source: Source) -> Path | None:
    """The file under `FACTRL_DATA`, None when it is not there."""
    folder = os.environ.get(VARIABLE)
    path = Path(folder) / source.local if folder and source.local else None
    return path if path is not None and path.is_file() else None


def _read(benchmark: Benchmark, source: Source) -> tuple[list[Example], str]:
    path = Path(source.path) if source.path else local_path(source)
    if path is not None:
        rows = (benchmark.read_local(row) for row in read_rows(str(path)))
        if benchmark.keep is not None:
            column, value = benchmark.keep
            rows = (example for example in rows if example.meta.get(column) == value)
        named = source.path or f"{VARIABLE}/{source.local}"
    elif source.hub:
        rows = (benchmark.read(row) for row in read_rows(source.hub, source.split, source.subset))
        named = ", ".join(filter(None, (source.hub, source.subset, source.split)))
    else:
        raise DataError(
            f"{benchmark.name} has no dataset on the hub; put its questions into {source.local} under the "
            f"folder that the variable {VARIABLE} names, with the columns id, question and answers"
        )
    examples = list(_with_ids(rows))
    if not examples:
        raise DataError(f"{benchmark.name}: {named} has no questions")
    return examples, named


def _with_ids(examples: Iterator[Example]) -> Iterator[Example]:
    """Ids from the content where rows have none, so that they stay when rows are added or removed."""
    seen: set[str] = set()
    for example in examples:
        told = json.dumps([example.question, example.answers, example.meta.get("choices")])
        wanted = example.id or hashlib.sha256(told.encode()).hexdigest()[:16]
        name = next(
            name
            for name in itertools.chain([wanted], (f"{wanted}-{copy}" for copy in itertools.count(2)))
            if name not in seen
        )
        seen.add(name)
        yield example if name == example.id else dataclasses.replace(example, id=name)


def _with_documents(benchmark: Benchmark, examples: Sequence[Example]) -> list[Example]:
    if not any(example.evidence for example in examples):
        raise ConfigError(f"the questions of {benchmark.name} come without documents; leave --evidence out")
    return [
        with_meta(example, evidence=documents(example.evidence) or "(none was found)") for example in examples
    ]


def _lettered(benchmark: Benchmark, example: Example) -> Example:
    """Options in an order that the question's id fixes, as lines with letters."""
    if "choices" not in example.meta:
        return example
    order = list(range(len(example.meta["choices"])))
    random.Random(f"{benchmark.name} {example.id}").shuffle(order)
    choices = [example.meta["choices"][number] for number in order]
    right = [example.meta["right"][number] for number in order]
    if len(choices) > len(string.ascii_uppercase):
        raise DataError(f"{benchmark.name}: question {example.id!r} has {len(choices)} options, more than 26")
    options = "\n".join(
        f"{letter}. {text}" for letter, text in zip(string.ascii_uppercase, choices, strict=False)
    )
    gold = string.ascii_uppercase[right.index(1)]
    return with_meta(example, choices=choices, right=right, options=options, gold_letter=gold)
