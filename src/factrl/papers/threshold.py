"""A risk threshold in the prompt: an answer pays where the policy is surer than it is asked to be.

Paper     Why Language Models Hallucinate, Kalai, Nachum, Vempala & Zhang 2025, arXiv:2509.04664: explicit
          confidence targets, as a rule for evaluations
          Mitigating LLM Hallucination via Behaviorally Calibrated Reinforcement Learning, Wu et al. 2025,
          arXiv:2512.19920, which trains a policy to decline below a threshold that the user gives
Reward    +1 right, 0 declined, -t / (1 - t) for anything else, on the answer in \\boxed{}; no box is wrong
Bounded   the same times 1 - t, ours: 1 - t, 0 and -t.  The optimum is the same and no question weighs more

The question says t, 0 <= t < 1.  A policy that is right with probability p gains p - (1 - p) t / (1 - t) by
answering, which is above 0 exactly where p > t: one policy, asked at several t, gives a curve of risk and
coverage without a confidence being read.  At t = 0.5 it is TruthRL's ternary reward; at 0 guessing is free.

t is a column of the row, `threshold`, and what a wrong answer costs another, `penalty`, for the prompt:
docs/papers/threshold.md has the lines that write both.

What is known: the rule and its values 0.5, 0.75 and 0.9 are of the first paper, which trains nothing (it says
"penalty 2" of 0.75, where its formula gives 3).  The second was read in its abstract alone: its rewards,
thresholds and settings are not known to us, and neither is released code.  So the prompt's words, the t that
are drawn and the settings of training, TruthRL's, are ours.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

from factrl.errors import ConfigError
from factrl.rewards import Needs, reward
from factrl.rewards.grading import Grader
from factrl.types import Completion, Example, Score

from . import Paper, no_answers, truthrl


def penalty(t: float) -> float:
    """What a wrong answer costs at a threshold.

    Raises:
        ConfigError: it is not a number from 0 up to, but not, 1.
    """
    if isinstance(t, bool) or not isinstance(t, (int, float)) or not 0 <= t < 1:
        raise ConfigError(f"threshold = {t!r} is not a number from 0 up to, but not, 1")
    return t / (1 - t)


def _lacks(example: Example) -> str | None:
    if no_answers(example):
        return no_answers(example)
    if (t := _stated(example)) is None:
        has = "nothing in the" if "threshold" in example.meta else "no"
        return f"it has {has} column `threshold`; docs/papers/threshold.md says how to write one"
    try:
        penalty(t)
    except ConfigError as error:
        return str(error)
    return None


def _stated(example: Example) -> Any:
    """The column `threshold`, which a .csv has as text; None where it is empty."""
    t = example.meta.get("threshold")
    t = t.strip() or None if isinstance(t, str) else t
    with suppress(ValueError):
        t = float(t) if isinstance(t, (str, Decimal)) else t
    return None if t != t else t  # NaN, as data frames write an empty cell


@reward(needs=Needs(_lacks))
def threshold(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    answer: truthrl.Where = "boxed",
    bounded: bool = False,
) -> Score:
    """The reward whose optimum is to answer above the threshold of the question; the term is `outcome`.

    Args:
        answer: where the answer stands: `boxed`, or `text` for the whole completion.
        bounded: everything times 1 - t, so that a wrong answer costs t.

    Raises:
        ConfigError: the example has no threshold from 0 up to 1.
    """
    t = _stated(example)
    cost = penalty(t)
    scale = 1 - t if bounded else 1.0
    outcomes = {"correct": scale, "abstain": 0.0, "wrong": 0.0 - scale * cost}
    score = truthrl.truthrl.fn(example, completion, grade=grade, answer=answer, **outcomes)
    return replace(score, facts={**score.facts, "threshold": t})


PAPER = Paper(
    {"threshold": threshold, "bounded": threshold.with_(bounded=True)}, terms=("outcome",), form="boxed"
)
