"""A trained model and its card on the Hugging Face hub, with the token of `hf auth login` or `HF_TOKEN`.

TRL's `push_to_hub` would write a card of its own over ours, so the folder of the model is sent as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError

from factrl.errors import ConfigError, first_line

# A bad name; no token, offline or refused; and no connection, as the HTTP library beneath calls it.
_ERRORS: Any = (ValueError, OSError, *HfHubHTTPError.__bases__)


def check_repository(name: str | None) -> None:
    """Make the repository of `run.hub_model_id`, private, where there is none yet.

    Raises:
        ConfigError: it cannot be written.
    """
    if name is None:
        return
    try:
        huggingface_hub.create_repo(name, private=True, exist_ok=True)
    except _ERRORS as error:
        raise ConfigError(
            f"run.hub_model_id = {name!r} cannot be made on the hub: {first_line(error)}; log in with "
            "`hf auth login`, or leave it out"
        ) from error


def push(model: Path, name: str | None) -> None:
    """Send the folder of a model; where that fails, the run is done and a line says how to repeat it."""
    if name is None:
        return
    try:  # `training_args.bin` is a pickle, and names folders
        huggingface_hub.upload_folder(repo_id=name, folder_path=model, ignore_patterns=["training_args.bin"])
    except _ERRORS as error:
        sys.stderr.write(
            f"the model was not sent to {name}: {first_line(error)}; once that is mended: "
            f"hf upload {name} {model}\n"
        )
