"""The knowledge boundary: which questions a model ever gets right, found by asking each many times.

TruthRL (arXiv 2509.25760, section 3.2) draws 256 answers per question and calls it out of knowledge (`ook`)
when none of them is correct.  Here a question is asked in growing rounds and closed at its first correct
answer, as its label cannot change any more.

An answer that could not be graded is neither right nor wrong.  A question with too many of them and no
correct one has no label, and the next probe asks it anew.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from factrl.errors import ConfigError, TooManyMasked
from factrl.evals.metrics import LABELS, Floats, wilson
from factrl.evals.numbers import candidates
from factrl.evals.samples import EvalSample
from factrl.evals.shortqa import Extract, GradeAnswer, grade_completions
from factrl.llm.writers import Writer, digest_of, is_ours
from factrl.runs.disk import Journal, write_whole
from factrl.runs.progress import Progress
from factrl.runs.rows import Row
from factrl.runs.settings import AskSettings, Positive, SamplingSettings, Section
from factrl.types import Example, Label

AT_ONCE = 512  # samples between two writes to the journal; a killed probe repeats at most these
LARGEST_ROUND = 64  # samples of one question that are asked together
SUBSETS = 500  # random subsets of k samples that vote; if there are fewer subsets, all of them
MANY = 20  # from this many questions on, more than half do not fail by chance
_GONE = {*("connection", "auth", "redirect", "breaker_open", "budget"), *("http_502", "http_503", "http_504")}
"""Causes of calls that fail because a model or a judge is unreachable; other causes may be due to a text."""


@dataclass(frozen=True)
class Stopping:
    """When a question has been asked enough: after so many samples, or the first correct one.

    >>> Stopping(samples=20).rounds
    [range(0, 4), range(4, 8), range(8, 16), range(16, 20)]
    """

    samples: int = 256
    first_correct: bool = True

    @cached_property
    def rounds(self) -> Sequence[range]:
        """The sample numbers of each round, which are asked together: four, four, eight, sixteen, …

        Small first rounds save samples on easy questions, but every round reads the prompt again.  If a probe
        does not stop at a correct answer, all rounds are large.
        """
        first, rounds = 0, []
        while first < self.samples:
            size = min(max(4, first), LARGEST_ROUND) if self.first_correct else LARGEST_ROUND
            rounds.append(range(first, min(self.samples, first + size)))
            first += size
        return rounds

    def after(self, samples: Sequence[ProbeSample]) -> bool:
        """Whether a question with these samples is asked no further."""
        right = any(sample.label == "correct" for sample in samples)
        return len(samples) >= self.samples or (self.first_correct and right)


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
    """All settings of `factrl probe`."""

    sampling: ProbeSampling = ProbeSampling()  # pyright: ignore[reportIncompatibleVariableOverride]
    probe: ProbeSettings = ProbeSettings()

    @property
    def stopping(self) -> Stopping:
        return Stopping(self.sampling.num_samples, self.probe.first_correct)


@dataclass(frozen=True, slots=True)
class ProbeSample:
    """One answer to a question; without a `label` it could not be graded, and `cause` says why.

    Attributes:
        text: what the model wrote; None when it could not be asked.
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


@dataclass
class Probed:
    """A question, as far as it has been asked, and what its samples say of it.

    Attributes:
        max_ungraded: share of the samples that may lack a grade; with more, and no correct one, it has no
            label.
        anew: an earlier probe left it without a label, so it is asked again from the start.
    """

    example: Example
    samples: list[ProbeSample]
    stopping: Stopping
    max_ungraded: float = 0.1
    anew: bool = field(default=False, compare=False)

    @property
    def closed(self) -> bool:
        """Whether the question is asked no further."""
        return self.stopping.after(self.samples)

    @property
    def cause(self) -> str | None:
        """The most frequent cause of its samples without a grade, if it has no label; else None."""
        causes = Counter(sample.cause or "" for sample in self.samples if sample.label is None)
        if self._right or causes.total() <= self.max_ungraded * len(self.samples):
            return None
        return causes.most_common(1)[0][0]

    @property
    def ook(self) -> bool | None:
        """No sample is correct; None when too few could be graded to say so."""
        return None if self.cause is not None else not self._right

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
        return self._right / self.graded if self.graded else None

    @property
    def _right(self) -> int:
        return sum(sample.label == "correct" for sample in self.samples)


