"""verl's configuration for a recipe: each of our settings under verl's name, or a refusal that names it.

Nothing of verl is imported.  What verl needs beyond our settings (GPUs, nodes, parallelism, offloading) keeps
verl's own default, but for one GPU per rollout engine, and is set by verl's own overrides.

Five things differ in more than their name:

- verl trains weights in float32 and computes in bfloat16, so `model.dtype = auto` is float32 there.
- `train.beta` is verl's `low_var_kl` inside the loss; `train.use_bias_correction_kl` has no counterpart.
- verl counts batches of completions, each of which is `train.num_iterations` of our steps.
- verl fills what a GPU computes on at a time by tokens; `train.micro_batch_size` counts with
  `--verl actor_rollout_ref.actor.use_dynamic_bsz=false`.  The gradient is the same.
- verl clips once more where the advantage is negative (`clip_ratio_c`); a bound that nothing reaches turns
  that off.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError
from factrl.papers import load_reward, split_spec
from factrl.runs.settings import ModelSettings, RunSettings, TrainSettings

# Files of the run folder, which all nodes see: questions, the agent loop, a reward worker's settings.
TRAIN, HELD_OUT = "train.parquet", "eval.parquet"
AGENT, RECIPE = "agent.yaml", "reward.toml"
PLUGIN = "factrl.bridges.verl_plugin"
MODULES = "VERL_USE_EXTERNAL_MODULES"
_CALLS = 1_000  # calls that Ray runs in an actor at a time: those of incomplete groups wait inside
_NO_DUAL_CLIP = 1e6
_TOKENS = 16_384  # that a GPU computes on at a time: verl's default
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./:@+-]*")
_WORDS = ("null", "true", "false", "nan", "inf")
_IN_8_BITS = {"optimizer": "AdamW8bit", "optimizer_impl": "bitsandbytes.optim"}
_LOSSES = {
    "grpo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "dapo": "token-mean",
    "reinforce++": "token-mean",
}


def modules() -> str:
    """What verl loads in each of its processes: the user's modules, and then our plugin."""
    others = [name for name in os.environ.get(MODULES, "").split(",") if name and name != PLUGIN]
    return ",".join([*others, PLUGIN])


def refusals(settings: RunSettings) -> list[str]:
    """The settings that verl has no counterpart of, one line each."""
    train, model = settings.train, settings.model
    no = {
        "model.revision": (model.revision is not None, "download that revision and name its folder"),
        "model.freeze_embeddings": (model.freeze_embeddings, "verl trains them"),
        "model.freeze_layers": (model.freeze_layers > 0, "verl trains all layers"),
        "model.load_in_4bit": (model.load_in_4bit, "verl's workers load the weights as they are"),
        "model.lora_dropout": (model.lora and model.lora_dropout > 0, "verl's adapters have none"),
        "train.lr_scheduler_type": (
            train.lr_scheduler_type == "linear",
            "verl has `constant`, `constant_with_warmup` and `cosine`",
        ),
        "train.use_bias_correction_kl": (train.use_bias_correction_kl, "leave it out"),
        "train.mask_truncated_completions": (train.mask_truncated_completions, "verl counts them"),
        "train.bf16": (train.bf16 is False, "verl computes in bfloat16"),
        "train.vllm_mode": (train.use_vllm and train.vllm_mode == "server", "verl has servers of its own"),
        "run.max_cost": (settings.run.max_cost is not None, "its reward workers keep no common account"),
        "verifier.share": (
            graded_together(settings) and train.prompts_per_step * train.num_generations > _CALLS,
            f"of more than {_CALLS:,} completions a step those that complete a group would not be heard",
        ),
    }
    return [
        f"{key} = {attrgetter(key)(settings)!r} has no counterpart in verl; {instead}"
        for key, (wrong, instead) in no.items()
        if wrong
    ]


