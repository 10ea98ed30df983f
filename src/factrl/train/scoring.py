"""How likely texts are under a policy in this process: the `Scorer` of `factrl.evals.outcomes`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import DynamicCache

from factrl.llm.writers import digest_of
from factrl.runs.settings import RunSettings
from factrl.types import Example

from .certainty import head_logits
from .prompts import encode, render_prompts
from .writing import PolicyWriter


class PolicyScorer:
    """Scores with a model of transformers, asked as in training.

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
    logs = torch.log_softmax(head_logits(decoder, picked), dim=-1)
    chosen = logs.gather(-1, ids[known.bool()].unsqueeze(-1)).squeeze(-1).double()
    return [float(part.sum()) for part in chosen.split([len(row) for row in rows])]
