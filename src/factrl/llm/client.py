"""Asking a web server for JSON, politely and without ever hanging.

One retry loop, one total deadline per call, a capped body, no redirects.  The deadlines are ours and not
the HTTP library's: a read timeout starts again with every byte, so a server that drips could hold a call
for ever.  All I/O runs on one event loop in the background: connections belong to the loop that made them.

Each request has a connection of its own, which is closed behind its reply.  HTTP/1.1 tells replies apart by
their order alone: on a connection that is kept, one that nobody asked for becomes the answer to the next
question, and every later one is the answer to the question before.

aiohttp carries the bytes: 0.1 ms of CPU per request against httpx's 2 (`benchmarks/client.py`).
"""

from __future__ import annotations

import asyncio
import atexit
import io
import json
import logging
import os
import sys
import time
import weakref
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from factrl.errors import ConfigError, LLMError
from factrl.llm.background import on_background
from factrl.llm.bodies import Failure, Unreadable, document_of, excerpt, refusal_of
from factrl.llm.limits import RETRY_AFTER_LIMIT, Call, Gate, Limits, Outcome
from factrl.llm.spending import Meter, Usage

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout  # pyright: ignore[reportMissingImports]  (comes with aiohttp there)

__all__ = ["JSONClient", "Unreadable", "checked_url"]

_LARGE = 1 << 20  # bytes
_KEY_LIKE = 8  # characters; a shorter key is a word
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
        self._lines: dict[int, _Line] = {}  # by process
        weakref.finalize(self, _let_go, self._lines.values()).atexit = False

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
        return line is not None and line.gate.down_since is not None

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
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """One request, repeated while that can help and the limits allow it.

        Args:
            method, path: `GET` or `POST`, and what is appended to the address.
            body: sent as JSON; None for no body.
            read: makes the result of the parsed JSON; raises `Unreadable` when it is not what was asked for.
            call: the call that the request belongs to; None for one of its own.
            headers: sent beside the usual ones, the same with every attempt.

        Raises:
            LLMError: `connection`, `timeout`, `http_429`, `http_5xx` or `bad_body` when the attempts or the
                time ran out; at once `auth`, `redirect`, `context_length`, `http_<status>` or `budget`;
                `breaker_open` when the server stayed down for longer than `pause`.
        """
        data = b"" if body is None else json.dumps(body).encode()
        request = _Request(method, URL(self.base_url + path), data, headers or {}, read)
        return await on_background(self._ask(request, call or self.call()))

    async def _ask(self, request: _Request[T], call: Call) -> T:
        line = self._line()
        while True:
            try:
                return await self._send(line, request, call)
            except Failure as error:
                failure = error
            hopeless = not failure.retry or (failure.wait or 0.0) > RETRY_AFTER_LIMIT
            if hopeless or call.attempts >= call.limits.max_attempts:
                raise self.error(failure, call)
            if line.gate.down_since is None:  # else the next turn is what there is to wait for
                wait = failure.wait or call.backoff()
                if wait >= call.left():
                    raise self.error(failure, call)
                await asyncio.sleep(wait)
                call.used += wait

    async def _send(self, line: _Line, request: _Request[T], call: Call) -> T:
        """One request, when its turn has come.

        Raises:
            Failure: no usable reply.
            LLMError: `budget`.
        """
        turn = await line.gate.enter(again=call.requests > 0)
        began = time.monotonic()
        outcome: Outcome = "dropped"
        wait, why = None, ""
        try:
            if spent := self.meter.no_more_requests():
                raise self._over_budget(spent, call)
            self.meter.requests += 1
            self.meter.retries += call.requests > 0
            call.begin(turn)
            result = await self._attempt(line, request, call.limit(turn))
            outcome = "served"
            return result
        except Failure as failure:
            # A server that says no for good has understood the question.
            outcome = "refused" if failure.refusal else "failed" if failure.retry else "served"
            if turn.probe:  # its caller waits with all others, whatever it is told
                failure.wait = None
            wait, why = failure.wait, failure.detail
            raise
        finally:
            if not turn.probe:  # it is everybody's question, not this call's
                call.used += time.monotonic() - began
            line.gate.leave(turn, outcome, wait=wait, why=why)

    async def _attempt(self, line: _Line, request: _Request[T], limit: float) -> T:
        try:
            async with timeout(limit):
                return await self._exchange(line, request)
        except asyncio.TimeoutError:
            detail = f"no complete reply within {limit:.3g} s"
            raise Failure("timeout", detail, refusal=True) from None
        except (aiohttp.ClientError, OSError, UnicodeError) as error:  # Unicode: a name DNS cannot hold
            root: BaseException = error
            while inner := root.__cause__ or root.__context__:  # the innermost says which way it failed
                root = inner
            why = excerpt(str(root)) or type(root).__name__
            raise Failure("connection", self._key.hidden_in(f"could not be reached: {why}")) from None

    async def _exchange(self, line: _Line, request: _Request[T]) -> T:
        async with line.session.request(
            request.method,
            request.url,
            # aiohttp warns when a large body is handed over as one piece.
            data=io.BytesIO(request.data) if len(request.data) >= _LARGE else request.data or None,
            headers={**request.headers, **self._key.headers},
            allow_redirects=False,
            proxy=line.proxy,
            proxy_headers=line.login,
        ) as response:
            _LOG.debug("%s %s answered %d", request.method, request.url, response.status)
            request_id = response.headers.get("x-request-id") or response.headers.get("request-id") or ""
            try:
                if 200 <= response.status < 300:
                    return request.read(await document_of(response))
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
        if pid not in self._lines:
            self._lines[pid] = _Line(self.base_url, self.limits)
        return self._lines[pid]


