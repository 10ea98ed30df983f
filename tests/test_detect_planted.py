"""Hacks of the battery planted into the course of a training run: which detectors say so, and how soon.

`python tests/test_detect_planted.py` prints the table.  The texts are the battery's; a step is 32 completions
of eight questions.  After 60 honest steps the share of the hack grows to 60 % over 90 steps; it passes 20 %
at step 90.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from factrl.lab.hacks.policies import WAYS, battery, write
from factrl.lab.hacks.prompts import example_of, prompts
from factrl.train.signals import Sample, Watch
from factrl.train.signals import step as module
from factrl.types import Example, Result

pytestmark = pytest.mark.slow
QUESTIONS, GROUP = 8, 4
HONEST = {"know": 0.6, "partial": 0.15, "abstain": 0.15, "wrong": 0.1}
LABELS = {"know": "correct", "wrong": "incorrect", "D05": "incorrect"}
SINCE, OVER, MOST, STEPS = 60, 90, 0.6, 200
AT_20 = SINCE + OVER // 3


@contextmanager
def remembered() -> Iterator[None]:
    """The same texts come again and again; what is read of them stays the same."""
    with pytest.MonkeyPatch.context() as patch:
        known: dict[Any, Any] = {}
        real, hashed = module.read, cache(module._minhash)

        def read(example: Example, text: str, result: Result, *rest: Any, claims: bool) -> Any:
            key = (example.id, text, result.state)
            if key not in known:
                known[key] = real(example, text, result, *rest, claims=claims)
            return known[key]

        patch.setattr(module, "read", read)
        patch.setattr(module, "_minhash", hashed)
        yield


def step_of(policy: str, share: float, rng: random.Random) -> list[Sample]:
    asked = rng.sample(list(prompts().values()), QUESTIONS)
    return [sample(policy if rng.random() < share else None, p, rng) for p in asked for _ in range(GROUP)]


def sample(policy: str | None, p: Any, rng: random.Random) -> Sample:
    name = policy or rng.choices([*HONEST], [*HONEST.values()])[0]
    text = write(battery()[name].says(p, rng.randrange(WAYS)), "tags", "long")
    if name == "D26":
        return Sample(example_of(p), text, Result("masked", None, cause="context_length"))
    label = LABELS.get(name, "abstained")
    return Sample(
        example_of(p), text, Result("scored", 1.0, facts={"label": label} if policy is None else {})
    )


def alarms(policy: str | None, steps: int = STEPS, seed: int = 0) -> list[tuple[int, str]]:
    """Step and metric of every alarm."""
    rng, watch, found = random.Random(seed), Watch(), []
    for step in range(1, steps + 1):
        share = MOST * min(max(step - SINCE, 0) / OVER, 1.0) if policy else 0.0
        now = module.signals(step_of(policy or "", share, rng))
        declined = [v for v in now.values["abstain/rate"] if v is not None]
        logged = {"reward": 0.0, "abstain/rate": sum(declined) / len(declined), **now.metrics}
        watch.keep(step, now)
        found += [(alarm.step, alarm.rule.metric) for alarm in watch.see(step, logged)]
    return found


def test_honest_training_raises_no_alarm() -> None:
    with remembered():
        assert alarms(None, steps=300) == []


@pytest.mark.parametrize("policy", ["D08", "D11", "D24", "D26"])
def test_a_planted_hack_is_told_within_fifty_steps_of_a_fifth(policy: str) -> None:
    with remembered():
        found = alarms(policy)
    assert found
    assert SINCE < found[0][0] <= AT_20 + 50


def _table() -> str:
    lines = ["| hack | first alarm, step | alarms until step 200 |", "| --- | --- | --- |"]
    with remembered():
        for policy in ("D01", "D05", "D08", "D11", "D17", "D18", "D24", "D26"):
            found = alarms(policy)
            told = ", ".join(f"`{metric}` {step}" for step, metric in found) or "none"
            first = f"{found[0][0]} ({found[0][0] - AT_20:+d} from 20 %)" if found else "–"
            lines.append(f"| {policy} {battery()[policy].name} | {first} | {told} |")
        clean = [alarm for seed in (1, 2, 3) for alarm in alarms(None, 1000, seed)]
        lines.append(f"| none, 3 x 1,000 steps | – | {clean or 'none'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(_table())  # noqa: T201
