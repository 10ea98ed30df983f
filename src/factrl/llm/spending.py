"""What asking has cost so far, with a cap on it: of one client, and of a whole run.

A `Meter` counts what a client has sent.  Where a server does not count its tokens, they are estimated at four
bytes a token, so that a cap on the cost holds there too.

A run's account, of all processes and all sessions, is kept in `spent.json` of its folder.  A step that was
killed halfway is not in it.  A run stops before a step that may not fit under the cap, taken to cost as much
as the dearest so far; where that guess is too low, the client itself asks no more once the cap is reached.
Each process has an equal share of what is left, computed anew after each step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError
from factrl.runs.disk import write_whole

FILE = "spent.json"
BYTES_PER_TOKEN = 4
Price = tuple[float, float]
"""US dollars for a million tokens: of the prompt, of the reply."""


class Meter:
    """Counts of one client in this process.  Counted on the background loop only, read from anywhere.

    Args:
        max_cost_usd: US dollars that may be spent; None for any amount.  When it is reached, what is in
            flight is still paid for.
        model: whose price is missing, for the error.

    Attributes:
        calls: calls that were made, without the cached ones.
        requests, retries: requests that were sent for them, and those of them that repeated an earlier one.
        cached: calls that a cache or another call in flight answered.
        tokens_in, tokens_out: tokens of all prompts and of all replies.

    Raises:
        ConfigError: a cap that cannot hold, such as one on a cost without a price.
    """

    def __init__(
        self,
        *,
        max_cost_usd: float | None = None,
        price: Price | None = None,
        model: str = "",
    ) -> None:
        if max_cost_usd is not None and not 0 < max_cost_usd < math.inf:
            raise ConfigError(f"max_cost_usd must be a positive number, not {max_cost_usd!r}")
        if price is not None and not (len(price) == 2 and all(0 <= part < math.inf for part in price)):
            raise ConfigError(f"price must be two numbers, US dollars per million tokens, not {price!r}")
        if max_cost_usd is not None and price is None:
            raise ConfigError(
                f"max_cost_usd={max_cost_usd:g} needs the price of {model}: give price=(in, out), "
                "US dollars per million tokens of prompt and reply"
            )
        self.max_cost_usd, self.price = max_cost_usd, price
        self.calls = self.requests = self.retries = self.cached = self.tokens_in = self.tokens_out = 0

    @property
    def spent(self) -> Spent:
        """The counts that cost something."""
        return Spent(self.calls, self.tokens_in, self.tokens_out)

    @property
    def tokens(self) -> int:
        """Of all prompts and replies."""
        return self.tokens_in + self.tokens_out

    @property
    def cost_usd(self) -> float | None:
        """US dollars so far; None when the price is not known."""
        return None if self.price is None else self.spent.cost(self.price)

    def no_more_requests(self) -> str:
        """Why no further request may be sent; empty when one may."""
        cost = self.cost_usd
        if cost is not None and self.max_cost_usd is not None and cost >= self.max_cost_usd:
            return f"max_cost_usd = {self.max_cost_usd:g} is used up (${cost:.4g} spent)"
        return ""


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls that were made to a judge, without cached ones, and their tokens."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Spent) -> Spent:
        return Spent(*(a - b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def cost(self, price: Price) -> float:
        """US dollars."""
        return (self.tokens_in * price[0] + self.tokens_out * price[1]) / 1e6


@dataclass(frozen=True, slots=True)
class Account:
    """What `spent.json` holds: all sessions, and the step that cost most, evaluation included."""

    total: Spent = Spent()
    dearest: Spent = Spent()

    def overdraft(self, price: Price | None, cap: float | None) -> str:
        """Why another step does not fit under a cap; empty when it does.

        >>> Account(Spent(9, 6_000_000, 0), Spent(1, 3_000_000, 0)).overdraft((1.0, 2.0), 8.0)
        'the judge has cost $6 of run.max_cost = $8, and one more step up to $3'
        """
        if cap is None or price is None:
            return ""
        spent, step = self.total.cost(price), self.dearest.cost(price)
        if spent + step <= cap and spent < cap:
            return ""
        return (
            f"the judge has cost ${spent:.4g} of run.max_cost = ${cap:g}, and one more step up to ${step:.4g}"
        )

    def allowance(self, price: Price | None, cap: float | None, processes: int) -> float | None:
        """US dollars that the client of one process may still spend; None for any amount."""
        if cap is None or price is None:
            return None
        return max(cap - self.total.cost(price), math.ulp(0.0)) / processes


def read_account(run: Path | str) -> Account:
    """What earlier sessions of the run have spent; nothing when it asked no server.

    Raises:
        DataError: the file is damaged.
    """
    path = Path(run) / FILE
    try:
        saved = json.loads(path.read_text("utf-8"))
        return Account(Spent(**saved["total"]), Spent(**saved["dearest_step"]))
    except FileNotFoundError:
        return Account()
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}); remove it, and the run counts from 0") from error


def judge_meter(judge: Any) -> Meter | None:
    """What counts for a judge; None for one that is not paid for, such as the local one."""
    meter = getattr(judge, "usage", None)
    return meter if isinstance(meter, Meter) else None


class Spending:
    """The account of a run that is under way.

    Args:
        meter: of this process.
        price: US dollars per million tokens of prompts and of replies; None when not known.
        cap: US dollars that the whole run may cost; None for any amount.
        before: what earlier sessions have spent.
    """

    def __init__(
        self,
        meter: Meter,
        *,
        price: Price | None = None,
        cap: float | None = None,
        before: Account | None = None,
    ) -> None:
        self._meter, self._price, self._cap = meter, price, cap
        self.account = before or Account()
        self._before = self.account.total

    def here(self) -> Spent:
        """What this process has spent in this session."""
        return self._meter.spent

    def note(self, everyone: Sequence[Spent]) -> None:
        """Add up what was spent after a step, and share out what is left.

        Args:
            everyone: `here()` of every process.
        """
        price = self._price or (1.0, 1.0)
        total = sum(everyone, self._before)
        dearest = max(self.account.dearest, total - self.account.total, key=lambda step: step.cost(price))
        self.account = Account(total, dearest)
        left = self.account.allowance(self._price, self._cap, len(everyone))
        if left is not None:
            self._meter.max_cost_usd = self.here().cost(price) + left

    def why_over(self) -> str:
        """Why the run stops, as another step may cost more than is left; empty while it goes on."""
        return self.account.overdraft(self._price, self._cap)

    def save(self, run: Path) -> None:
        """Write the account into the run folder."""
        account = {"total": asdict(self.account.total), "dearest_step": asdict(self.account.dearest)}
        write_whole(run / FILE, json.dumps(account).encode())
