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

from .model import load_tokenizer, prompt_too_long
from .writing import PromptedWriter

_ENDS = 1 << 20  # bytes at each end of a file of weights, by which it is known again


def takes_vllm(settings: RunSettings) -> bool:
    """Whether answers are written by vLLM: `train.use_vllm`, where it is installed and a GPU is here."""
    return settings.train.use_vllm and find_spec("vllm") is not None and gpus_here() > 0


class VLLMWriter(PromptedWriter):
    """A `Writer` with vLLM's engine; attributes and texts are as those of `PolicyWriter`.

    A text depends on its own seed, as far as vLLM's batches allow.  The engine takes the GPU's memory until
    `close`.
    """

    def __init__(self, settings: RunSettings) -> None:
        model = settings.model
        super().__init__(load_tokenizer(model), settings)
        weights = model.name + (f"@{model.revision}" if model.revision else "")
        self.identity = f"{weights} {_weights(Path(model.name))} vllm {version_of('vllm')} {self.digest()}"
        self._vllm: Any = importlib.import_module("vllm")
        self._engine: Any = None

    def close(self) -> None:
        """Give the memory of the GPU back."""
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
        fitted, prompts = self.fit(examples)
        requests, params = list[Any](), list[Any]()
        sampling = {"temperature": temperature, "top_p": top_p}
        sampling["max_tokens"] = self.settings.train.max_completion_length
        for place, ids in zip(fitted.kept, prompts, strict=True):
            for number in numbers:
                own_seed = seed_of(seed, examples[place].id, number)
                requests.append({"prompt_token_ids": ids})
                params.append(self._vllm.SamplingParams(**sampling, seed=own_seed))
        outputs = self._open().generate(requests, params, use_tqdm=False) if requests else []
        texts = iter([self._completion(output.outputs[0]) for output in outputs])
        groups = ([next(texts) for _ in numbers] for _ in fitted.kept)
        written = fitted.spread(groups, len(numbers), prompt_too_long(self.settings))
        for _ in written:
            on_done()
        return written

    def _open(self) -> Any:
        """The engine, which is started for the first prompts."""
        if self._engine is not None:
            return self._engine
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

    def _completion(self, output: Any) -> Completion:
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
