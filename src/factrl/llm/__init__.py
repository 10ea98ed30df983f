"""Language models that are asked, not trained: judges, extractors, probes.

Anything with `complete` is an `LLM`.  `connect` opens an OpenAI-compatible server, `preflight` asks
it one tiny question before a run depends on it, and `FakeLLM` answers from a script.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from factrl.errors import ConfigError, LLMError, SetupError

if TYPE_CHECKING:
    from factrl.llm.openai_compatible import OpenAICompatible

Message = Mapping[str, str]
"""One chat message: `{"role": "user", "content": "…"}`."""

OPENAI_URL = "https://api.openai.com/v1"
SPEC_EXAMPLE = "http://localhost:8000/v1#model-name"
_PING: tuple[Message, ...] = ({"role": "user", "content": "Answer with the word ok."},)
_PING_TOKENS = 16
_AT_ONCE = 32  # calls of models that block


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
    it is lets `factrl.llm.stored` keep its replies.
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
    call = functools.partial(
        contextvars.copy_context().run,
        llm.complete,
        messages,
        temperature=temperature,
        max_tokens=max_tokens,
        **sampling,
    )
    return await asyncio.get_running_loop().run_in_executor(_threads(), call)


# By process: after a fork the parent's threads are gone.
_THREADS: dict[int, ThreadPoolExecutor] = {}


def _threads() -> ThreadPoolExecutor:
    """Threads for models that block; the event loop's own few look up the addresses of all others."""
    pid = os.getpid()
    if pid not in _THREADS:  # only ever called on the one event loop
        _THREADS[pid] = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="factrl-llm")
    return _THREADS[pid]


class FakeLLM:
    """An LLM that answers from a script, for tests and dry runs.

    Args:
        replies: either the replies in the order in which they are given out, or a function from the
            messages to a reply.  A reply that is an exception is raised.

    Attributes:
        calls: the messages of every call so far, in order of arrival.
    """

    def __init__(
        self, replies: Iterable[str | Exception] | Callable[[Sequence[Message]], str | Exception]
    ) -> None:
        if isinstance(replies, str):
            raise TypeError(f"FakeLLM takes a list of replies or a function, not the string {replies!r}")
        self._answer = replies if callable(replies) else None
        self._script = [] if callable(replies) else list(replies)
        self._lock = threading.Lock()
        self.calls: list[list[Message]] = []

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The next reply of the script, or what the function says to `messages`."""
        with self._lock:
            turn = len(self.calls)
            self.calls.append(list(messages))
        if self._answer is not None:
            reply = self._answer(messages)
        elif turn < len(self._script):
            reply = self._script[turn]
        else:
            raise RuntimeError(f"FakeLLM has {len(self._script)} replies and was called {turn + 1} times")
        if isinstance(reply, Exception):
            raise reply
        return Reply(reply, finish_reason="stop", model="fake")


def connect(
    spec: str = "", *, api_key: str | None = None, role: str = "judge", **limits: Any
) -> OpenAICompatible:
    """Open the model server that `spec` names; nothing is sent before the first call.

    `http://localhost:8000/v1#model` is any OpenAI-compatible server; without `#model` the server is
    asked which model it serves.  `openai/gpt-4o-mini` is that model at `OPENAI_BASE_URL`, or at
    OpenAI when that is not set.  `FACTRL_JUDGE_BASE_URL`, `FACTRL_JUDGE_MODEL` and
    `FACTRL_JUDGE_API_KEY` come before what the spec says, and may replace it.

    Args:
        spec: where the model is; may be empty when `FACTRL_JUDGE_BASE_URL` is set.
        api_key: comes before every environment variable.  `OPENAI_API_KEY` is only ever sent to
            `OPENAI_BASE_URL` or to OpenAI.
        role: what the model is for, as in the names of the variables: `FACTRL_POLICY_API_KEY` for `policy`.
        limits: `timeout_attempt`, `max_concurrency`, `rpm`, … of `factrl.llm.limits.Limits`, and `price`,
            `max_calls`, `max_cost_usd` of `OpenAICompatible`.

    Raises:
        ConfigError: the spec is not one of these forms.
    """
    from factrl.llm.openai_compatible import OpenAICompatible

    home = (os.environ.get("OPENAI_BASE_URL") or OPENAI_URL).rstrip("/")
    url, model = _where(spec.strip(), home)
    prefix = f"FACTRL_{role.upper()}"
    url = (os.environ.get(f"{prefix}_BASE_URL") or url).rstrip("/")
    model = os.environ.get(f"{prefix}_MODEL") or model
    if not url:
        raise ConfigError(f"no model server is named; write it like {SPEC_EXAMPLE} or openai/gpt-4o-mini")
    variable = f"{prefix}_API_KEY"
    if url == home and not os.environ.get(variable):
        variable = "OPENAI_API_KEY"
    key = api_key or os.environ.get(variable)
    return OpenAICompatible(url, model or None, key, key_variable=variable, **limits)


def preflight(llm: LLM, *, timeout: float = 10.0, max_attempts: int = 2) -> None:
    """Ask `llm` one tiny question, so that a run does not start on a server that cannot answer.

    Args:
        timeout: seconds for the whole check.
        max_attempts: requests before it gives up.

    Raises:
        SetupError: one line with the address, what happened and what to do.
    """
    from factrl.llm.openai_compatible import OpenAICompatible
    from factrl.llm.stored import CachedLLM

    while isinstance(llm, CachedLLM):  # a stored reply says nothing about the server
        llm = llm.llm
    try:
        if isinstance(llm, OpenAICompatible):
            llm.probe(_PING, max_tokens=_PING_TOKENS, timeout=timeout, max_attempts=max_attempts)
        else:
            llm.complete(_PING, max_tokens=_PING_TOKENS)
    except LLMError as error:
        if error.cause != "truncated":  # a model that wrote too much is a model that works
            remedy = _REMEDIES.get(error.cause, "check the server's own log")
            raise SetupError(f"{error.detail or error.cause}; {remedy}") from error


_REMEDIES = {
    "connection": "start the server, or check the host and the port",
    "timeout": "it may still be loading its model: wait until it answers, then start again",
    "auth": "check that key",
    "bad_body": "check that the address is that of an OpenAI-compatible server (it often ends in /v1)",
    "http_404": "check the model's name and the address (it often ends in /v1)",
    "http_429": "wait, or use a key with a higher limit",
    "redirect": "use the address it points to",
}


def _where(spec: str, home: str) -> tuple[str, str]:
    """Base URL and model of a spec, each empty when not given."""
    if not spec:
        return "", ""
    if spec.startswith(("http://", "https://")):
        url, _, model = spec.partition("#")
        return url, model.strip()
    provider, _, model = spec.partition("/")
    if provider == "openai" and model.strip():
        return home, model.strip()
    raise ConfigError(
        f"{spec!r} does not name a model server; write it like {SPEC_EXAMPLE} or openai/gpt-4o-mini"
    )
