"""GRPO in one file that is meant to be read: sample, reward, compare, step.

    completions = converse(model, world)                     n of each prompt; a tool may answer a turn
    rewards, signs = judge(reward, completions)              the real reward; NaN where masked
    advantages = group_advantages(rewards)                   flipped token by token where there are spans
    loss = -ratio A + beta KL                                over the tokens that the policy wrote

Each batch is used for one step, so the ratio to the policy that sampled is 1 and there is nothing to clip.
The estimators and the sign rule are those that `factrl train` uses (`factrl.train.advantages`); the names of
the settings are its names too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from factrl.papers import Form
from factrl.rewards import Reward
from factrl.train.advantages import Scale, flip_advantages, group_advantages, reinforce_pp_advantages
from factrl.types import Completion, Example, Result

from . import World
from .model import END, PAD, Base, Decoder, Tokenizer, log_probs, padded, written

ANSWERED_AT_ONCE = 256


@dataclass(frozen=True)
class LoopSettings:
    """What the loop can be told; the defaults suit the lab's model, not a real one."""

    prompts_per_step: int = 32
    num_generations: int = 8
    temperature: float = 1.0
    learning_rate: float = 2e-4
    warmup_steps: int = 10
    loss_type: Literal["grpo", "dr_grpo", "dapo", "reinforce++"] = "dr_grpo"
    """How tokens are weighed: the mean of each completion's mean, a constant length, or all tokens alike;
    `reinforce++` is the last with advantages of its own."""
    scale_rewards: Scale = "group"
    advantage_epsilon: float = 1e-6
    beta: float = 0.0
    """Weight of the KL penalty towards the model that training starts from."""
    max_grad_norm: float = 1.0


@dataclass(frozen=True)
class Batch:
    """What one step learns from."""

    prompts: torch.Tensor  # (B, L)
    completions: torch.Tensor  # (B·n, T)
    advantages: torch.Tensor  # (B·n, T), 0 where masked
    weights: torch.Tensor  # (B·n, T), of each token's loss; 0 where masked or not the policy's


class Optimizer:
    """AdamW with a warm-up and clipped gradients, for the loop and for the offline methods."""

    def __init__(self, model: Decoder, settings: LoopSettings) -> None:
        self._settings, self._steps, self._weights = settings, 0, list(model.parameters())
        self._adam = torch.optim.AdamW(self._weights, weight_decay=0.0)

    def step(self, loss: torch.Tensor) -> None:
        """Go down the gradient of `loss`."""
        self._steps += 1
        warm = min(1.0, self._steps / max(self._settings.warmup_steps, 1))
        self._adam.param_groups[0]["lr"] = self._settings.learning_rate * warm
        self._adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._weights, self._settings.max_grad_norm)
        self._adam.step()


def optimise(
    model: Decoder,
    base: Base,
    world: World,
    reward: Reward,
    form: Form,
    settings: LoopSettings,
    *,
    examples: Sequence[Example],
    seed: int = 0,
) -> Iterator[list[Result]]:
    """Train `model` in place, forever: each turn is one step and gives the results of its samples.

    Args:
        base: what the model is a copy of, to which a KL penalty pulls.
        reward: with its resources supplied; it reads completions in this `form`.
        examples: what is asked, in an order drawn anew for each epoch.
    """
    draw = torch.Generator().manual_seed(seed)
    optimizer, tokenizer = Optimizer(model, settings), base.tokenizer
    for asked in parts(examples, settings.prompts_per_step, seed):
        n = settings.num_generations
        prompts, completions = converse(model, tokenizer, world, asked, n, settings.temperature, draw)
        repeated = [example for example in asked for _ in range(n)]
        results, signs = judge(reward, form, world, tokenizer, repeated, completions)
        batch = make_batch(prompts, completions, results, signs, settings, world.max_new_tokens)
        update(model, optimizer, batch, settings, base.model)
        yield results


