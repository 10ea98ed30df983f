"""The lab's language model: transformers' Llama, small enough to pretrain in about a minute.

Texts are padded on the left: positions count from the first token of the row, which a rotary embedding does
not notice, and so prompts of different lengths go on at one place.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache, LlamaConfig, LlamaForCausalLM

from factrl.llm.models import cache_folder
from factrl.runs.disk import whole_file
from factrl.runs.progress import Progress

from . import TURN, World

VERSION = 2  # of what a cached model depends on in this module
PAD, END = 0, 1
KEPT_SECONDS = 10.0  # of pretraining that is lost at most when it is stopped


@dataclass(frozen=True)
class ModelSettings:
    """The decoder and its pretraining."""

    width: int = 128
    layers: int = 2
    heads: int = 4
    hidden: int = 512
    """Width of the feed-forward part."""
    spread: float = 0.06
    """Standard deviation of the first weights."""
    learning_rate: float = 3e-3
    """Peak, with a cosine to 0 over one epoch."""
    warmup_steps: int = 20
    batch_size: int = 64


class Tokenizer:
    """One token per word; 0 pads, and 1 ends a turn."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = ["", TURN, *words]
        self._ids = {word: number for number, word in enumerate(self._words) if word}

    def __len__(self) -> int:
        return len(self._words)

    def encode(self, text: str) -> list[int]:
        return [self._ids[word] for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        """The words up to the last end."""
        ids = [number for number in ids if number != PAD]
        return " ".join(self._words[number] for number in (ids[:-1] if ids[-1:] == [END] else ids))

    def prompts(self, texts: Sequence[str]) -> torch.Tensor:
        """(B, L), padded on the left."""
        rows = [torch.tensor(self.encode(text)) for text in texts]
        return pad_sequence(rows, batch_first=True, padding_value=PAD, padding_side="left")

    def completions(self, texts: Sequence[str]) -> torch.Tensor:
        """(B, T), each with its end, padded on the right."""
        return padded([[*self.encode(text), END] for text in texts])


def padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """(B, T), padded on the right."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD)


def written(completions: torch.Tensor) -> torch.Tensor:
    """(B, T), whether a token is the policy's own: neither padding nor a word or the end of a tool's turn."""
    ends = completions == END
    turn = ends.cumsum(dim=1) - ends.long()
    return (completions != PAD) & (turn % 2 == 0)


class Decoder(LlamaForCausalLM):
    """A Llama with one matrix in and out, whose padding is never written."""

    def __init__(self, vocabulary: int, settings: ModelSettings) -> None:
        super().__init__(
            LlamaConfig(
                vocab_size=vocabulary,
                hidden_size=settings.width,
                intermediate_size=settings.hidden,
                num_hidden_layers=settings.layers,
                num_attention_heads=settings.heads,
                tie_word_embeddings=True,
                pad_token_id=None,
                bos_token_id=None,
                eos_token_id=END,
            )
        )

    def read(
        self, ids: torch.Tensor, past: Cache | None = None, seen: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Cache, torch.Tensor]:
        """States of the tokens (B, T), and what later tokens need of all so far.

        Args:
            past: keys and values of the P tokens before; changed in place.
            seen: (B, P), whether the tokens before are real.

        Returns:
            (B, T, width), the past with these T, and (B, P + T), whether a token is real.
        """
        seen = ids != PAD if seen is None else torch.cat([seen, ids != PAD], dim=1)
        out = self.model(ids, attention_mask=seen, past_key_values=past, use_cache=True)
        return out.last_hidden_state, out.past_key_values, seen

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """(…, vocabulary) of states; the padding is never written."""
        logits = states @ self.model.embed_tokens.weight.T
        return torch.cat([torch.full_like(logits[..., :1], -torch.inf), logits[..., 1:]], dim=-1)


def log_probs(
    model: Decoder, prompts: torch.Tensor, completions: torch.Tensor, temperature: float = 1.0
) -> torch.Tensor:
    """(B·n, T) of the tokens of `completions`, 0 where the policy did not write them.

    Args:
        prompts: (B, L); each is run once, whatever the number of its completions.
        completions: (B·n, T), the n of a prompt one after the other.
        temperature: logits are divided by it, as in sampling.
    """
    times = len(completions) // len(prompts)
    states, past, seen = model.read(prompts)
    past.batch_repeat_interleave(times)
    states = states[:, -1:].repeat_interleave(times, 0)
    if completions.shape[1] > 1:
        after, _, _ = model.read(completions[:, :-1], past, seen.repeat_interleave(times, 0))
        states = torch.cat([states, after], dim=1)
    wanted = written(completions)  # the vocabulary is the widest matrix: nothing goes through it in vain
    found = torch.log_softmax(model.logits(states[wanted]) / temperature, dim=-1)
    chosen = found.gather(1, completions[wanted][:, None])[:, 0]
    return torch.zeros(completions.shape).masked_scatter(wanted, chosen)


def answer_loss(model: Decoder, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
    """Mean negative log-probability of the policy's tokens in given answers, their ends included."""
    completions = tokenizer.completions([answer for _, answer in pairs])
    found = log_probs(model, tokenizer.prompts([prompt for prompt, _ in pairs]), completions)
    return -found.sum() / written(completions).sum()


@dataclass(frozen=True)
class Base:
    """A model that has read a world's text; arms change copies of it."""

    model: Decoder
    tokenizer: Tokenizer


def pretrained(world: World, seed: int = 0, settings: ModelSettings | None = None) -> Base:
    """The model that has read `world`'s pretraining text once, from the cache folder where it is there.

    What was read before it was stopped is kept there too, and gone on with.

    Args:
        seed: of the first weights.
    """
    settings, pairs = settings or ModelSettings(), list(world.pretraining())
    tokenizer = Tokenizer(world.words)
    model = fresh(len(tokenizer), settings, seed)
    file = _file(world, pairs, settings, seed)
    if file.is_file():
        load_model(model, file)
        return Base(model, tokenizer)
    size = settings.batch_size
    steps = math.ceil(len(pairs) / size)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=0.01, fused=True
    )

    def rate(step: int) -> float:
        warm = min(1.0, (step + 1) / settings.warmup_steps)
        return warm * (1 + math.cos(math.pi * step / steps)) / 2

    stopped = file.with_suffix(".stopped")
    file.parent.mkdir(parents=True, exist_ok=True)
    done, saved = _resume(stopped, model, optimizer), time.monotonic()
    with Progress(f"pretraining, seed {seed}", steps) as progress:
        progress.advance(done)
        for step in range(done, steps):
            loss = answer_loss(model, tokenizer, pairs[step * size : (step + 1) * size])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.param_groups[0]["lr"] = settings.learning_rate * rate(step)
            optimizer.step()
            progress.advance()
            if time.monotonic() - saved >= KEPT_SECONDS:
                _keep(stopped, model, optimizer)
                saved = time.monotonic()
    with whole_file(file) as unfinished:
        save_model(model, str(unfinished))
    stopped.unlink(missing_ok=True)
    return Base(model, tokenizer)


