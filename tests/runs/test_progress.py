"""Progress: a bar on a terminal, a heartbeat elsewhere, never on stdout."""

from __future__ import annotations

import io

import pytest

from factrl.runs import progress
from factrl.runs.progress import Progress


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(progress, "time", fake)
    return fake


def test_a_heartbeat_every_thirty_seconds(time: Clock) -> None:
    stream = io.StringIO()
    with Progress("train truthrl", 100, stream) as bar:
        for _ in range(100):
            time.now += 1
            bar.advance(1, "reward +0.25")
    assert stream.getvalue().splitlines() == [
        "train truthrl: started",
        "train truthrl: 30/100, 1:10 left, reward +0.25",
        "train truthrl: 60/100, 0:40 left, reward +0.25",
        "train truthrl: 90/100, 0:10 left, reward +0.25",
        "train truthrl: done after 1:40",
    ]


def test_a_known_pace_tells_the_time_left_from_the_start_and_is_mended_by_what_is_seen(time: Clock) -> None:
    stream = io.StringIO()
    with Progress("study", 200, stream, pace=2.0) as bar:
        for doing in ("half as fast", "", "and as fast"):
            time.now += 40
            bar.advance(40, doing)
    told = stream.getvalue().splitlines()
    assert told[0] == "study: started, about 1:40 left"
    assert told[1] == "study: 40/200, 2:13 left, half as fast"


def test_what_ends_before_its_end_was_stopped(time: Clock) -> None:
    stream = io.StringIO()
    with Progress("train truthrl", 16, stream) as bar:
        bar.advance(3)
        time.now += 30
    assert stream.getvalue().endswith("train truthrl: stopped at 3/16 after 0:30\n")


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Progress("evaluate", 3, stream) as bar:
        bar.advance(2, "1 masked")
        bar.advance()
    shown = stream.getvalue()
    assert "evaluate" in shown
    assert "3/3" in shown
    assert "started" not in shown
