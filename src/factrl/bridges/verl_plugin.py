"""factrl's plugin for verl: advantage estimators that leave masked samples out, and a trainer.

verl imports this module in each of its processes: by the entry point group `verl.plugins`, and, because verl
says nothing when a plugin fails, by VERL_USE_EXTERNAL_MODULES=factrl.bridges.verl_plugin.
`recipes/truthrl/verl.sh` is a whole command; `check_registered` says whether verl has loaded it.

    algorithm.adv_estimator=factrl_grpo    group-relative; `+algorithm.factrl.scale` is group, batch or none
    algorithm.adv_estimator=factrl_reinforce_pp    REINFORCE++, whitened over the tokens of the batch
    trainer.v1.trainer_mode=factrl_sync    masked samples leave the token counts too, and spans are credited

Its losses over completions (`seq-mean-…`) divide by all completions of a step, masked ones among them, where
factrl's own trainer divides by those that were graded: verl's steps are smaller by that share.

The estimators are of verl's documented registry.  The trainer has no such place, and takes private methods of
verl 0.9: `_compute_advantage`, as its estimators are not told of columns and cannot change a mask;
`_compute_metrics` and `_val_metrics_update`, in which one masked sample makes every number NaN; and
`_save_checkpoint`, before a run ends that is mostly masked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transfer_queue as tq  # pyright: ignore[reportMissingImports]  (verl's, and not in its metadata)
from omegaconf import open_dict
from tensordict import TensorDict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.trainer.ppo.v1 import trainer_base as v1
from verl.workers.utils.padding import response_to_nested

from factrl.errors import ConfigError, FactrlError, RewardBug, TooManyMasked
from factrl.runs.folder import Rollout, Run
from factrl.train.advantages import flip_advantages, group_advantages, reinforce_pp_advantages
from factrl.train.metrics import reward_metrics
from factrl.types import Result

from .verl import BUG, SIGNS, from_verl

GRPO, REINFORCE, TRAINER = "factrl_grpo", "factrl_reinforce_pp", "factrl_sync"
STEPS_OVER_LIMIT = 3  # a run stops when this many steps in a row are mostly masked

_NAMES = {
    "reward": "critic/score/mean",
    "loss": "actor/pg_loss",
    "kl": "actor/kl_loss",
    "entropy": "actor/entropy",
    "grad_norm": "actor/grad_norm",
    "learning_rate": "actor/lr",
    "completions/mean_length": "response_length/mean",
    "completions/clipped_ratio": "response_length/clip_ratio",
    "step_time": "perf/time_per_step",
}

Advantages = tuple[torch.Tensor, torch.Tensor]


@core_algos.register_adv_est(GRPO)
def group_relative(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[Any],
    config: Any = None,
    **_: Any,
) -> Advantages:
    """`factrl.train.advantages.group_advantages` for verl; masked samples are NaN.

    Args:
        token_level_rewards: (B, T); the reward of a completion is the sum of its row.
        response_mask: (B, T).
        index: (B,) the prompt that each completion is for; groups may differ in size.
        config: verl's `algorithm`; of `algorithm.factrl` it reads `scale` and `epsilon`.

    Returns:
        (B, T) advantages, and the same as returns.
    """
    options = _options(config)
    scores = token_level_rewards.sum(dim=-1)
    rows_of: dict[Any, list[int]] = {}
    for row, group in enumerate(index):
        rows_of.setdefault(group, []).append(row)
    size = max(map(len, rows_of.values()))
    # Groups are filled up to one size with NaN, as of masked samples.
    filled = scores.new_full((len(rows_of), size), torch.nan)
    places = [(n, m, row) for n, rows in enumerate(rows_of.values()) for m, row in enumerate(rows)]
    groups, members, rows = (torch.tensor(part, device=scores.device) for part in zip(*places, strict=True))
    filled[groups, members] = scores[rows]
    unpadded = group_advantages(
        filled.flatten(),
        size,
        scale=options.get("scale", "group"),
        epsilon=options.get("epsilon", 1e-6),
    )
    advantages = torch.zeros_like(scores)
    advantages[rows] = unpadded.view(-1, size)[groups, members]
    spread = advantages.unsqueeze(-1) * response_mask
    return spread, spread


@core_algos.register_adv_est(REINFORCE)
def reinforce_pp(token_level_rewards: torch.Tensor, response_mask: torch.Tensor, **_: Any) -> Advantages:
    """`factrl.train.advantages.reinforce_pp_advantages` for verl; shapes as in `group_relative`."""
    lengths = response_mask.sum(dim=-1)
    advantages = reinforce_pp_advantages(token_level_rewards.sum(dim=-1), lengths)
    spread = advantages.unsqueeze(-1) * response_mask
    return spread, spread


def credited(
    advantages: torch.Tensor, response_mask: torch.Tensor, scores: torch.Tensor, signs: torch.Tensor | None
) -> Advantages:
    """FSPO's step-wise credit, and masked completions without a token.

    Args:
        advantages: (B, T), one value per completion times its mask.
        response_mask: (B, T).
        scores: (B, T); NaN somewhere in a row that is masked.
        signs: (B, T) of -1, 0 and 1; None leaves the advantages as they are.

    Returns:
        (B, T) advantages and (B, T) mask.
    """
    first = _first(response_mask)
    flipped = advantages
    if signs is not None:
        flipped = flip_advantages(advantages.gather(1, first).squeeze(1), signs) * response_mask
    graded = ~scores.isnan().any(dim=1, keepdim=True)
    return flipped, response_mask * graded.to(response_mask.dtype)


@register_trainer(TRAINER)
class FactualTrainer(PPOTrainerSync):
    """verl's synchronous trainer with what factrl adds; the columns are those of its TransferQueue.

    With `algorithm.factrl.run` it writes metrics and rollouts into that run folder, as our own trainer does.
    """

    def __init__(self, config: Any) -> None:
        # Any other name gets the asynchronous replay buffer of verl, which asks anew what failed, for ever.
        with open_dict(config):
            config.trainer.v1.trainer_mode = "sync"
        super().__init__(config)
        self._steps_over_limit = 0
        self._results: dict[str, Result] = {}  # of this step, by key
        self._advantages: dict[str, float] = {}  # of whole completions, before they are credited
        folder = _options(config.algorithm).get("run", None)
        self._run = Run(Path(folder), shared=True) if folder else None

    def on_init_end(self) -> None:
        """Forget what was logged after the checkpoint from which the run goes on."""
        super().on_init_end()
        if self._run is not None:
            self._run.truncate_after(self.global_steps)

    def on_sample_end(self) -> None:
        """Go no further with groups that are not whole, which verl would fill up with copies."""
        super().on_sample_end()
        if failed := self.replay_buffer.failure_keys["train"]:
            raise FactrlError(
                f"step {self.global_steps}: {len(failed)} prompts could not be answered; the errors of "
                "AgentLoopWorkerTQ above say why; mend the cause and give the same command again"
            )

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        keys = _real(batch)
        results = _graded(
            tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=["extra_fields"])
        )
        self._results = dict(zip(keys, results, strict=True)) if results else {}
        batch = super()._compute_advantage(batch, metrics)
        wanted = ["advantages", "response_mask", "rm_scores", SIGNS]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=wanted)
        nested = data["response_mask"]
        padded = data.to_padded_tensor()
        signs = padded.get(SIGNS, None)
        whole = padded["advantages"].gather(1, _first(padded["response_mask"])).squeeze(1)
        self._advantages = dict(zip(batch.keys, whole.tolist(), strict=True))
        flipped, mask = credited(padded["advantages"], padded["response_mask"], padded["rm_scores"], signs)
        if signs is not None:
            metrics.update(_credit_metrics(padded, flipped, mask))
        fields = {"advantages": flipped, "returns": flipped, "response_mask": mask, "loss_mask": mask}
        columns = {name: response_to_nested(value, nested) for name, value in fields.items()}
        return tq.kv_batch_put(
            keys=batch.keys,
            partition_id=batch.partition_id,
            fields=TensorDict(columns, batch_size=len(batch)),  # type: ignore[arg-type]
        )

    def _compute_metrics(
        self, batch: Any, metrics: Any, timing_raw: Any, global_steps: Any, epoch: Any
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        keys = _real(batch)
        data = tq.kv_batch_get(
            keys=keys,
            partition_id=batch.partition_id,
            select_fields=["prompts", "responses", "rm_scores", "extra_info"],
        )
        metrics.update(score_metrics(data["rm_scores"].to_padded_tensor(0.0).sum(dim=1)))
        if not self._results:
            return
        metrics.update(reward_metrics([*self._results.values()]))
        if self._run is not None:
            self._run.log(global_steps, _logged(metrics))
            self._run.write_rollouts(global_steps, self._rollouts(keys, data))
        limit = _options(self.config.algorithm).get("max_masked_share", 1.0)
        over = metrics["reward/masked_frac"] > limit
        self._steps_over_limit = self._steps_over_limit + 1 if over else 0
        if self._steps_over_limit >= STEPS_OVER_LIMIT:
            self._save_checkpoint()
            raise TooManyMasked(
                f"step {global_steps}: more than {limit:.0%} of the completions could not be graded for "
                f"{STEPS_OVER_LIMIT} steps in a row; a checkpoint was saved; mend the judge and go on"
            )

    def _rollouts(self, keys: Sequence[str], data: Any) -> list[Rollout]:
        texts = [
            [self.tokenizer.decode(ids, skip_special_tokens=True) for ids in data[name].unbind()]
            for name in ("prompts", "responses")
        ]
        rollouts = {}
        for key, prompt, completion, extra in zip(keys, *texts, list(data["extra_info"]), strict=True):
            result = self._results[key]
            advantage = None if result.value is None else self._advantages[key]
            rollouts[key] = Rollout(str(extra.get("id", "")), prompt, completion, result, advantage)
        return [rollouts[key] for key in sorted(rollouts)]

    def _val_metrics_update(
        self,
        data_sources: Sequence[str],
        sample_uids: Sequence[str],
        reward_extra_infos_dict: Mapping[str, Sequence[Any]],
        sample_turns: Sequence[int],
        expected_acc_counts: Any = None,
    ) -> dict[str, Any]:
        """verl's numbers of held-out answers over those that could be graded, and the share of the others."""
        columns = reward_extra_infos_dict
        graded = [row for row, score in enumerate(columns["reward"]) if not math.isnan(score)]
        metrics = super()._val_metrics_update(
            [data_sources[row] for row in graded],
            [sample_uids[row] for row in graded],
            {name: [values[row] for row in graded] for name, values in columns.items()},
            [sample_turns[row] for row in graded],
            expected_acc_counts=None,
        )
        metrics["val-core/masked_frac"] = 1 - len(graded) / max(1, len(data_sources))
        if self._run is not None and "state" in columns:
            rows = zip(*columns.values(), strict=True)
            held_out = held_out_metrics([_result(dict(zip(columns, row, strict=True))) for row in rows])
            self._run.log(self.global_steps, held_out)
        return metrics


