"""Asking a web server for JSON, politely and without ever hanging.

One retry loop, one total deadline per call, a capped body, no redirects.  The deadlines are ours and not
the HTTP library's: a read timeout starts again with every byte, so a server that drips could hold a call
for ever.  All I/O runs on one event loop in the background: connections belong to the loop that made them.

aiohttp carries the bytes: 0.1 ms of CPU per request against httpx's 2 (`benchmarks/client.py`).
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import random
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from factrl.errors import ConfigError, LLMError
from factrl.llm.background import on_background
from factrl.llm.bodies import Failure, Unreadable, document_of, excerpt, refusal_of
from factrl.llm.connections import Connections, checked_url, root_of
from factrl.llm.limits import RETRY_AFTER_LIMIT, Gate, Limits, Outcome, PauseOver, Turn
from factrl.llm.usage import BYTES_PER_TOKEN, Meter, Usage

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout  # pyright: ignore[reportMissingImports]  (comes with aiohttp there)

__all__ = ["Call", "JSONClient", "Unreadable"]

_LARGE = 1 << 20  # bytes; aiohttp warns when a larger body is handed over as one piece
_BACKOFF_LIMIT = 8.0
_KEY_LIKE = 8  # characters; a shorter key is a word
_JITTER = random.SystemRandom()  # not the global generator, which belongs to the training seed
_LOG = logging.getLogger("factrl")

T = TypeVar("T")


class JSONClient:
    """A client of one server that speaks JSON over HTTP.

    Args:
        base_url: the address that every path is appended to.
        api_key: sent with every request; never shown in a repr, a log or an error.
        key_variable: the environment variable to name when the server refuses the key.
        key_header: the header that carries it: `Authorization` as a bearer token, any other one bare.
        stage: what the server is for, for `LLMError.facts`.
        max_calls: calls that may be made in all; None for any number.
        meter: counts and budget of its own, instead of `max_calls`.
        limits: the fields of `factrl.llm.limits.Limits`.

    Raises:
        ConfigError: a value that cannot work.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        key_variable: str = "FACTRL_JUDGE_API_KEY",
        key_header: str = "Authorization",
        stage: str = "judge",
        max_calls: int | None = None,
        meter: Meter | None = None,
        **limits: Any,
    ) -> None:
        self.base_url = checked_url(base_url, key_variable)
        self.limits = Limits(**limits)
        self.meter = meter or Meter(max_calls=max_calls)
        self._stage = stage
        self._key = _Key(api_key, key_variable, key_header)
        self._lines: dict[int, _Line] = {}
        # Collected clients close their connections; those that live until the end are closed there.
        weakref.finalize(self, _close, self._lines).atexit = False

    def __repr__(self) -> str:
        return f"JSONClient({self.base_url!r})"

    @property
    def usage(self) -> Usage:
        """What was sent so far."""
        return self.meter.usage()

    @property
    def paused(self) -> bool:
        """Whether calls wait for a server that is down."""
        line = self._lines.get(os.getpid())
        return line is not None and line.gate.breaker.is_open

    def call(self, limits: Limits | None = None) -> Call:
        """A new call, for several requests that share their attempts and their deadline.

        Raises:
            LLMError: `budget`, no further call may be made.
        """
        call = Call(limits or self.limits)
        if spent := self.meter.no_more_calls():
            raise self._over_budget(spent, call)
        self.meter.calls += 1
        return call

    async def ask(
        self,
        method: str,
        path: str,
        body: Any,
        read: Callable[[Any], T],
        *,
        call: Call | None = None,
        tokens: float = 0.0,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """One request, repeated while that can help and the limits allow it.

        Args:
            method, path: `GET` or `POST`, and what is appended to the address.
            body: sent as JSON; None for no body.
            read: makes the result of the parsed JSON; raises `Unreadable` when it is not what was asked for.
            call: the call that the request belongs to; None for one of its own.
            tokens: what the reply may use of the tokens per minute, the request itself not counted.
            headers: sent beside the usual ones, the same with every attempt.

        Raises:
            LLMError: `connection`, `timeout`, `http_429`, `http_5xx` or `bad_body` when the attempts or the
                time ran out; at once `auth`, `redirect`, `context_length`, `http_<status>` or `budget`;
                `breaker_open` when the server stayed down for longer than `pause`.
        """
        data = b"" if body is None else json.dumps(body).encode()
        tokens += len(data) / BYTES_PER_TOKEN
        request = _Request(method, URL(self.base_url + path), data, tokens, headers or {})
        return await on_background(self._ask(request, read, call or self.call()))

    async def _ask(self, request: _Request, read: Callable[[Any], T], call: Call) -> T:
        line = self._line()
        while True:
            turn = await self._turn(line.gate, call, request)
            try:
                return await self._send(line, turn, call, request, read)
            except Failure as error:
                failure = error
            # Whoever is told to go away for long does; a probe's caller waits with all others.
            too_long = not turn.probe and (failure.wait or 0.0) > RETRY_AFTER_LIMIT
            if not failure.retry or too_long or call.attempts >= call.limits.max_attempts:
                raise self.error(failure, call)
            if not line.gate.breaker.is_open:  # else the next turn is what there is to wait for
                wait = failure.wait or call.backoff()
                if wait >= call.left():
                    raise self.error(failure, call)
                self.meter.seconds_waiting += wait
                await asyncio.sleep(wait)
                call.used += wait

    async def _turn(self, gate: Gate, call: Call, request: _Request) -> Turn:
        """Leave to send the next request of a call."""
        asked = time.monotonic()
        try:
            turn = await gate.enter(request.tokens, again=call.requests > 0)
        except PauseOver:
            turn = None
        self.meter.seconds_waiting += time.monotonic() - asked
        if turn is None:
            down = f"was down for longer than pause = {call.limits.pause:g} s"
            raise self.error(Failure("breaker_open", down), call)
        return turn

    async def _send(
        self, line: _Line, turn: Turn, call: Call, request: _Request, read: Callable[[Any], T]
    ) -> T:
        """One request in one turn, which it hands back.

        Raises:
            Failure: no usable reply.
            LLMError: `budget`.
        """
        began = time.monotonic()
        outcome: Outcome = "dropped"
        wait, why, used = None, "", None
        try:
            if spent := self.meter.no_more_requests():
                raise self._over_budget(spent, call)
            self.meter.requests += 1
            self.meter.retries += call.requests > 0
            call.begin(turn)
            limit = call.limits.timeout_attempt if turn.probe else call.left_for_attempt()
            result = await self._attempt(line, request, read, limit)
            outcome, used = "served", call.tokens
            return result
        except Failure as failure:
            outcome, wait, why = _outcome_of(failure), failure.wait, failure.detail
            raise
        finally:
            if not turn.probe:  # it is the breaker's question, not this call's
                call.used += time.monotonic() - began
            line.gate.leave(turn, outcome, wait=wait, used=used, why=why)

    async def _attempt(self, line: _Line, request: _Request, read: Callable[[Any], T], limit: float) -> T:
        try:
            async with timeout(limit):
                return await self._exchange(line, request, read)
        except asyncio.TimeoutError:
            detail = f"no complete reply within {limit:.3g} s"
            raise Failure("timeout", detail, refusal=True) from None
        except (aiohttp.ClientError, OSError, UnicodeError) as error:  # Unicode: a name DNS cannot hold
            why = excerpt(str(root := root_of(error))) or type(root).__name__
            raise Failure("connection", self._key.hidden_in(f"could not be reached: {why}")) from None

    async def _exchange(self, line: _Line, request: _Request, read: Callable[[Any], T]) -> T:
        # aiohttp warns when a large body is handed over as one piece.
        data = request.data if len(request.data) < _LARGE else io.BytesIO(request.data)
        async with line.connections.session.request(
            request.method,
            request.url,
            data=data or None,
            headers={**request.headers, **self._key.headers},
            allow_redirects=False,
            **line.connections.proxy,
        ) as response:
            _LOG.debug("%s %s answered %d", request.method, request.url, response.status)
            request_id = response.headers.get("x-request-id") or response.headers.get("request-id") or ""
            try:
                if 200 <= response.status < 300:
                    return read(await document_of(response))
                raise await refusal_of(response, self._key.variable)
            except Failure as failure:
                # Servers quote what they were sent, the key included.
                failure.detail = self._key.hidden_in(failure.detail)
                failure.request_id = self._key.hidden_in(excerpt(request_id))
                failure.status = response.status
                raise

    def error(self, failure: Failure, call: Call) -> LLMError:
        """The error that the caller of a call sees."""
        attempts = f"{call.requests} attempt{'' if call.requests == 1 else 's'}"
        detail = f"{self.base_url} {failure.detail} ({attempts}, {call.elapsed():.1f} s)"
        _LOG.debug("%s: %s", failure.cause, detail)
        return LLMError(
            failure.cause,
            detail,
            stage=self._stage,
            status=failure.status,
            attempts=call.requests,
            elapsed=call.elapsed(),
            request_id=failure.request_id,
            base_url=self.base_url,
        )

    def _over_budget(self, spent: str, call: Call) -> LLMError:
        return self.error(Failure("budget", f"is not asked any more: {spent}; raise it to go on"), call)

    def _line(self) -> _Line:
        """The connections of this process; only ever called on the background loop."""
        pid = os.getpid()
        line = self._lines.get(pid)
        if line is None:
            line = self._lines[pid] = _Line(Connections(self.base_url), Gate(self.base_url, self.limits))
        return line


@dataclass(eq=False)
class Call:
    """One call's attempts and its clock, which is monotonic: wall clocks jump.

    Attributes:
        attempts: requests that count against `max_attempts`; the breaker's probes do not.
        requests: all of them.
        used: seconds that count against `timeout_call`: of its attempts and of the waits between them.
        tokens: what its last reply says that it used; None when unknown.
    """

    limits: Limits
    attempts: int = 0
    requests: int = 0
    used: float = 0.0
    tokens: float | None = None
    _started: float | None = None

    def begin(self, turn: Turn) -> None:
        """Note that a request is about to be sent."""
        self.requests += 1
        self.attempts += not turn.probe
        if self._started is None:
            self._started = turn.began

    def elapsed(self) -> float:
        """Seconds since its first request, all waits included; 0 before it."""
        return 0.0 if self._started is None else time.monotonic() - self._started

    def left(self) -> float:
        """Seconds until its deadline."""
        return self.limits.timeout_call - self.used

    def left_for_attempt(self) -> float:
        """Seconds that its next request may take."""
        return min(self.limits.timeout_attempt, self.left())

    def backoff(self) -> float:
        """Seconds to wait before the next attempt when the server does not say."""
        doubled = self.limits.backoff * 2 ** (max(1, self.attempts) - 1)
        return min(_BACKOFF_LIMIT, doubled) * _JITTER.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: URL
    data: bytes
    tokens: float
    headers: Mapping[str, str]


@dataclass(eq=False)
class _Line:
    """What one process has open to the server; belongs to the background loop."""

    connections: Connections
    gate: Gate


class _Key:
    """An API key that shows itself only as a header."""

    def __init__(self, value: str | None, variable: str, header: str) -> None:
        self._value = (value or "").strip()
        self.variable = variable
        if not all("!" <= char <= "~" for char in self._value):
            # The HTTP library would refuse it too, with the key in the message.
            raise ConfigError(f"the key in {variable} has a character that no key has, such as a line break")
        self._header = header

    def __repr__(self) -> str:
        return "[key]" if self._value else "[no key]"

    @property
    def headers(self) -> dict[str, str]:
        plain = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self._value:
            plain[self._header] = f"Bearer {self._value}" if self._header == "Authorization" else self._value
        return plain

    def hidden_in(self, text: str) -> str:
        """`text` without the key, also where what was cut off is its end; dummies such as `EMPTY` stay."""
        key, at = self._value, 0
        while len(key) >= _KEY_LIKE and (at := text.find(key[:_KEY_LIKE], at)) >= 0:
            shown = next(n for n in range(len(key), 0, -1) if text.startswith(key[:n], at))
            text = f"{text[:at]}[key]{text[at + shown :]}"
            at += len("[key]")
        return text


def _outcome_of(failure: Failure) -> Outcome:
    if failure.refusal:
        return "refused"
    return "failed" if failure.retry else "served"  # a server that says no has understood the question


def _close(lines: dict[int, _Line]) -> None:
    if line := lines.get(os.getpid()):
        line.connections.close()
