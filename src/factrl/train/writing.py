"""What the policy in this process answers, asked as in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from factrl.llm.writers import Written, check_numbers, digest_of, seed_of
from factrl.runs.settings import RunSettings
from factrl.types import Completion, Example

from .answering import check_no_search
from .model import (
    Fitted,
    beginning,
    encode,
    end_tokens,
    fit_prompts,
    load_policy,
    prompt_too_long,
    refuse_long,
    uses_bf16,
)
from .sampling import AT_ONCE, evaluating, sample


def answer(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    settings: RunSettings,
    *,
    num_samples: int = 1,
    temperature: float = 0.0,
    batch_size: int = AT_ONCE,
    written: Callable[[int], None] = lambda count: None,
) -> list[list[Any]]:
    """Answers of the policy as it is now, asked as in training: for every question `num_samples` of them.

    None where the prompt is longer than `train.max_prompt_length`.

    Args:
        written: called with how many answers were written, batch by batch.

    Raises:
        ConfigError: it searches (`search.index`), which it does in training alone.
    """
    check_no_search(settings)
    fitted = fit_prompts(examples, tokenizer, settings)
    kept = [str(fitted.prompts[number]) for number in fitted.kept]
    prompts = encode(kept, tokenizer, chat=settings.data.chat)
    with evaluating(model, bf16=uses_bf16(settings.train)):
        groups = sample(
            model,
            prompts,
            num_samples=num_samples,
            max_new_tokens=settings.train.max_completion_length,
            temperature=temperature,
            eos_ids=end_tokens(model, tokenizer),
            batch_size=batch_size,
            written=written,
        )
    texts = (tokenizer.batch_decode(group, skip_special_tokens=True) for group in groups)
    return fitted.spread(texts, num_samples, None)


class PromptedWriter:
    """What a writer of this process has: a tokenizer, and prompts that are those of training.

    Attributes:
        begun: what the assistant's turn holds already.
    """

    def __init__(self, tokenizer: Any, settings: RunSettings) -> None:
        self.tokenizer, self.settings = tokenizer, settings
        self.begun = beginning(tokenizer, settings.data.prefill, chat=settings.data.chat)
        self._num_prompts = self._num_too_long = 0

    def fit(self, examples: Sequence[Example]) -> tuple[Fitted, list[list[int]]]:
        """The prompts, and the tokens of those that fit.

        Raises:
            DataError: of all prompts so far a larger share than `train.max_long_share` is too long.
        """
        fitted = fit_prompts(examples, self.tokenizer, self.settings)
        self._num_prompts += len(examples)
        self._num_too_long += fitted.too_long
        refuse_long(self._num_too_long, self._num_prompts, self.settings)
        kept = [str(fitted.prompts[number]) for number in fitted.kept]
        return fitted, encode(kept, self.tokenizer, chat=self.settings.data.chat)

    def close(self) -> None:
        """Give the memory of the weights back, where they take all of it."""

    def digest(self, *more: object) -> str:
        """A fingerprint of how the model is asked."""
        data, limit = self.settings.data, self.settings.train.max_completion_length
        return digest_of(data.system, data.prompt, data.prefill, data.chat, limit, *more)


class PolicyWriter(PromptedWriter):
    """A `Writer` with a model of transformers, asked as in training.

    `train.bf16` "auto" is off: with bfloat16 every third short text depends on what is written beside it.

    Args:
        weights: which weights these are.
    """

    def __init__(self, model: Any, tokenizer: Any, settings: RunSettings, weights: str) -> None:
        super().__init__(tokenizer, settings)
        self.model, self.weights, self._bf16 = model, weights, settings.train.bf16 is True
        self.identity = f"{weights} {self.digest(self._bf16)}"

    @classmethod
    def load(cls, settings: RunSettings) -> PolicyWriter:
        """The policy that `settings.model` names, on the GPU when there is one."""
        check_no_search(settings)
        model, tokenizer = load_policy(settings.model)
        if torch.cuda.is_available():
            model.to("cuda")
        named = settings.model.name + (f"@{settings.model.revision}" if settings.model.revision else "")
        return cls(model, tokenizer, settings, f"{named} {_fingerprint(model)}")

    def with_settings(self, settings: RunSettings) -> PolicyWriter:
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
        limit, (fitted, prompts) = self.settings.train.max_completion_length, self.fit(examples)
        kept = [examples[number] for number in fitted.kept]
        at_once = max(1, AT_ONCE // len(numbers))
        eos_ids, answers = end_tokens(self.model, self.tokenizer), list[list[Written]]()
        with evaluating(self.model, bf16=self._bf16):
            for start in range(0, len(kept), at_once):
                part = kept[start : start + at_once]
                groups = sample(
                    self.model,
                    prompts[start : start + at_once],
                    num_samples=len(numbers),
                    max_new_tokens=limit,
                    temperature=temperature,
                    top_p=top_p,
                    eos_ids=eos_ids,
                    uniforms=_uniforms(part, numbers, limit, seed) if temperature else None,
                )
                for group in groups:
                    answers.append([self._completion(ids, eos_ids) for ids in group])
                    on_done()
        return fitted.spread(answers, len(numbers), prompt_too_long(self.settings))

    def _completion(self, ids: list[int], eos_ids: Sequence[int]) -> Completion:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        ended = bool(ids) and ids[-1] in eos_ids
        return Completion(text, prefill=self.begun, truncated=not ended, tokens=len(ids) - ended)


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
