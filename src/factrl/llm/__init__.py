"""Language models that are asked, not trained: judges, extractors, probes.

Anything with `complete` is an `LLM`, and `FakeLLM` answers from a script.  `connect` and `preflight` are
those of `factrl.llm.openai_compatible`.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from factrl.llm.background import on_thread

if TYPE_CHECKING:
    from factrl.llm.openai_compatible import connect, preflight

__all__ = ["LLM", "FakeLLM", "Message", "Reply", "ask", "connect", "preflight"]

Message = Mapping[str, str]
"""One chat message: `{"role": "user", "content": "…"}`."""

_TURNS = threading.Lock()  # of every `FakeLLM`: an object with a lock of its own could not be pickled
_AT_ONCE = 32  # calls of models that block; the event loop's own few threads look up addresses


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model answered.

    Attributes:
        text: the content of the first choice.
        finish_reason: why generation ended, in the server's word; `stop` is the complete one.
        model: the model that answered, as the server names it.
        tokens_in, tokens_out: tokens of the prompt and of the reply; None when the server did not say.
        request_id: the server's name for this request; empty when it gave none.
        attempts: requests that were needed; 0 when it came from a cache.
        elapsed: seconds from the first request to the reply, waits included.
    """

    text: str
    finish_reason: str
    model: str
    tokens_in: int | None = None
    tokens_out: int | None = None
    request_id: str = ""
    attempts: int = 1
    elapsed: float = 0.0

    @property
    def facts(self) -> dict[str, Any]:
        """What is known about the call, for the error that its text may be."""
        return {"attempts": self.attempts, "elapsed": self.elapsed, "request_id": self.request_id}


class LLM(Protocol):
    """Anything that completes a chat; called from many threads at once.

    It may also have `acomplete`, the same as a coroutine; `ask` uses it.  An `identity` that says which model
    it is lets `factrl.llm.store` keep its replies.

    >>> class Yes:
    ...     def complete(self, messages, *, temperature=0.0, max_tokens=512, **sampling):
    ...         return Reply("I agree.\\nVERDICT: correct", "stop", "yes-model")
    >>> from factrl import Grader
    >>> Grader(Yes())("Capital of Peru?", "It is Lima, founded in 1535", ["Lima"]).label
    'correct'
    """

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The model's reply to `messages`.

        Args:
            messages: the chat so far, oldest first.
            temperature: 0 for the most likely reply.
            max_tokens: upper limit of the reply, in tokens.
            sampling: further fields of the request, passed on as they are (`top_p`, `seed`, …).

        Raises:
            LLMError: no usable reply within the model's own attempts and deadlines.
        """
        ...


async def ask(
    llm: LLM,
    messages: Sequence[Message],
    *,
    temperature: float = 0.0,
    max_tokens: int = 512,
    **sampling: Any,
) -> Reply:
    """`llm.complete` for callers on the background loop: its own `acomplete` if it has one, else a thread.

    Raises:
        LLMError: as `LLM.complete`.
    """
    call = getattr(llm, "acomplete", None)
    if call is not None:
        return await call(messages, temperature=temperature, max_tokens=max_tokens, **sampling)
    request = {"temperature": temperature, "max_tokens": max_tokens, **sampling}
    return await on_thread("llm", _AT_ONCE, llm.complete, messages, **request)


class FakeLLM:
    """An LLM that answers from a script, for tests and dry runs.

    Args:
        replies: either the replies in the order in which they are given out, or a function from the
            messages to a reply.  A reply that is an exception is raised; the last one again and again, as a
            judge that failed is asked once more.

    Attributes:
        calls: the messages of every call so far, in order of arrival.

    >>> FakeLLM(["Lima"]).complete([{"role": "user", "content": "Capital of Peru?"}]).text
    'Lima'
    """

    def __init__(
        self, replies: Iterable[str | Exception] | Callable[[Sequence[Message]], str | Exception]
    ) -> None:
        if isinstance(replies, str):
            raise TypeError(f"FakeLLM takes a list of replies or a function, not the string {replies!r}")
        self._answer = replies if callable(replies) else None
        self._script = [] if callable(replies) else list(replies)
        self.calls: list[list[Message]] = []

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The next reply of the script, or what the function says to `messages`."""
        with _TURNS:
            turn = len(self.calls)
            self.calls.append(list(messages))
        if self._answer is not None:
            reply = self._answer(messages)
        elif turn < len(self._script) or (self._script and isinstance(self._script[-1], Exception)):
            reply = self._script[min(turn, len(self._script) - 1)]
        else:
            raise RuntimeError(f"FakeLLM has {len(self._script)} replies and was called {turn + 1} times")
        if isinstance(reply, Exception):
            raise reply
        return Reply(reply, finish_reason="stop", model="fake")


def __getattr__(name: str) -> Any:
    """`connect` and `preflight`, imported when they are used: the protocol needs no client."""
    if name in ("connect", "preflight"):
        return getattr(importlib.import_module("factrl.llm.openai_compatible"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
