"""KnowRL: format, correctness and the facts of the reasoning, where refusing beats a wrong answer.

Paper     KnowRL: Exploring Knowledgeable Reinforcement Learning for Factuality, arXiv:2506.19807
Code      zjunlp/KnowRL f75b0bb, the reward since October 2025
Reward    format ±1, plus the answer: correct +2, refused +1, wrong -1, plus the share of the claims of the
          reasoning that the topic's document supports, 0 without claims
Ablations `format`, `format+fact`, `format+correct`, and `no-refusal`, where refusing is -1 too
Baseline  `truthrl`, TruthRL's +1, 0 and -1 on the <answer> and nothing else; that it is trained with KnowRL's
          prompt and settings is ours
Training  `dapo` has the values of the released dapo.yaml, where they differ from those of grpo.yaml

The released reward adds facts only to a wrong answer that does not refuse, multiplied by FActScore's length
penalty with γ = 10, so one supported claim is worth 0.0001; docs/papers/knowrl.md says where else it differs.

Not taken over: a failed judge or a missing document is 0 there, the latter for the whole batch;
here a failed judge masks its one sample, and a missing document leaves the claims of one sample unknown.
A stray letter A in the judge's reply is +2 there ("Incorrect. The prediction is a different city."); here
replies have one strict form.  Their judge sees the rendered prompt as the question, ours the question.

Format and answer are apart, as in the paper's sum and in the released code, so an answer that can be found is
graded whatever stands around it.  Without one (no closed <answer> block, or a blank one) it counts as wrong,
-1, and its facts still count, as there; that the sample is floored then is ours, as it is where the grader
floors the answer.  Ours, too: of several answers the last counts, and a reasoning without an end has no part
that could be checked: 0.  The three parts are terms; one whose weight is 0 is left out, and whoever would
measure it is not asked.

Known weaknesses of the published reward, which `robust` closes: one safe claim earns the whole fact term, so
refusing after it (3) pays as much as a right answer without a supported claim, and a wrong answer 1 instead
of 0.  A reasoning too long to check has no facts and counts as floored, whatever its answer earns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from factrl.errors import ConfigError
from factrl.rewards import Needs, reward
from factrl.rewards.grading import Grader
from factrl.text import tag, think_answer
from factrl.types import Completion, Example, Grade, Score
from factrl.verifier.report import Report

from . import Paper, no_answers

_WEIGHTS = ("weight_format", "weight_correct", "weight_fact")
_Parts = tuple[str | None, str | None, str | None]  # reasoning, answer, what is malformed; None is not there


def _needs(knobs: Mapping[str, Any]) -> Needs:
    if not any(knobs[name] for name in _WEIGHTS):
        raise ConfigError(f"{', '.join(_WEIGHTS)} are all 0, so nothing is paid for; give one of them")
    weights = {"grade": knobs["weight_correct"], "verify": knobs["weight_fact"]}
    lacks = no_answers if knobs["weight_correct"] else lambda example: None
    return Needs(lacks, [name for name, weight in weights.items() if not weight], searches=True)


@reward(needs=_needs)
def knowrl(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    verify: Callable[..., Report],
    correct: float = 2.0,
    abstain: float = 1.0,
    wrong: float = -1.0,
    weight_format: float = 1.0,
    weight_correct: float = 1.0,
    weight_fact: float = 1.0,
) -> Score:
    """KnowRL's reward; the terms are `format`, `correct` and `fact`.

    Args:
        correct, abstain, wrong: what each outcome pays.
        weight_format, weight_correct, weight_fact: of the term of that name; 0 leaves it out.
    """
    think, answer, malformed = _parts(completion)
    terms = {"format": weight_format * (-1.0 if malformed else 1.0)} if weight_format else {}
    facts: dict[str, Any] = {"malformed": malformed}
    floored = None
    if weight_correct:
        graded = _grade(example, answer, grade)
        label, floored = graded.label, graded.floored
        value = {"correct": correct, "abstained": abstain, "incorrect": wrong}[label]
        terms["correct"] = weight_correct * value
        facts |= {"answer": graded.answer, "label": label, "how": graded.how}
    if weight_fact:
        terms["fact"] = 0.0
        if think:
            evidence = example.evidence or None
            report = verify(think, example.question, topic=example.topic, evidence=evidence)
            terms["fact"] = weight_fact * (report.precision or 0.0)
            floored = floored or report.floored
            facts |= {"claims": report.claims, **report.likelier, "checked": report.checked()}
    return Score(terms, floored=floored, facts=facts)


def _grade(example: Example, answer: str | None, grade: Grader) -> Grade:
    if answer is None or not answer.strip():
        return Grade("incorrect", "", how="gate", floored="no_answer" if answer is None else "empty_answer")
    return grade(example.question, answer, example.answers, false_premise=example.false_premise)


def _parts(completion: Completion) -> _Parts:
    """The two blocks, also of a text that is not well-formed, as far as they are closed."""
    blocks = think_answer(completion, completion.prefill)
    if blocks.think is not None and blocks.answer is not None:
        return blocks.think.text, blocks.answer.text, None
    think, answer = tag(completion.prefill + completion, "think", "first"), tag(completion, "answer", "last")
    return think and think.text, answer and answer.text, blocks.malformed


PAPER = Paper(
    {
        "paper": knowrl,
        "format": knowrl.with_(weight_correct=0.0, weight_fact=0.0),
        "format+fact": knowrl.with_(weight_correct=0.0),
        "format+correct": knowrl.with_(weight_fact=0.0),
        "no-refusal": knowrl.with_(abstain=-1.0),
        "truthrl": knowrl.with_(correct=1.0, abstain=0.0, weight_format=0.0, weight_fact=0.0),
        "dapo": knowrl,
    },
    terms=("format", "correct", "fact"),
    form="tags",
    length="short",
    settings={
        "dapo": {  # dapo.yaml of the release, otherwise as grpo.yaml
            "train": {
                "steps": 500,
                "prompts_per_step": 4,  # 20 completions x 2 accumulation steps / 10
                "max_prompt_length": 512,
                "loss_type": "dapo",  # the mean over all tokens
                "epsilon_high": 0.28,
                "scale_rewards": "none",
                "mask_truncated_completions": True,
            }
        },
    },
)
