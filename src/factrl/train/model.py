"""The policy: loaded in the precision that training needs, and the tokens that it reads.

Prompts are the same in training, probing and evaluation.

A policy of `factrl doctor` comes quantised (GGUF).  What transformers loads from that cannot be saved in
a checkpoint, so its weights are copied once into a plain model.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from transformers.utils import logging

from factrl.errors import ConfigError, DataError, MissingExtra, ModelError, Unscored, first_line, nearest
from factrl.llm import models
from factrl.llm.writers import conversation
from factrl.runs.data import template_names
from factrl.runs.settings import DataSettings, ModelSettings, RunSettings, TrainSettings
from factrl.text import opened
from factrl.types import Example

if TYPE_CHECKING:
    from peft import LoraConfig

SMALLEST = "SmolLM2-135M-Instruct"


def load_policy(settings: ModelSettings) -> tuple[Any, Any]:
    """The model and its tokenizer.

    Full training loads float32 weights, whatever the checkpoint holds: at reinforcement-learning rates an
    update is smaller than bfloat16 can hold.  A LoRA base stays as the checkpoint has it.

    Raises:
        ConfigError: `freeze_layers` is no fewer than the model has.
        ModelError: it cannot be loaded, or in 4 bits without bitsandbytes.
    """
    tokenizer, (name, options) = load_tokenizer(settings), _source(settings)
    quantised: dict[str, Any] = {}
    if settings.load_in_4bit:  # as QLoRA does (arXiv:2305.14314, section 3)
        nf4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype="bfloat16", **nf4)
        device = int(os.environ.get("LOCAL_RANK", "0")) if torch.cuda.is_available() else "cpu"
        quantised = {"quantization_config": config, "device_map": {"": device}}
    dtype = settings.dtype if settings.lora or settings.dtype != "auto" else "float32"
    with _loading(settings):
        model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, **options, **quantised)
    _freeze(model, settings)
    return model, tokenizer


def load_tokenizer(settings: ModelSettings) -> Any:
    """The model's tokenizer alone.

    Raises:
        ModelError: it cannot be loaded.
    """
    check_model(settings.name)
    name, options = _source(settings)
    with _loading(settings):
        tokenizer: Any = AutoTokenizer.from_pretrained(name, **options)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    return tokenizer


def _source(settings: ModelSettings) -> tuple[str, dict[str, Any]]:
    """Where a model is, and how it is opened."""
    name = str(embedded_policy(settings.name)) if is_embedded(settings.name) else settings.name
    code = settings.trust_remote_code
    return name, {"revision": settings.revision or "main", "trust_remote_code": code}


@contextlib.contextmanager
def _loading(settings: ModelSettings) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(
            f"model.name = {settings.name!r} cannot be loaded: {first_line(error)}; check the name and the "
            "network, or give a local folder"
        ) from error


def check_model(name: str) -> None:
    """Refuse a folder that is not there or holds no model, before anything slow happens."""
    path = Path(name)
    if path.is_dir():
        if not any((path / file).is_file() for file in ("config.json", "adapter_config.json")):
            inside = sorted(p.parent.name for p in path.glob("*/config.json"))
            hint = f"; did you mean {str(path / inside[0])!r}?" if inside else ""
            raise ModelError(f"model.name = {name!r} is a folder without a config.json{hint}")
    elif name.startswith((".", "/", "~")) or name.count("/") > 1 or path.exists():
        around = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        raise ModelError(
            f"model.name = {name!r}: there is no such folder{nearest(path.name, around)}; give a folder that "
            "holds a model, or a hub id such as Qwen/Qwen2.5-0.5B-Instruct"
        )


def check_start(settings: ModelSettings) -> None:
    """Refuse what cannot be trained: no model, or an adapter.

    What is trained on an adapter would be saved without it.
    """
    check_model(settings.name)
    if (Path(settings.name) / "adapter_config.json").is_file():
        raise ModelError(
            f"model.name = {settings.name!r} is an adapter, and what is trained on it is saved without it; "
            "give the whole model, which PEFT's merge_and_unload makes and `factrl tune` saves"
        )


def _freeze(model: Any, settings: ModelSettings) -> None:
    """Leave the weights as they are that `freeze_embeddings` and `freeze_layers` name."""
    if settings.freeze_embeddings:
        model.get_input_embeddings().requires_grad_(False)
    if settings.freeze_layers:
        layers: Any = getattr(model.get_decoder(), "layers", ())
        if settings.freeze_layers >= len(layers):
            count = f"{settings.name!r} has {len(layers)} layers"
            raise ConfigError(f"model.freeze_layers = {settings.freeze_layers} leaves none to train: {count}")
        layers[: settings.freeze_layers].requires_grad_(False)


def lora_config(settings: ModelSettings) -> LoraConfig | None:
    """PEFT's settings of an adapter; None when all weights are trained."""
    if not settings.lora:
        return None
    from peft import LoraConfig

    modules = settings.lora_target_modules
    return LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=modules if isinstance(modules, str) else list(modules),
        task_type="CAUSAL_LM",
    )


