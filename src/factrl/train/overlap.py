"""Rewards beside generation and training, and micro-batches of one length.

TRL asks for the rewards when everything is written, waits, and then trains.  Here

* a completion goes to the judge when it ends, so the rest of the generation and the log-probabilities of the
  old policy and the reference run while it is judged;
* the micro-batches of an optimizer step take the prompts in the order in which their completions ended, which
  is that of their lengths, are cut to their longest completion, and keep the samples of a prompt together;
* a micro-batch is trained on as soon as the rewards of its own prompts are there.

The optimizer step is the same: its loss is a sum over completions, and the number that it is divided by,
which depends on what turns out to be masked, is put right in the gradients before the last micro-batch.  The
order does not depend on when a judge answers, so a run can be repeated to the last bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from trl.trainer.utils import nanstd

from ..rewards import SUM, Reward
from ..types import Completion, Example, Result
from .advantages import Scale, group_advantages
from .judging import Judging, can_judge_early, neighbours
from .metrics import reward_metrics
from .shortcuts import ShortcutTrainer

MEANS_OF_ROWS = frozenset({"grpo", "dr_grpo", "sapo", "luspo"})  # losses that divide by completions


@dataclass
class Parts:
    """The micro-batches of one optimizer step.

    Attributes:
        batch: what TRL trains on: tensors with a first axis of B rows, and scalars.
        order: the B rows, micro-batch after micro-batch.
        count: micro-batches.
        taken: micro-batches that were trained on.
        settled: groups whose advantages are known.
        results: of their rows.
        lengths: (B,) tokens of the completions.
        loss: the sum of the losses of the micro-batches before the last one.
        excess: what that sum and its gradients were divided by too much, known at the last micro-batch.
    """

    batch: dict[str, Any]
    order: list[int]
    count: int
    taken: int = 0
    settled: set[int] = field(default_factory=set)
    results: dict[int, Result] = field(default_factory=dict)
    lengths: torch.Tensor = field(init=False)
    loss: torch.Tensor | float = 0.0
    excess: float = 1.0

    def __post_init__(self) -> None:
        self.lengths = self.batch["completion_mask"].sum(dim=1)

    def rows(self, number: int) -> list[int]:
        """The rows of a micro-batch."""
        size = len(self.order) // self.count
        return self.order[number * size : (number + 1) * size]

    def select(self, number: int) -> dict[str, Any]:
        """A micro-batch, as wide as the batch."""
        rows = self.rows(number)
        return {
            name: value[rows] if torch.is_tensor(value) and value.dim() else value
            for name, value in self.batch.items()
        }


def cut(part: dict[str, Any]) -> dict[str, Any]:
    """A micro-batch without the columns behind its longest completion."""
    width = part["completion_mask"].size(1)
    used = part["completion_mask"].any(dim=0).nonzero()
    longest = int(used[-1]) + 1 if len(used) else 1
    return {
        name: value[:, :longest]
        if torch.is_tensor(value)
        and value.dim() == 2
        and value.size(1) == width
        and not name.startswith("prompt")
        else value
        for name, value in part.items()
    }


def replace_newest(logged: deque[float], values: torch.Tensor) -> None:
    """In place of what TRL logged; it keeps one training batch, which an evaluation's may exceed."""
    for _ in range(min(len(values), len(logged))):
        logged.pop()
    logged.extend(values.tolist())


def _is_number(value: Any) -> bool:
    return torch.is_tensor(value) and value.dim() == 0


