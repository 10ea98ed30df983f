"""A client for any server that speaks OpenAI's `chat/completions`.

One retry loop, one total deadline per call, a capped body, a checked schema.  The deadlines are ours
and not the HTTP library's: a read timeout starts again with every byte, so a server that drips could
hold a call for ever.  Callers are synchronous and may be many threads; all I/O runs on one event loop
in the background, because connections and semaphores belong to the loop that made them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import time
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx

from factrl.background import background_loop, wait_for
from factrl.errors import ConfigError, LLMError
from factrl.llm import SPEC_EXAMPLE, Message, Reply

BODY_LIMIT = 1 << 20  # bytes after decompression; a verdict needs a few hundred
RETRY_AFTER_LIMIT = 60.0  # seconds; a server that asks for more is not coming back within a call
_BACKOFF_LIMIT = 8.0
_RETRIED = frozenset({408, 409, 424, 425, 429})
_CONTEXT_LENGTH = re.compile(r"context[ _-]?(length|window|size)|too many tokens|prompt is too long", re.I)
_JITTER = random.SystemRandom()  # not the global generator, which belongs to the training seed

T = TypeVar("T")
_Session = tuple[httpx.AsyncClient, asyncio.Semaphore]


class OpenAICompatible:
    """An `LLM` behind an OpenAI-compatible URL: vLLM, SGLang, llama.cpp, Ollama, OpenAI, …

    Args:
        base_url: the address up to, not including, `/chat/completions`.
        model: the model's name; None asks the server, which must then serve exactly one.
        api_key: sent as a bearer token; never shown in a repr, a log or an error.
        timeout_attempt: seconds for one request, from connecting to the last byte.
        timeout_call: seconds for all attempts and waits, counted from when the call gets its turn.
        max_attempts: requests for one call, whatever made them necessary.
        max_concurrency: calls that run at the same time; the others wait for their turn.
        backoff: seconds before the first retry; doubles with each further one, up to 8.
        key_variable: the environment variable to name when the server refuses the key.

    Raises:
        ConfigError: a value that cannot work.
    """

    def __init__(
        self,
        base_url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        timeout_attempt: float = 30.0,
        timeout_call: float = 100.0,
        max_attempts: int = 4,
        max_concurrency: int = 32,
        backoff: float = 0.5,
        key_variable: str = "FACTRL_JUDGE_API_KEY",
    ) -> None:
        self.base_url = _checked_url(base_url)
        self.model = model
        self.max_concurrency = max_concurrency
        self._limits = _Limits(timeout_attempt, timeout_call, max_attempts, backoff)
        if max_concurrency < 1:
            raise ConfigError(f"max_concurrency must be at least 1, not {max_concurrency!r}")
        self._key = _Key(api_key, key_variable)
        self._sessions: dict[int, _Session] = {}
        # Collected clients close their connections; at exit the process does that by itself.
        weakref.finalize(self, _close, self._sessions).atexit = False

    def __repr__(self) -> str:
        return f"OpenAICompatible({self.base_url!r}, model={self.model!r})"

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The model's reply; see `factrl.llm.LLM`.

        Raises:
            LLMError: with the cause `connection`, `timeout`, `http_429`, `http_5xx` or `bad_body` when the
                attempts or the time ran out; at once with `auth`, `context_length`, `redirect` or
                `http_<status>`; `truncated` when twice `max_tokens` were not enough either.
            ConfigError: no model was named and the server does not serve exactly one.
        """
        request = {"temperature": temperature, "max_tokens": max_tokens, **sampling}
        return wait_for(self._complete(messages, request, self._limits))

    def probe(
        self, messages: Sequence[Message], *, max_tokens: int, timeout: float, max_attempts: int
    ) -> Reply:
        """`complete` within `timeout` seconds and `max_attempts` requests instead of this client's limits."""
        limits = replace(self._limits, attempt=timeout, call=timeout, max_attempts=max_attempts)
        return wait_for(self._complete(messages, {"temperature": 0.0, "max_tokens": max_tokens}, limits))

    async def _complete(self, messages: Sequence[Message], request: dict[str, Any], limits: _Limits) -> Reply:
        client, slots = self._session()
        async with slots:
            call = _Call(client, limits)
            if self.model is None:
                self.model = await self._ask(call, "GET", "/models", None, self._only_model)
                call.attempts = 0  # which model is served is another question than the caller's
            request = {"model": self.model, "messages": [dict(m) for m in messages], **request}
            reply = await self._ask(call, "POST", "/chat/completions", request, _read_reply)
            if reply.finish_reason == "length" and call.attempts < limits.max_attempts:
                request["max_tokens"] *= 2
                reply = await self._ask(call, "POST", "/chat/completions", request, _read_reply)
            if reply.finish_reason == "length":
                cut = f"cut its reply off at {request['max_tokens']} tokens"
                failure = _AttemptError("truncated", cut, status=200, request_id=reply.request_id)
                raise self._error(failure, call)
            return replace(reply, attempts=call.attempts, elapsed=call.elapsed())

    async def _ask(self, call: _Call, method: str, path: str, request: Any, read: Callable[[Any], T]) -> T:
        """One request, repeated while that can help and the call's limits allow it."""
        body = b"" if request is None else json.dumps(request).encode()
        while True:
            call.attempts += 1
            limit = min(call.limits.attempt, call.left())
            try:
                return await asyncio.wait_for(self._attempt(call, method, path, body, read), limit)
            except asyncio.TimeoutError:
                failure = _AttemptError("timeout", f"no complete reply within {limit:.3g} s")
            except (httpx.TransportError, OSError, UnicodeError) as error:  # Unicode: a name DNS cannot hold
                failure = _AttemptError("connection", _root_of(error))
            except _AttemptError as error:
                failure = error
            wait = failure.wait or call.backoff()
            hopeless = not failure.retry or wait > RETRY_AFTER_LIMIT
            if hopeless or call.attempts >= call.limits.max_attempts or wait >= call.left():
                raise self._error(failure, call)
            await asyncio.sleep(wait)

    async def _attempt(self, call: _Call, method: str, path: str, body: bytes, read: Callable[[Any], T]) -> T:
        url = self.base_url + path
        async with call.client.stream(method, url, content=body, headers=self._key.headers()) as response:
            request_id = response.headers.get("x-request-id") or response.headers.get("request-id") or ""
            try:
                if response.is_success:
                    return read(_parse(await _body_of(response)))
                raise await self._refusal(response)
            except _AttemptError as failure:
                # Servers quote what they were sent, the key included.
                failure.detail = self._key.hidden_in(failure.detail)
                failure.request_id = self._key.hidden_in(_one_line(request_id))
                failure.status = response.status_code
                raise

    async def _refusal(self, response: httpx.Response) -> _AttemptError:
        """What a status other than 2xx means."""
        status = response.status_code
        if response.is_redirect:
            target = response.headers.get("location", "nowhere")
            return _AttemptError("redirect", f"answered {status}, a redirect to {target}", retry=False)
        said = await _complaint(response)
        text = f"answered {status}" + (f": {said}" if said else "")
        if status in (401, 403):
            return _AttemptError("auth", f"{text} (the key is read from {self._key.variable})", retry=False)
        if status in _RETRIED or status >= 500:
            cause = "http_5xx" if status >= 500 else f"http_{status}"
            return _AttemptError(cause, text, wait=_retry_after(response))
        cause = "context_length" if _CONTEXT_LENGTH.search(said) else f"http_{status}"
        return _AttemptError(cause, text, retry=False)

    def _only_model(self, document: Any) -> str:
        try:
            names = [_one_line(str(entry["id"])) for entry in document["data"]]
        except (KeyError, TypeError):
            raise _AttemptError("bad_body", "answered something other than a list of models") from None
        if len(names) != 1:
            serves = f"serves {len(names)} models ({', '.join(names[:5])})" if names else "serves no model"
            example = f"{self.base_url}#{names[0] if names else 'model-name'}"
            raise ConfigError(f"{self.base_url} {serves}; name the one to use, like {example}")
        return names[0]

    def _error(self, failure: _AttemptError, call: _Call) -> LLMError:
        attempts = f"{call.attempts} attempt{'s' if call.attempts > 1 else ''}"
        detail = f"{self.base_url} {failure.detail} ({attempts}, {call.elapsed():.1f} s)"
        return LLMError(
            failure.cause,
            detail,
            stage="judge",
            status=failure.status,
            attempts=call.attempts,
            elapsed=call.elapsed(),
            request_id=failure.request_id,
            base_url=self.base_url,
        )

    def _session(self) -> _Session:
        """The connections of this process; only ever called on the background loop."""
        pid = os.getpid()
        if pid not in self._sessions:
            host = httpx.URL(self.base_url).host
            client = httpx.AsyncClient(
                timeout=None,  # noqa: S113  (the deadlines are ours, see the module)
                follow_redirects=False,
                limits=httpx.Limits(max_connections=self.max_concurrency),
                # A proxy is for the world outside; clusters set one and cannot reach localhost by it.
                trust_env=not (host in ("localhost", "::1") or host.startswith("127.")),
            )
            self._sessions[pid] = client, asyncio.Semaphore(self.max_concurrency)
        return self._sessions[pid]


