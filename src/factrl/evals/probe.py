"""The knowledge boundary: which questions a model ever gets right, found by asking each many times.

TruthRL (arXiv 2509.25760, section 3.2) draws 256 answers per question and calls it out of knowledge (`ook`)
when none of them is correct.  Here a question is asked in growing rounds and closed at its first correct
answer, as its label cannot change then.

An answer that could not be graded is neither right nor wrong.  A question with too many of them and no
correct one has no label, and the next probe asks it anew.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from factrl.errors import ConfigError, TooManyMasked, Unscored
from factrl.evals.metrics import wilson
from factrl.evals.shortqa import Extract, GradeAnswer, grade_completions
from factrl.llm import LLM
from factrl.llm.writers import Writer, Written, digest_of, is_ours
from factrl.rewards.grading import graded_by
from factrl.runs.disk import Journal, whole_file
from factrl.runs.progress import Progress
from factrl.runs.rows import Row
from factrl.runs.settings import AskSettings, Positive, SamplingSettings, Section
from factrl.types import Completion, Example, Label

AT_ONCE = 512  # samples between two writes to the journal: what a killed probe repeats at most
LARGEST_ROUND = 64  # samples of one question that are asked together
MANY = 20  # questions, of which more than half cannot fail by chance
_GONE = {*("connection", "auth", "redirect", "breaker_open", "budget"), *("http_502", "http_503", "http_504")}
"""Why calls fail when a model or a judge is not there, whatever it is asked; others may be due to a text."""

Stop = Literal["first_correct", "all_samples"]


@dataclass(frozen=True)
class Stopping:
    """When a question has been asked enough.

    Args:
        samples: answers per question, at most; TruthRL has 256.
        first_correct: stop at the first correct one.
    """

    samples: int = 256
    first_correct: bool = True

    @cached_property
    def rounds(self) -> Sequence[range]:
        """The numbers of the samples that are asked together: four, four, eight, sixteen, …

        Small first rounds save answers to what is known, while every round reads the question again: where
        nothing stops at a correct answer, all rounds are large.
        """
        first, rounds = 0, []
        while first < self.samples:
            size = min(max(4, first), LARGEST_ROUND) if self.first_correct else LARGEST_ROUND
            rounds.append(range(first, min(self.samples, first + size)))
            first += size
        return rounds

    def why(self, labels: Sequence[Label | None]) -> Stop | None:
        """Why no more is asked after samples with these labels; None when more is.

        Args:
            labels: None where a sample could not be graded.
        """
        if len(labels) >= self.samples:
            return "all_samples"
        return "first_correct" if self.first_correct and "correct" in labels else None


class ProbeSampling(SamplingSettings):
    """`[sampling]` of a probe: TruthRL's number of samples, from the model's own distribution."""

    num_samples: Positive = 256
    """Answers per question, at most."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature; 0 writes the most likely answer."""


class ProbeSettings(Section):
    """`[probe]`: when a question has been asked enough."""

    first_correct: bool = True
    """Stop asking a question at its first correct answer; off, every question gets all samples."""
    max_ungraded: float = Field(default=0.1, ge=0, lt=1)
    """Share of a question's samples that may lack a grade; above it, the question has no label."""


class ProbeRunSettings(AskSettings):
    """What `factrl probe` can be told."""

    sampling: ProbeSampling = ProbeSampling()  # pyright: ignore[reportIncompatibleVariableOverride]
    probe: ProbeSettings = ProbeSettings()

    @property
    def stopping(self) -> Stopping:
        """When a question has been asked enough."""
        return Stopping(self.sampling.num_samples, self.probe.first_correct)


@dataclass(frozen=True, slots=True)
class ProbeSample:
    """One answer to a question.

    Attributes:
        text: what the model wrote; None when it could not be asked.
        label: what became of it; None when it could not be graded, and then `cause` says why.
        answer: the part of the text that was graded.
        truncated: the text stopped at the length limit.
        tokens: how many the model wrote; None where nobody counted.
    """

    text: str | None
    label: Label | None
    answer: str = ""
    cause: str | None = None
    truncated: bool = False
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Probed:
    """A question and what its samples say of it.

    Attributes:
        ook: no sample is correct; None when too few could be graded to say so, and then `cause` is the
            commonest reason.
        stopped: why no more was asked.
    """

    example: Example
    samples: Sequence[ProbeSample]
    ook: bool | None
    stopped: Stop
    cause: str | None = None

    @property
    def graded(self) -> int:
        """Samples with a grade."""
        return sum(sample.label is not None for sample in self.samples)

    @property
    def pass_rate(self) -> float | None:
        """Correct samples / graded ones, None without any.

        Estimates the chance of a correct answer without bias only in a full probe: one that stops at the
        first correct answer stops where the rate happens to be high.
        """
        correct = sum(sample.label == "correct" for sample in self.samples)
        return correct / self.graded if self.graded else None


