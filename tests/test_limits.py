"""Slots, the queue before a server and what it does while that is down, by a clock that the tests turn."""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
from bisect import bisect
from collections.abc import Coroutine, Iterator, Sequence
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

pytestmark = pytest.mark.alone

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


def by_the(clock: Clock, main: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.SelectorEventLoop(clock)
    loop.time = lambda: clock.now  # pyright: ignore[reportAttributeAccessIssue]
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


def gate(**limits: Any) -> RateLimiter:
    return RateLimiter("server", Limits(**limits))


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def fail(door: RateLimiter, times: int = 20) -> None:
    for _ in range(times):
        door.leave(await door.enter(), "failed", why="it burns")


@pytest.mark.fault("F05")
def test_a_refusal_halves_the_slots_once_per_round_trip_and_a_round_of_answers_wins_one(clock: Clock) -> None:
    async def main() -> None:
        door = gate(max_concurrency=64)
        for left in (32, 16, 8, 4, 2, 1, 1):
            turns = [await door.enter() for _ in range(int(door.slots))]
            clock.now += 1
            for turn in turns:  # all that were sent before the first refusal was known
                door.leave(turn, "refused", wait=0.0)
            assert door.slots == left
        door.slots = 32.0
        turns = [await door.enter() for _ in range(30)]
        door.leave(turns.pop(), "served")
        assert door.slots == 32  # unused slots prove nothing
        turns += [await door.enter() for _ in range(3)]
        for _ in range(32):
            door.leave(turns.pop(), "served")
            turns.append(await door.enter())
        assert door.slots == pytest.approx(33, abs=0.1)
        for _ in range(3000):
            turns += [await door.enter() for _ in range(int(door.slots) - len(turns))]
            door.leave(turns.pop(), "served")
        assert door.slots == 64

    by_the(clock, main())


@pytest.mark.fault("F32")
def test_a_caller_who_gives_up_takes_no_slot_with_him(clock: Clock) -> None:
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
        assert door.active == 1
        door.leave(turn, "served")
        assert door.active == 0

    by_the(clock, main())


@pytest.mark.parametrize("per_minute", [30, 6000])
def test_no_minute_sees_more_than_the_allowance(clock: Clock, per_minute: int) -> None:
    async def main() -> None:
        door, sent, began = gate(rpm=per_minute), [], clock.now
        while clock.now < began + 100:
            assert len(sent) <= 4 * per_minute + 100  # without a limit the clock would stand still
            door.leave(await door.enter(), "served")
            sent.append(clock.now)
        in_a_minute = [bisect(sent, start + 60 - 1e-6) - n for n, start in enumerate(sent)]
        assert max(in_a_minute) <= per_minute + max(1, per_minute // 60) + 1
        assert len(sent) >= 100 * per_minute / 60 - 1  # and it is used

    by_the(clock, main())


@pytest.mark.parametrize(("may", "did"), [(100, 100), (600, 60), (50, 500), (20_000, 12_000)])
def test_no_minute_sees_more_tokens_than_the_allowance(clock: Clock, may: int, did: int) -> None:
    """What a request may use is held back until it is known what it did use; a large one goes alone."""

    async def main() -> None:
        door, sent, began = gate(tpm=6000), [], clock.now
        while clock.now < began + 600:
            assert len(sent) <= 60_000 / did + 10  # without a limit the clock would stand still
            turn = await door.enter(may)
            door.used(did - may)
            door.leave(turn, "served")
            sent.append(clock.now)
        in_a_minute = [bisect(sent, start + 60 - 1e-6) - n for n, start in enumerate(sent)]
        assert did * max(in_a_minute) <= 6000 + 100 + did
        assert did * len(sent) >= 60_000 - did  # and it is used

    by_the(clock, main())


def test_the_processes_of_a_run_share_the_tokens_of_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    for processes, told, each in (("1", 8000.0, 8000), ("4", 8000.0, 2000), ("4", None, None)):
        monkeypatch.setenv("WORLD_SIZE", processes)
        judge: Any = open_judge(JudgeSettings(url="http://localhost:1/v1#m", tpm=told))
        assert judge._http.limits.tpm == each


# ---------------------------------------------------------------- a server that is down


@pytest.mark.fault("F01")
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
def test_what_counts_as_down(clock: Clock, failed: list[bool], spacing: float, down: bool) -> None:
    async def main() -> None:
        door = gate()
        for number, was in enumerate(failed, start=1):
            clock.now += spacing
            door.leave(await door.enter(), "failed" if was else "served")
            assert (door.down_since is not None) == (down and number == len(failed))
        if down:
            assert door.probe_at == clock.now + 5

    by_the(clock, main())


def test_what_began_before_it_was_well_again_is_old_news(clock: Clock) -> None:
    async def main() -> None:
        door = gate()
        old = [await door.enter() for _ in range(60)]
        for turn in old[:20]:
            door.leave(turn, "failed")
        assert door.down_since is not None
        door.leave(await door.enter(), "served")
        for turn in old[20:]:
            door.leave(turn, "failed")
        assert door.down_since is None

    by_the(clock, main())


@pytest.mark.fault("F06")
@pytest.mark.parametrize("wait", [None, 30.0, 3600.0])
def test_whatever_a_server_asks_for_it_is_probed_every_five_seconds(clock: Clock, wait: float | None) -> None:
    async def main() -> None:
        door = gate()
        await fail(door)
        opened, probes = clock.now, []

        async def caller() -> float:
            while True:
                turn = await door.enter()
                if clock.now > opened + 22:  # then it is well
                    door.leave(turn, "served")
                    return clock.now
                probes.append(clock.now - opened)
                assert turn.probe
                door.leave(turn, "refused", wait=wait)

        done = await asyncio.gather(*[caller() for _ in range(30)])
        assert probes == pytest.approx([5, 10, 15, 20])
        assert done == pytest.approx([opened + 25] * 30)
        assert door.down_since is None

    by_the(clock, main())


@pytest.mark.fault("F18")
def test_callers_wait_while_the_server_is_down_and_one_probe_lets_them_go_on(clock: Clock) -> None:
    async def main() -> None:
        door = gate()
        await fail(door)
        waiting = [asyncio.create_task(door.enter()) for _ in range(10)]
        await asyncio.sleep(20)
        done = [task for task in waiting if task.done()]
        assert [task.result().probe for task in done] == [True]  # one is under way
        door.leave(done[0].result(), "dropped")  # its caller was interrupted: somebody else asks, at once
        await settled()
        [probe] = [task for task in waiting if task.done() and task not in done]
        door.leave(probe.result(), "served")
        for task in waiting:
            if task not in (probe, *done):
                turn = await task
                assert not turn.probe
                door.leave(turn, "served")
        assert door.active == 0

    by_the(clock, main())


@pytest.mark.fault("F01")
def test_after_the_pause_callers_give_up_and_later_ones_may_still_probe(clock: Clock) -> None:
    async def main() -> None:
        door = gate(pause=3.0)
        await fail(door)
        gone = await asyncio.gather(*[door.enter() for _ in range(5)], return_exceptions=True)
        assert [getattr(error, "cause", "") for error in gone] == ["breaker_open"] * 5
        with pytest.raises(Failure, match="pause = 3 s"):  # nobody starts a pause of his own
            await door.enter()
        clock.now += 5
        turn = await door.enter()
        assert turn.probe
        door.leave(turn, "served")
        assert not (await door.enter()).probe

    by_the(clock, main())


@pytest.mark.fault("F06")
@pytest.mark.parametrize("wait", [60.1, math.inf])
def test_a_server_that_asks_for_too_long_is_down(clock: Clock, wait: float) -> None:
    async def main() -> None:
        door = gate()
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


@pytest.mark.fault("F01")
def test_a_ping_goes_at_once_and_in_turns_with_callers_and_not_to_a_server_that_is_busy(clock: Clock) -> None:
    async def main() -> None:
        door = RateLimiter("server", Limits(), pings=True)
        await fail(door)
        began, pinging = clock.now, []
        for _ in range(4):  # a server that knows no ping may still answer a caller
            turn = await door.enter()
            pinging.append((turn.probe, door.pinging, clock.now - began))
            door.leave(turn, "failed")
        assert pinging == [(True, True, 0.0), (True, False, 5.0), (True, True, 10.0), (True, False, 15.0)]
        for _ in range(2):
            turn = await door.enter()
            door.leave(turn, "refused", busy=True)
            assert not door.pinging
        door.leave(await door.enter(), "served")
        assert door.down_since is None

    by_the(clock, main())
