from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import ConfigError, DataError, LLMError, RewardBug, Unscored
from factrl.evals.metrics import Weights
from factrl.evals.shortqa import Evaluation, evaluate_file, grade_completions
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
    def write(*rows: dict[str, Any], name: str = "answers.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


def row(completion: object, question: str = "Capital of Peru?", **columns: object) -> dict[str, object]:
    return {"question": question, "answers": ["Lima"], "completion": completion, **columns}


def shown(evaluation: Evaluation) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=120, force_terminal=False)
    console.print(evaluation.table())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


# --- files -------------------------------------------------------------------------------------


def test_a_file_by_hand(write: Write) -> None:
    path = write(row("Lima"), row("Cusco"), row(""), row("idk"), row("?"), row(None))
    got = evaluate_file(path, exact)
    assert (got.summary.correct, got.summary.incorrect, got.summary.abstained) == (1, 2, 1), "null is no text"
    assert got.summary.masked == 2
    assert got.masked == {"judge_unreadable": 1, "no_completion": 1}
    assert [r.grade.label if r.grade else r.cause for r in got.rows] == [
        *("correct", "incorrect", "incorrect", "abstained"),
        *("judge_unreadable", "no_completion"),
    ]
    assert got.rows[4].detail == "no verdict on the last line"
    assert len(evaluate_file(path, exact, limit=2).rows) == 2
    boxed = evaluate_file(write(row("Lima"), row(r"\boxed{Lima}")), exact, extract="boxed")
    assert (boxed.floored, boxed.summary.incorrect, boxed.summary.correct) == ({"no_box": 1}, 1, 1)


def test_columns_of_the_completions(write: Write, tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    for column in ("completion", "response", "prediction", "output"):
        path = write({"question": "Capital of Peru?", "answers": ["Lima"], column: "Lima"})
        assert evaluate_file(path, exact).summary.correct == 1
    assert evaluate_file(write(row("Lima", base="Cusco")), exact, column="base").summary.incorrect == 1
    rows = [row("Lima"), row(None, question="Capital of Chile?")]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "answers.parquet")
    got = evaluate_file(tmp_path / "answers.parquet", exact)
    assert (got.summary.correct, got.summary.masked) == (1, 1)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (
            [{"question": "q", "answers": ["a"], "completions": "x"}],
            {},
            "columns beside the question: completions",
        ),
        ([row("x")], {"column": "completoin"}, "did you mean 'completion'"),
        ([row("x"), row(["x"])], {}, "row 2: completion is a list, not text or null"),
        ([row("x"), row("x", answers=[])], {}, "1 of 2 rows have no accepted answer"),
        ([{"answers": ["a"], "completion": "x"}], {}, "no column for the question"),
    ],
)
def test_a_file_that_cannot_be_graded_says_why_before_any_grading(
    write: Write, rows: list[dict[str, Any]], options: dict[str, Any], message: str
) -> None:
    asked: list[str] = []

    def counting(question: str, prediction: str, answers: Sequence[str], **_: Any) -> Grade:
        asked.append(prediction)
        return Grade("correct", prediction, "exact")

    with pytest.raises(DataError, match=message):
        evaluate_file(write(*rows), counting, **options)
    assert not asked


def test_a_false_premise_has_numbers_of_its_own(write: Write) -> None:
    odd = {"question": "Who is king of Peru?", "answers": [], "false_premise": True}
    path = write(row("Lima"), {**odd, "completion": "invalid question"}, {**odd, "completion": "Ann"})
    got = evaluate_file(path, exact)
    assert (got.summary.n, got.summary.correct) == (1, 1)
    assert got.false_premise is not None
    assert (got.false_premise.correct, got.false_premise.incorrect) == (1, 1)
    assert evaluate_file(write(row("Lima")), exact).false_premise is None


