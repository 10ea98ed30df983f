"""A causal language model in torch, asked how likely each of a few words is as the next one, or for a reply.

It is for models that were tuned for one task, such as KLCF's truthfulness model, which answers with one word,
and its extractor and checklist verifier, in a folder or on the hub.  Probabilities are of many prompts per
forward pass; replies are written one after the other, so a large model that writes belongs behind a server.
Quantised models on a CPU are `factrl.llm.local.llama`, which has the same methods.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.errors import ConfigError, LLMError
from factrl.llm import Message, Reply, models
from factrl.llm.local.nli import batches, libraries, load_network

if TYPE_CHECKING:
    import numpy as np

_TOKENS_AT_ONCE = 16_384  # of one batch, padding included


class CausalModel:
    """A causal language model with safetensors weights; safe to use from several threads, which take turns.

    Args:
        model: a hub name (`org/model`, `org/model@commit`) or a folder.
        device: where to run; a GPU if there is one.

    Attributes:
        identity: name and fingerprint of the weights.

    Raises:
        ModelError: not there, or no causal language model.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(self, model: str | Path, *, device: str | None = None) -> None:
        torch, transformers = libraries()
        path = models.get(model)
        self.identity = models.identity(path)
        self._torch = torch
        self._lock = threading.Lock()
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        # On a CPU bfloat16 is slower and rounds probabilities to two digits.
        dtype = "float32" if self._device == "cpu" else "auto"
        self._tokenizer, network = load_network(
            transformers, "AutoModelForCausalLM", path, "causal language model", dtype=dtype
        )
        self._network = network.to(self._device).eval()
        self._longest = getattr(network.config, "max_position_embeddings", None) or 1 << 30

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The likeliest reply to a chat, by the model's own template, whatever the temperature.

        Raises:
            LLMError: `truncated`, where the reply has no end within `max_tokens` or the model's positions.
        """
        del temperature, sampling
        started = time.monotonic()
        asked = [{**message} for message in messages]
        with self._lock, self._torch.inference_mode():
            told = self._tokenizer.apply_chat_template(
                asked, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            read = told["input_ids"].shape[1]
            room = min(max_tokens, self._longest - read)
            if room > 0:
                tokens = self._network.generate(
                    **told.to(self._device), max_new_tokens=room, do_sample=False, use_cache=True
                )[0, read:].tolist()
            else:
                tokens = []
        ends = self._network.generation_config.eos_token_id
        ended = bool(tokens) and tokens[-1] in ({*ends} if isinstance(ends, list) else {ends})
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        if not ended:
            raise LLMError("truncated", f"{self.identity} did not end within {room} tokens", text=text)
        elapsed = time.monotonic() - started
        return Reply(text, "stop", self.identity, tokens_in=read, tokens_out=len(tokens), elapsed=elapsed)

    def letter_logprobs(
        self,
        prefix: str,
        prompts: Sequence[str],
        letters: Sequence[str] = (" True", " False"),
        *,
        suffix: str = "",
    ) -> np.ndarray:
        """How likely the first token of each letter, or word, is after `prefix + prompt + suffix`.

        The three are tokenised as one text, with the start token that the model's tokenizer adds, because
        that is how a model is tuned.  Role tokens in a prompt therefore count: take them apart before.

        Returns:
            Natural logarithms of probabilities over the whole vocabulary, float64 (prompts, letters).  A
            prompt that is longer than the model's positions has NaN.

        Raises:
            ConfigError: two letters begin with the same token, or one merges with the end of the prompt.
        """
        import numpy as np

        found = np.full((len(prompts), len(letters)), np.nan)
        with self._lock:
            firsts = self._firsts(suffix or prefix, letters)
            read = [self._tokens(f"{prefix}{prompt}{suffix}") for prompt in prompts]
            lengths = [len(tokens) for tokens in read]
            fitting = [row for row, length in enumerate(lengths) if 0 < length <= self._longest]
            for rows in batches(fitting, lengths, _TOKENS_AT_ONCE):
                found[rows] = self._next([read[row] for row in rows])[:, firsts]
        return found

    def _tokens(self, text: str) -> list[int]:
        return self._tokenizer(text.encode("utf-8", "replace").decode())["input_ids"]

    def _firsts(self, ending: str, letters: Sequence[str]) -> list[int]:
        """The token that each letter begins with, where it follows `ending`."""
        plain = self._tokenizer(ending, add_special_tokens=False)["input_ids"]
        firsts = []
        for letter in letters:
            tokens = self._tokenizer(ending + letter, add_special_tokens=False)["input_ids"]
            if len(tokens) <= len(plain) or tokens[: len(plain)] != plain:
                raise ConfigError(
                    f"the answer {letter!r} merges with the end of the prompt, {ending[-20:]!r}, for "
                    f"{self.identity}; let one of the two have the space between them"
                )
            firsts.append(tokens[len(plain)])
        if len({*firsts}) < len(letters):
            raise ConfigError(
                f"the answers {', '.join(map(repr, letters))} begin with the same token for {self.identity}; "
                "choose others"
            )
        return firsts

    def _next(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Log-probabilities of the next token: (rows, vocabulary), float64."""
        torch = self._torch
        width = max(map(len, rows))
        # Padding stands before the text, so that the next token of every row is at the same place.
        tokens = torch.tensor([[0] * (width - len(row)) + [*row] for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        with torch.inference_mode():
            logits = self._network(
                input_ids=tokens.to(self._device),
                attention_mask=mask.to(self._device),
                position_ids=positions.to(self._device),
                logits_to_keep=1,
                use_cache=False,
            ).logits[:, -1]
            return logits.double().log_softmax(-1).cpu().numpy()
