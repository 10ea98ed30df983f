"""A connection of the server: how long it may keep the server waiting, and how many of them there are.

uvicorn's own limit is for a kept-alive connection that is silent.  One that never asks, asks a letter at a
time, sends what nobody reads or does not fetch its answer would stay open for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE_SECONDS = 30  # for the head of a request to arrive, and for an answer to be fetched
CONNECTIONS = 512  # open at once; well below the 1,024 files that a process may usually have
BACKLOG = 256  # connections that wait to be accepted, which the system's limit on files must have room for


class Connection(H11Protocol):
    """HTTP/1 as uvicorn speaks it, with an end to waiting; the body of a request is the gate's to time."""

    _end: asyncio.TimerHandle | None = None  # set while the client is waited for

    def connection_made(self, transport: Any) -> None:
        """One more than there may be takes the place of the one that was waited for the longest."""
        if len(self.connections) >= CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, Connection)]
            waiting = {one._end.when(): one for one in others if one._end is not None}
            if waiting:
                longest = waiting[min(waiting)]
                longest.transport.abort()
                self.connections.discard(longest)
            else:
                transport.abort()
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._watch()

    def _watch(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused:
            self._stop()  # it is our turn
        elif self._end is None:
            self._end = self.loop.call_later(IDLE_SECONDS, self.transport.abort)

    def _stop(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