def probe(
    examples: Sequence[Example],
    writer: Writer,
    grader: GradeAnswer,
    journal: Journal,
    *,
    stopping: Stopping,
    max_ungraded: float = 0.1,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int = 0,
    extract: Extract = "text",
    workers: int = 16,
) -> list[Probed]:
    """Ask and grade until every question has been asked enough.

    Args:
        examples: questions with accepted answers and ids of their own.
        writer: the model.
        grader: grades one answer; called from several threads.
        journal: opened for `job` of the same arguments; what it holds is not asked again, also when there
            were fewer samples per question or fewer questions then.  Questions that were left without a
            label are asked anew.
        max_ungraded: share of a question's samples that may lack a grade; with more, and no correct one, it
            has no label.
        extract: what of a completion is the answer, see `factrl.evals.shortqa.grade_completions`.
        workers: answers that are graded at the same time.

    Raises:
        TooManyMasked: the model or the judge is gone; what it left without a grade is not kept.
        RewardBug: the grader raised something other than `Unscored`.
    """
    states = _opened(examples, stopping, max_ungraded, journal)
    with Progress("probe", stopping.samples * len(states), already=sum(s.done for s in states)) as progress:
        for part, numbers in _parts(states, stopping):
            before = sum(state.done for state in part)
            written = writer.write(
                [state.example for state in part], numbers, temperature=temperature, top_p=top_p, seed=seed
            )
            samples = _graded([state.example for state in part], written, grader, extract, workers)
            _check_there(part, samples)
            # One row for a part: it is there or not, so a killed probe goes on with the same parts.
            rows = {
                state.key: {"first": len(state.samples), "samples": [*map(asdict, group)]}
                for state, group in zip(part, samples, strict=True)
            }
            journal.add(f"row {len(journal)}", {"questions": rows})
            for state, group in zip(part, samples, strict=True):
                state.samples += group
            still = sum(not state.closed for state in states)
            progress.advance(sum(state.done for state in part) - before, f"{still} questions open")
    return [state.found(max_ungraded) for state in states]


def job(
    writer: Writer, judge: LLM | None, *, temperature: float, top_p: float, seed: int, extract: Extract
) -> Mapping[str, Any]:
    """What decides the samples of a question and their grades, for the head of a journal."""
    return {
        "model": writer.identity,
        "grader": graded_by(judge),
        "extract": extract,
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
    }


def summary(probed: Sequence[Probed], stopping: Stopping) -> dict[str, Any]:
    """The probe as plain data: questions by label and by why they stopped, samples drawn and saved.

    `ook_share` is over the questions with a label, with its 95 % interval (Wilson).
    """
    counts = Counter(found.ook for found in probed)
    decided = counts[True] + counts[False]
    drawn, most = sum(len(found.samples) for found in probed), stopping.samples * len(probed)
    ungraded = Counter(sample.cause for found in probed for sample in found.samples if sample.cause)
    return {
        "questions": len(probed),
        "out_of_knowledge": counts[True],
        "known": counts[False],
        "undecided": dict(Counter(found.cause for found in probed if found.cause).most_common()),
        "ook_share": asdict(wilson(counts[True], decided)) if decided else None,
        "stopped": dict(Counter(found.stopped for found in probed).most_common()),
        "samples": drawn,
        "samples_of_a_full_probe": most,
        "saved": 1 - drawn / most if most else 0.0,
        "ungraded": dict(ungraded.most_common()),
    }


