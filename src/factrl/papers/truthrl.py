"""TruthRL: a ternary outcome reward that makes "I don't know" worth more than a wrong answer.

Paper     TruthRL: Incentivizing Truthful LLMs via Reinforcement Learning, arXiv:2509.25760
Reward    +1 correct, 0 abstained, -1 anything else, on the answer in \\boxed{}; no box is -1
Binary    the same with abstention at -1: the baseline of Tables 1 and 3
Knowledge on questions that a probe found out of knowledge (256 samples, none correct), abstaining is
          +1 and everything else -1; other questions as in binary or ternary
Reasoning a judge rates the reasoning, p in {0, 1}; with outcome o: o(1 + p), o + 0.5 p, or o p where o = 1
Answers are compared by normalised equality first; a judge decides the rest.

Of the answer we take the last box with balanced braces, use one abstention detector for training and
evaluation, and credit "invalid question" where the question is one; a judge outage masks the sample.  The
released reward differs in each (docs/papers/truthrl.md).  As there, no judge is asked where a question is out
of knowledge: only abstention pays.  An answer without content, or of over 32 KB, earns the floor.  The
grader's limit of 200 characters (`max_answer_chars` of `[judge]`) is off, as in the released code.  The judge
rates the first 4,000 characters of reasoning that is too long for it; reasoning about which it says nothing
readable is vague.

The policy is prompted without retrieved documents, or with them (`retrieval` and what begins so, the paper's
main setting); the reward is the same.

To say "I don't know" pays more than to answer where the answer is right less than half the time:
(abstain - wrong) / (correct - wrong) = 0.5 for +1/0/-1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from factrl.errors import PolicyFault
from factrl.rewards import Needs, reward
from factrl.text import boxed, tag, unwrap_latex
from factrl.text.abstention import is_refusal
from factrl.text.reasoning import find_answer
from factrl.types import Completion, Example, Grade, Score

from . import Paper, no_answers

if TYPE_CHECKING:
    from factrl.rewards.grading import Grader

_HEAD = 4_000  # characters of a reasoning that is too long for the judge

Where = Literal["boxed", "text"]


def _needs(knobs: Mapping[str, Any]) -> Needs:
    def lacks(example: Example) -> str | None:
        if knobs["knowledge"] and example.ook is None and not no_answers(example):
            return (
                "it has no out-of-knowledge flag, which the knowledge-enhanced variants need; "
                "add a boolean column `ook` (true: the model never answers it right)"
            )
        return no_answers(example)

    return Needs(lacks)


@reward(needs=_needs)
def truthrl(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    correct: float = 1.0,
    abstain: float = 0.0,
    wrong: float = -1.0,
    answer: Where = "boxed",
    verifier: Literal["judge", "em"] = "judge",
    knowledge: bool = False,
) -> Score:
    """TruthRL's outcome reward (section 3.2); the term is `outcome`.

    Args:
        correct, abstain, wrong: what each outcome pays.
        answer: where the answer stands: `boxed` as in the paper, or `text` for the whole completion.
        verifier: `judge` as in the paper, or `em` for equality alone, which drives a policy into abstention;
            "invalid question" and abstention count as for the judge.
        knowledge: pay abstention like a correct answer where the question is out of knowledge.
    """
    rules_decide = verifier == "em" or (knowledge and bool(example.ook))
    graded = _grade(example, completion, _by_rules() if rules_decide else grade, answer)
    if knowledge and example.ook:  # as the released code, only abstention pays: nothing for a judge to decide
        declines = graded.label == "abstained" or (graded.label == "correct" and is_refusal(graded.answer))
        value = correct if declines else wrong
    else:
        value = {"correct": correct, "abstained": abstain, "incorrect": wrong}[graded.label]
    facts = {"answer": graded.answer, "label": graded.label, "how": graded.how}
    return Score({"outcome": value}, floored=graded.floored, facts=facts)


@reward(needs=_needs)
def truthrl_reasoning(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    reason: Callable[[str, str, Sequence[str]], float],
    combine: Literal["multiplicative", "additive", "conditional"] = "multiplicative",
    weight: float = 0.5,
    correct: float = 1.0,
    abstain: float = 0.0,
    wrong: float = -1.0,
    answer: Where = "boxed",
    verifier: Literal["judge", "em"] = "judge",
    knowledge: bool = False,
) -> Score:
    """TruthRL with a reward for its reasoning (section 4.6); the terms are `outcome` and `reasoning`.

    Args:
        combine: with outcome o and rating p, `multiplicative` is o (1 + p), `additive` is o + weight p,
            `conditional` is o p where o = `correct` and o elsewhere.
        weight: λ of the additive form.

    The other knobs are those of `truthrl`.
    """
    score = truthrl.fn(
        example,
        completion,
        grade=grade,
        correct=correct,
        abstain=abstain,
        wrong=wrong,
        answer=answer,
        verifier=verifier,
        knowledge=knowledge,
    )
    from factrl.llm.judging import judged_here

    outcome, floored = score.value, score.floored
    if combine == "conditional" and (score.floored or outcome != correct):
        rating = 1.0  # o p is o
    elif score.floored or (combine == "multiplicative" and outcome == 0):
        rating = 0.0
    else:
        try:
            rating = judged_here(
                lambda text: reason(example.question, text, example.answers),
                _reasoning(completion),
                head=_HEAD,
                about=example.question,
                judge=reason,
            )
        except PolicyFault as error:
            rating, floored = 0.0, error.cause
    term = {
        "multiplicative": outcome * rating,
        "additive": weight * rating,
        "conditional": outcome * rating - outcome,
    }[combine]
    return Score({"outcome": outcome, "reasoning": term}, floored=floored, facts=score.facts)


@cache
def _by_rules() -> Grader:
    """A grader by rules alone, without a judge; loaded here, so that importing this file loads no grader."""
    from factrl.rewards.grading import Grader

    return Grader()


def _grade(example: Example, completion: Completion, grade: Grader, answer: str) -> Grade:
    """The grade of the answer in the box, or of the whole text."""
    text = find_answer(completion, "text" if answer == "text" else "boxed", completion.prefill, whole=True)
    if text is None:
        return Grade("incorrect", "", how="gate", floored="no_box" if answer == "boxed" else "no_answer")
    return grade(example.question, unwrap_latex(text), example.answers, false_premise=example.false_premise)


def _reasoning(completion: Completion) -> str:
    """The think block, or what stands before the box."""
    think = tag(completion.prefill + completion, "think", which="first")
    if think is not None:
        return think.text
    box = boxed(completion)
    return completion[: box.start] if box else str(completion)


# In our own words, as is the prompt of the recipe, which has no documents.  `asked_at` is the time of the
# question, which CRAG alone has.
_HOW = (
    "First think it through between <think> and </think>. "
    "Then write the final answer, as short as you can, inside \\boxed{{}}.\n\n"
    "Do not guess: if you are not sure, the final answer is \\boxed{{I don't know}}. "
    "If the question assumes something untrue, it is \\boxed{{invalid question}}.\n\n"
)
_RETRIEVAL = (
    "Answer the question at the end. The documents before it may help; some of them may be off the "
    f"point or wrong. {_HOW}{{evidence}}\n\n{{asked_at}}Question: {{question}}"
)

# With retrieved documents, the paper's main setting: `factrl prepare retrieve` puts them into the rows, and
# the released files of CRAG have them (`retrieved_chunks`).
_RETRIEVED = {"data": {"prompt": _RETRIEVAL}}
PAPER = Paper(
    {
        "ternary": truthrl,
        "binary": truthrl.with_(abstain=-1.0),
        "knowledge-ternary": truthrl.with_(knowledge=True),
        "knowledge-binary": truthrl.with_(knowledge=True, abstain=-1.0),
        "em": truthrl.with_(verifier="em"),
        "reasoning-multiplicative": truthrl_reasoning.with_(combine="multiplicative"),
        "reasoning-additive": truthrl_reasoning.with_(combine="additive"),
        "reasoning-conditional": truthrl_reasoning.with_(combine="conditional"),
        "retrieval": truthrl,
        "retrieval-binary": truthrl.with_(abstain=-1.0),
        "retrieval-reasoning": truthrl_reasoning,
    },
    terms=("outcome", "reasoning"),
    form="boxed",
    settings={f"retrieval{end}": _RETRIEVED for end in ("", "-binary", "-reasoning")},
)
