"""RLCR: a right answer, less the Brier score of the confidence that the text states.

Paper     Beyond Binary Rewards: Training LMs to Reason About Their Uncertainty, Damani et al. 2025,
          arXiv:2507.16806
Code      damanimehul/RLCR, a trainer of its own beside TRL at 69ad852; read in public copies, with its
          arguments, prompts and run configurations
Reward    c - (q - c)^2: c is 1 for a right answer and 0 for any other, q the stated confidence from 0 to 1
RLVR      c alone, the paper's baseline, which asks for no confidence
Form      <think> <answer> <analysis> <confidence>, in this order; the ablations leave the analysis out

The expected reward of a policy that is right with probability p is p - (q - p)^2 - p (1 - p), highest at
q = p, and there it is p^2, which grows with p: stating p and being right are both worth it (Theorem 1).

The released code pays 0.5 for the form, 0.5 c, and 0.5 (1 - (q - c)^2), and nothing at all without the form.
That is 1 + R / 2 of the R here where a completion out of form has R = -2, below the worst within it, which
is -1; so the two differ by a factor alone.  Its RLVR, 0.5 for the form and 0.5 c, has -1 there.  No readable
confidence from 0 to 1 is out of form: the policy wrote it, so it is floored, never masked.

How we differ: answers are graded by the rules and, where you give one, the judge of the other papers; the
paper compares HotpotQA's by normalised equality.  The tag stands at the end of the text; the released code
takes the last one.  The paper's prompt asks in the words of its own for what ours does.  An abstention is an
answer that is not right: it pays what a wrong answer with the same confidence pays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from factrl.errors import ConfigError
from factrl.rewards import Needs, reward
from factrl.rewards.grading import Grader
from factrl.text import tag, think_answer
from factrl.text.confidence import stated_confidence
from factrl.types import Completion, Example, Score

from . import Paper, no_answers

_END = "</confidence>"


def _needs(knobs: Mapping[str, Any]) -> Needs:
    if knobs["answer"] == "tags" and knobs["calibration"]:
        raise ConfigError("answer='tags' states no confidence; calibration needs answer=confidence or text")
    return Needs(no_answers)


@reward(needs=_needs)
def rlcr(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    correct: float = 1.0,
    calibration: float = 1.0,
    malformed: float = -2.0,
    answer: Literal["confidence", "tags", "text"] = "confidence",
    analysis: bool = True,
) -> Score:
    """RLCR's reward: correctness less the Brier score of the stated confidence.

    Args:
        correct: what a right answer pays.
        calibration: weight of the Brier score; 0 reads a confidence only where the form has one.
        malformed: what a completion out of form earns; -2 and, without calibration, -1 as in the code.
        answer: where the answer stands: between tags, with a `confidence` behind it, as in the paper; between
            `tags` alone, for RLVR; or `text`, the whole completion but for "Confidence: 75" in it.
        analysis: the form `confidence` has an analysis, as in the paper.
    """
    text, sure, cause = _read(completion, answer, analysis)
    if cause is None and sure is None and calibration:
        cause = "no_confidence"
    facts: dict[str, Any] = {"answer": text, "confidence": sure}
    if cause is not None:
        terms = {"correctness": 0.0, "calibration": 0.0, "format": malformed}
        return Score(terms, floored=cause, facts={**facts, "label": "incorrect"})
    graded = grade(example.question, text, example.answers, false_premise=example.false_premise)
    right = float(graded.label == "correct")
    missed = 0.0 if sure is None else calibration * (sure - right) ** 2
    terms = {"correctness": correct * right, "calibration": 0.0 - missed, "format": 0.0}
    return Score(terms, floored=graded.floored, facts={**facts, "label": graded.label, "how": graded.how})


def _read(completion: Completion, answer: str, analysis: bool) -> tuple[str, float | None, str | None]:
    """The answer, the confidence, and why the completion is out of form."""
    rest, sure = (str(completion), None) if answer == "tags" else stated_confidence(completion)
    if answer == "text":
        return rest, sure, None
    if answer == "confidence" and (sure is None or not completion.rstrip().endswith(_END)):
        return "", None, "no_confidence"
    if answer == "confidence" and analysis and tag(completion, "analysis") is None:
        return "", sure, "no_analysis"
    blocks = think_answer(rest, completion.prefill)
    return (blocks.answer.text, sure, None) if blocks.answer else ("", sure, blocks.malformed)


# In our own words; they ask for what the paper's ask for.
_HOW = (
    "Answer the question below. First think it through between <think> and </think>. Then write the final "
    "answer, as short as you can, between <answer> and </answer>."
)
_SURE = (
    " Last, write how likely it is that your answer is right, a number from 0 to 1, between <confidence> and "
    "</confidence>."
)
_ASKED = "\n\nQuestion: {question}"

PAPER = Paper(
    {
        "rlcr": rlcr,
        "rlvr": rlcr.with_(calibration=0.0, malformed=-1.0, answer="tags"),
        "rlcr-no-analysis": rlcr.with_(analysis=False),
        "rlvr-analysis": rlcr.with_(calibration=0.0, malformed=-1.0),
    },
    terms=("correctness", "calibration", "format"),
    settings={
        "rlvr": {"data": {"prompt": _HOW + _ASKED}},
        "rlcr-no-analysis": {"data": {"prompt": _HOW + _SURE + _ASKED}},
    },
)