def uses_bf16(settings: TrainSettings) -> bool:
    """Whether to run in bfloat16; `auto` is where the GPU or the CPU has the instructions for it.

    The environment's FACTRL_BF16 (0 or 1) decides `auto` instead, as results differ from machine to machine.
    """
    if settings.bf16 != "auto":
        return settings.bf16
    if forced := os.environ.get("FACTRL_BF16"):
        return forced == "1"
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)  # older cards emulate it, slowly
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags


def is_embedded(name: str) -> bool:
    """Whether `name` is a policy of `factrl doctor`, and no folder here."""
    return not Path(name).exists() and any(m.name == name and m.role == "policy" for m in models.MODELS)


def embedded_policy(name: str = SMALLEST) -> Path:
    """The folder of a policy, made on the first call (about 100 MB of download, 30 seconds)."""
    folder = models.cache_folder() / name
    if not (folder / "config.json").is_file():
        try:
            weights = models.get(name)
        except ModelError as error:
            raise ModelError(f"{error} (or give another: model.name=FOLDER)") from error
        models.private_folder(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _convert(weights, Path(scratch) / "model")
            with contextlib.suppress(OSError):  # another process just put it there
                (Path(scratch) / "model").replace(folder)
        if not (folder / "config.json").is_file():
            raise ModelError(f"{folder} cannot be written; mend its rights, or set model.name=FOLDER")
    return folder


def _convert(weights: Path, target: Path) -> None:
    """Copy dequantised weights into a plain model, which can be saved."""
    try:
        import gguf  # noqa: F401  # transformers needs it and says so less clearly
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


# -- Prompts ------------------------------------------------------------------------------------------


def render_prompts(
    examples: Sequence[Example], tokenizer: Any, data: DataSettings, tools: Sequence[Any] = ()
) -> list[str]:
    """The full text before the completion, one per example: template, chat markup and prefill.

    Args:
        tools: functions that the chat template tells the policy of.
    """
    if data.chat and not tokenizer.chat_template:
        raise ConfigError(
            "the model has no chat template; set data.chat=false and write the whole prompt in data.prompt"
        )
    beginning(tokenizer, data.prefill, chat=data.chat)  # refuses a reasoning that is opened twice
    prompts = []
    for example in examples:
        messages = conversation(example, data)
        text = "\n\n".join(message["content"] for message in messages)
        if data.chat:
            options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True}
            text = tokenizer.apply_chat_template(messages, tools=list(tools) or None, **options)
        prompts.append(text + data.prefill)
    return prompts


@dataclass(frozen=True)
class Fitted:
    """Prompts that are no longer than they may be.

    Attributes:
        prompts: rendered; None where one is too long.
        cut: how many have fewer documents, or less of the last one.
    """

    prompts: Sequence[str | None]
    cut: int = 0

    @property
    def kept(self) -> list[int]:
        """The numbers of those that fit."""
        return [number for number, prompt in enumerate(self.prompts) if prompt is not None]

    @property
    def too_long(self) -> int:
        """How many do not."""
        return sum(prompt is None for prompt in self.prompts)

    def spread(self, groups: Iterable[list[Any]], count: int, instead: Any) -> list[list[Any]]:
        """What was written for those that fit, in the places of all; elsewhere `count` times `instead`."""
        written = iter(groups)
        return [[instead] * count if prompt is None else next(written) for prompt in self.prompts]


def prompt_too_long(settings: RunSettings) -> Unscored:
    """Why nothing was written for a prompt."""
    return Unscored("prompt_too_long", f"more than {settings.train.max_prompt_length} tokens")


