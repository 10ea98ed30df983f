"""The random model of these tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def save_llama(folder: Path, tokenizer: Any, positions: int) -> Path:
    """Save a two-layer Llama with its tokenizer, whose tokens 0 and 2 are the padding and the end."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
