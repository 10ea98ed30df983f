"""GPU memory from a model's `config.json`: its parameters, and what the recipe makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from factrl.plan_memory import adapter_parameters, find_shape, memory_of, shape_of
from factrl.settings import ModelSettings, TrainSettings

# The `config.json` of published models, and the parameters that their model cards or checkpoints count.
PUBLISHED: dict[str, tuple[int, dict[str, Any]]] = {
    "Llama-3.1-8B": (8_030_261_248, {"family": "llama", "sizes": (4096, 32, 32, 8, 14336, 128256)}),
    "Mistral-7B-v0.1": (7_241_732_096, {"family": "mistral", "sizes": (4096, 32, 32, 8, 14336, 32000)}),
    "Qwen2.5-7B": (7_615_616_512, {"family": "qwen2", "sizes": (3584, 28, 28, 4, 18944, 152064)}),
    "Qwen2.5-0.5B": (
        494_032_768,
        {"family": "qwen2", "sizes": (896, 24, 14, 2, 4864, 151936), "tie_word_embeddings": True},
    ),
    "Qwen3-0.6B": (
        596_049_920,
        {
            "family": "qwen3",
            "sizes": (1024, 28, 16, 8, 3072, 151936),
            "tie_word_embeddings": True,
            "head_dim": 128,
        },
    ),
}
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
TOLD = TrainSettings(prompts_per_step=4, num_generations=4, micro_batch_size=2, max_completion_length=100)


def config(name: str) -> dict[str, Any]:
    told = dict(PUBLISHED[name][1])
    return {"model_type": told.pop("family"), **dict(zip(SIZES, told.pop("sizes"), strict=True)), **told}


def shape(name: str = "Qwen2.5-0.5B") -> Any:
    found = shape_of(config(name))
    assert not isinstance(found, str), found
    return found


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_parameters_are_those_of_the_published_model(name: str) -> None:
    assert shape(name).parameters == PUBLISHED[name][0]


def test_states_take_sixteen_bytes_a_parameter_as_in_zero() -> None:
    """arXiv:1910.02054, section 3.1."""
    memory = memory_of(shape(), ModelSettings(name="m"), TOLD, prompt=28)
    assert memory.states == 16 * shape().parameters
    with_reference = TOLD.model_copy(update={"beta": 0.01})
    assert memory_of(shape(), ModelSettings(name="m"), with_reference, prompt=28).reference == 4 * 494_032_768


def test_an_adapter_has_states_of_its_own_and_a_frozen_base() -> None:
    model = ModelSettings(name="m", lora=True, lora_rank=8, dtype="bfloat16")
    adapter = adapter_parameters(shape(), model)
    layer = 8 * ((896 + 896) * 2 + (896 + 128) * 2 + (896 + 4864) * 3)
    assert adapter == 24 * layer
    memory = memory_of(shape(), model, TOLD.model_copy(update={"beta": 0.01}), prompt=28)
    assert memory.weights == 2 * shape().parameters + 4 * adapter
    assert (memory.gradients, memory.optimizer) == (4 * adapter, 8 * adapter)
    assert (memory.reference, memory.casts) == (0, 0)  # the base is the reference
    only = model.model_copy(update={"lora_target_modules": ("q_proj",)})
    assert adapter_parameters(shape(), only) == 24 * 8 * (896 + 896)


def test_what_grows_with_length_batch_and_completions() -> None:
    model = ModelSettings(name="m")
    small = memory_of(shape(), model, TOLD, prompt=28)
    longer = memory_of(shape(), model, TOLD, prompt=156)
    assert (longer.activations, longer.cache) == (2 * small.activations, 2 * small.cache)
    assert small.cache == 16 * 128 * 2 * 24 * 2 * 64 * 2
    wider = TOLD.model_copy(update={"micro_batch_size": 4})
    assert memory_of(shape(), model, wider, prompt=28).activations == 2 * small.activations
    kept = TOLD.model_copy(update={"gradient_checkpointing": False})
    assert memory_of(shape(), model, kept, prompt=28).activations > 5 * small.activations
    assert memory_of(shape(), model, TOLD, prompt=28, processes=4).cache == small.cache / 4
    with_vllm = TOLD.model_copy(update={"use_vllm": True})
    assert memory_of(shape(), model, with_vllm, prompt=28).cache == 0
    frozen = memory_of(shape(), ModelSettings(name="m", freeze_embeddings=True), TOLD, prompt=28)
    assert small.gradients - frozen.gradients == 4 * 151936 * 896


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model_type": "gpt2"}, "no formula for model_type 'gpt2'"),
        ({"model_type": None}, "no formula for model_type None"),
        ({"hidden_size": "many"}, "config.json cannot be used"),
    ],
)
def test_what_has_no_formula_says_so(changed: dict[str, Any], why: str) -> None:
    told = shape_of({**config("Qwen2.5-0.5B"), **changed})
    assert isinstance(told, str)
    assert why in told


def test_a_shape_is_looked_for_on_this_machine_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config("Llama-3.1-8B")), encoding="utf-8")
    found = find_shape(ModelSettings(name=str(tmp_path)))
    assert not isinstance(found, str)
    assert found.parameters == 8_030_261_248
    assert "is not on this machine" in str(find_shape(ModelSettings(name="no-such/model")))
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    assert "cannot be read" in str(find_shape(ModelSettings(name=str(tmp_path))))
