"""The knowledge boundary: which questions a model ever gets right, found by asking each many times.

TruthRL (arXiv 2509.25760, section 3.1) draws 256 answers per question and calls it out of knowledge (`ook`)
when none of them is correct.  Here a question is asked in growing rounds and closed as soon as its label
cannot change: at its first correct answer.  Closing unknown questions early as well costs certainty, so it is
off unless a confidence says how much of it may go.

An answer that could not be graded is neither right nor wrong.  A question with too many of them and no
correct one has no label.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from factrl.errors import ConfigError, Unscored
from factrl.evals.metrics import wilson
from factrl.evals.shortqa import Extract, GradeAnswer, grade_completions
from factrl.evals.shortqa import Row as Graded
from factrl.llm import LLM
from factrl.llm.stopping import Outage, Stop, Stopping, is_ours
from factrl.llm.writers import Writer, Written, digest_of
from factrl.rewards.grading import graded_by
from factrl.runs.journal import Journal
from factrl.runs.progress import Progress
from factrl.runs.rows import Row
from factrl.runs.settings import AskSettings, Positive, SamplingSettings, Section
from factrl.runs.whole_file import whole_file
from factrl.types import Example, Label

_Kept = Mapping[str, Mapping[int, Sequence[Mapping[str, Any]]]]
_Part = Mapping[str, Mapping[str, Any]]

AT_ONCE = 512  # samples between two writes to the journal: what a killed probe repeats at most


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
    confidence: float = Field(default=1.0, gt=0.5, le=1)
    """Call a question out of knowledge early, so that the label is that of all samples at least this often,
    whatever the question's pass rate; 1 never does."""
    max_ungraded: float = Field(default=0.1, ge=0, lt=1)
    """Share of a question's samples that may lack a grade; above it, the question has no label."""


