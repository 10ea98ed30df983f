"""What a model learns from: the rows that a question gives, or the reason why it gives none.

Imitation, a row of one completion:

sft          the accepted answer
r-tuning     the accepted answer, "I don't know" where the question is out of knowledge
rft          an own sample that is right; where the question is out of knowledge, an own sample that abstains
sft-seed     the own sample whose claims have the highest precision
truthfulness, checklist-verifier, extractor   as sft: the reply of a labelled row (`tuning.labelled`)

Preference, rows of a better completion over a worse one, both of the model's own samples but for `given`;
with `tune.chosen` the better one of max-min, factscore-ends and klc is the text of a column:

correctness     a right answer over a wrong one; where the question is out of knowledge, "I don't know" over a
                wrong one
max-min         the sample with the highest reward over the one with the lowest
margin-length   the pair that differs most in precision, of those that differ enough in it and little in
                length
factscore       every two samples of different FActScore
factscore-ends  KLCF's baseline: the highest FActScore over the lowest
klc             the highest value of KLCF's Eq. 11 (arXiv:2509.23765) over the lowest
given           the accepted answer over the completion in the column `rejected`, both as they stand there

sft, r-tuning and rft are TruthRL's baselines (arXiv:2509.25760, section 4.1; its R-Tuning is not that paper's
own), correctness is its text and max-min its code.  sft-seed and margin-length are Learning to Reason for
Factuality's (arXiv:2508.05618), factscore is FactTune-FS (arXiv:2311.08401).  A sample that could not be
measured is in no row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

from factrl.train.tuning.labelled import LABELLED
from factrl.types import Example, Label

Measure = Literal["grade", "reward", "precision", "klcf"]
"""What a sample is measured by: the grade of its answer, a reward, the share of its claims that are
supported, or KLCF's Eq. 11."""

INVALID = "invalid question"
"""The accepted answer of a question on a false premise that has no other."""
UNDECIDED = "the probe could not decide"
_FEW, _EQUAL = "fewer than two samples measured", "all samples equal"
_ROUNDING = 1e-9  # 0.4 - 0.3 is a little over 0.1
MARGIN = 0.1  # margin-length: two samples whose precision differs by no more make no pair
LENGTHS = 0.1  # nor do lengths l and m with |1 - l/m| over it, l that of the better one


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a model wrote, measured.

    Attributes:
        text: the completion.
        length: tokens that the model wrote, without the end token; words where nobody counted tokens.
        truncated: it stopped at the length limit.
        label: what became of the answer; None unless it was graded.
        value: what a rule ranks by; None unless it was measured, or when it has no value (a text that
            declines has no precision).
        cause: why it could not be measured; then it has neither label nor value.
        floored: why the text itself has the lowest value, such as a form that it does not keep.
    """

    text: str
    length: int = 0
    truncated: bool = False
    label: Label | None = None
    value: float | None = None
    cause: str | None = None
    floored: str | None = None


@dataclass(frozen=True, slots=True)
class TargetFormat:
    """How an answer is written, and what decides where several samples would do."""

    write: Callable[[str], str] = str  # an answer -> the completion that gives it
    abstention: str = "I don't know"
    chosen: str | None = None  # what is preferred in place of the best sample; "" where the row has no text
    draw: random.Random = field(default_factory=lambda: random.Random(0))


Rows = list[Mapping[str, Any]] | str
"""The rows of one question, or in a word or two why it has none."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A way to make rows."""

    rows: Callable[[Example, Sequence[Candidate], TargetFormat], Rows]
    measure: Measure | None = None  # of the samples; None when there are none
    needs_ook: bool = False  # whether a question is out of knowledge
    needs_answers: bool = True  # where a reward measures, it decides


def _imitate(sample: Candidate, why: str) -> Rows:
    return [{"completion": sample.text, "truncated": sample.truncated, "why": why}]


def _prefer(chosen: Candidate, rejected: Candidate, why: str) -> Mapping[str, Any]:
    return {
        "chosen": chosen.text,
        "rejected": rejected.text,
        "chosen_truncated": chosen.truncated,
        "rejected_truncated": rejected.truncated,
        "why": why,
    }


