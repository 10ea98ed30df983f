"""TruthRL: a ternary outcome reward that makes "I don't know" worth more than a wrong answer.

Paper     TruthRL: Incentivizing Truthful LLMs via Reinforcement Learning, arXiv:2509.25760
Reward    +1 correct, 0 abstained, -1 anything else, on the answer in \\boxed{}; no box is -1
Binary    the same with abstention at -1: the contrast of Tables 1 and 3
Knowledge on questions that a probe found out of knowledge (256 samples, none correct), abstaining is
          +1 and everything else -1; other questions as in binary or ternary
Reasoning a judge rates the reasoning p in {0, 1}: o(1 + p), o + 0.5 p, or o p where o = 1
Answers are compared by normalised equality first; a judge decides the rest.

The variant `code` is the released reward.  It takes the first box up to its first closing brace, knows
abstention only as "i dont know" after stripping punctuation, and gives "invalid question" -1 before it
looks at the accepted answers, although the prompt teaches it and the evaluation credits it.  We take the
last box with balanced braces, use one abstention detector for training and evaluation, and credit
"invalid question" where the question is one.  A judge outage is -1 in the released code; here the sample
is masked, in every variant.

One answer, "I don't know", pays more than answering whenever the model is right less than half the time:
(abstain - wrong) / (correct - wrong) = 0.5 for +1/0/-1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from ..abstention import abstains, abstains_released
from ..answers import matches, normalize_released
from ..errors import ConfigError
from ..grading import Grader
from ..rewards import reward
from ..text import boxed, boxed_released, tag, unwrap_latex
from ..types import Completion, Example, Grade, Score
from . import Gold

Combine = Literal["multiplicative", "additive", "conditional"]


def _requires(example: Example, knobs: Mapping[str, Any]) -> str | None:
    if not example.answers and not example.false_premise:
        return "it has no accepted answers"
    if knobs["knowledge"] and example.ook is None:
        return (
            "it has no out-of-knowledge flag, which the knowledge-enhanced variants need; "
            "add a boolean column `ook` (true: the model never answers it right)"
        )
    return None


@reward(requires=_requires)
def truthrl(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    correct: float = 1.0,
    abstain: float = 0.0,
    wrong: float = -1.0,
    answer: str = "boxed",
    verifier: str = "judge",
    knowledge: bool = False,
    released: bool = False,
) -> Score:
    """TruthRL's outcome reward (section 3.2); the term is `outcome`.

    Args:
        correct, abstain, wrong: what each outcome pays.
        answer: where the answer stands: `boxed` as in the paper, or `text` for the whole completion.
        verifier: `judge` as in the paper, or `em` for equality alone, which drives a policy into abstention.
        knowledge: pay abstention like a correct answer where the question is out of knowledge.
        released: parse and normalise as the released code does.
    """
    found = _grade(example, completion, grade, answer, verifier, released)
    if knowledge and example.ook:
        value = correct if found.label == "abstained" else wrong
    else:
        value = {"correct": correct, "abstained": abstain, "incorrect": wrong}[found.label]
    facts = {"answer": found.answer, "label": found.label, "how": found.how}
    return Score({"outcome": value}, floored=found.floored, facts=facts)


@reward(requires=_requires)
def truthrl_reasoning(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    reason: Callable[[str, str, Sequence[str]], float],
    combine: str = "multiplicative",
    weight: float = 0.5,
    correct: float = 1.0,
    abstain: float = 0.0,
    wrong: float = -1.0,
    answer: str = "boxed",
    verifier: str = "judge",
    knowledge: bool = False,
    released: bool = False,
) -> Score:
    """TruthRL with a reward for its reasoning (section 5.5); the terms are `outcome` and `reasoning`.

    Args:
        combine: with outcome o and rating p, `multiplicative` is o (1 + p), `additive` is o + weight p,
            `conditional` is o p where o = `correct` and o elsewhere.
        weight: λ of the additive form.

    The other knobs are those of `truthrl`.
    """
    if combine not in ("multiplicative", "additive", "conditional"):
        raise ConfigError(f"combine={combine!r} is not multiplicative, additive or conditional")
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
        released=released,
    )
    outcome = score.value
    if score.floored or (combine == "multiplicative" and outcome == 0):
        rating = 0.0
    elif combine == "conditional" and outcome != correct:
        rating = 1.0
    else:
        rating = reason(example.question, _reasoning(completion), example.answers)
    term = {
        "multiplicative": outcome * rating,
        "additive": weight * rating,
        "conditional": outcome * rating - outcome,
    }[combine]
    return Score({"outcome": outcome, "reasoning": term}, floored=score.floored, facts=score.facts)


def _grade(
    example: Example, completion: Completion, grade: Grader, answer: str, verifier: str, released: bool
) -> Grade:
    """The paper's order: box, abstention, "invalid question", equality, judge."""
    if answer not in ("boxed", "text"):
        raise ConfigError(f"answer={answer!r} is not boxed or text")
    if verifier not in ("judge", "em"):
        raise ConfigError(f"verifier={verifier!r} is not judge or em")
    if answer == "text":
        text = str(completion)
    else:
        box = boxed_released(completion) if released else boxed(completion)
        if box is None:
            return Grade("incorrect", "", how="gate", floored="no_box")
        text = box.text if released else unwrap_latex(box.text)
    if released:
        found = _released_rules(text, example)
        if found is not None:
            return found
    if verifier == "em":
        if not released and abstains(text):
            return Grade("abstained", text, how="abstention")
        return Grade("correct" if matches(text, example.answers) else "incorrect", text, how="exact")
    found = grade(example.question, text, example.answers, false_premise=example.false_premise)
    if released and found.label == "abstained":  # a phrase the released code does not know is a wrong answer
        return Grade("incorrect", found.answer, how=found.how)
    return found


