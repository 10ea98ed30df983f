"""Reading what a server sent: bodies of limited size, JSON, complaints, waits.

Nothing here trusts the server: a body may be endless, a bomb, another protocol or an error in disguise.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from factrl.text import encodable

if TYPE_CHECKING:
    import aiohttp

BODY_LIMIT = 1 << 20  # bytes after decompression; a verdict needs a few hundred
_DEPTH = 64  # lists and objects inside one another; a completion has five
_DIGITS = 18  # of a whole number, which then fits into 64 bits
_RETRIED = frozenset({408, 409, 424, 425, 429})
REFUSALS = frozenset({429, 529})  # 529 is Anthropic's "overloaded"
# A 4xx that says that prompt, or prompt and reply together, are too long, in the words of several servers.
_CONTEXT_LENGTH = re.compile(
    r"context[ _-]?(length|window|size)|too many tokens|(prompt|input|messages?) (is|are) too long"
    r"|max(imum)?[ _]((model|input|prompt|sequence|seq)[ _])?len|reduce the (length|number of tokens)"
    r"|max_(completion_|new_)?tokens\W.{0,40}\btoo large"
    r"|tokens?\b.{0,80}(exceed|must be (less|<)|longer than|too large for)"
    r"|(exceed|must have less than).{0,60}\btokens?\b",
    re.I,
)

FAULT = "X-Factrl-Fault"
"""Header in which `factrl serve` says, with `BROKEN`, that its reward has a bug, so asking again is vain."""
BROKEN = "broken_reward"

ADJUSTED = ("max_tokens", "temperature")
"""Fields that some models' servers take no request with, and that can be said otherwise or left out."""
_NOT_TAKEN = re.compile(
    r"unsupported|(not|n't|no longer|isn't) (be )?(supported|support|permitted|allowed|accepted|available)"
    r"|un(known|recogni[sz]ed|expected)|deprecated|extra (inputs?|fields?)|max_completion_tokens"
    r"|only the default|(may|can|must) (only )?be (set to )?1\b|only 1\b",
    re.I,
)
_TOO_MUCH = re.compile(r"too (large|many|high|big|long)|exceed|at most|maximum|between|less than", re.I)


@dataclass(eq=False)
class Failure(Exception):
    """Why one request gave nothing usable."""

    cause: str  # one word, as in `LLMError`
    detail: str  # how the sentence goes on that begins with the server's address
    retry: bool = True  # whether the same request may succeed later
    refusal: bool = False  # whether the server wants fewer requests
    wait: float | None = None  # seconds that it asked for
    status: int | None = None
    request_id: str = ""
    field: str = ""  # of the request, where the server takes no request with it


class Unreadable(Failure):
    """A reply that is not what was asked for; `detail` goes like `answered something other than a list`.

    Args:
        retry: false where the server is well and will say the same again.
    """

    def __init__(self, detail: str, *, retry: bool = True) -> None:
        super().__init__("bad_body", detail, retry)


async def document_of(response: aiohttp.ClientResponse) -> Any:
    """The JSON of a 2xx reply.

    Nothing in it breaks what comes later: numbers are finite, null or infinite instead of too long to reckon
    with, texts can be written to a file, and nothing lies deeper than a recursion goes.

    Raises:
        Unreadable: it is too long, broken, something else or an error in disguise.
    """
    body = await _body_of(response)
    try:
        document = _tamed(json.loads(body, parse_int=_whole, parse_constant=lambda _: None))
    except (ValueError, RecursionError) as error:  # RecursionError: 1 MiB of opening brackets
        start = excerpt(body[:80].decode("utf-8", "replace"))
        raise Unreadable(f"answered with something other than JSON: {start!r}") from error
    if isinstance(document, Mapping) and document.get("error"):
        raise Unreadable(f"answered with an error: {message_of(document)}")
    return document


