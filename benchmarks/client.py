"""What one call to a model server costs this side in CPU: aiohttp bare, the client on it, httpx bare.

    python benchmarks/client.py [CALLS]
    python benchmarks/client.py --outages       what two outages cost, in real time (two minutes)

A server in another process answers at once, so the CPU seconds of this process are the client's own.  All
variants send the same 2,000 characters and parse the same reply, 32 at a time, in turns, so that a machine
that slows down slows them all; the best of the rounds counts.  httpx is left out when it is not installed.

The outages are met with the client's default limits: a server that answers 429 to everybody for 60 seconds,
1,000 calls at once; and one that is gone for 30 seconds, its port closed and its connections cut, after 1,000
of 5,000 calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from factrl.llm.background import wait_for
from factrl.llm.openai_compatible import OpenAICompatible
from factrl.llm.store import CachedLLM, Store

AT_ONCE, ROUNDS, WARM = 32, 5, 200
MESSAGES = [{"role": "user", "content": "x" * 2000}]
BODY = json.dumps({"model": "m", "messages": MESSAGES, "temperature": 0.0, "max_tokens": 512}).encode()
HEADERS = {"Content-Type": "application/json", "Accept-Encoding": "identity"}

SERVER = r"""
import asyncio, json, sys, time
kind, seconds, after = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
message = {"role": "assistant", "content": "supported"}
choice = {"index": 0, "message": message, "finish_reason": "stop"}
usage = {"prompt_tokens": 700, "completion_tokens": 2, "total_tokens": 702}
body = json.dumps({"id": "chatcmpl-1", "model": "m", "choices": [choice], "usage": usage}).encode()
head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
slow = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\n{}"
requests, ends, connected, running = 0, None, set(), None
async def go_away(loop, port):
    global running
    running.close()
    for transport in list(connected):
        transport.abort()
    await asyncio.sleep(seconds)
    running = await loop.create_server(Server, "127.0.0.1", port, backlog=1024)
class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport, self.seen = transport, b""
        connected.add(transport)
    def connection_lost(self, error):
        connected.discard(self.transport)
    def answer(self):
        global requests, ends
        requests += 1
        if kind != "none" and ends is None and requests > after:
            ends = time.monotonic() + seconds
            if kind == "gone":
                port = self.transport.get_extra_info("sockname")[1]
                self.task = asyncio.ensure_future(go_away(asyncio.get_running_loop(), port))
                return
        if kind == "429" and time.monotonic() < (ends or 0):
            self.transport.write(slow)
        else:
            self.transport.write(head + body)
    def data_received(self, data):
        self.seen += data
        while (end := self.seen.find(b"\r\n\r\n")) >= 0:
            at = self.seen.lower().find(b"content-length:", 0, end)
            length = int(self.seen[at + 15 : self.seen.find(b"\r\n", at)]) if at >= 0 else 0
            if len(self.seen) < end + 4 + length:
                return
            self.seen = self.seen[end + 4 + length :]
            self.answer()
async def main():
    global running
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    running = await loop.create_server(Server, "127.0.0.1", 0, backlog=1024)
    print(running.sockets[0].getsockname()[1], flush=True)
    loop.add_reader(sys.stdin.fileno(), over.set)  # it ends with whoever started it
    await over.wait()
    print(requests, flush=True)
asyncio.run(main())
"""
Once = Callable[[], Awaitable[Any]]


async def cpu_per_call(once: Once, calls: int) -> float:
    """CPU milliseconds of this process per call."""

    async def worker(share: int) -> None:
        for _ in range(share):
            await once()

    start = time.process_time()
    await asyncio.gather(*[worker(calls // AT_ONCE) for _ in range(AT_ONCE)])
    return 1e3 * (time.process_time() - start) / (calls // AT_ONCE * AT_ONCE)


async def bare_aiohttp(url: str, stack: contextlib.AsyncExitStack) -> Once:
    """The least that aiohttp can do for us."""
    made = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
    session = await stack.enter_async_context(made)

    async def once() -> Any:
        async with session.post(url, data=BODY, headers=HEADERS, allow_redirects=False) as response:
            return json.loads(await response.read())

    return once


async def bare_httpx(url: str, stack: contextlib.AsyncExitStack) -> Once:
    """The least that httpx can do for us."""
    import httpx

    made = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=AT_ONCE), trust_env=False)
    session = await stack.enter_async_context(made)

    async def once() -> Any:
        return json.loads((await session.post(url, content=BODY, headers=HEADERS)).content)

    return once


async def measure(base_url: str, store: Store, calls: int) -> dict[str, float]:
    """The best round of each variant, in CPU milliseconds per call."""
    llm = OpenAICompatible(base_url, "m", max_concurrency=AT_ONCE)
    cached, number = CachedLLM(llm, store), iter(range(10**9))
    url = f"{base_url}/chat/completions"

    def ask(n: int) -> Awaitable[Any]:
        return cached.acomplete([*MESSAGES, {"role": "user", "content": str(n)}])

    async with contextlib.AsyncExitStack() as stack:
        variants: dict[str, Once] = {
            "aiohttp, bare": await bare_aiohttp(url, stack),
            "acomplete": lambda: llm.acomplete(MESSAGES),
            "acomplete, stored on the way": lambda: ask(next(number)),
            "acomplete, from the store": lambda: ask(0),
        }
        if importlib.util.find_spec("httpx"):
            variants["httpx, bare"] = await bare_httpx(url, stack)
        for once in variants.values():
            await cpu_per_call(once, WARM)
        rounds = [
            {name: await cpu_per_call(once, calls) for name, once in variants.items()} for _ in range(ROUNDS)
        ]
    return {name: min(each[name] for each in rounds) for name in variants}


@contextlib.contextmanager
def running_server(kind: str = "none", seconds: float = 0, after: int = 0) -> Iterator[tuple[str, list[int]]]:
    """Its address, and a list that holds the number of its requests once it has ended."""
    command = [sys.executable, "-u", "-c", SERVER, kind, str(seconds), str(after)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:  # noqa: S603
        assert server.stdin  # noqa: S101
        assert server.stdout  # noqa: S101
        requests: list[int] = []
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}/v1", requests
        finally:
            server.stdin.close()
            requests.append(int(server.stdout.readline()))


async def through(url: str, calls: int) -> int:
    """How many of so many calls, all at once, are answered."""
    llm = OpenAICompatible(url, "m")
    done = await asyncio.gather(*(llm.acomplete(MESSAGES) for _ in range(calls)), return_exceptions=True)
    for error in {str(one) for one in done if isinstance(one, BaseException)}:
        say(f"  {error}")
    return sum(not isinstance(one, BaseException) for one in done)


def outages() -> None:
    """Both outages, in real time."""
    for what, kind, seconds, after, calls in (
        ("429 to everybody", "429", 60.0, 0, 1_000),
        ("gone", "gone", 30.0, 1_000, 5_000),
    ):
        begun = time.monotonic()
        with running_server(kind, seconds, after) as (url, requests):
            answered = wait_for(through(url, calls))
        say(
            f"{what} for {seconds:.0f} s: {answered:,} of {calls:,} calls answered, "
            f"{requests[0]:,} requests, {time.monotonic() - begun:.0f} s"
        )


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure and print a table."""
    if "--outages" in sys.argv[1:]:
        outages()
        return
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with (
        running_server() as (url, _),
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Store(Path(folder) / "cache.sqlite")) as store,
    ):
        results = wait_for(measure(url, store, calls))
    for name, milliseconds in results.items():
        say(f"{name:30} {milliseconds:.3f} ms CPU per call")


if __name__ == "__main__":
    main()