# --- grading -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extract", "completion", "answer", "floored"),
    [
        ("text", "Lima", "Lima", None),
        ("text", r"so \boxed{Lima}", r"so \boxed{Lima}", None),
        ("boxed", r"\boxed{Cusco}, no: \boxed{Lima}", "Lima", None),
        ("boxed", "Lima", "", "no_box"),
        ("boxed", r"\boxed{Lima", "", "no_box"),
        ("answer", "<think>Cusco?</think> <answer>Lima</answer>", "Lima", None),
        ("answer", "Lima", "", "no_answer"),
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


def test_rows_keep_their_order_and_run_side_by_side() -> None:
    together = threading.Barrier(4, timeout=5)

    def slow(question: str, prediction: str, answers: Sequence[str], **_: Any) -> Grade:
        together.wait()  # breaks unless four are at work at the same time
        time.sleep(0.02 if prediction == "0" else 0)
        return Grade("correct", prediction, "exact")

    got = grade_completions([(Example("q", ("a",)), str(i)) for i in range(8)], slow, workers=4)
    assert [r.grade.answer for r in got if r.grade] == list("01234567")


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
    def grader(question: str, prediction: str, answers: Sequence[str], **_: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    pairs = [(Example("q", ("a",)), "a")]
    outcome: Any = LLMError("http_503", "the server is down")
    (got,) = grade_completions(pairs, grader)
    assert (got.grade, got.cause) == (None, "http_503")
    outcome = 1.0
    with pytest.raises(RewardBug, match=r"returned 1\.0"):
        grade_completions(pairs, grader)
    outcome = ConfigError("judge.api_key is not set")
    with pytest.raises(ConfigError, match="api_key"):
        grade_completions(pairs, grader)


def test_options_out_of_range_name_the_choice() -> None:
    with pytest.raises(ConfigError, match="did you mean 'boxed'"):
        grade_completions([], exact, "box")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="at least 1"):
        grade_completions([], exact, workers=0)
    assert grade_completions([], exact) == []


# --- output ------------------------------------------------------------------------------------


@pytest.mark.security("S42")
def test_table_shows_intervals_and_masked_as_its_own_row(write: Write) -> None:
    got = evaluate_file(write(row("Lima"), row("idk"), row("?"), row("?")), exact)
    lines = {line.split("│")[1].strip(): line for line in shown(got).splitlines() if line.count("│") > 3}
    assert "50.0" in lines["accuracy"]
    assert "[9.5, 90.5]" in lines["accuracy"]
    assert "1 of 2" in lines["accuracy"]
    assert "judge_unreadable 2" in lines["masked"]
    assert "0.0" in lines["hallucination"]
    got = shown(evaluate_file(write(row("idk"), row("idk")), exact))
    assert "–" in next(line for line in got.splitlines() if "correct given attempted" in line)
    assert "nan" not in got.lower()

    def hostile(*_: Any, **__: Any) -> Grade:
        raise Unscored("[red]x[/red]\x1b[2J\nINFO forged", "")

    got = shown(evaluate_file(write(row("Lima")), hostile))
    assert "[red]x[/red]" in got
    assert "\x1b" not in got
    assert "\nINFO" not in got


def test_json_is_plain_and_says_everything(write: Write) -> None:
    path = write(row("Lima", id="a"), row("?", id="b"), row("idk", id="c"))
    got = evaluate_file(path, exact, weights=Weights(abstain=0.5))
    data = json.loads(json.dumps(got.to_json(), allow_nan=False))
    assert data["summary"]["n"] == 2
    assert data["summary"]["truthfulness"]["value"] == 0.75
    assert data["summary"]["accuracy"]["value"] == 0.5
    assert data["masked"] == {"judge_unreadable": 1}
    assert data["rows"][1] == {
        "id": "b",
        "grade": None,
        "cause": "judge_unreadable",
        "detail": "no verdict on the last line",
    }
    assert data["rows"][0]["grade"]["label"] == "correct"


def test_reasoning_is_not_part_of_the_answer() -> None:
    texts = ["<think>Lyon? No.</think>Paris", "<think>Paris", Completion("so Paris", prefill="<think>")]
    ask = Example("Capital of France?", ("Paris",))
    rows = grade_completions([(ask, text) for text in texts], exact, "text")
    assert [(row.grade.label, row.grade.floored) for row in rows if row.grade] == [
        ("correct", None),
        ("incorrect", "no_answer"),
        ("incorrect", "no_answer"),
    ]
