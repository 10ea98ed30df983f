"""A client of a web server that speaks JSON: retries, deadlines, limits, and never another request's reply.

One retry loop, one total deadline per call, a capped body, no redirects.  The deadlines are ours and not
the HTTP library's: a read timeout starts again with every byte, so a server that sends a byte now and then
could hold a call for ever.  All I/O runs on one event loop in the background: connections belong to the loop
that made them.

Each request has a connection of its own, which is closed after its reply.  HTTP/1.1 tells replies apart by
their order alone: on a connection that is kept, a reply that nobody asked for becomes the answer to the next
question, and every later one is the answer to the question before.

aiohttp carries the bytes: 0.1 ms of CPU per request against httpx's 2.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import random
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.request import getproxies, proxy_bypass

import aiohttp
from pydantic import SecretStr
from yarl import URL

from factrl.errors import ConfigError, LLMError
from factrl.llm.background import on_background
from factrl.llm.bodies import REFUSALS, Failure, Unreadable, document_of, excerpt, refusal_of
from factrl.llm.limits import (
    RETRY_AFTER_LIMIT,
    Limits,
    RateLimiter,
    RequestOutcome,
    timeout,  # pyright: ignore[reportAttributeAccessIssue]
)
from factrl.llm.spending import Meter

__all__ = ["JSONClient", "Unreadable", "checked_url"]

_LARGE = 1 << 20  # bytes
_KEY_LIKE = 8  # characters; a shorter key could be a common word
_BACKOFF_LIMIT = 8.0
_JITTER = random.SystemRandom()  # not the global generator, which belongs to the training seed
_LOG = logging.getLogger("factrl")

T = TypeVar("T")


@dataclass(eq=False)
class CallState:
    """One call's attempts and its clock, which is monotonic: wall clocks jump."""

    limits: Limits
    attempts: int = 0  # requests that count against `max_attempts`; probes of a server that is down do not
    requests: int = 0
    used: float = 0.0  # seconds that count against `timeout_call`: of its attempts and the waits between
    started: float | None = None  # when its first request was sent

    def elapsed(self) -> float:
        """Seconds since its first request, all waits included; 0 before it."""
        return 0.0 if self.started is None else time.monotonic() - self.started


class _Request(Generic[T]):
    """What is sent; see `JSONClient.ask`."""

    def __init__(self, method: str, path: str, body: Any, read: Callable[[Any], T], tokens: int = 0) -> None:
        self.method, self.path, self.read, self.tokens = method, path, read, tokens
        self.data = None if body is None else json.dumps(body).encode()