def probe(
    examples: Sequence[Example],
    writer: Writer,
    grader: GradeAnswer,
    journal: Journal,
    *,
    stopping: Stopping,
    max_ungraded: float = 0.1,
    extract: Extract = "text",
    workers: int = 16,
    **sampling: Any,
) -> list[Probed]:
    """Ask and grade until every question has been asked enough.

    Args:
        examples: questions with accepted answers and ids of their own.
        writer: the model.
        grader: grades one answer; called from several threads.
        journal: what it holds is not asked again, also when there were fewer samples per question or fewer
            questions then.  Questions that were left without a label are asked anew.
        max_ungraded: as in `Probed`.
        extract, workers: as in `factrl.evals.shortqa.grade_completions`.
        sampling: temperature, top_p and seed.

    Raises:
        TooManyMasked: the model or the judge is unreachable; samples without a grade are not kept.
        RewardBug: the grader raised something other than `Unscored`.
    """
    probed = _with_stored_samples(
        [Probed(example, [], stopping, max_ungraded) for example in examples], journal
    )
    with Progress("probe", len(probed), already=sum(one.closed for one in probed)) as progress:
        for part, numbers in _batches(probed, stopping):
            batch = [one.example for one in part]
            groups = writer.write(batch, numbers, **sampling)
            pairs = [(example, text) for example, group in zip(batch, groups, strict=True) for text in group]
            graded = map(_sample, grade_completions(pairs, grader, extract, workers))
            samples = [list(itertools.islice(graded, len(group))) for group in groups]
            _check_reachable(part, samples)
            # One row per batch, written as a whole, so that a killed probe goes on with the same batches.
            rows = {
                digest_of(one.example): {"first": len(one.samples), "samples": [*map(asdict, group)]}
                for one, group in zip(part, samples, strict=True)
            }
            journal.add(f"row {len(journal)}", {"questions": rows})
            for one, group in zip(part, samples, strict=True):
                one.samples += group
            progress.advance(sum(one.closed for one in part))
    return probed


def _with_stored_samples(probed: list[Probed], journal: Journal) -> list[Probed]:
    """The questions with their samples from the journal; one without a label starts again."""
    stored: dict[str, dict[int, Sequence[Mapping[str, Any]]]] = {}
    for row in journal.values():
        for key, part in row.get("questions", {}).items():
            if part["first"] == 0:  # the question was started again: its earlier samples are void
                stored[key] = {}
            stored[key][part["first"]] = part["samples"]
    for one in probed:
        own_rows = stored.get(digest_of(one.example), {})
        while rows := own_rows.get(len(one.samples)):
            one.samples += [ProbeSample(**row) for row in rows]
        for numbers in one.stopping.rounds:
            if numbers.stop <= len(one.samples) and one.stopping.after(one.samples[: numbers.stop]):
                del one.samples[numbers.stop :]  # of a probe that asked for more
        if one.closed and one.ook is None:
            one.samples.clear()
            one.anew = True
    return probed


