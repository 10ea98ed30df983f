"""The policy in this process as a `factrl.llm.writers.Writer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from factrl.llm.writers import Written, check_numbers, digest_of, seed_of
from factrl.runs.settings import RunSettings
from factrl.types import Completion, Example

from .answering import end_tokens
from .model import load_policy
from .prompts import beginning, encode, render_prompts
from .sampling import sample

AT_ONCE = 128  # completions that are sampled together


class PolicyWriter:
    """Writes with a model of transformers, asked as in training.

    Args:
        settings: `data`, and of `train` the length limit and `bf16`.  "auto" is off here: with bfloat16 every
            third short text depends on what is written beside it.
        weights: which weights these are.
    """

    def __init__(self, model: Any, tokenizer: Any, settings: RunSettings, weights: str) -> None:
        self.model, self.tokenizer, self.settings, self.weights = model, tokenizer, settings, weights
        data, limit = settings.data, settings.train.max_completion_length
        self._bf16 = settings.train.bf16 is True
        asked = digest_of(data.system, data.prompt, data.prefill, data.chat, limit, self._bf16)
        self.identity = f"{weights} {asked}"

    @classmethod
    def load(cls, settings: RunSettings) -> PolicyWriter:
        """The policy that `settings.model` names, on the GPU when there is one.

        Raises:
            ModelError: it cannot be loaded.
        """
        model, tokenizer = load_policy(settings.model)
        if torch.cuda.is_available():
            model.to("cuda")
        named = settings.model.name + (f"@{settings.model.revision}" if settings.model.revision else "")
        return cls(model, tokenizer, settings, f"{named} {_fingerprint(model)}")

    def asked(self, settings: RunSettings) -> PolicyWriter:
        """The same weights, asked in another way."""
        return PolicyWriter(self.model, self.tokenizer, settings, self.weights)

    def write(
        self,
        examples: Sequence[Example],
        numbers: Sequence[int] = (0,),
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        on_done: Callable[[], None] = lambda: None,
    ) -> list[list[Written]]:
        """See `Writer.write`.

        A text depends on its own random numbers alone; batches of another size add up sums in another order,
        which can turn a choice between two tokens that are all but equally likely.
        """
        check_numbers(numbers, temperature)
        settings, written = self.settings, []
        limit = settings.train.max_completion_length
        rendered = render_prompts(examples, self.tokenizer, settings.data)
        prompts = encode(rendered, self.tokenizer, chat=settings.data.chat)
        at_once = max(1, AT_ONCE // len(numbers))
        ends = end_tokens(self.model, self.tokenizer)
        training = self.model.training
        self.model.eval()
        for start in range(0, len(examples), at_once):
            chunk = examples[start : start + at_once]
            with torch.autocast(self.model.device.type, torch.bfloat16, enabled=self._bf16):
                groups = sample(
                    self.model,
                    prompts[start : start + at_once],
                    num_samples=len(numbers),
                    max_new_tokens=limit,
                    temperature=temperature,
                    top_p=top_p,
                    eos_ids=ends,
                    uniforms=_uniforms(chunk, numbers, limit, seed) if temperature else None,
                )
            for group in groups:
                written.append([self._text(ids, ends) for ids in group])
                on_done()
        self.model.train(training)
        return written

    def _text(self, ids: list[int], ends: Sequence[int]) -> Written:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        ended = bool(ids) and ids[-1] in ends
        data = self.settings.data
        prefill = beginning(self.tokenizer, data.prefill, chat=data.chat)
        return Completion(text, prefill=prefill, truncated=not ended, tokens=len(ids) - ended)


def _uniforms(examples: Sequence[Example], numbers: Sequence[int], length: int, seed: int) -> torch.Tensor:
    """(examples, numbers, length) numbers in [0, 1), a stream of their own for every sample."""
    streams = [
        [np.random.default_rng(seed_of(seed, example.id, number)).random(length) for number in numbers]
        for example in examples
    ]
    return torch.from_numpy(np.array(streams))


def _fingerprint(model: Any) -> str:
    """Of the weights themselves: a folder may hold others tomorrow under the same name.

    Sums of whole numbers, as those of fractions depend on how many threads add them up.
    """
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = [int(p.detach().view(whole[p.element_size()]).sum(dtype=torch.int64)) for p in model.parameters()]
    return digest_of(sum(p.numel() for p in model.parameters()), sums)
