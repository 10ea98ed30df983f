"""An OpenAI-compatible and Serper-compatible server for the benchmark, in a process of its own.

    python benchmarks/stub_server.py TABLE.json

A request takes a fixed time (100 ms for the model, 200 ms for the search) in one of 64 slots; further
requests wait for a slot, first come first served.  The slots are kept on paper: the moment a reply is due is
computed from the moments when the slots become free, so that what this process is late by does not add up.

It parses as little HTTP as a keep-alive client needs, because it shares the machine with what it measures;
`GET /stats` says what it cost itself.  It is no fault server (tests/fault_server.py is) and no model.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stub_replies import Knowledge, reply_to

# 4.1 to 4.8 in the prompts of this benchmark, by tiktoken; a count of words would be off by 40 %.
BYTES_PER_TOKEN = 4.3
MODEL_S, SEARCH_S, SLOTS = 0.100, 0.200, 64


class Station:
    """Slots that each serve one request at a time.

    Args:
        seconds: what a request takes.
        slots: how many are served at once.
    """

    def __init__(self, seconds: float, slots: int) -> None:
        self.seconds, self.slots = seconds, slots
        self._free = [0.0] * slots
        self.served: list[tuple[float, float, float]] = []

    def admit(self, now: float, extra: float = 0.0) -> float:
        """When the reply to a request that arrives at `now` is due; `extra` seconds for a longer reply."""
        start = max(now, self._free[0])
        end = start + self.seconds + extra
        heapq.heapreplace(self._free, end)
        self.served.append((now, start, end))
        return end

    def stats(self) -> dict[str, float]:
        """Requests, and how many were served at once: on average while there was one, and at most.

        `service` is the seconds that the slots were busy, all together; `waited` is the longest time that a
        request waited for its slot.
        """
        if not self.served:
            return {"requests": 0, "service": 0.0, "in_flight_mean": 0.0, "in_flight_max": 0, "waited": 0.0}
        steps = sorted(step for _, start, end in self.served for step in ((start, 1), (end, -1)))
        busy = level = most = 0.0
        before = steps[0][0]
        for moment, change in steps:
            busy += (moment - before) * (level > 0)
            level, before = level + change, moment
            most = max(most, level)
        service = sum(end - start for _, start, end in self.served)
        return {
            "requests": len(self.served),
            "service": service,
            "in_flight_mean": service / busy if busy else 0.0,
            "in_flight_max": int(most),
            "waited": max(start - arrived for arrived, start, _ in self.served),
        }


class Stub:
    """The server's state: what it knows, its two stations and its counters."""

    def __init__(self, knowledge: Knowledge, options: argparse.Namespace) -> None:
        self.knowledge, self._options = knowledge, options
        self.clear()

    def clear(self) -> None:
        """Forget what was counted."""
        self._llm = Station(self._options.llm_ms / 1000, self._options.slots)
        self._search = Station(self._options.search_ms / 1000, self._options.slots)
        self._kinds: Counter[str] = Counter()
        self._tokens_in = self._tokens_out = self._requests = self._longest = 0
        self._cpu = time.process_time()

    def stats(self) -> dict[str, Any]:
        """Everything since the last `clear`; tokens are an estimate from bytes, CPU is this process's own."""
        cpu = time.process_time() - self._cpu
        return {
            "llm": self._llm.stats() | {"kinds": dict(self._kinds)},
            "search": self._search.stats(),
            "tokens_in": self._tokens_in,
            "tokens_out": self._tokens_out,
            "longest_prompt": self._longest,
            "cpu": cpu,
            "cpu_per_request": cpu / max(1, self._requests),
        }

    def answer(self, method: str, path: str, body: bytes) -> tuple[float, bytes]:
        """The seconds to wait, and then the JSON to answer.

        Raises:
            KeyError: nothing is served at this path.
        """
        if path == "/stats":
            reply = self.stats()
            if method == "DELETE":
                self.clear()
            return 0.0, json.dumps(reply).encode()
        if path.endswith("/models"):
            return 0.0, b'{"object":"list","data":[{"id":"stub","object":"model"}]}'
        now = time.monotonic()
        self._requests += 1
        document = json.loads(body)
        if path.endswith("/search"):
            organic = self.knowledge.search(document["q"])
            due = self._search.admit(now)
            return due - now, json.dumps({"organic": organic[: document.get("num", 10)]}).encode()
        if path.endswith("/completions"):
            return self._complete(now, document, _tokens(len(body)), "/chat/" in path)
        raise KeyError(path)

    def _complete(self, now: float, document: dict[str, Any], tokens: int, chat: bool) -> tuple[float, bytes]:
        prompt = document["messages"][-1]["content"] if chat else document["prompt"]
        kind, text = reply_to(prompt, self.knowledge)
        written = _tokens(len(text.encode()))
        self._kinds[kind] += 1
        self._tokens_in += tokens
        self._tokens_out += written
        self._longest = max(self._longest, tokens)
        due = self._llm.admit(now, written * self._options.ms_per_token / 1000)
        choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        reply = {
            "id": f"stub-{self._requests}",
            "object": "chat.completion" if chat else "text_completion",
            "created": 0,
            "model": document.get("model", "stub"),
            "choices": [{"index": 0, "finish_reason": "stop", **choice}],
            "usage": {
                "prompt_tokens": tokens,
                "completion_tokens": written,
                "total_tokens": tokens + written,
            },
        }
        return due - now, json.dumps(reply).encode()


