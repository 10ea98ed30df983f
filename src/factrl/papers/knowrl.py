"""KnowRL: format, correctness and the facts of the reasoning, where refusing beats a wrong answer.

Paper     KnowRL: Exploring Knowledgeable Reinforcement Learning for Factuality, arXiv:2506.19807
Code      zjunlp/KnowRL f75b0bb, the reward since October 2025
Reward    format ±1, plus the answer: correct +2, refused +1, wrong -1, plus the share of the claims of the
          reasoning that the topic's document supports, 0 without claims
Ablations `format`, `format+fact`, `format+correct`, and `no-refusal`, where refusing is -1 too
Baseline  `truthrl`, TruthRL's +1, 0 and -1 on the <answer> and nothing else; that it is trained with KnowRL's
          prompt and settings is ours
Training  `dapo` has the values of the released dapo.yaml, where they differ from those of grpo.yaml

The variant `code` is the released reward.  It adds facts only to a wrong answer that does not refuse, and
multiplies them by FActScore's length penalty with γ = 10, so one supported claim is worth 0.0001.  It takes
the first <answer>.  Without a closed <think> block in the completion it checks the whole of it, the answer
too, even where the prompt has opened the block.  Its format pattern looks only at the characters after the
first one of a block, so a <think> or <answer> may open there again, and a closing tag may be doubled.  Its
threshold of 0.3 is the verifier's (`knowrl` in `factrl.verifier`).

What no variant takes over: a failed judge or a missing document is 0 there, the latter for the whole batch;
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

import re
from collections.abc import Callable, Mapping
from typing import Any

from factrl.errors import ConfigError
from factrl.rewards import reward
from factrl.rewards.grading import Grader
from factrl.text import tag, think_answer
from factrl.types import Completion, Example, Grade, Score
from factrl.verifier.report import Report

from . import no_answers

_OPENING = re.compile("<think>|<answer>")
_TAGS = re.compile("</?(?:think|answer)>")
_WEIGHTS = ("weight_format", "weight_correct", "weight_fact")
_Parts = tuple[str | None, str | None, str | None]  # reasoning, answer, what is malformed; None is not there


def _requires(example: Example, knobs: Mapping[str, Any]) -> str | None:
    return no_answers(example) if knobs["weight_correct"] else None


def _check(knobs: Mapping[str, Any]) -> None:
    if knobs["fact_when"] == "wrong" and not knobs["weight_correct"]:
        raise ConfigError("fact_when='wrong' needs the answer's grade; weight_correct must not be 0")
    if not any(knobs[name] for name in _WEIGHTS):
        raise ConfigError(f"{', '.join(_WEIGHTS)} are all 0, so nothing is paid for; give one of them")


def _unused(knobs: Mapping[str, Any]) -> list[str]:
    weights = {"grade": knobs["weight_correct"], "verify": knobs["weight_fact"]}
    return [name for name, weight in weights.items() if not weight]


@reward(
    requires=_requires,
    unused=_unused,
    searches=True,
    choices={"fact_when": ("always", "wrong")},
    check=_check,
)
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
    fact_when: str = "always",
    gamma: int = 0,
    released: bool = False,
) -> Score:
    """KnowRL's reward; the terms are `format`, `correct` and `fact`.

    Args:
        correct, abstain, wrong: what each outcome pays.
        weight_format, weight_correct, weight_fact: of the term of that name; 0 leaves it out.
        fact_when: `always` as in the paper, or `wrong`: for answers that are neither right nor refuse.
        gamma: claims below which FActScore's length penalty sets in; 0 is without it, as in the paper.
        released: take the completion apart as the released code does.
    """
    think, answer, malformed = _released_parts(completion) if released else _parts(completion)
    terms = {"format": weight_format * (-1.0 if malformed else 1.0)} if weight_format else {}
    facts: dict[str, Any] = {"malformed": malformed}
    floored = None
    label = ""
    if weight_correct:
        graded = _grade(example, answer, grade)
        label, floored = graded.label, graded.floored
        value = {"correct": correct, "abstained": abstain, "incorrect": wrong}[label]
        terms["correct"] = weight_correct * value
        facts |= {"answer": graded.answer, "label": label, "how": graded.how}
    if weight_fact:
        terms["fact"] = 0.0
        if think and (fact_when == "always" or label == "incorrect"):
            evidence = example.evidence or None
            report = verify(think, example.question, topic=example.topic, evidence=evidence)
            terms["fact"] = weight_fact * (report.factscore(gamma) or 0.0)
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


def _released_parts(completion: str) -> _Parts:
    """What the released code looks at: the first blocks, the whole text without a think block."""
    think = _between(completion, "<think>", "</think>")
    malformed = None if _released_format(completion) else "released_format"
    if think is None:
        think = _TAGS.sub("\n\n", completion)  # tags are no part of a claim
    return think, _between(completion, "<answer>", "</answer>"), malformed


def _between(text: str, opening: str, closing: str) -> str | None:
    start = text.find(opening) + len(opening)
    end = text.find(closing, start) if start >= len(opening) else -1
    return text[start:end] if end >= 0 else None


def _released_format(completion: str) -> bool:
    """Whether the released pattern accepts a completion, in linear time.

    The pattern wants both blocks, each with a visible first character that may be anything and a rest in
    which no block opens; there may be white space around, but after the end only a line feed.
    """
    text = completion if completion.startswith("<think>") else "<think>" + completion
    text = text.removesuffix("\n")
    first = _visible(text, len("<think>"))
    opening = _OPENING.search(text, first + 1)
    if opening is None or opening[0] != "<answer>":
        return False
    before = text[: opening.start()].rstrip()
    second = _visible(text, opening.end())
    return (
        before.endswith("</think>")
        and len(before) - len("</think>") > first
        and text.endswith("</answer>")
        and len(text) - len("</answer>") > second
        and _OPENING.search(text, second + 1) is None
    )


def _visible(text: str, start: int) -> int:
    """Where the first character that is no white space stands, from `start` on."""
    return len(text) - len(text[start:].lstrip())


TERMS = ("format", "correct", "fact")
VARIANTS = {
    "paper": knowrl,
    "code": knowrl.with_(released=True, fact_when="wrong", gamma=10),
    "format": knowrl.with_(weight_correct=0.0, weight_fact=0.0),
    "format+fact": knowrl.with_(weight_correct=0.0),
    "format+correct": knowrl.with_(weight_fact=0.0),
    "no-refusal": knowrl.with_(abstain=-1.0),
    "truthrl": knowrl.with_(correct=1.0, abstain=0.0, weight_format=0.0, weight_fact=0.0),
    "dapo": knowrl,
}
VARIANT_SETTINGS = {
    # At 0.3, as the preset has it.
    "code": {"verifier": {"judge": "nli:MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"}},
    # dapo.yaml of the release, otherwise as grpo.yaml.
    "dapo": {
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
}
FORM = "tags"
LENGTH = "short"


# In percent; of the question sets the share of wrong answers, lower is better.
PUBLISHED = {
    ("results", "DeepSeek-R1-Distill-Qwen-7B", "SimpleQA"): 78.00,
    ("results", "DeepSeek-R1-Distill-Qwen-7B KnowRL", "SimpleQA"): 57.67,
    ("results", "DeepSeek-R1-Distill-Qwen-7B", "ChineseSimpleQA"): 68.33,
    ("results", "DeepSeek-R1-Distill-Qwen-7B KnowRL", "ChineseSimpleQA"): 58.33,
    ("results", "DeepSeek-R1-Distill-Qwen-7B", "GPQA"): 40.91,
    ("results", "DeepSeek-R1-Distill-Qwen-7B KnowRL", "GPQA"): 36.87,
    ("results", "DeepSeek-R1-Distill-Qwen-7B", "AIME 2025"): 30.00,
    ("results", "DeepSeek-R1-Distill-Qwen-7B KnowRL", "AIME 2025"): 33.33,
    ("results", "DeepSeek-R1-Distill-Qwen-7B SFT", "SimpleQA"): 83.33,
    ("results", "DeepSeek-R1-Distill-Qwen-7B DPO", "SimpleQA"): 88.00,
    ("results", "DeepSeek-R1-Distill-Qwen-7B FactTune-FS", "SimpleQA"): 59.67,
    ("results", "DeepSeek-R1-Distill-Qwen-7B TruthRL", "SimpleQA"): 61.00,
    ("results", "Skywork-7B", "SimpleQA"): 76.33,
    ("results", "Skywork-7B KnowRL", "SimpleQA"): 60.33,
    ("results", "Skywork-7B", "ChineseSimpleQA"): 67.00,
    ("results", "Skywork-7B KnowRL", "ChineseSimpleQA"): 52.33,
    ("results", "Skywork-7B", "GPQA"): 37.37,
    ("results", "Skywork-7B KnowRL", "GPQA"): 42.42,
    ("results", "Skywork-7B", "AIME 2025"): 26.67,
    ("results", "Skywork-7B KnowRL", "AIME 2025"): 36.67,
    ("ablation", "format", "SimpleQA"): 74.00,
    ("ablation", "format+fact", "SimpleQA"): 80.67,
    ("ablation", "format+correct", "SimpleQA"): 60.67,
    ("ablation", "paper", "SimpleQA"): 57.67,
    ("ablation", "no-refusal", "SimpleQA"): 78.67,
}
