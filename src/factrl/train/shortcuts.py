"""TRL's GRPO trainer with wasted work left out; what it computes stays the same.

On a CPU a prompt is run once for all its samples (`sampling`) and once for all their log-probabilities
(`packed`).  On any device rows whose advantage is 0 are not run, and a micro-batch holds completions of like
lengths and is cut to the longest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from .packed import use_packed_logprobs
from .sampling import sample

Batch = dict[str, Any]
"""What TRL trains on: tensors with a first axis of B rows, and scalars."""


def by_length(parts: Sequence[Batch], samples: int) -> list[Batch]:
    """The rows of these micro-batches in as many others, prompts with short completions first.

    Args:
        parts: with `completion_mask` (B, T) and `row`, the number of each row in the generation batch.
        samples: completions of a prompt, which stay together.
    """
    rows = torch.cat([part["row"] for part in parts]).argsort()

    def is_rows(value: Any) -> bool:
        return torch.is_tensor(value) and value.dim() > 0

    whole = {
        name: torch.cat([part[name] for part in parts])[rows] if is_rows(value) else value
        for name, value in parts[0].items()
    }
    lengths = whole["completion_mask"].sum(dim=1).tolist()
    rank = {row: at for at, row in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__))}
    rows_of = range(len(lengths))
    groups = [rows_of[start : start + samples] for start in rows_of[::samples]]
    groups.sort(key=lambda group: max(rank[row] for row in group))
    order = torch.tensor([row for group in groups for row in group]).chunk(len(parts))
    return [
        _cut({name: value[chosen] if is_rows(value) else value for name, value in whole.items()})
        for chosen in order
    ]


def _cut(part: Batch) -> Batch:
    """A micro-batch without the columns behind its longest completion."""
    width = part["completion_mask"].size(1)
    used = part["completion_mask"].any(dim=0).nonzero()
    longest = int(used[-1]) + 1 if len(used) else 1

    def is_wide(name: str, value: Any) -> bool:
        wide = torch.is_tensor(value) and value.dim() == 2 and value.size(1) == width
        return wide and not name.startswith("prompt")

    return {name: value[:, :longest] if is_wide(name, value) else value for name, value in part.items()}


class ShortcutTrainer(GRPOTrainer):
    """GRPO with the shortcuts that `args.shortcuts` switches on.

    Attributes:
        _shortcuts: the model's forward is packed and completions are sampled here; set by the subclass.
        _flat_rows: rows of the micro-batch whose advantages are 0, while its loss is computed.
    """

    args: Any
    accelerator: Any
    model: Any
    max_completion_length: int
    eos_token_ids: list[int]
    num_generations: int
    _shortcuts = False
    _flat_rows: torch.Tensor | None = None

    def _take_shortcuts(self) -> bool:
        """Patch the model for the exact fast path; on a GPU TRL's own kernels are used."""
        model: Any = self.accelerator.unwrap_model(self.model)
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        return self.accelerator.device.type == "cpu" and use_packed_logprobs(inner, self.temperature)

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

    def _prepare_inputs(self, generation_batch: Any) -> Batch:
        before: Any = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        parts: Any = self._buffered_inputs
        if not self.model.training or parts is before:
            return inputs
        self._buffered_inputs = self._prepared(parts)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _prepared(self, parts: list[Batch]) -> list[Batch]:
        """The micro-batches of newly generated completions, as they will be trained on."""
        return by_length(parts, self.num_generations) if self._any_order() else parts

    def _generate_single_turn(
        self,
        prompt_ids: list[list[int]],
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> tuple[list[list[int]], Any]:
        """Samples of one prompt are neighbours, so each prompt is run once."""
        if not self._shortcuts or self.accelerator.num_processes > 1 or self.args.top_k:
            return super()._generate_single_turn(
                prompt_ids, images, multimodal_fields, num_generations, has_tool_images
            )
        model = self.accelerator.unwrap_model(self.model)
        training = model.training
        model.eval()
        with self.accelerator.autocast():
            groups = sample(
                model,
                prompt_ids[::num_generations],
                num_samples=num_generations,
                max_new_tokens=self.max_completion_length,
                temperature=self.temperature,
                top_p=self.top_p,
                eos_ids=self.eos_token_ids,
            )
        model.train(training)
        return [ids for group in groups for ids in group], None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if (
            (self._shortcuts or self._may_drop_rows())
            and self.beta == 0
            and self.num_iterations == 1
            and not self._entropy_bonus_enabled
            and self.top_entropy_quantile == 1.0
        ):
            advantages = inputs["advantages"]
            self._flat_rows = (advantages == 0) if advantages.dim() == 1 else (advantages == 0).all(dim=1)
        try:
            return super()._compute_loss(model, inputs)
        finally:
            self._flat_rows = None

    def _may_drop_rows(self) -> bool:
        """One process, whose forward passes no other one waits for, and no loss that routers add."""
        return self.args.shortcuts and self.accelerator.num_processes == 1 and not self.aux_loss_enabled

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, Any, Any]:
        """Rows whose advantage is 0 add nothing to loss or gradient, so they are not run."""
        flat = self._flat_rows
        if flat is None or not flat.any():
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, **kwargs
            )
        attention_mask = attention_mask.clone()
        attention_mask[flat, -logits_to_keep:] = 0
        run = torch.ones_like(flat) if self._shortcuts else ~flat  # a pack leaves them out by itself
        run[0] |= not run.any()
        logps, entropies, extra = super()._get_per_token_logps_and_entropies(
            model, input_ids[run], attention_mask[run], logits_to_keep, **kwargs
        )
        seen = attention_mask[run, -logits_to_keep:].bool()
        everyone = logps.new_zeros(len(flat), logits_to_keep).masked_scatter(run.unsqueeze(1), logps)
        if entropies is not None:  # the logged mean is of the rows that were run; NaN is left out of it
            mean = entropies[seen].mean().item() if seen.any() else torch.nan
            filled = torch.full_like(everyone, mean, dtype=entropies.dtype)
            filled[run] = entropies.masked_fill(flat[run].unsqueeze(1), mean)
            entropies = filled
        return everyone, entropies, extra
