"""Cross-encoders in this process: does a premise support a hypothesis, by any such model of the hub.

NLI models (entailment, contradiction, neutral), MiniCheck's encoders and HHEM-like models with one logit.
Which column means what is read from the model's own configuration and never assumed: published models order
their labels in every possible way, and a swapped pair turns a judge into its opposite.

HHEM-2.1 (vectara/hallucination_evaluation_model) comes with its own code and reads both texts in a prompt of
its own, which its configuration holds; such a model is loaded and asked so.

Left out: models that answer by generating text (MiniCheck-Flan-T5), which are language models, not encoders.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from factrl.errors import ConfigError, MissingExtra, ModelError, first_line
from factrl.llm import models

if TYPE_CHECKING:
    import numpy as np

Meaning = Literal["supported", "refuted", "unknown"]
COLUMNS: tuple[Meaning, ...] = ("supported", "refuted", "unknown")
_LONGEST = 512  # tokens, for a model whose files do not say
_TOKENS_AT_ONCE = 8192  # of one batch, padding included
_PLACES = ("{text1}", "{text2}")  # of premise and hypothesis in a prompt of the model's own
_HHEM = ("inconsistent", "consistent")  # its two outputs, which its configuration does not name
# A label such as "not entailment" covers contradiction and silence; to claim the milder is the safer error.
_WORDS: Mapping[Meaning, str] = {
    "supported": "entailment, entails, entailed, support, supports, supported, consistent, factual",
    "refuted": "contradiction, contradicts, contradicted, contradictory, refute, refutes, refuted",
    "unknown": "neutral, unknown, not enough info, nei, not entailment, not entailed, unsupported, "
    "not supported, inconsistent, hallucinated, hallucination",
}
_MEANINGS: Mapping[str, Meaning] = {
    word: meaning for meaning, words in _WORDS.items() for word in words.split(", ")
}


class CrossEncoder:
    """A sequence classifier that reads premise and hypothesis together; safe to use from several threads.

    A model with two labels, or one logit, tells supported from not supported; what is not supported counts as
    unknown, unless `labels` says that it means refuted.

    Args:
        model: a hub name (`org/model`, `org/model@commit`) or a folder with safetensors weights.
        labels: what each output means, in the model's order, where its configuration does not say; for a
            model with one logit, `("supported",)` or `("unsupported",)` by what a high value says.
        trust_remote_code: run Python code that comes with the model; only from a folder, or at a commit.
        device: where to run; a GPU if there is one.

    Attributes:
        identity: name and fingerprint of the weights, and the labels if they were given.

    Raises:
        ModelError: not there, no classifier, or its labels cannot be read; the message shows them.
        ConfigError: labels that are no meanings, or code to be run without a commit.
        MissingExtra: torch or transformers is not installed.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        labels: Sequence[str] | None = None,
        trust_remote_code: bool = False,
        device: str | None = None,
    ) -> None:
        torch, transformers = libraries()
        fixed = Path(model).expanduser().exists() or re.fullmatch(r".+@[0-9a-f]{7,40}", str(model))
        if trust_remote_code and not fixed:
            raise ConfigError(f"code that comes with {model} is only run at a fixed commit: org/model@COMMIT")
        path = models.get(model)
        self.identity = models.identity(path)
        self._torch = torch
        self._lock = threading.Lock()
        self._tokenizer, network = load_network(
            transformers,
            "AutoModelForSequenceClassification",
            path,
            "cross-encoder",
            dtype="float32",
            trusted=trust_remote_code,
        )
        told = _HHEM if labels is None and "hhem" in network.config.model_type.lower() else labels
        self._meanings = _meanings(network.config, told, self.identity)
        prompt = getattr(network.config, "prompt", None)
        self._prompt = prompt if isinstance(prompt, str) and all(p in prompt for p in _PLACES) else None
        if labels is not None:
            self.identity += f" labels={','.join(labels)}"
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._network = network.to(self._device).eval()
        self._longest = longest_input(network.config, self._tokenizer)

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Probabilities of what the premise does to the hypothesis, float64 (pairs, 3): see `COLUMNS`.

        A premise that is too long for the model is cut at its end.  A hypothesis is never cut: one that
        leaves no room for a premise has a row of NaN.
        """
        import numpy as np

        found = np.full((len(pairs), len(COLUMNS)), np.nan)
        with self._lock:
            read = [self._read(*pair) for pair in pairs]
            lengths = [len(one["input_ids"]) if one else 0 for one in read]
            fitting = [row for row, one in enumerate(read) if one]
            for batch in batches(fitting, lengths, _TOKENS_AT_ONCE):
                inputs = self._tokenizer.pad([read[row] for row in batch], return_tensors="pt")
                with self._torch.inference_mode():
                    logits = self._network(**inputs.to(self._device)).logits.float().cpu().double().numpy()
                found[batch] = self._as_columns(logits)
        return found

    def _read(self, premise: str, hypothesis: str) -> Mapping[str, Any] | None:
        premise, hypothesis = (text.encode("utf-8", "replace").decode() for text in (premise, hypothesis))
        if self._prompt is not None:
            return self._prompted(self._prompt, premise, hypothesis)
        alone = len(self._tokenizer("", hypothesis)["input_ids"])
        if alone >= self._longest:
            return None
        return self._tokenizer(premise, hypothesis, truncation="only_first", max_length=self._longest)

    def _prompted(self, prompt: str, premise: str, hypothesis: str) -> Mapping[str, Any] | None:
        """Both texts in the model's own prompt, the premise cut where it leaves no room."""
        before, _, rest = prompt.partition(_PLACES[0])
        after = rest.replace(_PLACES[1], hypothesis)
        room = self._longest - len(self._tokenizer(f"{before}{after}")["input_ids"])
        if room <= 0:
            return None
        places = self._tokenizer(premise, add_special_tokens=False, return_offsets_mapping=True)
        offsets = places["offset_mapping"]
        kept = premise if len(offsets) <= room else premise[: offsets[room - 1][1]]
        return self._tokenizer(f"{before}{kept}{after}", truncation=True, max_length=self._longest)

    def _as_columns(self, logits: np.ndarray) -> np.ndarray:
        import numpy as np

        if logits.shape[1] == 1:
            high = 1 / (1 + np.exp(-logits))
            odds = np.hstack([high, 1 - high])
        else:
            odds = np.exp(logits - logits.max(axis=1, keepdims=True))
            odds /= odds.sum(axis=1, keepdims=True)
        columns = np.zeros((len(logits), len(COLUMNS)))
        for number, meaning in enumerate(self._meanings):
            columns[:, COLUMNS.index(meaning)] += odds[:, number]
        return columns