@dataclass(frozen=True, slots=True)
class _Request(Generic[T]):
    method: str
    url: URL
    data: bytes
    headers: Mapping[str, str]
    read: Callable[[Any], T]


class _Line:
    """What one process has open to the server; belongs to the background loop."""

    def __init__(self, base_url: str, limits: Limits) -> None:
        self.gate = Gate(base_url, limits)
        self.proxy, self.login = _proxy_for(URL(base_url))
        self.session = aiohttp.ClientSession(
            headers=self.login if base_url.startswith("http:") else None,  # else only the proxy may see it
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_read=None, sock_connect=None),
            auto_decompress=False,
        )
        _OPEN.add(self)


# With no connection kept there is none to close; but aiohttp complains of sessions that just end, and what a
# parent has open is not its forked child's.
_OPEN: weakref.WeakSet[_Line] = weakref.WeakSet()


def _let_go(lines: Iterable[_Line] = _OPEN) -> None:
    for line in list(lines):
        line.session.detach()


atexit.register(_let_go)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


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


def checked_url(base_url: str, key_variable: str, example: str = "http://localhost:8000/v1") -> str:
    """The address without a slash at its end.

    Raises:
        ConfigError: it is not one, or holds a key.
    """
    if "@" in base_url or "?" in base_url:
        # Addresses are logged, and this message must not show it either.
        raise ConfigError(f"the server's address holds a password or a key; use {key_variable} instead")
    try:
        url = URL(base_url)
        usable = url.scheme in ("http", "https") and url.host and " " not in url.host and not url.fragment
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{base_url!r} is not the address of a server; write it like {example}")
    return base_url.rstrip("/")


def _proxy_for(url: URL) -> tuple[URL | None, dict[str, str]]:
    """The proxy that the environment names for this address, and the header that logs in there.

    The password leaves the proxy's address, which aiohttp shows in its errors.  A proxy is for the world
    outside; clusters set one and cannot reach localhost by it.
    """
    host = url.host or ""
    if host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
        return None, {}
    proxies = getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named:
        return None, {}
    try:
        proxy = URL(named if "://" in named else f"http://{named}")
    except ValueError:
        proxy = URL()
    if proxy.scheme not in ("http", "https"):
        raise ConfigError(
            f"the proxy that the environment names for {url.scheme} is not an http(s):// address"
        )
    if proxy.user is None:
        return proxy, {}
    login = b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    return proxy.with_user(None), {"Proxy-Authorization": f"Basic {login}"}
