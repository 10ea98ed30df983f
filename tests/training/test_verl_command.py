"""`factrl train --engine verl`: verl's own loader takes the command; what verl has no word for is refused."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from commands import write
from factrl.bridges.verl_overrides import as_words, overrides, recipe_of_workers
from factrl.bridges.verl_run import train_with_verl, write_files
from factrl.errors import ConfigError, SetupError
from factrl.job import Job, read_job
from factrl.runs.rows import read_lines
from factrl.train.plan import make_plan
from verl_parts import composed

BAPO = str(Path(__file__).parents[2] / "examples" / "rewards" / "bapo.py:bapo")


def job(questions: Path, paper: str, *words: str) -> Job:
    known = [f"paper={paper}", "model.name=some/model", f"data.train={questions}", "train.prompts_per_step=4"]
    return read_job(None, [*known, "judge.url=http://localhost:1/v1#judge", *words])


def settings(questions: Path, paper: str, *words: str) -> Any:
    return job(questions, paper, *words).settings


RUN = Path("/runs/x")


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return shlex.split(capsys.readouterr().out.replace("\\\n", " "))


@pytest.fixture(scope="module")
def with_evidence(questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [row | {"evidence": ["Ada is from Rome."]} for row in [*read_lines(questions)]]
    return write(tmp_path_factory.mktemp("evidence") / "questions.jsonl", *rows)


@pytest.mark.parametrize(
    ("paper", "words"),
    [
        ("fspo", ""),
        (
            "truthrl",
            "train.beta=0.001 train.loss_type=grpo train.scale_rewards=batch train.warmup_steps=0.1 "
            "train.lr_scheduler_type=cosine train.epsilon_high=0.28 train.optim=adamw_8bit",
        ),
        (
            "fspo",
            "train.loss_type=dr_grpo train.scale_rewards=none train.max_prompt_length=64 "
            "train.lr_scheduler_type=constant_with_warmup train.warmup_steps=5 model.dtype=bfloat16",
        ),
        ("truthrl", "train.loss_type=reinforce++ train.report_to=['wandb'] train.num_iterations=2"),
    ],
)
def test_verls_loader_takes_the_command(
    with_evidence: Path, paper: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = settings(with_evidence, paper, *words.split())
    assert train_with_verl(Job(told), dry_run=True, words=["trainer.nnodes=2"]) == 0
    shown = printed(capsys)
    assert shown[0] == "VERL_USE_EXTERNAL_MODULES=factrl.bridges.verl_plugin"
    assert shown[2:4] == ["-m", "verl.trainer.main_ppo"]
    config = composed(*shown[4:], checked=True)
    actor, train = config.actor_rollout_ref.actor, told.train
    assert config.trainer.nnodes == 2
    assert (actor.optim.lr, actor.use_kl_loss) == (train.learning_rate, train.beta > 0)
    assert actor.optim.optimizer == ("AdamW8bit" if train.optim == "adamw_8bit" else "AdamW")
    assert config.actor_rollout_ref.rollout.n == train.num_generations
    assert config.algorithm.factrl.scale == train.scale_rewards
    assert config.algorithm.adv_estimator.startswith("factrl_")
    assert config.trainer.v1.trainer_mode == "factrl_sync"
    assert config.reward.custom_reward_function.reward_kwargs.recipe.endswith("reward.toml")
    assert config.data.max_prompt_length >= 64
    assert actor.use_dynamic_bsz
    assert actor.ppo_max_token_len_per_gpu >= config.data.max_prompt_length + train.max_completion_length


def test_modules_of_the_users_are_loaded_first(questions: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "mine,factrl.bridges.verl_plugin")
    told = command(settings(questions, "truthrl"))
    name = "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES"
    assert told[name] == "mine,factrl.bridges.verl_plugin"


def test_the_sampler_that_is_named_is_the_one_that_is_needed(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang was refused for want of vLLM; and flash-attn is not taken for granted."""
    monkeypatch.setattr("factrl.bridges.verl_run.gpus_here", lambda: 1)
    told = job(questions, "truthrl", f"run.dir={tmp_path}")
    with pytest.raises(SetupError, match="sglang"):
        train_with_verl(told, words=["actor_rollout_ref.rollout.name=sglang"])
    with pytest.raises(SetupError, match="vllm"):
        train_with_verl(told)


