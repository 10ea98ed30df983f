"""How fast requests go out: how many at a time, how many per minute, and when none at all.

Every reason to wait (no free slot, requests or tokens per minute, the server's `Retry-After`, a server that
is down) has one queue, so a caller waits once and for the longest of them.  None of this waiting counts
against the deadline of a call.  The slots adapt as TCP's window does: a refusal halves them, once per round
trip, and each round of answers adds one (additive increase, multiplicative decrease).

A server that is down gets one request at a time, now and then, until it answers.  Many texts that a server
refuses look like a server that is down, so where the client has a `ping`, a request with harmless words, that
is sent instead.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from factrl.errors import ConfigError
from factrl.llm.bodies import Failure

if sys.version_info >= (3, 11):
    from asyncio import timeout
else:
    from async_timeout import timeout  # pyright: ignore[reportMissingImports]  (comes with aiohttp there)

RETRY_AFTER_LIMIT = 60.0  # seconds; a server that asks for more is not coming back within a call
_DOWN_SHARE, _WINDOW = 0.5, 10.0  # of the requests that ended in so many seconds, those that failed
_LEAST = {"backoff": 0, "pause": 0, "max_attempts": 1, "max_concurrency": 1, "down_after": 1}
_LOG = logging.getLogger("factrl")

RequestOutcome = Literal["served", "refused", "failed", "dropped"]
"""`served`: the server did its work, whatever it said; `refused`: it wants fewer requests; `failed`: it did
not answer usably; `dropped`: we gave up on the request ourselves."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one client in one process, in requests and seconds.

    Attributes:
        timeout_attempt: seconds for one request, from connecting to the last byte.
        timeout_call: seconds for all attempts and the waits between them; waiting for a turn is not counted.
        max_attempts: requests for one call, whatever made them necessary; probes of a server that is down
            come on top.
        max_concurrency: requests in flight at most; adapts downwards when the server refuses.
        backoff: seconds before the first retry; doubles with each further one, up to 8.
        rpm: requests per minute; None for no limit.  They flow in evenly, a second's worth may go at once.
        tpm: tokens per minute, of prompts and replies, likewise.  A request counts as its prompt by an
            estimate and `max_tokens`, as providers do, and once it is answered as what was used.
        pause: seconds that callers wait for a server that is down before they give up.
        down_after: a server is down when so many requests in a row failed, or half of at least so many in ten
            seconds.  The row counts too because after good times the share falls so slowly that every waiting
            call would fail first.
        probe_every: seconds between two attempts to find out whether it is back.

    Raises:
        ConfigError: a value that cannot work.
    """

    timeout_attempt: float = 30.0
    timeout_call: float = 100.0
    max_attempts: int = 4
    max_concurrency: int = 64
    backoff: float = 0.5
    rpm: float | None = None
    tpm: float | None = None
    pause: float = 900.0
    down_after: int = 20
    probe_every: float = 5.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            least = _LEAST.get(name)
            enough = value is None or (value > 0 if least is None else value >= least)
            if not enough or value == math.inf or (value is None and name not in ("rpm", "tpm")):
                wanted = "above 0" if least is None else f"of at least {least}"
                raise ConfigError(f"{name} must be a finite number {wanted}, not {value!r}")


class Turn(NamedTuple):
    """Leave to send one request: when it was given, and whether it is to find out if the server is back."""

    began: float
    probe: bool


class RateLimiter:
    """Lets requests through one by one; belongs to the event loop that made it.

    Args:
        name: of the server, for the log.
        pings: whether a probe asks something harmless; then it goes at once.

    Attributes:
        slots: how many requests may be in flight; a fraction is on its way to the next one.
        active: how many are.
        down_since: when the server was found to be down; None while it is not.
        probe_at: while it is down, when the next probe may go.
        pinging: whether the next probe is a ping: every other one, and none while the server says that it is
            asked too much, as it may answer a small request then.
    """

    def __init__(self, name: str, limits: Limits, *, pings: bool = False) -> None:
        self._name, self._limits, self._pings = name, limits, pings
        self.pinging = False
        self.slots, self.active = float(limits.max_concurrency), 0
        self._spacing = 60 / limits.rpm if limits.rpm else 0.0
        self._per_token = 60 / limits.tpm if limits.tpm else 0.0
        self._next_at = self._tokens_at = self._held_until = self._halved_at = self._up_since = -math.inf
        self.down_since: float | None = None
        self.probe_at = 0.0
        self._probing = False
        self._why, self._warned = "", False
        self._ended: deque[tuple[float, bool]] = deque()  # when a request ended, and whether it failed
        self._failed = self._in_a_row = 0
        self._queue = asyncio.Lock()  # its holder is the next to get a turn
        self._changed = asyncio.Event()

    async def enter(self, tokens: int = 0) -> Turn:
        """Wait for a turn, to be handed back with `leave`.

        Args:
            tokens: that the request may use, for `tpm`; `used` corrects them afterwards.

        Raises:
            Failure: `breaker_open`: the server is down, and has been for longer than callers wait.
        """
        async with self._queue:
            while (delay := self._delay(now := time.monotonic())) > 0.0:
                pause = self._limits.pause
                left = math.inf if self.down_since is None else self.down_since + pause - now
                if left <= 0.0:
                    detail = f"was down for longer than pause = {pause:g} s"
                    raise Failure("breaker_open", detail, retry=False)
                self._changed.clear()
                delay = min(delay, left)
                try:
                    async with timeout(None if delay == math.inf else delay):
                        await self._changed.wait()
                except asyncio.TimeoutError:
                    pass
            self.active += 1
            self._next_at = max(self._next_at, now - 1.0) + self._spacing
            self._tokens_at = max(self._tokens_at, now - 1.0) + tokens * self._per_token
            self._probing = self.down_since is not None
            return Turn(now, self._probing)

    def used(self, more: int) -> None:
        """A request has used so many tokens more than it entered with; less, where that is negative."""
        self._tokens_at += more * self._per_token
        self._changed.set()

    def leave(
        self,
        turn: Turn,
        outcome: RequestOutcome,
        *,
        wait: float | None = None,
        why: str = "",
        busy: bool = False,
    ) -> None:
        """Hand a turn back.

        Args:
            wait: seconds that the server asked for, for all callers.
            why: what went wrong, for the log.
            busy: whether the server said that it is asked too much.
        """
        if self.down_since is None or turn.probe:
            self.pinging = self._pings and not busy and not (turn.probe and self.pinging)
        try:
            self._learn(turn, outcome, wait, why, time.monotonic())
        finally:  # whatever became of this one, the others have their turn
            self.active -= 1
            self._probing = self._probing and not turn.probe
            self._changed.set()

    def _delay(self, now: float) -> float:
        """Seconds until the next request may go; infinite when a turn must come back first."""
        if self.down_since is not None:
            return math.inf if self._probing else self.probe_at - now
        if self.active >= int(self.slots):
            return math.inf
        return max(self._held_until - now, self._next_at - now, self._tokens_at - now)

    def _learn(self, turn: Turn, outcome: RequestOutcome, wait: float | None, why: str, now: float) -> None:
        if turn.probe:
            self._after_probe(outcome, now)
            return
        if outcome == "served" and self.active >= int(self.slots):  # unused slots prove nothing
            self.slots = min(self._limits.max_concurrency, self.slots + 1.0 / self.slots)
        elif outcome == "refused" and turn.began >= self._halved_at:
            # All refusals of one round trip say the same thing.
            self.slots, self._halved_at = max(1.0, self.slots / 2), now
        if wait is not None and wait > RETRY_AFTER_LIMIT:
            self._down(now, f"it asks to wait {wait:.0f} s")
        elif wait is not None:  # neither good nor bad: the server is well, and says when to come back
            self._held_until = max(self._held_until, now + wait)
        elif outcome != "dropped":
            self._count(outcome != "served", turn.began, now, why)

    def _count(self, failed: bool, began: float, now: float, why: str) -> None:
        """Note how a request ended, unless it began before the server was last found to be well."""
        if self.down_since is not None or began < self._up_since:
            return
        self._ended.append((now, failed))
        self._failed += failed
        self._in_a_row = self._in_a_row + 1 if failed else 0
        while self._ended[0][0] <= now - _WINDOW:
            self._failed -= self._ended.popleft()[1]
        seen, enough = len(self._ended), self._limits.down_after
        if self._in_a_row >= enough or (seen >= enough and self._failed >= _DOWN_SHARE * seen):
            self._down(now, why)

    def _down(self, now: float, why: str) -> None:
        if self.down_since is None:
            self.down_since, self.probe_at = now, now + (0.0 if self.pinging else self._limits.probe_every)
            self._why, self._warned = why, False
            if not self.pinging:
                self._warn()

    def _warn(self) -> None:
        if not self._warned:
            self._warned, pause = True, self._limits.pause
            _LOG.warning("%s is down (%s); calls wait up to %.0f s for it", self._name, self._why, pause)

    def _after_probe(self, outcome: RequestOutcome, now: float) -> None:
        if outcome == "served":
            seconds = now - (self.down_since or now)
            if self._warned:
                _LOG.warning("%s answers again after %.1f s; going on", self._name, seconds)
            self.down_since, self._up_since = None, now
            self._held_until = -math.inf  # it is back before the time that it named
            self._ended.clear()
            self._failed = self._in_a_row = 0
        elif outcome == "dropped":
            self.probe_at = now  # nothing was learnt
        else:  # the next probe goes in time, whatever the server asks for
            self.probe_at = now + self._limits.probe_every
            self._warn()
