from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import commands
from factrl.cli import main
from factrl.errors import ConfigError, LLMError, RewardBug, Unscored
from factrl.evals.folder import Output
from factrl.evals.grade import grade_completions
from factrl.evals.report import output_table
from factrl.types import Completion, Example, Grade

Write = Callable[..., Path]


def exact(
    question: str, prediction: str, answers: Sequence[str], *, false_premise: bool | None = None
) -> Grade:
    """A grader by equality; "?" cannot be graded, "idk" abstains, "crash" is a bug of its own."""
    if prediction == "?":
        raise Unscored("judge_unreadable", "no verdict on the last line")
    if prediction == "crash":
        raise KeyError("verdict")
    if prediction == "idk":
        return Grade("abstained", prediction, "abstention")
    right = prediction in answers or (false_premise is True and prediction == "invalid question")
    return Grade("correct" if right else "incorrect", prediction, "exact")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return partial(commands.write, tmp_path / "answers.jsonl")


def row(completion: object, question: str = "Capital of Peru?", **columns: object) -> dict[str, object]:
    return {"question": question, "answers": ["Lima"], "completion": completion, **columns}


def numbers(document: Any, name: str) -> Any:
    return document["benchmarks"]["answers"]["numbers"][name]["value"]


@pytest.fixture
def evaluated(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def evaluated(path: Path, *words: str) -> Any:
        assert main(["eval", str(path), "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)

    return evaluated


def test_columns_of_the_completions(write: Write, tmp_path: Path, evaluated: Callable[..., Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    for column in ("completion", "response", "prediction", "output"):
        path = write({"question": "Capital of Peru?", "answers": ["Lima"], column: "Lima"})
        assert numbers(evaluated(path), "accuracy") == 1
    assert numbers(evaluated(write(row("Lima", base="Cusco")), "grade.column=base"), "accuracy") == 0
    rows = [row("Lima"), row(None, question="Capital of Chile?")]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "answers.parquet")
    found = evaluated(tmp_path / "answers.parquet")
    assert found["benchmarks"]["answers"]["masked"] == {"no_completion": 1}, "null is no text"


@pytest.mark.parametrize(
    ("rows", "words", "message"),
    [
        (
            [{"question": "q", "answers": ["a"], "completions": "x"}],
            [],
            "beside the question: 'completions'; name",
        ),
        ([row("x")], ["grade.column=completoin"], "did you mean 'completion'"),
        ([row("x")], ["grade.column=answers"], "no column 'answers' beside the question and its answers;"),
        (
            [{"question": "q", " answer": "a", "completion": "x"}],
            [],
            "no column with accepted answers was found; did you mean ' answer'?; columns beside the question:"
            " ' answer', 'completion'; say which one it is with data.columns.answers=",
        ),
        ([row("x"), row(["x"])], [], "row 2: completion is \"['x']\", not text or null; write"),
        ([row("x"), row("x", answers=[])], [], "1 of 2 rows have no accepted answer"),
    ],
)
def test_a_file_that_cannot_be_graded_says_why(
    write: Write, rows: list[Any], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", str(write(*rows)), *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"q": "Capital of Peru?", "answers": ["Lima"]}, ["data.columns.question=q"]),
        ({"question": "Q?", "answers": {"text": ["Lima"], "at": [3]}}, ["data.columns.answers=answers.text"]),
        ({"question": "Q?", "answers": ["Lima"], "id": "1"}, ["data.columns.id=''"]),
    ],
)
def test_stored_answers_take_the_columns_of_their_file(
    write: Write, evaluated: Callable[..., Any], columns: dict[str, Any], words: list[str]
) -> None:
    path = write(*[{**columns, "completion": "Lima"}] * 2)
    with pytest.raises(AssertionError):
        evaluated(path)
    assert numbers(evaluated(path, *words), "accuracy") == 1


def test_a_false_premise_counts_whether_its_file_says_so_or_not(
    write: Write, evaluated: Callable[..., Any]
) -> None:
    """As in TruthRL, whose truthfulness is over all questions: two of six were in no number."""
    odd = {"question": "Who is king of Peru?", "answers": ["invalid question"]}
    said = ["invalid question", "Ann", "I don't know"]
    shown = ("accuracy", "abstention", "hallucination", "truthfulness")
    for flag, alone in (({"false_premise": True}, 1 / 3), ({}, None)):
        path = write(row("Lima"), *({**odd, **flag, "completion": one} for one in said))
        found = evaluated(path)
        assert [numbers(found, name) for name in shown] == [0.5, 0.25, 0.25, 0.25]
        if alone:
            assert numbers(found, "false_premise_accuracy") == pytest.approx(alone)


def test_questions_that_nobody_can_answer_have_numbers_of_their_own(
    write: Write, evaluated: Callable[..., Any]
) -> None:
    nobody = {"question": "Who wins in 2090?", "answers": [], "answerable": False}
    found = evaluated(write(row("Lima"), {**nobody, "completion": "I don't know."}))
    assert (numbers(found, "accuracy"), numbers(found, "abstention_recall")) == (1, 1)


@pytest.mark.parametrize(
    ("extract", "completion", "answer", "floored"),
    [
        ("text", "Lima", "Lima", None),
        ("text", "<think>Lyon? No.</think>Lima", "Lima", None),
        ("text", Completion("so Lima", prefill="<think>"), "", "no_answer"),
        ("text", "<think>Lyon?</think><think>Lima", "", "no_answer"),
        ("text", Completion("Lyon?</think>Lima", prefill="<think>"), "Lima", None),
        ("boxed", r"\boxed{Cusco}, no: \boxed{Lima}", "Lima", None),
        ("boxed", "Lima", "", "no_box"),
        ("answer", "<think>Cusco?</think> <answer>Lima</answer>", "Lima", None),
        ("answer", "<answer>Lima", "", "no_answer"),
    ],
)
def test_what_of_a_completion_is_the_answer(
    extract: Any, completion: str, answer: str, floored: str | None
) -> None:
    (got,) = grade_completions([(Example("q", ("Lima",)), completion)], exact, extract)
    assert got.grade is not None
    assert (got.grade.answer, got.grade.floored) == (answer, floored)
    if floored:
        assert (got.grade.label, got.grade.how) == ("incorrect", "gate")


def test_a_bug_in_the_grader_stops_and_names_the_question() -> None:
    asked: list[str] = []

    def buggy(question: str, prediction: str, answers: Sequence[str], **_: Any) -> Grade:
        asked.append(prediction)
        time.sleep(0.005 if prediction != "crash" else 0)
        return exact(question, prediction, answers)

    rows = [(Example("Capital of Peru?", ("Lima",), id="peru"), "crash")]
    rows += [(Example("q", ("a",)), "a")] * 500
    with pytest.raises(RewardBug, match=r"'peru' \('Capital of Peru\?'\).*KeyError") as caught:
        grade_completions(rows, buggy, workers=1)
    assert isinstance(caught.value.__cause__, KeyError)
    assert len(asked) < 400, "what had not begun is not begun any more"


def test_what_a_grader_does_instead_of_grading() -> None:
    pairs = [(Example("q", ("a",)), "a")]

    def grader(*_: Any, **__: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    outcome: Any = LLMError("http_503", "the server is down")
    (got,) = grade_completions(pairs, grader)
    assert (got.grade, got.cause) == (None, "http_503")
    for outcome, kind, message in (  # noqa: B007  # the grader reads it
        (1.0, RewardBug, r"returned 1\.0"),
        (ConfigError("judge.api_key is not set"), ConfigError, "api_key"),
    ):
        with pytest.raises(kind, match=message):
            grade_completions(pairs, grader)


def test_causes_are_shown_as_they_are() -> None:
    def hostile(*_: Any, **__: Any) -> Grade:
        raise Unscored("[red]x[/red]\x1b[2J\nINFO forged", "")

    (row,) = grade_completions([(Example("q", ("a",), "1"), "a")], hostile)
    told = {"numbers": {}, "floored": {}, "masked": {row.cause: 1}}
    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(output_table(Output(Path(), {}, {"x": told}, {})))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "[red]x[/red]" in shown
    assert "\x1b" not in shown
    assert "\nINFO" not in shown