@dataclass(frozen=True)
class _Limits:
    attempt: float
    call: float
    max_attempts: int
    backoff: float

    def __post_init__(self) -> None:
        for name, value in (("timeout_attempt", self.attempt), ("timeout_call", self.call)):
            if not 0 < value < float("inf"):
                raise ConfigError(f"{name} must be a positive number of seconds, not {value!r}")
        if self.max_attempts < 1:
            raise ConfigError(f"max_attempts must be at least 1, not {self.max_attempts!r}")


@dataclass
class _Call:
    """One call's count of attempts and its clock, which is monotonic: wall clocks jump."""

    client: httpx.AsyncClient
    limits: _Limits
    attempts: int = 0
    start: float = field(default_factory=time.monotonic)

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def left(self) -> float:
        return self.limits.call - self.elapsed()

    def backoff(self) -> float:
        return min(_BACKOFF_LIMIT, self.limits.backoff * 2 ** (self.attempts - 1)) * _JITTER.uniform(0.5, 1.0)


@dataclass(eq=False)
class _AttemptError(Exception):
    """Why one attempt gave nothing usable."""

    cause: str
    detail: str
    retry: bool = True
    wait: float | None = None
    status: int | None = None
    request_id: str = ""


class _Key:
    """An API key that shows itself only as a header."""

    def __init__(self, value: str | None, variable: str) -> None:
        self._value = (value or "").strip()
        self.variable = variable
        if not all("!" <= char <= "~" for char in self._value):
            # The HTTP library would refuse it too, with the key in the message.
            raise ConfigError(f"the key in {variable} has a character that no key has, such as a line break")

    def __repr__(self) -> str:
        return "[key]" if self._value else "[no key]"

    def headers(self) -> dict[str, str]:
        plain = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        return {**plain, "Authorization": f"Bearer {self._value}"} if self._value else plain

    def hidden_in(self, text: str) -> str:
        """`text` without the key; dummies such as `EMPTY` are words and stay."""
        return text.replace(self._value, "[key]") if len(self._value) >= 8 else text


