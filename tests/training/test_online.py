"""`train` from settings to a run folder: resuming, stopping, evaluating."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dying import died
from transformers.training_args import OptimizerNames

from factrl.errors import ConfigError, ModelError, TooManyMasked
from factrl.job import read_job
from factrl.runs import progress
from factrl.runs.folder import Run, read_metrics
from factrl.train import model
from factrl.train.callbacks import Interrupted, RunCallback, last_checkpoint, same_trackers
from factrl.train.online import grpo_config, train
from factrl.train.plan import Plan, make_plan

STEPS = 15
SETTINGS = """
paper = "truthrl"
[model]
name = {model!r}
[data]
train = {questions!r}
eval = {questions!r}
prompt = "{{question}}"
[reward]
answer = "text"
wrong = -0.5
[train]
steps = 15
prompts_per_step = 2
num_generations = 4
micro_batch_size = 4
max_completion_length = 5
gradient_checkpointing = false
learning_rate = 1e-3
beta = 0.01
save_steps = 5
eval_steps = 10
bf16 = false
[run]
dir = {runs!r}
seed = 3
"""
CURVES = ("reward", "rewards/outcome/mean", "loss", "grad_norm", "entropy", "kl", "eval/accuracy")


def write_recipe(folder: Path, model: Path, questions: Path) -> Path:
    path = folder / "recipe.toml"
    text = SETTINGS.format(model=str(model), questions=str(questions), runs=str(folder / "runs"))
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def recipe(tiny_model: Path, questions: Path, tmp_path: Path) -> Path:
    return write_recipe(tmp_path, tiny_model, questions)


@pytest.fixture(scope="module")
def whole(tiny_model: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped."""
    return train(_plan(write_recipe(tmp_path_factory.mktemp("whole"), tiny_model, questions)))


KILLED = ('train.report_to=["tensorboard"]',)