def _released_rules(text: str, example: Example) -> Grade | None:
    """Steps 2 to 4 of the released reward; None when the judge has to decide."""
    if abstains_released(text):
        return Grade("abstained", text, how="abstention")
    normal = normalize_released(text)
    if "invalid question" in normal:
        return Grade("incorrect", text, how="rules")
    if any(normal == normalize_released(accepted) for accepted in example.answers):
        return Grade("correct", text, how="exact")
    return None


def _reasoning(completion: Completion) -> str:
    """The think block, or what stands before the box."""
    think = tag(completion.prefill + completion, "think", which="first")
    if think is not None:
        return think.text
    box = boxed(completion)
    return completion[: box.start] if box else str(completion)


# What `factrl train truthrl` uses unless told otherwise: section 4.1 and appendix B of the paper and the
# released script, as recipes/truthrl.toml lists them one by one.  The prompt is in our own words.
SETTINGS = {
    "data": {
        "prompt": (
            "Answer the question below. First think it through between <think> and </think>. "
            "Then write the final answer, as short as you can, inside \\boxed{{}}.\n\n"
            "Do not guess: if you are not sure, the final answer is \\boxed{{I don't know}}. "
            "If the question assumes something untrue, it is \\boxed{{invalid question}}.\n\n"
            "Question: {question}"
        )
    },
    "train": {
        "prompts_per_step": 64,
        "num_generations": 8,
        "max_prompt_length": 16384,
        "max_completion_length": 2048,
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "loss_type": "grpo",
        "scale_rewards": "group",
        "advantage_epsilon": 1e-6,
        "beta": 0.001,
        "use_bias_correction_kl": False,
        "epsilon": 0.2,
        "temperature": 1.0,
        "top_p": 1.0,
    },
}

VARIANTS = {
    "ternary": truthrl,
    "binary": truthrl.with_(abstain=-1.0),
    "knowledge-ternary": truthrl.with_(knowledge=True),
    "knowledge-binary": truthrl.with_(knowledge=True, abstain=-1.0),
    "em": truthrl.with_(verifier="em"),
    "reasoning-multiplicative": truthrl_reasoning.with_(combine="multiplicative"),
    "reasoning-additive": truthrl_reasoning.with_(combine="additive"),
    "reasoning-conditional": truthrl_reasoning.with_(combine="conditional"),
    "code": truthrl.with_(released=True),
}

_CURIE = Example("In which city was Marie Curie born?", ("Warsaw", "Warszawa"), id="curie")
_YORK = Example("Which city is called the Big Apple?", ("New York", "New York City"), id="york")
_UNKNOWN = Example("Who was the 12th mayor of Ely?", ("Ada Reed",), id="ely", ook=True)
_PREMISE = Example("Who is the king of Brazil?", ("invalid question",), id="king", false_premise=True)
_THOUGHT = "<think>She left Warsaw for Paris in 1891.</think> \\boxed{Warsaw}"

