"""How fast requests go out: how many at a time, how many per minute, and when none at all.

Every reason to wait (no free slot, requests or tokens per minute, the server's `Retry-After`, an open
breaker) has one queue, so a caller waits once and for the longest of them.  Retries stand in front.  None of
this waiting counts against the deadline of a call.  The slots adapt as TCP's window does: a refusal halves
them, once per round trip, and answers win them back one by one (additive increase, multiplicative decrease).
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from factrl.errors import ConfigError
from factrl.llm.breaker import Breaker, Trips

RETRY_AFTER_LIMIT = 60.0  # seconds; a server that asks for more is not coming back within a call
_LOG = logging.getLogger("factrl")

Outcome = Literal["served", "refused", "failed", "dropped"]
"""`served`: the server did its work, whatever it said; `refused`: it wants fewer requests; `failed`: it did
not answer usably; `dropped`: we gave up on the request ourselves."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one client in one process, all in requests, tokens and seconds.

    Attributes:
        timeout_attempt: seconds for one request, from connecting to the last byte.
        timeout_call: seconds for all attempts and the waits between them; waiting for a turn is not counted.
        max_attempts: requests for one call, whatever made them necessary; the breaker's probes come on top.
        max_concurrency: requests in flight at most; adapts downwards when the server refuses.
        backoff: seconds before the first retry; doubles with each further one, up to 8.
        rpm, tpm: requests and tokens per minute; None for no limit.
        pause: seconds that callers wait for a server that is down before they give up.
        trips: what counts as down.

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
    trips: Trips = field(default_factory=Trips)

    def __post_init__(self) -> None:
        for name in ("timeout_attempt", "timeout_call"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be a positive number of seconds, not {getattr(self, name)!r}")
        for name in ("backoff", "pause"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be a number of seconds, not {getattr(self, name)!r}")
        for name in ("max_attempts", "max_concurrency"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        for name in ("rpm", "tpm"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} must be a positive number per minute, not {value!r}")


class Slots:
    """How many requests may be in flight.

    Attributes:
        limit: slots at this moment, from 1 to the most; a fraction is on its way to the next one.
        active: slots in use.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._slow_from = math.inf  # below it every answer wins a slot, above it every round of answers
        self._halved_at = -math.inf
        self.limit = float(most)
        self.active = 0

    @property
    def full(self) -> bool:
        """Whether the next request has to wait."""
        return self.active >= int(self.limit)

    def served(self) -> None:
        """An answer came; called while the request still has its slot."""
        if self.full:  # unused slots prove nothing about the server
            gain = 1.0 if self.limit < self._slow_from else 1.0 / self.limit
            self.limit = min(self._most, self.limit + gain)

    def refused(self, began: float, now: float) -> None:
        """The server wants fewer; all refusals of one round trip say the same thing."""
        if began >= self._halved_at:
            self._fall(now, max(1.0, self.limit / 2))

    def collapse(self, now: float) -> None:
        """Begin again with one slot, as with a server that has just started."""
        self._fall(now, 1.0)

    def _fall(self, now: float, limit: float) -> None:
        self._slow_from = max(1.0, self.limit / 2)
        self.limit, self._halved_at = limit, now


class Bucket:
    """An allowance that flows in evenly and holds one second's worth, or what one taker needs.

    A minute therefore never sees more than the allowance of 61 seconds, or one taker more.

    Args:
        per_minute: the allowance; None for no limit.
    """

    def __init__(self, per_minute: float | None, now: float) -> None:
        self._rate = math.inf if per_minute is None else per_minute / 60
        self._size = max(1.0, self._rate)
        self._level, self._at = self._size, now

    def delay(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be taken; something larger than the bucket waits until it is full."""
        if self._rate == math.inf:
            return 0.0
        self._fill(now)
        missing = min(amount, self._size) - self._level
        return missing / self._rate if missing > 1e-9 else 0.0

    def take(self, amount: float, now: float) -> None:
        """Take it, into debt if need be; a negative amount gives back."""
        if self._rate < math.inf:
            self._fill(now)
            self._level = min(self._size, self._level - amount)

    def _fill(self, now: float) -> None:
        self._level = min(self._size, self._level + (now - self._at) * self._rate)
        self._at = now


class PauseOver(Exception):
    """The server stayed down for the whole pause."""


@dataclass(slots=True, eq=False)
class Turn:
    """Leave to send one request.

    Attributes:
        began: when it was given.
        tokens: what it took from the tokens per minute.
        probe: whether it finds out for all others if the server is back.
    """

    began: float
    tokens: float
    probe: bool


class Gate:
    """Lets requests through one by one; belongs to the event loop that made it.

    Args:
        name: of the server, for the log.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        now = time.monotonic()
        self._name, self._pause = name, limits.pause
        self.slots = Slots(limits.max_concurrency)
        self.breaker = Breaker(limits.trips)
        self._requests, self._tokens = Bucket(limits.rpm, now), Bucket(limits.tpm, now)
        self._first: deque[_Waiter] = deque()  # retries
        self._then: deque[_Waiter] = deque()
        self._held_until = -math.inf
        self._probing = False
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, tokens: float = 0.0, *, again: bool = False) -> Turn:
        """Wait for a turn; whoever gets one hands it back with `leave`.

        Args:
            tokens: what the request is expected to use, prompt and reply.
            again: it is a retry.

        Raises:
            PauseOver: the server is down, and has been for longer than callers wait.
        """
        now = time.monotonic()
        if not self._first and not self._then and self._delay(tokens, now) == 0.0:
            return self._admit(tokens, now)
        if self._given_up(now):
            raise PauseOver
        waiter = _Waiter(asyncio.get_running_loop().create_future(), tokens)
        (self._first if again else self._then).append(waiter)
        self._pump(now)
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled():  # it got its turn as it gave up
                self.leave(waiter.turn.result(), "dropped")
            raise

    def leave(
        self,
        turn: Turn,
        outcome: Outcome,
        *,
        wait: float | None = None,
        used: float | None = None,
        why: str = "",
    ) -> None:
        """Hand a turn back.

        Args:
            wait: seconds that the server asked for, for all callers.
            used: tokens that the request used, as the server says; more than it took is not believed.
            why: what went wrong, for the log.
        """
        now = time.monotonic()
        try:
            self._learn(turn, outcome, wait, used, why, now)
        finally:  # whatever became of this one, the others have their turn
            self.slots.active -= 1
            self._probing = self._probing and not turn.probe
            self._pump(now)

    def _learn(
        self, turn: Turn, outcome: Outcome, wait: float | None, used: float | None, why: str, now: float
    ) -> None:
        if outcome == "served":
            self.slots.served()
        elif outcome == "refused" and not turn.probe:  # a probe is one request already
            self.slots.refused(turn.began, now)
        if used is not None and 0 <= used < turn.tokens:
            self._tokens.take(used - turn.tokens, now)
        if wait is not None and wait <= RETRY_AFTER_LIMIT:
            self._held_until = max(self._held_until, now + wait)
        if turn.probe:
            self._after_probe(outcome, now)
        elif wait is not None and wait > RETRY_AFTER_LIMIT and not self.breaker.is_open:
            self._open(now, f"it asks to wait {wait:.0f} s")
        else:
            # A refusal that says when to come back is neither good nor bad: the server is well.
            counts = outcome == "served" or (outcome != "dropped" and wait is None)
            if counts and self.breaker.record(outcome != "served", turn.began, now):
                self._open(now, why)

    def _after_probe(self, outcome: Outcome, now: float) -> None:
        if outcome == "served":
            _LOG.warning("%s answers again after %.1f s; going on", self._name, now - self._opened_at())
            self.breaker.close(now)
            self._held_until = -math.inf  # it is back before the time that it named
        elif outcome == "dropped":
            self.breaker.probe_at = now  # nothing was learnt
        else:
            self.breaker.open(now)

    def _open(self, now: float, why: str) -> None:
        self.breaker.open(now)
        self.slots.collapse(now)
        _LOG.warning("%s is down (%s); calls wait up to %.0f s for it", self._name, why, self._pause)

    def _opened_at(self) -> float:
        return math.inf if self.breaker.opened_at is None else self.breaker.opened_at

    def _given_up(self, now: float) -> bool:
        return now >= self._opened_at() + self._pause

    def _delay(self, tokens: float, now: float) -> float:
        """Seconds until the next request may go; infinite when a turn must come back first."""
        if self.breaker.is_open:
            return math.inf if self._probing else max(0.0, self.breaker.probe_at - now)
        if self.slots.full:
            return math.inf
        held = max(0.0, self._held_until - now)
        return max(held, self._requests.delay(1.0, now), self._tokens.delay(tokens, now))

    def _admit(self, tokens: float, now: float) -> Turn:
        self.slots.active += 1
        self._requests.take(1.0, now)
        self._tokens.take(tokens, now)
        self._probing = self.breaker.is_open
        return Turn(now, tokens, self._probing)

    def _pump(self, now: float) -> None:
        """Let in whoever may go, and come back when the next one may."""
        while queue := self._first or self._then:
            waiter = queue[0]
            if waiter.turn.done():  # it gave up
                queue.popleft()
                continue
            delay = self._delay(waiter.tokens, now)
            if delay > 0.0 and self._given_up(now):
                queue.popleft()
                waiter.turn.set_exception(PauseOver())
                continue
            if delay > 0.0:
                self._wake_in(min(delay, self._opened_at() + self._pause - now))
                return
            queue.popleft()
            waiter.turn.set_result(self._admit(waiter.tokens, now))

    def _wake_in(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay < math.inf:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay, lambda: self._pump(time.monotonic()))


@dataclass(slots=True, eq=False)
class _Waiter:
    turn: asyncio.Future[Turn]
    tokens: float