@pytest.fixture(scope="module")
def dead(tiny_model: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A recipe, beside it `killed`, a run killed twice, and `interrupted`, and what was said."""
    folder = tmp_path_factory.mktemp("dead")
    recipe = write_recipe(folder, tiny_model, questions)
    killed = (f"run.output={folder / 'killed'}", *KILLED)
    long = (
        f"run.output={folder / 'interrupted'}",
        "train.steps=500",
        "train.save_steps=500",
        "train.eval_steps=400",
    )
    codes, said = died(
        ["train", "rollouts", 2, "kill", str(recipe), *killed],
        ["train", "rollouts", 7, "kill", str(recipe), *killed],
        ["train", "rollouts", 2, "interrupt", str(recipe), *long],
    )
    assert codes == [9, 9, 130]
    return recipe, said


def _plan(recipe: Path, *overrides: str) -> Plan:
    return make_plan(read_job(recipe, overrides))


def _curve(run: Path) -> list[dict[str, Any]]:
    return [
        {"step": line["step"], **{name: line[name] for name in CURVES if name in line}}
        for line in read_metrics(run)
    ]


def test_a_run_leaves_metrics_rollouts_checkpoints_and_a_model(whole: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    lines = read_metrics(whole)
    assert [line["step"] for line in lines if "reward" in line] == list(range(1, STEPS + 1))
    assert [line["step"] for line in lines if "eval/accuracy" in line] == [10, 15]
    assert len(list((whole / "rollouts").iterdir())) == STEPS
    assert last_checkpoint(whole / "checkpoints") == (whole / "checkpoints" / "checkpoint-15", STEPS)
    AutoModelForCausalLM.from_pretrained(whole / "model")
    AutoTokenizer.from_pretrained(whole / "model")
    recipe = whole.parents[1] / "recipe.toml"
    assert read_job(whole / "config.toml", []).settings == _plan(recipe).settings
    assert "On the way" in (whole / "report.html").read_text("utf-8")
    assert not (whole / "lock").exists()


def test_a_run_that_is_killed_three_times_goes_on_with_the_same_curve(
    dead: tuple[Path, str], whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe, run = dead[0], dead[0].parent / "killed"
    told = (f"run.output={run}", *KILLED)
    written = read_metrics(run)
    assert written
    assert written[-1]["step"] < STEPS
    name = (run / "tracker.json").read_text("utf-8")
    monkeypatch.setattr(progress, "HEARTBEAT_SECONDS", 0.0)
    capsys.readouterr()
    assert train(_plan(recipe, *told)) == run
    beats = re.findall(r"^train truthrl: (\d+)/", capsys.readouterr().err, re.M)
    assert int(beats[0]) > 5
    assert int(beats[-1]) == STEPS
    resumed, curve = _curve(run), _curve(whole)
    assert [line["step"] for line in resumed] == [line["step"] for line in curve]
    for found, expected in zip(resumed, curve, strict=True):
        assert found == pytest.approx(expected, abs=1e-6, nan_ok=True)
    assert (run / "tracker.json").read_text("utf-8") == name, "trackers see one run"
    assert len([*(run / "tensorboard").glob("events*")]) == 3
    shutil.rmtree(run / "model")  # killed between its last checkpoint and its model
    (run / "done.json").unlink()
    before = read_metrics(run)
    train(_plan(recipe, *told))
    assert read_metrics(run) == before
    assert (run / "model" / "model.safetensors").is_file()
    assert (run / "done.json").read_text("utf-8") == json.dumps({"steps": STEPS})


def test_trackers_are_told_that_a_run_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_RUN_ID", raising=False)
    monkeypatch.setenv("WANDB_RESUME", "must")  # what the user says stays
    told = []
    for folder in (tmp_path / "a", tmp_path / "b", tmp_path / "a"):
        folder.mkdir(exist_ok=True)
        with Run(folder) as run, same_trackers(run):
            told.append((os.environ["WANDB_RUN_ID"], os.environ["TENSORBOARD_LOGGING_DIR"]))
            assert os.environ["WANDB_RESUME"] == "must"
    assert told[0] == told[2] != told[1]
    assert "WANDB_RUN_ID" not in os.environ


def test_an_interrupt_leaves_a_complete_checkpoint(dead: tuple[Path, str]) -> None:
    run, said = dead[0].parent / "interrupted", dead[1]
    assert "finishing this step; again stops now" in said
    assert re.search(r"stopped after step 3; go on with: factrl train --resume", said)
    assert last_checkpoint(run / "checkpoints") == (run / "checkpoints" / "checkpoint-3", 3)
    assert not (run / "lock").exists()


def test_a_second_interrupt_says_what_goes_on(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-4").mkdir()
    (tmp_path / "checkpoint-4" / "complete").touch()

    def cut(**_: object) -> None:
        raise KeyboardInterrupt

    trainer = SimpleNamespace(
        args=SimpleNamespace(output_dir=tmp_path),
        remove_callback=lambda _: None,
        add_callback=lambda _: None,
        callback_handler=SimpleNamespace(callbacks=[]),
        train=cut,
    )
    callback = RunCallback(cast(Run, SimpleNamespace(path=tmp_path)), verb="tune")
    with pytest.raises(Interrupted, match="stopped after step 4; go on with: factrl tune --resume"):
        callback.train(cast(Any, trainer), None, "train sft")


def test_a_checkpoint_that_was_not_finished_is_not_used(tmp_path: Path) -> None:
    for step, complete in ((2, True), (4, False)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if complete:
            (folder / "complete").touch()
    assert last_checkpoint(tmp_path) == (tmp_path / "checkpoint-2", 2)
    assert last_checkpoint(tmp_path / "none") is None


def test_a_run_that_cannot_be_graded_stops_with_a_tally(recipe: Path, tmp_path: Path) -> None:
    reward = tmp_path / "down.py"
    reward.write_text(
        "import factrl as fx\n"
        "@fx.reward\n"
        "def down(example, completion, *, answer='text', wrong=-1.0):\n"
        "    raise fx.Unscored('connection', 'the judge is down')\n",
        encoding="utf-8",
    )
    with pytest.raises(TooManyMasked, match=r"step 3: more than 50%.*3 steps in a row \(24 connection\)"):
        train(_plan(recipe, f"paper={reward}:down"))
    [run] = (tmp_path / "runs").iterdir()
    found = last_checkpoint(run / "checkpoints")
    assert found is not None
    assert found[1] == 3


def test_lora_trains_only_its_adapter(recipe: Path) -> None:
    run = train(_plan(recipe, "model.lora=true", "train.steps=2", "train.eval_steps=2", "train.save_steps=2"))
    assert (run / "model" / "adapter_config.json").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ('train.report_to=["wandbb"]', r"train\.report_to = 'wandbb'"),
        ('train.report_to=["clearml", "tensorboard"]', "clearml"),
        ("train.optim=adamw_8bit", "bitsandbytes"),
        ("model.freeze_layers=2", r"model\.freeze_layers = 2"),
    ],
)
def test_what_is_wrong_is_said_before_a_run_folder_exists(
    recipe: Path, tmp_path: Path, override: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        train(_plan(recipe, override))
    assert not (tmp_path / "runs").exists()


def test_weights_in_4_bits_are_qloras(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan(recipe, "model.lora=true", "model.load_in_4bit=true")
    with pytest.raises(ConfigError, match=r"model\.load_in_4bit = true .*model\.lora = true"):
        _plan(recipe, "model.load_in_4bit=true")
    options: dict[str, Any] = {}

    def load(name: str, **given: Any) -> None:
        options.update(given)
        raise ImportError("bitsandbytes is not here")

    monkeypatch.setattr(model.AutoModelForCausalLM, "from_pretrained", load)
    with pytest.raises(ModelError, match="bitsandbytes"):
        model.load_policy(plan.settings.model)
    config = options["quantization_config"]
    assert (config.load_in_4bit, config.bnb_4bit_quant_type) == (True, "nf4")


def test_settings_are_trls_by_their_names(recipe: Path, tmp_path: Path) -> None:
    for name in ("adamw_torch_fused", "adamw_8bit"):
        assert grpo_config(_plan(recipe, f"train.optim={name}").settings, tmp_path).optim == OptimizerNames(
            name
        )
    server = ("train.use_vllm=true", "train.vllm_mode=server", "train.vllm_server_base_url=http://gpu2:8000")
    config = grpo_config(_plan(recipe, *server).settings, tmp_path)
    told = (config.use_vllm, config.vllm_mode, config.vllm_server_base_url)
    assert told == (True, "server", "http://gpu2:8000")


def test_what_is_frozen_stays_and_the_rest_moves(recipe: Path, tiny_model: Path) -> None:
    from safetensors.torch import load_file

    frozen = ("model.freeze_embeddings=true", "model.freeze_layers=1", "train.weight_decay=0.1")
    run = train(_plan(recipe, *frozen, "train.steps=2", "train.eval_steps=2", "train.save_steps=2"))
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_model, run / "model"))
    still = {name for name in before if before[name].equal(after[name])}
    below = {name for name in before if name.startswith(("model.embed_tokens", "model.layers.0."))}
    assert still == below
