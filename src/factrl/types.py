"""The records of factrl: plain data without behaviour.

`Example` is one row of a dataset, `Completion` is what the policy wrote for it, `Grade` says
what became of its answer, `Score` is what a reward function returns and `Result` what became of
the sample: scored, masked or floored.  A `Claim` is one thing that a text says, a `Passage` is a piece of a
source, and a `Verdict` says whether passages support a claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, Literal

State = Literal["scored", "masked", "floored"]
Label = Literal["correct", "incorrect", "abstained"]
VerdictLabel = Literal["supported", "refuted", "unknown", "unjudged"]
Skip = Literal["question", "self", "repeat", "unverifiable", "limit", "accepted"]


@dataclass(frozen=True, slots=True)
class TrainingState:
    """The state of a training run, as far as a reward may read it.

    Attributes:
        texts: all completions of this step, of every question and process.
        stalled: how many held-out evaluations followed the most accurate one; 0 until there are two.
    """

    texts: tuple[str, ...]
    stalled: int


@dataclass(frozen=True, slots=True)
class Example:
    """One question with what is known about its answer.

    Attributes:
        question: the question as the user asks it, without any prompt template.
        answers: accepted answers, the preferred one first; empty when there is no reference.
        id: unique within the dataset.
        topic: what the question is about (a title or entity); empty when unknown.
        ook: "out of knowledge": a probe found no correct sample (TruthRL, section 3.1); None when not probed.
        false_premise: the question presupposes something untrue; None when unknown.
        evidence: passages that come with the question, to check answers and reasoning against.
        checklist: facts that a good long answer states (KLCF).
        meta: every other column of the row, untouched.

    >>> Example("Who wrote Emma?", ("Jane Austen", "Austen"), topic="Emma").answers[0]
    'Jane Austen'
    """

    question: str
    answers: tuple[str, ...] = ()
    id: str = ""
    topic: str = ""
    ook: bool | None = None
    false_premise: bool | None = None
    evidence: tuple[Passage, ...] = ()
    checklist: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict, hash=False)


class Completion(str):
    """What the policy wrote: the text itself, plus what the trainer knows about it.

    It is a `str`, so a reward can treat it as one.

    Attributes:
        prefill: text that the prompt already put at the start of the answer, e.g. `<think>`.
        truncated: generation stopped at the length limit, not at an end token.
        tokens: how many tokens the policy wrote; None where nobody counted them.
        certainty: the policy's self-certainty about it, in nats, NaN without tokens; None where the trainer
            was not asked for it.
        group: all completions of its question in this step, itself among them; None where it is alone.
        course: the state of the training run; None outside of one.
        shown: passages that the policy was shown while it wrote, numbered from 1; None where it had only
            those of the example.
        failed: the error where our side failed while it was written, such as a search; rewards raise it.
        passed: its tokens and the trainer's state, as TRL passes them to functions; None outside of training.

    >>> Completion("Rome</answer>", prefill="<answer>", truncated=True).prefill
    '<answer>'
    """

    prefill: str
    truncated: bool
    tokens: int | None
    certainty: float | None
    group: tuple[str, ...] | None
    course: TrainingState | None
    shown: tuple[Passage, ...] | None
    failed: Exception | None
    passed: tuple[Sequence[int], Any] | None

    def __new__(
        cls,
        text: str,
        *,
        prefill: str = "",
        truncated: bool = False,
        tokens: int | None = None,
        certainty: float | None = None,
    ) -> Completion:
        if not isinstance(text, str):
            raise TypeError(f"a completion is one text, not a {type(text).__name__}: {str(text)[:80]!r}")
        self = super().__new__(cls, text)
        self.prefill = prefill
        self.truncated = truncated
        self.tokens = tokens
        self.certainty = certainty
        self.group = self.course = None  # set once all completions of a step exist
        self.shown = self.failed = None  # set where the policy used an environment
        self.passed = None
        return self


@dataclass(frozen=True, slots=True)
class Grade:
    """What became of one answer.

    Attributes:
        label: `correct`, `incorrect` or `abstained`; the classes exclude each other.
        answer: the text that was graded.
        how: what decided: `exact` (equality), `abstention` (a listed refusal), `gate`, `judge`, `rules` (a
            guess, as no judge was asked), or `unlisted`: wrong, although it reads like a refusal.
        floored: why the policy's own text was ungradable (e.g. `contentless`), else None.
        why: the judge's reasoning, when there was one.
    """

    label: Label
    answer: str
    how: str
    floored: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the completion and the credit its characters deserve.

    Attributes:
        start, end: character offsets into the completion, end exclusive.
        sign: +1 supported, -1 contradicted, 0 neutral.
    """

    start: int
    end: int
    sign: int

    def __post_init__(self) -> None:
        for name in ("start", "end", "sign"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise ValueError(f"span {name}={value!r} is not a whole number")
            object.__setattr__(self, name, int(value))  # of numpy's, which JSON has no place for
        if not 0 <= self.start <= self.end:
            raise ValueError(f"span [{self.start}, {self.end}) is not a stretch of text")
        if self.sign not in (-1, 0, 1):
            raise ValueError(f"span sign must be -1, 0 or 1, not {self.sign!r}")


@dataclass(frozen=True, slots=True)
class Score:
    """What a reward function returns: named terms whose sum is the reward.

    Attributes:
        terms: name -> contribution; every value finite.
        spans: step-wise credit in characters (FSPO); empty for sequence rewards.
        floored: why the policy's own text could not be graded, else None.
        facts: anything worth keeping beside the sample (the answer, the grade, …); JSON values only;
            numbers that are not finite become null.
    """

    terms: Mapping[str, float]
    spans: tuple[Span, ...] = ()
    floored: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def value(self) -> float:
        """The reward: the sum of the terms."""
        return math.fsum(self.terms.values())


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one sample; `value` is None exactly when the sample is masked.

    Attributes:
        state: `scored`; `masked` (our side failed, no number exists); `floored` (the policy's text
            was ungradable and earns the reward's floor).
        value: the reward, or None when masked.
        cause: one word, why it was masked or floored; None when scored.
        detail: the cause explained in a sentence.
    """

    state: State
    value: float | None
    terms: Mapping[str, float] = field(default_factory=dict, hash=False)
    spans: tuple[Span, ...] = ()
    cause: str | None = None
    detail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if (self.value is None) != (self.state == "masked"):
            raise ValueError(f"a {self.state} sample cannot have the value {self.value!r}")

    def __repr__(self) -> str:
        """The fields that are not empty."""
        return _shown(self, ("state", "value"), ("terms", "spans", "cause", "detail", "facts"))

    def _repr_html_(self) -> str:
        """In a notebook: the terms, and why there is no number."""
        from factrl.text.html import table

        rows = [(name, f"{value:+g}") for name, value in self.terms.items()]
        rows += [(name, text) for name in ("cause", "detail") if (text := getattr(self, name))]
        value = "no reward" if self.value is None else f"reward {self.value:+g}"
        return table(("term", ""), rows, caption=f"{self.state}: {value}")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text to check claims against.

    Attributes:
        text: the passage itself.
        title: the title of the document it is from; empty when it has none.
        source: where it is from, a URL or a file name.
        id: unique within its index; empty for evidence that was handed in.
        score: how well it fits the query, higher is better; only comparable within one search.
    """

    text: str
    title: str = ""
    source: str = ""
    id: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that a text says, worded so that it is understood alone.

    Attributes:
        text: the claim, with pronouns replaced by what they stand for.
        start, end: the stretch of the text that says it, in characters, end exclusive.
        sentence: number of the sentence it is from, counted from 0.
        skip: why it is not judged, else None.  `question`: the question already says it; `self`: it speaks
            of the text, its grader or its instructions; `repeat`: an earlier claim says it; `unverifiable`;
            `limit`: it is beyond the number that `factrl verify` was told to look at; `accepted`: a person
            has accepted it.
    """

    text: str
    start: int
    end: int
    sentence: int = 0
    skip: Skip | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"claim [{self.start}, {self.end}) is not a stretch of text")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the evidence supports one claim.

    Attributes:
        label: `supported` or `refuted` by the evidence; `unknown`, the evidence does not decide or there is
            none; `unjudged`, no verdict exists because our side failed.
        by: identity of the judge.
        p: probability that the evidence supports the claim; None when the judge gives none.
        quote: the sentence that decided: number of the passage, start and end in its text, in characters.
        why: the judge's reason, when it gave one.
        cause: one word why there is no verdict, or `no_evidence`.
        facts: anything worth keeping beside the verdict; JSON values only.
    """

    label: VerdictLabel
    by: str
    p: float | None = None
    quote: tuple[int, int, int] | None = None
    why: str = ""
    cause: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.label == "unjudged" and not self.cause:
            raise ValueError("an unjudged claim needs a cause")
        if self.p is not None and not 0.0 <= self.p <= 1.0:
            raise ValueError(f"a probability lies between 0 and 1, not {self.p!r}")

    def __repr__(self) -> str:
        """The verdict without its judge, which is the same in all of a report."""
        return _shown(self, ("label",), ("p", "quote", "why", "cause", "facts"))


def _shown(record: Any, first: tuple[str, ...], named: tuple[str, ...]) -> str:
    """`Name(value, name=value)`, without the named fields that are empty."""
    fields = {name: value for name in named if (value := getattr(record, name)) not in (None, "", (), {})}
    pairs = [f"{name}={dict(v) if isinstance(v, Mapping) else v!r}" for name, v in fields.items()]
    return f"{type(record).__name__}({', '.join([*(repr(getattr(record, name)) for name in first), *pairs])})"


def plain(value: Any) -> Any:
    """The value as JSON can hold it: numbers that are not finite become null, arrays and tuples become lists.

    Raises:
        TypeError: something of another kind, such as an object.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "tolist"):  # of numpy and torch
        return plain(value.tolist())
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    raise TypeError(f"{type(value).__name__} {value!r} cannot be written as JSON")
