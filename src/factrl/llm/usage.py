"""What a client has sent and what that cost, with a cap on either.

A server that does not count its tokens is counted for, at four bytes a token, so that a cap on the cost holds
there too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from factrl.errors import ConfigError

BYTES_PER_TOKEN = 4
Price = tuple[float, float]
"""US dollars for a million tokens: of the prompt, of the reply."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The counts of one client since it was made, in this process.

    Attributes:
        calls: calls that were made, without the cached ones.
        requests: requests that were sent for them.
        retries: those of them that repeated an earlier one.
        cached: calls that a cache or another call in flight answered.
        tokens_in, tokens_out: tokens of all prompts and of all replies.
        cost_usd: what they cost; None when the price is not known.
        seconds_waiting: seconds that calls waited for their turn or before a retry, summed over calls.
    """

    calls: int = 0
    requests: int = 0
    retries: int = 0
    cached: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    seconds_waiting: float = 0.0


class Meter:
    """Counts, and says when the budget is used up.  Counted on the background loop only, read from anywhere.

    Args:
        max_calls: calls that may be made; None for any number.
        max_cost_usd: US dollars that may be spent.  Requests in flight when it is reached are paid for.
        price: see `Price`.
        model: whose price is missing, for the error.

    Raises:
        ConfigError: a cap that cannot hold, such as one on a cost without a price.
    """

    def __init__(
        self,
        *,
        max_calls: int | None = None,
        max_cost_usd: float | None = None,
        price: Price | None = None,
        model: str = "",
    ) -> None:
        if max_calls is not None and max_calls < 1:
            raise ConfigError(f"max_calls must be at least 1, not {max_calls!r}")
        if max_cost_usd is not None and not 0 < max_cost_usd < math.inf:
            raise ConfigError(f"max_cost_usd must be a positive number, not {max_cost_usd!r}")
        if price is not None and not (len(price) == 2 and all(0 <= part < math.inf for part in price)):
            raise ConfigError(f"price must be two numbers, US dollars per million tokens, not {price!r}")
        if max_cost_usd is not None and price is None:
            raise ConfigError(
                f"max_cost_usd={max_cost_usd:g} needs the price of {model}: give price=(in, out), "
                "US dollars per million tokens of prompt and reply"
            )
        self._max_calls, self._max_cost, self._price = max_calls, max_cost_usd, price
        self.calls = self.requests = self.retries = self.cached = self.tokens_in = self.tokens_out = 0
        self.seconds_waiting = 0.0

    def cost(self) -> float | None:
        """US dollars so far; None when the price is not known."""
        if self._price is None:
            return None
        return (self.tokens_in * self._price[0] + self.tokens_out * self._price[1]) / 1e6

    def allow(self, max_cost_usd: float) -> None:
        """Another `max_cost_usd`, of which what was spent so far is a part."""
        self._max_cost = max_cost_usd

    def no_more_calls(self) -> str:
        """Why no further call may be made; empty when one may."""
        if self._max_calls is not None and self.calls >= self._max_calls:
            return f"max_calls = {self._max_calls} is used up"
        return self.no_more_requests()

    def no_more_requests(self) -> str:
        """Why no further request may be sent; empty when one may."""
        cost = self.cost()
        if cost is not None and self._max_cost is not None and cost >= self._max_cost:
            return f"max_cost_usd = {self._max_cost:g} is used up (${cost:.4g} spent)"
        return ""

    def usage(self) -> Usage:
        """The counts at this moment."""
        return Usage(
            self.calls,
            self.requests,
            self.retries,
            self.cached,
            self.tokens_in,
            self.tokens_out,
            self.cost(),
            self.seconds_waiting,
        )
