"""A tuned verifier as a small folder that needs no torch: ONNX with 8-bit weights, tokenizer, card."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ..errors import MissingExtra
from ..judges.calibration import Calibration
from ..local.own_verifier import CALIBRATION, CARD, WEIGHTS

LARGEST = 25_000_000  # bytes that a shipped model may have
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class _Logits(torch.nn.Module):
    """The network by position, its logits alone."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        return self.network(input_ids=ids, attention_mask=mask, token_type_ids=kinds).logits


def export(weights: Path, folder: Path, calibration: Calibration, card: Mapping[str, Any], text: str) -> int:
    """Write the folder that `verifier.judge=own:FOLDER` reads; there is a whole folder or none.

    Args:
        weights: folder of the tuned network and its tokenizer; it is loaded anew, as a network that was
            trained in this process still computes in the trainer's precision.
        card: kept as `verifier.json`; `evidence_chars` and `max_length` are read back.
        text: the model card, `README.md`.

    Returns:
        The bytes of the weights.

    Raises:
        MissingExtra: onnx is not installed.
    """
    try:
        import onnx  # noqa: F401  # pyright: ignore[reportMissingImports, reportUnusedImport]
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise MissingExtra("onnx", "train") from error
    network = AutoModelForSequenceClassification.from_pretrained(weights, dtype="float32").eval()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".export-") as made:
        half = Path(made) / "half"
        half.mkdir()
        whole = Path(made) / "whole.onnx"
        row = torch.ones(2, 16, dtype=torch.long)
        axes = {name: {0: "rows", 1: "tokens"} for name in _INPUTS}
        with warnings.catch_warnings():  # the new exporter needs onnxscript and more to do the same
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Logits(network),
                (row, row, row * 0),
                str(whole),
                input_names=list(_INPUTS),
                output_names=["logits"],
                dynamic_axes=axes,
                dynamo=False,
            )
        quantize_dynamic(whole, half / WEIGHTS, weight_type=QuantType.QInt8, per_channel=True)
        AutoTokenizer.from_pretrained(weights).save_pretrained(made)
        shutil.copy(Path(made) / "tokenizer.json", half / "tokenizer.json")
        calibration.save(half / CALIBRATION)
        (half / CARD).write_text(json.dumps(dict(card), indent=2) + "\n", encoding="utf-8")
        (half / "README.md").write_text(text, encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        half.replace(folder)
    return (folder / WEIGHTS).stat().st_size
