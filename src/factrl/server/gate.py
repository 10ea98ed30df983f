"""The ASGI middleware in front of the server: who may send, how much and how slowly.

Written against ASGI itself, because a framework reads a whole body before its middleware sees it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import time
from collections import deque
from typing import Any

import anyio
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from factrl.rewards.remote import REQUEST_LIMIT

IDLE_SECONDS = 30  # for the head of a request to arrive, and for an answer to be fetched
CONNECTIONS = 512  # open at once; well below the 1,024 files that a process may usually open
BACKLOG = 256  # connections that wait to be accepted; with the others still below that limit
BODY_LIMIT = REQUEST_LIMIT
BODY_SECONDS = 30.0  # for a whole body to arrive
INSIDE = 256  # requests that may be in progress at once; more get 429
BODIES = 8 * BODY_LIMIT  # bytes of all their bodies together
FAILURES = 10  # after this many wrong tokens of one address within `WINDOW`, its wrong tokens get 429
WINDOW = 60.0  # seconds
BUSY = 2  # seconds after which a client that was turned away may come back
_ADDRESSES = 10_000  # at most so many addresses have their failures counted
_OPEN = ("/", "/health/live", "/health/ready")  # without the token; the page itself holds no data
_AUTHORITY = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([^:/@\[\]]+))(?::[0-9]*)?")
_FULL = "the server is full; come back in a few seconds"


class Gate:
    """An ASGI application in front of another one.

    Behind it `scope["factrl.anonymous"]` says whether the client came without the token.

    Args:
        app: what is behind the gate.
        token: what every request but those for health and the page must bring as a bearer token; with none,
            requests must name this machine as their host.
    """

    def __init__(self, app: Any, token: str = "") -> None:
        self._app, self._token = app, token.encode()
        self._inside = self._buffered = 0  # requests, and bytes of their bodies
        self._failures: dict[str, deque[float]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on with its whole body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refused(scope)
        if refusal is not None:
            await _refusal_response(refusal, wait=int(WINDOW))(scope, receive, send)
        elif scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif self._inside >= INSIDE:
            await _refusal_response((429, _FULL))(scope, receive, send)
        else:
            self._inside += 1
            parts: list[bytes] = []
            try:
                await self._work(scope, receive, send, parts)
            finally:
                self._inside -= 1
                self._buffered -= sum(map(len, parts))

    async def _work(self, scope: Scope, receive: Receive, send: Send, parts: list[bytes]) -> None:
        refusal = _unreadable(scope) or await self._read(receive, parts)
        if refusal is not None:
            await _refusal_response(refusal)(scope, receive, send)
            return
        parts[:] = [b"".join(parts)]
        whole: list[Message] = [{"type": "http.request", "body": parts[0], "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, again, send)

    def _refused(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is refused, before its body is read; else None."""
        elsewhere = None if self._token else _of_other_site(scope)
        if elsewhere is not None:
            return elsewhere
        is_open = scope["path"] in _OPEN
        refusal = self._unauthorized(scope, is_open)
        scope["factrl.anonymous"] = refusal is not None
        if refusal is not None and not is_open:
            return refusal
        if is_open and scope["method"] != "GET":
            return 405, "use GET"
        lengths, codings = _values(scope, b"content-length"), _values(scope, b"transfer-encoding")
        if scope["method"] != "POST" and (codings or any(length != b"0" for length in lengths)):
            return 400, "only POST takes a body"
        if lengths and codings:
            return 400, "give Content-Length or Transfer-Encoding, not both"
        return None

    def _unauthorized(self, scope: Scope, is_open: bool) -> tuple[int, str] | None:
        """Why a request counts as one without the token, else None; wrong tokens are counted."""
        headers = _values(scope, b"authorization")
        if not self._token:
            return None
        if is_open and not headers:
            return 401, ""
        address = (scope.get("client") or ("", 0))[0]
        recent = self._failures.get(address, deque())
        while recent and time.monotonic() - recent[0] > WINDOW:
            recent.popleft()
        scheme, _, token = headers[0].partition(b" ") if len(headers) == 1 else (b"", b"", b"")
        if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(b" "), self._token):
            return None  # even if others guessed from this address, which may be a proxy's
        if len(recent) >= FAILURES:
            return 429, "too many wrong tokens from this address; wait a minute"
        if len(self._failures) >= _ADDRESSES:
            self._failures.clear()
        self._failures.setdefault(address, recent).append(time.monotonic())
        return 401, "give the server's token: Authorization: Bearer TOKEN"

    async def _read(self, receive: Receive, parts: list[bytes]) -> tuple[int, str] | None:
        """Read a body into `parts`; returns why it is refused."""
        size, more = 0, True
        with anyio.move_on_after(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return 400, "the client left"
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                self._buffered += len(parts[-1])
                more = message.get("more_body", False)
                if size > BODY_LIMIT:
                    return _too_large()
                if self._buffered > BODIES:
                    return 429, _FULL
            return None
        return 408, f"the body did not arrive within {BODY_SECONDS:g} s"


def _unreadable(scope: Scope) -> tuple[int, str] | None:
    headers = dict(scope["headers"])
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if kind != b"application/json":
        return 415, "send JSON, as Content-Type: application/json"
    if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        return 415, "send the body as it is, without Content-Encoding"
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or int(length) > BODY_LIMIT:
        return _too_large()
    return None


def _too_large() -> tuple[int, str]:
    return 413, f"the body is larger than {BODY_LIMIT} bytes; send fewer samples at once"


def is_loopback(host: str) -> bool:
    """Whether a name or an address can be reached from this machine alone."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _of_other_site(scope: Scope) -> tuple[int, str] | None:
    """Why a request is refused that a browser may have sent for a page of another site; else None.

    That site may also have a host name of its own that leads to this machine.
    """
    address = (scope.get("server") or ("", 0))[0]
    hosts = _values(scope, b"host")
    if len(hosts) != 1 or not _is_here(hosts[0], address):
        return 421, f"this server has no token, so the Host of a request must be localhost or {address}"
    if not all(_is_here(origin.partition(b"://")[2], address) for origin in _values(scope, b"origin")):
        return 403, "this server has no token, so pages of other hosts may not ask it"
    return None


def _is_here(authority: bytes, address: str) -> bool:
    """Whether a host with or without a port is this machine, or the address that was asked."""
    match = _AUTHORITY.fullmatch(authority)
    host = (match[1] or match[2]).decode("latin-1") if match else ""
    return host == address or is_loopback(host)


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _refusal_response(refusal: tuple[int, str], *, wait: int | None = None) -> JSONResponse:
    """The response to a refused request; it closes the connection unless the client may retry.

    Args:
        wait: seconds after which a client whose connection is closed may come back.
    """
    status, detail = refusal
    headers = {401: {"www-authenticate": "Bearer"}, 405: {"allow": "GET"}}.get(status, {})
    if status == 429:
        headers["retry-after"] = str(wait or BUSY)
    if status != 429 or wait:
        headers["connection"] = "close"
    return JSONResponse({"detail": detail}, status, headers)


class Connection(H11Protocol):
    """uvicorn's HTTP/1 with a limit on idle time; the gate limits the time of a request's body."""

    _end: asyncio.TimerHandle | None = None  # set while the server waits for the client

    def connection_made(self, transport: Any) -> None:
        """A connection beyond `CONNECTIONS` replaces the one that has been idle the longest."""
        if len(self.connections) >= CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, Connection)]
            waiting = {one._end.when(): one for one in others if one._end is not None}
            if waiting:
                longest = waiting[min(waiting)]
                longest.transport.abort()
                self.connections.discard(longest)
            else:
                transport.abort()
        super().connection_made(transport)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_timer()

    def handle_events(self) -> None:
        super().handle_events()
        self._update_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._update_timer()

    def _update_timer(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused:
            self._stop_timer()  # the client waits for us
        elif self._end is None:
            self._end = self.loop.call_later(IDLE_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
