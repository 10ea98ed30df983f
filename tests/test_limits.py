"""Slots, allowances, the breaker and the queue before them, by a clock that the tests turn."""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from bisect import bisect
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from factrl.errors import ConfigError
from factrl.llm.breaker import Breaker, Trips
from factrl.llm.flights import Flights
from factrl.llm.limits import Bucket, Gate, Limits, PauseOver, Slots, Turn
from factrl.llm.usage import Meter

pytestmark = pytest.mark.alone

QUICK = Trips(share=0.5, calls=4, window=10.0, probe_every=0.05)


# ---------------------------------------------------------------- slots


@pytest.mark.fault("F05")
def test_a_refusal_halves_the_slots_once_per_round_trip() -> None:
    slots = Slots(64)
    slots.refused(began=1.0, now=2.0)
    assert slots.limit == 32
    for _ in range(63):  # sent before the refusal was known
        slots.refused(began=1.5, now=2.1)
    assert slots.limit == 32
    slots.refused(began=2.2, now=3.0)
    assert slots.limit == 16


def test_there_is_always_one_slot() -> None:
    slots = Slots(3)
    for now in range(10):
        slots.refused(began=now, now=now)
    assert slots.limit == 1
    assert not slots.full


def test_answers_win_one_slot_per_round() -> None:
    slots = Slots(64)
    slots.refused(began=0.0, now=1.0)
    slots.active = 32
    for _ in range(32):
        slots.served()
    assert slots.limit == pytest.approx(33, abs=0.1)


def test_after_a_collapse_every_answer_wins_a_slot_up_to_half_of_what_there_was() -> None:
    slots = Slots(64)
    slots.collapse(now=1.0)
    seen = []
    for _ in range(40):
        slots.active = int(slots.limit)
        slots.served()
        seen.append(slots.limit)
    assert seen[:31] == [float(n) for n in range(2, 33)]
    assert 32 < seen[-1] < 33


def test_unused_slots_do_not_grow_and_none_grow_beyond_the_most() -> None:
    slots = Slots(8)
    slots.refused(began=0.0, now=1.0)
    slots.active = 2
    slots.served()
    assert slots.limit == 4
    for _ in range(1000):
        slots.active = int(slots.limit)
        slots.served()
    assert slots.limit == 8


# ---------------------------------------------------------------- allowances


