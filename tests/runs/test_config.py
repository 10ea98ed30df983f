"""Recipes, overrides and knobs: what is accepted, and what every wrong thing is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factrl.errors import ConfigError
from factrl.runs.config import check_knobs, dump_toml, load_settings, read_setting
from factrl.runs.settings import RunSettings

NEEDED = ["paper=truthrl", "model.name=tiny", "data.train=questions.jsonl"]
KNOBS = {
    "reward": {"correct": 1.0, "wrong": -1.0, "retries": 2, "strict": True, "mode": "words", "floor": None}
}


def problems(*overrides: str, toml: str = "", tmp_path: Path | None = None, **more: Any) -> list[str]:
    """The lines of the error, without the folder of the recipe."""
    source = None
    if tmp_path is not None:
        source = tmp_path / "recipe.toml"
        source.write_text(toml, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_settings(RunSettings, source, overrides, **more)
    return [line.replace(f"{tmp_path}/", "") for line in str(caught.value).splitlines()]


def test_all_problems_come_at_once_each_with_its_place(tmp_path: Path) -> None:
    toml = """
        paper = "truthrl"
        learning_rate = 1e-5
        [model]
        name = "tiny"
        [train]
        learnin_rate = 1e-5
        steps = "five"
        num_generations = 1
        loss_type = "dr-grpo"
        [trian]
        epochs = 1
        """
    lines = problems(
        "data.limt=3", "temprature=2", toml=toml, tmp_path=tmp_path, defaults={"train": {"beta": -1.0}}
    )
    wanted = (
        ("data.train is required",),
        ("data.limt", "'data.limit'"),
        ("train.learnin_rate", "'train.learning_rate'"),
        ("learning_rate", "'train.learning_rate'"),
        ("section trian", "'train'"),
        ("temprature", "'train.temperature'"),
        ("train.steps = 'five'",),
        ("train.num_generations = 1",),
        ("train.loss_type = 'dr-grpo'", "'dr_grpo'?"),
        ("train.beta = -1.0",),
    )
    for words in wanted:
        assert [line for line in lines if all(word in line for word in words)], (words, lines)
    assert len(lines) == len(wanted)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("train.steps", "'train.steps' is not key=value"),
        ("train..steps=1", "is not key=value"),
        ("steps=1", "unknown key steps; did you mean 'train.steps'?"),
        ("train.steps=", "train.steps has no value"),
        ("train.report_to=[wandb]", "train.report_to = '[wandb]'"),
        ("train.steps=0", "train.steps = 0: "),
        ("train.temperature=nan", "train.temperature = nan: "),
        ("train.bf16=yes", "train.bf16 = 'yes': "),
        ("data.columns.qestion=q", "did you mean 'question'?"),
        ("data.prompt=\\boxed{}", "data.prompt: {} is not a column name"),
        ("data.prompt=Answer.", "data.prompt 'Answer.' names no column"),
        ("paper.name=x", "[paper]"),
        ("model.trust_remote_code=true", "model.revision"),
        ("train.micro_batch_size=7", "train.micro_batch_size = 7"),
        ("train.eval_steps=5", "data.eval"),
    ],
)
def test_one_wrong_override_is_one_line(override: str, named: str) -> None:
    (line,) = problems(*NEEDED, override)
    assert named in line


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("model = 3", "[model]"),
        ("nothing = 1", "nothing"),
        ("train.steps = 'five'", "train.steps"),
        ("reward.wrong.deep = 1", "reward.wrong"),
    ],
)
def test_what_is_wrong_in_a_recipe_names_it(tmp_path: Path, toml: str, named: str) -> None:
    told = problems(*NEEDED[::2], "model.dtype=float32", toml=toml, tmp_path=tmp_path, knobs=KNOBS)
    lines = [line for line in told if "is required" not in line]
    assert len(lines) == 1
    assert named in lines[0]
    assert "(in recipe.toml)" in lines[0]
    assert "recipe.toml" not in problems(*NEEDED, "train.steps=x", toml=toml, tmp_path=tmp_path)[-1]


@pytest.mark.parametrize("url", ["http://user:sesame@host/v1", "https://host/v1?api_key=sesame"])
def test_a_key_in_the_judge_url_is_refused_and_not_repeated(url: str) -> None:
    (line,) = problems(*NEEDED, f"judge.url={url}")
    assert "FACTRL_JUDGE_API_KEY" in line
    assert "sesame" not in line


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("train.steps=5", "train.steps", 5),
        ('train.report_to=["wandb", "trackio"]', "train.report_to", ("wandb", "trackio")),
        ("train.report_to=wandb", "train.report_to", ("wandb",)),
        ("model.lora_target_modules=['q', 'v']", "model.lora_target_modules", ("q", "v")),
        ("model.revision=1234567", "model.revision", "1234567"),
        ("data.prompt={question} = ?", "data.prompt", "{question} = ?"),
        ("data.columns.question=42", "data.columns", {"question": "42"}),
        ("reward.anything=[1, 2]", "reward", {"anything": [1, 2]}),
    ],
)
def test_override_values(override: str, key: str, value: Any) -> None:
    settings: Any = load_settings(RunSettings, None, [*NEEDED, override])
    for part in key.split("."):
        settings = getattr(settings, part)
    assert settings == value
    assert type(settings) is type(value)


def test_later_layers_win(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[train]\nsteps = 2\nbeta = 0.2\nepsilon = 0.3\n[reward]\nwrong = -2\n")
    defaults = {"train": {"steps": 1, "temperature": 0.5}, "reward": {"correct": 3.0, "wrong": -3.0}}
    settings = load_settings(
        RunSettings, recipe, [*NEEDED, "train.beta=0.1", "train.beta=0.4"], defaults, KNOBS
    )
    assert (settings.train.steps, settings.train.temperature, settings.train.epsilon) == (2, 0.5, 0.3)
    assert settings.train.beta == 0.4
    assert settings.reward == {"correct": 3.0, "wrong": -2, "retries": 2, "strict": True, "mode": "words"}


# Files


@pytest.mark.parametrize(("content", "name"), [(b"a = 1\nb = \n", "line 2"), (b"a = '\xff'", "byte 5")])
def test_unreadable_files(tmp_path: Path, content: bytes, name: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"recipe\.toml .*{name}"):
        load_settings(RunSettings, path, NEEDED)


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "truthrl.toml").touch()
    with pytest.raises(ConfigError, match=r"thruthrl\.toml .* 'truthrl\.toml'"):
        load_settings(RunSettings, tmp_path / "thruthrl.toml", NEEDED)
    with pytest.raises(ConfigError, match=r"no/such\.toml does not exist$"):
        load_settings(RunSettings, "no/such.toml", NEEDED)
    with pytest.raises(ConfigError, match="cannot be read: "):
        load_settings(RunSettings, tmp_path, NEEDED)


def test_peek_reads_one_key_whatever_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('paper = "knowrl"\n[train]\nsteps = "wrong"\n')
    assert read_setting(RunSettings, path, [], "paper") == "knowrl"
    assert read_setting(RunSettings, path, ["paper=truthrl", "nonsense"], "paper") == "truthrl"
    assert read_setting(RunSettings, path, [], "train.steps") == "wrong"
    assert read_setting(RunSettings, None, [], "paper") is None
    assert read_setting(RunSettings, path, [], "paper.name") is None


# Knobs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"wrogn": -1.0}, "unknown knob reward.wrogn; did you mean 'wrong'?"),
        ({"x": 1}, "unknown knob reward.x; it has correct, floor, mode, retries, strict, wrong"),
        ({"correct": "1"}, "reward.correct = '1': "),
        ({"correct": float("nan")}, "reward.correct = nan: "),
        ({"retries": 2.0}, "reward.retries = 2.0: "),
    ],
)
def test_wrong_knobs(given: dict[str, Any], message: str) -> None:
    (line,) = check_knobs(given, KNOBS["reward"])
    assert line.startswith(message)


@pytest.mark.parametrize(
    ("default", "right", "wrong"), [([], [1], 1), ((1, 2), [3], "x"), ({}, {"a": 1}, []), (None, "any", None)]
)
def test_knobs_that_hold_several_values(default: Any, right: Any, wrong: Any) -> None:
    assert check_knobs({"k": right}, {"k": default}) == []
    assert bool(check_knobs({"k": wrong}, {"k": default})) is (default is not None)


def test_knob_problems_join_the_others(tmp_path: Path) -> None:
    words = [*NEEDED[1:], "reward.wrong=x"]
    lines = problems(*words, toml="[reward]\ncorect = 1", tmp_path=tmp_path, knobs=KNOBS)
    for line, named in zip(sorted(lines), ("paper", "reward.wrong = 'x'", "reward.corect"), strict=True):
        assert named in line


# Resolved settings


@given(
    prompt=st.text(max_size=30),
    knob=st.one_of(st.text(max_size=20), st.floats(allow_nan=False), st.booleans()),
)
def test_resolved_settings_read_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, prompt: str, knob: Any
) -> None:
    data = {"train": "q.jsonl", "system": prompt, "columns": {"question": prompt}}
    values = {
        "paper": "truthrl",
        "model": {"name": "tiny"},
        "data": data,
        "reward": {"knob": knob, "unset": None},
    }
    settings = load_settings(RunSettings, None, [], values)
    path = tmp_path_factory.mktemp("resolved") / "config.toml"
    path.write_bytes(dump_toml(settings).encode())
    again = load_settings(RunSettings, path)
    assert again.data == settings.data
    assert again.reward == {"knob": knob}
    assert again.train == settings.train