class ProbeRunSettings(AskSettings):
    """What `factrl probe` can be told."""

    sampling: ProbeSampling = ProbeSampling()  # pyright: ignore[reportIncompatibleVariableOverride]
    probe: ProbeSettings = ProbeSettings()

    @property
    def stopping(self) -> Stopping:
        """When a question has been asked enough."""
        return Stopping(self.sampling.num_samples, **self.probe.model_dump(exclude={"max_ungraded"}))


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
            were fewer samples per question or fewer questions then.  Questions that a finished probe left
            without a label are asked again.
        max_ungraded: share of a question's samples that may lack a grade; with more, and no correct one, it
            has no label.
        extract: what of a completion is the answer, see `factrl.evals.shortqa.grade_completions`.
        workers: answers that are graded at the same time.

    Raises:
        TooManyMasked: the model or the judge is gone; what it left without a grade is not kept.
        RewardBug: the grader raised something other than `Unscored`.
    """
    kept, dropped = _kept(journal)
    states = [_State(example, stopping, kept, dropped) for example in examples]
    _drop_undecided(states, max_ungraded, journal)
    outage, held = Outage(), list[_Part]()
    still, total = sum(not state.closed for state in states), stopping.samples * len(states)
    told: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "seed": seed}
    with Progress("probe", total, already=sum(state.done for state in states)) as progress:
        for part, numbers in _parts(states, stopping):
            those = [state.example for state in part]
            count = functools.partial(progress.advance, len(numbers))
            written = writer.write(those, numbers, **told, on_done=count)
            samples = _graded(those, written, grader, extract, workers)
            held.append(_rows(part, samples))
            if not outage.suspected(_causes(part, samples)):
                _keep(journal, held)
            done, closed = _progress(part)
            for state, group in zip(part, samples, strict=True):
                state.samples += group
            still -= _progress(part)[1] - closed
            saved = _progress(part)[0] - done - len(part) * len(numbers)
            progress.advance(saved, f"{still} questions open")
        _keep(journal, held)
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


# Asking


class _State:
    """One question, as far as it has been asked.

    Args:
        kept: question -> number of its first sample -> samples, of an earlier process.
        dropped: questions that are asked again, as they were left without a label.
    """

    def __init__(self, example: Example, stopping: Stopping, kept: _Kept, dropped: Collection[str]) -> None:
        self.example, self.key, self._stopping = example, digest_of(example), stopping
        self.samples: list[ProbeSample] = []
        self.again = self.key in dropped
        found = kept.get(self.key, {})
        while rows := found.get(len(self.samples)):
            self.samples += [ProbeSample(**row) for row in rows]
        labels: list[Label | None] = [sample.label for sample in self.samples]
        ends = (numbers.stop for numbers in stopping.rounds if numbers.stop <= len(labels))
        end = next((end for end in ends if stopping.why(labels[:end])), None)
        if end is not None:  # a probe that asked for more went beyond
            del self.samples[end:]

    @property
    def closed(self) -> bool:
        return self._why() is not None

    @property
    def done(self) -> int:
        """Samples that are there or will not be needed."""
        return self._stopping.samples if self.closed else len(self.samples)

    def found(self, max_ungraded: float) -> Probed:
        stopped, samples = self._why(), tuple(self.samples)
        if stopped is None:
            raise RuntimeError(f"question {self.example.id!r} is still open")
        if any(sample.label == "correct" for sample in samples):
            return Probed(self.example, samples, False, stopped)
        causes = Counter(sample.cause or "" for sample in samples if sample.label is None)
        if causes.total() > max_ungraded * len(samples):
            return Probed(self.example, samples, None, stopped, causes.most_common(1)[0][0])
        return Probed(self.example, samples, True, stopped)

    @property
    def fails(self) -> bool:
        """Whether it is known to fail on our side while other questions do not."""
        return self.again or (bool(self.samples) and all(is_ours(sample.cause) for sample in self.samples))

    def _why(self) -> Stop | None:
        return self._stopping.why([sample.label for sample in self.samples])


def _rows(part: Sequence[_State], fresh: Sequence[Sequence[ProbeSample]]) -> _Part:
    return {
        state.key: {"id": state.example.id, "first": len(state.samples), "samples": [*map(asdict, group)]}
        for state, group in zip(part, fresh, strict=True)
    }


def _causes(part: Sequence[_State], fresh: Sequence[Sequence[ProbeSample]]) -> dict[str, list[str | None]]:
    """Why samples have no grade, for the questions that can tell of an outage."""
    return {
        state.key: [sample.cause for sample in group]
        for state, group in zip(part, fresh, strict=True)
        if not state.fails
    }


def _keep(journal: Journal, parts: list[_Part]) -> None:
    """Write each part as one row: it is there or not, so a killed probe goes on with the same parts."""
    for part in parts:
        journal.add(_new_key(journal), {"questions": part})
    parts.clear()


def _kept(journal: Journal) -> tuple[_Kept, Collection[str]]:
    """The samples that are there, and the questions that lost theirs to be asked again."""
    kept: dict[str, dict[int, Sequence[Mapping[str, Any]]]] = {}
    dropped: set[str] = set()
    for row in journal.values():
        for key in row.get("dropped", ()):
            kept.pop(key, None)
            dropped.add(key)
        for key, found in row.get("questions", {}).items():
            kept.setdefault(key, {})[found["first"]] = found["samples"]
    return kept, dropped


def _drop_undecided(states: Sequence[_State], max_ungraded: float, journal: Journal) -> None:
    """Of a finished probe, empty the questions without a label, in the journal too: they are asked again."""
    finished = all(state.closed for state in states)
    undecided = [state for state in states if finished and state.found(max_ungraded).ook is None]
    if undecided:
        journal.add(_new_key(journal), {"dropped": [state.key for state in undecided]})
    for state in undecided:
        state.samples.clear()
        state.again = True


def _new_key(journal: Journal) -> str:
    return f"row {len(journal)}"  # never one of an earlier row, whose place it would take


def _progress(states: Sequence[_State]) -> tuple[int, int]:
    """Samples that are done, and questions that are closed."""
    return sum(state.done for state in states), sum(state.closed for state in states)


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
    texts = [
        (example, text)
        for example, group in zip(examples, written, strict=True)
        for text in group
        if not isinstance(text, Unscored)
    ]
    rows = iter(grade_completions(texts, grader, extract, workers))
    return [[_sample(text, rows) for text in group] for group in written]


def _sample(text: Written, rows: Iterator[Graded]) -> ProbeSample:
    if isinstance(text, Unscored):
        return ProbeSample(None, None, cause=text.cause)
    row = next(rows)
    told = {"truncated": text.truncated, "tokens": text.tokens}
    if row.grade is None:
        return ProbeSample(str(text), None, cause=row.cause, **told)
    return ProbeSample(str(text), row.grade.label, row.grade.answer, **told)