async def _body_of(response: httpx.Response) -> bytes:
    """The body, decompressed piece by piece so that a small bomb cannot become a large string."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise _AttemptError("bad_body", f"answered in the encoding {_one_line(encoding)!r}, unasked")
    inflate = None if encoding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
    body = bytearray()
    async for chunk in response.aiter_raw():
        try:
            body += inflate.decompress(chunk, BODY_LIMIT + 1 - len(body)) if inflate else chunk
        except zlib.error as error:
            raise _AttemptError("bad_body", f"answered with a broken {encoding} body") from error
        if len(body) > BODY_LIMIT:
            raise _AttemptError("bad_body", f"answered with more than {BODY_LIMIT >> 20} MiB")
    return bytes(body)


def _parse(body: bytes) -> Any:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:  # RecursionError: 1 MiB of opening brackets
        start = _one_line(body[:80].decode("utf-8", "replace"))
        raise _AttemptError("bad_body", f"answered with something other than JSON: {start!r}") from error
    if isinstance(document, Mapping) and document.get("error"):
        raise _AttemptError("bad_body", f"answered with an error: {_message_of(document)}")
    return document


def _read_reply(document: Any) -> Reply:
    try:
        choice = document["choices"][0]
        text, reason = choice["message"]["content"], choice["finish_reason"]
    except (KeyError, IndexError, TypeError):
        text = reason = None
    if not isinstance(text, str) or not isinstance(reason, str):
        raise _AttemptError("bad_body", "answered something other than a chat completion with text")
    model, request_id, usage = (document.get(key) for key in ("model", "id", "usage"))
    counts = usage if isinstance(usage, Mapping) else {}
    tokens_in, tokens_out = counts.get("prompt_tokens"), counts.get("completion_tokens")
    return Reply(
        text.encode("utf-8", "replace").decode(),  # JSON can spell half a surrogate pair, files cannot
        finish_reason=reason,
        model=model if isinstance(model, str) else "",
        tokens_in=tokens_in if isinstance(tokens_in, int) else None,
        tokens_out=tokens_out if isinstance(tokens_out, int) else None,
        request_id=_one_line(request_id) if isinstance(request_id, str) else "",
    )


async def _complaint(response: httpx.Response) -> str:
    """What the server wrote beside its status, as one short line."""
    try:
        body = await _body_of(response)
    except _AttemptError:
        return ""
    try:
        return _message_of(json.loads(body))
    except (ValueError, RecursionError):
        return _one_line(body.decode("utf-8", "replace"))


def _message_of(document: Any) -> str:
    """The sentence in an error document; servers agree on no place for it."""
    while isinstance(document, (Mapping, list)):
        keys = ("error", "message", "detail", "msg")
        values = document if isinstance(document, list) else map(document.get, keys)
        document = next((value for value in values if value), "")
    return _one_line(str(document))


def _one_line(text: str) -> str:
    """Others' text made fit for a log: printable, one line, at most 200 characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())[:200]


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks to wait; None when it did not say, or nothing readable."""
    value = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", value):
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
    return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())


def _root_of(error: BaseException) -> str:
    """The innermost cause: `All connection attempts failed` does not say which way."""
    while True:
        inner = (getattr(error, "exceptions", None) or (None,))[0] or error.__cause__ or error.__context__
        if inner is None:
            return f"could not be reached: {_one_line(str(error)) or type(error).__name__}"
        error = inner


def _checked_url(base_url: str) -> str:
    if "@" in base_url or "?" in base_url:
        # Addresses are logged, and this message must not show it either.
        raise ConfigError("the server's address holds a password or a key; use FACTRL_JUDGE_API_KEY instead")
    try:
        url = httpx.URL(base_url)
        usable = url.scheme in ("http", "https") and url.host and not url.fragment and (url.port or 1) < 65536
    except httpx.InvalidURL:
        usable = False
    if not usable:
        raise ConfigError(f"{base_url!r} is not the address of a model server; write it like {SPEC_EXAMPLE}")
    return base_url.rstrip("/")


def _close(sessions: dict[int, _Session]) -> None:
    if session := sessions.get(os.getpid()):
        asyncio.run_coroutine_threadsafe(session[0].aclose(), background_loop())
