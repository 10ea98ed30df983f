"""Slots, the queue before a server and what it does while that is down, by a clock that the tests turn."""

from __future__ import annotations

import asyncio
import functools
import math
import selectors
import threading
from bisect import bisect
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from factrl.errors import ConfigError
from factrl.job import open_judge
from factrl.llm import FakeLLM, Message, ask
from factrl.llm.background import SingleFlight, wait_for
from factrl.llm.bodies import Failure
from factrl.llm.limits import Limits, RateLimiter
from factrl.llm.spending import Meter
from factrl.runs.settings import JudgeSettings

# ---------------------------------------------------------------- the queue, by a clock that nobody waits for


class Clock(selectors.DefaultSelector):
    """Nobody sleeps: where an event loop would, its time goes on at once."""

    now, rounds = 1000.0, 0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready, self.rounds = super().select(0), self.rounds + 1
        assert self.rounds < 30_000, "somebody waits for ever"
        self.now += 0.0 if ready else timeout or 0.0
        return ready


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The clock of the queue and of the event loop that the test runs."""
    clock = Clock()
    monkeypatch.setattr("factrl.llm.limits.time", SimpleNamespace(monotonic=lambda: clock.now))
    yield clock
    clock.close()


def by_the_clock(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test that is a coroutine on an event loop whose time is the clock's."""

    @functools.wraps(test)
    def run(clock: Clock, **named: Any) -> None:
        loop = asyncio.SelectorEventLoop(clock)
        loop.time = lambda: clock.now  # pyright: ignore[reportAttributeAccessIssue]
        try:
            loop.run_until_complete(test(clock, **named))
        finally:
            loop.close()

    return run


def limited(**limits: Any) -> RateLimiter:
    return RateLimiter("server", Limits(**limits))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def fail(limiter: RateLimiter, times: int = 20) -> None:
    for _ in range(times):
        limiter.leave(await limiter.enter(), "failed", why="it burns")


@by_the_clock
async def test_a_refusal_halves_the_slots_once_per_round_trip_and_a_round_of_answers_wins_one(
    clock: Clock,
) -> None:
    limiter = limited(max_concurrency=64)
    for left in (32, 16, 8, 4, 2, 1, 1):
        turns = [await limiter.enter() for _ in range(int(limiter.slots))]
        clock.now += 1
        for turn in turns:  # all that were sent before the first refusal was known
            limiter.leave(turn, "refused", wait=0.0)
        assert limiter.slots == left
    limiter.slots = 32.0
    turns = [await limiter.enter() for _ in range(30)]
    limiter.leave(turns.pop(), "served")
    assert limiter.slots == 32  # unused slots prove nothing
    turns += [await limiter.enter() for _ in range(3)]
    for _ in range(32):
        limiter.leave(turns.pop(), "served")
        turns.append(await limiter.enter())
    assert limiter.slots == pytest.approx(33, abs=0.1)
    for _ in range(3000):
        turns += [await limiter.enter() for _ in range(int(limiter.slots) - len(turns))]
        limiter.leave(turns.pop(), "served")
    assert limiter.slots == 64


@by_the_clock
async def test_a_caller_who_gives_up_takes_no_slot_with_him(clock: Clock) -> None:
    limiter = limited(max_concurrency=1)
    first = await limiter.enter()
    waiting = [asyncio.create_task(limiter.enter()) for _ in range(3)]
    await settled()
    waiting[0].cancel()
    await settled()
    limiter.leave(first, "served")  # admits the second …
    waiting[1].cancel()  # … which is cancelled before it runs
    turn = await asyncio.wait_for(waiting[2], 5)
    assert limiter.active == 1
    limiter.leave(turn, "served")
    assert limiter.active == 0


