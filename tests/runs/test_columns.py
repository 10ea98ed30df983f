"""Columns as other people's tools write them: each is read the same by every host, or refused by its name."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import factrl as fx
from factrl.bridges.verl import compute_score
from factrl.errors import ConfigError, DataError
from factrl.runs.data import load_examples, to_example
from factrl.types import Completion

NAMES = ["Warsaw", "Warszawa"]
TRIVIA = {
    "value": "Warsaw",
    "aliases": ["Warszawa"],
    "normalized_value": "warsaw",
    "normalized_aliases": ["warszawa"],
    "matched_wiki_entity_name": "",
    "type": "WikipediaEntity",
}

# What a cell of answers holds, and the answers that are read from it, or what the refusal says.
ANSWERS: Mapping[str, tuple[Any, list[str] | str]] = {
    "json": ('["Warsaw", "Warszawa"]', NAMES),
    "json, spaces inside": ('[ "Warsaw", "Warszawa" ]', NAMES),
    "json, over two lines": ('[\n  "Warsaw",\n  "Warszawa"\n]\n', NAMES),
    "json, without spaces": ('["Warsaw","Warszawa"]', NAMES),
    "json, escapes": ('["Caf\\u00e9", "Caf\\u00e9 \\"X\\""]', ["Café", 'Café "X"']),
    "json with null": ('["Warsaw", null]', ["Warsaw"]),
    "json written as json": (json.dumps(json.dumps(NAMES)), NAMES),
    "json of mixed kinds": ('["Warsaw", 1867]', ["Warsaw", "1867"]),
    "json, nothing": ("[]", []),
    "json object": ('{"target": ["Warsaw", "Warszawa"]}', NAMES),
    "python": ("['Warsaw', 'Warszawa']", "ast.literal_eval"),
    "python object": (str(TRIVIA), "ast.literal_eval"),
    "numpy": ("['a' 'b' ... 'y' 'z']", "ast.literal_eval"),
    "one number in brackets": ("[1867]", ["1867"]),
    "list": (NAMES, NAMES),
    "tuple": (tuple(NAMES), NAMES),
    "array of texts": (np.array(NAMES), NAMES),
    "array of objects": (np.array(NAMES, dtype=object), NAMES),
    "array with nothing": (np.array([], dtype=object), []),
    "arrow": (pyarrow.array(NAMES), NAMES),
    "arrow's one value": (pyarrow.scalar(NAMES), NAMES),
    "numpy's text": (np.str_("Warsaw"), ["Warsaw"]),
    "numpy's number": (np.int64(1867), ["1867"]),
    "numbers": ([1867, 1868.0, 1.5], ["1867", "1868", "1.5"]),
    "a whole number that pandas made a float": (1867.0, ["1867"]),
    "array of numbers": (np.array([1867, 1868]), ["1867", "1868"]),
    "decimal": (Decimal("1.50"), ["1.50"]),
    "NaN": (float("nan"), []),
    "numpy's short number": (np.float32(0.1), ["0.1"]),
    "short numbers": (np.array([3.14, 0.5], dtype=np.float32), ["3.14", "0.5"]),
    "SQuAD, with nothing": ({"text": [], "answer_start": []}, []),
    "a conversation": ([{"role": "user", "content": "Q?"}, {"role": "model", "content": "Lyon"}], ["Lyon"]),
    "NaN of numpy": (np.float32("nan"), []),
    "list in a list": ([NAMES], NAMES),
    "json in a list": ([json.dumps(NAMES)], NAMES),
    "TriviaQA": (TRIVIA, NAMES),
    "TriviaQA, arrays": ({**TRIVIA, "aliases": np.array(["Warszawa"], dtype=object)}, NAMES),
    "TriviaQA, json": (json.dumps(TRIVIA), NAMES),
    "TriviaQA, no aliases": ({**TRIVIA, "aliases": []}, ["Warsaw"]),
    "TriviaQA, aliases alone": ({"aliases": NAMES}, NAMES),
    "verl": ({"target": NAMES}, NAMES),
    "verl, one": ({"target": "Warsaw"}, ["Warsaw"]),
    "verl, array": ({"target": np.array(NAMES, dtype=object)}, NAMES),
    # texts that are no lists
    "a word in brackets first": ("[sic] is Latin", ["[sic] is Latin"]),
    "a placeholder": ("[Redacted]", ["[Redacted]"]),
    "a nickname": ('("Weird Al") Yankovic', ['("Weird Al") Yankovic']),
    "quoted": ('"Heroes"', ['"Heroes"']),
    "a half-open interval": ("[0,1)", ["[0,1)"]),
    "an interval in LaTeX": (r"[-2, \sqrt{3}]", [r"[-2, \sqrt{3}]"]),
    "a point": ("(1, 2)", ["(1, 2)"]),
    "points": ("(1,2), (3,4)", ["(1,2), (3,4)"]),
    "a set in LaTeX": (r"\{1, 2\}", [r"\{1, 2\}"]),
    "an interval in a list": (["[0, 1]"], ["[0, 1]"]),
    "an interval in a list as json": ('["[0, 1]"]', ["[0, 1]"]),
    # what could be one answer or several, or nobody can read
    "numbers as json": ("[1867, 1868]", "rows.map("),
    "lists of lists": ('[["Warsaw"], ["Lyon"]]', "rows.map("),
    "lists in a list": ([["Warsaw"], ["Lyon"]], "rows.map("),
    "cut off": ('["Warsaw", "Wars', "rows.map("),
    "a sentence that begins like a list": (' ["a" is a list', "rows.map("),
    "an endless beginning": ('["' * 100_000, "rows.map("),
    "cut off, object": ('{"target": ["Warsaw"', "rows.map("),
    "an object of other columns": ({"text": ["a"], "start": [0]}, "rows.map("),
    "an object of other columns, json": ('{"text": "a"}', "rows.map("),
    "objects": ([{"text": "a"}], "rows.map("),
    "true": (True, "rows.map("),
    "numpy's true": (np.bool_(True), "rows.map("),
    "bytes": (b"Warsaw", "rows.map("),
    "infinite": (float("inf"), "rows.map("),
}

PLAIN = [
    *("f(x) = (x, 1)", "P(A)", "{1, 2}", "(1, 2)", "x \\in [0, 1]", 'print("Hello")', "- 5", "1. FC Köln"),
    *('"Heroes" by David Bowie', 'Alfred "Al" Gore', "'Tis Pity", "Paris (France)", "# of #### things"),
]


@pytest.mark.parametrize("cell", PLAIN)
def test_a_text_that_only_resembles_one_stays_an_answer(cell: str) -> None:
    assert to_example({"question": "Q?", "answers": cell}).answers == (cell,)


@pytest.mark.parametrize(
    ("row", "answers"),
    [
        ({"answer": "48/2 = <<48/2=24>>24, 48+24 = <<48+24=72>>72.\n#### 72"}, ["72"]),  # GSM8K
        ({"answer": "#### is a mark.\n#### 7\n#### 1,000\n"}, ["1,000"]),
        ({"answer": "It is so.\r\n####72"}, ["72"]),
        ({"reward_model": {"ground_truth": "So.\n#### -3.5"}}, ["-3.5"]),
        ({"answer": "So.\n####"}, []),
        ({"answer": "Warsaw", "answer_aliases": ["Warszawa"]}, NAMES),  # MuSiQue
        ({"answer": "Warsaw", "answer_aliases": '["Warszawa", "Warsaw"]'}, NAMES),
        ({"answer": "Warsaw", "aliases": np.array(["Warszawa"], dtype=object)}, NAMES),
        ({"answer": "Warsaw", "aliases": None, "alt_ans": ["Warszawa"]}, NAMES),
        ({"answers": ["Warsaw"], "answer_aliases": ["Warszawa"]}, NAMES),
    ],
)
def test_what_public_sets_have_beside_an_answer(row: dict[str, Any], answers: list[str] | str) -> None:
    if isinstance(answers, str):
        with pytest.raises(DataError) as caught:
            to_example({"question": "Q?", **row})
        assert answers in str(caught.value)
        assert "data.columns.answers=" in str(caught.value)
    else:
        assert list(to_example({"question": "Q?", **row}).answers) == answers


@pytest.mark.parametrize(("cell", "answers"), ANSWERS.values(), ids=ANSWERS)
def test_answers(cell: Any, answers: list[str] | str) -> None:
    row = {"question": "Q?", "answers": cell}
    if isinstance(answers, str):
        with pytest.raises(DataError, match="answers") as caught:
            to_example(row)
        assert answers in str(caught.value)
        assert "answers is " in str(caught.value)
    else:
        assert list(to_example(row).answers) == answers


PASSAGE = "Warsaw is a city."
EVIDENCE: Mapping[str, tuple[Any, list[tuple[str, str]] | str]] = {
    "text": (PASSAGE, [("", PASSAGE)]),
    "null in a list": ([None, PASSAGE], [("", PASSAGE)]),
    "null as text": ([{"text": None, "title": "W"}, {"text": PASSAGE, "title": None}], [("", PASSAGE)]),
    "NaN in a list": ([float("nan"), PASSAGE], [("", PASSAGE)]),
    "NaN": (float("nan"), []),
    "null alone": ([None], []),
    "null": (None, []),
    "an empty text": ("", []),
    "an empty object": ({}, []),
    "array": (np.array([PASSAGE, None], dtype=object), [("", PASSAGE)]),
    "array of objects": (np.array([{"text": PASSAGE}], dtype=object), [("", PASSAGE)]),
    "tuple": ((PASSAGE,), [("", PASSAGE)]),
    "json": (json.dumps([{"title": "W", "text": PASSAGE}]), [("W", PASSAGE)]),
    "json of texts": (json.dumps([PASSAGE, "x"]), [("", PASSAGE), ("", "x")]),
    "lists in an object, as `datasets` has it": ({"title": ["W"], "text": [PASSAGE]}, [("W", PASSAGE)]),
    "a text that begins with its number": ("[1] Warsaw is a city.", [("", "[1] Warsaw is a city.")]),
    "a text that begins with a quotation": ('["Heroes" is a song.', [("", '["Heroes" is a song.')]),
    "an empty list, as CSV has it": ("[]", []),
    "blank texts": (["One.", " ", "Two. "], [("", "One."), ("", "Two.")]),
    "other columns": ([{"title": "W", "text": PASSAGE, "supports": True}], [("W", PASSAGE)]),
    "nothing": ([], []),
    "numbers": ([{"text": 5}], "rows.map("),
    "lists of two lengths": ({"title": ["W"], "text": ["a", "b"]}, "rows.map("),
}


@pytest.mark.parametrize(("cell", "passages"), EVIDENCE.values(), ids=EVIDENCE)
def test_evidence(cell: Any, passages: list[tuple[str, str]] | str) -> None:
    row = {"question": "Q?", "answers": "a", "evidence": cell}
    if isinstance(passages, str):
        with pytest.raises(DataError) as caught:
            to_example(row)
        assert passages in str(caught.value)
    else:
        assert [(one.title, one.text) for one in to_example(row).evidence] == passages


ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Q?"}]
ROWS: Mapping[str, dict[str, Any]] = {
    "TRL": {"prompt": ASKED, "answer": "Warsaw"},
    "TRL, parts": {
        "prompt": [{"role": "user", "content": [{"type": "text", "text": "Q?"}]}],
        "answer": "Warsaw",
    },
    "TRL, json": {"prompt": json.dumps(ASKED), "answer": "Warsaw"},
    "messages": {"messages": ASKED, "ground_truth": "Warsaw"},
    "verl": {"prompt": ASKED, "reward_model": {"style": "rule", "ground_truth": "Warsaw"}},
    "verl, list": {"prompt": ASKED, "reward_model": {"ground_truth": ["Warsaw"]}},
    "verl, object": {"prompt": ASKED, "reward_model": {"ground_truth": {"target": ["Warsaw"]}}},
    "verl, json in json": {
        "prompt": "You answer briefly. Q?",
        "reward_model": json.dumps({"ground_truth": json.dumps({"target": ["Warsaw"]})}),
        "extra_info": json.dumps({"question": "Q?"}),
    },
    "PopQA": {"question": "Q?", "possible_answers": '["Warsaw"]'},
    "pandas": {"question": "Q?", "answers": "Warsaw", "id": float("nan"), "topic": float("nan"), "ook": 1.0},
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_rows(tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    (example,) = load_examples(tmp_path / "d.jsonl")
    assert (example.question, example.answers) == ("Q?", ("Warsaw",))
    if isinstance(row.get("prompt"), list):
        named = to_example(row, {"question": "prompt"})
        assert named.question == "Q?"


@pytest.mark.parametrize(
    "prompt", [[], [{"role": "system", "content": "x"}], [["Q?"]], [5], {"role": "user"}]
)
def test_a_prompt_without_a_question_is_refused(prompt: Any) -> None:
    with pytest.raises(DataError, match=r"prompt.* user"):
        to_example({"prompt": prompt, "answer": "a"}, {"question": "prompt"})


def test_short_floats_are_the_numbers_that_they_print(tmp_path: Path) -> None:
    numbers = pyarrow.array([3.14, None], type=pyarrow.float32())
    lists = pyarrow.array([[0.1, 2.5], None], type=pyarrow.list_(pyarrow.float32()))
    table = pyarrow.table({"question": ["Q?", "R?"], "answers": numbers, "scores": lists})
    pyarrow.parquet.write_table(table, tmp_path / "d.parquet")
    first, second = load_examples(tmp_path / "d.parquet", require_answers=False)
    assert (first.answers, first.meta["scores"], second.answers) == (("3.14",), [0.1, 2.5], ())


def test_what_datasets_saves_to_disk_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_list([{"question": "Q?", "answers": NAMES}])
    table.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(train=table, test=table).save_to_disk(tmp_path / "splits")
    for place in ("one", "splits", "one/data-00000-of-00001.arrow"):
        (example,) = load_examples(tmp_path / place)
        assert list(example.answers) == NAMES
    (tmp_path / "not.arrow").write_text("x")
    with pytest.raises(DataError, match=r"not.arrow is not an Arrow stream"):
        load_examples(tmp_path / "not.arrow")


def test_a_table_keeps_its_lists_in_every_format(tmp_path: Path) -> None:
    """As `datasets` writes them, to CSV too."""
    rows = [{"question": f"Q{n}?", "answers": NAMES, "ook": n == 1} for n in range(2)]
    with (tmp_path / "json.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, ["question", "answers", "ook"])
        table.writeheader()
        table.writerows({**row, "answers": json.dumps(row["answers"])} for row in rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "d.parquet")
    for path in tmp_path.iterdir():
        examples = [(one.question, list(one.answers), one.ook) for one in load_examples(path)]
        assert examples == [(f"Q{n}?", NAMES, n == 1) for n in range(2)], path.name


# -- The same cell in every host


@fx.reward
def first(example: fx.Example, completion: Completion) -> fx.Score:
    return fx.Score({"a": float(completion in example.answers)}, facts={"answers": list(example.answers)})


HOSTS = ("json", "array of texts", "TriviaQA", "TriviaQA, json", "verl", "list", "json object")


@pytest.mark.parametrize("name", HOSTS)
def test_hosts_read_a_cell_alike(name: str) -> None:
    cell, _ = ANSWERS[name]
    score = fx.to_trl(first)
    batch = {"prompts": ["Q?"] * 2, "completions": ["Warszawa", "Lyon"]}
    assert score(**batch, answers=[cell, cell]) == [1.0, 0.0]
    assert score(**batch, ground_truth=(cell, cell)) == [1.0, 0.0]
    for truth, extra in ((cell, {"question": "Q?"}), ("", {"question": "Q?", "answers": cell})):
        assert [asyncio.run(_verl(text, truth, extra)) for text in ("Warszawa", "Lyon")] == [1.0, 0.0]
        assert asyncio.run(_verl("Warszawa", truth, json.dumps(extra, default=list))) == 1.0


async def _verl(text: str, truth: Any, extra: Any) -> float:
    return (await compute_score("nq", text, truth, extra, paper=f"{__file__}:first"))["score"]


@pytest.mark.parametrize("column", [np.array(["Warsaw", "Lyon"]), pyarrow.array(["Warsaw", "Lyon"])])
def test_a_column_of_trl_is_whatever_has_a_value_a_row(column: Any) -> None:
    assert fx.to_trl(first)(["Q?"] * 2, ["Warsaw", "Lyon"], answers=column) == [1.0, 1.0]
    with pytest.raises(DataError, match="answers has 2 values for 1 prompts"):
        fx.to_trl(first)(["Q?"], ["Warsaw"], answers=column)


@pytest.mark.parametrize(
    ("prompt", "completion", "message"),
    [
        ([{"from": "human", "value": "Q?"}], "Warsaw", "a prompt is one text or a list of messages"),
        ("Q?", [{"from": "gpt", "value": "Warsaw"}], "a completion is one text or a list of messages"),
        ("Q?", None, "a completion is one text or a list of messages"),
    ],
)
def test_what_is_no_message_is_no_empty_answer(prompt: Any, completion: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fx.to_trl(first)([prompt], [completion], answers=["Warsaw"])
    assert fx.to_trl(first)(["Q?"], [{"role": "assistant", "content": "Warsaw"}], answers=["Warsaw"]) == [1.0]
