"""Datasets and prompts: which columns are recognised, and what every broken dataset is told."""

from __future__ import annotations

import gzip
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow
import pyarrow.parquet
import pytest

from factrl.errors import ConfigError, DataError, MissingExtra
from factrl.runs.data import load_examples, read_completion, render_prompt
from factrl.types import Example, Passage

ROW = {"question": "Who wrote Ulysses?", "answers": ["James Joyce"]}


def write(path: Path, rows: list[Any]) -> Path:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(lines, encoding="utf-8")
    return path


def load(tmp_path: Path, *rows: Any, **options: Any) -> list[Example]:
    return load_examples(write(tmp_path / "data.jsonl", list(rows)), **options)


def refusal(tmp_path: Path, *rows: Any, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(tmp_path, *rows, **options)
    return str(caught.value).replace(f"{tmp_path}/", "")


# Columns


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"question": "When?", "answers": "March 13, 2018", "title": "Justice League"},  # KnowRL
            Example("When?", ("March 13, 2018",), topic="Justice League"),
        ),
        (
            {
                "interaction_id": "a1",
                "query": "who?",
                "answer": "Ann",
                "alt_ans": ["Anne", "Ann"],
                "domain": "x",
            },
            Example("who?", ("Ann", "Anne"), "a1", meta={"domain": "x"}),  # TruthRL, evaluation
        ),
        (
            {  # TruthRL, training: verl's row
                "prompt": [{"role": "user", "content": "long"}],
                "reward_model": {
                    "style": "rule",
                    "ground_truth": {"problem": "who?", "target": ["Ann", "Anne"], "out_of_knowledge": True},
                },
            },
            Example("who?", ("Ann", "Anne"), ook=True),
        ),
        ({"question": "Q", "target": "a", "false_premise": True}, Example("Q", ("a",), false_premise=True)),
        ({"question": " Q\n", "gold": [" a ", None, float("nan"), "a"], "ook": None}, Example("Q", ("a",))),
    ],
)
def test_usual_columns_are_recognised(tmp_path: Path, row: dict[str, Any], expected: Example) -> None:
    (example,) = load(tmp_path, row)
    for name in ("question", "answers", "topic", "ook", "false_premise"):
        assert getattr(example, name) == getattr(expected, name), name
    assert example.id == (expected.id or example.id)
    for column, value in expected.meta.items():
        assert example.meta[column] == value


def test_documents_in_a_prompt_are_numbered() -> None:
    example = Example("Where?", evidence=(Passage("It is in Italy.", "Rome"), Passage("Two {braces}")))
    documents = ["Document [1]: Rome\nIt is in Italy.", "Document [2]: Two {braces}"]
    shown = "\n".join(f"<DOC>\n{document}\n</DOC>" for document in documents)
    assert render_prompt(example, "{question}\n{evidence}") == f"Where?\n{shown}"
    with pytest.raises(ConfigError, match="no column"):
        render_prompt(Example("Where?"), "{evidence}")


def test_columns_can_be_named_also_nested_ones(tmp_path: Path) -> None:
    row = {"q": "Q", "a": {"aliases": ["x", "y"]}, "meta": {"topic": "novels"}, "id": "same"}
    columns = {"question": "q", "answers": "a.aliases", "topic": "meta.topic", "id": ""}
    first, second = load(tmp_path, row, {**row, "q": "R"}, columns=columns)
    assert (first.question, first.answers, first.topic) == ("Q", ("x", "y"), "novels")
    assert first.id != second.id
    assert first.meta["id"] == "same"


def test_ids_follow_the_content(tmp_path: Path) -> None:
    one, two, copy = load(tmp_path, ROW, {**ROW, "question": "Who?"}, ROW)
    assert copy.id == f"{one.id}-2"
    assert [example.id for example in load(tmp_path, {**ROW, "question": "Who?"}, ROW)] == [two.id, one.id]
    assert load(tmp_path, {**ROW, "answers": ["Joyce"]})[0].id != one.id


