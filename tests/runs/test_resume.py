"""A run goes on with the settings that it was begun with, whatever moment it was killed at."""

from __future__ import annotations

from pathlib import Path

import pytest

from factrl.errors import ConfigError, DataError
from factrl.job import read_job
from factrl.runs.folder import Run
from factrl.runs.resume import COMPLETE, DONE, going_on, nothing_to_do, settings_text
from factrl.runs.settings import RunSettings

WORDS = ["paper=truthrl", "model.name=m", "data.train=q.jsonl", "judge.url=http://a:1/v1#big"]


def told(folder: Path, *words: str) -> RunSettings:
    return read_job(None, [*WORDS, f"run.output={folder}", *words]).settings


def begin(folder: Path, *words: str) -> None:
    settings = told(folder, *words)
    Run.begin(settings.run, "x", {"config.toml": settings_text(settings)}).close()


def test_a_run_lies_where_it_is_told_and_its_settings_start_another(tmp_path: Path) -> None:
    begin(tmp_path / "a" / "b", "train.steps=3")
    again = read_job(tmp_path / "a" / "b" / "config.toml", []).settings
    assert again.run.output is None
    assert again.train.steps == 3
    with Run.begin(
        again.run.model_copy(update={"dir": str(tmp_path / "runs")}), "x", {"config.toml": ""}
    ) as run:
        assert run.path.parent == tmp_path / "runs"


@pytest.mark.parametrize(
    "words",
    [
        ["train.steps=5"],
        ["train.micro_batch_size=4"],
        ["run.max_cost=1", "judge.price_in=1", "judge.price_out=1"],
        ["judge.url=http://b:2/v1#big"],
        ["judge.timeout_call=99"],
    ],
)
def test_what_a_run_costs_and_where_may_change(tmp_path: Path, words: list[str]) -> None:
    begin(tmp_path, "train.steps=3")
    settings = going_on(told(tmp_path, *words), "config.toml")
    assert settings.train.steps == (5 if words == ["train.steps=5"] else 3)
    Run.begin(settings.run, "x", {"config.toml": settings_text(settings)}).close()
    assert f"steps = {settings.train.steps}" in (tmp_path / "config.toml").read_text()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["run.seed=1"], "run.seed"),
        (["paper=knowrl"], "paper = "),
        (["train.learning_rate=0.1"], "train.learning_rate"),
        (["judge.url=http://a:1/v1#small"], "judge.url"),
        (["data.system=Be brief."], "data.system"),
        (["reward.wrong=-2"], "reward.wrong"),
        (["train.steps=2"], "train.steps"),
    ],
)
def test_other_settings_are_refused_by_their_name(tmp_path: Path, words: list[str], name: str) -> None:
    begin(tmp_path, "train.steps=3")
    with pytest.raises(ConfigError, match=name) as caught:
        going_on(told(tmp_path, *words), "config.toml")
    assert "\n" not in str(caught.value)


def test_a_finished_run_says_so_until_more_steps_are_wanted(tmp_path: Path) -> None:
    assert nothing_to_do(told(tmp_path)) == ""
    begin(tmp_path, "train.steps=3")
    assert nothing_to_do(told(tmp_path)) == ""
    (tmp_path / DONE).write_text('{"steps": 3}')
    with pytest.raises(DataError, match="checkpoints"):
        nothing_to_do(told(tmp_path))
    (tmp_path / "model").mkdir()
    for words in ([], ["train.steps=3"]):
        assert nothing_to_do(told(tmp_path, *words)) == "nothing to do: 3 of 3 steps are done"
    with pytest.raises(ConfigError, match=r"train\.steps = 2"):
        going_on(told(tmp_path, "train.steps=2"), "config.toml")
    with pytest.raises(DataError, match="checkpoints"):
        nothing_to_do(told(tmp_path, "train.steps=4"))
    (tmp_path / "checkpoints/checkpoint-3").mkdir(parents=True)
    (tmp_path / "checkpoints/checkpoint-3" / COMPLETE).touch()
    assert nothing_to_do(told(tmp_path, "train.steps=4")) == ""
    (tmp_path / "model").rmdir()
    assert nothing_to_do(told(tmp_path)) == "", "the model is made again of its checkpoint"
    (tmp_path / DONE).write_text("{")
    with pytest.raises(DataError, match=DONE):
        nothing_to_do(told(tmp_path))


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"thesis\.tex"):
        begin(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_that_was_killed_before_it_had_settings_begins(tmp_path: Path) -> None:
    for left in ("lock", "env.json", "12ab.tmp"):
        (tmp_path / left).touch()
    begin(tmp_path)
    assert (tmp_path / "config.toml").is_file()