def write_probed(path: Path, rows: Sequence[Row], probed: Sequence[Probed]) -> None:
    """Write a dataset: the rows of the questions with what was found, for `factrl train` and `factrl tune`.

    Added to each row: `id`, where it has none; `ook`, null without a label; `pass_rate`; and `samples`, a
    list of tables with the fields of `ProbeSample`.  The file is whole or not there.

    Args:
        rows: as the dataset has them, in the order of `probed`.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
            for row, found in zip(rows, probed, strict=True):
                named = {} if str(row.get("id")) == found.example.id else {"id": found.example.id}
                samples = [asdict(sample) for sample in found.samples]
                said = {"ook": found.ook, "pass_rate": found.pass_rate, "samples": samples}
                file.write(json.dumps({**row, **named, **said}, default=str) + "\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


class _State:
    """One question, as far as it has been asked."""

    def __init__(self, example: Example, stopping: Stopping) -> None:
        self.example, self.key, self._stopping = example, digest_of(example), stopping
        self.samples: list[ProbeSample] = []
        self.anew = False  # an earlier process left it without a label

    def restore(self, kept: Mapping[int, Sequence[Mapping[str, Any]]]) -> None:
        """Take the samples that an earlier process left, by the number of the first of a round."""
        while rows := kept.get(len(self.samples)):
            self.samples += [ProbeSample(**row) for row in rows]
        labels: list[Label | None] = [sample.label for sample in self.samples]
        ends = (numbers.stop for numbers in self._stopping.rounds if numbers.stop <= len(labels))
        end = next((end for end in ends if self._stopping.why(labels[:end])), None)
        if end is not None:  # a probe that asked for more went beyond
            del self.samples[end:]

    @property
    def stopped(self) -> Stop | None:
        return self._stopping.why([sample.label for sample in self.samples])

    @property
    def closed(self) -> bool:
        return self.stopped is not None

    @property
    def done(self) -> int:
        """Samples that are there or will not be needed."""
        return self._stopping.samples if self.closed else len(self.samples)

    def found(self, max_ungraded: float) -> Probed:
        samples = tuple(self.samples)
        right = any(sample.label == "correct" for sample in samples)
        causes = Counter(sample.cause or "" for sample in samples if sample.label is None)
        undecided = not right and causes.total() > max_ungraded * len(samples)
        cause = causes.most_common(1)[0][0] if undecided else None
        ook = None if undecided else not right
        return Probed(self.example, samples, ook, self.stopped or "all_samples", cause)


def _opened(
    examples: Sequence[Example], stopping: Stopping, max_ungraded: float, journal: Journal
) -> list[_State]:
    """The questions with the samples that are there; one without a label begins anew."""
    kept: dict[str, dict[int, Sequence[Mapping[str, Any]]]] = {}
    for row in journal.values():
        for key, found in row.get("questions", {}).items():
            if found["first"] == 0:  # what an earlier beginning left is void
                kept[key] = {}
            kept[key][found["first"]] = found["samples"]
    states = [_State(example, stopping) for example in examples]
    for state in states:
        state.restore(kept.get(state.key, {}))
        if state.closed and state.found(max_ungraded).ook is None:
            state.samples.clear()
            state.anew = True
    return states


def _parts(states: Sequence[_State], stopping: Stopping) -> Iterator[tuple[Sequence[_State], range]]:
    """Open questions with the numbers to ask, one round after the other.

    An earlier probe for fewer samples may have ended inside a round: its questions go on from there.
    """
    for numbers in stopping.rounds:
        members = [state for state in states if not state.closed and len(state.samples) <= numbers[-1]]
        for first in sorted({len(state.samples) for state in members}):
            alike = [state for state in members if len(state.samples) == first]
            size = max(1, AT_ONCE // (numbers.stop - first))
            for start in range(0, len(alike), size):
                yield alike[start : start + size], range(first, numbers.stop)


def _graded(
    examples: Sequence[Example],
    written: Sequence[Sequence[Written]],
    grader: GradeAnswer,
    extract: Extract,
    workers: int,
) -> list[list[ProbeSample]]:
    pairs = [(example, text) for example, group in zip(examples, written, strict=True) for text in group]
    texts = [(example, text if isinstance(text, Completion) else None) for example, text in pairs]
    samples = iter(
        ProbeSample(None, None, cause=text.cause)
        if isinstance(text, Unscored)
        else ProbeSample(str(text), row.label, row.answer, row.cause, text.truncated, text.tokens)
        for (_, text), row in zip(pairs, grade_completions(texts, grader, extract, workers), strict=True)
    )
    return [[next(samples) for _ in group] for group in written]


def _check_there(part: Sequence[_State], samples: Sequence[Sequence[ProbeSample]]) -> None:
    """Stop where most new samples failed because nobody was there.

    A question that failed before says nothing: it may be one that no server takes.

    Raises:
        TooManyMasked: they did.
    """
    told = [
        group
        for state, group in zip(part, samples, strict=True)
        if not (all(is_ours(sample.cause) for sample in state.samples) if state.samples else state.anew)
    ]
    causes = [sample.cause for group in told for sample in group]
    failed = Counter(cause for cause in causes if cause and is_ours(cause))
    if failed.total() > len(causes) / 2 and (len(told) >= MANY or failed.keys() <= _GONE):
        tally = ", ".join(f"{count} {cause}" for cause, count in failed.most_common())
        raise TooManyMasked(
            f"{failed.total()} of {len(causes)} answers could not be written or graded ({tally}); they are "
            "not kept, and the same command goes on from here"
        )
