"""An LLM that remembers: the same question is paid for once.

Only complete replies that the caller's parser accepts are stored, and only those of requests whose reply is
determined: temperature 0, or a seed.  A sampled reply without a seed is asked for anew each time, because two
samples of one prompt are two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from factrl.errors import ConfigError, Unscored
from factrl.llm import LLM, Message, Reply, ask
from factrl.llm.background import Flights, on_background, wait_for
from factrl.llm.store import Store, digest
from factrl.llm.usage import Usage


class CachedLLM:
    """An `LLM` in front of another one.

    Args:
        llm: who is asked what is not stored.
        store: where replies are kept; may hold other things too.
        accept: whether a reply may be stored: give the parser that will read it.  A reply that it turns down
            is handed to the caller all the same, and asked for anew next time.
        identity: everything about the model that changes its replies; by default `llm.identity`.

    Raises:
        ConfigError: nothing says which model it is.
    """

    def __init__(
        self,
        llm: LLM,
        store: Store,
        *,
        accept: Callable[[Reply], bool] | None = None,
        identity: str | None = None,
    ) -> None:
        if identity is None and not hasattr(llm, "identity"):
            raise ConfigError(f"{llm!r} does not say which model it is; give identity=")
        self.llm = llm
        self._store = store
        self._accept = accept
        self._identity = identity
        self._flights: Flights[Reply] = Flights()

    def __repr__(self) -> str:
        return f"CachedLLM({self.llm!r}, {self._store!r})"

    @property
    def identity(self) -> str:
        """Which model answers."""
        return getattr(self.llm, "identity", "") if self._identity is None else self._identity

    @property
    def usage(self) -> Usage | None:
        """What `llm` has sent, and how often it was spared; None when it does not count."""
        return getattr(self.llm, "usage", None)

    def complete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """The stored reply, or a new one.  A stored one has taken 0 attempts.

        Raises:
            LLMError: as `llm.complete`.
        """
        return wait_for(self._complete(messages, temperature, max_tokens, sampling))

    async def acomplete(
        self, messages: Sequence[Message], *, temperature: float = 0.0, max_tokens: int = 512, **sampling: Any
    ) -> Reply:
        """`complete` for coroutines, whichever event loop they run on."""
        return await on_background(self._complete(messages, temperature, max_tokens, sampling))

    async def _complete(
        self, messages: Sequence[Message], temperature: float, max_tokens: int, sampling: dict[str, Any]
    ) -> Reply:
        request = {"temperature": temperature, "max_tokens": max_tokens, **sampling}
        if temperature > 0 and sampling.get("seed") is None:
            return await ask(self.llm, messages, **request)
        if (find := getattr(self.llm, "find_model", None)) is not None:
            await find()
        key = digest(
            {
                "kind": "reply/1",
                "llm": self.identity,
                "messages": [dict(message) for message in messages],
                "request": {**request, "temperature": float(temperature)},
            }
        )
        reply = _read(self._store.get(key))
        if reply is None and key not in self._flights:
            return await self._flights.once(key, lambda: self._ask(key, messages, request))
        if (meter := getattr(self.llm, "meter", None)) is not None:
            meter.cached += 1
        return reply or await self._flights.once(key, lambda: self._ask(key, messages, request))

    async def _ask(self, key: str, messages: Sequence[Message], request: dict[str, Any]) -> Reply:
        reply = await ask(self.llm, messages, **request)
        if reply.finish_reason == "stop" and (self._accept is None or self._accept(reply)):
            fields = ("text", "finish_reason", "model", "tokens_in", "tokens_out", "request_id")
            await self._store.aput(key, {name: getattr(reply, name) for name in fields})
        return reply


def kept(llm: LLM, store: Store | None, accept: Callable[[Reply], bool]) -> LLM:
    """`llm`, not asked again what it answered acceptably before; as it is without a store or an identity."""
    return llm if store is None or not hasattr(llm, "identity") else CachedLLM(llm, store, accept=accept)


def readable(read: Callable[[Reply], object]) -> Callable[[Reply], bool]:
    """Accepts the replies that `read` can read; for others it raises `Unscored`."""

    def accept(reply: Reply) -> bool:
        try:
            read(reply)
        except Unscored:
            return False
        return True

    return accept


def _read(stored: Any) -> Reply | None:
    """The reply that a stored value is, None when it is not one."""
    try:
        reply = Reply(**stored, attempts=0)
    except TypeError:
        return None
    return reply if isinstance(reply.text, str) and reply.finish_reason == "stop" else None
