"""The ASGI middleware in front of the server: who may send, and how much.

Written against ASGI itself, because a framework reads a whole body before its middleware sees it.  Slow and
idle clients are uvicorn's matter (`CONCURRENCY`, `IDLE_SECONDS`), and a proxy's where strangers can connect.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from factrl.rewards.remote import REQUEST_LIMIT

IDLE_SECONDS = 30  # of a connection that asks nothing more
CONCURRENCY = 512  # connections or requests at once, well below the files that a process may open; then 503
BODY_LIMIT = REQUEST_LIMIT
BUSY = 2  # seconds after which a client that was turned away may come back
_OPEN = ("/", "/health/live", "/health/ready")  # without the token; the page itself holds no data
_AUTHORITY = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([^:/@\[\]]+))(?::[0-9]*)?")


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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on with its whole body."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal, body = self._refused(scope), bytearray()
        if refusal is None and scope["method"] == "POST":
            refusal = _unreadable(scope) or await _read(receive, body)
        if refusal is not None:
            await _refusal_response(refusal)(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def again() -> Message:
            return whole.pop() if whole else await receive()

        await self._app(scope, again if scope["method"] == "POST" else receive, send)

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
        if is_open and scope["method"] not in ("GET", "HEAD"):
            return 405, "use GET"
        lengths, codings = _values(scope, b"content-length"), _values(scope, b"transfer-encoding")
        if scope["method"] != "POST" and (codings or any(length != b"0" for length in lengths)):
            return 400, "only POST takes a body"
        if lengths and codings:
            return 400, "give Content-Length or Transfer-Encoding, not both"
        return None

    def _unauthorized(self, scope: Scope, is_open: bool) -> tuple[int, str] | None:
        """Why a request counts as one without the token, else None."""
        headers = _values(scope, b"authorization")
        if not self._token:
            return None
        if is_open and not headers:
            return 401, ""
        scheme, _, token = headers[0].partition(b" ") if len(headers) == 1 else (b"", b"", b"")
        if scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(b" "), self._token):
            return None
        return 401, "give the server's token: Authorization: Bearer TOKEN"


async def _read(receive: Receive, body: bytearray) -> tuple[int, str] | None:
    """Read a request into `body`; returns why it is refused."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return 400, "the client left"
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > BODY_LIMIT:
            return _too_large()
    return None


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


def _refusal_response(refusal: tuple[int, str]) -> JSONResponse:
    """The response to a refused request, which closes the connection."""
    status, detail = refusal
    headers = {401: {"www-authenticate": "Bearer"}, 405: {"allow": "GET"}}.get(status, {})
    return JSONResponse({"detail": detail}, status, {**headers, "connection": "close"})
