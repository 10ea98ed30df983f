"""From an example to the tokens the model reads, the same in training, probing and evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from factrl.errors import ConfigError
from factrl.runs.data import render_prompt
from factrl.runs.settings import DataSettings
from factrl.text import opened
from factrl.types import Example


def render_prompts(examples: Sequence[Example], tokenizer: Any, data: DataSettings) -> list[str]:
    """The full text before the completion, one per example: template, chat markup and prefill.

    Raises:
        ConfigError: the model has no chat template, or the prompt names an unknown column.
    """
    if data.chat and not tokenizer.chat_template:
        raise ConfigError(
            "the model has no chat template; set data.chat=false and write the whole prompt in data.prompt"
        )
    beginning(tokenizer, data.prefill, chat=data.chat)  # refuses a reasoning that is opened twice
    prompts = []
    for example in examples:
        text = render_prompt(example, data.prompt)
        if data.chat:
            system = [{"role": "system", "content": data.system}] if data.system else []
            messages = [*system, {"role": "user", "content": text}]
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        elif data.system:
            text = data.system + "\n\n" + text
        prompts.append(text + data.prefill)
    return prompts


def beginning(tokenizer: Any, prefill: str, *, chat: bool = True) -> str:
    """What the assistant's turn holds already: a `<think>` that the chat template opens, and the prefill.

    Args:
        prefill: `data.prefill`.
        chat: whether the chat template is applied.

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
    return tokenizer(list(prompts), add_special_tokens=not chat)["input_ids"]