def test_any_text_survives_hydra() -> None:
    texts = ["it's", r"a\b", "a b, c=[d]", "null", "", "ü{x}", "C:\\", "1", "x\\'"]
    alone = {f"+alone.t{number}": text for number, text in enumerate(texts)}
    config = composed(*as_words({"trainer.logger": texts, **alone}))
    assert list(config.trainer.logger) == [*config.alone.values()] == texts


def test_an_adapter_is_verls(questions: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only read: to check an adapter's rank verl wants vLLM."""
    train_with_verl(job(questions, "truthrl", "model.lora=true", "model.lora_rank=8"), dry_run=True)
    model = composed(*printed(capsys)[4:]).actor_rollout_ref.model
    assert (model.lora_rank, model.lora_alpha, model.target_modules) == (8, 32, "all-linear")


REFUSED = {
    "train.mask_truncated_completions=true": "train.mask_truncated_completions = True",
    "model.freeze_embeddings=true": "model.freeze_embeddings = True",
    "model.revision=abc": "model.revision = 'abc'",
    "model.freeze_layers=1": "model.freeze_layers = 1",
    "train.num_generations=1008": "verifier.share = True",
    "verifier.share=true": "verifier.share = True",
}


def test_one_worker_is_handed_the_groups_of_a_shared_verifier_and_of_a_reward_that_compares_them(
    questions: Path,
) -> None:
    of = "+reward.custom_reward_function.reward_kwargs.group"
    shared = settings(questions, "truthrl", "verifier.share=true", "train.num_generations=4")
    assert (command(shared)[of], command(shared)["reward.num_workers"]) == (4, 1)
    compared = settings(questions, BAPO, "reward.stage=plateau")
    assert (of in command(compared), command(compared)["reward.num_workers"]) == (True, 1)
    alone = settings(questions, "truthrl")
    assert (of in command(alone), command(alone)["reward.num_workers"]) == (False, 8)


def test_what_verl_has_no_word_for_is_refused_by_name(questions: Path) -> None:
    with pytest.raises(ConfigError) as error:
        train_with_verl(job(questions, "truthrl", *REFUSED), dry_run=True)
    assert all(told in str(error.value) for told in REFUSED.values())


@pytest.mark.parametrize(
    ("paper", "why"), [("intuitor", "how certain a policy was"), (BAPO, "give it knobs")]
)
def test_a_reward_that_needs_the_trainer_is_refused(paper: str, why: str, questions: Path) -> None:
    told = [f"data.eval={questions}", "train.eval_steps=1"]
    with pytest.raises(ConfigError, match=f"works with --engine trl alone: .*{why}"):
        train_with_verl(job(questions, paper, *told), dry_run=True)


def test_every_training_setting_is_mapped_or_refused(questions: Path) -> None:
    """Each of them, changed, changes the command or is refused; those of other engines are told apart."""
    plain = settings(questions, "truthrl")
    other = {
        **{"steps": 7, "epochs": 9.0, "prompts_per_step": 2, "num_generations": 4, "micro_batch_size": 2},
        **{"max_completion_length": 99, "max_prompt_length": 33, "learning_rate": 0.5, "weight_decay": 0.5},
        **{"lr_scheduler_type": "cosine", "warmup_steps": 3.0, "max_grad_norm": 0.5, "loss_type": "grpo"},
        **{"scale_rewards": "none", "beta": 0.5, "use_bias_correction_kl": True, "epsilon": 0.1},
        **{"entropy_coef": 0.01, "epsilon_high": 0.9, "advantage_epsilon": 0.1, "num_iterations": 2},
        **{"temperature": 0.5, "top_p": 0.5, "mask_truncated_completions": True, "bf16": False},
        **{"gradient_checkpointing": False, "save_steps": 2, "eval_steps": 3, "report_to": ("wandb",)},
        **{"max_masked_share": 0.1, "optim": "adamw_8bit"},
    }
    none = {"use_vllm", "vllm_mode", "vllm_server_base_url"}  # verl always has vLLM
    assert other.keys() | none == type(plain.train).model_fields.keys()
    for name, value in other.items():
        if plain.train.loss_type == value:
            value = "dapo"
        changed = plain.model_copy(update={"train": plain.train.model_copy(update={name: value})})
        assert command(changed) != command(plain), name


def command(told: Any) -> Any:
    batches = told.train.steps or int(8 // told.train.prompts_per_step * told.train.epochs)
    try:
        return overrides(told, RUN, held_out=False, batches=batches, longest_prompt=600, gpus=1)
    except ConfigError as error:
        return str(error)


def test_verls_steps_are_batches(questions: Path) -> None:
    """Of each batch `num_iterations` of our steps are made; prompts that verl leaves out end no run early."""
    words = ("train.num_iterations=2", "train.save_steps=10", "train.lr_scheduler_type=cosine")
    told = settings(questions, "truthrl", *words, "train.warmup_steps=5")
    often = told.model_copy(update={"train": told.train.model_copy(update={"eval_steps": 6})})
    known: Any = {"batches": 7, "longest_prompt": 600, "gpus": 1}
    made = overrides(told, RUN, held_out=True, **known)
    assert (made["trainer.total_training_steps"], made["trainer.total_epochs"]) == (7, 7)
    assert (made["trainer.save_freq"], made["actor_rollout_ref.actor.optim.lr_warmup_steps"]) == (5, 3)
    assert made["trainer.test_freq"] == 7
    assert overrides(often, RUN, held_out=True, **known)["trainer.test_freq"] == 3
    assert overrides(told, RUN, held_out=False, **known)["trainer.test_freq"] == -1


def test_the_files_are_what_verls_dataset_and_our_reward_read(with_evidence: Path, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    plan = make_plan(job(with_evidence, "fspo", f"run.dir={tmp_path}"))
    run = tmp_path / "run"
    write_files(plan, run)
    rows = pq.read_table(run / "train.parquet").to_pylist()
    assert len(rows) == 8
    assert rows[0]["prompt"][-1]["role"] == "user"
    assert rows[0]["extra_info"]["evidence"][0]["text"] == "Ada is from Rome."
    assert (
        json.loads((run / "agent.yaml").read_text("utf-8"))[0]["prefill"] == plan.settings.data.prefill != ""
    )
    again = read_job(run / "reward.toml", []).settings
    assert again.judge.max_concurrency == plan.settings.judge.max_concurrency // 8
    assert read_job(run / "config.toml", []).settings == plan.settings
    with pytest.raises(ConfigError, match="holds a run"):
        write_files(plan, run)


def test_reward_workers_find_files_wherever_they_run(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = "from factrl import reward\n@reward\ndef mine(example, completion):\n    return {'a': 1.0}\n"
    (tmp_path / "own.py").write_text(own, encoding="utf-8")
    (tmp_path / "facts.txt").write_text("Ada is from Rome.", encoding="utf-8")
    told = recipe_of_workers(settings(questions, "own.py:mine", "verifier.docs=facts.txt"))
    assert told.paper == f"{tmp_path}/own.py:mine"
    assert told.verifier.docs == (f"{tmp_path}/facts.txt",)
    assert recipe_of_workers(settings(questions, "truthrl:binary")).paper == "truthrl:binary"


def test_it_does_not_start_beside_a_trl_that_kills_verls_actors() -> None:
    """`factrl[verl]` brought trl 1 along, in which a class is missing that every actor imports."""
    from factrl.bridges.verl_run import _check_trl

    with pytest.raises(SetupError, match=r"cannot start beside the installed trl .*pip uninstall trl"):
        _check_trl()


def test_it_does_not_start_without_verl_or_a_gpu(questions: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"is not installed|needs a GPU"):
        train_with_verl(job(questions, "truthrl", f"run.dir={tmp_path}"))
    assert not list(tmp_path.iterdir())
