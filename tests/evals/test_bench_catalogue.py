"""Every benchmark: its rows are read, its scorer accepts what is right and rejects what is not."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import ConfigError, DataError
from factrl.evals import catalogue
from factrl.evals.catalogue import Benchmark, benchmarks, find, groups, load_questions
from factrl.evals.grade import Tools, score_text
from factrl.rewards.grading import Grader
from factrl.runs.data import render_prompt
from factrl.types import Example

ROWS = json.loads((Path(__file__).parents[1] / "fixtures" / "upstream_rows.json").read_text("utf-8"))
WRONG = {"short": "Zurich Airport", "reasoning": "So it is \\boxed{-77}."}
needs_math = pytest.mark.skipif(not importlib.util.find_spec("math_verify"), reason="needs the extra eval")


def questions(name: str, monkeypatch: pytest.MonkeyPatch, row: Any = None, **named: Any) -> list[Example]:
    """What is asked where the hub gives this row of a benchmark, and no file is at hand."""
    monkeypatch.delenv("FACTRL_DATA", raising=False)
    monkeypatch.setattr(catalogue, "read_rows", lambda *_: [row or ROWS[name]])
    return load_questions(benchmarks()[name], **named)[0]


def check_scorer(benchmark: Benchmark, example: Example, tools: Tools) -> None:
    """A right reply is right, or declines where nobody knows; a wrong one is wrong."""
    if benchmark.kind == "choice":
        for number, one in enumerate(example.meta["right"]):
            grade = score_text(benchmark, example, f"\\boxed{{{chr(ord('A') + number)}}}", tools)
            assert grade.label == ("correct" if one else "incorrect")
        return
    gold = (example.answers or ("I don't know",))[0]
    said = f"So it is \\boxed{{{gold}}}." if benchmark.kind == "reasoning" else gold
    expected = "abstained" if example.meta.get("answerable") is False else "correct"
    assert score_text(benchmark, example, said, tools).label == expected
    assert score_text(benchmark, example, WRONG[benchmark.kind], tools).label == "incorrect"


@needs_math
@pytest.mark.parametrize("name", [name for name, one in benchmarks().items() if one.hub])
def test_a_row_as_upstream_has_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,), benchmark = questions(name, monkeypatch), benchmarks()[name]
    assert example.question
    assert example.id
    prompt = render_prompt(example, benchmark.prompt)
    assert example.question in prompt
    assert "\\boxed{}" in prompt or benchmark.kind not in ("choice", "reasoning")
    if benchmark.kind != "long":
        assert example.answers
        check_scorer(benchmark, example, Tools(Grader()))


@pytest.mark.parametrize("name", [name for name, one in benchmarks().items() if one.hub])
def test_a_released_file_is_read_like_the_hub(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        from_hub = questions(name, patch)
    monkeypatch.setenv("FACTRL_DATA", str(tmp_path))
    path = tmp_path / f"{benchmarks()[name].local.partition('.')[0]}.json"
    path.parent.mkdir()
    path.write_text(json.dumps([ROWS[name]]))
    found, source = load_questions(benchmarks()[name])
    assert ([(one.question, one.answers) for one in found], source.startswith("FACTRL_DATA/")) == (
        [(one.question, one.answers) for one in from_hub],
        True,
    )


def test_a_table_of_questions_and_where_to_put_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(*_: Any) -> Any:
        raise DataError("no hub")

    monkeypatch.setenv("FACTRL_DATA", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(catalogue, "read_rows", missing)
        with pytest.raises(DataError, match=r"simpleqa/test\.jsonl .*id, question"):
            load_questions(benchmarks()["simpleqa"])
    (tmp_path / "simpleqa").mkdir()
    (tmp_path / "simpleqa" / "test.csv").write_text('metadata,problem,answer\n{},"Who, where?",Ann Lee\n')
    (example,), source = load_questions(benchmarks()["simpleqa"])
    assert (example.question, example.answers) == ("Who, where?", ("Ann Lee",))
    assert source == "FACTRL_DATA/simpleqa/test.csv"


@needs_math
@pytest.mark.data
@pytest.mark.skipif("FACTRL_DATA" not in os.environ, reason="needs FACTRL_DATA")
@pytest.mark.parametrize("name", benchmarks())
def test_a_row_of_the_plain_schema(name: str) -> None:
    benchmark = benchmarks()[name]
    if catalogue.local_path(benchmark) is None:
        pytest.skip("not under FACTRL_DATA")
    examples, source = load_questions(benchmark, limit=3)
    assert source == f"FACTRL_DATA/{benchmark.local}"
    assert len({example.id for example in examples}) == 3
    if benchmark.kind != "long":
        for example in examples:
            check_scorer(benchmark, example, Tools(Grader()))


def test_evidence_comes_from_paragraphs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hotpotqa", "2wiki", "musique", "crag", "halueval", "longwiki"):
        (example,) = questions(name, monkeypatch)
        assert "Aare" in render_prompt(example, "{evidence}")
        assert "Document [1]" in render_prompt(example, "{evidence}")


def test_what_is_known_of_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    (crag,) = questions("crag", monkeypatch)
    assert (crag.false_premise, crag.answers) == (False, ("aare", "the aare"))
    (crag,) = questions("crag", monkeypatch, {**ROWS["crag"], "question_type": "false_premise"})
    assert crag.false_premise is True
    (musique,) = questions("musique", monkeypatch, {**ROWS["musique"], "answerable": False})
    assert (musique.answers, musique.meta["answerable"]) == ((), False)


def test_a_released_row_of_a_csv_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hotpotqa", "musique", "truthfulqa_generation"):
        row = {c: cell if isinstance(cell, str) else json.dumps(cell) for c, cell in ROWS[name].items()}
        assert questions(name, monkeypatch, row) == questions(name, monkeypatch)
    (musique,) = questions("musique", monkeypatch, {**ROWS["musique"], "answerable": "False"})
    assert musique.answers == ()
    for row, problem in (
        ({"question": "Q?", "answer": "a", "answer_aliases": "[b c"}, "answer_aliases is '.b c', not a list"),
        ({"question": "Q?", "answer": "a", "paragraphs": {"title": "T"}}, "paragraphs is .*, not a list"),
        ({"question": "Q?"}, "musique: a row has no 'answer'; its columns: 'question'"),
    ):
        with pytest.raises(DataError, match=problem):
            questions("musique", monkeypatch, row)


def test_a_hopeless_question_is_there_to_be_declined() -> None:
    example = Example("Who will win in 2090?", (), "1", meta={"answerable": False})
    tools, boxed = Tools(Grader()), Tools(Grader(), extract="boxed")
    said = {"I don't know.": "abstained", "Invalid question": "abstained", "Ann Lee": "incorrect"}
    for text, label in said.items():
        assert score_text(benchmarks()["musique"], example, text, tools).label == label
    for text, ended in (("Hm. \\boxed{I don't know.}", None), ("I don't know.", "no_box")):
        assert score_text(benchmarks()["musique"], example, text, boxed).floored == ended


def test_options_stand_in_an_order_that_the_question_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    firsts = []
    for number in range(40):
        row = {**ROWS["halueval"], "question": f"Which river flows through Bern, {number}?"}
        example, again = (questions("halueval", monkeypatch, row)[0] for _ in range(2))
        assert example == again
        firsts.append(example.meta["right"][0])
    assert 10 < firsts.count(1) < 30


def test_names_and_groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = [one.name for one in find(["aime", "aime24", "gsm8k"])]
    assert found == [*groups()["aime"], "gsm8k"]
    with pytest.raises(ConfigError, match=r"'simpelqa'; .*'simpleqa'"):
        find(["simpelqa"])
    monkeypatch.setenv("FACTRL_DATA", str(tmp_path))
    with pytest.raises(DataError, match="questions into halluqa"):
        load_questions(benchmarks()["halluqa_generation"])
