"""TRL's GRPO trainer with wasted work left out; what it computes stays the same.

On a CPU a prompt is run once for all its samples (`writing.sample`) and once for all their log-probabilities.
On any device rows whose advantage is 0 are not run, and a micro-batch holds completions of like lengths and
is cut to the longest of them.

TRL scores a row by running its prompt, completion and padding through the model and, off Triton devices,
every position through the vocabulary head; the samples of one prompt repeat that prompt.  On a CPU this
dominates the step.  Here

* a prompt and all its completions are one packed row: completions see the prompt and themselves,
  never each other, at the positions they would have had alone, and
* only positions that carry a label go through the vocabulary head.

Both are exact: log-probabilities, entropies and gradients are those of TRL's own forward.  The
patch lives in `model.forward`, as TRL's `add_fused_lm_head` does, so wrappers around the model
(distributed training, PEFT) keep working.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import FusedCausalLMOutput

from .writing import evaluating, sample, unwrap_adapter

SUPPORTED_MODELS = frozenset({"llama", "mistral", "qwen2", "qwen3"})  # full causal attention, plain head
TOKENS_PER_PACK = 8192  # a pack's mask takes their square in bytes
Batch = dict[str, Any]
"""What TRL trains on: tensors with a first axis of B rows, and scalars."""


def by_length(parts: Sequence[Batch], samples: int) -> list[Batch]:
    """The rows of these micro-batches in as many others, prompts with short completions first.

    Args:
        parts: with `completion_mask` (B, T) and `row`, the number of each row in the generation batch.
        samples: completions of a prompt, which stay together so that they share it.
    """
    rows = torch.cat([part["row"] for part in parts]).argsort()

    def is_rows(value: Any) -> bool:
        return torch.is_tensor(value) and value.dim() > 0

    whole = {
        name: torch.cat([part[name] for part in parts])[rows] if is_rows(value) else value
        for name, value in parts[0].items()
    }
    lengths = whole["completion_mask"].sum(dim=1)
    groups = sorted(torch.arange(len(lengths)).split(samples), key=lambda group: int(lengths[group].max()))
    order = torch.cat(groups).chunk(len(parts))
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
    """GRPO with the shortcuts that `args.shortcuts` switches on."""

    args: Any
    accelerator: Any
    model: Any
    max_completion_length: int
    eos_token_ids: list[int]
    num_generations: int
    _shortcuts = (
        False  # the model's forward is packed and completions are sampled here; see `_take_shortcuts`
    )
    _flat_rows: torch.Tensor | None = None  # of the micro-batch, advantage 0; while its loss is computed

    def _take_shortcuts(self) -> bool:
        """Patch the model for the exact fast path; on a GPU TRL's own kernels are used."""
        model: Any = self.accelerator.unwrap_model(self.model)
        cpu = self.accelerator.device.type == "cpu"
        return cpu and use_packed_logprobs(unwrap_adapter(model), self.temperature)

    def _any_order(self) -> bool:
        """Whether the optimizer step is the same for every way to cut it into micro-batches."""
        return (
            self.args.shortcuts
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
        with evaluating(model), self.accelerator.autocast():
            groups = sample(
                model,
                prompt_ids[::num_generations],
                num_samples=num_generations,
                max_new_tokens=self.max_completion_length,
                temperature=self.temperature,
                top_p=self.top_p,
                eos_ids=self.eos_token_ids,
            )
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


# -- Packing ------------------------------------------------------------------------------------------


def use_packed_logprobs(model: PreTrainedModel, temperature: float = 1.0) -> bool:
    """Replace TRL's fused forward of `model` by the packed one; False when the model is not supported.

    Args:
        model: the causal language model itself, not a wrapper, after a TRL trainer patched it.
    """
    config = model.config
    if config.model_type not in SUPPORTED_MODELS or getattr(config, "use_sliding_window", False):
        return False
    fused_forward = model.forward

    @functools.wraps(fused_forward)  # `generate` validates its arguments against this signature
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        if not fused_lm_head:
            return fused_forward(*args, **kwargs)
        return _packed_forward(self, temperature, **kwargs)

    model.forward = types.MethodType(forward, model)
    return True


def restore_forward(model: Any) -> None:
    """Undo what trainers did to `model.forward`, so that the next one starts from the model's own."""
    model.__dict__.pop("forward", None)


def _packed_forward(
    model: Any,
    temperature: float,
    *,
    input_ids: torch.Tensor,
    labels: torch.Tensor,
    attention_mask: torch.Tensor,
    num_items_in_batch: torch.Tensor | None = None,
    **_: Any,
) -> FusedCausalLMOutput:
    """Log-probability and entropy of every labelled token, zero elsewhere; both of shape (B, T-1)."""
    targets = labels[:, 1:]
    wanted = targets != -100
    nothing = not bool(wanted.any())
    run = wanted.clone()
    if nothing:  # one position keeps the output connected to every weight
        run[0, attention_mask[0, :-1].argmax()] = True
    ids, positions, visible, predicts_from = _pack(input_ids, attention_mask, run, model.config.hidden_size)
    states = model.base_model(
        input_ids=ids, attention_mask=visible, position_ids=positions, use_cache=False
    ).last_hidden_state
    logits = model.get_output_embeddings()(states.flatten(0, 1)[predicts_from]).float() / temperature
    all_log_probs = torch.log_softmax(logits, dim=-1)
    chosen = all_log_probs.gather(-1, targets[run].clamp(min=0).unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        entropy = -(all_log_probs.exp() * all_log_probs).sum(-1)
        is_top1 = logits.argmax(-1) == targets[run]
        mean_logits = logits.mean(-1)
    if nothing:
        chosen, entropy = chosen * 0, entropy * 0
    zeros = chosen.new_zeros(wanted.shape)
    log_probs = zeros.masked_scatter(run, chosen)
    count = wanted.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
    return FusedCausalLMOutput(
        loss=-log_probs.sum() / count,
        log_probs=log_probs,
        entropy=zeros.masked_scatter(run, entropy),
        is_top1=torch.zeros_like(wanted).masked_scatter(run, is_top1),
        mean_logits=zeros.masked_scatter(run, mean_logits),
        label_mask=wanted,
    )


def joins(pack: int, completion: int, prompt: int, hidden_size: int) -> bool:
    """Whether a completion costs less in a pack of its prompt than with the prompt a second time.

    In a layer of Llama's shape and width H, attention takes 4 H operations for a pair of tokens and all else
    about 24 H^2 for a token, so a token costs as much as 6 H pairs.

    Args:
        pack, completion, prompt: tokens.
    """
    together = (pack + completion) ** 2 - pack**2
    apart = (prompt + completion) ** 2 + 6 * hidden_size * prompt
    return pack + completion <= TOKENS_PER_PACK and together <= apart


def _pack(
    input_ids: torch.Tensor, attention_mask: torch.Tensor, wanted: torch.Tensor, hidden_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Lay out a padded batch as P packs of L tokens; what is before a row's first label is its prompt.

    Returns:
        (P, L) tokens; (P, L) positions that they would have had in their own rows; (P, 1, L, L), True where
        the query (third axis) may attend to the key (last axis); and, in the flattened (P * L) positions, the
        states that predict the labelled tokens of the batch, row by row.
    """
    packs: list[_Row] = []
    open_packs: dict[tuple[int, ...], _Row] = {}
    placed: list[tuple[_Row, list[int]]] = []  # each batch row's pack and the offsets of its states there
    for row, keep, marks in zip(input_ids.tolist(), attention_mask.tolist(), wanted.tolist(), strict=True):
        if True not in marks:
            continue
        columns = [column for column, mark in enumerate(marks) if mark]
        first, last = columns[0], columns[-1]
        prompt = tuple(token for token, kept in zip(row[: first + 1], keep, strict=False) if kept)
        tail = row[first + 1 : last + 1]
        pack = open_packs.get(prompt)
        if pack is None or not joins(len(pack.ids), len(tail), len(prompt), hidden_size):
            pack = open_packs[prompt] = _Row(prompt)
            packs.append(pack)
        start = pack.add(tail)
        offsets = [
            start + column - first - 1 if column > first else pack.prompt_length - 1 for column in columns
        ]
        placed.append((pack, offsets))
    width = max(len(pack.ids) for pack in packs)
    number = {id(pack): index for index, pack in enumerate(packs)}
    predicts_from = [number[id(pack)] * width + offset for pack, offsets in placed for offset in offsets]
    device = input_ids.device
    ids, positions, segments = (
        torch.tensor([row + [fill] * (width - len(row)) for row in column], device=device)
        for column, fill in (
            ([pack.ids for pack in packs], 0),
            ([pack.positions for pack in packs], 0),
            ([pack.segments for pack in packs], -1),
        )
    )
    keys, queries = segments.unsqueeze(1), segments.unsqueeze(2)
    causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    visible = causal & ((keys == 0) | (keys == queries))
    return ids, positions, visible.unsqueeze(1), torch.tensor(predicts_from, device=device)


class _Row:
    """A pack under construction: the prompt is segment 0, its completions are 1, 2, …"""

    def __init__(self, prompt: tuple[int, ...]) -> None:
        self.prompt_length = len(prompt)
        self.ids = list(prompt)
        self.positions = list(range(len(prompt)))
        self.segments = [0] * len(prompt)

    def add(self, tokens: list[int]) -> int:
        """Append a completion's input tokens; returns where they start."""
        start = len(self.ids)
        self.ids += tokens
        self.positions += range(self.prompt_length, self.prompt_length + len(tokens))
        self.segments += [max(self.segments) + 1] * len(tokens)
        return start