def fit_prompts(
    examples: Sequence[Example], tokenizer: Any, settings: RunSettings, tools: Sequence[Any] = ()
) -> Fitted:
    """Rendered prompts of at most `train.max_prompt_length` tokens.

    Where {evidence} is in the prompt, its last documents are left out, and the last that is shown is cut.
    """
    data, limit = settings.data, settings.train.max_prompt_length
    prompts: list[str | None] = [*render_prompts(examples, tokenizer, data, tools)]
    if limit is None or not prompts:
        return Fitted(prompts)
    cut, shows = 0, "evidence" in template_names(data.prompt)
    lengths = [len(ids) for ids in encode([str(p) for p in prompts], tokenizer, chat=data.chat)]
    for number, (example, length) in enumerate(zip(examples, lengths, strict=True)):
        if length > limit:
            prompts[number] = _cut(example, tokenizer, data, limit) if shows else None
            cut += prompts[number] is not None
    return Fitted(prompts, cut)


def _cut(example: Example, tokenizer: Any, data: DataSettings, limit: int) -> str | None:
    """The prompt with as much of its documents as fits; None where not even a part of the first does."""
    sizes = [_size(passage.text, tokenizer) for passage in example.evidence]
    most = sum(total <= limit for total in accumulate(sizes))  # the words around them come on top
    passages = [*example.evidence[: most + 1]]
    while passages:
        [prompt] = render_prompts([replace(example, evidence=tuple(passages))], tokenizer, data)
        excess = len(encode([prompt], tokenizer, chat=data.chat)[0]) - limit
        if excess <= 0:
            return prompt
        last = passages.pop()
        if (left := _size(last.text, tokenizer) - excess) > 0:
            passages.append(replace(last, text=_first_tokens(last.text, left, tokenizer)))
    return None


def _size(text: str, tokenizer: Any) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _first_tokens(text: str, count: int, tokenizer: Any) -> str:
    if not tokenizer.is_fast:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return tokenizer.decode(ids[:count])
    ends = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    return text[: ends[count - 1][1]]


def refuse_long(too_long: int, total: int, settings: RunSettings) -> None:
    """Refuse to go on where more prompts are too long than may be.

    Raises:
        DataError: more than `train.max_long_share`.
    """
    train = settings.train
    if too_long > train.max_long_share * total:
        raise DataError(
            f"{too_long} of {total} prompts have more than train.max_prompt_length = "
            f"{train.max_prompt_length} tokens, a larger share than train.max_long_share = "
            f"{train.max_long_share:g}; raise one of them"
        )


def prompts_note(too_long: int, cut: int, total: int, settings: RunSettings) -> str:
    """What became of prompts that were too long, in a line; "" where none was."""
    parts = [f"{too_long} of {total} prompts are left out"] * bool(too_long)
    parts += [f"the documents of {cut} are cut"] * bool(cut)
    limit = settings.train.max_prompt_length
    return f"{', and '.join(parts)}: more than train.max_prompt_length = {limit} tokens" if parts else ""


def beginning(tokenizer: Any, prefill: str, *, chat: bool = True) -> str:
    """What the assistant's turn holds already: a `<think>` that the chat template opens, and the prefill.

    Raises:
        ConfigError: both open a reasoning.
    """
    if not chat or not tokenizer.chat_template:
        return prefill
    turn = [{"role": "user", "content": "?"}]
    thinks = opened(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))
    if thinks and "<think>" in prefill:
        raise ConfigError(
            f"data.prefill = {prefill!r} opens a <think> that the model's chat template opens already; "
            "leave data.prefill out"
        )
    return thinks + prefill


def encode(prompts: Sequence[str], tokenizer: Any, *, chat: bool) -> list[list[int]]:
    """Token ids of rendered prompts; chat markup already holds its special tokens."""
    return tokenizer(list(prompts), add_special_tokens=not chat)["input_ids"] if prompts else []


def end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end an answer."""
    ids = model.generation_config.eos_token_id
    many = ids if isinstance(ids, list) else [ids]
    return [i for i in {*many, tokenizer.eos_token_id} if i is not None]


# -- What libraries print -----------------------------------------------------------------------------


def for_command_line() -> None:
    """Quiet libraries, as the command line shows its own: errors stay; bars, hints and deprecation notes go.

    A process of several leaves their group when it ends.
    """
    import datasets

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers|trl|accelerate")
    atexit.register(_leave_group)


def _leave_group() -> None:
    """While the interpreter is whole: threads of a group that is still there can abort a run that is done."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