def libraries() -> tuple[Any, Any]:
    """torch and transformers.

    Raises:
        MissingExtra: one of them is not installed.
    """
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtra(str(error.name), "train") from error
    return torch, transformers


def load_network(
    transformers: Any, kind: str, path: Path, what: str, *, dtype: str, trusted: bool = False
) -> tuple[Any, Any]:
    """Tokenizer and network, the weights from safetensors only and none of them missing.

    A folder with code of its own may hold no tokenizer; it is then that of `foundation` in its configuration,
    the model that it was made of.

    Args:
        kind: the `AutoModel…` class.
        what: what the network should be, for errors: `reward model`.
        dtype: as transformers calls it; `auto` is the checkpoint's.
        trusted: run code that comes with the model.

    Raises:
        ModelError: the folder holds no such network, or only a part of it.
    """
    told = {"trust_remote_code": trusted, "local_files_only": True}
    try:
        network, report = getattr(transformers, kind).from_pretrained(
            path, use_safetensors=True, output_loading_info=True, dtype=dtype, **told
        )
        foundation = getattr(network.config, "foundation", None)
        if trusted and foundation and not any(path.glob("tokenizer*")):
            tokenizer = transformers.AutoTokenizer.from_pretrained(foundation)
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, **told)
    except (OSError, ValueError, KeyError) as error:
        remedy = "it has to be a folder with config.json, a tokenizer and model.safetensors"
        if "trust_remote_code" in str(error):
            remedy = (
                "that code runs only if you say so: read it, then trust_remote_code=True, and a commit "
                "(org/model@COMMIT); in a recipe verifier.trust_remote_code=true"
            )
        raise ModelError(f"{path} could not be loaded as a {what}: {first_line(error)}; {remedy}") from error
    missing = sorted(report["missing_keys"])
    if missing:  # transformers would go on with random numbers there
        raise ModelError(f"{path} is no {what}: it has no weights for {', '.join(missing[:3])}")
    return tokenizer, network


def longest_input(config: Any, tokenizer: Any) -> int:
    """Tokens that a network reads: the least of what its tokenizer and its positions allow."""
    limits = [tokenizer.model_max_length]
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if positions:
        # RoBERTa and its kin count positions from behind the padding token's number.
        offset = (config.pad_token_id or 0) + 1 if "roberta" in config.model_type else 0
        limits.append(positions - offset)
    usable = [limit for limit in limits if 0 < limit < 1_000_000]
    return min(usable, default=_LONGEST)


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


def _meanings(config: Any, given: Sequence[str] | None, name: str) -> tuple[Meaning, ...]:
    """What each output means; for one logit, what a high and what a low value means."""
    count = config.num_labels
    own = [str(config.id2label.get(number, "")) for number in range(count)]
    if given is not None and len(given) != count:
        raise ConfigError(f"{name} has {count} outputs ({', '.join(own)}), not {len(given)} as labels says")
    words = [" ".join(re.findall(r"[a-z0-9]+", label.lower())) for label in (own if given is None else given)]
    found: tuple[Meaning, ...] = tuple(_MEANINGS[word] for word in words if word in _MEANINGS)
    if len(found) == count == 1:
        found = (*found, "unknown" if found[0] == "supported" else "supported")
    if len(found) == max(count, 2) and "supported" in found:
        return found
    if given is not None:
        raise ConfigError(f"labels={list(given)!r}: each has to be one of {', '.join(COLUMNS)}")
    raise ModelError(
        f"the outputs of {name} are called {', '.join(own)}, which does not say what they mean; give labels= "
        "in that order, such as labels=('supported', 'unknown', 'refuted')"
    )
