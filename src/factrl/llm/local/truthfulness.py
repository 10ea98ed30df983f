"""A causal language model in torch, asked how likely each of a few words is as the next one.

It is for models that were tuned to answer with one word, such as KLCF's truthfulness model, in a folder or on
the hub, and runs many prompts per forward pass.  Quantised models on a CPU are `factrl.llm.local.llama`,
which has the same method.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factrl.errors import ConfigError
from factrl.llm import models
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