@pytest.mark.parametrize("per_minute", [30, 6000])
@by_the_clock
async def test_no_minute_sees_more_than_the_allowance(clock: Clock, per_minute: int) -> None:
    limiter, sent, began = limited(rpm=per_minute), [], clock.now
    while clock.now < began + 100:
        assert len(sent) <= 4 * per_minute + 100  # without a limit the clock would stand still
        limiter.leave(await limiter.enter(), "served")
        sent.append(clock.now)
    in_a_minute = [bisect(sent, start + 60 - 1e-6) - n for n, start in enumerate(sent)]
    assert max(in_a_minute) <= per_minute + max(1, per_minute // 60) + 1
    assert len(sent) >= 100 * per_minute / 60 - 1  # and it is used


@pytest.mark.parametrize(("may", "did"), [(100, 100), (600, 60), (50, 500), (20_000, 12_000)])
@by_the_clock
async def test_no_minute_sees_more_tokens_than_the_allowance(clock: Clock, may: int, did: int) -> None:
    """What a request may use is held back until it is known what it did use; a large one goes alone."""
    limiter, sent, began = limited(tpm=6000), [], clock.now
    while clock.now < began + 600:
        assert len(sent) <= 60_000 / did + 10  # without a limit the clock would stand still
        turn = await limiter.enter(may)
        limiter.used(did - may)
        limiter.leave(turn, "served")
        sent.append(clock.now)
    in_a_minute = [bisect(sent, start + 60 - 1e-6) - n for n, start in enumerate(sent)]
    assert did * max(in_a_minute) <= 6000 + 100 + did
    assert did * len(sent) >= 60_000 - did  # and it is used


def test_the_processes_of_a_run_share_the_tokens_of_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    for processes, tpm, each in (("1", 8000.0, 8000), ("4", 8000.0, 2000), ("4", None, None)):
        monkeypatch.setenv("WORLD_SIZE", processes)
        judge: Any = open_judge(JudgeSettings(url="http://localhost:1/v1#m", tpm=tpm))
        assert judge._http.limits.tpm == each


# ---------------------------------------------------------------- a server that is down


@pytest.mark.parametrize(
    ("failed", "spacing", "down"),
    [
        ([n % 2 == 0 for n in range(20)], 0.1, True),  # half of twenty
        ([True] * 20, 10.0, True),
        ([False] * 10_000 + [True] * 20, 1e-3, True),  # in a row, after any good time
        ([True] * 19, 0.1, False),
        ([True] * 9 + [False] * 11, 0.1, False),
        ([True, True, False] * 9, 0.6, False),
    ],
    ids=["half of twenty", "a row", "a row after good times", "too few", "less than half", "too slow"],
)
@by_the_clock
async def test_what_counts_as_down(clock: Clock, failed: list[bool], spacing: float, down: bool) -> None:
    limiter = limited()
    for number, was in enumerate(failed, start=1):
        clock.now += spacing
        limiter.leave(await limiter.enter(), "failed" if was else "served")
        assert (limiter.down_since is not None) == (down and number == len(failed))
    if down:
        assert limiter.probe_at == clock.now + 5


@by_the_clock
async def test_what_began_before_it_was_well_again_is_old_news(clock: Clock) -> None:
    limiter = limited()
    old = [await limiter.enter() for _ in range(60)]
    for turn in old[:20]:
        limiter.leave(turn, "failed")
    assert limiter.down_since is not None
    limiter.leave(await limiter.enter(), "served")
    for turn in old[20:]:
        limiter.leave(turn, "failed")
    assert limiter.down_since is None


@pytest.mark.parametrize("wait", [None, 30.0, 3600.0])
@by_the_clock
async def test_whatever_a_server_asks_for_it_is_probed_every_five_seconds(
    clock: Clock, wait: float | None
) -> None:
    limiter = limited()
    await fail(limiter)
    opened, probes = clock.now, []

    async def caller() -> float:
        while True:
            turn = await limiter.enter()
            if clock.now > opened + 22:  # then it is well
                limiter.leave(turn, "served")
                return clock.now
            probes.append(clock.now - opened)
            assert turn.probe
            limiter.leave(turn, "refused", wait=wait)

    done = await asyncio.gather(*[caller() for _ in range(30)])
    assert probes == pytest.approx([5, 10, 15, 20])
    assert done == pytest.approx([opened + 25] * 30)
    assert limiter.down_since is None


@by_the_clock
async def test_callers_wait_while_the_server_is_down_and_one_probe_lets_them_go_on(clock: Clock) -> None:
    limiter = limited()
    await fail(limiter)
    waiting = [asyncio.create_task(limiter.enter()) for _ in range(10)]
    await asyncio.sleep(20)
    done = [task for task in waiting if task.done()]
    assert [task.result().probe for task in done] == [True]  # one is under way
    limiter.leave(done[0].result(), "dropped")  # its caller was interrupted: somebody else asks, at once
    await settled()
    [probe] = [task for task in waiting if task.done() and task not in done]
    limiter.leave(probe.result(), "served")
    for task in waiting:
        if task not in (probe, *done):
            turn = await task
            assert not turn.probe
            limiter.leave(turn, "served")
    assert limiter.active == 0


@by_the_clock
async def test_after_the_pause_callers_give_up_and_later_ones_may_still_probe(clock: Clock) -> None:
    limiter = limited(pause=3.0)
    await fail(limiter)
    gone = await asyncio.gather(*[limiter.enter() for _ in range(5)], return_exceptions=True)
    assert [getattr(error, "cause", "") for error in gone] == ["breaker_open"] * 5
    with pytest.raises(Failure, match="pause = 3 s"):  # nobody starts a pause of his own
        await limiter.enter()
    clock.now += 5
    turn = await limiter.enter()
    assert turn.probe
    limiter.leave(turn, "served")
    assert not (await limiter.enter()).probe


@pytest.mark.parametrize("wait", [60.1, math.inf])
@by_the_clock
async def test_a_server_that_asks_for_too_long_is_down(clock: Clock, wait: float) -> None:
    limiter = limited()
    both = [await limiter.enter(), await limiter.enter()]
    began = clock.now
    for turn in both:
        limiter.leave(turn, "refused", wait=wait)
    turn = await limiter.enter()
    assert (turn.probe, clock.now - began) == (True, pytest.approx(5))
    limiter.leave(turn, "served")
    assert not (await limiter.enter()).probe
    assert clock.now - began == pytest.approx(5)


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"backoff": -1}, "backoff"),
        ({"rpm": 0}, "rpm"),
        ({"tpm": -1}, "tpm"),
        ({"timeout_call": math.nan}, "timeout_call"),
        ({"max_attempts": 0}, "max_attempts"),
    ],
)
def test_a_limit_that_cannot_work_is_named(limits: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Limits(**limits)


# ---------------------------------------------------------------- counting


def test_a_meter_counts_dollars() -> None:
    meter = Meter(price=(0.15, 0.6), max_cost_usd=1.0)
    meter.tokens_in, meter.tokens_out = 1_000_000, 1_000_000
    assert meter.cost_usd == pytest.approx(0.75)
    assert meter.no_more_requests() == ""
    meter.tokens_out = 2_000_000
    assert "max_cost_usd = 1" in meter.no_more_requests()
    assert Meter().cost_usd is None


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        ({"max_cost_usd": 5.0, "model": "gpt-x at http://h/v1"}, "max_cost_usd=5 needs the price of gpt-x"),
        ({"price": (1,)}, "price"),
    ],
)
def test_a_cap_that_cannot_hold_is_named(caps: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Meter(**caps)


# ---------------------------------------------------------------- one flight for all


def test_work_runs_once_for_all_who_want_it() -> None:
    async def main() -> None:
        flights: SingleFlight[int] = SingleFlight()
        runs = []

        async def work() -> int:
            runs.append(1)
            await asyncio.sleep(0.01)
            return len(runs)

        assert await asyncio.gather(*[flights.once("k", work) for _ in range(50)]) == [1] * 50
        assert await flights.once("k", work) == 2  # nothing is remembered

    asyncio.run(main())


def test_the_work_goes_on_for_those_who_stay_and_ends_with_the_last() -> None:
    async def main() -> None:
        flights: SingleFlight[str] = SingleFlight()
        ended = []

        async def work() -> str:
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return "done"

        callers = [asyncio.create_task(flights.once("k", work)) for _ in range(3)]
        await settled()
        callers[0].cancel()
        assert await asyncio.gather(*callers[1:]) == ["done", "done"]
        callers = [asyncio.create_task(flights.once("k", work)) for _ in range(3)]
        await settled()
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        await settled()
        assert ended == ["cancelled"]
        assert await flights.once("k", work) == "done"

    asyncio.run(main())


# ---------------------------------------------------------------- models that block

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


@by_the_clock
async def test_a_ping_goes_at_once_and_in_turns_with_callers_and_not_to_a_server_that_is_busy(
    clock: Clock,
) -> None:
    limiter = RateLimiter("server", Limits(), pings=True)
    await fail(limiter)
    began, pinging = clock.now, []
    for _ in range(4):  # a server that knows no ping may still answer a caller
        turn = await limiter.enter()
        pinging.append((turn.probe, limiter.pinging, clock.now - began))
        limiter.leave(turn, "failed")
    assert pinging == [(True, True, 0.0), (True, False, 5.0), (True, True, 10.0), (True, False, 15.0)]
    for _ in range(2):
        turn = await limiter.enter()
        limiter.leave(turn, "refused", busy=True)
        assert not limiter.pinging
    limiter.leave(await limiter.enter(), "served")
    assert limiter.down_since is None