def test_limit_reads_no_further(tmp_path: Path) -> None:
    path = write(tmp_path / "data.jsonl", [ROW, {**ROW, "question": "Who?"}])
    with path.open("a") as file:
        file.write("broken\n")
    assert len(load_examples(path, limit=2)) == 2
    with pytest.raises(DataError, match="line 3 is not JSON"):
        load_examples(path, limit=3)


# Refusals


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([], "data.jsonl has no rows"),
        (
            [{"frage": "Q", "answers": "a"}],
            "data.jsonl has no column for the question; columns: frage, answers",
        ),
        ([{**ROW, "question": None}], "usable as the question in its column 'question'"),
        (
            [{**ROW, "id": "a"}, {"question": "Q", "answers": [], "id": "b"}, {"question": "Q", "id": "c"}],
            "data.jsonl: no answers in 2 of 3 rows, first in row 2 (id b), column 'answers'",
        ),
        ([{**ROW, "id": i} for i in "xyx"], "data.jsonl: rows 1 and 3 have the same id 'x'"),
        ([ROW, ["Q", "a"]], "data.jsonl: row 2 is a list, not an object with columns"),
        ([ROW, {**ROW, "question": 5}], "data.jsonl, row 2: question is a int, not text"),
        (
            [{**ROW, "answers": {"text": ["a"], "start": [0]}}],
            "data.jsonl, row 1: answers is \"{'text': ['a']",
        ),
        ([{**ROW, "ook": "maybe"}], "data.jsonl, row 1: ook is 'maybe', not true or false"),
        ([{**ROW, "evidence": 5}], "data.jsonl, row 1: evidence is '5', not a text"),
        ([{**ROW, "evidence": [["t", ["P."]]]}], "data.jsonl, row 1: evidence is "),
        ([{**ROW, "evidence": [{"passage": "P."}]}], "data.jsonl, row 1: evidence is \"{'passage': 'P.'}\""),
        ([{**ROW, "checklist": [{"fact": "x"}]}], "data.jsonl, row 1: checklist is "),
        ([{**ROW, "answerable": "maybe"}], "data.jsonl, row 1: answerable is 'maybe', not true or false"),
    ],
)
def test_broken_rows(tmp_path: Path, rows: list[Any], name: str) -> None:
    assert name in refusal(tmp_path, *rows)


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"question": "qestion"}, "no column 'qestion' (data.columns.question); did you mean 'question'?"),
        ({"qestion": "q"}, "data.columns has no 'qestion'; did you mean 'question'?"),
        ({"evidence": "e"}, "row 1: e is "),
    ],
)
def test_wrong_columns(tmp_path: Path, columns: dict[str, str], name: str) -> None:
    assert name in refusal(tmp_path, {**ROW, "e": [{"title": "t"}]}, columns=columns)


# Formats


CUT = gzip.compress(b'{"question": "Q", "answers": "a"}\n' * 99, mtime=0)[:-20]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("d.jsonl", b'{"question": "Q"\n', "line 1"),
        ("d.jsonl", b'{"question": "\xff"}', "UTF-8"),
        ("d.jsonl.gz", CUT, "cannot be read"),
        ("d.json", b'{"question": "Q"}', "'records'"),
        ("d.parquet", b"not parquet", "parquet"),
        ("d.txt", b"question,answers\nQ,a\n", "csv"),
        ("d.json", b'{"question": "Q"}\n{"question": "R"}\n', "jsonl"),
        ("d.csv", b"question;answers\nQ;a\n", "commas"),
        ("d.csv", b"sep=,\nquestion,answers\n", "'sep='"),
        ("d.csv", b"question,answers\nQ,a,b\n", "line 2"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}.*{told}"):
        load_examples(tmp_path / name)


