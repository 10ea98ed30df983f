"""Sampling from a small model in this process, without repeated work.

`transformers.generate` runs every copy of a prompt through the model and keeps computing rows that
have already ended.  For groups of short answers on a CPU that is most of the cost, so here a prompt
is run once for all its samples and a row leaves the batch when it ends.  The distribution is the
model's own: temperature and top-p only, no other logits processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache


@torch.no_grad()
def sample(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    num_samples: int = 1,
    max_new_tokens: int,
    temperature: float,
    top_p: float = 1.0,
    eos_ids: Sequence[int],
    batch_size: int = 128,
    uniforms: torch.Tensor | None = None,
) -> list[list[list[int]]]:
    """Sample `num_samples` completions for every prompt.

    Args:
        model: a causal language model of transformers, or an adapter around one.
        prompts: token ids, one non-empty list per prompt.
        max_new_tokens: length limit of a completion, its end token included.
        temperature: 0 is greedy.
        top_p: nucleus sampling; 1 keeps the whole distribution.
        eos_ids: tokens that end a completion; the end token is part of it.
        batch_size: completions in flight at once.
        uniforms: numbers in [0, 1), (prompts, num_samples, max_new_tokens), that choose the tokens in place
            of torch's generator: a completion then depends on its own numbers, not on its neighbours'.

    Returns:
        For every prompt, its completions as token ids.
    """
    if num_samples > 1 and temperature == 0:
        raise ValueError("several greedy samples of one prompt are the same sample; raise the temperature")
    decoder = model.get_base_model() if hasattr(model, "get_base_model") else model  # adapters stay active
    results: list[list[list[int]]] = [[] for _ in prompts]
    by_length = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    prompts_at_once = max(1, batch_size // num_samples)
    for start in range(0, len(by_length), prompts_at_once):
        chunk = by_length[start : start + prompts_at_once]
        choose = _Choice(temperature, top_p, None if uniforms is None else uniforms[chunk].flatten(0, 1))
        rows = _sample_chunk(
            decoder, [prompts[i] for i in chunk], num_samples, max_new_tokens, choose, set(eos_ids)
        )
        for position, index in enumerate(chunk):
            results[index] = rows[position * num_samples : (position + 1) * num_samples]
    return results


def _sample_chunk(
    model: Any,
    prompts: Sequence[Sequence[int]],
    num_samples: int,
    max_new_tokens: int,
    choose: _Choice,
    eos_ids: set[int],
) -> list[list[int]]:
    device = next(model.parameters()).device
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
    cache = DynamicCache(config=model.config)
    hidden = _last_hidden(model, ids, mask, cache).repeat_interleave(num_samples, dim=0)
    cache.batch_repeat_interleave(num_samples)
    mask = mask.repeat_interleave(num_samples, dim=0)
    completions: list[list[int]] = [[] for _ in range(len(hidden))]
    alive = list(range(len(completions)))
    for position in range(max_new_tokens):
        tokens = choose(model.get_output_embeddings()(hidden).float(), alive, position)
        going = []
        for row, token in enumerate(tokens.tolist()):
            completions[alive[row]].append(token)
            if token not in eos_ids:
                going.append(row)
        if not going or position == max_new_tokens - 1:
            break
        if len(going) < len(alive):
            kept = torch.tensor(going, device=device)
            cache.batch_select_indices(kept)
            mask, tokens = mask[kept], tokens[kept]
            alive = [alive[row] for row in going]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        hidden = _last_hidden(model, tokens.unsqueeze(1), mask, cache)
    return completions


def _last_hidden(model: Any, ids: torch.Tensor, mask: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    """Hidden state (B, H) of the last position; the cache grows by the given ids."""
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.size(1) :]
    output = model.base_model(
        input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
    )
    return output.last_hidden_state[:, -1]


@dataclass(frozen=True)
class _Choice:
    """How a token is chosen; `uniforms` is (rows, positions), or None for torch's own generator."""

    temperature: float
    top_p: float
    uniforms: torch.Tensor | None

    def __call__(self, logits: torch.Tensor, rows: Sequence[int], position: int) -> torch.Tensor:
        """One token per row of (B, V) logits."""
        if self.temperature == 0:
            return logits.argmax(dim=-1)
        probabilities = torch.softmax(logits / self.temperature, dim=-1)
        if self.top_p < 1:
            ordered, order = probabilities.sort(dim=-1, descending=True)
            outside = ordered.cumsum(dim=-1) - ordered >= self.top_p
            probabilities = torch.zeros_like(probabilities).scatter(
                -1, order, ordered.masked_fill(outside, 0)
            )
        if self.uniforms is None:
            return torch.multinomial(probabilities, 1).squeeze(-1)
        below = probabilities.double().cumsum(dim=-1)
        drawn = self.uniforms[list(rows), position].to(below).unsqueeze(-1)
        # Right of the number, so that a token of probability 0 is never it.
        return torch.searchsorted(below, drawn * below[:, -1:], right=True).squeeze(-1)
