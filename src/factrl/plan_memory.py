"""GPU memory of a training run, computed from the model's `config.json` and the recipe; no torch, no weights.

    weights      P w                      P parameters, w bytes each: 4 when all weights are trained, whatever
                                          the checkpoint holds; a LoRA base as the checkpoint has it
    trained      A 4                      a LoRA adapter of A parameters, float32
    gradients    T t                      T trained parameters, t bytes each
    optimizer    2 T t                    AdamW's two moments
    reference    P 4                      where train.beta > 0 and all weights are trained
    casts        2 M                      bfloat16 copies of the layers' M parameters that autocast keeps
    activations  B S (L h 4 + c)          gradient checkpointing: the input of each of L layers, and one layer
                 B S L c                  without it
    head         4096 * 8192 * 4          TRL multiplies by the output head in tiles, never the whole of B S V
    cache        R S 2 L k d e            keys and values of the R completions that are generated at once

`weights` to `optimizer` are ZeRO's model states (Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1),
at 4 + 4 + 8 = 16 bytes a parameter here as there. c, the bytes that one layer keeps of one token for its
backward pass, is counted as in Korthikanti et al. 2022 (arXiv:2205.05198, section 4.1), for the layer of
Llama instead of GPT's: see `layer_bytes`. S is the longest prompt and the longest completion together, so
this is the most that a step takes. Left out: fragments, the CUDA context (about 0.5 GB), NCCL's buffers,
and vLLM, which takes a share of the GPU of its own. docs/serving.md has what was measured against it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .settings import ModelSettings, TrainSettings

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_TILE_TOKENS, _TILE_WORDS = 4096, 8192  # of TRL's head


@dataclass(frozen=True)
class Shape:
    """What of a decoder-only model decides its memory.

    Attributes:
        layers, hidden, heads, kv_heads, head_dim, mlp, vocab: as `config.json` has them.
        tied: the output head is the embedding.
        biases: parameters that the layers have beside their matrices and norms, per layer.
        bytes: of one parameter in the checkpoint.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    tied: bool
    biases: int
    bytes: int

    @property
    def matrices(self) -> Mapping[str, tuple[int, int]]:
        """Name -> (inputs, outputs) of the matrices of a layer."""
        h, q, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = {"q_proj": (h, q), "k_proj": (h, kv), "v_proj": (h, kv), "o_proj": (q, h)}
        return {**attention, "gate_proj": (h, self.mlp), "up_proj": (h, self.mlp), "down_proj": (self.mlp, h)}

    @property
    def embedding(self) -> int:
        """Parameters of the embedding."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All of them."""
        layer = sum(i * o for i, o in self.matrices.values()) + 2 * self.hidden + self.biases
        return self.layers * layer + self.hidden + self.embedding * (1 if self.tied else 2)


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU, by what takes them; see the module."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    casts: int
    activations: int
    head: int
    cache: int

    @property
    def states(self) -> int:
        """What stays from the first step to the last."""
        return self.weights + self.gradients + self.optimizer + self.reference

    @property
    def peak(self) -> int:
        """The larger of generating and updating, beside what stays."""
        return self.states + max(self.cache, self.casts + self.activations + self.head)

    def parts(self) -> dict[str, int]:
        """Name -> bytes of those that take any."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name)}


def shape_of(config: Mapping[str, Any]) -> Shape | str:
    """The shape that a `config.json` tells, or why it tells none."""
    family = config.get("model_type")
    if family not in FAMILIES:
        return f"there is no formula for model_type {family!r} (there are: {', '.join(FAMILIES)})"
    try:
        h, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        kv = int(config.get("num_key_value_heads") or heads)
        d = int(config.get("head_dim") or h // heads)
        has_bias = config.get("attention_bias", False) or family == "qwen2"
        outputs = {"qwen2": heads * d + 2 * kv * d}.get(family, heads * d + 2 * kv * d + h)
        biases = (outputs if has_bias else 0) + (2 * d if family == "qwen3" else 0)
        biases += 2 * int(config["intermediate_size"]) + h if config.get("mlp_bias") else 0
        told = config.get("dtype") or config.get("torch_dtype") or "float32"
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=h,
            heads=heads,
            kv_heads=kv,
            head_dim=d,
            mlp=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            biases=biases,
            bytes=4 if told == "float32" else 2,
        )
    except (KeyError, TypeError, ValueError) as error:
        return f"its config.json cannot be used: {error!r}"


def find_shape(model: ModelSettings) -> Shape | str:
    """The shape of the model that is named, from files of this machine alone, or why there is none."""
    from .models import cache_folder

    folders = [Path(model.name), cache_folder() / model.name]
    files = [folder / "config.json" for folder in folders]
    files += [Path(found)] if (found := _in_hub_cache(model)) else []
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return f"{model.name} is not on this machine, so its size is not known"
    try:
        return shape_of(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        return f"{file} cannot be read: {error}"


def memory_of(
    shape: Shape, model: ModelSettings, told: TrainSettings, *, prompt: int, processes: int = 1
) -> Memory:
    """Bytes on each GPU.

    Args:
        prompt: tokens of the longest prompt.
        processes: GPUs, each with a whole copy of the model.
    """
    full, bf16 = not model.lora, told.bf16 is not False  # a GPU that is asked about has bfloat16
    base = 4 if model.dtype == "float32" else 2 if model.dtype == "bfloat16" else 4 if full else shape.bytes
    adapter = 0 if full else adapter_parameters(shape, model)
    frozen = shape.embedding * (1 if full and model.freeze_embeddings else 0)
    trained, each = (shape.parameters - frozen, base) if full else (adapter, 4)
    length = prompt + told.max_completion_length
    rows = -(-told.prompts_per_step * told.num_generations // processes)
    casts = bf16 and base == 4
    layer = layer_bytes(shape, 2 if bf16 else base, casts=casts)
    kept = shape.layers * shape.hidden * 4 + layer if told.gradient_checkpointing else shape.layers * layer
    key_values = 2 * shape.layers * shape.kv_heads * shape.head_dim * (2 if bf16 else base)
    return Memory(
        weights=shape.parameters * base + adapter * 4,
        gradients=trained * each,
        optimizer=2 * trained * each,
        reference=shape.parameters * 4 if full and told.beta > 0 else 0,
        casts=2 * (shape.parameters - shape.embedding * (1 if shape.tied else 2)) if casts else 0,
        activations=told.micro_batch_size * length * kept,
        head=_TILE_TOKENS * min(shape.vocab, _TILE_WORDS) * 4,
        cache=0 if told.use_vllm else rows * length * key_values,
    )


def layer_bytes(shape: Shape, each: int, *, casts: bool) -> int:
    """Bytes that one layer keeps of one token for its backward pass.

    In float32: what either norm reads and what it has normalised (4 h). In the precision of the pass: what
    the matrices of attention and of the MLP read (2 h, or a copy for each of the five where autocast makes
    one), what the two that lead out of them read (q, mlp), queries, keys and values (q, 2 kv), and the
    MLP's gate, its function and its other half (3 mlp). PyTorch's fused attention keeps no scores.

    Args:
        each: bytes of a number in the precision of the pass.
        casts: whether autocast makes bfloat16 of float32.
    """
    h, q, kv = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return 4 * 4 * h + each * ((5 if casts else 2) * h + 2 * q + 2 * kv + 4 * shape.mlp)


def adapter_parameters(shape: Shape, model: ModelSettings) -> int:
    """Parameters of a LoRA adapter, rank (inputs + outputs) a matrix (arXiv:2106.09685, section 4.1)."""
    wanted = model.lora_target_modules
    names = shape.matrices if wanted == "all-linear" else [wanted] if isinstance(wanted, str) else wanted
    sizes = [sum(shape.matrices[name]) for name in names if name in shape.matrices]
    return shape.layers * model.lora_rank * sum(sizes)


def _in_hub_cache(model: ModelSettings) -> str | None:
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        found = try_to_load_from_cache(model.name, "config.json", revision=model.revision)
    except HFValidationError:
        return None
    return found if isinstance(found, str) else None
