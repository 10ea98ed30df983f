"""Networks of the hub in this process, by torch: how they are loaded, and language models tuned for one task.

A `CausalModel` was tuned for one task, such as KLCF's truthfulness model, which answers with one word, and
its extractor and checklist verifier.  Probabilities are of many prompts per forward pass; replies are written
one after the other, so a large model that writes belongs behind a server.  `factrl.llm.local.llama`, for
quantised models on a CPU, has the same methods; classifiers are `factrl.llm.local.classifiers`.

Models are named as in `factrl.llm.models`.  All are safe to use from several threads, which take turns.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.errors import ConfigError, LLMError, MissingExtra, ModelError, first_line
from factrl.llm import Message, Reply, models
from factrl.text import encodable

if TYPE_CHECKING:
    import numpy as np

TOKENS_AT_ONCE = 8192  # of one batch, padding included
_LONGEST = 512  # tokens, for a model whose files do not say
Encoding = Mapping[str, Sequence[int]]


class Network:
    """A network on a GPU if there is one, its tokenizer, and how many tokens it reads.

    Weights come from safetensors only, and none of them may be missing.  A folder with code of its own may
    hold no tokenizer; it is then that of `foundation` in its configuration, the model that it was made of.

    Args:
        model: a hub name (`org/model`, `org/model@commit`) or a folder.
        kind: the `AutoModel…` class.
        what: what the network should be, for errors: `reward model`.
        dtype: on a GPU, as transformers calls it; on a CPU half precision is slower, and less exact.
        trusted: run code that comes with the model.

    Attributes:
        identity: name and fingerprint of the weights.

    Raises:
        ModelError: not there, no such network, or only a part of it.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(
        self, model: str | Path, kind: str, what: str, *, dtype: str = "auto", trusted: bool = False
    ) -> None:
        try:
            import torch
            import transformers
        except ImportError as error:
            raise MissingExtra(str(error.name), "train") from error
        path = models.get(model)
        self.identity, self.torch, self.lock = models.identity(path), torch, threading.Lock()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        options = {"trust_remote_code": trusted, "local_files_only": True}
        try:
            network, report = getattr(transformers, kind).from_pretrained(
                path,
                use_safetensors=True,
                output_loading_info=True,
                dtype="float32" if self.device == "cpu" else dtype,
                **options,
            )
            foundation = getattr(network.config, "foundation", None)
            if trusted and foundation and not any(path.glob("tokenizer*")):
                self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(foundation)
            else:
                self.tokenizer = transformers.AutoTokenizer.from_pretrained(path, **options)
        except (OSError, ValueError, KeyError) as error:
            remedy = "it has to be a folder with config.json, a tokenizer and model.safetensors"
            if "trust_remote_code" in str(error):
                remedy = (
                    "that code runs only if you say so: read it, then trust_remote_code=True, and a commit "
                    "(org/model@COMMIT); in a recipe verifier.trust_remote_code=true"
                )
            message = f"{path} could not be loaded as a {what}: {first_line(error)}; {remedy}"
            raise ModelError(message) from error
        missing = sorted(report["missing_keys"])
        if missing:  # transformers would go on with random numbers there
            raise ModelError(f"{path} is no {what}: it has no weights for {', '.join(missing[:3])}")
        self.network: Any = network.to(self.device).eval()
        self.config: Any = network.config
        text = self.config.get_text_config()
        self.pad: int | None = getattr(text, "pad_token_id", None)
        positions = getattr(text, "max_position_embeddings", None) or 0
        # RoBERTa and its relatives start to count positions after the padding token's number.
        offset = (self.pad or 0) + 1 if "roberta" in self.config.model_type else 0
        limits = (self.tokenizer.model_max_length, positions - offset)
        self.longest = min((limit for limit in limits if 0 < limit < 1_000_000), default=_LONGEST)
        special = [str(token) for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        longer_first = sorted((token for token in special if len(token) > 1), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longer_first)) or r"(?!)")

    def apart(self, text: str) -> str:
        """A text in which no special token stands: it cannot end itself, or start another turn."""
        return self._special.sub(lambda match: f"{match[0][0]} {match[0][1:]}", encodable(text))

    def cut(self, text: str, tokens: Callable[[str], Encoding]) -> Encoding | None:
        """The tokens of as much of a text's beginning as the network reads; None where nothing of it fits."""
        row = tokens(text)
        while (over := len(row["input_ids"]) - self.longest) > 0:
            read = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            kept = read["offset_mapping"][: max(len(read["input_ids"]) - over, 0)]
            text = text[: min(kept[-1][1] if kept else 0, len(text) - 1)]
            if not text:
                return None
            row = tokens(text)
        return row

    def firsts(self, ending: str, letters: Sequence[str]) -> list[int]:
        """The token that each letter begins with, where it follows `ending`."""
        plain = self.tokenizer(ending, add_special_tokens=False)["input_ids"]
        firsts = []
        for letter in letters:
            tokens = self.tokenizer(ending + letter, add_special_tokens=False)["input_ids"]
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

    def logits(
        self, rows: Sequence[Encoding | None], budget: int, *, left: bool = False, **options: Any
    ) -> Iterator[tuple[list[int], Any]]:
        """Numbers of rows and their logits, float64 on the CPU, in batches; rows that are None are left out.

        Args:
            budget: tokens of one batch, padding included.
            left: padding stands before the text, and positions are counted from behind it.
        """
        lengths = [len(row["input_ids"]) if row else 0 for row in rows]
        filler = {"input_ids": self.pad or 0}
        for batch in batches([number for number, row in enumerate(rows) if row], lengths, budget):
            inputs: dict[str, Any] = {}
            longest = max(lengths[number] for number in batch)
            for name in rows[batch[0]] or ():
                padded = []
                for number in batch:
                    pad = [filler.get(name, 0)] * (longest - lengths[number])
                    values = (rows[number] or {})[name]
                    padded.append([*pad, *values] if left else [*values, *pad])
                inputs[name] = self.torch.tensor(padded, device=self.device)
            if left:
                inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
            with self.torch.inference_mode():
                yield batch, self.network(**inputs, **options).logits.cpu().double()


