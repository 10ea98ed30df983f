"""FSPO: every sentence of the reasoning is held against given evidence, and tokens feel it.

Paper     The Hallucination Dilemma: Factuality-Aware Reinforcement Learning for Large Reasoning Models,
          arXiv:2505.24630
Reward    Eq. 10: answer in {0, 1}, by rules (Eq. 9), plus the mean over the N sentences of the think part of
          +1 (the evidence entails it), -1 (contradicts it) or 0 (neither)
Credit    Eq. 11: a token of a sentence with the sign y gets A where y A >= 0, else -A; the trainer does it
          from `Score.spans`.  Sign 0, and all that is no sentence of the think part, keeps A
N counts every sentence.  What states nothing ("Wait,", questions, code) is neutral without being judged, and
a sentence that is written again has the verdict of the first one; with `repeats="neutral"`, which is ours, a
true one is neutral then, or "It is in Asia. It is in Asia." is learnt.  A malformed completion is floored at
-1, the least that a well-formed one can earn; the paper does not say what it is worth.  `judged` lets the
judge decide on answers that the rules cannot, which the paper does not.
Eq. 8 needs a verifier with three verdicts: one that tells supported from not supported alone never gives -1
and is refused.  The preset `fspo` reads it as the released code does, and all that is not supported is -1.

The released reward has no mean of the steps, pays token F1 and gives every character that is no sentence of
the think part the sign +1; docs/papers/fspo.md has all that differs.

Known weaknesses of the published reward, which `robust` closes: neutral filler dilutes contradictions; one
safe sentence earns the whole mean; steps pay although the answer is wrong.  By Eq. 10 a sentence that is
neither entailed nor contradicted is worth 0, so a wrong answer is paid more (0) behind reasoning in which
nothing can be read (signs, another language, references) than behind steps some of which are false.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Literal

from factrl.errors import INSTALL, DataError, Unscored
from factrl.llm.judging import OWN
from factrl.rewards import Needs, reward
from factrl.rewards.grading import Grader
from factrl.rewards.mathematics import math_grader
from factrl.text import Slice, think_answer
from factrl.text.sentences import sentences
from factrl.types import Completion, Example, Grade, Score, Span
from factrl.verifier.claims import normalised
from factrl.verifier.report import WIDTH, Report

from . import Paper, no_answers

Step = Literal["supported", "refuted", "unknown", "unjudged", "neutral"]
# Of the claims of a sentence the first of these decides; one without a verdict could still refute it.
_ORDER: tuple[Step, ...] = ("refuted", "unjudged", "supported", "unknown", "neutral")
_SIGNS: Mapping[Step, int] = {"refuted": -1, "unjudged": 0, "supported": 1, "unknown": 0, "neutral": 0}
_BARE = (
    "it has no evidence to hold the reasoning against; name the column with data.columns.evidence=…, "
    "or set reward.without_evidence=outcome: its answer alone counts, as in mathematics"
)

_REFUTED = (
    "Eq. 8's -1 is for a step that the evidence contradicts, a third verdict beside supported and neither. "
    "Name what has three: verifier.judge=nli:MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli, local or llm; or "
    "give verifier.preset=fspo, under which all that is not supported is -1, as in the released code"
)
_BY_RULES = Grader()


def _needs(knobs: Mapping[str, Any]) -> Needs:
    def lacks(example: Example) -> str | None:
        if no_answers(example):
            return no_answers(example)
        if not example.evidence and importlib.util.find_spec("math_verify") is None:
            return (
                f"it has no evidence, so its answer may be a formula to compare: {INSTALL.format('[eval]')}"
            )
        return _BARE if not example.evidence and knobs["without_evidence"] == "refuse" else None

    rules, answer_alone = knobs["verifier"] == "rules", not (knobs["fact"] or knobs["signs"])
    return Needs(lacks, [*["grade"] * rules, *["verify"] * answer_alone], refuted=_REFUTED)


@reward(needs=_needs)
def fspo(
    example: Example,
    completion: Completion,
    *,
    grade: Grader,
    verify: Callable[..., Report],
    fact: bool = True,
    signs: bool = True,
    verifier: Literal["rules", "judge"] = "rules",
    without_evidence: Literal["refuse", "outcome"] = "refuse",
    repeats: Literal["first", "neutral"] = "first",
) -> Score:
    """FSPO's reward (Eq. 10) and the signs of its steps (Eq. 11); the terms are `answer` and `fact`.

    Args:
        fact: add the mean of the steps to the reward; without it there is no such term.
        signs: give the steps as spans; without it all tokens keep the advantage of the completion, and
            without `fact` too no step is judged: the GRPO that FSPO is compared with.
        verifier: `rules` decide whether the answer is right, as in Eq. 9, or the `judge` where they cannot.
        without_evidence: what happens to a question without evidence.  `refuse` stops before anything is
            paid for; `outcome` rewards the answer alone: no step is judged, and the mean is 0.
        repeats: ours.  What a sentence is that was written before: `first`, as it was the first time, or
            `neutral`, unless it is false: then it is false again.

    Raises:
        DataError: a question without evidence, and that is refused.
        Unscored: so many sentences have no verdict that they could move the mean by more than 0.05.
    """
    if not example.evidence and without_evidence == "refuse":
        raise DataError(f"the question {example.question[:80]!r} cannot be used with fspo: {_BARE}")
    think, graded = _graded(example, completion, _BY_RULES if verifier == "rules" else grade)
    facts: dict[str, Any] = {"answer": graded.answer, "label": graded.label, "how": graded.how}
    if graded.floored:
        return _floored(graded.floored, facts, fact, example)
    spans, mean = (), 0.0
    if example.evidence and (fact or signs):
        steps, floored = _steps(example, think, verify, again=repeats == "first")
        if floored:
            return _floored(floored, facts, fact, example)
        counts = Counter(step for _, _, step in steps)
        facts.update(steps=len(steps), supported=counts["supported"], refuted=counts["refuted"])
        mean = (counts["supported"] - counts["refuted"]) / len(steps) if steps else 0.0
        spans = tuple(Span(start, end, _SIGNS[step]) for start, end, step in steps)
    terms = {"answer": float(graded.label == "correct"), **({"fact": mean} if fact else {})}
    return Score(terms, spans if signs else (), facts=facts)


def _graded(example: Example, completion: Completion, grade: Grader) -> tuple[Slice, Grade]:
    """The think part and what became of the answer; `Grade.floored` says why there is none.

    A question without evidence may be one of mathematics, where another formula says the same as well.
    """
    blocks = think_answer(completion, completion.prefill)
    if blocks.think is None or blocks.answer is None:
        return Slice("", 0, 0), Grade("incorrect", "", how="gate", floored=blocks.malformed)
    text, answers, premise = blocks.answer.text, example.answers, example.false_premise
    graded = grade(example.question, text, answers, false_premise=premise)
    if graded.label == "incorrect" and not graded.floored and not example.evidence:
        compared = (math_grader().compare(text.strip(), accepted) for accepted in answers)
        graded = next((math for math in compared if math.label == "correct"), graded)
    return blocks.think, graded


def _floored(cause: str, facts: Mapping[str, Any], fact: bool, example: Example) -> Score:
    """The least that a completion can earn: no right answer, and every step contradicted."""
    terms = {"answer": 0.0, **({"fact": -1.0 if example.evidence else 0.0} if fact else {})}
    return Score(terms, floored=cause, facts=facts)


# -- Steps --------------------------------------------------------------------------------------------


def _steps(
    example: Example, think: Slice, verify: Callable[..., Report], *, again: bool = True
) -> tuple[list[tuple[int, int, Step]], str | None]:
    """Every sentence of the think part with its offsets in the completion, and why there are none.

    A sentence of several claims is refuted when one of them is, else supported when one is.

    Args:
        again: a claim or a sentence that was there before and was true is so again, and not neutral.

    Raises:
        Unscored: the claims or too many of the verdicts are missing.
    """
    report = verify(think.text, example.question, topic=example.topic, evidence=example.evidence)
    if report.failure is not None:
        raise report.failure
    if report.floored:
        return [], report.floored

    def repeated(before: Step) -> Step:
        return before if again or before != "supported" else "neutral"

    labels: dict[int, set[Step]] = {}
    first: dict[str, Step] = {}
    for check in report.checks:
        spelling = normalised(check.claim.text)
        if check.verdict is not None:
            own = check.verdict.cause in OWN  # or a flood of claims would hide false steps
            label: Step = "refuted" if own else check.verdict.label
            label = repeated(label) if spelling in first else label
            first.setdefault(spelling, label)
        else:
            label = repeated(first.get(spelling, "neutral")) if check.claim.skip == "repeat" else "neutral"
        labels.setdefault(check.claim.sentence, set()).add(label)
    steps: list[tuple[int, int, Step]] = []
    known: dict[str, Step] = {}
    for number, sentence in enumerate(sentences(think.text)):
        spelling = normalised(think.text[sentence.start : sentence.end])
        before = known.get(spelling, "neutral")  # an extractor may name what is said twice only once
        step: Step = min(labels.get(number, (before,)), key=_ORDER.index)
        step = repeated(step) if spelling in known else step
        known.setdefault(spelling, step)
        steps.append((think.start + sentence.start, think.start + sentence.end, step))
    missing = sum(step == "unjudged" for _, _, step in steps)
    if 2 * missing > WIDTH * len(steps):  # each of them lies between -1 and +1
        raise Unscored("claims_unjudged", f"{missing} of {len(steps)} steps have no verdict", stage="verify")
    return steps, None


PAPER = Paper(
    {
        "fspo": fspo,
        "mixed": fspo.with_(without_evidence="outcome"),
        "outcome": fspo.with_(fact=False, signs=False, without_evidence="outcome"),
        "outcome+fact": fspo.with_(signs=False),
        "signs": fspo.with_(fact=False),
        "judged": fspo.with_(verifier="judge"),
    },
    terms=("answer", "fact"),
    form="tags",
)
