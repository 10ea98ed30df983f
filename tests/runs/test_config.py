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
    assert problems(
        "data.limt=3", "temprature=2", toml=toml, tmp_path=tmp_path, defaults={"train": {"beta": -1.0}}
    ) == [
        "override: unknown key temprature; did you mean 'train.temperature'?",
        "recipe.toml: data.train is required; add it to the recipe or pass data.train=...",
        "override: unknown key data.limt; did you mean 'data.limit'?",
        "recipe.toml: unknown key train.learnin_rate; did you mean 'train.learning_rate'?",
        "recipe.toml: unknown key learning_rate; did you mean 'train.learning_rate'?",
        "recipe.toml: unknown section [trian]; did you mean 'train'?",
        "recipe.toml: train.steps = 'five' must be a whole number",
        "recipe.toml: train.num_generations = 1 must be greater than or equal to 2",
        "recipe.toml: train.loss_type = 'dr-grpo' must be 'grpo', 'dr_grpo', 'bnpo', 'dapo' or 'reinforce++'"
        "; did you mean 'dr_grpo'?",
        "paper's settings: train.beta = -1.0 must be greater than or equal to 0",
    ]


@pytest.mark.parametrize(
    ("override", "name"),
    [
        ("steps", "'steps'"),
        ("name=x", "model.name, run.name"),
        ("steps=", "steps"),
        ("report_to=[wandb]", "quote the whole override"),
        ("steps=0", "train.steps = 0"),
        ("temperature=nan", "train.temperature"),
        ("bf16=yes", "train.bf16"),
        ("data.columns.qestion=q", "'question'"),
        ("data.prompt=\\boxed{}", "{{ and }}"),
        ("data.prompt=Answer.", "{question}"),
        ("paper.name=x", "paper"),
        ("model.trust_remote_code=true", "model.revision"),
        ("micro_batch_size=7", "train.micro_batch_size"),
        ("eval_steps=5", "data.eval"),
    ],
)
def test_one_wrong_override_is_one_line(override: str, name: str) -> None:
    [line] = problems(*NEEDED, override)
    assert name in line


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("steps=5", "train.steps", 5),
        ('report_to=["wandb", "trackio"]', "train.report_to", ("wandb", "trackio")),
        ("report_to=wandb", "train.report_to", ("wandb",)),
        ("lora_target_modules=['q', 'v']", "model.lora_target_modules", ("q", "v")),
        ("revision=1234567", "model.revision", "1234567"),
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
    settings = load_settings(RunSettings, recipe, [*NEEDED, "beta=0.1", "beta=0.4"], defaults, KNOBS)
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
        ({"correct": "1"}, "reward.correct = '1' must be a finite number"),
        ({"correct": float("nan")}, "reward.correct = nan must be a finite number"),
        ({"retries": 2.0}, "reward.retries = 2.0 must be a whole number"),
    ],
)
def test_wrong_knobs(given: dict[str, Any], message: str) -> None:
    assert check_knobs(given, KNOBS["reward"]) == [message]


@pytest.mark.parametrize(
    ("default", "right", "wrong"), [([], [1], 1), ((1, 2), [3], "x"), ({}, {"a": 1}, []), (None, "any", None)]
)
def test_knobs_that_hold_several_values(default: Any, right: Any, wrong: Any) -> None:
    assert check_knobs({"k": right}, {"k": default}) == []
    assert bool(check_knobs({"k": wrong}, {"k": default})) is (default is not None)


def test_knob_problems_join_the_others_and_knobs_have_short_names(tmp_path: Path) -> None:
    assert problems(*NEEDED[1:], "wrong=x", toml="[reward]\ncorect = 1", tmp_path=tmp_path, knobs=KNOBS) == [
        "recipe.toml: paper is required; add it to the recipe or pass paper=...",
        "override: reward.wrong = 'x' must be a finite number",
        "recipe.toml: unknown knob reward.corect; did you mean 'correct'?",
    ]
    settings = load_settings(RunSettings, None, [*NEEDED, "wrong=-0.5"], knobs=KNOBS)
    assert settings.reward["wrong"] == -0.5


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
