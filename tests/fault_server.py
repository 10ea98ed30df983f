"""A loopback model server that misbehaves on request.

A `FaultServer` plays a script: one fault per request, the last one for every further request.  `play` is its
switchboard: another script from now on.  A fault is a function that answers one request in its own way; plain
answers are made by `says`, and `sometimes` chooses between two.
"""

from __future__ import annotations

import contextlib
import json
import random
import socket
import socketserver
import struct
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any

Fault = Callable[["Handler"], None]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    at: float


class Handler(BaseHTTPRequestHandler):
    """One connection; the answer to what was `asked` is left to the next fault of the script."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FaultServer  # pyright: ignore[reportIncompatibleVariableOverride]
    asked: Request

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked = Request(self.command, self.path, headers, body, time.monotonic())
        fault = self.server.next_fault(self.asked)
        try:
            fault(self)
            self.wfile.flush()
        except OSError:
            self.close_connection = True  # the client had enough
        finally:
            self.server.leave()

    do_GET = do_POST  # noqa: N815

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"content-length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.write(body)

    def write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.server.sent += len(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class FaultServer(socketserver.ThreadingTCPServer):
    """A server on a loopback port, a free one unless it is told which.

    Attributes:
        url: its base URL.
        requests: every request so far.
        sent: body bytes written so far.
        active: requests that are being answered now.
        stop: set when the server closes; faults that wait, wait for it.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *script: Fault, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"
        self.script = list(script)
        self.requests: list[Request] = []
        self.sent = 0
        self.stop = threading.Event()
        self.active = 0
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def port(self) -> int:
        return self.server_address[1]

    def play(self, *script: Fault) -> None:
        """Another script from now on."""
        with self._lock:
            self.script = list(script)

    def next_fault(self, request: Request) -> Fault:
        with self._lock:
            self.requests.append(request)
            self.active += 1
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def leave(self) -> None:
        with self._lock:
            self.active -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # connections that break are the purpose of this server

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def __exit__(self, *_: object) -> None:
        self.close()  # socketserver's own closes the socket alone, over which `serve_forever` then spins

    def close(self) -> None:
        """Stop as a killed process does: nobody listens, and what was open is cut."""
        self.stop.set()
        self.shutdown()
        self.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def client(server: FaultServer | str, model: str | None = "m", key: str | None = None, **limits: Any) -> Any:
    """An `OpenAICompatible` whose deadlines are far away and whose retries follow at once."""
    from factrl.llm.openai_compatible import OpenAICompatible

    url = server if isinstance(server, str) else server.url
    quick = {"timeout_attempt": 10.0, "timeout_call": 20.0, "backoff": 0.001}
    return OpenAICompatible(url, model, key, **{**quick, **limits})


def until(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait for a condition that another thread or process makes true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.002)


def completion(text: str = "fine", finish_reason: str = "stop", **fields: Any) -> dict[str, Any]:
    """The document of a good chat completion."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "model": "served",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 2},
        **fields,
    }


def says(text: str = "fine", finish_reason: str = "stop", **fields: Any) -> Fault:
    """A good answer."""
    return answers(200, completion(text, finish_reason, **fields))


def replies(answer: Callable[[str], str]) -> Fault:
    """A good answer that depends on the last message."""
    return lambda handler: says(answer(handler.asked.body["messages"][-1]["content"]))(handler)


def answers(status: int, document: Any, **headers: str) -> Fault:
    """Any status with any document (bytes as they are, anything else as JSON)."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return lambda handler: handler.send(status, body, **headers)


def slowly(seconds: float, fault: Fault) -> Fault:
    """The same answer after a while."""

    def answer(handler: Handler) -> None:
        handler.server.stop.wait(seconds)
        fault(handler)

    return answer


def sometimes(share: float, fault: Fault, otherwise: Fault, seed: int = 0) -> Fault:
    """`fault` for that share of the requests."""
    dice = random.Random(seed)
    return lambda handler: (fault if dice.random() < share else otherwise)(handler)


def hang(handler: Handler) -> None:
    """Accept, and never say a word."""
    handler.server.stop.wait()
    handler.close_connection = True


def drip(handler: Handler) -> None:
    """A byte every 20 ms, for ever: no pause is long, the whole is endless."""
    handler.send_response(200)
    handler.send_header("content-length", str(1 << 20))
    handler.end_headers()
    while not handler.server.stop.wait(0.02):
        handler.write(b" ")


def reset(handler: Handler) -> None:
    """Half a body, then a TCP reset."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.write(b'{"choices": [')
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def short(handler: Handler) -> None:
    """Two lengths, of which one is more than what comes, then a normal close."""
    handler.send(200, json.dumps(completion()).encode(), content_length="9999")
    handler.close_connection = True


def flood(handler: Handler) -> None:
    """50 MB."""
    handler.send_response(200)
    handler.send_header("content-length", str(50_000_000))
    handler.end_headers()
    for _ in range(500):
        handler.write(b" " * 100_000)


def garbage(handler: Handler) -> None:
    """Not HTTP."""
    handler.wfile.write(b"220 mail.example ESMTP\r\n")
    handler.close_connection = True


def closed_port() -> str:
    """The base URL of a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
