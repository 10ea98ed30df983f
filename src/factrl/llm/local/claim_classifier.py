"""A classifier with one output in torch, asked how likely claims are true; its logit is that of *true*."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from factrl.errors import ModelError
from factrl.llm import models
from factrl.llm.local.nli import batches
from factrl.llm.local.weights import libraries, load_network, longest_input

if TYPE_CHECKING:
    import numpy as np

_TOKENS_AT_ONCE = 8192  # of one batch, padding included


class ClaimClassifier:
    """A sequence classifier with one output and safetensors weights; safe to use from several threads.

    Args:
        model: a hub name or a folder.
        device: where to run; a GPU if there is one.

    Attributes:
        identity: name and fingerprint of the weights.

    Raises:
        ModelError: not there, or no classifier with one output.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(self, model: str | Path, *, device: str | None = None) -> None:
        torch, transformers = libraries()
        path = models.get(model)
        self.identity = models.identity(path)
        self._torch = torch
        self._lock = threading.Lock()
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._tokenizer, network = load_network(
            transformers, "AutoModelForSequenceClassification", path, "claim classifier", dtype="float32"
        )
        if network.config.num_labels != 1:
            raise ModelError(f"{path} has {network.config.num_labels} outputs; a claim classifier has one")
        self._network = network.to(self._device).eval()
        self._longest = longest_input(network.config, self._tokenizer)

    def letter_logprobs(
        self, prefix: str, prompts: Sequence[str], letters: Sequence[str] = (), *, suffix: str = ""
    ) -> np.ndarray:
        """log P(true) and log P(false) of each claim, float64 (prompts, 2); NaN for one that is too long.

        Args:
            prefix, suffix: what stands around each claim.
            letters: not used; a classifier has no words.
        """
        import numpy as np

        found = np.full((len(prompts), 2), np.nan)
        with self._lock:
            texts = [f"{prefix}{p}{suffix}".encode("utf-8", "replace").decode() for p in prompts]
            read = [self._tokenizer(text) for text in texts]
            lengths = [len(one["input_ids"]) for one in read]
            fitting = [row for row, length in enumerate(lengths) if 0 < length <= self._longest]
            for rows in batches(fitting, lengths, _TOKENS_AT_ONCE):
                inputs = self._tokenizer.pad([read[row] for row in rows], return_tensors="pt")
                with self._torch.inference_mode():
                    logits = self._network(**inputs.to(self._device)).logits[:, 0].double().cpu().numpy()
                found[rows] = np.stack([-np.logaddexp(0, -logits), -np.logaddexp(0, logits)], axis=1)
        return found
