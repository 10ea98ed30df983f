"""The formula of GPU memory against what PyTorch keeps for the backward pass of a small Llama, on CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from factrl.plan_memory import find_shape, layer_bytes
from factrl.settings import ModelSettings

ROWS, LENGTH = 4, 32


@pytest.fixture
def model(tiny_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32", attn_implementation="sdpa")


def kept(model: Any, *, bf16: bool) -> int:
    """Bytes that the backward pass of all layers keeps, but for weights and their copies."""
    sizes: dict[int, int] = {}
    alive: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        alive.append(tensor)  # or its address may be taken again
        whole = tensor.numel() % (ROWS * LENGTH) == 0
        if (whole and ROWS in tensor.shape) or ROWS * LENGTH in tensor.shape:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    ids = torch.randint(3, 20, (ROWS, LENGTH))
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=bf16),
    ):
        model.model(input_ids=ids, use_cache=False)
    return sum(sizes.values())


def test_the_shape_counts_the_parameters_of_the_model(model: Any, tiny_model: Path) -> None:
    shape = find_shape(ModelSettings(name=str(tiny_model)))
    assert not isinstance(shape, str)
    assert shape.parameters == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("bf16", [False, True])
def test_what_a_layer_keeps_is_what_the_formula_counts(model: Any, tiny_model: Path, bf16: bool) -> None:
    """Each layer is counted; the rest, the last norm and some numbers a token, is less than half a layer."""
    shape = find_shape(ModelSettings(name=str(tiny_model)))
    assert not isinstance(shape, str)
    layer = layer_bytes(shape, 2 if bf16 else 4, casts=bf16)
    found = kept(model, bf16=bf16) / (ROWS * LENGTH)
    assert shape.layers * layer <= found < (shape.layers + 0.5) * layer
