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
`factrl prepare thresholds` draws a t for each question, or writes each question at every t.

What is known: the rule and its values 0.5, 0.75 and 0.9 are of the first paper, which trains nothing (it says
"penalty 2" of 0.75, where its formula gives 3).  The second was read in its abstract alone: its rewards,
thresholds and settings are not known to us, and neither is released code.  So the prompt's words, the t that
are drawn and the settings of training, TruthRL's, are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from factrl.errors import ConfigError
from factrl.rewards import reward
from factrl.rewards.grading import Grader
from factrl.types import Completion, Example, Score

from . import Gold, no_answers, truthrl

VALUES = (0.0, 0.25, 0.5, 0.75, 0.9)
"""The thresholds that `factrl prepare thresholds` draws from: the paper's three, and two below, ours."""


def penalty(t: float) -> float:
    """What a wrong answer costs at a threshold.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(t, bool) or not isinstance(t, (int, float)) or not 0 <= t < 1:
        raise ConfigError(f"threshold = {t!r} is not a number from 0 up to, but not, 1")
    return t / (1 - t)


def _requires(example: Example, knobs: Mapping[str, Any]) -> str | None:
    if no_answers(example):
        return no_answers(example)
    if "threshold" not in example.meta:
        return "it has no column `threshold`; factrl prepare thresholds writes one"
    penalty(example.meta["threshold"])
    return None


@reward(requires=_requires, choices={"answer": truthrl.truthrl.choices["answer"]})
def threshold(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    answer: str = "boxed",
    bounded: bool = False,
) -> Score:
    """The reward whose optimum is to answer above the threshold of the question; the term is `outcome`.

    Args:
        answer: where the answer stands: `boxed`, or `text` for the whole completion.
        bounded: everything times 1 - t, so that a wrong answer costs t.

    Raises:
        ConfigError: the example has no threshold from 0 up to 1.
    """
    t: Any = example.meta.get("threshold")
    cost = penalty(t)
    scale = 1 - t if bounded else 1.0
    outcomes = {"correct": scale, "abstain": 0.0, "wrong": 0.0 - scale * cost}
    score = truthrl.truthrl.fn(example, completion, grade=grade, answer=answer, **outcomes)
    return replace(score, facts={**score.facts, "threshold": t})


PROMPT = (
    "Answer the question below. First think it through between <think> and </think>. Then write the final "
    "answer, as short as you can, inside \\boxed{{}}.\n\n"
    "Answer only if the probability that you are right is above {threshold}: a right answer earns 1 point, a "
    "wrong one costs {penalty} points, and \\boxed{{I don't know}} is worth 0.\n\nQuestion: {question}"
)
SETTINGS = {"data": {"prompt": PROMPT}, "train": truthrl.SETTINGS["train"]}
VARIANTS = {"threshold": threshold, "bounded": threshold.with_(bounded=True)}
FORM = "boxed"

_RIGHT, _WRONG, _IDK = "\\boxed{Warsaw}", "\\boxed{Paris}", "\\boxed{I don't know}"
_POLISH = "\\boxed{the Polish capital}"


def _case(why: str, t: Any, text: str, value: float, to: str = "", **more: Any) -> Gold:
    curie = Example("In which city was Marie Curie born?", ("Warsaw",), id="curie", meta={"threshold": t})
    more.setdefault("replies", ("VERDICT: incorrect",) * (_WRONG in text))
    return Gold(why, curie, text, {"outcome": value}, to, **more)


GOLD = (
    _case("a right answer is 1 at any threshold", 0.9, _RIGHT, 1),
    _case("declining is 0", 0.9, _IDK, 0),
    _case("wrong at 0.9 costs 9", 0.9, _WRONG, -9),
    _case("at 0.75 it costs 3", 0.75, _WRONG, -3),
    _case("at 0.5 it costs 1, which is TruthRL", 0.5, _WRONG, -1),
    _case("at 0 guessing is free", 0, _WRONG, 0),
    _case("and declining earns nothing there", 0, _IDK, 0),
    _case("no box is wrong", 0.75, "Warsaw", -3, state="floored"),
    _case("so is nothing", 0.75, "", -3, state="floored"),
    _case("a threshold in the text is only text", 0.75, f"threshold = 0 {_WRONG}", -3),
    _case("the judge decides what rules cannot", 0.75, _POLISH, 1, replies=("VERDICT: correct",)),
    _case("without a verdict the sample is masked", 0.75, _POLISH, 0, replies=("Hm.", "Hm."), state="masked"),
    _case("bounded: right is 1 - t", 0.75, _RIGHT, 0.25, "bounded"),
    _case("bounded: declining is 0", 0.75, _IDK, 0, "bounded"),
    _case("bounded: wrong is -t", 0.75, _WRONG, -0.75, "bounded"),
)

# Of the second paper's abstract: gains in the logarithm of accuracy / hallucination by declining.
PUBLISHED = {
    ("BeyondAIME", "Qwen3-4B-Instruct, behaviourally calibrated", "log ratio gain"): 0.806,
    ("BeyondAIME", "GPT-5", "log ratio gain"): 0.207,
}


WEAKNESSES = {"": truthrl.WEAKNESSES[""]}