@pytest.mark.parametrize("per_minute", [30, 60, 600, 6000])
def test_no_minute_sees_more_than_the_allowance(per_minute: int) -> None:
    bucket, now, taken = Bucket(per_minute, 0.0), 0.0, []
    while now < 200:
        if delay := bucket.delay(1.0, now):
            now += delay
        else:
            bucket.take(1.0, now)
            taken.append(now)
    in_a_minute = [bisect(taken, start + 60) - n for n, start in enumerate(taken)]
    assert max(in_a_minute) <= per_minute + max(1, per_minute // 60) + 1
    assert len(taken) >= 200 * per_minute / 60 - 1  # and it is used


def test_more_than_the_bucket_holds_waits_for_a_full_one_and_is_paid_back() -> None:
    bucket = Bucket(600, 0.0)  # ten a second
    assert bucket.delay(50, 0.0) == 0.0
    bucket.take(50, 0.0)
    assert bucket.delay(1, 0.0) == pytest.approx(4.1)
    bucket.take(-30, 0.0)  # fewer were used
    assert bucket.delay(1, 0.0) == pytest.approx(1.1)
    assert bucket.delay(1, 5.0) == 0.0


def test_no_allowance_is_no_limit() -> None:
    bucket = Bucket(None, 0.0)
    bucket.take(1e12, 0.0)
    assert bucket.delay(1e12, 0.0) == 0.0


# ---------------------------------------------------------------- breaker


@pytest.mark.fault("F01")
def test_half_of_twenty_failures_in_ten_seconds_open_it() -> None:
    breaker = Breaker(Trips())
    for n in range(19):
        assert not breaker.record(failed=n % 2 == 0, began=0.0, now=0.1 * n)
    assert breaker.record(failed=False, began=0.0, now=2.0)  # 10 of 20
    assert breaker.is_open
    assert breaker.probe_at == 7.0


@pytest.mark.parametrize(
    ("failed", "spacing"),
    [([True] * 19, 0.1), ([True] * 9 + [False] * 11, 0.1), ([True, True, False] * 9, 0.6)],
)
def test_less_does_not(failed: list[bool], spacing: float) -> None:
    breaker = Breaker(Trips())
    assert not any(breaker.record(was, n * spacing, n * spacing) for n, was in enumerate(failed))


def test_failures_in_a_row_open_it_after_any_good_time() -> None:
    breaker = Breaker(Trips())
    for n in range(10_000):
        breaker.record(failed=False, began=0.0, now=n * 1e-3)
    opened = [breaker.record(failed=True, began=10.0, now=10.0) for _ in range(20)]
    assert opened == [False] * 19 + [True]


def test_what_began_before_it_closed_is_old_news() -> None:
    breaker = Breaker(QUICK)
    for _ in range(4):
        breaker.record(failed=True, began=0.0, now=1.0)
    assert breaker.is_open
    breaker.close(2.0)
    assert not any(breaker.record(failed=True, began=1.9, now=3.0) for _ in range(100))
    assert not breaker.is_open


# ---------------------------------------------------------------- the queue


def gate(**limits: Any) -> Gate:
    return Gate("server", Limits(**{"trips": QUICK, "pause": 20.0, **limits}))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def fail(door: Gate, times: int) -> None:
    for _ in range(times):
        door.leave(await door.enter(), "failed", why="it burns")


def test_the_next_goes_when_one_comes_back_and_retries_go_first() -> None:
    async def main() -> None:
        door, order = gate(max_concurrency=1), []
        first = await door.enter()

        async def caller(name: str, again: bool) -> None:
            turn = await door.enter(again=again)
            order.append(name)
            door.leave(turn, "served")

        callers = [asyncio.create_task(caller(*who)) for who in [("a", False), ("b", False), ("c", True)]]
        await settled()
        assert order == []
        door.leave(first, "served")
        await asyncio.gather(*callers)
        assert order == ["c", "a", "b"]
        assert door.slots.active == 0

    asyncio.run(main())


@pytest.mark.fault("F32")
def test_a_caller_who_gives_up_takes_no_slot_with_him() -> None:
    async def main() -> None:
        door = gate(max_concurrency=1)
        first = await door.enter()
        waiting = [asyncio.create_task(door.enter()) for _ in range(3)]
        await settled()
        waiting[0].cancel()
        await settled()
        door.leave(first, "served")  # admits the second …
        waiting[1].cancel()  # … which is cancelled before it runs
        turn = await asyncio.wait_for(waiting[2], 5)
        assert door.slots.active == 1
        door.leave(turn, "served")
        assert door.slots.active == 0

    asyncio.run(main())


@pytest.mark.fault("F18")
def test_callers_wait_while_the_server_is_down_and_one_probe_lets_them_go_on() -> None:
    async def main() -> None:
        door, probes = gate(max_concurrency=8), []
        await fail(door, 4)
        assert door.breaker.is_open

        async def caller() -> None:
            while True:
                turn = await door.enter(again=True)
                probes.append(turn.probe)
                door.leave(turn, "served" if len(probes) > 3 else "failed")
                if len(probes) > 3:
                    return

        start = time.monotonic()
        await asyncio.wait_for(asyncio.gather(*[caller() for _ in range(20)]), 10)
        assert probes[:4] == [True] * 4  # three in vain, one that found it well
        assert probes[4:] == [False] * 19
        assert time.monotonic() - start >= 4 * QUICK.probe_every

    asyncio.run(main())


def test_only_one_probe_is_under_way() -> None:
    async def main() -> None:
        door = gate()
        await fail(door, 4)
        waiting = [asyncio.create_task(door.enter()) for _ in range(10)]
        await asyncio.sleep(4 * QUICK.probe_every)
        done = [task for task in waiting if task.done()]
        assert [task.result().probe for task in done] == [True]
        door.leave(done[0].result(), "dropped")  # its caller was interrupted: somebody else asks, at once
        await settled()
        assert sum(task.done() for task in waiting) == 2
        for task in waiting:
            task.cancel()

    asyncio.run(main())


@pytest.mark.fault("F01")
def test_after_the_pause_callers_give_up_and_later_ones_may_still_probe() -> None:
    async def main() -> None:
        door = gate(pause=0.12, trips=Trips(calls=4, probe_every=1.0))
        await fail(door, 4)
        gone = await asyncio.gather(*[door.enter() for _ in range(5)], return_exceptions=True)
        assert [type(error) for error in gone] == [PauseOver] * 5
        with pytest.raises(PauseOver):  # nobody starts a pause of his own
            await door.enter()
        door.breaker.probe_at = time.monotonic()
        turn = await door.enter()
        assert turn.probe
        door.leave(turn, "served")
        assert isinstance(await door.enter(), Turn)

    asyncio.run(main())


@pytest.mark.fault("F06")
def test_a_server_that_says_when_holds_everyone_and_is_not_down() -> None:
    async def main() -> None:
        door = gate()
        for _ in range(10):
            turn = await door.enter()
            door.leave(turn, "refused", wait=0.0)
        assert not door.breaker.is_open
        turn = await door.enter()
        start = time.monotonic()
        door.leave(turn, "refused", wait=0.2)
        await door.enter()
        assert 0.2 <= time.monotonic() - start < 1.0

    asyncio.run(main())


@pytest.mark.fault("F06")
def test_a_server_that_asks_for_too_long_counts_as_down() -> None:
    async def main() -> None:
        door = gate()
        door.leave(await door.enter(), "refused", wait=600.0)
        assert door.breaker.is_open
        assert door.slots.limit == 1

    asyncio.run(main())


class Clock(selectors.DefaultSelector):
    """Nobody sleeps: where an event loop would, its time goes on at once."""

    now, rounds = 1000.0, 0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready, self.rounds = super().select(0), self.rounds + 1
        assert self.rounds < 10_000, "somebody waits for ever"
        self.now += 0.0 if ready else timeout or 0.0
        return ready


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The clock of the queue and of the event loop that the test runs."""
    clock = Clock()
    monkeypatch.setattr("factrl.llm.limits.time", SimpleNamespace(monotonic=lambda: clock.now))
    yield clock
    clock.close()


def by_the(clock: Clock, main: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # pyright: ignore[reportAttributeAccessIssue]
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


@pytest.mark.fault("F06")
@pytest.mark.parametrize("wait", [None, 0.0, 30.0, 60.0, 60.1, 3600.0, 1e9, math.inf])
def test_whatever_a_server_asks_for_it_is_probed_every_five_seconds(clock: Clock, wait: float | None) -> None:
    async def main() -> None:
        door = gate(trips=Trips(), pause=900.0)
        await fail(door, 20)
        opened, probes = clock.now, []

        async def caller() -> float:
            while True:
                turn = await door.enter(again=True)
                if clock.now > opened + 22:  # then it is well
                    door.leave(turn, "served")
                    return clock.now
                probes.append(clock.now - opened)
                assert turn.probe
                door.leave(turn, "refused", wait=wait)

        done = await asyncio.gather(*[caller() for _ in range(30)])
        assert probes == pytest.approx([5, 10, 15, 20])
        assert done == pytest.approx([opened + 25] * 30)
        assert not door.breaker.is_open

    by_the(clock, main())


@pytest.mark.fault("F06")
@pytest.mark.parametrize("wait", [60.1, 3600.0, 1e9, math.inf])
def test_a_wait_that_is_too_long_opens_for_five_seconds(clock: Clock, wait: float) -> None:
    async def main() -> None:
        door = gate(trips=Trips(), pause=900.0)
        both = [await door.enter(), await door.enter()]
        began = clock.now
        for turn in both:
            door.leave(turn, "refused", wait=wait)
        turn = await door.enter()
        assert (turn.probe, clock.now - began) == (True, pytest.approx(5))
        door.leave(turn, "served")
        assert not (await door.enter()).probe
        assert clock.now - began == pytest.approx(5)

    by_the(clock, main())


@pytest.mark.fault("F14")
@pytest.mark.parametrize(
    "used", [10**400, 10**8, 101, math.inf, math.nan, -(10**400), -1], ids=lambda used: str(used)[:9]
)
def test_a_count_that_cannot_be_keeps_nobody_waiting(clock: Clock, used: float) -> None:
    async def main() -> None:
        door = gate(tpm=6000, max_concurrency=1)  # a hundred a second
        turn, began = await door.enter(tokens=100), clock.now
        waiting = [asyncio.ensure_future(door.enter(tokens=100)) for _ in range(3)]
        await settled()
        door.leave(turn, "served", used=used)
        for seconds, waiter in enumerate(waiting, start=1):
            turn = await waiter
            assert clock.now - began == pytest.approx(seconds)  # as if it had said nothing
            door.leave(turn, "served", used=used)
        assert door.slots.active == 0

    by_the(clock, main())


@pytest.mark.fault("F14")
@pytest.mark.parametrize("probe", [False, True])
def test_an_error_at_the_gate_keeps_nobody_waiting(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, probe: bool
) -> None:
    async def main() -> None:
        door = gate(max_concurrency=1)
        if probe:
            await fail(door, 4)
        turn = await door.enter()
        assert turn.probe == probe
        waiting = [asyncio.ensure_future(door.enter()) for _ in range(3)]
        await settled()
        with monkeypatch.context() as patch:
            patch.setattr(door.slots, "served", lambda: float(10**400))
            with pytest.raises(OverflowError):
                door.leave(turn, "served")
        for waiter in waiting:
            door.leave(await asyncio.wait_for(waiter, 10), "served")
        assert door.slots.active == 0

    by_the(clock, main())


def test_requests_and_tokens_per_minute_are_kept() -> None:
    async def main() -> None:
        door, start = gate(rpm=6000), time.monotonic()  # a hundred at once, then a hundred a second
        for _ in range(120):
            door.leave(await door.enter(), "served")
        assert time.monotonic() - start >= 0.19
        door, start = gate(tpm=60_000), time.monotonic()  # a thousand a second
        door.leave(await door.enter(tokens=1000), "served", used=1000)
        door.leave(await door.enter(tokens=1000), "served", used=100)  # 900 come back
        door.leave(await door.enter(tokens=900), "served", used=900)
        assert 0.99 <= time.monotonic() - start < 1.5

    asyncio.run(main())


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"backoff": -1}, "backoff"),
        ({"pause": math.inf}, "pause"),
        ({"rpm": 0}, "rpm"),
        ({"tpm": math.nan}, "tpm"),
    ],
)
def test_a_limit_that_cannot_work_is_named(limits: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Limits(**limits)


@pytest.mark.parametrize(
    ("trips", "word"),
    [
        ({"share": 0}, "share"),
        ({"calls": 0}, "calls"),
        ({"window": 0}, "window"),
        ({"probe_every": 0}, "probe"),
    ],
)
def test_a_trip_that_cannot_work_is_named(trips: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        Trips(**trips)


# ---------------------------------------------------------------- counting


def test_a_meter_counts_dollars() -> None:
    meter = Meter(price=(0.15, 0.6), max_cost_usd=1.0)
    meter.tokens_in, meter.tokens_out = 1_000_000, 1_000_000
    assert meter.usage().cost_usd == pytest.approx(0.75)
    assert meter.no_more_requests() == ""
    meter.tokens_out = 2_000_000
    assert "max_cost_usd = 1" in meter.no_more_requests()
    assert Meter().usage().cost_usd is None


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        ({"max_cost_usd": 5.0, "model": "gpt-x at http://h/v1"}, "max_cost_usd=5 needs the price of gpt-x"),
        ({"max_cost_usd": 0, "price": (1, 1)}, "max_cost_usd"),
        ({"max_calls": 0}, "max_calls"),
        ({"price": (1, -1)}, "price"),
        ({"price": (1,)}, "price"),
    ],
)
def test_a_cap_that_cannot_hold_is_named(caps: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Meter(**caps)


# ---------------------------------------------------------------- one flight for all


def test_work_runs_once_for_all_who_want_it() -> None:
    async def main() -> None:
        flights: Flights[int] = Flights()
        runs = []

        async def work() -> int:
            runs.append(1)
            await asyncio.sleep(0.01)
            return len(runs)

        assert await asyncio.gather(*[flights.once("k", work) for _ in range(50)]) == [1] * 50
        assert await flights.once("k", work) == 2  # nothing is remembered

    asyncio.run(main())


def test_an_error_reaches_all_and_is_not_remembered() -> None:
    async def main() -> None:
        flights: Flights[int] = Flights()

        async def burn() -> int:
            await asyncio.sleep(0)
            raise ValueError("no")

        async def well() -> int:
            return 1

        got = await asyncio.gather(*[flights.once("k", burn) for _ in range(3)], return_exceptions=True)
        assert [str(error) for error in got] == ["no"] * 3
        assert await flights.once("k", well) == 1

    asyncio.run(main())


def test_the_work_goes_on_for_those_who_stay_and_ends_with_the_last() -> None:
    async def main() -> None:
        flights: Flights[str] = Flights()
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


def test_a_new_event_loop_begins_anew() -> None:
    flights: Flights[int] = Flights()
    tasks: list[asyncio.Task[int]] = []

    async def leave_something_behind() -> None:
        tasks.append(asyncio.create_task(flights.once("k", lambda: asyncio.sleep(60, 0))))
        await settled()

    async def ask() -> int:
        assert "k" not in flights
        return await flights.once("k", lambda: asyncio.sleep(0, 7))

    forked = asyncio.new_event_loop()  # a child does not get to end what was under way
    forked.run_until_complete(leave_something_behind())
    assert asyncio.run(ask()) == 7
    for task in asyncio.all_tasks(forked):
        task.cancel()
    forked.run_until_complete(settled())
    forked.close()
