"""Grades, votes, numbers and comparisons from single answers, without an evaluation around them."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.cli import report
from factrl.errors import DataError
from factrl.evals.ask import ask, stored_texts
from factrl.evals.catalogue import benchmarks
from factrl.evals.folder import Output, read_output, results_folder
from factrl.evals.grade import Tools, continued, score_text
from factrl.evals.metrics import Interval, Number
from factrl.evals.numbers import majority, numbers_of
from factrl.evals.paired import Paired, compare_outputs, texts_in_both
from factrl.evals.report import write_eval_page
from factrl.evals.samples import EvalSample
from factrl.rewards.grading import Grader
from factrl.runs.disk import Journal
from factrl.types import Completion, Example, Grade

SIMPLE, MATH = benchmarks()["simpleqa"], benchmarks()["gsm8k"]
OSLO = Example("What is the capital of Norway?", ("Oslo",), "1")
TOOLS = Tools(Grader())


def sample(name: str, label: Any = None, answer: str = "", **more: Any) -> EvalSample:
    meta = {key: more.pop(key) for key in ("answerable",) if key in more}
    asked = Example(f"Q {name}?", ("gold",), name, false_premise=more.pop("false_premise", None), meta=meta)
    grade = None if label is None else Grade(label, answer, "")
    return EvalSample(asked, more.pop("completion", "text"), grade, benchmark="b", **more)


def output(folder: Path, samples: Sequence[EvalSample], kind: str = "short", **about: Any) -> Output:
    numbers = {name: asdict(one) for name, one in numbers_of(kind, samples).items()}
    row = {"kind": kind, "numbers": numbers, "about": "", "source": "s", "judge": "j", "licence": "l"}
    row |= {"questions": 1, "answers": 1, "prompt": "p", "masked": {}, "floored": {}}
    return Output(folder, about, {"b": row}, {"b": samples})


def test_one_id_of_two_questions_is_no_pair(tmp_path: Path) -> None:
    before = output(tmp_path, [sample("0", "correct"), sample("1", "correct")])
    moved = replace(sample("1", "incorrect"), example=Example("Q  1? ", ("gold",), "1"))
    (pair,) = compare_outputs(before, output(tmp_path, [moved]))
    assert (pair.n, pair.broken) == (1, 1)
    other = replace(moved, example=Example("Another?", ("gold",), "1"))
    for name in (compare_outputs, partial(texts_in_both, "b")):
        with pytest.raises(
            DataError,
            match=r"b has different questions of one id .*, first '1', 'Q 1\?' and 'Another\?' \(1 of 2\)",
        ):
            name(before, output(tmp_path, [other]))


def test_a_folder_that_got_nothing_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for name in ("old", "new"):
        with pytest.raises(DataError), results_folder(tmp_path / name, {}, {}):
            raise DataError("the server is down")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_comparison_has_the_denominators_of_the_numbers(tmp_path: Path) -> None:
    def side(right: int, hopeless: str, odd: str) -> Output:
        rows = [sample(f"u{n}", "correct" if n < right else "incorrect") for n in range(4)]
        rows += [sample(f"h{n}", hopeless, answerable=False) for n in range(4)]
        return output(tmp_path, [*rows, sample("o", odd, false_premise=True)])

    before, after = side(2, "incorrect", "incorrect"), side(3, "abstained", "correct")
    (pair,) = compare_outputs(before, after)
    assert (pair.n, pair.left_out, pair.fixed, pair.broken) == (5, 0, 2, 0)
    for name in ("accuracy", "abstention"):
        change = pair.differences[name]
        assert change is not None
        assert change.value == after.numbers("b")[name].value - before.numbers("b")[name].value
    assert (len(pair.changed), pair.notes) == (6, [])


def test_a_terminal_shows_claims_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "b\x1b[31m"
    numbers = {"detail": asdict(Number(8, 7, 9, 3, percent=False))}
    sides = [
        Output(tmp_path, {"model": f"{one}\x1b[31m\nrow"}, {name: {"numbers": numbers}}, {}) for one in "ab"
    ]
    change = {"detail": Interval(2.5, 1.0, 4.0), "precision": Interval(0.1, 0.05, 0.2)}
    report._show(sides[0], [(sides[1], [Paired(name, 3, 0, change, ("n\x1b[31m",))])], None)
    shown = capsys.readouterr().out
    assert "+2.50" in shown
    assert "+10.0" in shown
    assert "\x1b" not in shown
    assert "change from" in shown


def test_a_worked_solution_has_paragraphs() -> None:
    text = " First 1 + 1.\n\nThat is 2.\n#### 2\n\nProblem: 3 + 3?\n#### 6"
    plain = replace(TOOLS, chat=False)
    assert score_text(MATH, Example("1 + 1?", ("2",), "1"), text, plain).label == "correct"
    assert continued(text) == "First 1 + 1."


@pytest.mark.skipif(not importlib.util.find_spec("math_verify"), reason="needs the extra eval")
@pytest.mark.parametrize(
    ("text", "label"),
    [
        (r"A half.</think><answer>\frac12</answer>", "correct"),
        (r"A half.</think><answer>$\boxed{\frac{1}{2}}$</answer>", "correct"),
        (r"It is \boxed{\frac12}.</think><answer>\frac13</answer>", "incorrect"),
        (r"A half.</think>It is \boxed{\frac12}.", "correct"),  # as of any other text
    ],
)
def test_a_formula_between_tags_is_the_answer_where_answers_stand_there(text: str, label: str) -> None:
    tools, half = replace(TOOLS, extract="answer"), Example("1/4 + 1/4?", (r"\frac{1}{2}",), "1")
    assert score_text(MATH, half, Completion(text, prefill="<think>"), tools).label == label


def test_an_answer_belongs_to_its_question(tmp_path: Path) -> None:
    asked: list[str] = []

    class Echo:
        identity = "echo"

        def write(self, examples: Sequence[Example], numbers: Sequence[int] = (0,), **named: Any) -> Any:
            asked.extend(one.question for one in examples)
            return [[Completion(one.question, prefill="p") for _ in numbers] for one in examples]

    with Journal(tmp_path / "ask.jsonl", {}) as journal:
        first = ask(Echo(), [OSLO], journal)
        assert ask(Echo(), [OSLO], journal) == first
        other = ask(Echo(), [replace(OSLO, question="Other?")], journal)
        assert asked == [OSLO.question, "Other?"]
        assert other != first
        kept: Any = ask(Echo(), [OSLO], journal)["1", 0]
        assert kept.prefill == "p"


def test_a_question_is_found_by_its_words_before_its_id(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {"id": "1", "question": "Something else?", "output": "no"},
        {"id": "9", "question": OSLO.question, "output": "Oslo"},
        {"id": "2", "output": "by id"},
    ]
    write(path, *rows)
    texts, left = stored_texts(path, "", SIMPLE, [OSLO, Example("Who wins?", id="2")])
    assert "1 of 3 rows" in left
    assert "belong to none of its questions, first 'Something else?'" in left
    assert texts == {("1", 0): "Oslo", ("2", 0): "by id"}
    with pytest.raises(DataError, match=r"no column 'ouptut' .*'output'"):
        stored_texts(path, "ouptut", SIMPLE, [OSLO])
    with pytest.raises(DataError, match="1 questions of simpleqa"):
        stored_texts(path, "", SIMPLE, [Example("Who?", ("Ann",), "7")])
    write(path, {"id": OSLO.id, "output": ["Oslo", "Rome"]})
    with pytest.raises(DataError, match=r"row 1: output is .*, not text or null; .* role and content"):
        stored_texts(path, "", SIMPLE, [OSLO])
    twins = [replace(OSLO, id="a"), replace(OSLO, id="b")]
    rows = [{"id": one.id, "question": one.question, "output": one.id} for one in twins]
    write(path, *rows)
    assert stored_texts(path, "", SIMPLE, twins) == ({("a", 0): "a", ("b", 0): "b"}, "")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"question": "Capital of  Norway? \\n", "output": "Oslo"}'),
        ("a.jsonl", '{"id": 1.0, "output": "Oslo"}'),
        ("a.jsonl", '{"id": 1, "question": null, "benchmark": null, "output": "Oslo"}'),
        ("a.csv", "id,question,benchmark,output\n 1,,,Oslo\n"),
        ("a.csv", "id,output\n1.0,Oslo\n"),
        ("a.jsonl", '{"id": 1, "prompt": "Answer briefly. Capital of Norway?", "output": "Oslo"}'),
        ("a.csv", "id,completion,response,output\n1,,,Oslo\n"),
        ("a.jsonl", '{"id": 1, "output": [{"role": "assistant", "content": "Oslo"}]}'),
    ],
)
def test_both_sides_are_compared_as_plain_text(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    asked = replace(OSLO, id="1", question="Capital of Norway?")
    assert stored_texts(tmp_path / name, "", SIMPLE, [asked]) == ({("1", 0): "Oslo"}, "")


def test_half_a_character_is_kept(tmp_path: Path) -> None:
    one = sample("1", "correct", completion="a\ud83d")
    output(tmp_path, [one]).write()
    assert read_output(tmp_path).samples["b"] == [one]


def test_right_and_wrong_answers_vote_alike() -> None:
    def votes(*told: tuple[str, str]) -> float | None:
        return majority([sample("1", label, answer=answer) for answer, label in told])

    oslo, bergen = ("Oslo", "correct"), ("Bergen", "incorrect")
    assert votes(oslo, ("Greater Oslo", "correct"), bergen, ("bergen.", "incorrect")) == 0
    assert votes(oslo, bergen) == 0.5
    assert votes(("", "abstained"), ("no idea", "abstained"), oslo) == 0
    assert votes(("The Oslo", "correct"), ("oslo", "correct"), bergen) == 1
    assert votes(("1.5", "correct"), ("15", "incorrect"), ("15", "incorrect")) == 0, "no spellings of one"
    assert majority([sample("1", None, cause="x")]) is None


def test_a_page_where_nothing_was_graded(tmp_path: Path) -> None:
    masked = [sample("1", None, cause="http_500")]
    assert "nothing could be graded" in write_eval_page(output(tmp_path, masked)).read_text("utf-8")
    assert "claims are counted" in write_eval_page(output(tmp_path, masked, "long")).read_text("utf-8")
