"""The policy in this process as a `factrl.llm.writers.Writer`, written with vLLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from factrl.errors import ConfigError, ModelError, first_line
from factrl.llm.writers import Written, check_numbers, digest_of, seed_of
from factrl.runs.settings import RunSettings
from factrl.types import Completion, Example

from .model import check_model, embedded_policy, is_embedded
from .prompts import beginning, encode, render_prompts

AT_ONCE = 4096  # completions that vLLM is given together; it schedules them by itself


class VLLMWriter:
    """Writes with vLLM, asked as in training; for probes and evaluations on a GPU.

    A sample has the seed of its own number, so what it says does not depend on the order of the questions
    as far as vLLM's kernels allow: batches of another size add up sums in another order.

    Args:
        engine: a `vllm.LLM`.
        tokenizer: of the policy.
        settings: `data`, and of `train` the length limit.
        weights: which weights these are.
    """

    def __init__(self, engine: Any, tokenizer: Any, settings: RunSettings, weights: str) -> None:
        self.engine, self.tokenizer, self.settings, self.weights = engine, tokenizer, settings, weights
        data, limit = settings.data, settings.train.max_completion_length
        asked = digest_of(data.system, data.prompt, data.prefill, data.chat, limit)
        self.identity = f"{weights} {asked}"

    @classmethod
    def load(cls, settings: RunSettings) -> VLLMWriter:
        """The policy that `settings.model` names.

        Raises:
            ConfigError: it is to be written by a server of TRL's, which only its trainer can ask.
            ModelError: it cannot be loaded.
        """
        import vllm  # pyright: ignore[reportMissingImports]

        told = settings.model
        if settings.train.vllm_mode == "server":
            raise ConfigError(
                "train.vllm_mode = 'server' is for training; name a server that answers here as the model "
                "(--model http://host:8000/v1#model), or set "
                "train.use_vllm=false train.vllm_server_base_url="
            )
        check_model(told.name)
        name = str(embedded_policy(told.name)) if is_embedded(told.name) else told.name
        options = {"revision": told.revision, "trust_remote_code": told.trust_remote_code}
        dtype = told.dtype if told.lora or told.dtype != "auto" else "float32"  # as `load_policy`
        try:
            tokenizer = AutoTokenizer.from_pretrained(name, **options)
            engine = vllm.LLM(model=name, dtype=dtype, **options)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise ModelError(
                f"model.name = {told.name!r} cannot be loaded by vLLM: {first_line(error)}; check the name "
                "and the memory, or set train.use_vllm=false"
            ) from error
        named = told.name + (f"@{told.revision}" if told.revision else "")
        return cls(engine, tokenizer, settings, f"{named} {_files(name)} vllm {vllm.__version__} {dtype}")

    def asked(self, settings: RunSettings) -> VLLMWriter:
        """The same weights, asked in another way."""
        return VLLMWriter(self.engine, self.tokenizer, settings, self.weights)

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
        from vllm import SamplingParams  # pyright: ignore[reportMissingImports]

        check_numbers(numbers, temperature)
        data, limit = self.settings.data, self.settings.train.max_completion_length
        prompts = encode(render_prompts(examples, self.tokenizer, data), self.tokenizer, chat=data.chat)
        written: list[list[Written]] = []
        at_once = max(1, AT_ONCE // len(numbers))
        for start in range(0, len(examples), at_once):
            chunk = list(zip(examples, prompts, strict=True))[start : start + at_once]
            asked = [(example, ids, number) for example, ids in chunk for number in numbers]
            # Every limit is given: what a model's generation_config.json says would cut the distribution.
            params = [
                SamplingParams(
                    temperature=temperature,
                    top_p=top_p if temperature else 1.0,
                    top_k=0,
                    min_p=0.0,
                    repetition_penalty=1.0,
                    seed=seed_of(seed, example.id, number) if temperature else None,
                    max_tokens=limit,
                )
                for example, _, number in asked
            ]
            replies = self.engine.generate(
                [{"prompt_token_ids": ids} for _, ids, _ in asked], params, use_tqdm=False
            )
            texts = [self._text(reply.outputs[0]) for reply in replies]
            for row in range(0, len(texts), len(numbers)):
                written.append(list(texts[row : row + len(numbers)]))
                on_done()
        return written

    def _text(self, output: Any) -> Written:
        text = self.tokenizer.decode(list(output.token_ids), skip_special_tokens=True)
        ended = output.finish_reason == "stop"  # the last token is then one that ends an answer
        tokens = len(output.token_ids) - ended
        data = self.settings.data
        prefill = beginning(self.tokenizer, data.prefill, chat=data.chat)
        return Completion(text, prefill=prefill, truncated=not ended, tokens=tokens)


def _files(name: str) -> str:
    """Of a folder's weights: their files, sizes and times, as the tensors are in processes of vLLM's."""
    files = sorted(Path(name).glob("*.safetensors")) if Path(name).is_dir() else []
    return digest_of([(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files])
