"""When a server is down: stop asking it, try it now and then, go on when it answers.

A breaker decides and does nothing: it is told what became of each request, and says whether the next one may
go.  Who waits, and for how long, is `factrl.llm.limits`' business.  All times are seconds of one monotonic
clock, handed in by the caller.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from factrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Trips:
    """What opens a breaker.

    Attributes:
        share: share of failed requests in the window that opens it, above 0 and at most 1.
        calls: requests it must have seen in the window before it judges.  So many failures in a row open it
            too: after good times the share falls so slowly that every waiting call would fail first.
        window: seconds it looks back.
        probe_every: seconds between two attempts to find out whether the server is back.

    Raises:
        ConfigError: a value that cannot work.
    """

    share: float = 0.5
    calls: int = 20
    window: float = 10.0
    probe_every: float = 5.0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ConfigError(f"trips.share must be above 0 and at most 1, not {self.share!r}")
        if self.calls < 1:
            raise ConfigError(f"trips.calls must be at least 1, not {self.calls!r}")
        for name, value in (("window", self.window), ("probe_every", self.probe_every)):
            if not 0 < value < math.inf:
                raise ConfigError(f"trips.{name} must be a positive number of seconds, not {value!r}")


class Breaker:
    """Open while the server is thought to be down.

    Attributes:
        opened_at: when it opened; None while it is closed.
        probe_at: while it is open, when the next probe may go.
    """

    def __init__(self, trips: Trips) -> None:
        self._trips = trips
        self._seen: deque[tuple[float, bool]] = deque()
        self._failed = self._in_a_row = 0
        self._closed_at = -math.inf
        self.opened_at: float | None = None
        self.probe_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether requests have to wait."""
        return self.opened_at is not None

    def record(self, failed: bool, began: float, now: float) -> bool:
        """Note what became of a request; true when this opens the breaker.

        Args:
            began: when the request was sent.  What began before the breaker last closed is old news.
        """
        if self.is_open or began < self._closed_at:
            return False
        self._seen.append((now, failed))
        self._failed += failed
        self._in_a_row = self._in_a_row + 1 if failed else 0
        while self._seen[0][0] <= now - self._trips.window:
            self._failed -= self._seen.popleft()[1]
        seen, enough = len(self._seen), self._trips.calls
        if self._in_a_row < enough and (seen < enough or self._failed < self._trips.share * seen):
            return False
        self.open(now)
        return True

    def open(self, now: float) -> None:
        """Open, or stay open: the next probe goes after `probe_every`, whatever the server asks for."""
        if self.opened_at is None:
            self.opened_at = now
        self.probe_at = now + self._trips.probe_every

    def close(self, now: float) -> None:
        """Start afresh."""
        self.opened_at, self._closed_at = None, now
        self._seen.clear()
        self._failed = self._in_a_row = 0