class JSONClient:
    """A client of one server that speaks JSON over HTTP.

    Args:
        base_url: the address that every path is appended to.
        api_key: sent with every request; never shown in a repr, a log or an error.
        key_variable: the environment variable to name when the server refuses the key; empty for none.
        key_header: the header that carries it: `Authorization` as a bearer token, any other one bare.
        stage: what the server is for, for `LLMError.facts`.
        usage: counts its requests, and may refuse further ones; a new `Meter` by default.
        limits: the fields of `factrl.llm.limits.Limits`.

    Attributes:
        usage: what was sent so far.
        ping: makes a request that a healthy server answers, whatever others it refuses: method, path, body
            and reader.  None where there is no such request; it may also return None.

    Raises:
        ConfigError: a value that cannot work.
    """

    ping: Callable[[], tuple[str, str, Any, Callable[[Any], Any]] | None] | None = None

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        key_variable: str = "FACTRL_JUDGE_API_KEY",
        key_header: str = "Authorization",
        stage: str = "judge",
        usage: Meter | None = None,
        **limits: Any,
    ) -> None:
        self.base_url = checked_url(base_url, key_variable)
        self.limits = Limits(**limits)
        self.usage = usage or Meter()
        self._stage, self._key_variable, self._key_header = stage, key_variable, key_header
        self._key = SecretStr((api_key or "").strip())
        if not all("!" <= char <= "~" for char in self._key.get_secret_value()):
            # The HTTP library would refuse it too, with the key in the message.
            raise ConfigError(
                f"the key in {key_variable} has a character that no key has, such as a line break"
            )
        self._endpoints: dict[int, _Endpoint] = {}  # by process

    def __repr__(self) -> str:
        return f"JSONClient({self.base_url!r})"

    def __getstate__(self) -> dict[str, Any]:
        """For a spawned process: without connections, and without the key, which it reads from the variable.

        Raises:
            ConfigError: the key was given in Python.
        """
        key = self._key.get_secret_value()
        if key and key != os.environ.get(self._key_variable, "").strip():
            raise ConfigError(
                f"{self!r} was given its key in Python, and keys are not pickled for another process; set "
                f"{self._key_variable} instead, which every process reads"
            )
        return {**vars(self), "_endpoints": {}, "_key": bool(key)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._key = SecretStr(os.environ.get(self._key_variable, "").strip() if state["_key"] else "")

    def call(self, limits: Limits | None = None) -> CallState:
        """A new call, for several requests that share their attempts and their deadline.

        Raises:
            LLMError: `budget`, no further call may be made.
        """
        call = CallState(limits or self.limits)
        self._check_budget(call)
        self.usage.calls += 1
        return call

    async def ask(
        self,
        method: str,
        path: str,
        body: Any,
        read: Callable[[Any], T],
        *,
        call: CallState | None = None,
        tokens: int = 0,
    ) -> T:
        """One request, repeated while that can help and the limits allow it.

        Args:
            method, path: `GET` or `POST`, and what is appended to the address.
            body: sent as JSON; None for no body.
            read: makes the result of the parsed JSON; raises `Unreadable` when it is not what was asked for.
            call: the call that the request belongs to; None for one of its own.
            tokens: how many it may use, for `Limits.tpm`; `read` adds the number really used to `usage`.

        Raises:
            LLMError: `connection`, `timeout`, `http_429`, `http_5xx` or `bad_body` when the attempts or the
                time ran out; at once `auth`, `redirect`, `context_length`, `http_<status>` or `budget`;
                `breaker_open` when the server stayed down for longer than `pause`.
        """
        request = _Request(method, path, body, read, tokens)
        return await on_background(self._retried(request, call or self.call()))

    async def _retried(self, request: _Request[T], call: CallState) -> T:
        if (endpoint := self._endpoints.get(os.getpid())) is None:
            endpoint = _Endpoint(self.base_url, self.limits, pings=self.ping is not None)
            self._endpoints[os.getpid()] = endpoint
        while True:
            try:
                return await self._attempt(endpoint, request, call)
            except Failure as error:
                failure = error
            hopeless = not failure.retry or (failure.wait or 0.0) > RETRY_AFTER_LIMIT
            if hopeless or call.attempts >= call.limits.max_attempts:
                raise self.error(failure, call)
            if endpoint.limiter.down_since is None:  # else the limiter makes the next turn wait
                doubled = call.limits.backoff * 2 ** (max(1, call.attempts) - 1)
                wait = failure.wait or min(_BACKOFF_LIMIT, doubled) * _JITTER.uniform(0.5, 1.0)
                if call.used + wait >= call.limits.timeout_call:
                    raise self.error(failure, call)
                await asyncio.sleep(wait)
                call.used += wait

    async def _attempt(self, endpoint: _Endpoint, request: _Request[T], call: CallState) -> T:
        """The request, sent when its turn has come, and after a ping where the server seems to be down.

        Raises:
            Failure: no usable reply.
            LLMError: `budget`.
        """
        turn = await endpoint.limiter.enter(request.tokens)
        ping = self.ping() if self.ping is not None and turn.probe and endpoint.limiter.pinging else None
        outcome: RequestOutcome = "dropped"
        wait, why, busy, limit = None, "", False, call.limits.timeout_attempt
        try:
            self._check_budget(call)
            self.usage.requests += 1
            self.usage.retries += call.requests > 0
            call.requests += 1
            call.started = call.started or turn.began
            if not turn.probe:  # a probe is for all calls and counts for none
                call.attempts += 1
                limit = min(limit, call.limits.timeout_call - call.used)
            try:
                async with timeout(limit):
                    reply = await self._exchange(endpoint, _Request(*ping) if ping else request)
            except asyncio.TimeoutError:
                detail = f"no complete reply within {limit:.3g} s"
                raise Failure("timeout", detail, refusal=True) from None
            outcome = "served"
            if ping is None:
                return reply
        except Failure as failure:
            # A server that refuses a request for good has read it, so it is up.
            outcome = "refused" if failure.refusal else "failed" if failure.retry else "served"
            if turn.probe:  # its caller waits with all others, whatever the server asks for
                failure.wait = None
            wait, why, busy = failure.wait, failure.detail, failure.status in REFUSALS
            if ping is None or outcome != "served":
                raise
        finally:
            if not turn.probe:
                call.used += time.monotonic() - turn.began
            endpoint.limiter.leave(turn, outcome, wait=wait, why=why, busy=busy)
        return await self._attempt(endpoint, request, call)

    async def _exchange(self, endpoint: _Endpoint, request: _Request[T]) -> T:
        data = request.data
        try:
            async with (
                endpoint.session() as session,
                session.request(
                    request.method,
                    URL(self.base_url + request.path),
                    # aiohttp warns when a large body is handed over as one piece.
                    data=io.BytesIO(data) if data and len(data) >= _LARGE else data,
                    headers=self._headers(),
                    allow_redirects=False,
                    proxy=endpoint.proxy,
                    proxy_headers=endpoint.login,
                ) as response,
            ):
                path = request.path.partition("?")[0]  # the query string may hold a claim
                _LOG.debug("%s %s%s answered %d", request.method, self.base_url, path, response.status)
                try:
                    if 200 <= response.status < 300:
                        return self._read(endpoint, request, await document_of(response))
                    raise await refusal_of(response, self._key_variable)
                except Failure as failure:
                    # Servers quote what they were sent, the key included.
                    names = ("x-request-id", "request-id")
                    request_id = next(filter(None, map(response.headers.get, names)), "")
                    failure.detail = self._without_key(failure.detail)
                    failure.request_id = self._without_key(excerpt(request_id))
                    failure.status = response.status
                    raise
        # `UnicodeError` comes of a host name that DNS cannot hold.
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            if type(error) is aiohttp.ClientResponseError:  # of its parser, so that a server is there
                detail = self._without_key(f"answered with broken HTTP: {excerpt(error.message)}")
                raise Unreadable(detail) from None
            root: BaseException = error
            while inner := root.__cause__ or root.__context__:  # the innermost names the real problem
                root = inner
            why = excerpt(str(root)) or type(root).__name__
            raise Failure("connection", self._without_key(f"could not be reached: {why}")) from None

    def _read(self, endpoint: _Endpoint, request: _Request[T], document: Any) -> T:
        before = self.usage.tokens
        try:
            return request.read(document)
        finally:  # what cannot be read has used tokens all the same
            endpoint.limiter.used(self.usage.tokens - before - request.tokens)

    def error(self, failure: Failure, call: CallState) -> LLMError:
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
            **({"field": failure.field} if failure.field else {}),
        )

    def _check_budget(self, call: CallState) -> None:
        if spent := self.usage.no_more_requests():
            raise self.error(Failure("budget", f"is not asked any more: {spent}; raise it to go on"), call)

    def _headers(self) -> dict[str, str]:
        # Wikipedia wants to know who asks, and SearXNG's limiter turns the library's own name away.
        headers = {
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "factrl",
        }
        if key := self._key.get_secret_value():
            headers[self._key_header] = f"Bearer {key}" if self._key_header == "Authorization" else key
        return headers

    def _without_key(self, text: str) -> str:
        """`text` without the key, even where the key's end is cut off; dummy keys such as `EMPTY` stay."""
        key, at = self._key.get_secret_value(), 0
        while len(key) >= _KEY_LIKE and (at := text.find(key[:_KEY_LIKE], at)) >= 0:
            shown = next(n for n in range(len(key), 0, -1) if text.startswith(key[:n], at))
            text = f"{text[:at]}[key]{text[at + shown :]}"
            at += len("[key]")
        return text