def overrides(
    settings: RunSettings, run: Path, *, held_out: bool, batches: int, longest_prompt: int, gpus: int
) -> dict[str, Any]:
    """verl's configuration for these settings, by dotted name; `+` in front of what is new to verl.

    Args:
        run: the run folder.
        held_out: there are held-out questions; verl wants a file of them, so without any it is `TRAIN`.
        batches: batches of completions in the whole run.
        longest_prompt: tokens that hold any prompt, for settings without `train.max_prompt_length` or with a
            search.
        gpus: of each node.

    Raises:
        ConfigError: what verl cannot do, one line each.
    """
    if problems := refusals(settings):
        raise ConfigError(*problems)
    train = settings.train
    limit = _limit(settings, longest_prompt)
    prompt_length = limit or longest_prompt
    at_the_end = batches if held_out else -1
    sections = {
        "data": {
            "train_files": str(run / TRAIN),
            "val_files": str(run / (HELD_OUT if held_out else TRAIN)),
            "train_batch_size": train.prompts_per_step,
            "max_prompt_length": prompt_length,
            "max_response_length": train.max_completion_length,
            "filter_overlong_prompts": limit is not None,
            "truncation": "error",
            "shuffle": True,
            "seed": settings.run.seed,
            "trust_remote_code": settings.model.trust_remote_code,
        },
        **_policy(settings, run, prompt_length + train.max_completion_length),
        **_reward(settings, run),
        "algorithm": {
            "adv_estimator": "factrl_reinforce_pp" if train.loss_type == "reinforce++" else "factrl_grpo",
            "use_kl_in_reward": False,
            "norm_adv_by_std_in_grpo": train.scale_rewards != "none",
        },
        "+algorithm.factrl": {
            "scale": train.scale_rewards,
            "epsilon": train.advantage_epsilon,
            "max_masked_share": train.max_masked_share,
            "run": str(run),
        },
        "trainer": {
            "use_v1": True,
            "v1.trainer_mode": "factrl_sync",
            "total_training_steps": batches,
            "total_epochs": batches,  # at most; `total_training_steps` ends it
            "save_freq": _in_batches(train.save_steps, train),
            "max_actor_ckpt_to_keep": 2,
            "test_freq": _in_batches(train.eval_steps, train) if train.eval_steps else at_the_end,
            "val_before_train": False,
            "logger": ["console", *train.report_to],
            "project_name": "factrl",
            "experiment_name": run.name,
            "default_local_dir": str(run / "checkpoints"),
            "resume_mode": "auto",
            "n_gpus_per_node": gpus,
        },
    }
    return {
        **{f"{section}.{name}": value for section, of in sections.items() for name, value in of.items()},
        "hydra.run.dir": str(run / "hydra"),  # else `outputs` where the command was given
        f"+ray_kwargs.ray_init.runtime_env.env_vars.{MODULES}": modules(),
    }


def _limit(settings: RunSettings, longest_prompt: int) -> int | None:
    """Tokens above which verl leaves a prompt out; it counts them without the search that they offer."""
    limit = settings.train.max_prompt_length
    if limit is None or settings.search.index is None:
        return limit
    if limit < longest_prompt:
        raise ConfigError(
            f"train.max_prompt_length = {limit:,} may cut a prompt in two: verl counts prompts without the "
            f"search that they offer; with it the longest has at most {longest_prompt:,} tokens"
        )
    return None


def graded_together(settings: RunSettings) -> bool:
    """Whether the completions of a question share their evidence, or are compared by the reward."""
    return settings.verifier.share or "group" in load_reward(settings.paper).resources


def _reward(settings: RunSettings, run: Path) -> dict[str, dict[str, Any]]:
    """The sections of the reward; with `group` it grades the completions of a question at once."""
    group = {"group": settings.train.num_generations} if graded_together(settings) else {}
    return {
        "reward": {
            "num_workers": reward_workers(settings),
            "custom_reward_function.path": "pkg://factrl.bridges.verl",
            "custom_reward_function.name": "compute_score",
        },
        "+reward.custom_reward_function.reward_kwargs": {"recipe": str(run / RECIPE), **group},
    }


