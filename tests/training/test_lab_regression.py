"""What the algorithms do to a model, in under a minute: the smallest model world, and effects that are large.

Each effect is there with the code as it is and gone when the part that makes it is broken: the sign of the
advantage, the mask, or the credit of single steps.  The unit tests of these parts say that they compute the
right numbers; this says that the numbers arrive at the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from factrl.cli import main
from factrl.lab import arms, loop
from factrl.lab.arms import run_arm
from factrl.lab.loop import group_advantages, judge
from factrl.lab.model import Base, pretrained
from factrl.lab.people import People

pytestmark = pytest.mark.slow

STEPS = 28
Metrics = Mapping[str, float]
Run = Callable[[str], Metrics]
Effect = Callable[[Metrics, Metrics], bool]
REWARDS = """
from factrl import Score, Span, Unscored, reward

def label_of(example, completion, grade):
    return grade(example.question, completion, example.answers).label

@reward
def judge_is_down(example, completion, *, grade):
    "Nobody can grade an abstention; as a 0 it would be better than a wrong answer."
    label = label_of(example, completion, grade)
    if label == "abstained":
        raise Unscored("timeout", "the judge did not answer")
    return {"outcome": 1.0 if label == "correct" else -1.0}

@reward
def praised(example, completion, *, grade):
    "An abstention is the worst outcome, but each of its words is called right."
    label = label_of(example, completion, grade)
    value = {"correct": 1.0, "incorrect": 0.0, "abstained": -1.0}[label]
    return Score({"outcome": value}, (Span(0, len(completion), 1),) if label == "abstained" else ())
"""


@pytest.fixture(scope="module")
def world() -> People:
    return People(seed=0, per_tier=60)


@pytest.fixture(scope="module")
def base(world: People, tmp_path_factory: pytest.TempPathFactory) -> Base:
    """Pretrained here and now: a model from the user's cache would hide a change in pretraining."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FACTRL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return pretrained(world, 0)


@pytest.fixture(scope="module")
def untrained(world: People, base: Base) -> Metrics:
    return run_arm(world, base, "base")[-1][1]


@pytest.fixture(scope="module")
def run(world: People, base: Base, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The held-out people's questions after training with a reward."""
    file = tmp_path_factory.mktemp("rewards") / "own.py"
    file.write_text(REWARDS, encoding="utf-8")
    own: Path = file

    def arm(name: str) -> Metrics:
        return run_arm(world, base, name if ":" in name else f"{own}:{name}", 0, STEPS)[-1][1]

    return arm


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # such small matrices are slower on more
    yield
    torch.set_num_threads(threads)


# The effects.  Each takes the metrics before and after, and says whether it is there.


def learns_to_abstain(before: Metrics, after: Metrics) -> bool:
    """Ternary: wrong answers to what was never read become abstentions; what is known stays."""
    return (
        after["unknown/abstention"] > before["unknown/abstention"] + 0.1
        and after["unknown/hallucination"] < before["unknown/hallucination"] - 0.1
        and after["known/accuracy"] > before["known/accuracy"] - 0.1
    )


def forgets_to_abstain(before: Metrics, after: Metrics) -> bool:
    """Binary: abstention goes, hallucination stays."""
    return (
        after["abstention"] <= min(0.01, before["abstention"])
        and after["hallucination"] > before["hallucination"] - 0.02
        and after["known/accuracy"] > before["known/accuracy"] - 0.1
    )


def is_left_alone(before: Metrics, after: Metrics) -> bool:
    """What cannot be graded teaches nothing, neither that it is good nor that it is bad."""
    return (
        after["unknown/abstention"] < before["unknown/abstention"] + 0.05
        and after["known/accuracy"] > before["known/accuracy"] - 0.1
    )


def follows_praise(before: Metrics, after: Metrics) -> bool:
    """Words that are called right are never discouraged, though their completion is."""
    return after["abstention"] > before["abstention"] + 0.1


@pytest.mark.parametrize(
    ("reward", "effect"),
    [
        ("truthrl:ternary", learns_to_abstain),
        ("truthrl:binary", forgets_to_abstain),
        ("judge_is_down", is_left_alone),
        ("praised", follows_praise),
    ],
)
def test_an_effect_is_there(run: Run, untrained: Metrics, reward: str, effect: Effect) -> None:
    assert effect(untrained, run(reward))


# And broken, each part once.


def wrong_sign(*args: Any, **more: Any) -> Any:
    return -group_advantages(*args, **more)


def masked_as_zero(*args: Any) -> Any:
    results, signs = judge(*args)
    return [r if r.value is not None else replace(r, state="scored", value=0.0) for r in results], signs


def no_credit(advantages: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    return advantages.unsqueeze(1).expand_as(signs)


@pytest.mark.parametrize(
    ("part", "broken", "reward", "effect"),
    [
        ("group_advantages", wrong_sign, "truthrl:ternary", learns_to_abstain),
        ("judge", masked_as_zero, "judge_is_down", is_left_alone),
        ("flip_advantages", no_credit, "praised", follows_praise),
    ],
)
def test_a_broken_part_would_be_seen(
    part: str,
    broken: Any,
    reward: str,
    effect: Effect,
    run: Run,
    untrained: Metrics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, part, broken)
    assert not effect(untrained, run(reward))


# The verb, with torch


def test_lab_runs_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def small(name: str, seed: int) -> People:
        assert name == "people"
        return People(seed=seed, per_tier=12, known=8, half=4)

    monkeypatch.setattr(arms, "make_world", small)
    monkeypatch.setenv("FACTRL_CACHE", str(tmp_path / "cache"))
    words = ["truthrl:ternary", "sft", "--seeds", "2", "--steps", "2", "--output", str(tmp_path / "out")]
    made: dict[Path, int] = {}
    for _ in range(2):  # the second time the pretrained models are there
        assert main(["lab", *words]) == 0
        found = {file: file.stat().st_mtime_ns for file in (tmp_path / "cache" / "lab").iterdir()}
        assert made in ({}, found)
        made = found
        out, err = capsys.readouterr()
        assert out.startswith("This is a model world")
        assert len(made) == 2
        for label in ("base", "truthrl:ternary", "sft"):
            assert f"{label}: done after" in err
    assert len([*(tmp_path / "out").glob("*/lab.json")]) >= 1
