"""The benchmarks of `benchmarks.toml`, a file of the user's own as one more, and their questions.

Every row becomes an `Example` whose `meta` holds, in one spelling for all benchmarks:

    answerable     False where the right reply is to decline (MuSiQue)
    choices        the options of a multiple choice, with `right`, 1 or 0 per option; `options`, their lines
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
import random
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from factrl.errors import ConfigError, DataError, MissingExtra, nearest
from factrl.runs.config import read_toml
from factrl.runs.data import (
    ColumnName,
    load_examples,
    native,
    read_flag,
    to_example,
    unpacked,
)
from factrl.runs.rows import READERS, Row, read_rows
from factrl.runs.settings import DataSettings
from factrl.types import Example

Kind = Literal["short", "choice", "reasoning", "long"]
VARIABLE = "FACTRL_DATA"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A row of `benchmarks.toml`, which explains the fields; or a file of the user's own, at `path`."""

    name: str
    kind: Kind
    about: str
    licence: str
    prompt: str
    max_tokens: int
    hub: str = ""
    subset: str | None = None
    split: str = "test"
    local: str = ""
    path: str = ""
    columns: Mapping[ColumnName, str] = field(default_factory=dict)
    read: str = ""
    options: str = ""
    keep: tuple[str, str] | None = None
    recall_at: int = 32


@cache
def _table() -> Mapping[str, Any]:
    return read_toml(Path(__file__).parent / "benchmarks.toml")


def template(name: str) -> str:
    """One of the prompts of the table."""
    return _table()["prompts"][name]


def groups() -> Mapping[str, Sequence[str]]:
    """One name for several benchmarks."""
    return _table()["groups"]


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """Every benchmark by name."""
    by_name = {}
    for name, row in _table()["benchmarks"].items():
        fields = {**_table()["kinds"][row["kind"]], "local": f"{name}/test.jsonl", **row}
        by_name[name] = Benchmark(name, **{**fields, "prompt": template(fields["prompt"])})
    return by_name


def own_file(path: str, data: DataSettings, *, long: bool = False) -> Benchmark:
    """A file of the user's own as a benchmark of the file's name; it is asked as the settings say.

    Args:
        data: says which split and columns.
        long: its questions ask for long answers.
    """
    kind: Kind = "long" if long else "short"
    about = f"{'requests' if long else 'questions'} of {path}"
    where = {"subset": data.subset, "split": data.eval_split, "path": path, "columns": data.columns}
    tokens = _table()["kinds"][kind]["max_tokens"]
    return Benchmark(Path(path).stem, kind, about, "", template("bare"), tokens, **where)


def find(names: Iterable[str]) -> list[Benchmark]:
    """The benchmarks with these names, groups resolved, each once.

    >>> [benchmark.kind for benchmark in find(["simpleqa"])]
    ['short']

    Raises:
        ConfigError: there is no such benchmark.
    """
    by_name: dict[str, Benchmark] = {}
    for name in names:
        if name not in benchmarks() and name not in groups():
            known = [*benchmarks(), *groups()]
            raise ConfigError(
                f"no benchmark is called {name!r}{nearest(name, known)}; there are: {', '.join(known)}; "
                "or give a file of answers"
            )
        for one in groups().get(name, (name,)):
            by_name[one] = benchmarks()[one]
    return list(by_name.values())


# -- Questions ---------------------------------------------------------------------------------------


def load_questions(benchmark: Benchmark, *, limit: int | None = None) -> tuple[list[Example], str]:
    """The questions of a benchmark, in its order, each with an id of its own.

    Args:
        limit: only the first so many.

    Returns:
        The questions, and where they are from: a path under `FACTRL_DATA`, or a hub dataset.

    Raises:
        DataError: the questions are not there, or cannot be read.
    """
    if source := benchmark.path:
        options = {"split": benchmark.split, "subset": benchmark.subset, "columns": benchmark.columns}
        rows = load_examples(source, limit=limit, require_answers=False, **options)
        bare = [one for one in rows if not (one.answers or one.false_premise or is_hopeless(one))]
        if bare and benchmark.kind == "short" and not any(one.answers for one in rows):
            others = dict.fromkeys(name for one in rows for name in one.meta)
            raise DataError(
                f"{source}: no column with accepted answers was found{nearest('answers', others)}; columns "
                f"beside the question: {', '.join(map(repr, others)) or 'none'}; say which one it is with "
                "data.columns.answers=..., or fill it"
            )
        if bare and benchmark.kind == "short":
            raise DataError(
                f"{source}: {len(bare)} of {len(rows)} rows have no accepted answer, first "
                f"example {bare[0].id!r} ({bare[0].question[:80]!r}); fill them or leave the rows out"
            )
    else:
        rows, source = _read(benchmark)
        rows = rows[:limit]
    return [_lettered(benchmark, example) for example in rows], source


def is_hopeless(example: Example) -> bool:
    """Whether nobody can answer it."""
    return example.meta.get("answerable") is False