GOLD = (
    Gold("a match earns +1 without a judge", _CURIE, "It was \\boxed{Warsaw}", {"outcome": 1}),
    Gold("an alias is a match", _CURIE, "\\boxed{warszawa}", {"outcome": 1}),
    Gold("abstaining is 0", _CURIE, "\\boxed{I don't know}", {"outcome": 0}),
    Gold("a typographic apostrophe abstains too", _CURIE, "\\boxed{I don’t know}", {"outcome": 0}),
    Gold("'I do not know' abstains too", _CURIE, "\\boxed{I do not know}", {"outcome": 0}),
    Gold(
        "a refusal with an answer is the answer",
        _CURIE,
        "\\boxed{I don't know, maybe Paris}",
        {"outcome": -1},
        replies=("Paris is not Warsaw.\nVERDICT: incorrect",),
    ),
    Gold("no box is the floor", _CURIE, "Warsaw", {"outcome": -1}, state="floored"),
    Gold("an empty box is the floor", _CURIE, "\\boxed{ }", {"outcome": -1}, state="floored"),
    Gold("braces balance", _YORK, "\\boxed{\\text{New York}}", {"outcome": 1}),
    Gold(
        "the last box is the answer", _CURIE, "<think>\\boxed{Paris}?</think> \\boxed{Warsaw}", {"outcome": 1}
    ),
    Gold(
        "the judge decides what rules cannot",
        _CURIE,
        "\\boxed{the Polish capital}",
        {"outcome": 1},
        replies=("Warsaw is the capital of Poland.\nVERDICT: correct",),
    ),
    Gold(
        "a reply without a verdict masks the sample",
        _CURIE,
        "\\boxed{the Polish capital}",
        replies=("I would say it is NOT CORRECT.",),
        state="masked",
    ),
    Gold(
        "'invalid question' is right where the question is",
        _PREMISE,
        "\\boxed{Invalid question}",
        {"outcome": 1},
    ),
    Gold("and wrong where it is not", _CURIE, "\\boxed{invalid question}", {"outcome": -1}),
    Gold("binary: abstaining is wrong", _CURIE, "\\boxed{I don't know}", {"outcome": -1}, "binary"),
    Gold(
        "out of knowledge: abstaining is +1",
        _UNKNOWN,
        "\\boxed{I don't know}",
        {"outcome": 1},
        "knowledge-ternary",
    ),
    Gold(
        "out of knowledge: an answer is -1",
        _UNKNOWN,
        "\\boxed{Ada Reed}",
        {"outcome": -1},
        "knowledge-ternary",
    ),
    Gold("out of knowledge, binary", _UNKNOWN, "\\boxed{I don't know}", {"outcome": 1}, "knowledge-binary"),
    Gold("equality alone misses a paraphrase", _CURIE, "\\boxed{the Polish capital}", {"outcome": -1}, "em"),
    Gold(
        "precise reasoning doubles a right answer",
        _CURIE,
        _THOUGHT,
        {"outcome": 1, "reasoning": 1},
        "reasoning-multiplicative",
        ("It names her city.\nVERDICT: precise",),
    ),
    Gold(
        "additive: λ = 0.5",
        _CURIE,
        _THOUGHT,
        {"outcome": 1, "reasoning": 0.5},
        "reasoning-additive",
        ("It names her city.\nVERDICT: precise",),
    ),
    Gold(
        "conditional: vague reasoning takes a right answer's reward",
        _CURIE,
        _THOUGHT,
        {"outcome": 1, "reasoning": -1},
        "reasoning-conditional",
        ("No reason given.\nVERDICT: vague",),
    ),
    Gold(
        "released: the first box up to its first brace",
        _YORK,
        "\\boxed{\\text{New York}}",
        {"outcome": -1},
        "code",
        ("It is cut off.\nVERDICT: incorrect",),
    ),
    Gold(
        "released: 'I do not know' is a wrong answer",
        _CURIE,
        "\\boxed{I do not know}",
        {"outcome": -1},
        "code",
    ),
    Gold(
        "released: refusal plus answer is a refusal",
        _CURIE,
        "\\boxed{I don't know, maybe Paris}",
        {"outcome": 0},
        "code",
    ),
    Gold(
        "released: 'invalid question' is never right",
        _PREMISE,
        "\\boxed{invalid question}",
        {"outcome": -1},
        "code",
    ),
)

# Averages of four question sets with retrieval, in points (truthfulness = accuracy - hallucination).
PUBLISHED = {
    ("Table 1", "Llama-3.1-8B prompting", "truthfulness"): -16.4,
    ("Table 1", "Llama-3.1-8B prompting", "hallucination"): 54.1,
    ("Table 1", "Llama-3.1-8B binary", "truthfulness"): 4.5,
    ("Table 1", "Llama-3.1-8B binary", "hallucination"): 47.7,
    ("Table 1", "Llama-3.1-8B TruthRL", "truthfulness"): 25.6,
    ("Table 1", "Llama-3.1-8B TruthRL", "hallucination"): 18.8,
    ("Table 1", "Llama-3.1-8B TruthRL", "accuracy"): 44.4,
    ("Table 1", "Qwen2.5-7B prompting", "truthfulness"): -7.9,
    ("Table 1", "Qwen2.5-7B TruthRL", "truthfulness"): 23.1,
}
