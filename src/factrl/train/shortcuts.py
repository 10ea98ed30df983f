"""TRL's GRPO on a CPU with wasted work left out; what it computes stays the same.

A prompt is run once for all its samples (`sampling.sample`, through TRL's `rollout_func`) and once for all
their log-probabilities in a micro-batch.

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
import logging
import types
from typing import Any

import torch
from transformers import PreTrainedModel

try:
    from trl.trainer.utils import FusedCausalLMOutput
except ImportError:  # of TRL before 1.15
    FusedCausalLMOutput = None

from .sampling import evaluating, sample, unwrap_adapter

SUPPORTED_MODELS = frozenset({"llama", "mistral", "qwen2", "qwen3"})  # full causal attention, plain head
TOKENS_PER_PACK = 8192  # a pack's mask takes their square in bytes
_LOG = logging.getLogger("factrl")


def use_shortcuts(trainer: Any) -> bool:
    """Let a `FactualGRPOTrainer` sample and score on a CPU as this module does; whether it scores so.

    Where the installed TRL has no room for it, its own path runs: slower, with the same numbers.
    """
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    if trainer.accelerator.device.type != "cpu" or trainer.use_vllm or not _supported(unwrap_adapter(model)):
        return False
    packed = use_packed_logprobs(unwrap_adapter(model), trainer.temperature)
    if not packed:
        _LOG.warning("this TRL has no fused forward: steps on a CPU take its own path, which is slower")
    alone = trainer.accelerator.num_processes == 1 and not trainer.args.top_k
    if alone and not trainer.tools and getattr(trainer, "rollout_func", trainer) is None:
        trainer.rollout_func = rollouts
    return packed


def rollouts(prompts: list[Any], trainer: Any) -> dict[str, Any]:
    """TRL's `rollout_func`: samples of one prompt are neighbours, so each prompt is run once."""
    prompt_ids, size = trainer.tokenize(prompts), trainer.group_size
    model = trainer.accelerator.unwrap_model(trainer.model)
    with evaluating(model), trainer.accelerator.autocast():
        groups = sample(
            model,
            prompt_ids[::size],
            num_samples=size,
            max_new_tokens=trainer.args.max_completion_length,
            temperature=trainer.temperature,
            top_p=trainer.args.top_p,
            eos_ids=trainer.eos_token_ids,
        )
    completion_ids = [ids for group in groups for ids in group]
    return {"prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": None}


# -- Packing ------------------------------------------------------------------------------------------


def use_packed_logprobs(model: PreTrainedModel, temperature: float = 1.0) -> bool:
    """Replace TRL's fused forward of `model` by the packed one; False when the model is not supported.

    Args:
        model: the causal language model itself, not a wrapper, after a TRL trainer patched it.
    """
    fused_forward = model.forward
    if FusedCausalLMOutput is None or not _supported(model):
        return False
    output = FusedCausalLMOutput

    @functools.wraps(fused_forward)  # `generate` validates its arguments against this signature
    def forward(self: Any, *args: Any, fused_lm_head: bool = False, **kwargs: Any) -> Any:
        if not fused_lm_head:
            return fused_forward(*args, **kwargs)
        return output(**_packed_forward(self, temperature, **kwargs))

    model.forward = types.MethodType(forward, model)
    return True


def _supported(model: Any) -> bool:
    """Whether packing and sampling here are exact for this model."""
    config = model.config
    return config.model_type in SUPPORTED_MODELS and not getattr(config, "use_sliding_window", False)


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
) -> dict[str, torch.Tensor]:
    """Log-probability and entropy of every labelled token, zero elsewhere; both of shape (B, T-1)."""
    targets = labels[:, 1:]
    labelled = targets != -100
    no_labels = not bool(labelled.any())
    scored = labelled.clone()
    if no_labels:  # one position keeps the output connected to every weight
        scored[0, attention_mask[0, :-1].argmax()] = True
    ids, positions, visible, predicts_from = _pack(
        input_ids, attention_mask, scored, model.config.hidden_size
    )
    states = model.base_model(
        input_ids=ids, attention_mask=visible, position_ids=positions, use_cache=False
    ).last_hidden_state
    logits = model.get_output_embeddings()(states.flatten(0, 1)[predicts_from]).float() / temperature
    all_log_probs = torch.log_softmax(logits, dim=-1)
    chosen = all_log_probs.gather(-1, targets[scored].clamp(min=0).unsqueeze(-1)).squeeze(-1)
    with torch.no_grad():
        entropy = -(all_log_probs.exp() * all_log_probs).sum(-1)
        is_top1 = logits.argmax(-1) == targets[scored]
        mean_logits = logits.mean(-1)
    if no_labels:
        chosen, entropy = chosen * 0, entropy * 0
    zeros = chosen.new_zeros(labelled.shape)
    log_probs = zeros.masked_scatter(scored, chosen)
    count = labelled.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
    return {
        "loss": -log_probs.sum() / count,
        "log_probs": log_probs,
        "entropy": zeros.masked_scatter(scored, entropy),
        "is_top1": torch.zeros_like(labelled).masked_scatter(scored, is_top1),
        "mean_logits": zeros.masked_scatter(scored, mean_logits),
        "label_mask": labelled,
    }


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
    input_ids: torch.Tensor, attention_mask: torch.Tensor, scored: torch.Tensor, hidden_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Lay out a padded batch as P packs of L tokens; what is before a row's first label is its prompt.

    Returns:
        (P, L) tokens; (P, L) positions that they would have had in their own rows; (P, 1, L, L), True where
        the query (third axis) may attend to the key (last axis); and, in the flattened (P * L) positions, the
        states that predict the labelled tokens of the batch, row by row.
    """
    packs: list[_Pack] = []
    open_packs: dict[tuple[int, ...], _Pack] = {}
    placed: list[tuple[_Pack, list[int]]] = []  # each batch row's pack and the offsets of its states there
    for row, keep, marks in zip(input_ids.tolist(), attention_mask.tolist(), scored.tolist(), strict=True):
        if True not in marks:
            continue
        columns = [column for column, mark in enumerate(marks) if mark]
        first, last = columns[0], columns[-1]
        prompt = tuple(token for token, kept in zip(row[: first + 1], keep, strict=False) if kept)
        tail = row[first + 1 : last + 1]
        pack = open_packs.get(prompt)
        if pack is None or not joins(len(pack.ids), len(tail), len(prompt), hidden_size):
            pack = open_packs[prompt] = _Pack(prompt)
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


class _Pack:
    """A prompt and completions of it in one row: the prompt is segment 0, its completions are 1, 2, …"""

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
