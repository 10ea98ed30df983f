"""What asking has cost so far, with a cap on it: of one client, and of a whole run.

A `Meter` counts what a client has sent.  A server that does not count its tokens is counted for, at four
bytes a token, so that a cap on the cost holds there too.

A run's account is kept in `spent.json` of its folder, at the prices of the settings, of all processes and all
sessions.  A step that was killed halfway is not in it.  A run stops after the last step behind which another
one still fits, taken to cost as much as the dearest so far; what that guess misses is held back by the client
itself, which asks no more once the cap is reached.  Each process has an equal share of what is left, dealt
anew after each step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError, FactrlError

FILE = "spent.json"
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
    """

    calls: int = 0
    requests: int = 0
    retries: int = 0
    cached: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None


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
        )


class OverBudget(FactrlError, RuntimeError):
    """The judge has cost what the run may spend on it; its folder holds a complete checkpoint."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Counts of a judge.

    Attributes:
        calls: calls that were made; what a cache answered is not among them.
        tokens_in, tokens_out: tokens of prompts and of replies.
    """

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls, self.tokens_in + other.tokens_in, self.tokens_out + other.tokens_out
        )

    def __sub__(self, other: Spent) -> Spent:
        return Spent(
            self.calls - other.calls, self.tokens_in - other.tokens_in, self.tokens_out - other.tokens_out
        )

    def cost(self, price: Price) -> float:
        """US dollars."""
        return (self.tokens_in * price[0] + self.tokens_out * price[1]) / 1e6


@dataclass(frozen=True, slots=True)
class Account:
    """What `spent.json` holds.

    Attributes:
        total: of all sessions.
        dearest: of the step that cost most, evaluation included.
    """

    total: Spent = Spent()
    dearest: Spent = Spent()


def read_account(run: Path | str) -> Account:
    """What an earlier session of the run has spent; nothing when it asked no server.

    Raises:
        DataError: the file is damaged.
    """
    path = Path(run) / FILE
    try:
        told = json.loads(path.read_text("utf-8"))
        return Account(Spent(**told["total"]), Spent(**told["dearest_step"]))
    except FileNotFoundError:
        return Account()
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}); remove it, and the run counts from 0") from error


def judge_meter(judge: Any) -> Meter | None:
    """What counts for a judge; None for one that is not paid for, such as the local one."""
    meter = getattr(judge, "meter", None)
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
        self._before = (before or Account()).total
        self.account = before or Account()
        self._shares: list[float] = []  # what each process may have spent by the end of its next step
        self._used_up = False  # a process has spent its share

    def here(self) -> Spent:
        """What this process has spent in this session."""
        return Spent(self._meter.calls, self._meter.tokens_in, self._meter.tokens_out)

    def note(self, everyone: Sequence[Spent]) -> None:
        """Take note after a step.

        Args:
            everyone: `here()` of every process.
        """
        total = sum(everyone, self._before)
        step = total - self.account.total
        dearest = max(self.account.dearest, step, key=self._weight)
        self.account = Account(total, dearest)
        self._deal([one.cost(self._price or (0.0, 0.0)) for one in everyone])

    @property
    def over(self) -> bool:
        """Whether another step may cost more than is left."""
        return bool(self.why())

    def told(self) -> str:
        """What was spent, for a person."""
        total = self.account.total
        counts = f"{total.calls:,} calls, {total.tokens_in:,} + {total.tokens_out:,} tokens"
        return counts if self._price is None else f"{counts}, ${total.cost(self._price):.4g}"

    def why(self) -> str:
        """Why the run stops; empty while it does not."""
        why = overdraft(self.account, self._price, self._cap)
        if why or not self._used_up:
            return why
        return (
            f"one of {len(self._shares)} processes has used up its share of run.max_cost = ${self._cap:g}, "
            f"of which the judge has cost {self.told().rpartition(', ')[2]}"
        )

    def save(self, run: Path) -> None:
        """Write the account into the run folder."""
        told = {"total": asdict(self.account.total), "dearest_step": asdict(self.account.dearest)}
        from factrl.runs.whole_file import write_whole

        write_whole(run / FILE, json.dumps(told).encode())

    def _deal(self, costs: Sequence[float]) -> None:
        """Give every process an equal share of what is left.

        Args:
            costs: US dollars that each has spent in this session.
        """
        count = len(costs)
        first = allowance(Account(self._before), self._price, self._cap, count)
        left = allowance(self.account, self._price, self._cap, count)
        if first is None or left is None:
            return
        shares = self._shares or [first] * count
        self._used_up = any(cost >= share for cost, share in zip(costs, shares, strict=True))
        self._shares = [cost + left for cost in costs]
        self._meter.allow(self.here().cost(self._price or (0.0, 0.0)) + left)

    def _weight(self, spent: Spent) -> float:
        return spent.cost(self._price or (1.0, 1.0))


def overdraft(account: Account, price: Price | None, cap: float | None) -> str:
    """Why another step does not fit under a cap; empty when it does."""
    if cap is None or price is None:
        return ""
    spent, step = account.total.cost(price), account.dearest.cost(price)
    if spent + step <= cap and spent < cap:
        return ""
    return f"the judge has cost ${spent:.4g} of run.max_cost = ${cap:g}, and one more step up to ${step:.4g}"


def allowance(account: Account, price: Price | None, cap: float | None, processes: int) -> float | None:
    """US dollars that the client of one process may still spend; None for any amount."""
    if cap is None or price is None:
        return None
    return max(cap - account.total.cost(price), math.ulp(0.0)) / processes
