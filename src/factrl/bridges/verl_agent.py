"""How completions are sampled under verl, and what travels with them: the sign of every token's step.

verl's reward workers see text and its trainer sees tokens.  The agent loop has both, so this is where the
spans that a reward gave in characters become one number per token, in a column of their own.  It also begins
the assistant's turn with `data.prefill`, and leaves the chat template out of a base model's prompt
(`data.chat = false`); verl has no settings for either.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from pydantic import PrivateAttr
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from factrl.train.credit import TokenOffsets
from factrl.train.model import beginning
from factrl.types import Span

from .verl import WRITTEN

SIGNS = "factrl_signs"  # the column of signs
AGENT = "factrl_agent"  # the name of this loop in verl's configuration

_OFFSETS: dict[int, TokenOffsets] = {}  # by the id of their tokenizer, which they keep alive


class FactualOutput(AgentLoopOutput):
    """verl's output with a column of signs; all of a batch have it, those without spans zeros."""

    _tokenizer: Any = PrivateAttr(default=None)

    @classmethod
    def of(cls, output: AgentLoopOutput, tokenizer: Any) -> FactualOutput:
        """The same output."""
        given = {name: getattr(output, name) for name in {*output.model_fields_set, "extra_fields"}}
        made = cls(**given)
        made._tokenizer = tokenizer
        return made

    def as_dict(self) -> dict[str, Any]:
        """verl's columns and `factrl_signs`, (T,) of -1, 0 and 1."""
        columns = super().as_dict()
        told = self.extra_fields.get("reward_extra_info") or {}
        columns[SIGNS] = signs_of(self.response_ids, told.get("spans", "[]"), self._tokenizer)
        return columns


def signs_of(ids: list[int], spans: str, tokenizer: Any) -> torch.Tensor:
    """(T,) sign of each token's step.

    Args:
        ids: the T tokens of a completion.
        spans: JSON of `[start, end, sign]` in characters of the decoded completion.

    Raises:
        ModelError: the tokens do not spell the text.
    """
    found = [Span(*span) for span in json.loads(spans)]
    if not found:
        return torch.zeros(len(ids))
    if id(tokenizer) not in _OFFSETS:
        _OFFSETS[id(tokenizer)] = TokenOffsets(tokenizer)
    text = tokenizer.decode(ids, skip_special_tokens=True)  # as the reward manager decodes it
    return torch.from_numpy(_OFFSETS[id(tokenizer)].signs(ids, text, found)).float()


_SingleTurn: Any = SingleTurnAgentLoop  # verl's decorator hides its type


class FactualAgentLoop(_SingleTurn):
    """One answer to one question, begun with `prefill`; without `chat` the messages are the prompt."""

    def __init__(self, *args: Any, prefill: str = "", chat: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prefill, self.chat = prefill, chat

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> FactualOutput:
        """Sample; the completion is without the prefill."""
        output = FactualOutput.of(await super().run(sampling_params, **kwargs), self.tokenizer)
        ids = output.response_ids
        cut = len(ids) >= self.response_length and ids[-1] != self.tokenizer.eos_token_id
        told = {"truncated": cut, "tokens": max(0, len(ids) - (not cut))}
        begun = beginning(self.tokenizer, self.prefill, chat=self.chat)
        output.extra_fields[WRITTEN] = {**told, "prefill": begun}
        return output

    async def ct_build_initial_tokens(self, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
        """The prompt's tokens; text and prefill are tokenised together, as `factrl.train.model` does."""
        if self.chat and not self.prefill:
            return await super().ct_build_initial_tokens(messages, *args, **kwargs)
        text = "\n\n".join(message["content"] for message in messages)
        if self.chat:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = self.tokenizer(text + self.prefill, add_special_tokens=not self.chat)["input_ids"]
        return self._cap_text_prompt_length(ids)
