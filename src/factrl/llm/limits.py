"""How fast requests go out: how many at a time, how many per minute, and when none at all.

Every reason to wait (no free slot, requests per minute, the server's `Retry-After`, a server that is down)
has one queue, so a caller waits once and for the longest of them.  Retries stand in front.  None of this
waiting counts against the deadline of a call.  The slots adapt as TCP's window does: a refusal halves
them, once per round trip, and answers win them back one by one (additive increase, multiplicative decrease).
A server that is down is asked by one request at a time, now and then, until it answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from factrl.errors import ConfigError
from factrl.llm.bodies import Failure

RETRY_AFTER_LIMIT = 60.0  # seconds; a server that asks for more is not coming back within a call
_DOWN_SHARE, _WINDOW = 0.5, 10.0  # of the requests that ended in so many seconds, those that failed
_BACKOFF_LIMIT = 8.0
_JITTER = random.SystemRandom()  # not the global generator, which belongs to the training seed
_LOG = logging.getLogger("factrl")

Outcome = Literal["served", "refused", "failed", "dropped"]
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
    pause: float = 900.0
    down_after: int = 20
    probe_every: float = 5.0

    def __post_init__(self) -> None:
        for names, allows, wanted in _ALLOWED:
            for name in names.split():
                if not allows(value := getattr(self, name)):
                    raise ConfigError(f"{name} must be {wanted}, not {value!r}")


_ALLOWED: tuple[tuple[str, Callable[[float | None], bool], str], ...] = (
    (
        "timeout_attempt timeout_call probe_every",
        lambda value: value is not None and 0 < value < math.inf,
        "a positive number of seconds",
    ),
    ("backoff pause", lambda value: value is not None and 0 <= value < math.inf, "a number of seconds"),
    ("max_attempts max_concurrency down_after", lambda value: value is not None and value >= 1, "at least 1"),
    ("rpm", lambda value: value is None or 0 < value < math.inf, "a positive number per minute"),
)


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


@dataclass(slots=True, eq=False)
class Turn:
    """Leave to send one request.

    Attributes:
        began: when it was given.
        probe: whether it finds out for all others if the server is back.
    """

    began: float
    probe: bool


@dataclass(eq=False)
class Call:
    """One call's attempts and its clock, which is monotonic: wall clocks jump.

    Attributes:
        attempts: requests that count against `max_attempts`; probes of a server that is down do not.
        requests: all of them.
        used: seconds that count against `timeout_call`: of its attempts and of the waits between them.
        started: when its first request was sent.
    """

    limits: Limits
    attempts: int = 0
    requests: int = 0
    used: float = 0.0
    started: float | None = None

    def begin(self, turn: Turn) -> None:
        """Note that a request is about to be sent."""
        self.requests += 1
        self.attempts += not turn.probe
        if self.started is None:
            self.started = turn.began

    def elapsed(self) -> float:
        """Seconds since its first request, all waits included; 0 before it."""
        return 0.0 if self.started is None else time.monotonic() - self.started

    def left(self) -> float:
        """Seconds until its deadline."""
        return self.limits.timeout_call - self.used

    def limit(self, turn: Turn) -> float:
        """Seconds that its next request may take."""
        if turn.probe:
            return self.limits.timeout_attempt
        return min(self.limits.timeout_attempt, self.left())

    def backoff(self) -> float:
        """Seconds to wait before the next attempt when the server does not say."""
        doubled = self.limits.backoff * 2 ** (max(1, self.attempts) - 1)
        return min(_BACKOFF_LIMIT, doubled) * _JITTER.uniform(0.5, 1.0)


class Gate:
    """Lets requests through one by one; belongs to the event loop that made it.

    Args:
        name: of the server, for the log.

    Attributes:
        down_since: when the server was found to be down; None while it is not.
        probe_at: while it is down, when the next probe may go.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self._name, self._limits = name, limits
        self.slots = Slots(limits.max_concurrency)
        self._spacing = 60 / limits.rpm if limits.rpm else 0.0
        self._next_at = self._held_until = self._up_since = -math.inf
        self._queue: deque[asyncio.Future[Turn]] = deque()
        self.down_since: float | None = None
        self.probe_at = 0.0
        self._probing = False
        self._ended: deque[tuple[float, bool]] = deque()  # when a request ended, and whether it failed
        self._failed = self._in_a_row = 0
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, *, again: bool = False) -> Turn:
        """Wait for a turn; whoever gets one hands it back with `leave`.

        Args:
            again: it is a retry.

        Raises:
            Failure: `breaker_open`: the server is down, and has been for longer than callers wait.
        """
        now = time.monotonic()
        if not self._queue and self._delay(now) == 0.0:
            return self._admit(now)
        if now >= self._gives_up_at():
            raise self._pause_is_over()
        waiter: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()
        (self._queue.appendleft if again else self._queue.append)(waiter)
        self._pump(now)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # it got its turn as it gave up
                self.leave(waiter.result(), "dropped")
            raise

    def leave(self, turn: Turn, outcome: Outcome, *, wait: float | None = None, why: str = "") -> None:
        """Hand a turn back.

        Args:
            wait: seconds that the server asked for, for all callers.
            why: what went wrong, for the log.
        """
        now = time.monotonic()
        try:
            self._learn(turn, outcome, wait, why, now)
        finally:  # whatever became of this one, the others have their turn
            self.slots.active -= 1
            self._probing = self._probing and not turn.probe
            self._pump(now)

    def _learn(self, turn: Turn, outcome: Outcome, wait: float | None, why: str, now: float) -> None:
        if outcome == "served":
            self.slots.served()
        elif outcome == "refused" and not turn.probe:  # a probe is one request already
            self.slots.refused(turn.began, now)
        too_long = wait is not None and wait > RETRY_AFTER_LIMIT
        if wait is not None and not too_long:
            self._held_until = max(self._held_until, now + wait)
        if turn.probe:
            self._after_probe(outcome, now)
        elif too_long:
            self._down(now, f"it asks to wait {wait:.0f} s")
        # A refusal that says when to come back is neither good nor bad: the server is well.
        elif outcome == "served" or (outcome != "dropped" and wait is None):
            self._count(outcome != "served", turn.began, now, why)

    def _count(self, failed: bool, began: float, now: float, why: str) -> None:
        """Note how a request ended; what began before the server was last found well is old news."""
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
            self.down_since, self.probe_at = now, now + self._limits.probe_every
            self.slots.collapse(now)
            pause = self._limits.pause
            _LOG.warning("%s is down (%s); calls wait up to %.0f s for it", self._name, why, pause)

    def _after_probe(self, outcome: Outcome, now: float) -> None:
        if outcome == "served":
            seconds = now - (self.down_since or now)
            _LOG.warning("%s answers again after %.1f s; going on", self._name, seconds)
            self.down_since, self._up_since = None, now
            self._held_until = -math.inf  # it is back before the time that it named
            self._ended.clear()
            self._failed = self._in_a_row = 0
        elif outcome == "dropped":
            self.probe_at = now  # nothing was learnt
        else:  # the next probe goes in time, whatever the server asks for
            self.probe_at = now + self._limits.probe_every

    def _gives_up_at(self) -> float:
        return math.inf if self.down_since is None else self.down_since + self._limits.pause

    def _pause_is_over(self) -> Failure:
        detail = f"was down for longer than pause = {self._limits.pause:g} s"
        return Failure("breaker_open", detail, retry=False)

    def _delay(self, now: float) -> float:
        """Seconds until the next request may go; infinite when a turn must come back first."""
        if self.down_since is not None:
            return math.inf if self._probing else max(0.0, self.probe_at - now)
        if self.slots.full:
            return math.inf
        return max(0.0, self._held_until - now, self._next_at - now)

    def _admit(self, now: float) -> Turn:
        self.slots.active += 1
        self._next_at = max(self._next_at, now - 1.0) + self._spacing
        self._probing = self.down_since is not None
        return Turn(now, self._probing)

    def _pump(self, now: float) -> None:
        """Let in whoever may go, and come back when the next one may."""
        while self._queue:
            delay = 0.0 if self._queue[0].done() else self._delay(now)
            if delay > 0.0 and now < self._gives_up_at():
                self._wake_in(min(delay, self._gives_up_at() - now))
                return
            waiter = self._queue.popleft()
            if delay > 0.0:
                waiter.set_exception(self._pause_is_over())
            elif not waiter.done():  # else it gave up
                waiter.set_result(self._admit(now))

    def _wake_in(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if delay < math.inf:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay, lambda: self._pump(time.monotonic()))
