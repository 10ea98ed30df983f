"""Every recipe: it resolves, names its sources, and plans its run without a network, a model or torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.cli import main
from factrl.errors import ConfigError
from factrl.job import read_job
from factrl.llm import models
from factrl.papers import paper_names
from factrl.runs import RECIPES as OWN
from factrl.runs import recipe_of
from factrl.runs.config import flat, read_setting, settable
from factrl.runs.data import render_prompt
from factrl.runs.rows import read_rows
from factrl.runs.settings import OWN as OWN_SETTING
from factrl.runs.settings import RunSettings
from factrl.train.plan import make_plan
from factrl.types import Example

ROOT = Path(__file__).parents[2]
RECIPES = [ROOT / "recipes" / recipe_of(name).relative_to(OWN) for name in paper_names()]
SMALL = sorted((ROOT / "recipes" / "small").glob("*.toml"))
QUESTIONS, TOPICS = "recipes/small/questions.jsonl", "tests/fixtures/topics.jsonl"
# What a recipe leaves to the user, and questions of this repository instead of those on the hub.
JUDGE = "judge.url=http://localhost:8000/v1#judge"  # a dry run asks nobody
GIVEN = {
    "factreason": [
        "model.name=policy",
        f"data.train={TOPICS}",
        "train.prompts_per_step=4",
        "train.beta=0.001",
        JUDGE,
    ],
    "fspo": [f"data.train={QUESTIONS}"],
    "intuitor": [f"data.train={QUESTIONS}", "train.prompts_per_step=4"],
    "klcf": [
        f"data.train={TOPICS}",
        "train.prompts_per_step=4",
        "reward.alpha=0.4",
        "reward.beta=0.2",
        "reward.gamma=0.4",
        JUDGE,
    ],
    "knowrl": [f"data.train={QUESTIONS}", "verifier.index=wikipedia", JUDGE],
    "rlcr": [f"data.train={QUESTIONS}", f"data.eval={QUESTIONS}", "train.prompts_per_step=4"],
    "robust": ["model.name=policy", f"data.train={QUESTIONS}", "train.prompts_per_step=4"],
    "threshold": ["data.train={asked}", "train.prompts_per_step=4", JUDGE],
    "truthrl": [f"data.train={QUESTIONS}", f"data.eval={QUESTIONS}", "train.prompts_per_step=4"],
}
AT = {"threshold": 0.5, "penalty": "1"}
ULYSSES = Example("Who wrote Ulysses?", ("James Joyce",), topic="Ulysses", meta=AT)


def given(recipe: Path) -> list[str]:
    return [] if recipe in SMALL else GIVEN[paper_of(recipe)]


def paper_of(recipe: Path) -> str:
    return recipe.parent.name if recipe.stem == "recipe" else recipe.stem


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("recipe", [*RECIPES, *SMALL], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_recipe_plans_its_run(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ({**row, "threshold": 0.5, "penalty": "1"} for row in read_rows(QUESTIONS))
    asked = str(write(tmp_path / "asked.jsonl", *rows))
    words = [word.replace("{asked}", asked) for word in given(recipe)]
    assert main(["train", str(recipe.relative_to(ROOT)), *words, "--dry-run"]) == 0
    shown = capsys.readouterr()
    settings = read_job(recipe, words).settings
    assert settings.paper == paper_of(recipe)
    (tmp_path / "config.toml").write_text(shown.out, encoding="utf-8")
    assert read_job(tmp_path / "config.toml", []).settings == settings
    told = settings.train
    assert f" of {told.prompts_per_step} questions with {told.num_generations} completions" in shown.err
    prompt = render_prompt(ULYSSES, settings.data.prompt)
    assert prompt.count("Who wrote Ulysses?") == 1
    assert "{" not in prompt.replace("\\boxed{", "")


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("factreason", ["model.name", "data.train"]),
        ("klcf", ["data.train"]),
    ],
)
def test_what_is_not_published_is_asked_for(name: str, keys: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read_job(recipe_of(name), [])
    assert [line.split(" is required")[0] for line in str(caught.value).splitlines()] == keys


@pytest.mark.parametrize(
    ("recipe", "more", "wanted"),
    [
        ("klcf", [], "reward.alpha"),
        ("klcf", ["paper=klcf:non-thinking"], "klcf:non-thinking needs train.beta: it has a KL penalty"),
        (
            "factreason",
            ["model.name=policy"],
            "factreason needs train.beta: it has a KL penalty whose weight",
        ),
    ],
)
def test_weights_that_are_lost_are_asked_for(recipe: str, more: list[str], wanted: str) -> None:
    job = read_job(recipe_of(recipe), [f"data.train={TOPICS}", JUDGE, *more])
    with pytest.raises(ConfigError, match=wanted):
        make_plan(job)


@pytest.mark.parametrize("name", paper_names())
def test_a_papers_name_brings_its_recipe_but_for_models_data_and_machine(name: str) -> None:
    needed = ["model.name=policy", "data.train=questions"]
    recipe = flat(read_job(recipe_of(name), needed).settings.model_dump())
    by_name = flat(read_job(None, [*needed, f"paper={name}"]).settings.model_dump())
    differ = {key for key in recipe.keys() | by_name.keys() if recipe.get(key) != by_name.get(key)}
    marked = {key for key, field in settable(RunSettings).items() if OWN_SETTING in field.metadata}
    assert {key for key in differ if not key.startswith(("reward.", "run."))} <= marked


def test_a_recipe_of_factrls_own_is_there_in_any_folder_until_a_file_of_that_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "recipes/small/truthrl.toml", "--dry-run"]) == 0
    words = [f"data.train={QUESTIONS}", f"data.eval={QUESTIONS}", "train.prompts_per_step=4", "--dry-run"]
    assert main(["train", "truthrl:binary", "--config", "recipes/truthrl/recipe.toml", *words]) == 0
    assert main(["train", "recipes/trutrl.toml", "--dry-run"]) == 2
    assert "did you mean 'truthrl" in capsys.readouterr().err
    Path("recipes/truthrl").mkdir(parents=True)
    Path("recipes/truthrl/recipe.toml").write_text('paper = "klcf"\n')
    assert read_setting(RunSettings, "recipes/truthrl/recipe.toml", [], "paper") == "klcf"
    assert read_setting(RunSettings, "recipes/klcf/recipe.toml", [], "paper") == "klcf"


@pytest.mark.parametrize("recipe", SMALL, ids=lambda path: path.stem)
def test_a_small_recipe_fits_two_cores_and_needs_no_server(recipe: Path) -> None:
    settings = read_job(recipe, []).settings
    assert f"factrl train recipes/small/{recipe.name}" in recipe.read_text(encoding="utf-8").split("\n\n")[0]
    assert settings.model.name in [model.name for model in models.MODELS]
    assert settings.judge.url == "local"
    assert settings.data.train == QUESTIONS
    told = settings.train
    assert (told.steps, told.num_generations) == (8, 4)
    assert told.prompts_per_step * told.num_generations * told.max_completion_length <= 1024
    assert told.beta == 0
    assert not told.use_vllm


def test_rows_as_the_papers_released_them_fit_their_recipes(tmp_path: Path) -> None:
    """Columns of KnowRL's JSON list and of FSPO's parquet rows, and of KLCF's as we take them to be."""
    rows: dict[str, dict[str, Any]] = {
        "knowrl": {"question": "Where is Ely?", "answers": "England", "title": "Ely;Ely, Cambridgeshire"},
        "fspo": {
            "_id": "a1",
            "data_source": "hotpot",
            "question": "Where is Ely?",
            "answer": "England",
            "knowledge": "Ely is a city in England.",
            "prompt": [{"role": "user", "content": "rendered"}],
            "reward_model": {"ground_truth": "England", "style": "rule"},
        },
        "klcf": {"query": "Where is Ely?", "checklist": ["Ely is in England."]},
    }
    for name, row in rows.items():
        source = tmp_path / f"{name}.json"
        source.write_text(json.dumps([row]), encoding="utf-8")
        overrides = [
            *GIVEN[name],
            f"data.train={source}",
            "train.prompts_per_step=1",
            "train.micro_batch_size=1",
        ]
        plan = make_plan(read_job(recipe_of(name), overrides))
        (example,) = plan.examples
        assert example.question == "Where is Ely?"
        assert example.answers == (() if name == "klcf" else ("England",))
        assert example.topic == row.get("title", "")
        assert [passage.text for passage in example.evidence] == [*filter(None, [row.get("knowledge")])]
        assert example.checklist == tuple(row.get("checklist", ()))
