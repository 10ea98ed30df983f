"""lm-evaluation-harness runs the task of examples/lm_eval on answers that a model of the test gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

lm_eval = pytest.importorskip("lm_eval", reason="needs tests/hosts/requirements.txt")
from lm_eval.api.model import LM  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from factrl import FakeLLM, Grader, LLMError  # noqa: E402

TASKS = Path(__file__).parents[2] / "examples" / "lm_eval"
SAID = ("She was born in Warsaw.", "I don't know.", "In Paris.", "The city on the Vistula.")
QUESTION = {"question": "In which city was Marie Curie born?", "answers": ["Warsaw", "Warszawa"]}


class Says(LM):
    """Answers with SAID, one after another."""

    def generate_until(self, requests: list[Any]) -> list[str]:
        assert all(request.args[0].startswith(QUESTION["question"]) for request in requests)
        return list(SAID)

    def loglikelihood(self, requests: list[Any]) -> Any:
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood


def results(judge: Any, here: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The task's metrics, with `judge` for what rules cannot decide."""
    monkeypatch.chdir(here)
    rows = [{**QUESTION, "id": str(number)} for number in range(len(SAID))]
    (here / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(here / "cache"))
    known = TaskManager(include_path=str(TASKS), include_defaults=False)
    task = known.load("truthful")["tasks"]["truthful"]
    grades = task.config.process_results.__globals__
    monkeypatch.setitem(grades, "grader", lambda: Grader(judge, form="sentence"))
    metrics = lm_eval.simple_evaluate(Says(), tasks=[task], bootstrap_iters=0)["results"]["truthful"]
    return {name.removesuffix(",none"): value for name, value in metrics.items() if name.endswith(",none")}


def test_answers_are_counted_as_factrl_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = results(None, tmp_path, monkeypatch)
    expected = {
        "accuracy": 0.25,
        "abstention": 0.25,
        "hallucination": 0.5,
        "truthfulness": -0.25,
        "masked": 0,
    }
    assert {name: metrics[name] for name in expected} == expected


def test_what_could_not_be_graded_is_in_no_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(_: Any) -> str:
        raise LLMError("judge_down", "nobody answers")

    metrics = results(FakeLLM(down), tmp_path, monkeypatch)
    assert metrics["masked"] == 0.75  # all but the refusal, which stands in the list
    assert (metrics["accuracy"], metrics["abstention"], metrics["hallucination"]) == (0.0, 1.0, 0.0)
    assert metrics["truthfulness"] == 0.0
