"""Texts as vectors, without torch: potion (word pieces, averaged) and MiniLM (a small encoder, in ONNX).

Both give rows of length one, so a dot product is a cosine.  Closeness is no evidence: a sentence and its
negation lie next to each other.  Potion is for many texts, MiniLM for ranking the few that are left.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.errors import MissingExtra, ModelError
from factrl.llm import models
from factrl.llm.local.threads import default_threads

if TYPE_CHECKING:
    import numpy as np

POTION = "potion-base-8M"
MINILM = "all-MiniLM-L6-v2-int8"
_LONGEST = 256  # tokens that MiniLM reads of a text, as its authors trained it
_TEXTS_AT_ONCE = 1024


class _Lazy(ABC):
    """A model that is found, and downloaded if need be, when it is first used; safe to use from threads."""

    def __init__(self, model: str | Path) -> None:
        self._model = model
        self._lock = threading.RLock()
        self._path: Path | None = None
        self._loaded: Any = None

    @property
    def identity(self) -> str:
        """Name and fingerprint of the model."""
        return models.identity(self._folder())

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.encode([]).shape[1]

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors."""

    def _folder(self) -> Path:
        with self._lock:
            self._path = self._path or models.get(self._model)
            return self._path

    def _file(self, name: str) -> Path:
        found = self._folder() / name
        if not found.is_file():
            raise ModelError(f"{self._folder()} has no {name}; this model needs one")
        return found


class Potion(_Lazy):
    """A static model of Model2Vec: each word piece has a vector, and a text has their mean.

    The vectors carry the weight of their word piece already (arXiv 2409.10442 and the model's card).

    Args:
        model: a name of `factrl.llm.models`, or a folder with `model.safetensors` and `tokenizer.json`.
    """

    def __init__(self, model: str | Path = POTION) -> None:
        super().__init__(model)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 rows of length one, in order; a text without words is a row of zeros."""
        import numpy as np

        table, tokenizer, unknown = self._load()
        rows = np.zeros((len(texts), table.shape[1]), dtype=np.float32)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            chunk = [_text(text) for text in texts[start : start + _TEXTS_AT_ONCE]]
            for row, read in enumerate(tokenizer.encode_batch_fast(chunk, add_special_tokens=False), start):
                ids = [number for number in read.ids if number != unknown]
                if ids:
                    rows[row] = table[ids].mean(axis=0)
        return _unit(rows)

    def _load(self) -> tuple[np.ndarray, Any, int | None]:
        with self._lock:
            if self._loaded is None:
                try:
                    from safetensors import SafetensorError
                    from safetensors.numpy import load_file
                except ImportError as error:
                    raise MissingExtra("safetensors", "local") from error
                path = self._file("model.safetensors")
                try:
                    table = load_file(path)["embeddings"]
                except (KeyError, SafetensorError) as error:
                    raise ModelError(f"{path} is no static embedding model: {error}") from error
                tokenizer = _tokenizer(self._file("tokenizer.json"))
                tokenizer.no_truncation()
                tokenizer.no_padding()
                self._loaded = table, tokenizer, _unknown(tokenizer)
            return self._loaded


class MiniLM(_Lazy):
    """A sentence encoder in ONNX whose vectors of all tokens are averaged.

    Texts are encoded one by one: 8-bit ONNX scales its numbers by the whole batch, so in a batch a text's
    vector would depend on its neighbours (cosine 0.986 to its own), and batches are no faster on a CPU.

    Args:
        model: a name of `factrl.llm.models`, or a folder with one `.onnx` file and `tokenizer.json`.
        threads: texts at the same time; by default one per core up to four, and half of them beyond.
    """

    def __init__(self, model: str | Path = MINILM, *, threads: int | None = None) -> None:
        super().__init__(model)
        self._threads = threads or default_threads()

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 rows of length one, in order; a text without words is a row of zeros.

        Texts are cut after 256 tokens.
        """
        import numpy as np

        session, tokenizer, inputs, width = self._load()

        def one(read: Any) -> np.ndarray:
            if all(read.special_tokens_mask):
                return np.zeros(width, dtype=np.float32)
            ids = np.array([read.ids], dtype=np.int64)
            given = {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
            }
            return session.run(None, {name: given[name] for name in inputs})[0][0].mean(axis=0)

        with ThreadPoolExecutor(self._threads) as pool:
            rows = list(pool.map(one, tokenizer.encode_batch([_text(text) for text in texts])))
        return _unit(np.array(rows, dtype=np.float32).reshape(len(texts), width))

    def _load(self) -> tuple[Any, Any, list[str], int]:
        with self._lock:
            if self._loaded is None:
                try:
                    import onnxruntime
                except ImportError as error:
                    raise MissingExtra("onnxruntime", "local") from error
                found = sorted(self._folder().glob("*.onnx"))
                if len(found) != 1:
                    raise ModelError(f"{self._folder()} holds {len(found)} .onnx files instead of one")
                options = onnxruntime.SessionOptions()
                options.intra_op_num_threads = options.inter_op_num_threads = 1
                options.log_severity_level = 3
                session = onnxruntime.InferenceSession(found[0], options, providers=["CPUExecutionProvider"])
                tokenizer = _tokenizer(self._file("tokenizer.json"))
                tokenizer.enable_truncation(_LONGEST)
                tokenizer.no_padding()
                inputs = [one.name for one in session.get_inputs()]
                self._loaded = session, tokenizer, inputs, session.get_outputs()[0].shape[-1]
            return self._loaded


def _tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtra("tokenizers", "local") from error
    return Tokenizer.from_file(str(path))


def _unknown(tokenizer: Any) -> int | None:
    """The id of the word piece that stands for none, which says nothing about a text."""
    token = json.loads(tokenizer.to_str())["model"].get("unk_token")
    return None if token is None else tokenizer.token_to_id(token)


def _unit(rows: np.ndarray) -> np.ndarray:
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def _text(text: str) -> str:
    """Without halves of surrogate pairs, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()
