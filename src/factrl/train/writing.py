"""The policy in this process: what it writes, how likely texts are under it, and how certain it was.

`transformers.generate` runs every copy of a prompt through the model and keeps computing rows that
have already ended.  For groups of short answers on a CPU that is most of the cost, so here what samples of
a prompt have in common is run once, and a row leaves the batch when it ends.  The distribution is the
model's own: temperature and top-p only, no other logits processing.

Self-certainty is how far the next-token distributions are from uniform, over the tokens that were written:
Kang et al. 2025 (arXiv:2502.18581) and, as a reward, Intuitor (Zhao et al. 2025, arXiv:2505.19590):

    certainty(o | q) = 1/|o| sum_i KL(U || p(. | q, o_<i)) = -1/(|o| V) sum_i sum_j log(V p(j | q, o_<i))

with V tokens in the vocabulary.  It is 0 for uniform distributions, in nats, and has no upper limit.  Unlike
the entropy it is ruled by the least likely tokens, so it is about the whole distribution, not its peak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from factrl.llm.writers import Written, check_numbers, digest_of, seed_of
from factrl.runs.settings import RunSettings
from factrl.types import Completion, Example

from .answering import check_no_search
from .model import (
    beginning,
    encode,
    end_tokens,
    fit_prompts,
    load_policy,
    prompt_too_long,
    refuse_long,
    roomy_cache,
    uses_bf16,
)

AT_ONCE = 128  # completions that are sampled together
_ROWS = 8  # of one forward pass that certainty is read from
_POSITIONS = 256  # whose logits over the whole vocabulary are in memory together
_SCALES_LOGITS = ("final_logit_softcapping", "logit_scale", "logits_scaling")  # Gemma, Cohere, Granite


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


# -- Sampling -----------------------------------------------------------------------------------------


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

        wanted = [prompts[index] for index in chunk]
        rows = _sample_chunk(unwrap_adapter(model), wanted, num_samples, max_new_tokens, choose, set(eos_ids))
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


# -- Answers ------------------------------------------------------------------------------------------


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
    rendered = [str(prompt) for prompt in fitted.prompts if prompt is not None]
    prompts = encode(rendered, tokenizer, chat=settings.data.chat) if rendered else []
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


class PolicyWriter:
    """A `Writer` with a model of transformers, asked as in training, which weighs texts too.

    `train.bf16` "auto" is off: with bfloat16 every third short text depends on what is written beside it.

    Attributes:
        weights: which weights these are.
        begun: what the assistant's turn holds already.
    """

    def __init__(self, model: Any, tokenizer: Any, settings: RunSettings, weights: str) -> None:
        self.model, self.tokenizer, self.settings, self.weights = model, tokenizer, settings, weights
        data, limit = settings.data, settings.train.max_completion_length
        self._bf16 = settings.train.bf16 is True
        self.begun = beginning(tokenizer, data.prefill, chat=data.chat)
        self._asked = self._too_long = 0
        digest = digest_of(data.system, data.prompt, data.prefill, data.chat, limit, self._bf16)
        self.identity = f"{weights} {digest}"

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
        settings, answers = self.settings, []
        limit, fitted = settings.train.max_completion_length, fit_prompts(examples, self.tokenizer, settings)
        self._asked, self._too_long = self._asked + len(examples), self._too_long + fitted.too_long
        refuse_long(self._too_long, self._asked, settings)
        if fitted.too_long:
            kept = [examples[number] for number in fitted.kept]
            sampling: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "seed": seed}
            groups = self.write(kept, numbers, **sampling, on_done=on_done) if kept else ()
            return fitted.spread(groups, len(numbers), prompt_too_long(settings))
        rendered = [str(prompt) for prompt in fitted.prompts]
        prompts = encode(rendered, self.tokenizer, chat=settings.data.chat)
        at_once = max(1, AT_ONCE // len(numbers))
        ends = end_tokens(self.model, self.tokenizer)
        with evaluating(self.model, bf16=self._bf16):
            for start in range(0, len(examples), at_once):
                chunk = examples[start : start + at_once]
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
                    answers.append([self._text(ids, ends) for ids in group])
                    on_done()
        return answers

    def _text(self, ids: list[int], ends: Sequence[int]) -> Written:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        ended = bool(ids) and ids[-1] in ends
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


# -- Likelihood and certainty -------------------------------------------------------------------------


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