class OverlappedTrainer(ShortcutTrainer):
    """GRPO that works out its rewards beside generation and training."""

    reward: Reward
    examples: list[Example]
    processing_class: Any
    num_generations: int
    scale_rewards: Scale
    _judging: Judging | None = None
    _late = False  # the rewards of this generation batch are asked for by its micro-batches
    _parts: Parts | None = None
    _results: list[Result]
    _rewards: torch.Tensor

    def _completion(self, text: str, ids: list[int], certainty: float | None = None) -> Completion:
        """What the reward gets."""
        raise NotImplementedError

    def _credit(
        self, advantages: torch.Tensor, results: Sequence[Result], batch: dict[str, Any]
    ) -> torch.Tensor:
        """The advantages of these rows or of their tokens."""
        raise NotImplementedError

    def _log_credit(self) -> None:
        """Log what `_credit` counted since the last time."""
        raise NotImplementedError

    def _leave_out_masked(self, batch: dict[str, Any], lengths: torch.Tensor) -> None:
        """Take the rows whose result is masked out of a generation batch."""
        raise NotImplementedError

    def _keep(self, advantages: torch.Tensor) -> None:
        """Write the rollouts of a generation batch."""
        raise NotImplementedError

    def _any_order(self) -> bool:
        """Whether the optimizer step is the same for every way to cut it into micro-batches."""
        return (
            self.args.sort_by_length
            and self.args.steps_per_generation == self.args.gradient_accumulation_steps
            and self.loss_type != "bnpo"
            and not self._entropy_bonus_enabled
            and self.top_entropy_quantile == 1.0
            and not self.aux_loss_enabled
        )

    # --- judging -----------------------------------------------------------------------------------

    def _begin(self, inputs: Sequence[dict[str, Any]]) -> None:
        """A new generation batch."""
        self._judging, self._late = None, False
        if not self.args.overlap or not can_judge_early(self.reward) or self.tools or self.rollout_func:
            return
        self._judging = Judging(self.reward, [self.examples[row["example"]] for row in inputs])
        self._late = (
            self.model.training
            and self.args.steps_per_generation > 1
            and self.accelerator.num_processes == 1
            and not self.is_deepspeed_enabled
            and not self.is_fsdp_enabled
            and self._any_order()
            and self._may_settle_late()
        )

    def _ended(self, row: int, ids: list[int]) -> None:
        if self._judging is not None:
            text = str(self.processing_class.batch_decode([ids], skip_special_tokens=True)[0])
            self._judging.hand_in(row, self._completion(text, ids))

    def _generate(self, prompts: list[Any]) -> Any:
        """Hands in, shortest first, what was not handed in when it ended."""
        made = super()._generate(prompts)
        if self._judging is not None:
            ids, texts = made[1], made[3]
            for row in sorted(range(len(ids)), key=lambda row: len(ids[row])):
                if not self._judging.written(row):
                    self._judging.hand_in(row, self._completion(str(texts[row]), ids[row]))
        return made

    # --- micro-batches -----------------------------------------------------------------------------

    def _cut_into_parts(self, batch: dict[str, Any], inputs: Sequence[dict[str, Any]]) -> None:
        """Decide which rows each micro-batch of the optimizer step gets."""
        self._parts = None
        if self.model.training and self._any_order():
            lengths = batch["completion_mask"].sum(dim=1).tolist()
            by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
            ended = {row: at for at, row in enumerate(self._judging.order if self._judging else by_length)}
            groups = neighbours([self.examples[row["example"]] for row in inputs])
            groups.sort(key=lambda rows: max(ended[row] for row in rows))
            order = [row for rows in groups for row in rows]
            self._parts = Parts(batch, order, self.args.steps_per_generation)
        if self._late:  # until all rewards are known
            batch["graded"] = torch.ones_like(batch["row"], dtype=torch.bool)
            batch["graded_share"] = torch.ones((), device=batch["row"].device)

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        inputs = super()._prepare_inputs(generation_batch)
        parts, buffered = self._parts, self._buffered_inputs
        number = self._step % self.args.steps_per_generation
        if not self.model.training or parts is None or buffered is None:
            return inputs
        if number == parts.taken:
            late = self._late and self._judging
            buffered[number] = cut(self._settle(parts, late, number) if late else parts.select(number))
            parts.taken += 1
            if parts.taken == parts.count:
                self._all_taken(parts, buffered)
        return buffered[number]

    def _all_taken(self, parts: Parts, buffered: list[dict[str, Any]]) -> None:
        """Every reward is known: what micro-batches that are trained on again are divided by, too."""
        if self._judging is not None:
            self._judging.close()
        for part in buffered:
            part.update({name: value for name, value in parts.batch.items() if _is_number(value)})

    def _put_right(self, parts: Parts, excess: float) -> None:
        """Divide the gradients of the micro-batches before the last one by what they should have been.

        Args:
            excess: the number that they were divided by, over the one that is known now.
        """
        parts.excess = excess
        if excess != 1:
            for weight in self.model.parameters():
                if weight.grad is not None:
                    weight.grad.mul_(excess)

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """TRL's; the loss that is logged is the sum of what it returns."""
        try:
            loss = super().training_step(*args, **kwargs)
        except BaseException:
            if self._judging is not None:
                self._judging.close()
            raise
        parts = self._parts
        if parts is not None:
            if parts.excess != 1:
                loss, parts.excess = loss + (parts.excess - 1) * parts.loss, 1.0
            parts.loss = parts.loss + loss
        return loss

    # --- rewards that come late --------------------------------------------------------------------

    def _may_settle_late(self) -> bool:
        return self.args.advantage_estimator == "group" and self.scale_rewards != "batch"

    def _settle(self, parts: Parts, judging: Judging, number: int) -> dict[str, Any]:
        rows, last = parts.rows(number), number == parts.count - 1
        for group in sorted({row // self.num_generations for row in rows} - parts.settled):
            self._settle_group(parts, judging, group)
        if last:
            self._finish(parts)
        part = parts.select(number)
        results = [parts.results[row] for row in rows]
        part["advantages"] = self._credit(part["advantages"], results, part)
        if last:
            self._log_credit()
        return part

    def _settle_group(self, parts: Parts, judging: Judging, group: int) -> None:
        size, batch = self.num_generations, parts.batch
        mates = range(group * size, (group + 1) * size)
        results = judging.results(mates)
        values = [torch.nan if result.value is None else result.value for result in results]
        rewards = torch.tensor(values, dtype=torch.float32, device=self.accelerator.device)
        found = group_advantages(rewards, size, scale=self.scale_rewards, epsilon=self.args.advantage_epsilon)
        chosen = slice(mates.start, mates.stop)
        self._rewards[chosen], batch["advantages"][chosen] = rewards, found
        batch["completion_mask"][chosen] *= (~rewards.isnan()).unsqueeze(1)
        parts.results.update(zip(mates, results, strict=True))
        parts.settled.add(group)

    def _finish(self, parts: Parts) -> None:
        """All rewards are there: what is divided by, and what is logged and written."""
        batch = parts.batch
        self._results = [parts.results[row] for row in range(len(parts.order))]
        assumed = self._divisor(batch)
        self._leave_out_masked(batch, parts.lengths)
        self._put_right(parts, (assumed / self._divisor(batch)).item())
        metrics = self._metrics["train"]
        for name, value in reward_metrics(self._results).items():
            metrics[name].append(value)
        spread = nanstd(self._rewards.view(-1, self.num_generations), dim=1)
        mean, deviation = self._rewards.nanmean().item(), nanstd(self._rewards).item()
        metrics["reward"][-1], metrics["reward_std"][-1] = mean, deviation
        metrics[f"rewards/{SUM}/mean"][-1], metrics[f"rewards/{SUM}/std"][-1] = mean, deviation
        flat = torch.isclose(spread, torch.zeros_like(spread))
        metrics["frac_reward_zero_std"][-1] = flat.float().mean().item()
        replace_newest(self._logs["rewards"][SUM], self._rewards)
        replace_newest(self._logs["advantages"], batch["advantages"])
        self._keep(batch["advantages"])

    def _divisor(self, batch: dict[str, Any]) -> torch.Tensor:
        """What the loss of a micro-batch is divided by that depends on the others: completions or tokens."""
        if self.loss_type in MEANS_OF_ROWS:
            return batch["graded_share"]
        return batch["num_items_in_batch"].clamp(min=1)
