"""A verifier that `factrl tune verifier` made, read without torch: ONNX in 8 bits, one pair at a time.

Pairs run one by one on several threads: 8-bit ONNX scales its numbers by the whole batch, so in a batch a
pair's logits would depend on its neighbours, and a kept verdict on what it was asked with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import models
from ..errors import DataError, MissingExtra, ModelError
from ..judges.calibration import Calibration
from .threads import default_threads

if TYPE_CHECKING:
    import numpy as np

CARD = "verifier.json"
WEIGHTS = "model.onnx"
CALIBRATION = "calibration.json"


class OwnVerifier:
    """A three-way cross-encoder with its calibration; safe to use from several threads.

    Args:
        folder: what `factrl tune verifier` wrote: `verifier.json`, `model.onnx`, `tokenizer.json` and
            `calibration.json`.
        threads: pairs at the same time; by default one per core up to four, and half of them beyond.

    Attributes:
        identity: name and fingerprint of the folder's files.
        evidence_chars: characters of evidence that it was trained to see.
        calibration: fitted on documents that it was not trained on.

    Raises:
        ModelError: the folder is not whole.
        MissingExtra: onnxruntime or tokenizers is not installed.
    """

    def __init__(self, folder: str | Path, *, threads: int | None = None) -> None:
        self._folder = Path(folder).expanduser()
        self._threads = threads or default_threads()
        try:
            card = json.loads(self._file(CARD).read_text("utf-8"))
            self.evidence_chars, self._longest = int(card["evidence_chars"]), int(card["max_length"])
            self.calibration = Calibration.load(self._file(CALIBRATION))
        except (OSError, KeyError, TypeError, ValueError, RecursionError, DataError) as error:
            raise ModelError(f"{self._folder} is not what factrl tune verifier writes: {error}") from error
        self.identity = models.identity(self._file(WEIGHTS))
        self._session, self._tokenizer = self._load()
        self._inputs = [one.name for one in self._session.get_inputs()]

    def logits(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Logits of (evidence, claim) pairs, float64 (N, 3): supported, refuted, unknown.

        Evidence that is too long is cut at its end; a claim that leaves no room for evidence has NaN.
        """
        import numpy as np

        found = np.full((len(pairs), 3), np.nan)
        texts = [(_text(evidence), _text(claim)) for evidence, claim in pairs]

        def one(number: int) -> None:
            evidence, claim = texts[number]
            alone = len(self._tokenizer.encode(claim, add_special_tokens=False).ids)  # cut at `longest`
            if alone + self._tokenizer.num_special_tokens_to_add(True) < self._longest:
                found[number] = self._run(self._tokenizer.encode(evidence, claim))

        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(one, range(len(texts))))
        return found

    def _run(self, read: Any) -> np.ndarray:
        import numpy as np

        given = {
            "input_ids": np.array([read.ids], dtype=np.int64),
            "attention_mask": np.array([read.attention_mask], dtype=np.int64),
            "token_type_ids": np.array([read.type_ids], dtype=np.int64),
        }
        return self._session.run(None, {name: given[name] for name in self._inputs})[0][0]

    def _load(self) -> tuple[Any, Any]:
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtra(str(error.name), "local") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            self._file(WEIGHTS), options, providers=["CPUExecutionProvider"]
        )
        tokenizer = Tokenizer.from_file(str(self._file("tokenizer.json")))
        tokenizer.enable_truncation(self._longest, strategy="only_first")
        tokenizer.no_padding()
        return session, tokenizer

    def _file(self, name: str) -> Path:
        found = self._folder / name
        if not found.is_file():
            raise ModelError(f"{self._folder} has no {name}; factrl tune verifier writes it")
        return found


def _text(text: str) -> str:
    """Without halves of surrogate pairs, which no tokenizer takes."""
    return text.encode("utf-8", "replace").decode()