def held_out_metrics(results: Sequence[Result]) -> dict[str, float]:
    """The metrics of held-out answers in a run folder: mean reward, masked share, and the shares of outcomes.

    Args:
        results: one or more; the outcomes are those of rewards that give each answer a label.
    """
    graded = [result for result in results if result.value is not None]
    metrics = {"eval/masked": 1 - len(graded) / len(results)}
    if graded:
        metrics["eval/reward"] = sum(result.value or 0.0 for result in graded) / len(graded)
    labels = Counter(result.facts["label"] for result in graded if "label" in result.facts)
    shares = {"accuracy": "correct", "abstention": "abstained", "hallucination": "incorrect"}
    if total := sum(labels[label] for label in shares.values()):
        metrics |= {f"eval/{share}": labels[label] / total for share, label in shares.items()}
    return metrics


def score_metrics(scores: torch.Tensor) -> dict[str, float]:
    """verl's metrics of scores, which a single masked sample makes NaN, over the graded ones.

    Args:
        scores: (B,), NaN where masked.
    """
    graded = scores[~scores.isnan()]
    if not len(graded):
        return {}
    values = {"mean": float(graded.mean()), "max": float(graded.max()), "min": float(graded.min())}
    return {f"critic/{of}/{name}": value for of in ("score", "rewards") for name, value in values.items()}


