"""Policies that come in a package, their quantised weights saved once as safetensors: SmolLM2-135M-Instruct.

A model that transformers loads from GGUF cannot be saved in a checkpoint, so its weights are copied into
a plain one.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

from factrl.errors import MissingExtra, ModelError
from factrl.llm import models

SMALLEST = "SmolLM2-135M-Instruct"


def is_embedded(name: str) -> bool:
    """Whether `name` is a policy of `factrl models list`, and no folder here."""
    return any(m.name == name and m.role == "policy" for m in models.known()) and not Path(name).exists()


def embedded_policy(name: str = SMALLEST) -> Path:
    """The folder of a policy, made on the first call (about 100 MB of download, 30 seconds).

    Raises:
        ModelError: the model cannot be downloaded or is not the one that was checked.
        MissingExtra: what reads its file is not installed.
    """
    folder = models.cache_folder() / name
    if not (folder / "config.json").is_file():
        try:
            weights = models.get(name)
        except ModelError as error:
            raise ModelError(f"{error} (or give another: model.name=FOLDER)") from error
        models.private_folder(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _convert(weights, Path(scratch) / "model")
            _move(Path(scratch) / "model", folder)
    return folder


def _move(made: Path, folder: Path) -> None:
    """Put the finished folder in its place, unless another process just did."""
    try:
        made.replace(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise


def _convert(weights: Path, target: Path) -> None:
    """Copy dequantised weights into a plain model, which can be saved."""
    try:
        import gguf  # noqa: F401  # transformers needs it and says so less clearly
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtra(str(error.name), "demo") from error
    tokenizer = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    with contextlib.redirect_stderr(io.StringIO()):  # a bar that no setting turns off
        quantised: Any = AutoModelForCausalLM.from_pretrained(
            weights.parent, gguf_file=weights.name, dtype="float32"
        )
    settings = quantised.config.to_dict()
    settings.pop("quantization_config", None)
    plain: Any = AutoModelForCausalLM.from_config(type(quantised.config)(**settings))
    plain.load_state_dict(quantised.state_dict())
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)
