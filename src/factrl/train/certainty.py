"""Self-certainty: how far the next-token distributions are from uniform, over the tokens that were written.

Kang et al. 2025 (arXiv:2502.18581) and, as a reward, Intuitor (Zhao et al. 2025, arXiv:2505.19590):

    certainty(o | q) = 1/|o| sum_i KL(U || p(. | q, o_<i)) = -1/(|o| V) sum_i sum_j log(V p(j | q, o_<i))

with V tokens in the vocabulary.  It is 0 for uniform distributions, in nats, and has no upper limit.  Unlike
the entropy it is ruled by the least likely tokens, so it is about the whole distribution, not its peak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .sampling import unwrap_adapter

_ROWS = 8  # of one forward pass that certainty is read from
_POSITIONS = 256  # whose logits over the whole vocabulary are in memory together
_SCALES_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling")  # Gemma, Cohere, Granite


def certainty_of(logits: torch.Tensor) -> torch.Tensor:
    """KL(U || softmax(logits)) of each distribution, in nats: (..., V) -> (...), float32, never below 0."""
    logits = logits.float()
    certainty = logits.logsumexp(dim=-1) - logits.mean(dim=-1) - math.log(logits.size(-1))
    return certainty.clamp(min=0)  # what is below is rounding


@torch.no_grad()
def self_certainty(
    model: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
) -> list[float]:
    """The self-certainty of every completion, its end token included, under the model at temperature 1.

    Returns:
        Nats; NaN for a completion without tokens, which has no mean.
    """
    decoder = unwrap_adapter(model)
    device = next(decoder.parameters()).device
    means = [math.nan] * len(completions)
    order = [row for row in range(len(completions)) if completions[row]]
    order.sort(key=lambda row: len(prompts[row]) + len(completions[row]))
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        texts = [[*prompts[row], *completions[row]] for row in rows]
        width = max(map(len, texts))
        ids = torch.tensor([text + [0] * (width - len(text)) for text in texts], device=device)
        mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts], device=device)
        states = decoder.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        for place, row in enumerate(rows):
            first, count = len(prompts[row]) - 1, len(completions[row])
            parts = states[place, first : first + count].split(_POSITIONS)
            means[row] = sum(certainty_of(_head_logits(decoder, part)).sum().item() for part in parts) / count
    return means


def _head_logits(decoder: Any, states: torch.Tensor) -> torch.Tensor:
    """(P, H) -> (P, V), float32, as the model's own head makes them."""
    config = decoder.config.get_text_config()
    logits = decoder.get_output_embeddings()(states).float()
    cap, scale, divisor = (getattr(config, name, None) for name in _SCALES_LOGITS)
    logits = logits * (scale or 1.0) / (divisor or 1.0)
    return torch.tanh(logits / cap) * cap if cap else logits