def _policy(settings: RunSettings, run: Path, longest: int) -> dict[str, dict[str, Any]]:
    """The sections of the model; `longest` tokens hold any prompt with its completion."""
    train, model = settings.train, settings.model
    return {
        "actor_rollout_ref.model": {
            "path": _absolute(model.name),
            "trust_remote_code": model.trust_remote_code,
            "enable_gradient_checkpointing": train.gradient_checkpointing,
            **(_lora(model) if model.lora else {}),
        },
        "actor_rollout_ref.actor": {
            "ppo_mini_batch_size": train.prompts_per_step,
            # As many completions at a time as fit; without it, `train.micro_batch_size` of them.
            "use_dynamic_bsz": True,
            "ppo_max_token_len_per_gpu": max(_TOKENS, longest),
            "ppo_micro_batch_size_per_gpu": train.micro_batch_size,
            "ppo_epochs": train.num_iterations,
            "data_loader_seed": settings.run.seed,
            "grad_clip": train.max_grad_norm,
            "clip_ratio": train.epsilon,
            "clip_ratio_low": train.epsilon,
            "clip_ratio_high": train.epsilon if train.epsilon_high is None else train.epsilon_high,
            "clip_ratio_c": _NO_DUAL_CLIP,
            "entropy_coeff": train.entropy_coef,
            "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],  # the last, to evaluate
            "loss_agg_mode": _LOSSES[train.loss_type],
            **({"loss_scale_factor": train.max_completion_length} if train.loss_type == "dr_grpo" else {}),
            "use_kl_loss": train.beta > 0,
            **({"kl_loss_coef": train.beta, "kl_loss_type": "low_var_kl"} if train.beta > 0 else {}),
            **({"fsdp_config.model_dtype": "bfloat16"} if model.dtype == "bfloat16" else {}),
        },
        "actor_rollout_ref.actor.optim": {
            "lr": train.learning_rate,
            "weight_decay": train.weight_decay,
            **(_IN_8_BITS if train.optim == "adamw_8bit" else {}),
            "clip_grad": train.max_grad_norm,
            "lr_scheduler_type": "cosine" if train.lr_scheduler_type == "cosine" else "constant",
            **({"lr_warmup_steps_ratio": train.warmup_steps} if 0 < train.warmup_steps < 1 else {}),
            **(
                {"lr_warmup_steps": _in_batches(train.warmup_steps, train)} if train.warmup_steps >= 1 else {}
            ),
        },
        "actor_rollout_ref.rollout": {
            "name": "vllm",
            "n": train.num_generations,
            "temperature": train.temperature,
            "top_p": train.top_p,
            "top_k": -1,
            "seed": settings.run.seed,
            "tensor_model_parallel_size": 1,
            "log_prob_micro_batch_size_per_gpu": train.micro_batch_size,
            "agent.agent_loop_config_path": str(run / AGENT),
            "agent.default_agent_loop": "factrl_agent",
        },
        "actor_rollout_ref.ref": {"log_prob_micro_batch_size_per_gpu": train.micro_batch_size},
    }


def _lora(model: ModelSettings) -> dict[str, Any]:
    modules = model.lora_target_modules
    return {
        "lora_rank": model.lora_rank,
        "lora_alpha": model.lora_alpha,
        "target_modules": modules if isinstance(modules, str) else list(modules),
    }


def reward_workers(settings: RunSettings) -> int:
    """Processes that grade: 8 as usual, or one in which the completions of a question wait for each other."""
    return 1 if graded_together(settings) else 8


def agent_loops(settings: RunSettings) -> list[dict[str, Any]]:
    """The content of the file `AGENT`, as JSON, which is YAML."""
    loop, search = {"name": "factrl_agent"}, settings.search
    if search.index is None:
        loop["_target_"] = "factrl.bridges.verl_agent.FactualAgentLoop"
        return [{**loop, "prefill": settings.data.prefill, "chat": settings.data.chat}]
    loop["_target_"] = "factrl.bridges.verl_agent.SearchAgentLoop"
    options = {"embedder": search.embedder, "k": search.k, "turns": search.turns}
    return [{**loop, "index": _absolute(search.index), **options}]


def recipe_of_workers(settings: RunSettings) -> RunSettings:
    """The settings of one reward worker: one of several that ask the judge, in a folder of its own."""
    judge, verifier = settings.judge, settings.verifier
    workers = reward_workers(settings)
    limits: dict[str, Any] = {"max_concurrency": max(1, judge.max_concurrency // workers)}
    limits["tpm"] = judge.tpm and judge.tpm / workers
    models = {name: _absolute(value) for name, value in judge if name.endswith("_model")}
    paths = {"docs": tuple(map(_absolute, verifier.docs)), "index": _absolute(verifier.index)}
    name, part = split_spec(settings.paper)
    return settings.model_copy(
        update={
            "paper": ":".join(filter(None, (_absolute(name) if name.endswith(".py") else name, part))),
            "judge": judge.model_copy(update=limits | models),
            "verifier": verifier.model_copy(update=paths),
        }
    )


def as_words(values: Mapping[str, Any]) -> list[str]:
    """As Hydra reads them on a command line."""
    return [f"{name}={_hydra(value)}" for name, value in values.items()]


def _in_batches(steps: float, train: TrainSettings) -> int:
    """Optimizer steps in batches of completions, which are verl's steps."""
    return math.ceil(steps / train.num_iterations)


def _absolute(name: Any) -> Any:
    """A file or folder of this machine by its whole path; anything else is a name."""
    return str(Path(name).absolute()) if name and Path(name).exists() else name


def _hydra(value: Any) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value not in _WORDS else _quoted(value)
    if isinstance(value, Sequence):
        return f"[{','.join(map(_hydra, value))}]"
    return json.dumps(value)


def _quoted(text: str) -> str:
    """Hydra reads backslashes as themselves, but for those before a quote or at the end."""
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", escaped) + "'"
