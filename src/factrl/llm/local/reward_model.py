"""Scalar reward models in this process: one number for how good an answer to a request is.

Any sequence classifier of the hub with one output: those that read a chat (Skywork-Reward, Llama and Qwen
fine-tunes) and those that read a pair of texts (DeBERTa).  Such models learn from comparisons of two answers,
so only differences between answers to one request mean something.

Left out: reward models that write their verdict, which are language models (`factrl.rewards.preference`),
and those with several outputs or code of their own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from factrl.errors import ConfigError, ModelError, Unscored
from factrl.llm import models
from factrl.llm.background import Call
from factrl.llm.local.nli import batches, libraries, load_network, longest_input

if TYPE_CHECKING:
    import numpy as np

Scale = Literal["sigmoid", "raw"]

_TOKENS_AT_ONCE = 8192  # of one batch, padding included
_Row = Mapping[str, Sequence[int]]


class RewardModel:
    """A reward model: `rate(question, text)`; safe to use from several threads.

    The chat template of the model is used where it has one, else its way to read two texts.  Special tokens
    in the texts are taken apart, so that an answer cannot end itself and start another turn.  What stands
    behind the model's context is not rated: take one whose context holds the longest completion.

    Args:
        model: a hub name (`org/model`, `org/model@commit`) or a folder with safetensors weights.
        scale: `sigmoid` puts the number between 0 and 1, as the probability to beat an answer that the model
            gives 0; `raw` leaves it as it is.
        device: where to run; a GPU if there is one.

    Attributes:
        identity: name and fingerprint of the weights, and the scale.

    Raises:
        ConfigError: no such scale.
        ModelError: the model is not there, or is no classifier with one output.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(self, model: str | Path, *, scale: Scale = "sigmoid", device: str | None = None) -> None:
        if scale not in get_args(Scale):
            raise ConfigError(f"scale={scale!r} is not {' or '.join(get_args(Scale))}")
        torch, transformers = libraries()
        path = models.get(model)
        self.identity = f"{models.identity(path)} scale={scale}"
        self._scale = scale
        self._torch = torch
        self._lock = threading.Lock()
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        # Half precision is slower than float32 on most CPUs, and less exact.
        dtype = "float32" if self._device == "cpu" else "auto"
        self._tokenizer, network = load_network(
            transformers, "AutoModelForSequenceClassification", path, "reward model", dtype=dtype
        )
        if network.config.num_labels != 1:
            raise ModelError(
                f"{path} is no reward model: it has {network.config.num_labels} outputs, not one"
            )
        self._network = network.to(self._device).eval()
        # A network that knows no padding takes one row at a time.
        self._padding = network.config.get_text_config().pad_token_id
        self._longest = longest_input(network.config, self._tokenizer)
        special = [str(token) for token in self._tokenizer.added_tokens_decoder.values() if token.special]
        longer_first = sorted((token for token in special if len(token) > 1), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longer_first)) or r"(?!)")

    def __call__(self, question: str, text: str) -> float:
        """How good `text` is as an answer to `question`; see `scores`."""
        return float(self.scores([(question, text)])[0])

    def answer_together(self, calls: Sequence[Call]) -> list[float | Unscored]:
        """Many calls of this model as one batch; rewards ask this way.

        A call that cannot be answered has its `Unscored` in its place, so that it masks no other sample.
        """
        pairs = [_pair(*args, **named) for args, named in calls]
        try:
            return self.scores(pairs).tolist()
        except Unscored:
            return [self._alone(*pair) for pair in pairs]

    def _alone(self, question: str, text: str) -> float | Unscored:
        try:
            return self(question, text)
        except Unscored as error:
            return error

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """The model's number for each (question, text), float64 (pairs,).

        A text that is too long for the model together with its question is cut at its end.

        Raises:
            Unscored: `too_long`: a question that leaves no room for a text.
        """
        import numpy as np

        found = np.zeros(len(pairs))
        with self._lock:
            rows = [self._read(*pair) for pair in pairs]
            lengths = [len(row["input_ids"]) for row in rows]
            budget = 1 if self._padding is None else _TOKENS_AT_ONCE
            for batch in batches(range(len(rows)), lengths, budget):
                inputs = self._padded([rows[number] for number in batch])
                with self._torch.inference_mode():
                    logits = self._network(**inputs).logits
                found[batch] = logits[:, 0].float().cpu().double().numpy()
        return found if self._scale == "raw" else 1 / (1 + np.exp(-found))

    def _read(self, question: str, text: str) -> _Row:
        question, text = (self._plain(part).strip() for part in (question, text))
        row = self._tokens(question, text)
        while (over := len(row["input_ids"]) - self._longest) > 0:
            cut = self._without_end(text, over)
            if not cut:
                detail = f"a request of {len(question)} characters leaves no room for an answer"
                raise Unscored("too_long", f"{detail} among {self._longest} tokens", stage="rate")
            text = cut
            row = self._tokens(question, text)
        return row

    def _plain(self, text: str) -> str:
        text = text.encode("utf-8", "replace").decode()
        return self._special.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)

    def _tokens(self, question: str, text: str) -> _Row:
        if self._tokenizer.chat_template:
            chat = [{"role": "user", "content": question}, {"role": "assistant", "content": text}]
            whole = self._tokenizer.apply_chat_template(chat, tokenize=False)
            return self._tokenizer(whole, add_special_tokens=False)
        return self._tokenizer(question, text)

    def _without_end(self, text: str, tokens: int) -> str:
        """The text without its last `tokens` tokens, or without more where that is not enough."""
        read = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        kept = read["offset_mapping"][: max(len(read["input_ids"]) - tokens, 0)]
        end = kept[-1][1] if kept else 0
        return text[: min(end, len(text) - 1)]

    def _padded(self, rows: Sequence[_Row]) -> dict[str, Any]:
        """One tensor for each input, padded on the right, where no model's positions are moved by it."""
        longest = max(len(row["input_ids"]) for row in rows)
        filler = {"input_ids": self._padding or 0}
        return {
            name: self._torch.tensor(
                [[*row[name], *[filler.get(name, 0)] * (longest - len(row[name]))] for row in rows],
                device=self._device,
            )
            for name in rows[0]
        }


def _pair(question: str, text: str) -> tuple[str, str]:
    return question, text