def batches(rows: Sequence[int], lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Rows of similar length together, the longest first, each batch within `budget` tokens after padding.

    A row that is longer than the budget is a batch of its own.
    """
    batch: list[int] = []
    for row in sorted(rows, key=lambda row: -lengths[row]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


class CausalModel(Network):
    """A causal language model with safetensors weights.

    Args:
        model: a hub name (`org/model`, `org/model@commit`) or a folder.

    Raises:
        ModelError: not there, or no causal language model.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(self, model: str | Path) -> None:
        super().__init__(model, "AutoModelForCausalLM", "causal language model")

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The likeliest reply to a chat, by the model's own template, whatever the temperature.

        Raises:
            LLMError: `truncated`, where the reply has no end within `max_tokens` or the model's positions.
        """
        del temperature, sampling
        started = time.monotonic()
        chat = [{**message} for message in messages]
        with self.lock, self.torch.inference_mode():
            inputs = self.tokenizer.apply_chat_template(
                chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            tokens_in = inputs["input_ids"].shape[1]
            room = min(max_tokens, self.longest - tokens_in)
            if room > 0:
                tokens = self.network.generate(
                    **inputs.to(self.device), max_new_tokens=room, do_sample=False, use_cache=True
                )[0, tokens_in:].tolist()
            else:
                tokens = []
        ends = self.network.generation_config.eos_token_id
        ended = bool(tokens) and tokens[-1] in ({*ends} if isinstance(ends, list) else {ends})
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        if not ended:
            raise LLMError("truncated", f"{self.identity} did not end within {room} tokens", text=text)
        elapsed = time.monotonic() - started
        return Reply(text, "stop", self.identity, tokens_in, len(tokens), elapsed=elapsed)

    def tokens(self, text: str) -> int:
        """How many tokens a text is."""
        return len(self.tokenizer(encodable(text), add_special_tokens=False)["input_ids"])

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

        logprobs = np.full((len(prompts), len(letters)), np.nan)
        with self.lock:
            firsts = self.firsts(suffix or prefix, letters)
            read = [self.tokenizer(encodable(f"{prefix}{prompt}{suffix}"))["input_ids"] for prompt in prompts]
            rows = [
                {"input_ids": ids, "attention_mask": [1] * len(ids)} if 0 < len(ids) <= self.longest else None
                for ids in read
            ]
            # Padding stands before the text, so that the next token of every row is at the same place.
            options = {"left": True, "logits_to_keep": 1, "use_cache": False}
            for batch, logits in self.logits(rows, 2 * TOKENS_AT_ONCE, **options):
                logprobs[batch] = logits[:, -1].log_softmax(-1)[:, firsts].numpy()
        return logprobs
