"""What a model is to imitate: one completion for each question, or the reason why it has none.

sft        the accepted answer
r-tuning   the accepted answer, "I don't know" where the question is out of knowledge
rft        an own sample that is right; where the question is out of knowledge, an own sample that abstains
sft-seed   the own sample whose claims have the highest precision
truthfulness, checklist-verifier, extractor   as sft: the reply of a labelled row (`tuning.labelled`)
The first three are TruthRL's baselines (arXiv:2509.25760, section 4.1; its R-Tuning is not that paper's own),
the last is how Learning to Reason for Factuality (arXiv:2508.05618) starts.  A sample that could
not be measured is never imitated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from factrl.errors import DataError
from factrl.train.tuning.labelled import LABELLED
from factrl.train.tuning.pairs import UNDECIDED, Measure, Sample
from factrl.types import Example

INVALID = "invalid question"
"""The accepted answer of a question on a false premise that has no other."""


@dataclass(frozen=True, slots=True)
class Target:
    """A completion to imitate.

    Attributes:
        why: what makes it one.
    """

    completion: Sample
    why: str


@dataclass(frozen=True, slots=True)
class Form:
    """How answers look, and where chance decides.

    Attributes:
        write: an answer -> the completion that gives it.
        abstention: the answer that declines.
        draw: where several samples would do.
    """

    write: Callable[[str], str] = str
    abstention: str = "I don't know"
    draw: random.Random | None = None


Found = Target | str
"""The target of one question, or in a word or two why it has none."""


@dataclass(frozen=True, slots=True)
class Source:
    """A way to find targets.

    Attributes:
        measure: what the samples have to be measured by; None when there are no samples.
        needs_ook: it has to know whether a question is out of knowledge.
        needs_answers: it has to know the accepted answers.
    """

    find: Callable[[Example, Sequence[Sample], Form], Found]
    measure: Measure | None = None
    needs_ook: bool = False
    needs_answers: bool = True


def accepted(example: Example, samples: Sequence[Sample], form: Form) -> Found:
    """The accepted answer; "invalid question" where only a false premise is known."""
    answer = example.answers[0] if example.answers else INVALID if example.false_premise else ""
    return Target(Sample(form.write(answer)), "accepted answer") if answer else "no accepted answer"


def accepted_or_abstention(example: Example, samples: Sequence[Sample], form: Form) -> Found:
    """The accepted answer, or the abstention where the question is out of knowledge."""
    if example.ook is None:
        return UNDECIDED
    if example.ook:
        return Target(Sample(form.write(form.abstention)), "out of knowledge: abstention")
    return accepted(example, samples, form)


def own(example: Example, samples: Sequence[Sample], form: Form) -> Found:
    """A drawn right sample, or a drawn abstaining one where the question is out of knowledge."""
    if example.ook is None:
        return UNDECIDED
    wanted, word = ("abstained", "abstaining") if example.ook else ("correct", "right")
    fitting = [sample for sample in samples if sample.label == wanted]
    if not any(sample.label for sample in samples):
        return "nothing graded"
    if not fitting:
        return f"no {word} sample" + (" (out of knowledge)" if example.ook else "")
    draw = form.draw or random.Random(0)
    return Target(draw.choice(fitting), f"own {word} sample, 1 of {len(fitting)} among {len(samples)}")


def most_precise(example: Example, samples: Sequence[Sample], form: Form) -> Found:
    """The sample of the highest value, the first where several have it."""
    measured = [(sample.value, sample) for sample in samples if sample.value is not None]
    if not measured:
        return "nothing measured"
    value, best = max(measured, key=lambda pair: pair[0])
    return Target(best, f"precision {value:.3g}, the highest of {len(measured)}")


SOURCES: Mapping[str, Source] = {
    **dict.fromkeys(("sft", *LABELLED), Source(accepted)),
    "r-tuning": Source(accepted_or_abstention, needs_ook=True),
    "rft": Source(own, "grade", needs_ook=True),
    "sft-seed": Source(most_precise, "precision", needs_answers=False),
}


def check_probed(examples: Sequence[Example], what: str) -> None:
    """Refuse questions that were never probed; those that a probe could not decide are left out later.

    Args:
        what: which method or rule wants to know what the model knows.

    Raises:
        DataError: how to find out.
    """
    if all(example.ook is None for example in examples):
        raise DataError(
            f"{what} needs to know which questions the model knows, and none of {len(examples)} has a flag "
            "`ook`; find out with: factrl probe QUESTIONS --model NAME --output probed.jsonl, and give "
            "--probe probed.jsonl"
        )
