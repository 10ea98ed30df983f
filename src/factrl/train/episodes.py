"""Answers of a policy that searches first, outside of training: TRL's own loop of tools, without its trainer.

Evaluations then ask as training does, to the token: the chat template, the way in which a search's reply is
joined on, the limits and the reading of calls are TRL's.  Greedy only: a sample's random numbers would have
to be its own in every turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from trl.chat_template_utils import (
    add_response_schema,
    get_training_chat_template,
    is_chat_template_prefix_preserving,
    parse_response,
)
from trl.trainer.grpo_trainer import GRPOTrainer

from factrl.errors import ConfigError, Unscored
from factrl.llm.writers import Written, conversation
from factrl.runs.settings import RunSettings
from factrl.text import encodable
from factrl.types import Completion, Example
from factrl.verifier import open_search

from .model import beginning, end_tokens
from .search import SearchEnvironment, attach_search, check_calls, last_message, tolerant
from .writing import AT_ONCE, evaluating, sample

_open = lru_cache(maxsize=1)(open_search)


def searched(
    model: Any,
    tokenizer: Any,
    examples: Sequence[Example],
    settings: RunSettings,
    *,
    temperature: float = 0.0,
    bf16: bool = False,
    on_done: Callable[[], None] = lambda: None,
) -> list[list[Written]]:
    """For each question the last message of one episode, or the search that failed in it.

    Raises:
        ConfigError: a temperature.
        ModelError: as `check_calls`.
    """
    if temperature:
        raise ConfigError("a policy that searches (search.index) answers greedily: sampling.temperature=0")
    check_calls(settings.model.name, tokenizer)
    answers = list[list[Written]]()
    with evaluating(model, bf16=bf16):
        for start in range(0, len(examples), AT_ONCE):
            for answer in _answers(model, tokenizer, examples[start : start + AT_ONCE], settings):
                answers.append([answer])
                on_done()
    return answers


def _answers(
    model: Any, tokenizer: Any, examples: Sequence[Example], settings: RunSettings
) -> Iterator[Written]:
    search = settings.search
    source: Any = _open(index=search.index, embedder=search.embedder)
    episodes = [SearchEnvironment(source, k=search.k, turns=search.turns) for _ in examples]
    begun, ends = beginning(tokenizer, ""), end_tokens(model, tokenizer)
    turns = _Loop(model, tokenizer, episodes, settings).run(
        [conversation(e, settings.data) for e in examples]
    )
    for episode, (ids, own) in zip(episodes, turns, strict=True):
        if isinstance(episode.failed, Unscored):
            yield episode.failed
            continue
        if episode.failed is not None:
            raise episode.failed
        ended = bool(ids) and ids[-1] in ends
        text = tokenizer.decode(ids[last_message(own) :], skip_special_tokens=True)
        completion = Completion(text, prefill=begun, truncated=not ended, tokens=sum(own) - ended)
        yield attach_search(episode, completion)


class _Loop:
    """What TRL's tool loop, a method of its trainer, reads from `self`."""

    use_vllm = _is_vlm = False
    environment_factories = None
    _tool_call_loop = GRPOTrainer._tool_call_loop

    def __init__(
        self, model: Any, tokenizer: Any, episodes: Sequence[SearchEnvironment], settings: RunSettings
    ) -> None:
        if not any(getattr(tokenizer, f"response_{kind}", None) for kind in ("template", "schema")):
            tokenizer = add_response_schema(tokenizer)
        kept = is_chat_template_prefix_preserving(tokenizer)
        self.chat_template = None if kept else get_training_chat_template(tokenizer)
        self.model, self._tokenizer, self.processing_class = model, tokenizer, tolerant(tokenizer)
        self.chat_template_kwargs: dict[str, Any] = {}
        self.max_completion_length = settings.train.max_completion_length
        self.max_tool_calling_iterations = settings.search.turns + 1
        self.tools: list[Any] = [episode.search for episode in episodes[:1]]
        self._sync_tool_dicts = [{"search": episode.search} for episode in episodes]
        self._async_tool_dicts = [dict[str, Any]() for _ in episodes]

    def run(self, prompts: list[Any]) -> list[tuple[list[int], list[int]]]:
        """Of each episode its tokens after the prompt, and 1 for those that the policy wrote."""
        options = {"tools": self.tools, "chat_template": self.chat_template, "return_dict": False}
        starts = [
            self._tokenizer.apply_chat_template(p, add_generation_prompt=True, tokenize=True, **options)
            for p in prompts
        ]
        first, _ = self._generate_single_turn(starts)
        messages = [
            [parse_response(self._tokenizer, ids, prefix=start, tools=self.tools)]
            for ids, start in zip(first, starts, strict=True)
        ]
        loop: Any = self._tool_call_loop
        own, _, ids, *_ = loop(prompts, starts, first, messages, None, None, {})
        return list(zip(ids, own, strict=True))

    def _get_tool_suffix_ids(self, replies: Sequence[dict[str, str]]) -> Any:
        join: Any = GRPOTrainer._get_tool_suffix_ids
        return join(self, [{name: encodable(text) for name, text in one.items()} for one in replies])

    def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> Any:
        groups = sample(
            self.model,
            prompt_ids,
            max_new_tokens=self.max_completion_length,
            temperature=0.0,
            eos_ids=end_tokens(self.model, self._tokenizer),
        )
        return [group[0] for group in groups], None