def local_path(benchmark: Benchmark) -> Path | None:
    """Its file under `FACTRL_DATA`, of whatever format, None when it is not there."""
    folder = os.environ.get(VARIABLE)
    if not folder or not benchmark.local:
        return None
    name = Path(folder) / benchmark.local.partition(".")[0]
    return next((path for end in READERS if (path := name.with_name(name.name + end)).is_file()), None)


def _read(benchmark: Benchmark) -> tuple[list[Example], str]:
    path = local_path(benchmark)
    if path is not None:
        named = f"{VARIABLE}/{path.relative_to(os.environ[VARIABLE])}"
        rows = list(read_rows(str(path)))
        as_released = _is_released(benchmark, rows)
        chosen = list(map(partial(_released, benchmark) if as_released else _plain, rows))
        if benchmark.keep is not None and not as_released:
            column, value = benchmark.keep
            chosen = [(row, example) for row, example in chosen if example.meta.get(column) == value]
    elif benchmark.hub:
        named = ", ".join(filter(None, (benchmark.hub, benchmark.subset, benchmark.split)))
        try:
            rows = list(read_rows(benchmark.hub, benchmark.split, benchmark.subset))
        except (DataError, MissingExtra) as error:
            raise DataError(f"{error}; or {_place(benchmark)}") from error
        chosen = [_released(benchmark, row) for row in rows]
    else:
        raise DataError(f"{benchmark.name} has no dataset on the hub; {_place(benchmark)}")
    examples = list(_with_ids(_with_choices(benchmark.options, row, example) for row, example in chosen))
    if not examples:
        raise DataError(f"{benchmark.name}: {named} has no questions")
    return examples, named


def _place(benchmark: Benchmark) -> str:
    released = ", or as they were released" if benchmark.hub else ""
    return (
        f"put its questions into {benchmark.local} (or .json, .csv, .parquet) under the folder that the "
        f"variable {VARIABLE} names, with the columns id, question and answers{released}"
    )


def _is_released(benchmark: Benchmark, rows: Sequence[Row]) -> bool:
    """Whether a file has the columns of the dataset on the hub; the plain schema has `answers` or `meta`."""
    canonical = {"answers", "meta"} - set(benchmark.columns.values())
    return bool((benchmark.read or benchmark.columns) and rows and not canonical & set(rows[0]))


def _released(benchmark: Benchmark, row: Row) -> tuple[Row, Example]:
    try:
        row = _UPSTREAM.get(benchmark.read, dict)(row)
    except KeyError as error:
        shown = ", ".join(map(repr, row))
        raise DataError(f"{benchmark.name}: a row has no {error}; its columns: {shown}") from error
    except DataError as error:
        raise DataError(f"{benchmark.name}: {error}") from error
    return row, to_example(row, benchmark.columns)


def _plain(row: Row) -> tuple[Row, Example]:
    """A row of the plain schema; a `prompt` stands for the question where there is one."""
    nested = row.get("meta")
    return row, _with_meta(to_example(row), **(nested if isinstance(nested, Mapping) else {}))


def _with_ids(examples: Iterator[Example]) -> Iterator[Example]:
    """Ids from the content where rows have none, so that they stay when rows are added or removed."""
    seen: set[str] = set()
    for example in examples:
        content = json.dumps([example.question, example.answers, example.meta.get("choices")])
        wanted = example.id or hashlib.sha256(content.encode()).hexdigest()[:16]
        copies = (f"{wanted}-{copy}" for copy in itertools.count(2))
        name = next(name for name in itertools.chain([wanted], copies) if name not in seen)
        seen.add(name)
        yield dataclasses.replace(example, id=name)


def _with_choices(options: str, row: Row, example: Example) -> Example:
    """The example with the options of its row; the true ones are accepted where no answer is.

    Raises:
        DataError: fewer than two options, an empty one, or none that is right.
    """
    if not options:
        return example
    if options == "pair":
        choices, labels = [example.answers[0], str(row.get("hallucinated_answer") or "")], [1, 0]
    else:
        part = row.get(options)
        if not isinstance(part, Mapping):
            raise DataError(f"row {row.get('id')!r} has no column {options!r} with choices and labels")
        choices, labels = list(part["choices"]), part.get("labels")
        labels = labels or [number == part.get("label") for number in range(len(choices))]
    right = [int(bool(label)) for label in labels]
    if len(choices) < 2 or len(choices) != len(right) or not any(right) or not all(map(str.strip, choices)):
        raise DataError(f"{example.question[:80]!r} needs at least two options, one of them right")
    true = tuple(text for text, one in zip(choices, right, strict=True) if one)
    example = dataclasses.replace(example, answers=example.answers or true)
    return _with_meta(example, choices=choices, right=right)