def _keep(file: Path, model: Decoder, optimizer: torch.optim.Optimizer) -> None:
    """Weights, and what the optimizer knows of each: its moments and the steps that were made."""
    tensors = {
        f"{name} {slot}": value.detach()
        for name, weight in model.named_parameters()
        for slot, value in {"weight": weight, **optimizer.state[weight]}.items()
    }
    with whole_file(file) as unfinished:
        save_file(tensors, unfinished)


def _resume(file: Path, model: Decoder, optimizer: torch.optim.Optimizer) -> int:
    """The steps that had been made; 0 without a file, or with one that is damaged, which is removed."""
    parts: dict[str, dict[str, torch.Tensor]] = {}
    try:
        for key, value in load_file(file).items():
            name, _, slot = key.partition(" ")
            parts.setdefault(name, {})[slot] = value
        weights = {name: parts[name].pop("weight") for name, _ in model.named_parameters()}
        step = int(next(iter(parts.values()))["step"])
    except (FileNotFoundError, SafetensorError, KeyError):
        file.unlink(missing_ok=True)
        return 0
    for name, weight in model.named_parameters():
        weight.data.copy_(weights[name])
        optimizer.state[weight] = parts[name]
    return step


def fresh(vocabulary: int, settings: ModelSettings, seed: int) -> Decoder:
    """A model that has read nothing."""
    model = Decoder(vocabulary, settings)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.normal_(0, settings.spread, generator=draw)
    return model


def _file(world: World, pairs: Sequence[tuple[str, str]], settings: ModelSettings, seed: int) -> Path:
    """Named after everything that decides the weights, the words in their order too."""
    told = {
        "words": list(world.words),
        "text": hashlib.sha256(json.dumps(pairs).encode()).hexdigest(),
        "model": asdict(settings),
        "seed": seed,
        "version": VERSION,
        "torch": torch.__version__,
    }
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / "lab" / f"{world.name}-{digest}.safetensors"