class _Endpoint:
    """One process's connections and limits for a server; used on the background loop alone."""

    def __init__(self, base_url: str, limits: Limits, *, pings: bool) -> None:
        self.limiter = RateLimiter(base_url, limits, pings=pings)
        self.proxy, self.login = _proxy_for(URL(base_url))
        self._connector = aiohttp.TCPConnector(limit=0, force_close=True)
        # Over HTTPS only the proxy may see the login, not the server.
        self._headers = self.login if base_url.startswith("http:") else None

    def session(self) -> aiohttp.ClientSession:
        """A session for one request: a lasting one would have to be closed at exit and after a fork."""
        return aiohttp.ClientSession(
            headers=self._headers,
            connector=self._connector,
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_read=None, sock_connect=None),
            auto_decompress=False,
        )


def checked_url(base_url: str, key_variable: str, example: str = "http://localhost:8000/v1") -> str:
    """The address without a slash at its end.

    Raises:
        ConfigError: it is not one, or holds a key.
    """
    if "@" in base_url or "?" in base_url:
        # Addresses are logged, and this message must not show it either.
        raise ConfigError(
            "the server's address holds a password or a key; "
            + (f"use {key_variable} instead" if key_variable else "leave it out")
        )
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

    aiohttp's own `trust_env` would send the logins of `~/.netrc` too, ignore proxies that it cannot use, and
    ask a proxy for localhost, which those of clusters cannot reach.  The password is taken out of the
    proxy's address, because errors show that address.
    """
    host = url.host or ""
    proxies = getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or host in ("localhost", "::1") or host.startswith("127.") or proxy_bypass(host):
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