def _lettered(benchmark: Benchmark, example: Example) -> Example:
    """Options in an order that the question's id fixes, as lines, with letters where one is asked for."""
    if benchmark.kind != "choice":
        return example
    pairs = list(zip(example.meta["choices"], example.meta["right"], strict=True))
    random.Random(f"{benchmark.name} {example.id}").shuffle(pairs)
    choices, right = map(list, zip(*pairs, strict=True))
    if len(choices) > len(string.ascii_uppercase):
        raise DataError(f"{benchmark.name}: question {example.id!r} has {len(choices)} options, more than 26")
    lines = "\n".join(f"{a}. {one}" for a, one in zip(string.ascii_uppercase, choices, strict=False))
    return _with_meta(example, choices=choices, right=right, options=lines)


def plain(cell: Any) -> str:
    """A cell as text to compare: white space does not count, and 1 and 1.0, as data frames write it, are one.

    >>> plain(" 2001.0"), plain(2001), plain(None)
    ('2001', '2001', '')
    """
    value = native(cell)
    return re.sub(r"^(-?\d+)\.0$", r"\1", " ".join(("" if value is None else str(value)).split()))


def _with_meta(example: Example, **more: Any) -> Example:
    return dataclasses.replace(example, meta={**example.meta, **more})


# -- Upstream rows as rows with the usual columns ------------------------------------------------------


def paragraphs(row: Row, at: str = "the row") -> Row:
    """HotpotQA and 2WikiMultiHopQA: paragraphs as two lists, `title` and `sentences`, or as a list of such
    tables or of `[title, sentences]`, also in JSON, and where the row says so, which its answer needs.

    Raises:
        DataError: the row has none of these forms, or no question or answer.
    """
    for name in ("question", "answer"):
        if name not in row:
            raise DataError(f"{at} has no {name}; columns: {', '.join(row)}")
    gold = {title for title, _ in _titled(row, "supporting_facts", ("sent_id",), at)}
    evidence = []
    for title, body in _titled(row, "context", ("sentences", "content"), at):
        texts = [body] if isinstance(body, str) else body
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise DataError(f"{at}: context has {str(body)[:80]!r} under {title!r}, not a list of sentences")
        supports = title in gold or not gold
        evidence.append({"title": title, "text": "".join(texts), "is_supporting": supports})
    name = row.get("id") or row.get("_id")
    return {"question": row["question"], "answers": row["answer"], "id": name, "evidence": evidence}


def _titled(row: Row, column: str, names: Sequence[str], at: str) -> list[Any]:
    """Pairs of a title and what is beside it, in a table under one of these names."""

    def pair(table: Mapping[str, Any]) -> list[Any]:
        return [table.get("title"), next((table[name] for name in names if name in table), None)]

    cell = unpacked(row.get(column)) or []
    found = cell if isinstance(cell, list) else [None]
    if isinstance(cell, Mapping) and all(isinstance(one, list) for one in pair(cell)):
        found = [*itertools.zip_longest(*pair(cell))]
    pairs = [pair(one) if isinstance(one, Mapping) else one for one in found]
    if not all(isinstance(one, (list, tuple)) and len(one) == 2 and isinstance(one[0], str) for one in pairs):
        raise DataError(
            f"{at}: {column} is {str(cell)[:80]!r}; write a list of [title, {names[0]}], or a table of two "
            f"lists of equal length, title and {names[0]}"
        )
    return pairs


def _musique(row: Row) -> Row:
    """Aliases are accepted; in the full set some questions cannot be answered."""
    columns = {name: row.get(name) for name in ("id", "question", "answerable")}
    answers = [row["answer"], *_list(row.get("answer_aliases"), "answer_aliases")]
    paragraphs = _list(row.get("paragraphs"), "paragraphs")
    evidence = [{"title": part["title"], "text": part["paragraph_text"]} for part in paragraphs]
    hopeless = read_flag(columns["answerable"], "answerable") is False
    return {**columns, "answers": [] if hopeless else answers, "evidence": evidence}


def _list(cell: Any, column: str) -> list[Any]:
    """A cell's list, which is a text in a .csv; nothing is an empty one."""
    value = unpacked(cell) or []
    if not isinstance(value, list):
        raise DataError(f"{column} is {str(value)[:80]!r}, not a list")
    return value


_UPSTREAM: Mapping[str, Callable[[Row], Row]] = {
    "hotpotqa": paragraphs,
    "musique": _musique,
    "crag": lambda row: {**row, "false_premise": row.get("question_type") == "false_premise"},
    "truthfulqa": lambda row: {
        "question": row["question"],
        "answers": [row["best_answer"], *_list(row["correct_answers"], "correct_answers")],
    },
    "gpqa": lambda row: {
        "question": row["Question"],
        "mc1": {
            "choices": [row["Correct Answer"], *(row[f"Incorrect Answer {n}"] for n in (1, 2, 3))],
            "labels": [1, 0, 0, 0],
        },
    },
    "longwiki": lambda row: {
        "question": row["title"],
        "id": row["pageid"],
        "evidence": [{"title": row["title"], "text": row["markdown"]}],
    },
}
