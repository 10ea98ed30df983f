"""A model that vLLM runs in this process, on a GPU: what it writes outside of training."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from factrl.llm.writers import Written, check_numbers, digest_of, seed_of
from factrl.runs.folder import gpus_here, version_of
from factrl.runs.settings import RunSettings
from factrl.types import Completion, Example

from .model import beginning, encode, fit_prompts, load_tokenizer, prompt_too_long, refuse_long

_ENDS = 1 << 20  # bytes at each end of a file of weights, by which it is known again


def takes_vllm(settings: RunSettings) -> bool:
    """Whether answers are written by vLLM: `train.use_vllm`, where it is installed and a GPU is here."""
    return settings.train.use_vllm and find_spec("vllm") is not None and gpus_here() > 0


class VLLMWriter:
    """A `Writer` with vLLM's engine; attributes and texts are as those of `PolicyWriter`.

    A text depends on its own seed, as far as vLLM's batches allow.  The engine takes the GPU's memory until
    `close`.
    """

    def __init__(self, settings: RunSettings) -> None:
        model, data, limit = settings.model, settings.data, settings.train.max_completion_length
        self.settings, self.tokenizer = settings, load_tokenizer(model)
        self.begun = beginning(self.tokenizer, data.prefill, chat=data.chat)
        how = digest_of(data.system, data.prompt, data.prefill, data.chat, limit)
        weights = model.name + (f"@{model.revision}" if model.revision else "")
        self.identity = f"{weights} {_weights(Path(model.name))} vllm {version_of('vllm')} {how}"
        self._vllm: Any = importlib.import_module("vllm")
        self._engine: Any = None
        self._asked = self._too_long = 0

    def close(self) -> None:
        """Give the memory of the GPU back, for training after it."""
        self._engine = None
        gc.collect()
        torch.cuda.empty_cache()

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
        """See `Writer.write`."""
        check_numbers(numbers, temperature)
        settings, fitted = self.settings, fit_prompts(examples, self.tokenizer, self.settings)
        self._asked, self._too_long = self._asked + len(examples), self._too_long + fitted.too_long
        refuse_long(self._too_long, self._asked, settings)
        kept = [(number, str(fitted.prompts[number])) for number in fitted.kept]
        ids = encode([prompt for _, prompt in kept], self.tokenizer, chat=settings.data.chat) if kept else []
        how = {"temperature": temperature, "top_p": top_p}
        how["max_tokens"] = settings.train.max_completion_length
        engine = self._engine or (self._open() if kept else None)
        asked = [
            ({"prompt_token_ids": tokens}, seed_of(seed, examples[place].id, number))
            for (place, _), tokens in zip(kept, ids, strict=True)
            for number in numbers
        ]
        params = [self._vllm.SamplingParams(**how, seed=own) for _, own in asked]
        outputs = engine.generate([p for p, _ in asked], params, use_tqdm=False) if engine and asked else []
        texts = iter([self._text(output.outputs[0]) for output in outputs])
        written = ([next(texts) for _ in numbers] for _ in kept)
        groups = fitted.spread(written, len(numbers), prompt_too_long(settings))
        for _ in groups:
            on_done()
        return groups

    def _open(self) -> Any:
        self.close()
        model = self.settings.model
        self._engine = self._vllm.LLM(
            model=model.name,
            revision=model.revision,
            dtype=model.dtype,
            trust_remote_code=model.trust_remote_code,
            seed=self.settings.run.seed,
            enable_prefix_caching=True,  # several samples of a prompt read it once
        )
        return self._engine

    def _text(self, output: Any) -> Completion:
        cut = output.finish_reason == "length"
        count = len(output.token_ids) - (not cut)
        return Completion(output.text, prefill=self.begun, truncated=cut, tokens=count)


def _weights(folder: Path) -> str:
    """Of a folder's weights: it may hold others tomorrow under the same name."""
    parts = list[Any]()
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as weights:
            size = file.stat().st_size
            start = weights.read(_ENDS)
            weights.seek(max(size - _ENDS, 0))
            parts.append((file.name, size, start, weights.read()))
    return digest_of(*parts)