def _batches(probed: Sequence[Probed], stopping: Stopping) -> Iterator[tuple[Sequence[Probed], range]]:
    """Open questions with the numbers to ask, one round after the other.

    An earlier probe for fewer samples may have ended inside a round: its questions go on from there.
    """
    for numbers in stopping.rounds:
        members = [one for one in probed if not one.closed and len(one.samples) <= numbers[-1]]
        for first in sorted({len(one.samples) for one in members}):
            alike = [one for one in members if len(one.samples) == first]
            size = max(1, AT_ONCE // (numbers.stop - first))
            for start in range(0, len(alike), size):
                yield alike[start : start + size], range(first, numbers.stop)


def _sample(row: EvalSample) -> ProbeSample:
    text = row.completion
    if text is None:
        return ProbeSample(None, None, cause=row.cause)
    marks = getattr(text, "truncated", False), getattr(text, "tokens", None)
    return ProbeSample(str(text), row.label, row.answer, row.cause, *marks)


def _check_reachable(part: Sequence[Probed], samples: Sequence[Sequence[ProbeSample]]) -> None:
    """Stop if most new samples failed because the model or the judge is unreachable.

    Questions that failed before are not counted: they may fail on any server.

    Raises:
        TooManyMasked: most failed.
    """
    batches = [
        group
        for one, group in zip(part, samples, strict=True)
        if not (all(is_ours(sample.cause) for sample in one.samples) if one.samples else one.anew)
    ]
    causes = [sample.cause for group in batches for sample in group]
    failed = Counter(cause for cause in causes if cause and is_ours(cause))
    if failed.total() > len(causes) / 2 and (len(batches) >= MANY or failed.keys() <= _GONE):
        tally = ", ".join(f"{count} {cause}" for cause, count in failed.most_common())
        raise TooManyMasked(
            f"{failed.total()} of {len(causes)} answers could not be written or graded ({tally}); they are "
            "not kept, and the same command goes on from here"
        )


def summary(probed: Sequence[Probed], stopping: Stopping) -> dict[str, Any]:
    """The probe as plain data: questions by label, samples drawn and saved.

    `ook_share` is over the questions with a label, with its 95 % interval (Wilson).
    """
    counts = Counter(one.ook for one in probed)
    decided = counts[True] + counts[False]
    drawn, most = sum(len(one.samples) for one in probed), stopping.samples * len(probed)
    ungraded = Counter(sample.cause for one in probed for sample in one.samples if sample.cause)
    return {
        "questions": len(probed),
        "out_of_knowledge": counts[True],
        "known": counts[False],
        "undecided": dict(Counter(one.cause for one in probed if one.cause).most_common()),
        "ook_share": asdict(wilson(counts[True], decided)) if decided else None,
        "samples": drawn,
        "samples_of_a_full_probe": most,
        "saved": 1 - drawn / most if most else 0.0,
        "ungraded": dict(ungraded.most_common()),
    }


def write_probed(path: Path, rows: Sequence[Row], probed: Sequence[Probed]) -> None:
    """Write the rows of the questions, in the order of `probed`, for `factrl train` and `factrl tune`.

    Added to each row: `id`, where it has none; `ook`, null without a label; `pass_rate`; and `samples`, a
    list of tables with the fields of `ProbeSample`.  The file is whole or not there.

    Raises:
        ConfigError: the file cannot be written.
    """
    lines = []
    for row, one in zip(rows, probed, strict=True):
        named = {} if str(row.get("id")) == one.example.id else {"id": one.example.id}
        samples = [asdict(sample) for sample in one.samples]
        columns = {"ook": one.ook, "pass_rate": one.pass_rate, "samples": samples}
        lines.append(json.dumps({**row, **named, **columns}, default=str) + "\n")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(lines).encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


# -- The majority of k answers ------------------------------------------------------------------------


def majority_curve(probed: Sequence[Probed], *, seed: int = 0) -> list[dict[str, float]]:
    """Votes of 1, 2, 4, … and of all samples, expected over the choice of k samples of each question.

    TruthRL, arXiv:2509.25760, Figure 2, whose code is not released, so the vote is ours: see `candidates`.
    A tie is decided at random, so each of the leading candidates counts for an equal part.

    Samples without a grade do not vote: a question with fewer than k graded ones votes with all that it has.
    Questions without a label (`ook` None) are left out.

    Args:
        probed: questions that all got the same number of samples; where a probe stopped at the first correct
            answer, the samples are not a fair draw.

    Returns:
        `k`, `accuracy`, `abstention`, `hallucination` and `truthfulness` of each vote, in shares.
    """
    sizes = {len(probe.samples) for probe in probed}
    voters = [probe for probe in probed if probe.ook is not None and probe.graded]
    if len(sizes) != 1 or not voters:
        raise ValueError(f"a majority needs a full probe with graded answers, not {sorted(sizes)} samples")
    largest = sizes.pop()
    steps = [*itertools.takewhile(lambda k: k < largest, (2**i for i in itertools.count())), largest]
    rng = np.random.default_rng(seed)
    shares = np.zeros((len(steps), len(LABELS)))
    for probe in voters:
        labelled = [(s.label, s.answer) for s in probe.samples if s.label is not None]
        votes = np.array(candidates(labelled))
        worth = np.zeros((max(votes) + 1, len(LABELS)))  # per candidate: its samples by label
        for vote, (label, _) in zip(votes, labelled, strict=True):
            worth[vote, LABELS.index(label)] += 1
        worth /= worth.sum(axis=1, keepdims=True)
        for step, k in enumerate(steps):
            chosen = _subsets(len(votes), min(k, len(votes)), rng)
            shares[step] += _elected(votes[chosen], len(worth)) @ worth
    shares /= len(voters)
    names = ("accuracy", "abstention", "hallucination")
    curve = [dict(zip(names, row, strict=True)) for row in shares.tolist()]
    return [
        {"k": k, **vote, "truthfulness": vote["accuracy"] - vote["hallucination"]}
        for k, vote in zip(steps, curve, strict=True)
    ]


def _subsets(n: int, k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """`(subsets, k)` places among n: all subsets where they are few, which is exact, else random ones."""
    if math.comb(n, k) <= SUBSETS:
        return np.array([*itertools.combinations(range(n), k)])
    return rng.permuted(np.tile(np.arange(n), (SUBSETS, 1)), axis=1)[:, :k]


def _elected(votes: NDArray[np.int64], candidates: int) -> Floats:
    """The probability of each candidate to win, averaged over the rows of votes; a tie is shared."""
    rows = np.arange(len(votes))[:, None]
    counts = np.bincount((rows * candidates + votes).ravel(), minlength=len(votes) * candidates)
    counts = counts.reshape(len(votes), candidates)
    leads = counts == counts.max(axis=1, keepdims=True)
    return (leads / leads.sum(axis=1, keepdims=True)).mean(axis=0)
