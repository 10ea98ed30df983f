"""Loading a network of transformers from a folder: safetensors only, whole, with one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from factrl.errors import MissingExtra, ModelError, first_line

_LONGEST = 512  # tokens, for a model whose files do not say


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