def test_all_formats_hold_the_same(tmp_path: Path) -> None:
    rows = [{**ROW, "id": str(number)} for number in range(3)]
    text = write(tmp_path / "d.jsonl", rows).read_bytes()
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(text))
    (tmp_path / "d.json").write_text(json.dumps(rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet")
    loaded = [load_examples(file) for file in sorted(tmp_path.iterdir())]
    assert len(loaded) == 4
    assert all(examples == loaded[0] for examples in loaded)
    assert [example.id for example in loaded[0]] == ["0", "1", "2"]


def test_folders_have_splits_and_parts(tmp_path: Path) -> None:
    write(tmp_path / "test.jsonl", [{**ROW, "id": "t"}])
    write(tmp_path / "train-00001-of-00002.jsonl", [{**ROW, "id": "b"}])
    write(tmp_path / "train-00000-of-00002.jsonl", [{**ROW, "id": "a"}])
    write(tmp_path / "training_notes.jsonl", [{**ROW, "id": "n"}])
    assert [example.id for example in load_examples(tmp_path)] == ["a", "b"]
    assert [example.id for example in load_examples(tmp_path, split="test")] == ["t"]
    with pytest.raises(DataError, match=r"'dev'; .*test\.jsonl, train-00000"):
        load_examples(tmp_path, split="dev")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="'train'"):
        load_examples(tmp_path / "empty")


def test_missing_files_name_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "questions.jsonl", [ROW])
    with pytest.raises(DataError, match=r"question\.jsonl .*'questions\.jsonl'"):
        load_examples(tmp_path / "question.jsonl")
    with pytest.raises(DataError, match=r"\./nowhere/at-all does not exist$"):
        load_examples("./nowhere/at-all")


# The hub


def test_hub_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    load_dataset = Mock(return_value=[ROW])
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    (example,) = load_examples("owner/name", split="validation", subset="hard")
    assert example.answers == ("James Joyce",)
    load_dataset.assert_called_once_with("owner/name", "hard", split="validation")


@pytest.mark.parametrize("error", ["builtins.ConnectionError", "datasets.exceptions.DatasetsError"])
def test_hub_failures_say_what_to_do(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    datasets = pytest.importorskip("datasets")
    failure = pkgutil.resolve_name(error)("the cause\nand more")
    monkeypatch.setattr(datasets, "load_dataset", Mock(side_effect=failure))
    with pytest.raises(DataError, match=r"owner/name .* \(split 'train', subset None\): the cause; "):
        load_examples("owner/name")


def test_without_the_hub_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtra, match=r"'.\[eval\]'"):
        load_examples("owner/name")


def test_an_empty_column_of_a_csv_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("query,question,answer,gold\nWho?,,,Ada\nWhere?,,,Rome\n")
    assert [one.answers for one in load_examples(tmp_path / "d.csv")] == [("Ada",), ("Rome",)]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("Rome", "Rome"),
        ('["Rome"]', '["Rome"]'),
        ([{"role": "user", "content": "Paris?"}, {"role": "assistant", "content": "Rome"}], "Rome"),
        ([{"role": "user", "content": "Paris?"}], None),
        (None, None),
        (float("nan"), None),
    ],
)
def test_what_a_policy_wrote(cell: Any, text: str | None) -> None:
    assert read_completion(cell, "row 1") == text
    if isinstance(cell, list):
        assert read_completion(json.dumps(cell), "row 1", spelled=True) == text
        assert read_completion(json.dumps(cell), "row 1") == json.dumps(cell)  # a policy may write that


# Prompts

EXAMPLE = Example("Is {x} {{1}}?", ("yes",), "e1", "sets", meta={"year": 1999, "docs": ["d"], "note": None})


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{question}", "Is {x} {{1}}?"),
        ("{topic}, {year}: {question} {question}", "sets, 1999: Is {x} {{1}}? Is {x} {{1}}?"),
        (r"Answer in \boxed{{}}: {question}", r"Answer in \boxed{}: Is {x} {{1}}?"),
    ],
)
def test_prompts(template: str, prompt: str) -> None:
    assert render_prompt(EXAMPLE, template) == prompt


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{qestion}", "'question'"),
        ("{answers}", "answers"),
        ("{docs}", "docs"),
        ("{note}", "note"),
        ("{question.__class__}", "__class__"),
        ("{question", "{{ and }}"),
    ],
)
def test_wrong_prompts(template: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^data.prompt: .*{name}"):
        render_prompt(EXAMPLE, template)