def _tokens(size: int) -> int:
    return round(size / BYTES_PER_TOKEN)


class Connection(asyncio.Protocol):
    """One keep-alive connection; requests of a known length, one answer each."""

    transport: asyncio.Transport

    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._loop = asyncio.get_running_loop()
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end]
            at = head.lower().find(b"\r\ncontent-length:")
            length = int(head[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._data) < end + 4 + length:
                return
            body, self._data = self._data[end + 4 : end + 4 + length], self._data[end + 4 + length :]
            method, path, _ = head.split(b" ", 2)
            self._serve(method.decode(), path.decode(), body)

    def _serve(self, method: str, path: str, body: bytes) -> None:
        try:
            delay, reply = self._stub.answer(method, path, body)
            status = b"200 OK"
        except (KeyError, TypeError, ValueError) as error:
            delay, reply, status = 0.0, json.dumps({"error": repr(error)}).encode(), b"400 Bad Request"
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._loop.call_later(delay, self._write, head % (status, len(reply)) + reply)

    def _write(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)


class RunningStub:
    """A stub in another process, as its clients see it."""

    def __init__(self, url: str) -> None:
        self.url = url

    def stats(self, *, clear: bool = False) -> dict[str, Any]:
        """What it counted since the last time that it was cleared."""
        method = "DELETE" if clear else "GET"
        request = urllib.request.Request(f"{self.url}/stats", method=method)  # noqa: S310
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(request, timeout=30) as answer:
            return json.load(answer)


@contextlib.contextmanager
def running_stub(table: Path, *options: str) -> Iterator[RunningStub]:
    """Start a stub that knows `table`; it ends with this process at the latest, whatever becomes of it."""
    command = [sys.executable, __file__, str(table), *options]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert process.stdin  # noqa: S101
    assert process.stdout  # noqa: S101
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise SystemExit("the stub server did not start; its message is above")
        yield RunningStub(url)
    finally:
        process.stdin.close()
        process.wait(timeout=30)


async def _serve(stub: Stub, port: int) -> None:
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    server = await loop.create_server(lambda: Connection(stub), "127.0.0.1", port, backlog=1024)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    # The starter holds the other end of stdin: when it is gone, the pipe is at its end.
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()
    server.close()


def main() -> None:
    """Serve until stdin ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path, help="facts and labels, as workload.py writes them")
    parser.add_argument("--port", type=int, default=0, help="0 for any free one")
    parser.add_argument("--llm-ms", type=float, default=1000 * MODEL_S)
    parser.add_argument("--search-ms", type=float, default=1000 * SEARCH_S)
    parser.add_argument("--slots", type=int, default=SLOTS, help="of the model, and as many of the search")
    parser.add_argument("--ms-per-token", type=float, default=0.0, help="added for each token of a reply")
    options = parser.parse_args()
    stub = Stub(Knowledge(json.loads(options.table.read_text("utf-8"))), options)
    asyncio.run(_serve(stub, options.port))


if __name__ == "__main__":
    main()
