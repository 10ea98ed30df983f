"""A study trains for real, on a tiny model: every step, a stop between steps, one's own reward and table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny import TOWN_STUDY, save_towns

from factrl.cli import main

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    save_towns(folder)
    (folder / "my.py").write_text(
        "import factrl as fx\n\n\n@fx.reward\ndef sure(example, completion):\n"
        "    return {'long': float(len(completion))}\n\n\n@fx.reward\n"
        "def asks(example, completion, *, oracle):\n    return {'x': 0.0}\n"
    )
    return folder


def study(place: Path, out: str, *more: str, name: str = "factreason") -> int:
    words = ["study", name, "--output", str(place / out), "--model", str(place / "model")]
    return main([*words, "--table", str(place / "facts.csv"), *TOWN_STUDY, *more])


def rows(place: Path, out: str) -> dict[str, Any]:
    folder = place / out / "seed-0" / "rows"
    return {path.stem: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}


def test_a_study_with_a_row_of_ones_own_goes_on_where_it_was_stopped(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = ("--add", f"{place / 'my.py'}:sure")
    assert study(place, "out", *mine, "--only", "factreason/random") == 0
    assert {*rows(place, "out")} == {"start-profile", "factreason-random"}  # as after a kill behind it
    before = (place / "out" / "seed-0" / "rows" / "factreason-random.json").stat().st_mtime_ns
    capsys.readouterr()
    assert study(place, "out", *mine) == 0
    text = capsys.readouterr().out
    for name in ("start", "random", "fact-only", "factreason", "detail-0.1", "my-sure"):
        assert f"| {name} |" in text
    assert (place / "out" / "table.md").read_text("utf-8") == text
    found = rows(place, "out")
    assert before == (place / "out" / "seed-0" / "rows" / "factreason-random.json").stat().st_mtime_ns
    assert len(found["factreason-my-sure"]["greedy"]) == 4
    assert found["factreason-my-sure"]["rewards"]
    assert not [*(place / "out").rglob("checkpoint-*")]


def test_a_folder_that_was_begun_otherwise_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ("--only", "factreason/random")
    assert study(place, "other", *only) == 0
    for word, named in (
        ("train.steps=2", "train = "),
        ("start.steps=3", "start"),
        ("size.test=3", "size = "),
    ):
        assert study(place, "other", *only, word) == 2
        assert named in capsys.readouterr().err


def test_each_task_trains(place: Path) -> None:
    for name, row in (("knowrl", "random"), ("truthrl", "random"), ("klcf", "all-facts")):
        words = ["--only", f"{name}/{row}"] if name == "klcf" else ["practice=0", "--only", f"{name}/{row}"]
        assert study(place, f"{name}-out", *words, name=name) == 0
        assert f"{name}-{row}" in rows(place, f"{name}-out")


def test_truthfulness_is_learnt_from_the_starts_own_claims(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ("--only", "klcf/trained-truth")
    assert study(place, "truth", *row, name="klcf") == 2
    assert "0 of one kind" in capsys.readouterr().err  # the tiny model writes no sentence of the table
    seed = place / "truth" / "seed-0"
    world = json.loads((seed / "world.json").read_text("utf-8"))
    known = json.loads((seed / "known-profile.json").read_text("utf-8"))
    towns = world["parts"]["train"]
    known["found"] = {town: ["Its country is Peru."] for town in towns}
    known["claims"] = {
        f"The country of {town} is {c}.": c == "Peru" for town in towns for c in ("Peru", "Chad")
    }
    (seed / "known-profile.json").write_text(json.dumps(known))
    assert study(place, "truth", *row, "truthfulness.steps=1", name="klcf") == 0
    assert (seed / "truthfulness" / "config.json").exists()
    [made] = [one for name, one in rows(place, "truth").items() if name == "klcf-trained-truth"]
    assert made["truthfulness_auc"] is None  # nothing decided in the tiny model's held-out texts
    assert study(place, "truth", *row, "truthfulness.steps=2", name="klcf") == 2
    assert "truthfulness" in capsys.readouterr().err


def test_mistakes_are_said_before_anything_is_trained(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert study(place, "bad", "--only", "factreason/nothing") == 2
    assert "is no step" in capsys.readouterr().err
    assert study(place, "bad", "--add", f"{place / 'my.py'}:asks") == 2
    assert "oracle" in capsys.readouterr().err
    assert not (place / "bad" / "seed-0" / "start.safetensors").exists()
    assert study(place, "dry", "--dry-run") == 0
    assert "factreason/random: random" in capsys.readouterr().out
    assert not (place / "dry").exists()
