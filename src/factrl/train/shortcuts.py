"""TRL's GRPO trainer with wasted work left out; what it computes stays the same.

On a CPU a prompt is run once for all its samples (`sampling`) and once for all their log-probabilities
(`packed`).  Rows whose advantage is 0 are not run on any device.
"""

from __future__ import annotations

from typing import Any

import torch
from trl.trainer.grpo_trainer import GRPOTrainer

from .packed import use_packed_logprobs
from .sampling import sample


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
    _shortcuts = False
    _flat_rows: torch.Tensor | None = None

    def _take_shortcuts(self) -> bool:
        """Patch the model for the exact fast path; on a GPU TRL's own kernels are used."""
        model: Any = self.accelerator.unwrap_model(self.model)
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        return self.accelerator.device.type == "cpu" and use_packed_logprobs(inner, self.temperature)

    def _ended(self, row: int, ids: list[int]) -> None:
        """A completion has ended while others have not."""

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
                on_end=self._ended,
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
