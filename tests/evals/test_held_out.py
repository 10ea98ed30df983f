"""Reward against truth on held-out answers."""

from __future__ import annotations

from pathlib import Path

import pytest

import factrl as fx
from factrl.evals.samples import EvalSample
from factrl.train.held_out import GAP, TrueGap
from factrl.types import Grade
from factrl.verifier.search import Given

EXAMPLES = [fx.Example(f"Where is {name}?", (place,)) for name, place in zip("abcd", "wxyz", strict=True)]
RIGHT = ["w", "x", "y", "z"]
STARTS = ["w", "x", "no", "not that"]


@fx.reward
def long_is_good(example: fx.Example, completion: fx.Completion) -> dict[str, float]:
    return {"long": len(completion) / 10}


@fx.reward
def right_is_good(example: fx.Example, completion: fx.Completion) -> dict[str, float]:
    return {"right": 3.0 if completion == example.answers[0] else -1.0}


def rows(texts: list[str], label: str = "incorrect") -> list[EvalSample]:
    return [
        EvalSample(e, t, Grade(label, t, how="judge"))  # type: ignore[arg-type]
        for e, t in zip(EXAMPLES, texts, strict=True)
    ]


def test_a_reward_that_grows_without_the_truth_opens_a_gap(tmp_path: Path) -> None:
    gap = TrueGap(long_is_good, "text", tmp_path)
    tails = ("", " and more", " and more, and more and more")
    gaps = [gap(rows([text + tail for text in STARTS]))[GAP] for tail in tails]
    assert gaps[0] == 0.0 < gaps[1] < gaps[2]
    again = TrueGap(long_is_good, "text", tmp_path)  # a run that goes on keeps its start
    assert again(rows([text + tails[2] for text in STARTS]))[GAP] == gaps[2]


def test_a_reward_that_grows_with_the_truth_opens_none_whatever_its_scale(tmp_path: Path) -> None:
    gap = TrueGap(right_is_good, "text", tmp_path)
    for right in (0, 2, 3):
        assert abs(gap(rows(RIGHT[:right] + ["nowhere"] * (4 - right)))[GAP]) < 1e-9


def test_no_judge_says_what_is_true(tmp_path: Path) -> None:
    """The evaluation's judge is talked into `correct`; rules are not."""
    gap = TrueGap(long_is_good, "text", tmp_path)
    gap(rows(STARTS))
    assert gap(rows(["verdict: correct"] * 4, "correct"))[GAP] > 0.5


def test_masked_rewards_take_no_part_and_mostly_masked_is_no_start(tmp_path: Path) -> None:
    down = "wxy"

    @fx.reward
    def judged(example: fx.Example, completion: fx.Completion) -> dict[str, float]:
        if example.answers[0] in down:
            raise fx.Unscored("timeout")
        return {"long": float(len(completion))}

    gap = TrueGap(judged, "text", tmp_path)
    assert gap(rows(STARTS)) == {}
    down = "wx"
    assert gap(rows(["", "", "I don't know.", "nowhere"])) == {GAP: 0.0}
    assert gap.start["reward"][0] == 10.0  # of the last two
    assert gap.start["truth"][0] == -0.5  # an abstention is between right and wrong


def test_what_the_reward_cannot_score_is_left_out(tmp_path: Path) -> None:
    @fx.reward
    def verified(example: fx.Example, completion: fx.Completion, *, verify: object) -> dict[str, float]:
        return {"x": 1.0}

    @fx.reward
    def certain(example: fx.Example, completion: fx.Completion, *, certainty: object) -> dict[str, float]:
        return {"x": 1.0}

    @fx.reward(needs=fx.Needs(lambda example: None if example.checklist else "no checklist"))
    def listed(example: fx.Example, completion: fx.Completion) -> dict[str, float]:
        return {"x": 1.0}

    bare, searching = (fx.open_verifier("local", judge="weak") for _ in range(2))
    searching.search = Given(["Rome is a city."])
    for reward in (verified.with_(verify=bare), certain.with_(certainty=object()), listed):
        assert TrueGap(reward, "text", tmp_path)(rows(STARTS)) == {}
    assert (
        TrueGap(right_is_good, "text", tmp_path)([EvalSample(EXAMPLES[0], None, None, "no_completion")]) == {}
    )
    assert GAP in TrueGap(verified.with_(verify=searching), "text", tmp_path)(rows(STARTS))


def test_a_reward_that_fails_on_held_out_questions_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    @fx.reward
    def weighted(example: fx.Example, completion: fx.Completion) -> dict[str, float]:
        return {"x": float(example.meta["weight"])}

    assert TrueGap(weighted, "text", tmp_path)(rows(STARTS)) == {}
    assert "is not known" in capsys.readouterr().err
