"""`ask` for models that block: they take no thread of the event loop's own, which looks up addresses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextvars import ContextVar

from factrl import FakeLLM
from factrl.llm import Message, ask
from factrl.llm.background import wait_for

WHERE: ContextVar[str] = ContextVar("where", default="nowhere")


def test_models_that_block_keep_no_address_from_being_looked_up() -> None:
    go, names = threading.Event(), []

    def answer(_: Sequence[Message]) -> str:
        names.append(threading.current_thread().name)
        assert go.wait(20)
        return WHERE.get()

    judge = FakeLLM(answer)

    async def ask_and_look_up() -> list[str]:
        WHERE.set("here")
        asked = [asyncio.ensure_future(ask(judge, [])) for _ in range(32)]
        while len(names) < 32:
            await asyncio.sleep(0.01)
        await asyncio.wait_for(asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80), 10)
        go.set()
        return [reply.text for reply in await asyncio.gather(*asked)]

    assert wait_for(asyncio.wait_for(ask_and_look_up(), 30)) == ["here"] * 32
    assert all(name.startswith("factrl-llm") for name in names)
