"""The door of the server, before anything is parsed: who may enter, with how much, and how slowly.

Written against ASGI itself, because a framework reads a body whole before it asks anybody.
"""

from __future__ import annotations

import hmac
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from ..remote_reward import REQUEST_LIMIT

BODY_LIMIT = REQUEST_LIMIT
BODY_SECONDS = 30.0  # for a whole body to arrive
INSIDE = 256  # requests that are read or worked on; further ones are told to come back
FAILURES = 10  # wrong tokens of one address in `WINDOW`, after which it is not listened to
WINDOW = 60.0  # seconds
BUSY = 2  # seconds after which a client that was turned away may come back
_ADDRESSES = 10_000  # whose failures are remembered
_OPEN = ("/health/live", "/health/ready")

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Gate:
    """An ASGI application in front of another one.

    Args:
        app: what is behind the gate.
        token: what every request but those for health must bring as a bearer token; empty for none.
        body_limit: bytes of a body; more is refused as soon as it is known.
        body_seconds: for a body to arrive.
        inside: requests that are read or worked on at the same time.
    """

    def __init__(
        self,
        app: Any,
        token: str = "",
        *,
        body_limit: int = BODY_LIMIT,
        body_seconds: float = BODY_SECONDS,
        inside: int = INSIDE,
    ) -> None:
        self._app, self._token = app, token.encode()
        self._limit, self._seconds = body_limit, body_seconds
        self._most, self._inside = inside, 0
        self._failures: dict[str, deque[float]] = {}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on with its whole body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refused(scope)
        if refusal is not None:
            await _refuse(send, *refusal, wait=int(WINDOW))
        elif scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif self._inside >= self._most:
            await _refuse(send, 429, f"{self._inside} requests are worked on; come back in a few seconds")
        else:
            self._inside += 1
            try:
                await self._work(scope, receive, send)
            finally:
                self._inside -= 1

    async def _work(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        refusal, receive = await self._with_body(scope, receive)
        if refusal is not None:
            await _refuse(send, *refusal)
        else:
            await self._app(scope, receive, send)

    def _refused(self, scope: dict[str, Any]) -> tuple[int, str] | None:
        if not self._token or scope["path"] in _OPEN:
            return None
        address = (scope.get("client") or ("", 0))[0]
        recent = self._failures.get(address, deque())
        while recent and time.monotonic() - recent[0] > WINDOW:
            recent.popleft()
        if len(recent) >= FAILURES:
            return 429, "too many wrong tokens from this address; wait a minute"
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) == 1 and hmac.compare_digest(given[0], b"Bearer " + self._token):
            return None
        if len(self._failures) >= _ADDRESSES:
            self._failures.clear()
        self._failures.setdefault(address, recent).append(time.monotonic())
        return 401, "give the server's token: Authorization: Bearer TOKEN"

    async def _with_body(
        self, scope: dict[str, Any], receive: Receive
    ) -> tuple[tuple[int, str] | None, Receive]:
        """Read the body; returns why not, and a `receive` that gives it."""
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if kind != b"application/json":
            return (415, "send JSON, as Content-Type: application/json"), receive
        if headers.get(b"content-encoding", b"identity").strip().lower() != b"identity":
            return (415, "send the body as it is, without Content-Encoding"), receive
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self._limit:
            return (413, f"the body is larger than {self._limit} bytes; send fewer samples at once"), receive
        parts, size, more = [], 0, True
        with anyio.move_on_after(self._seconds):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return (400, "the client left"), receive
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                more = message.get("more_body", False)
                if size > self._limit:
                    detail = f"the body is larger than {self._limit} bytes; send fewer samples at once"
                    return (413, detail), receive
        if more:
            return (408, f"the body did not arrive within {self._seconds:g} s"), receive
        whole: list[Message] = [{"type": "http.request", "body": b"".join(parts), "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        return None, again


async def _refuse(send: Send, status: int, detail: str, *, wait: int = BUSY) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 429:
        headers.append((b"retry-after", b"%d" % wait))
    if status in (408, 413):
        headers.append((b"connection", b"close"))  # what is left of the body is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
