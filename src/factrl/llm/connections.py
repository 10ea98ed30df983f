"""The open connections of one process to one server: made on the background loop, closed at the end, left to
the parent in a forked child.

Each request has a connection of its own, which is closed behind its reply.  HTTP/1.1 tells replies apart by
their order alone: on a connection that is kept, one that nobody asked for becomes the answer to the next
question, and every later one is the answer to the question before.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from base64 import b64encode
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from factrl.errors import ConfigError
from factrl.llm.background import background_loop


class Connections:
    """Connections to one server; belong to the process and the event loop that made them.

    Attributes:
        session: aiohttp's, without deadlines, cookies, decompression or a limit of its own.
        proxy: arguments of a request that lead it through the proxy, when there is one.
    """

    def __init__(self, base_url: str) -> None:
        url = URL(base_url)
        proxy, login = _proxy_for(url)
        self.proxy: dict[str, Any] = {"proxy": proxy, "proxy_headers": login} if proxy else {}
        self.session = aiohttp.ClientSession(
            headers=login if url.scheme == "http" else None,  # with https only the proxy itself may see it
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_read=None, sock_connect=None),
            auto_decompress=False,
        )
        _OPEN.add(self)

    def close(self) -> Future[None]:
        """Begin to close them, from any thread."""
        return asyncio.run_coroutine_threadsafe(self.session.close(), background_loop())


def _proxy_for(url: URL) -> tuple[URL | None, dict[str, str]]:
    """The proxy that the environment names for this address, and the header that logs in there.

    The password leaves the address, which aiohttp shows in its errors.

    A proxy is for the world outside; clusters set one and cannot reach localhost by it.
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


def root_of(error: BaseException) -> BaseException:
    """The innermost cause: the outer ones do not say which way a connection failed."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return error


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


_OPEN: weakref.WeakSet[Connections] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Before the interpreter takes the event loop apart: sessions that are still open then complain."""
    wait_for_all([open.close() for open in list(_OPEN) if not open.session.closed], timeout=2.0)


def _disown() -> None:
    """In a forked child: what the parent has open is not the child's to close."""
    for theirs in list(_OPEN):
        theirs.session.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown)
