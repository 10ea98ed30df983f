"""Documents for the policy: TruthRL's main setting, from an index to the prompt that it trains with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from preparing import prepared

from commands import write
from factrl.cli import main
from factrl.job import read_job
from factrl.runs.data import load_examples, render_prompt
from factrl.runs.settings import AskSettings
from factrl.text.answers import contains
from factrl.train.plan import make_plan

FACTS = ["Marie Curie was born in Warsaw.", "The Danube flows into the Black Sea.", "Emma is by Jane Austen."]
ROWS = [
    {"question": "Where was Marie Curie born?", "answer": "Warsaw", "level": 3},
    {"question": "Who wrote Emma?", "answer": "Jane Austen", "evidence": "Emma came out in 1815."},
    {"question": "Into which sea does the Danube flow?", "answer": "the Black Sea", "level": 1},
]


@pytest.fixture(autouse=True)
def index(folder: Path) -> None:
    for name, rows in (("facts", [{"title": "Facts", "text": fact} for fact in FACTS]), ("rows", ROWS)):
        write(f"{name}.jsonl", *rows)
    assert main(["index", "facts.jsonl", "--output", "wiki"]) == 0


def retrieved(*words: str) -> list[dict[str, Any]]:
    return prepared("retrieve", "rows.jsonl", *words, output="o.jsonl")


def test_rows_get_the_passages_that_bear_on_them_and_the_policy_reads_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, own, last = retrieved("--index", "wiki", "--k", "1")
    counts = "3 rows; 1 had evidence already, 0 have none, 0 lost what holds an answer"
    assert f"{counts}; in 2 a passage holds an answer" in capsys.readouterr().err
    assert [e["text"] for e in first["evidence"]] == [FACTS[0]]
    assert [e["text"] for e in last["evidence"]] == [FACTS[1]]
    assert own == {**ROWS[1], "helps": False}
    assert (first["level"], first["answer"]) == (3, "Warsaw"), "other columns stay"
    words = ["paper=truthrl:retrieval", "model.name=m", "data.train=o.jsonl", "train.prompts_per_step=2"]
    plan = make_plan(read_job(None, words))
    assert plan.prompt.endswith(f"Document [1]: Facts\n{FACTS[0]}\n</DOC>\n\nQuestion: {ROWS[0]['question']}")
    assert "{evidence}" in read_job(None, [*words, "paper=truthrl:retrieval-binary"]).settings.data.prompt
    assert "{evidence}" not in read_job(None, [*words, "paper=truthrl"]).settings.data.prompt


def test_withheld_evidence_holds_no_answer_and_the_label_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Else a policy learns that its documents always have the answer; what is left is what else was found."""
    rows = retrieved("--index", "wiki", "--k", "1", "--withhold", "1")
    assert "2 lost what holds an answer" in capsys.readouterr().err, "the third had none"
    assert [row["helps"] for row in rows] == [False] * 3
    assert rows[1] == {**ROWS[1], "helps": False}
    assert rows[0]["evidence"] == [], "nothing else bears on it"
    template = read_job(
        None, ["paper=truthrl:retrieval", "model.name=m", "data.train=o.jsonl"]
    ).settings.data.prompt
    assert "wrong." in render_prompt(load_examples("o.jsonl")[0], template), "no documents are no error"
    half = ("--index", "wiki", "--k", "1", "--withhold", "0.5", "run.seed=1")
    assert retrieved(*half) == retrieved(*half)


def test_distractors_come_from_other_questions_and_hold_no_answer() -> None:
    rows = retrieved("--index", "wiki", "--k", "1", "--distractors", "2")
    for row, fact in zip(rows, (FACTS[0], "Emma came out in 1815.", FACTS[1]), strict=True):
        texts = [one["text"] for one in row["evidence"]]
        assert len(texts) == len({*texts}) == 3
        assert fact in texts
        assert sum(row["answer"] in text for text in texts) == row["helps"]
    places = [[one["text"] for one in row["evidence"]].index(FACTS[0]) for row in rows]
    assert len({*places}) > 1, "the place of a passage does not tell whose it is"


def test_passages_that_the_questions_bring_need_no_index(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": "Who wrote Emma?", "answer": "Jane Austen", "found": [FACTS[2], FACTS[0]]}]
    write("rows.jsonl", *rows)
    named = "data.columns.evidence=found"
    assert retrieved(named)[0] == {**rows[0], "helps": True}
    [row] = retrieved("--withhold", "1", named)
    assert ([one["text"] for one in row["found"]], row["helps"]) == ([FACTS[0]], False)
    write("rows.jsonl", ROWS[0])
    assert main(["prepare", "retrieve", "rows.jsonl", "--output", "new.jsonl"]) == 2
    assert "1 of 1 questions bring no passages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "answer", "holds"),
    [
        ("She was born in WARSAW, in 1867.", "Warsaw", True),
        ("Emma is by the author Jane  Austen.", "Jane Austen", True),
        ("Jane met Austen", "Jane Austen", False),
        ("Jane Smith and John Austen", "Jane Austen", False),
        ("The warsawian", "Warsaw", False),
        ("Il est né à Orléans", "Orleans", True),
        ("首都は東京です", "東京", True),
        ("No answer here", "", False),
    ],
)
def test_whether_a_passage_holds_an_answer(text: str, answer: str, holds: bool) -> None:
    assert (contains(text, [answer]) is not None) == holds


def test_without_passages_the_prompt_says_what_finds_them(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "truthrl:retrieval", "--model", "m", "--data", "rows.jsonl", "--dry-run"]
    assert main([*words, "train.prompts_per_step=2"]) == 2
    err = capsys.readouterr().err
    assert "{evidence} is no column of example" in err
    assert "factrl prepare retrieve finds passages for it" in err


def test_the_released_files_of_truthrl_are_read() -> None:
    """Columns as in weizhepei/TruthRL-CRAG; chunks that scored too low are not shown there either."""
    chunks = [
        {"chunk": "It has 12 lions.", "bge_score": 2.5},
        {"chunk": "It is closed.", "bge_score": 1.9},
        {"chunk": "It opened in 1828.", "oracle_score": 3.0},
        {"chunk": "Tickets are dear.", "oracle_score": 1.0},
        "A zoo is a park.",
    ]
    row = {
        "interaction_id": "a1",
        "query": "how many lions has the zoo?",
        "query_time": "03/10/2024, 23:19:21 PT",
        "answer": "12",
        "alt_ans": ["twelve"],
        "question_type": "simple",
        "retrieved_chunks": chunks,
    }
    write("crag.jsonl", row)
    [example] = load_examples("crag.jsonl")
    shown = [passage.text for passage in example.evidence]
    assert shown == ["It has 12 lions.", "It opened in 1828.", "A zoo is a park."]
    prompt = AskSettings.model_validate({"model": {"name": "m"}, "data": {"train": "-"}}).data.prompt
    assert render_prompt(example, prompt) == row["query"]
    settings = read_job(None, ["paper=truthrl:retrieval", "model.name=m", "data.train=crag.jsonl"]).settings
    text = render_prompt(example, settings.data.prompt)
    assert text.endswith(f"</DOC>\n\nAsked at: {row['query_time']}\nQuestion: {row['query']}")
    assert "Tickets" not in text