async def refusal_of(response: aiohttp.ClientResponse, key_variable: str) -> Failure:
    """What a status other than 2xx means."""
    status = response.status
    if 300 <= status < 400:
        target = excerpt(response.headers.get("location", "nowhere"))
        return Failure("redirect", f"answered {status}, a redirect to {target}", retry=False)
    message, field = await _complaint(response)
    text = f"answered {status}" + (f": {message}" if message else "")
    if status in (401, 403):
        source = f" (the key is read from {key_variable})" if key_variable else ""
        return Failure("auth", text + source, retry=False)
    if response.headers.get(FAULT) == BROKEN:
        return Failure(BROKEN, text, retry=False)
    if status in _RETRIED or status >= 500:
        cause = "http_5xx" if status >= 500 else f"http_{status}"
        return Failure(cause, text, refusal=status in REFUSALS, wait=_retry_after(response))
    # 402: the tokens that were paid for are used
    too_long = status != 402 and _CONTEXT_LENGTH.search(message)
    cause = "context_length" if too_long else f"http_{status}"
    field = field if status in (400, 422) and cause != "context_length" else ""
    return Failure(cause, text, retry=False, field=field)


def excerpt(text: str) -> str:
    """Others' text made fit for a log: printable, one line, at most 200 characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:2000]).split())[:200]


def _whole(digits: str) -> float:
    return int(digits) if len(digits) <= _DIGITS else math.inf


def _tamed(value: Any, depth: int = 0) -> Any:
    """JSON with every half of a surrogate pair, which it can spell and files cannot hold, replaced.

    Raises:
        ValueError: it is nested too deeply.
    """
    if depth > _DEPTH:
        raise ValueError(f"more than {_DEPTH} lists and objects lie inside one another")
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_tamed(key): _tamed(inner, depth + 1) for key, inner in value.items()}
    return [_tamed(inner, depth + 1) for inner in value] if isinstance(value, list) else value


async def _body_of(response: aiohttp.ClientResponse) -> bytes:
    """The body, decompressed piece by piece so that a small bomb cannot become a large string."""
    from aiohttp import ClientPayloadError

    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise Unreadable(f"answered in the encoding {excerpt(encoding)!r}, unasked")
    inflate = None if encoding == "identity" else zlib.decompressobj(zlib.MAX_WBITS | 32)
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += inflate.decompress(chunk, BODY_LIMIT + 1 - len(body)) if inflate else chunk
            if len(body) > BODY_LIMIT:
                raise Unreadable(f"answered with more than {BODY_LIMIT >> 20} MiB")
    except zlib.error as error:
        raise Unreadable(f"answered with a broken {encoding} body") from error
    except ClientPayloadError as error:
        raise Failure("connection", f"broke off its answer after {len(body):,} bytes") from error
    return bytes(body)


async def _complaint(response: aiohttp.ClientResponse) -> tuple[str, str]:
    """What a server wrote beside its status, in a line, and the field that it takes no request with."""
    body = b""
    try:
        body = await _body_of(response)
        document = json.loads(body)
        return message_of(document), _field_of(document)
    except (Failure, ValueError, RecursionError):
        return excerpt(body.decode("utf-8", "replace")), ""


def _field_of(document: Any) -> str:
    """The field of a request that a complaint is about, as a whole and not for its value; empty for none.

    Servers name it in the sentence, in `param` (OpenAI), or as the place of an extra input (FastAPI's `loc`).
    """
    text = json.dumps(document)[:2000]
    if not _NOT_TAKEN.search(text) or _TOO_MUCH.search(text):
        return ""
    return next((name for name in ADJUSTED if re.search(rf"(?<![\w-]){name}(?![\w-])", text)), "")


def message_of(document: Any) -> str:
    """The sentence in an error document; servers agree on no place for it."""
    while isinstance(document, (Mapping, list)):
        keys = ("error", "message", "detail", "msg")
        values = document if isinstance(document, list) else map(document.get, keys)
        document = next((value for value in values if value), "")
    return excerpt(str(document))


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    """Seconds that the server asks to wait; None when it did not say, or nothing readable."""
    value = response.headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", value):
        return float(value)
    try:
        when = parsedate_to_datetime(value)
        when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
        return max(0.0, (when - datetime.now(timezone.utc)).total_seconds())
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