def _accepted(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    answer = example.answers[0] if example.answers else INVALID if example.false_premise else ""
    return _imitate(Candidate(target.write(answer)), "accepted answer") if answer else "no accepted answer"


def _accepted_or_abstention(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    if example.ook is None:
        return UNDECIDED
    if example.ook:
        return _imitate(Candidate(target.write(target.abstention)), "out of knowledge: abstention")
    return _accepted(example, samples, target)


def _own(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    if example.ook is None:
        return UNDECIDED
    wanted, word = ("abstained", "abstaining") if example.ook else ("correct", "right")
    fitting = [sample for sample in samples if sample.label == wanted]
    if not any(sample.label for sample in samples):
        return "nothing graded"
    if not fitting:
        return f"no {word} sample" + (" (out of knowledge)" if example.ook else "")
    why = f"own {word} sample, 1 of {len(fitting)} among {len(samples)}"
    return _imitate(target.draw.choice(fitting), why)


def _most_precise(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    measured = _measured(samples)
    if not measured:
        return "nothing measured"
    value, best = max(measured, key=lambda pair: pair[0])  # the first where several have it
    return _imitate(best, f"precision {value:.3g}, the highest of {len(measured)}")


def _correctness(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    if example.ook is None:
        return UNDECIDED
    if not any(sample.label for sample in samples):
        return "nothing graded"
    wrong = [sample for sample in samples if sample.label == "incorrect"]
    if not wrong:
        return "no wrong sample"
    if example.ook:
        abstained = Candidate(target.write(target.abstention))
        return [_prefer(abstained, target.draw.choice(wrong), "out of knowledge: abstained over wrong")]
    right = [sample for sample in samples if sample.label == "correct"]
    if not right:
        return "no right sample"
    return [_prefer(target.draw.choice(right), target.draw.choice(wrong), "right over wrong")]


def _max_min(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    measured = _measured(samples)
    if target.chosen is not None:
        return _given_over_worst(measured, target.chosen)
    if len(measured) < 2:
        return _FEW
    best, chosen = max(measured, key=lambda pair: pair[0])
    worst, rejected = min(measured, key=lambda pair: pair[0])
    if best - worst <= _ROUNDING:
        return _EQUAL
    return [_prefer(chosen, rejected, f"{best:.3g} over {worst:.3g}")]


def _given_over_worst(measured: Sequence[tuple[float, Candidate]], text: str) -> Rows:
    if not text or not measured:
        return "nothing measured" if text else "no chosen text"
    worst, rejected = min(measured, key=lambda pair: pair[0])
    return [_prefer(Candidate(text), rejected, f"the row's text over {worst:.3g}")]


def given_text(example: Example, column: str) -> str:
    """The completion in a column of the question's row; empty where it holds none."""
    text = example.meta.get(column)
    return text if isinstance(text, str) and text.strip() else ""


def _margin_length(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    if len(_measured(samples)) < 2:
        return _FEW
    near = [
        (better - worse, chosen, rejected, f"{better:.3g} over {worse:.3g}")
        for better, chosen, worse, rejected in _ranked(samples)
        if better - worse > MARGIN + _ROUNDING
        and rejected.length
        and abs(1 - chosen.length / rejected.length) <= LENGTHS + _ROUNDING
    ]
    if not near:
        return "no pair within margin and length"
    _, chosen, rejected, why = max(near, key=lambda pair: pair[0])
    return [_prefer(chosen, rejected, f"{why}, lengths {chosen.length} and {rejected.length}")]


def _every_two(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    if len(_measured(samples)) < 2:
        return _FEW
    rows = [_prefer(a, b, f"{x:.3g} over {y:.3g}") for x, a, y, b in _ranked(samples) if x - y > _ROUNDING]
    return rows or _EQUAL


def _given(example: Example, samples: Sequence[Candidate], target: TargetFormat) -> Rows:
    worse = example.meta.get("rejected")
    if not example.answers or not isinstance(worse, str) or not worse.strip():
        return "no given pair"
    if worse.strip() == example.answers[0].strip():
        return "both completions equal"
    return [_prefer(Candidate(example.answers[0]), Candidate(worse), "given")]


def _measured(samples: Sequence[Candidate]) -> list[tuple[float, Candidate]]:
    return [(sample.value, sample) for sample in samples if sample.value is not None]


def _ranked(samples: Sequence[Candidate]) -> list[tuple[float, Candidate, float, Candidate]]:
    """Every two measured samples, the better one and its value first."""
    pairs = combinations(_measured(samples), 2)
    return [(*first, *second) if first[0] > second[0] else (*second, *first) for first, second in pairs]


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("sft", *LABELLED), Rule(_accepted)),
    "r-tuning": Rule(_accepted_or_abstention, needs_ook=True),
    "rft": Rule(_own, "grade", needs_ook=True),
    "sft-seed": Rule(_most_precise, "precision", needs_answers=False),
    "correctness": Rule(_correctness, "grade", needs_ook=True),
    "max-min": Rule(_max_min, "reward"),
    "margin-length": Rule(_margin_length, "precision", needs_answers=False),
    "factscore": Rule(_every_two, "precision", needs_answers=False),
    "factscore-ends": Rule(_max_min, "precision", needs_answers=False),
    "klc": Rule(_max_min, "klcf", needs_answers=False),
    "given": Rule(_given),
}
"""By the name of a rule, or of a method that has none."""
