"""A headless Chromium on loopback pages, driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --hide-scrollbars "
    "--remote-debugging-port=0 about:blank"
)
_WAIT = 90  # seconds that a page may take on a busy machine
_KEYS = {
    "Tab": ("\t", 9),
    "Enter": ("\r", 13),
    "ArrowLeft": ("", 37),
    "ArrowRight": ("", 39),
    "Space": (" ", 32),
}


class Browser:
    """One tab.

    Attributes:
        asked: the addresses that it has requested, those of pages among them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._loop, self._socket, self._number = loop, socket, 0
        self.asked: list[str] = []
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """What a command of the protocol gives."""
        self._number += 1

        async def answer() -> dict[str, Any]:
            await self._socket.send_json({"id": self._number, "method": method, "params": params})
            while (message := await self._socket.receive_json()).get("id") != self._number:
                if message.get("method") == "Network.requestWillBeSent":
                    self.asked.append(message["params"]["request"]["url"])
            return message

        message = self._loop.run_until_complete(asyncio.wait_for(answer(), _WAIT))
        assert "error" not in message, message
        return message["result"]

    def js(self, expression: str) -> Any:
        """The value of an expression in the page, of a promise what comes of it."""
        reply = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def until(self, expression: str) -> Any:
        """The value of an expression once it is true."""
        ends = time.monotonic() + _WAIT
        while not (value := self.js(expression)):
            assert time.monotonic() < ends, f"{expression}; {self.js('document.body.innerText')}"
            time.sleep(0.05)
        return value

    def open(self, url: str, *, width: int = 1440, height: int = 900, scheme: str = "light") -> None:
        """Another page, as on a screen of this width."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=media)
        self.call("Page.navigate", url="about:blank")  # or another # would be no other page
        self.asked.clear()
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def press(self, *keys: str) -> None:
        """Keys, one after the other."""
        for key in keys:
            text, code = _KEYS[key]
            event = {"key": key.replace("Space", " "), "code": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text if key != "Tab" else "", **event)
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text: str) -> None:
        """Text where the focus is."""
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """All of the page as a PNG."""
        path.write_bytes(
            base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])
        )


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own."""
    command = [str(PROGRAM), *_FLAGS.split(), f"--user-data-dir={profile}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    loop = asyncio.new_event_loop()
    try:
        session, socket = loop.run_until_complete(_connected(profile / "DevToolsActivePort"))
        yield Browser(loop, socket)
        loop.run_until_complete(session.close())
    finally:
        process.terminate()
        process.wait()
        loop.close()


async def _connected(port: Path) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    ends = time.monotonic() + _WAIT
    while not (port.is_file() and port.read_text().strip()):
        assert time.monotonic() < ends, "the browser did not start"
        await asyncio.sleep(0.05)
    session = aiohttp.ClientSession()
    address = f"http://127.0.0.1:{port.read_text().split()[0]}/json/list"
    async with session.get(address) as answer:
        tabs = await answer.json()
    tab = next(tab for tab in tabs if tab["type"] == "page")
    return session, await session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)