def check_registered() -> None:
    """Refuse to start when verl does not know what this module registers.

    Raises:
        ConfigError: what is not there.
    """
    absent = [name for name in (GRPO, REINFORCE) if name not in core_algos.ADV_ESTIMATOR_REGISTRY]
    absent += [] if TRAINER in v1.TRAINER_REGISTRY else [TRAINER]
    if absent:
        raise ConfigError(f"verl knows no {', '.join(absent)}; set VERL_USE_EXTERNAL_MODULES={__name__}")


def _real(batch: Any) -> list[str]:
    """The keys of a batch without those that verl fills it up with."""
    return [key for key, tag in zip(batch.keys, batch.tags, strict=True) if not tag.get("is_padding", False)]


def _graded(data: Any) -> list[Result]:
    """Our reward's result of each completion; empty where the reward is not ours.

    Raises:
        RewardBug: it had a bug.
    """
    infos = [fields.get("reward_extra_info") or {} for fields in list(data["extra_fields"])]
    return [_result(one) for one in infos] if all("state" in one for one in infos) else []


def _result(info: Mapping[str, Any]) -> Result:
    if info.get(BUG):
        raise RewardBug(info[BUG])
    return from_verl(info)


def _logged(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """verl's metrics under the names that factrl's own trainer logs them by."""
    named = {name_here: float(metrics[name]) for name_here, name in _NAMES.items() if name in metrics}
    prefixes = ("reward/", "rewards/", "masked/", "floored/", "credit/", "abstain/", "answer/")
    return {**named, **{name: value for name, value in metrics.items() if name.startswith(prefixes)}}


def _first(mask: torch.Tensor) -> torch.Tensor:
    """(B, 1) place of the first token that counts."""
    return mask.long().argmax(dim=1, keepdim=True)


def _credit_metrics(padded: Any, flipped: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    trained, signs = mask.bool(), padded[SIGNS]
    tokens = trained.sum().clamp(min=1)
    parts = {"supported": signs > 0, "contradicted": signs < 0, "flipped": flipped != padded["advantages"]}
    return {f"credit/{name}": float((part & trained).sum() / tokens) for name, part in parts.items()}


def _options(config: Any) -> Any:
    return (config.get("factrl", None) if config is not None else None) or {}
