"""Completion log-probabilities without the wasted work, on devices without Triton kernels.

TRL scores a row by running its prompt, completion and padding through the model and, off Triton
devices, every position through the vocabulary head; the samples of one prompt repeat that prompt.
On a CPU this dominates the step.  Here

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
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel
from trl.trainer.utils import FusedCausalLMOutput

SUPPORTED_MODELS = frozenset({"llama", "mistral", "qwen2", "qwen3"})  # full causal attention, plain head
TOKENS_PER_PACK = 8192  # a pack's mask takes their square in bytes


def use_packed_logprobs(model: PreTrainedModel, temperature: float = 1.0) -> bool:
    """Replace TRL's fused forward of `model` by the packed one; False when the model is not supported.

    Args:
        model: the causal language model itself, not a wrapper, after a TRL trainer patched it.
        temperature: logits are divided by it before the softmax, as in sampling.
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
    pack = _pack(input_ids, attention_mask, run, model.config.hidden_size)
    states = model.base_model(
        input_ids=pack.ids, attention_mask=pack.visible, position_ids=pack.positions, use_cache=False
    ).last_hidden_state
    logits = model.get_output_embeddings()(states.flatten(0, 1)[pack.predicts_from]).float() / temperature
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


@dataclass(frozen=True, slots=True)
class Pack:
    """P packed rows of at most L tokens that hold the B rows of a batch.

    Attributes:
        ids, positions: (P, L) tokens and the position each would have had in its own row.
        visible: (P, 1, L, L), True where the query (third axis) may attend to the key (last axis).
        predicts_from: (N,) index into the flattened (P * L) positions of the state that predicts the
            n-th labelled token, in row-major order of the batch.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    visible: torch.Tensor
    predicts_from: torch.Tensor


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
) -> Pack:
    """Lay out a padded batch as packs; what comes before a row's first label is its prompt."""
    packs: list[_Row] = []
    open_packs: dict[tuple[int, ...], _Row] = {}
    found: list[tuple[_Row, list[int]]] = []  # each batch row's pack and the offsets of its states there
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
        found.append((pack, offsets))
    width = max(len(pack.ids) for pack in packs)
    number = {id(pack): index for index, pack in enumerate(packs)}
    predicts_from = [number[id(pack)] * width + offset for pack, offsets in found for offset in offsets]
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
    return Pack(ids, positions, visible.unsqueeze(1), torch.tensor(predicts_from, device=device))


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
