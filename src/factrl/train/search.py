"""Search as an action: an episode in which the policy looks things up before it answers.

`SearchEnvironment` is an environment as TRL's `GRPOTrainer(environment_factory=...)` takes one, and nothing
of TRL's: one tool, `search(query)`, over an index or any other `Search`.  The answer is the policy's last
message, a text like every other completion, which cites passages by their numbers, `[1]`, or declines.  There
is no tool to answer with: TRL asks for one more message after each call, chat models end with a message by
themselves, and so every reward reads an answer where it always does.

What others wrote enters a conversation only as one line of JSON for each passage, with every role token and
tag in it taken apart (`factrl.llm.quoting`), so that it can neither end the quotation nor pass for a message
or for another passage's number.  A search that fails is our side's doing: the episode is masked.  A call that
cannot be understood, or a query that a server refuses while it answers one of ours, is the policy's own: it
is told so, it counts as a search, and nothing is masked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from factrl.errors import ModelError, PolicyFault, SetupError, Unscored
from factrl.llm.background import wait_for
from factrl.llm.judging import judged_here
from factrl.llm.quoting import broken
from factrl.text import clean, encodable
from factrl.types import Completion, Passage
from factrl.verifier.search import Search

LONGEST = 2_000  # characters of a passage, and of a query
SPENT = "You have no searches left. Answer from what you were shown, or say that you don't know."
DOWN = "The search does not answer. Answer from what you were shown, or say that you don't know."
_UNREADABLE = "This cannot be searched for: query is a few words."
_NOTHING = "Nothing was found."


class SearchEnvironment:
    """One episode at a time: `reset` begins it, and `search` is the one tool that the policy has.

    >>> from factrl.verifier.search import Given
    >>> episode = SearchEnvironment(Given(["Ada is from Rome."]), turns=2)
    >>> print(episode.search("Ada's home"))
    [1] {"text": "Ada is from Rome."}
    1 of 2 searches are left.

    Args:
        source: what is searched.
        k: passages that a search shows.
        turns: searches of an episode; those beyond find nothing and say so.

    Attributes:
        shown: the passages that the policy was shown; passage n is `shown[n - 1]`.
        searches: calls so far.
        failed: why the episode cannot be graded; None while nothing of our side has failed.
    """

    def __init__(self, source: Search, *, k: int = 3, turns: int = 4) -> None:
        self._source, self.k, self.turns = source, k, turns
        self.reset()

    def reset(self, **_: Any) -> None:
        """Begin an episode; TRL hands over the row of the question, which changes nothing."""
        self.shown: list[Passage] = []
        self.searches = 0
        self.failed: Exception | None = None

    def search(self, query: str) -> str:
        """Search the documents for passages about something. Cite a passage by its number, like [1].

        Args:
            query: What to look for, in a few words.
        """
        self.searches += 1
        if self.failed is not None:
            return DOWN
        if self.searches > self.turns:
            return SPENT
        left = f"{self.turns - self.searches} of {self.turns} searches are left."
        words = clean(query)[:LONGEST] if isinstance(query, str) else ""
        try:
            passages = judged_here(self._passages, words, about="", judge=self._source) if words else None
        except PolicyFault:
            passages = None
        except (Unscored, SetupError, OSError) as error:
            facts = error.facts if isinstance(error, Unscored) else {}
            self.failed = Unscored("search_failed", str(error), **{"stage": "search", **facts})
            return DOWN
        except Exception as error:  # a trainer goes on with what a tool raises; the reward ends the run
            self.failed = error
            raise
        lines = [_UNREADABLE] if passages is None else [*map(self._line, passages)] or [_NOTHING]
        return encodable("\n".join([*lines, left]))

    def _passages(self, words: str) -> Sequence[Passage]:
        passages: Any = self._source.search(words, self.k)
        return passages if isinstance(passages, list) else wait_for(passages)

    def _line(self, passage: Passage) -> str:
        """A passage with its number, which it keeps when it is found again."""
        same = [(one.title, one.text) for one in self.shown]
        if (passage.title, passage.text) not in same:
            self.shown.append(passage)
            same.append((passage.title, passage.text))
        data = {"title": broken(passage.title), "text": broken(passage.text[:LONGEST])}
        line = json.dumps({name: text for name, text in data.items() if text}, ensure_ascii=False)
        return f"[{1 + same.index((passage.title, passage.text))}] {line}"


def attach_search(environment: SearchEnvironment, text: Completion) -> Completion:
    """The policy's last message as rewards read it: it knows what it was shown and what failed before it."""
    text.shown, text.failed = tuple(environment.shown), environment.failed
    return text


def last_message(own: Sequence[int]) -> int:
    """Where the policy's last message starts among the T tokens after the prompt.

    Args:
        own: (T,) 1 for the tokens that the policy wrote, 0 for those of a search's reply.
    """
    return len(own) - own[::-1].index(0) if 0 in own else 0


def tolerant(tokenizer: Any) -> Any:
    """The tokenizer, which reads a call nested too deep as one that is malformed, and mends half letters.

    TRL takes the message for text then; a `RecursionError`, or a tool's name that no tokenizer reads, would
    end the run.
    """
    read = type(tokenizer).parse_response  # of the class: one that is tolerant already gets no second layer

    def parse_response(*args: Any, **kwargs: Any) -> Any:
        try:
            return _whole(read(tokenizer, *args, **kwargs))
        except RecursionError as error:
            raise ValueError("a call is nested too deep") from error

    tokenizer.parse_response = parse_response
    return tokenizer


def _whole(message: Any) -> Any:
    """A message, or a part of one, without lone surrogates."""
    if isinstance(message, str):
        return encodable(message)
    if isinstance(message, dict):
        return {_whole(name): _whole(value) for name, value in message.items()}
    return [_whole(part) for part in message] if isinstance(message, list) else message


def check_calls(name: str, tokenizer: Any) -> None:
    """Refuse a policy whose chat template has no place for a tool or for its reply.

    Raises:
        ModelError: what else can be done.
    """
    call = {"name": "search", "arguments": {"query": "Ada's home"}}
    messages = [
        {"role": "user", "content": "Where is Ada from?"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]},
        {"role": "tool", "name": "search", "content": "Rome is"},
    ]
    try:
        text = tokenizer.apply_chat_template(messages, tools=[SearchEnvironment.search], tokenize=False)
    except (TemplateError, TypeError, ValueError):  # no template, or one that takes no such message
        text = ""
    if not all(part in text for part in ("Search the documents", "home", "Rome is")):
        raise ModelError(
            f"model.name = {name!r} cannot call a search: its chat template has no place for tools, as "
            "SmolLM2's and Llama 3's have none; take a model that has (Qwen2.5, Qwen3, Llama 3.1), or show "
            "passages in the prompt: factrl prepare retrieve and truthrl:retrieval"
        )


def transcript(messages: Sequence[Mapping[str, Any]]) -> str:
    """A conversation for a person to read: role and text of each message, and each call on its own line."""
    lines = []
    for message in messages:
        parts = [message["content"]] if message.get("content") else []
        for call in message.get("tool_calls") or ():
            function = call.get("function", call)
            named = function.get("arguments")
            arguments = (
                ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in named.items())
                if isinstance(named, Mapping)
                else str(named)
            )
            parts.append(f"{function.get('name')}({arguments})")
        lines.append(f"{message['role']}: " + "\n".join(parts))
    return "\n\n".join(lines)
