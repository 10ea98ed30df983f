"""Sampling from a policy in this process, with what the samples of a prompt share run once.

`transformers.generate` runs every copy of a prompt through the model and keeps computing rows that have
already ended.  For groups of short answers on a CPU that is most of the cost, so here what samples of a
prompt have in common is run once, and a row leaves the batch when it ends.  The distribution is the model's
own: temperature and top-p only, no other logits processing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

AT_ONCE = 128  # completions that are sampled together


def unwrap_adapter(model: Any) -> Any:
    """The model inside an adapter, which stays active."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@contextmanager
def evaluating(model: Any, *, bf16: bool = False) -> Iterator[None]:
    """Without dropout, and in bfloat16 with `bf16`."""
    training = model.training
    model.eval()
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        yield
    model.train(training)


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
    batch_size: int = AT_ONCE,
    uniforms: torch.Tensor | None = None,
    written: Callable[[int], None] = lambda count: None,
) -> list[list[list[int]]]:
    """Sample `num_samples` completions for every prompt.

    Args:
        max_new_tokens: length limit of a completion, its end token included.
        temperature: 0 is greedy.
        eos_ids: tokens that end a completion; the end token is part of it.
        batch_size: completions in flight at once.
        uniforms: numbers in [0, 1), (prompts, num_samples, max_new_tokens), that choose the tokens in place
            of torch's generator: a completion then depends on its own numbers, not on its neighbours'.
        written: called with how many completions were written, batch by batch.

    Returns:
        For every prompt, its completions as token ids.
    """
    if num_samples > 1 and temperature == 0:
        raise ValueError("several greedy samples of one prompt are the same sample; raise the temperature")
    results: list[list[list[int]]] = [[] for _ in prompts]
    by_length = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    prompts_at_once = max(1, batch_size // num_samples)
    for start in range(0, len(by_length), prompts_at_once):
        chunk = by_length[start : start + prompts_at_once]

        def choose(logits: torch.Tensor, rows: list[int], at: int, chunk: list[int] = chunk) -> torch.Tensor:
            drawn = None if uniforms is None else uniforms[chunk].flatten(0, 1)[rows, at]
            return _chosen(logits, temperature, top_p, drawn)

        part = [prompts[index] for index in chunk]
        rows = _sample_chunk(unwrap_adapter(model), part, num_samples, max_new_tokens, choose, set(eos_ids))
        for position, index in enumerate(chunk):
            results[index] = rows[position * num_samples : (position + 1) * num_samples]
        written(len(rows))
    return results


def _sample_chunk(
    model: Any,
    prompts: Sequence[Sequence[int]],
    num_samples: int,
    max_new_tokens: int,
    choose: Callable[[torch.Tensor, list[int], int], torch.Tensor],
    eos_ids: set[int],
) -> list[list[int]]:
    device = next(model.parameters()).device
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + list(p) for p in prompts], device=device)
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
    cache = roomy_cache(model.config)
    logits = _last_logits(model, ids, mask, cache)
    completions: list[list[int]] = [[] for _ in range(len(prompts) * num_samples)]
    # Completion -> row of the batch: those that have written the same so far share one.
    rows = {number: number // num_samples for number in range(len(completions))}
    for position in range(max_new_tokens):
        tokens = choose(logits[list(rows.values())], list(rows), position)
        going: dict[tuple[int, int], list[int]] = {}
        for (number, row), token in zip(rows.items(), tokens.tolist(), strict=True):
            completions[number].append(token)
            if token not in eos_ids:
                going.setdefault((row, token), []).append(number)
        if not going or position == max_new_tokens - 1:
            break
        ids = torch.tensor([[token] for _, token in going], device=device)
        kept = [row for row, _ in going]
        if kept != [*range(len(mask))]:  # a selection copies the whole cache
            cache.batch_select_indices(torch.tensor(kept, device=device))
            mask = mask[kept]
        mask = torch.cat([mask, mask.new_ones(len(kept), 1)], dim=1)
        rows = dict(sorted((number, row) for row, same in enumerate(going.values()) for number in same))
        logits = _last_logits(model, ids, mask, cache)
    return completions


def _last_logits(model: Any, ids: torch.Tensor, mask: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    """(B, V) of the last position; the cache grows by the given ids."""
    # On a CPU a prompt is read faster in bfloat16, and a token at a time in float32, twice as fast.
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.size(1) :]
    alone = ids.size(1) == 1 and ids.device.type == "cpu" and model.dtype == torch.float32
    with torch.autocast("cpu", enabled=False) if alone else nullcontext():
        output = model.base_model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        return model.get_output_embeddings()(output.last_hidden_state[:, -1]).float()


def _chosen(
    logits: torch.Tensor, temperature: float, top_p: float, drawn: torch.Tensor | None
) -> torch.Tensor:
    """One token per row of (B, V) logits, by (B,) numbers in [0, 1) or by torch's own generator."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities = torch.softmax(logits / temperature, dim=-1)
    if top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        outside = ordered.cumsum(dim=-1) - ordered >= top_p
        probabilities = torch.zeros_like(probabilities).scatter(-1, order, ordered.masked_fill(outside, 0))
    if drawn is None:
        return torch.multinomial(probabilities, 1).squeeze(-1)
    below = probabilities.double().cumsum(dim=-1)
    # Right of the number, so that a token of probability 0 is never it.
    numbers = drawn.to(below).unsqueeze(-1) * below[:, -1:]
    return torch.searchsorted(below, numbers, right=True).squeeze(-1)


# -- Keys and values ----------------------------------------------------------------------------------


def roomy_cache(config: Any) -> DynamicCache:
    """An empty cache of keys and values to write with: another token does not copy all that are there."""
    cache = DynamicCache(config=config)
    cache.layers = [_Roomy() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


class _Roomy(DynamicLayer):
    """Keys and values are the first part of tensors that have room for an eighth more."""

    rooms: Sequence[torch.Tensor] = ()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.get_seq_length()
        end = before + key_states.size(-2)
        # A selection of rows, or another precision, puts other tensors in the place of the first parts.
        current: Any = (self.keys, self.values)
        news = (key_states, value_states)
        kept = [(room.data_ptr(), room.dtype) for room in self.rooms] == [
            (part.data_ptr(), new.dtype) for part, new in zip(current, news, strict=True)
        ]
        if not kept or end > self.rooms[0].size(-2):
            size = (*key_states.shape[:-2], end + end // 8 + 1, key_states.size(-1))
            rooms = key_states.new_empty(size), value_states.new_empty(size)
            if before:
                rooms[0][..., :before, :], rooms[1][..., :before, :] = current
            self.rooms = rooms
        for room, new in zip(self.rooms, news, strict=True):
            room[..., before:end, :] = new
        self.keys, self.values = (room[..., :end, :] for room in self.rooms)
        return self.keys, self.values