def converse(
    model: Decoder,
    tokenizer: Tokenizer,
    world: World,
    examples: Sequence[Example],
    times: int,
    temperature: float = 1.0,
    draw: torch.Generator | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, L) prompts and (B·times, T) completions, in which the world's tool answers turns of the policy."""
    prompts = tokenizer.prompts([world.prompt(example) for example in examples])
    completions = sample(model, prompts, times, world.max_new_tokens, temperature, draw)
    rows = [[number for number in row if number != PAD] for row in completions.tolist()]
    going = range(len(rows))
    while True:
        replies = {n: world.reply(examples[n // times], tokenizer.decode(rows[n])) for n in going}
        going = [n for n, reply in replies.items() if reply is not None and rows[n][-1:] == [END]]
        if not going:
            return prompts, padded(rows)
        for n in going:
            rows[n] += [*tokenizer.encode(replies[n] or ""), END]
        told = [f"{world.prompt(examples[n // times])} {tokenizer.decode([*rows[n], END])}" for n in going]
        more = sample(model, tokenizer.prompts(told), 1, world.max_new_tokens, temperature, draw)
        for n, row in zip(going, more.tolist(), strict=True):
            rows[n] += [number for number in row if number != PAD]


@torch.no_grad()
def sample(
    model: Decoder,
    prompts: torch.Tensor,
    times: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    draw: torch.Generator | None = None,
) -> torch.Tensor:
    """(B·times, T) completions, padded after their end; greedy at temperature 0.

    The prompts are run once for all their samples, and every further token takes one column.
    """
    states, past, seen = model.read(prompts)
    states = states[:, -1].repeat_interleave(times, 0)
    past.batch_repeat_interleave(times)
    seen = seen.repeat_interleave(times, 0)
    written: list[torch.Tensor] = []
    ended = torch.zeros(len(states), dtype=torch.bool)
    while True:
        logits = model.logits(states)
        if temperature:
            chosen = torch.multinomial((logits / temperature).softmax(dim=-1), 1, generator=draw)[:, 0]
        else:
            chosen = logits.argmax(dim=-1)
        written.append(chosen.masked_fill(ended, PAD))
        ended = ended | (chosen == END)
        if len(written) == max_new_tokens or bool(ended.all()):
            return torch.stack(written, dim=1)
        states, past, seen = model.read(written[-1][:, None], past, seen)
        states = states[:, -1]


def judge(
    reward: Reward,
    form: Form,
    world: World,
    tokenizer: Tokenizer,
    examples: Sequence[Example],
    completions: torch.Tensor,
) -> tuple[list[Result], torch.Tensor]:
    """What became of each sample, and (B·n, T) the sign of the span that each of its words is in."""
    texts = [tokenizer.decode(row) for row in completions.tolist()]
    wrapped = [world.wrap(example, text, form) for example, text in zip(examples, texts, strict=True)]
    lengths = written(completions).sum(dim=1).tolist()
    ended = ((completions == END).sum(dim=1) % 2 == 1).tolist()  # the policy's last turn, not the tool's
    seen = []
    for one, length, whole in zip(wrapped, lengths, ended, strict=True):
        seen.append(Completion(one.text, tokens=length, truncated=not whole))
        seen[-1].shown = one.shown
    results = reward.batch(examples, seen)
    signs = torch.zeros(completions.shape)
    for row, (result, one) in enumerate(zip(results, wrapped, strict=True)):
        for span in result.spans:
            for word, start in enumerate(one.starts):
                if span.start <= start < span.end:
                    signs[row, word] = span.sign
    return results, signs


def make_batch(
    prompts: torch.Tensor,
    completions: torch.Tensor,
    results: Sequence[Result],
    signs: torch.Tensor,
    settings: LoopSettings,
    max_new_tokens: int,
) -> Batch:
    """Advantages and weights of the tokens.  A masked sample has neither and does not move its group."""
    values = [torch.nan if result.value is None else result.value for result in results]
    rewards = torch.tensor(values, dtype=torch.float32)
    lengths = written(completions).sum(dim=1)
    if settings.loss_type == "reinforce++":
        advantages = reinforce_pp_advantages(rewards, lengths)
    else:
        scale, epsilon = settings.scale_rewards, settings.advantage_epsilon
        advantages = group_advantages(rewards, settings.num_generations, scale=scale, epsilon=epsilon)
    scored = ~rewards.isnan()
    kept = (written(completions) & scored[:, None]).float()
    rows = scored.sum().clamp(min=1)
    if settings.loss_type == "grpo":
        weights = kept / lengths[:, None] / rows
    elif settings.loss_type == "dr_grpo":
        weights = kept / (rows * max_new_tokens)
    else:
        weights = kept / kept.sum().clamp(min=1)
    return Batch(prompts, completions, flip_advantages(advantages, signs), weights)


def update(
    model: Decoder, optimizer: Optimizer, batch: Batch, settings: LoopSettings, reference: Decoder
) -> None:
    """The optimizer's step on one batch; a penalty pulls to the reference."""
    if not settings.beta:
        batch = _without_flat_groups(batch)
    if not len(batch.prompts):
        return
    new = log_probs(model, batch.prompts, batch.completions, settings.temperature)
    # The ratio to the policy that sampled: 1, as a batch is used once, with the gradient of `new`.
    losses = -(new - new.detach()).exp() * batch.advantages
    if settings.beta:
        with torch.no_grad():
            anchor = log_probs(reference, batch.prompts, batch.completions, settings.temperature)
        away = anchor - new
        losses = losses + settings.beta * (away.exp() - away - 1)
    optimizer.step((losses * batch.weights).sum())


def answers(
    model: Decoder,
    tokenizer: Tokenizer,
    world: World,
    examples: Sequence[Example],
    times: int = 1,
    temperature: float = 0.0,
    draw: torch.Generator | None = None,
) -> list[list[str]]:
    """`times` completions of each example, as texts; the likeliest one, word by word, at temperature 0."""
    groups: list[list[str]] = []
    for start in range(0, len(examples), ANSWERED_AT_ONCE):
        some = examples[start : start + ANSWERED_AT_ONCE]
        _, rows = converse(model, tokenizer, world, some, times, temperature, draw)
        texts = [tokenizer.decode(row) for row in rows.tolist()]
        groups += [texts[i : i + times] for i in range(0, len(texts), times)]
    return groups


def _without_flat_groups(batch: Batch) -> Batch:
    """Groups in which nothing differs have no gradient; the weights of the others stay as they are."""
    times = len(batch.completions) // len(batch.prompts)
    moves = (batch.advantages * batch.weights != 0).any(dim=1).view(-1, times).any(dim=1)
    rows = moves.repeat_interleave(times)
    return Batch(batch.prompts[moves], batch.completions[rows], batch.advantages[rows], batch.weights[rows])


def parts(rows: Sequence[Any], size: int, seed: int) -> Iterator[list[Any]]:
    """Parts of `size`, epoch after epoch; what is over at the end of an epoch is left to the next order."""
    draw, order = random.Random(seed), list(rows)
    while True:
        draw.shuffle(order)
        for start in range(0, len(order) - size + 1, size):
            yield order[start : start + size]
