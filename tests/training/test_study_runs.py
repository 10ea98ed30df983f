"""A study trains for real, on a tiny model: every step, a stop between steps, one's own reward and table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tiny import TOWN_STUDY, save_towns

from factrl.cli import main
from factrl.studies import load_study, study_names
from factrl.studies.engine import open_seed

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    save_towns(folder)
    (folder / "my.py").write_text(
        "import factrl as fx\n\n\n@fx.reward\ndef sure(example, completion):\n"
        "    return {'long': float(len(completion))}\n\n\n@fx.reward\n"
        "def asks(example, completion, *, oracle):\n    return {'x': 0.0}\n\n\n@fx.reward\n"
        "def fails(example, completion):\n    return {'x': float('nan')}\n\n\n@fx.reward\n"
        "def masked(example, completion):\n    raise fx.Unscored('my_cause', 'x')\n\n\n@fx.reward\n"
        "def leaves(example, completion):\n    raise SystemExit(3)\n\n\n@fx.reward\n"
        "def floors(example, completion):\n    return fx.Score({'x': 0.0}, floored='no_box')\n"
    )
    return folder


def study(place: Path, out: str, *more: str, name: str = "factreason") -> int:
    words = ["study", name, "--output", str(place / out), "--model", str(place / "model")]
    return main([*words, f"table={place / 'facts.csv'}", *TOWN_STUDY, *more])


@pytest.fixture(scope="module")
def begun(place: Path) -> Path:
    """A folder of factreason's study whose start is made."""
    assert study(place, "begun", "--only", "start") == 0
    return place / "begun"


def rows(place: Path, out: str) -> dict[str, Any]:
    folder = place / out / "seed-0" / "rows"
    return {path.stem: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}


def test_a_study_with_a_row_of_ones_own_goes_on_where_it_was_stopped(
    place: Path, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(begun, place / "out")
    mine = (f"{place / 'my.py'}:sure",)
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
    place: Path, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(begun, place / "other")
    only = ("--only", "factreason/random")
    assert study(place, "other", *only) == 0
    for word, named in (
        ("train.steps=2", "train.steps = "),
        ("start.steps=3", "start.steps = "),
        ("size.test=3", "size.test = "),
    ):
        assert study(place, "other", *only, word) == 2
        assert named in capsys.readouterr().err


def test_all_that_is_on_disk_is_compared_before_anything_is_trained(
    place: Path, begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(begun, place / "late")
    last = ("--only", "factreason/detail-0.1")
    assert study(place, "late", *last) == 0
    for words in (("train.steps=2",), ("--seeds", "2", "start.steps=3")):
        assert study(place, "late", *words) == 2
        assert "was " in capsys.readouterr().err
    assert {*rows(place, "late")} == {"start-profile", "factreason-detail-0.1"}
    assert not (place / "late" / "seed-1").exists()
    assert study(place, "late", "train.steps=2", "--only", "factreason/random") == 0
    assert "detail-0.1, seed 0, was made with train.steps = " in capsys.readouterr().out
    file = place / "late" / "seed-0" / "rows" / "factreason-random.json"
    file.write_text("")
    assert study(place, "late", *last) == 2
    assert f"{file} is damaged" in capsys.readouterr().err


def test_another_task_trains(place: Path) -> None:
    """KnowRL's; KLCF's is beneath, TruthRL's is the demo."""
    assert study(place, "knowrl-out", "practice=0", "--only", "knowrl/random", name="knowrl") == 0
    assert "knowrl-random" in rows(place, "knowrl-out")


def test_truthfulness_is_learnt_from_the_starts_own_claims(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ("--only", "klcf/trained-truth")
    assert study(place, "truth", *row, name="klcf") == 2
    assert "0 of one kind" in capsys.readouterr().err  # the tiny model writes no sentence of the table
    assert study(place, "truth", "--only", "klcf/all-facts", name="klcf") == 0
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
    assert study(place, "bad", f"{place / 'my.py'}:asks") == 2
    assert "oracle" in capsys.readouterr().err
    assert not (place / "bad" / "seed-0" / "start.safetensors").exists()
    assert study(place, "dry", "--dry-run") == 0
    assert "factreason/random: random" in capsys.readouterr().out
    assert not (place / "dry").exists()


def test_every_row_that_is_shipped_passes_the_check_before_the_start(place: Path) -> None:
    for name in study_names():
        one = load_study(name, (*TOWN_STUDY, f"table={json.dumps(str(place / 'facts.csv'))}"))
        seed = open_seed(place / "checked" / name, 0, {name: one}, str(place / "model"))
        for row in one.rows:
            seed.check(row, one)


def test_a_row_that_cannot_be_trained_leaves_no_trace(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = [f"table={place / 'facts.csv'}"]
    command = ["study", "factreason", "--output", str(tmp_path / "out"), *table, *TOWN_STUDY]
    model = ["--model", str(place / "model")]
    for words, named in (
        ((f"{place / 'my.py'}:fails",), "not a finite number"),
        ((f"{place / 'my.py'}:leaves",), "failed on example"),
        ((f"{place / 'my.py'}:floors",), "floors the start's form"),
        (("train.prompts_per_step=64", "train.micro_batch_size=64"), "fewer than the 64 of one step"),
        (("--model", f"{place}/nothere"), "nothere"),
    ):
        assert main([*command, *([] if "--model" in words else model), *words]) != 0
        assert named in capsys.readouterr().err
        assert not [*tmp_path.rglob("start.safetensors")], words
    assert main([*command, *model, "--only", "start"]) == 0


def test_a_row_without_one_graded_text_is_kept(place: Path, begun: Path) -> None:
    shutil.copytree(begun, place / "masked")
    words = (f"{place / 'my.py'}:masked", "--only", "factreason/my-masked")
    assert study(place, "masked", *words) == 0
    assert {*rows(place, "masked")["factreason-my-masked"]["rewards"]} == {None}


def test_an_edited_file_is_no_longer_what_a_folder_was_begun_with(
    place: Path, begun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(begun, place / "edited")
    table, own = tmp_path / "facts.csv", tmp_path / "own.py"
    table.write_bytes((place / "facts.csv").read_bytes())
    own.write_bytes((place / "my.py").read_bytes())
    words = (f"table={table}", f"{own}:sure", "--only", "factreason/own-sure")
    assert study(place, "edited", *words) == 0
    own.write_text(own.read_text("utf-8").replace("float(len(completion))", "-5.0"), "utf-8")
    assert study(place, "edited", *words) == 2
    assert "another file of the reward" in capsys.readouterr().err
    table.write_text(table.read_text("utf-8").replace("Peru", "Mali"), "utf-8")
    assert study(place, "edited", *words) == 2
    assert "another table" in capsys.readouterr().err
