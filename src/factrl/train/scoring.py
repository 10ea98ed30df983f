"""How likely texts are under a policy in this process, and how certain it was of what it wrote.

Self-certainty is how far the next-token distributions are from uniform, over the tokens that were written:
Kang et al. 2025 (arXiv:2502.18581) and, as a reward, Intuitor (Zhao et al. 2025, arXiv:2505.19590):

    certainty(o | q) = 1/|o| sum_i KL(U || p(. | q, o_<i)) = -1/(|o| V) sum_i sum_j log(V p(j | q, o_<i))

with V tokens in the vocabulary.  It is 0 for uniform distributions, in nats, and has no upper limit.  Unlike
the entropy it is ruled by the least likely tokens, so it is about the whole distribution, not its peak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import DynamicCache

from factrl.llm.writers import digest_of
from factrl.runs.settings import RunSettings
from factrl.types import Example

from .prompts import encode, render_prompts
from .writing import PolicyWriter

_SCALES_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling")  # Gemma, Cohere, Granite


def certainty_of(logits: torch.Tensor) -> torch.Tensor:
    """KL(U || softmax(logits)) of each distribution, in nats: (..., V) -> (...), float32, never below 0."""
    logits = logits.float()
    found = logits.logsumexp(dim=-1) - logits.mean(dim=-1) - math.log(logits.size(-1))
    return found.clamp(min=0)  # what is below is rounding


@torch.no_grad()
def self_certainty(
    model: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    rows_at_once: int = 8,
    positions_at_once: int = 256,
) -> list[float]:
    """The self-certainty of every completion under the model as it is now, at temperature 1.

    Args:
        model: a causal language model of transformers, or an adapter around one.
        prompts: (N) token ids, none of them empty.
        completions: (N) token ids that the model wrote after them, their end tokens included.
        rows_at_once: rows of one forward pass.
        positions_at_once: positions whose logits over the whole vocabulary are in memory together.

    Returns:
        N numbers in nats; NaN for a completion without tokens, which has no mean.
    """
    decoder = model.get_base_model() if hasattr(model, "get_base_model") else model  # adapters stay active
    device = next(decoder.parameters()).device
    found = [math.nan] * len(completions)
    order = [row for row in range(len(completions)) if completions[row]]
    order.sort(key=lambda row: len(prompts[row]) + len(completions[row]))
    for start in range(0, len(order), rows_at_once):
        rows = order[start : start + rows_at_once]
        texts = [[*prompts[row], *completions[row]] for row in rows]
        width = max(map(len, texts))
        ids = torch.tensor([text + [0] * (width - len(text)) for text in texts], device=device)
        mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts], device=device)
        states = decoder.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        for place, row in enumerate(rows):
            first, count = len(prompts[row]) - 1, len(completions[row])
            parts = states[place, first : first + count].split(positions_at_once)
            found[row] = sum(certainty_of(_head_logits(decoder, part)).sum().item() for part in parts) / count
    return found


def _head_logits(decoder: Any, states: torch.Tensor) -> torch.Tensor:
    """(P, H) -> (P, V), float32, as the model's own head makes them."""
    config = decoder.config.get_text_config()
    logits = decoder.get_output_embeddings()(states).float()
    cap, scale, divisor = (getattr(config, name, None) for name in _SCALES_LOGITS)
    logits = logits * (scale or 1.0) / (divisor or 1.0)
    return torch.tanh(logits / cap) * cap if cap else logits


class PolicyScorer:
    """How likely continuations are under a model of transformers, asked as in training.

    A prompt goes through the model once, its continuations after it side by side.  Log-probabilities are
    taken in float32 from the model's own logits, without a temperature, and summed over the tokens of the
    continuation; no end token is counted.

    Args:
        writer: the policy.
        settings: `data`, and of `train` the precision.
    """

    def __init__(self, writer: PolicyWriter, settings: RunSettings) -> None:
        self.model, self.tokenizer, self.settings = writer.model, writer.tokenizer, settings
        data = settings.data
        self._bf16 = settings.train.bf16 is True  # as for writing: "auto" is off
        asked = digest_of("likelihood", data.system, data.prompt, data.prefill, data.chat, self._bf16)
        self.identity = f"{writer.weights} {asked}"

    @torch.no_grad()
    def score(
        self,
        examples: Sequence[Example],
        continuations: Sequence[Sequence[str]],
        on_done: Callable[[], None] = lambda: None,
    ) -> list[list[float]]:
        """The log-probability of every continuation after its example's prompt, in nats.

        Args:
            continuations: texts per example, none of them empty.
            on_done: called after each example, in this thread.
        """
        data = self.settings.data
        rendered = render_prompts(examples, self.tokenizer, data)
        prompts = encode(rendered, self.tokenizer, chat=data.chat)
        training = self.model.training
        self.model.eval()
        scores: list[list[float]] = []
        device = self.model.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self._bf16):
            for text, prompt, texts in zip(rendered, prompts, continuations, strict=True):
                gap = "" if text[-1:].isspace() or data.chat else " "
                rows = [self.tokenizer(gap + t, add_special_tokens=False)["input_ids"] for t in texts]
                scores.append(_sums(self.model, prompt, rows))
                on_done()
        self.model.train(training)
        return scores


def _sums(model: Any, prompt: Sequence[int], rows: Sequence[Sequence[int]]) -> list[float]:
    """Log-probability of each row of tokens after the prompt."""
    device = model.device
    decoder = model.get_base_model() if hasattr(model, "get_base_model") else model  # adapters stay active
    cache = DynamicCache(config=decoder.config)
    first = decoder.base_model(
        input_ids=torch.tensor([list(prompt)], device=device), past_key_values=cache, use_cache=True
    )
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
    known = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    states = first.last_hidden_state[:, -1:].expand(len(rows), -1, -1)
    if width > 1:
        cache.batch_repeat_interleave(len(rows))
        # The last token of a row predicts nothing that is asked for; padding comes after and is not read.
        later = decoder.base_model(input_ids=ids[:, :-1], past_key_values=cache, use_cache=True)
        states = torch.cat([states, later.last_hidden_state], dim=1)
    picked = states[known.bool()]  # (N, H), the states that predict the tokens of all rows in their order
    logs = torch.log_softmax(_head_logits(decoder, picked), dim=-1)
    chosen = logs.gather(-1, ids[known.bool()].unsqueeze(-1)).squeeze(-1).double()
    return [float(part.sum()) for part in chosen.split([len(row) for row in rows])]
