"""What verl must know before it trains with factrl: advantages with masked samples, and a trainer.

verl imports this module in each of its processes: by the entry point group `verl.plugins`, and, because verl
says nothing when a plugin fails, by VERL_USE_EXTERNAL_MODULES=factrl.bridges.verl_plugin, which
`factrl train --engine verl` sets.  `check_registered` says whether verl has taken it up.

    algorithm.adv_estimator=factrl_grpo    group-relative; `+algorithm.factrl.scale` is group, batch or none
    algorithm.adv_estimator=factrl_reinforce_pp    REINFORCE++, whitened over the tokens of the batch
    trainer.v1.trainer_mode=factrl_sync    masked samples leave the token counts too, and spans are credited

Its losses over completions (`seq-mean-…`) divide by all completions of a step, masked ones among them, where
factrl's own trainer divides by those that were graded: verl's steps are smaller by that share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import transfer_queue as tq  # pyright: ignore[reportMissingImports]  (verl's, and not in its metadata)
from tensordict import TensorDict
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import PPOTrainerSync, register_trainer
from verl.trainer.ppo.v1 import trainer_base as v1
from verl.workers.utils.padding import response_to_nested

from factrl.errors import ConfigError, TooManyMasked
from factrl.train.advantages import flip_advantages, group_advantages, reinforce_pp_advantages
from factrl.train.metrics import reward_metrics

from .verl import from_verl

GRPO, REINFORCE, TRAINER = "factrl_grpo", "factrl_reinforce_pp", "factrl_sync"
SIGNS = "factrl_signs"  # column: the sign of each token's step, as `factrl.bridges.verl_agent` writes it
STEPS_OVER_LIMIT = 3  # a run stops when this many steps in a row are mostly masked

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
    told = _told(config)
    scores = token_level_rewards.sum(dim=-1)
    rows_of: dict[Any, list[int]] = {}
    for row, group in enumerate(index):
        rows_of.setdefault(group, []).append(row)
    size = max(map(len, rows_of.values()))
    # Groups are filled up to one size with NaN, which is nobody.
    filled = scores.new_full((len(rows_of), size), torch.nan)
    places = [(n, m, row) for n, rows in enumerate(rows_of.values()) for m, row in enumerate(rows)]
    groups, members, rows = (torch.tensor(part, device=scores.device) for part in zip(*places, strict=True))
    filled[groups, members] = scores[rows]
    found = group_advantages(
        filled.flatten(),
        size,
        scale=told.get("scale", "group"),
        epsilon=told.get("epsilon", 1e-6),
    )
    advantages = torch.zeros_like(scores)
    advantages[rows] = found.view(-1, size)[groups, members]
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
    first = response_mask.long().argmax(dim=1, keepdim=True)
    found = advantages
    if signs is not None:
        found = flip_advantages(advantages.gather(1, first).squeeze(1), signs) * response_mask
    graded = ~scores.isnan().any(dim=1, keepdim=True)
    return found, response_mask * graded.to(response_mask.dtype)


@register_trainer(TRAINER)
class FactualTrainer(PPOTrainerSync):
    """verl's synchronous trainer with what factrl adds; the columns are those of its TransferQueue."""

    _steps_over_limit = 0

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch = super()._compute_advantage(batch, metrics)
        wanted = ["advantages", "response_mask", "rm_scores", SIGNS]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=wanted)
        nested = data["response_mask"]
        padded = data.to_padded_tensor()
        signs = padded.get(SIGNS, None)
        found, mask = credited(padded["advantages"], padded["response_mask"], padded["rm_scores"], signs)
        if signs is not None:
            metrics.update(_credit_metrics(padded, found, mask))
        fields = {"advantages": found, "returns": found, "response_mask": mask, "loss_mask": mask}
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
        wanted = ["rm_scores", "extra_fields"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=wanted)
        told = [fields.get("reward_extra_info") for fields in data.pop("extra_fields").tolist()]
        metrics.update(score_metrics(data.to_padded_tensor()["rm_scores"].sum(dim=1)))
        known = [from_verl(one) for one in told if one and "state" in one]
        if not known:
            return
        metrics.update(reward_metrics(known))
        limit = _told(self.config.algorithm).get("max_masked_share", 1.0)
        over = metrics["reward/masked_frac"] > limit
        self._steps_over_limit = self._steps_over_limit + 1 if over else 0
        if self._steps_over_limit >= STEPS_OVER_LIMIT:
            self._save_checkpoint()
            raise TooManyMasked(
                f"step {global_steps}: more than {limit:.0%} of the completions could not be graded for "
                f"{STEPS_OVER_LIMIT} steps in a row; a checkpoint was saved; mend the judge and go on"
            )


def score_metrics(scores: torch.Tensor) -> dict[str, float]:
    """verl's metrics of scores, which a single masked sample makes NaN, over the graded ones.

    Args:
        scores: (B,), NaN where masked.
    """
    graded = scores[~scores.isnan()]
    if not len(graded):
        return {}
    kinds: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"mean": torch.mean, "max": torch.max}
    kinds["min"] = torch.min
    return {
        f"critic/{of}/{name}": float(kind(graded))
        for of in ("score", "rewards")
        for name, kind in kinds.items()
    }


def check_registered() -> None:
    """Refuse to start when verl has not taken up what this module registers.

    Raises:
        ConfigError: what is not there.
    """
    absent = [name for name in (GRPO, REINFORCE) if name not in core_algos.ADV_ESTIMATOR_REGISTRY]
    absent += [] if TRAINER in v1.TRAINER_REGISTRY else [TRAINER]
    if absent:
        raise ConfigError(f"verl knows no {', '.join(absent)}; set VERL_USE_EXTERNAL_MODULES={__name__}")


def _credit_metrics(padded: Any, found: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    kept, signs = mask.bool(), padded[SIGNS]
    tokens = kept.sum().clamp(min=1)
    parts = {"supported": signs > 0, "contradicted": signs < 0, "flipped": found != padded["advantages"]}
    return {f"credit/{name}": float((part & kept).sum() / tokens) for name, part in parts.items()}


def _told(config: Any) -> Any:
    return (config.get("factrl", None) if config is not None else None) or {}
