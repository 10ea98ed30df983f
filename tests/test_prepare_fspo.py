"""`factrl prepare fspo`: the paper's mix from three sources, to what its reward and prompt read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from preparing import prepared

from commands import read, write
from factrl.cli import main, prepare
from factrl.papers import load_reward
from factrl.runs.data import load_examples

ROWS = json.loads((Path(__file__).parent / "fixtures" / "upstream_rows.json").read_text("utf-8"))
FILES = ["hotpot.jsonl", "wiki.jsonl", "math.jsonl"]


@pytest.fixture(autouse=True)
def sources(folder: Path) -> None:
    for name, row in (("hotpot", ROWS["hotpotqa"]), ("wiki", ROWS["2wiki"])):
        key = "id" if "id" in row else "_id"
        write(f"{name}.jsonl", *({**row, key: f"{n}", "question": f"{name} {n}?"} for n in range(30)))
    write("math.jsonl", *({"problem": f"What is {n} + 1?", "answer": f"{n + 1}"} for n in range(12)))


def made(*words: str, files: list[str] = FILES) -> list[dict[str, Any]]:
    return prepared("fspo", *files, *words, output="train.jsonl")


def test_three_sources_are_one_file_that_the_reward_takes(capfd: pytest.CaptureFixture[str]) -> None:
    rows = made("--facts", "18")
    # 18 * 1,112 / 2,000 of HotpotQA, the rest of 2Wiki, and all of mathematics.
    counts = {"hotpotqa": 10, "2wikimultihopqa": 8, "mathematics": 12}
    assert Counter(row["data_source"] for row in rows) == counts
    assert "30 rows (10 hotpotqa, 8 2wikimultihopqa, 12 mathematics)" in capfd.readouterr().err
    for row in rows:  # the gold paragraph and not the others; none in mathematics
        gold = [{"title": "Bern", "text": "Bern is on the Aare."}]
        assert row.get("evidence") == (None if row["data_source"] == "mathematics" else gold)
    assert [row["data_source"] for row in rows] != sorted(row["data_source"] for row in rows)
    examples = load_examples("train.jsonl")
    load_reward("fspo:mixed").check_examples(examples)
    assert len({example.id for example in examples}) == 30
    assert made("--facts", "18") == rows
    assert made("--facts", "18", "--seed", "1") != rows


def test_held_out_questions_are_others_and_too_few_are_said(capfd: pytest.CaptureFixture[str]) -> None:
    write("seen.jsonl", *made("--facts", "36"))
    rows = made("--facts", "30", "--against", "seen.jsonl", files=FILES[:2])
    assert not {row["question"] for row in read("seen.jsonl")} & {row["question"] for row in rows}
    assert {row["data_source"] for row in rows} == {"hotpotqa", "2wikimultihopqa"}
    assert "only 23 of 30 questions with evidence" in capfd.readouterr().err


def test_a_row_in_another_form_has_its_supporting_passages_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain schema's, the release's own, and the hub's by name."""
    passages = [{"text": "Yes.", "is_supporting": True}, {"text": "No.", "is_supporting": False}]
    write("hotpot.jsonl", {"question": "A?", "answers": ["a"], "evidence": passages})
    write("wiki.jsonl", {"question": "B?", "answer": "b", "knowledge": "All of it."})
    rows = made("--facts", "2")
    texts = {row["question"]: [one["text"] for one in row.get("evidence", [])] for row in rows}
    assert (texts["A?"], texts["B?"]) == (["Yes."], ["All of it."])
    requests = []
    hub = {"hotpotqa/hotpot_qa": "hotpotqa", "framolfese/2WikiMultihopQA": "2wiki"}
    monkeypatch.setattr(prepare, "read_rows", lambda *of: requests.append(of) or [ROWS[hub[of[0]]]])
    made("--facts", "2", files=["hotpotqa", "2wiki"])
    assert requests == [
        ("hotpotqa/hotpot_qa", "train", "distractor"),
        ("framolfese/2WikiMultihopQA", "train", None),
    ]


GOLD: dict[str, Any] = {
    **{"question": "A?", "answer": "a", "supporting_facts": [["T", 0]]},
    "context": [["T", ["Yes.", " It is."]], ["U", ["No."]]],
}
TABLES = [{"title": title, "sentences": texts} for title, texts in GOLD["context"]]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"context": TABLES, "supporting_facts": [{"title": "T", "sent_id": 0}]},
        {"context": {"title": ["T", "U"], "sentences": [["Yes.", " It is."], ["No."]]}},
        {
            "context": [["T", "Yes. It is."], ["U", "No."]],
            "supporting_facts": {"title": ["T"], "sent_id": [0]},
        },
        {name: json.dumps(GOLD[name]) for name in ("context", "supporting_facts")},  # in a .csv
        {"context": json.dumps(TABLES)},
    ],
)
def test_paragraphs_in_every_form_that_there_is(change: dict[str, Any]) -> None:
    write("hotpot.jsonl", GOLD | change)
    [row] = [row for row in made("--facts", "2") if row["data_source"] == "hotpotqa"]
    assert row["evidence"] == [{"title": "T", "text": "Yes. It is."}]


@pytest.mark.parametrize(
    ("file", "row", "message"),
    [
        (
            "wiki",
            {"question": "B?", "answer": "b"},
            "wiki.jsonl, row 1 has no evidence; columns: question",
        ),
        (
            "math",
            {"problem": "1 + 1?", "level": 5},
            "math.jsonl, row 1 has no answer; columns: problem, level",
        ),
        (
            "math",
            {"problem": "Where?", "answer": "[0,1]"},
            "math.jsonl, row 1: answer is '[0,1]': one answer or",
        ),
        (
            "hotpot",
            {"answer": "x", "context": []},
            "hotpot.jsonl, row 1 has no question; columns: answer, cont",
        ),
        (
            "wiki",
            {"question": "B?", "context": []},
            "wiki.jsonl, row 1 has no answer; columns: question, cont",
        ),
        (
            "hotpot",
            GOLD | {"context": "A text."},
            "hotpot.jsonl, row 1: context is 'A text.'; write a list of",
        ),
        ("hotpot", GOLD | {"context": [["T", ["a."], 1]]}, "row 1: context is \"[['T', ['a.'], 1]]\"; write"),
        (
            "hotpot",
            GOLD | {"context": [{"title": "T"}]},
            "row 1: context has 'None' under 'T', not a list of",
        ),
        (
            "hotpot",
            GOLD | {"context": {"title": ["T", "U"], "sentences": [["a."]]}},
            "row 1: context has 'None' under 'U', not a list of sentences",
        ),
        (
            "hotpot",
            GOLD | {"supporting_facts": [1]},
            "row 1: supporting_facts is '[1]'; write a list of [title,",
        ),
    ],
)
def test_a_row_that_lacks_something_is_one_line(
    file: str, row: dict[str, Any], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write(f"{file}.jsonl", row)
    assert main(["prepare", "fspo", *FILES, "--output", "train.jsonl"]) == 2
    assert message in capfd.readouterr().err
    assert not Path("train.jsonl").exists()
