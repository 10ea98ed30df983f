"""Keeps the libraries' own bars and advice out of a run that shows its own; for the command line only."""

from __future__ import annotations

import warnings

# First: without torch, transformers and datasets load all the same, complain, and stay in the process.
import torch  # noqa: F401

# isort: split
import datasets
import transformers


def quiet_libraries() -> None:
    """Errors stay; progress bars, hints and deprecation notes of transformers and datasets go."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers|trl|accelerate")
