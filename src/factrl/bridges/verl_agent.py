"""The agent loops that sample completions under verl, and the column with the sign of every token's step.

verl's reward workers see text and its trainer sees tokens.  The agent loop has both, so it turns the spans
that a reward gave in characters into one number per token.  It also begins the assistant's turn with
`data.prefill`, and leaves the chat template out of a base model's prompt (`data.chat = false`); verl has no
settings for either.

`SearchAgentLoop` is for `search.index`: verl's own loop of tools around an episode of `SearchEnvironment`, as
under TRL.  What verl calls a completion is all that follows the prompt, a search's replies too; the policy's
last message alone is graded and gets signs.

Of verl's private parts it takes one: `_call_tool` of its loop of tools, around which one search waits for the
other, and whose words about a call, which hold what the policy wrote, are mended.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import lru_cache
from typing import Any

import torch
from pydantic import PrivateAttr
from transformers.utils.chat_template_utils import get_json_schema
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
from verl.tools.function_tool import FunctionTool
from verl.tools.schemas import OpenAIFunctionToolSchema

from factrl.errors import RewardBug, Unscored
from factrl.text import encodable
from factrl.train.credit import TokenOffsets
from factrl.train.model import beginning
from factrl.train.search import SearchEnvironment, attach_search, check_calls, last_message
from factrl.types import Completion, Span
from factrl.verifier import open_search

from .verl import COMPLETION, SIGNS

_OFFSETS: dict[int, TokenOffsets] = {}  # by the id of their tokenizer, which they keep alive


class FactualOutput(AgentLoopOutput):
    """verl's output with a column of signs; all of a batch have it, those without spans zeros."""

    _tokenizer: Any = PrivateAttr(default=None)

    @classmethod
    def of(cls, output: AgentLoopOutput, tokenizer: Any) -> FactualOutput:
        """The same output."""
        fields = {name: getattr(output, name) for name in {*output.model_fields_set, "extra_fields"}}
        copy = cls(**fields)
        copy._tokenizer = tokenizer
        return copy

    def completion(self, prefill: str, limit: int) -> Completion:
        """The policy's last message, as rewards read it.

        Args:
            prefill: what the prompt had already put at its start.
            limit: tokens that a completion may have.
        """
        ids, own = self.response_ids, self.response_mask
        cut = len(ids) >= limit and ids[-1] != self._tokenizer.eos_token_id
        text = self._tokenizer.decode(ids[last_message(own) :], skip_special_tokens=True)
        return Completion(text, prefill=prefill, truncated=cut, tokens=max(0, sum(own) - (not cut)))

    def as_dict(self) -> dict[str, Any]:
        """verl's columns and `factrl_signs`, (T,) of -1, 0 and 1."""
        columns = super().as_dict()
        if self.reward_score is not None:  # it has been graded, and passages travel no further
            columns["extra_fields"].pop(COMPLETION, None)
        info = self.extra_fields.get("reward_extra_info") or {}
        start = last_message(self.response_mask)
        signs = signs_of(self.response_ids[start:], info.get("spans", "[]"), self._tokenizer)
        columns[SIGNS] = torch.cat([torch.zeros(start), signs])
        return columns


def signs_of(ids: list[int], spans: str, tokenizer: Any) -> torch.Tensor:
    """(T,) sign of each token's step.

    Args:
        ids: the T tokens of a completion.
        spans: JSON of `[start, end, sign]` in characters of the decoded completion.

    Raises:
        ModelError: the tokens do not spell the text.
    """
    parsed = [Span(*span) for span in json.loads(spans)]
    if not parsed:
        return torch.zeros(len(ids))
    if id(tokenizer) not in _OFFSETS:
        _OFFSETS[id(tokenizer)] = TokenOffsets(tokenizer)
    text = tokenizer.decode(ids, skip_special_tokens=True)  # as the reward manager decodes it
    return torch.from_numpy(_OFFSETS[id(tokenizer)].signs(ids, text, parsed)).float()


# verl's decorator hides their types.
_SingleTurn: Any = SingleTurnAgentLoop
_Tools: Any = ToolAgentLoop
_open_search_once = lru_cache(maxsize=1)(open_search)  # verl makes an agent loop for each completion


class FactualAgentLoop(_SingleTurn):
    """One answer to one question, begun with `prefill`; without `chat` the messages are the prompt."""

    def __init__(self, *args: Any, prefill: str = "", chat: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prefill, self.chat = prefill, chat

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> FactualOutput:
        """Sample; the completion is without the prefill."""
        output = FactualOutput.of(await super().run(sampling_params, **kwargs), self.tokenizer)
        prefix = beginning(self.tokenizer, self.prefill, chat=self.chat)
        output.extra_fields[COMPLETION] = output.completion(prefix, self.response_length)
        return output

    async def ct_build_initial_tokens(self, messages: list[dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
        """The prompt's tokens; text and prefill are tokenised together, as `factrl.train.model` does."""
        if self.chat and not self.prefill:
            return await super().ct_build_initial_tokens(messages, *args, **kwargs)
        text = "\n\n".join(message["content"] for message in messages)
        if self.chat:
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = self.tokenizer(text + self.prefill, add_special_tokens=not self.chat)["input_ids"]
        return ids[-self.rollout_config.prompt_length :]


class SearchAgentLoop(_Tools):
    """One episode: searches in the index, and the answer.

    Args:
        index, embedder, k, turns: `[search]` of the recipe.

    Raises:
        ModelError: the chat template has no place for tools.
        SetupError: the index cannot be opened.
    """

    def __init__(self, *args: Any, index: str, embedder: str, k: int, turns: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        check_calls(self.config.actor_rollout_ref.model.path, self.tokenizer)
        source: Any = _open_search_once(index=index, embedder=embedder)
        self.episode = SearchEnvironment(source, k=k, turns=turns)
        search = self.episode.search
        schema = OpenAIFunctionToolSchema.model_validate(get_json_schema(search))
        self.tools = {"search": FunctionTool("search", search, schema)}
        self.tool_schemas = [search]
        # As under TRL: one round more than searches, in which the policy reads that there are no more, and an
        # answer after it; every call of a message is run, and every reply is read whole.
        self.max_assistant_turns, self.max_user_turns = turns + 2, None
        self.max_parallel_calls, self.max_tool_response_length = self.response_length, sys.maxsize
        self._turn = asyncio.Lock()

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> FactualOutput:
        """Sample; the reward gets what failed on our side, and masks the episode or ends the run."""
        output = FactualOutput.of(await super().run(sampling_params, **kwargs), self.tokenizer)
        completion = output.completion(beginning(self.tokenizer, ""), self.response_length)
        output.extra_fields[COMPLETION] = attach_search(self.episode, completion)
        failed = completion.failed
        if failed is not None and not isinstance(failed, Unscored):  # and which may not be pickled
            completion.failed = RewardBug(f"search: {type(failed).__name__}: {failed}")
        return output

    async def _call_tool(self, *args: Any) -> Any:
        """One search after the other: verl runs the calls of a message at once, and passages are numbered."""
        async with self._turn:
            reply, paid, metrics = await super()._call_tool(*args)
        return reply.model_copy(update={"text": encodable(reply.text)}), paid, metrics
