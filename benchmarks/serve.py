"""How much `factrl serve` takes: workers on one store, client processes, and a judge that costs nothing.

    python benchmarks/serve.py --completions 20000
    python benchmarks/serve.py --completions 20000 --kill

The judge is a server in a process of its own that answers at once and counts how often it is asked each
prompt; all completions differ, so whatever is asked twice is paid for twice.  `--kill` ends one worker with
SIGKILL when a third of the prompts has been judged.  What is printed is JSON: `lost` are completions without
a score, `judged_again` calls beyond the first of a prompt, seconds are those of a request of 32 completions.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stub_server import Connection, RunningStub

BATCH = 32  # completions of one request
_START = 120.0  # seconds for the server to come up


class Judge:
    """Says that an answer is right when its number is even; counts what it is asked."""

    def __init__(self) -> None:
        self._asked: Counter[bytes] = Counter()

    def answer(self, method: str, path: str, body: bytes) -> tuple[float, bytes]:
        """The seconds to wait, none, and the JSON to answer."""
        if path == "/stats":
            again = sum(count - 1 for count in self._asked.values())
            return 0.0, json.dumps({"prompts": len(self._asked), "judged_again": again}).encode()
        prompt = json.loads(body)["messages"][-1]["content"]
        if "gold" in prompt:  # and not the one question of /health/ready
            self._asked[hashlib.sha256(prompt.encode()).digest()] += 1
        word = "correct" if "Mount even" in prompt else "incorrect"
        message = {"role": "assistant", "content": f"So it is.\nVERDICT: {word}"}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 900, "completion_tokens": 10, "total_tokens": 910}
        return 0.0, json.dumps({"id": "1", "model": "fake", "choices": [choice], "usage": usage}).encode()


def main() -> None:
    """Run the benchmark, or the part of it that this process is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--completions", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kill", action="store_true", help="SIGKILL a worker in the middle")
    parser.add_argument("--judge", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.judge:
        asyncio.run(_judge())
    elif options.client:
        _client(options)
    else:
        measured = _measure(options)
        sys.stdout.write(json.dumps(measured, indent=2) + "\n")
        if measured["wrong"] or measured["prompts"] != measured["completions"]:
            raise SystemExit("not every completion was judged, and scored by its verdict")


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, _part("--judge") as judge:
        stub = RunningStub(_line(judge))
        with _server(options, stub.url, Path(folder)) as (server, url):
            began = time.monotonic()
            words = ["--completions", str(options.completions // options.clients), "--client", url]
            clients = [_start(*words, "--number", str(n)) for n in range(options.clients)]
            killed = _kill_one(server.pid, stub, options.completions // 3) if options.kill else None
            told = [json.loads(client.communicate()[0]) for client in clients]
            seconds = time.monotonic() - began
            workers = _workers(server.pid)
            memory = {pid: _peak(pid) for pid in workers}
        judged = stub.stats()
    waits = sorted(wait for one in told for wait in one["waits"])
    working = max(one["ended"] for one in told) - min(one["began"] for one in told)
    return {
        "completions": sum(one["completions"] for one in told),
        "lost": sum(one["lost"] for one in told),
        "causes": dict(sum((Counter(one["causes"]) for one in told), Counter())),
        "wrong": sum(one["wrong"] for one in told),
        **judged,
        "killed": killed,
        "workers": len(workers),
        "seconds": round(seconds, 1),
        "completions_per_second": round(sum(one["completions"] for one in told) / working, 1),
        "request_median_s": round(statistics.median(waits), 3),
        "request_p99_s": round(waits[int(0.99 * (len(waits) - 1))], 3),
        "worker_peak_mib": sorted(memory.values()),
    }


async def _judge() -> None:
    judge: Any = Judge()
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    server = await loop.create_server(lambda: Connection(judge), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()
    server.close()


def _client(options: argparse.Namespace) -> None:
    import factrl as fx

    reward = fx.remote(options.client, "truthrl")
    began, waits, causes, wrong = time.time(), [], Counter(), 0
    for start in range(0, options.completions, BATCH):
        numbers = range(start, min(start + BATCH, options.completions))
        names = [f"{'even' if n % 2 == 0 else 'odd'} {options.number} {n}" for n in numbers]
        examples = [fx.Example(f"Question {options.number} {n}?", ("gold",)) for n in numbers]
        before = time.monotonic()
        results = reward.batch(examples, [rf"\boxed{{Mount {name}}}" for name in names])
        waits.append(time.monotonic() - before)
        for n, result in zip(numbers, results, strict=True):
            if result.value is None:
                causes[result.cause or ""] += 1
            else:
                wrong += result.value != (1.0 if n % 2 == 0 else -1.0)
    told = {"completions": options.completions, "lost": causes.total(), "causes": causes, "wrong": wrong}
    sys.stdout.write(json.dumps({**told, "began": began, "ended": time.time(), "waits": waits}))


def _start(*words: str, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, **more)  # noqa: S603


@contextmanager
def _part(*words: str) -> Iterator[subprocess.Popen[str]]:
    """This script in another role; it ends when its input does."""
    process = _start(*words, stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.communicate(timeout=30)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout  # noqa: S101
    return process.stdout.readline().strip()


@contextmanager
def _server(
    options: argparse.Namespace, judge: str, folder: Path
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "truthrl", "--judge", f"{judge}/v1#fake", "--port", str(port)]
    command = [sys.executable, "-m", "factrl", *words, "--workers", str(options.workers)]
    process = subprocess.Popen(command, env={**os.environ, "FACTRL_CACHE": str(folder)})  # noqa: S603
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, process)
        yield process, url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(int(_START / 0.25)):
        time.sleep(0.25)
        if process.poll() is not None:
            break
        try:
            with direct.open(f"{url}/health/ready", timeout=10):
                return
        except OSError:
            continue
    raise SystemExit("the server did not start; its message is above")


def _kill_one(server: int, judge: RunningStub, after: int) -> int:
    """SIGKILL to a worker once `after` prompts have been judged; returns its id."""
    while judge.stats()["prompts"] < after:
        time.sleep(0.05)
    worker = _workers(server)[0]
    os.kill(worker, signal.SIGKILL)
    return worker


def _workers(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text("utf-8").split()
    return [int(pid) for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _peak(pid: int) -> int:
    """The most memory that a process has held, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").split("\n")
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
