"""KLCF's dataset from nothing but questions, a model, and an index of passages that are known to be true.

Paper     KLCF, arXiv:2509.23765, section 2.2.  Its code could not be had and its prompts are lost
Stage 1   the base model answers each question, after a few demonstrations        `factrl.prepare.sampling`
Stage 2   its answers are taken apart into claims                                 `factrl.verifier.claims`
Stage 3   each claim is held against passages that are searched for it            `factrl.verifier`
Stage 4   the checklist of a question is what its answers say and the passages support, without what says the
          same twice, and without what matters little                             `factrl.prepare.importance`
          supported and refuted claims are rows for a truthfulness model           `factrl.prepare.dataset`

The paper has Wikipedia20250716 with an embedding index, an unknown number of passages, and
Qwen2.5-72B-Instruct as judge; here they are the settings `[verifier]` and `[judge]`.  A reviewer understood
that it takes one sample per question, which is the default.

Nothing is filled in: a question with a sample that was not written, a claim without a verdict or a choice
that cannot be read is left out and counted.  Every sample, every check and every choice is in the journal
as soon as it exists.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from factrl.errors import Unscored
from factrl.llm.writers import Writer, Written, digest_of
from factrl.runs.data import render_prompt
from factrl.runs.journal import Journal
from factrl.runs.progress import Progress
from factrl.runs.settings import AskSettings
from factrl.types import Completion, Example
from factrl.verifier import Report, Verifier
from factrl.verifier.claims.marks import normalised

from .asking import Batch, Pace, write_each
from .importance import Importance
from .sampling import answer_part


@dataclass(frozen=True)
class Parts:
    """Who does the work.

    Attributes:
        writer: the base model.
        verifier: finds the claims and judges them.
        importance: chooses the items; None keeps all that differ.
        workers: questions that are checked at once; 1 where a model in this process judges.
        pace: how the writer is best asked.
    """

    writer: Writer
    verifier: Verifier
    importance: Importance | None = None
    workers: int = 1
    pace: Pace = field(default_factory=Pace)


@dataclass
class Prepared:
    """What became of one question.

    Attributes:
        claims: every claim of its answers, with verdict, span and sample.
        checklist: the items, each with the ids of the claims that say it.
        samples: its answers, of each the part that was checked.
        left_out: one word why it is not in the dataset; empty when it is.
        detail: the sentence behind it.
        judged: whether every claim has a verdict.
        choices: how many facts were kept, minor and duplicates.
    """

    example: Example
    claims: list[dict[str, Any]] = field(default_factory=list)
    checklist: list[tuple[str, list[str]]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    left_out: str = ""
    detail: str = ""
    judged: bool = False
    choices: Counter[str] = field(default_factory=Counter)


class Preparation:
    """The four stages over many questions.

    Args:
        parts: who does the work.
        settings: sampling, prompt and seed.
        journal: where every finished piece is kept; one that is there is not asked for again.
        template: the prompt template of demonstrations, for answers that go on with one.

    Attributes:
        asked, found: pieces of each kind that were paid for now, and that the journal had.
    """

    def __init__(self, parts: Parts, settings: AskSettings, journal: Journal, template: str = "") -> None:
        self.parts, self.settings, self.journal, self.template = parts, settings, journal, template
        self.asked: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._failed: dict[str, Unscored] = {}

    def run(self, examples: Sequence[Example]) -> list[Prepared]:
        """All stages for every question, in order.

        With several workers a question goes through all stages while others are still being answered.  A
        model in this process does one stage after the other, as it reads the same instructions faster again.

        Raises:
            SetupError: something that the user must change.
        """
        prepared = {example.id: Prepared(example) for example in examples}
        pool = ThreadPoolExecutor(self.parts.workers, thread_name_prefix="factrl-prepare")
        overlap = self.parts.workers > 1
        waiting: list[Future[None]] = []
        try:
            with Progress("sample", len(examples)) as progress:
                for example in self._sampled(examples):
                    if overlap:
                        waiting.append(pool.submit(self._finish, prepared[example.id]))
                    progress.advance()
            if not overlap:
                _each("check", [pool.submit(_done, self._check, one) for one in prepared.values()])
                waiting = [pool.submit(_done, self._choose, one) for one in prepared.values()]
            _each("prepare" if overlap else "choose", waiting)
        finally:
            pool.shutdown(cancel_futures=True)
        return [*prepared.values()]

    def _finish(self, prepared: Prepared) -> None:
        for stage in (self._check, self._choose):
            _done(stage, prepared)

    # Stage 1

    def _sampled(self, examples: Sequence[Example]) -> Iterator[Example]:
        """The questions in order, each once all its samples are in the journal or have failed."""
        numbers = range(self.settings.sampling.num_samples)
        batches = self.parts.pace.batches(examples, numbers)
        lacking = [lack for batch in batches for lack in self._lacking(batch)]
        self.found["samples"] = len(examples) * len(numbers) - sum(len(e) * len(n) for e, n in lacking)
        left = Counter(example.id for several, _ in lacking for example in several)
        whole = iter(examples)
        now = next(whole, None)
        written = write_each(self.parts.writer, lacking, self.settings, self.parts.pace, self._keep_sample)
        for several, _ in itertools.chain([((), ())], written):
            left.subtract(example.id for example in several)
            while now is not None and not left[now.id]:
                yield now
                now = next(whole, None)

    def _lacking(self, batch: Batch) -> list[Batch]:
        """What of a batch the journal lacks; examples that lack the same numbers stay together."""
        lacking: dict[tuple[int, ...], list[Example]] = {}
        for example in batch[0]:
            numbers = tuple(n for n in batch[1] if self._sample_key(example, n) not in self.journal)
            if numbers:
                lacking.setdefault(numbers, []).append(example)
        return [(examples, numbers) for numbers, examples in lacking.items()]

    def _keep_sample(self, example: Example, number: int, written: Written) -> None:
        key = self._sample_key(example, number)
        self._count(self.asked, "samples")
        if isinstance(written, Unscored):
            self._failed[key] = written
        else:
            self._keep(key, {"text": written, "truncated": written.truncated})

    def _sample_key(self, example: Example, number: int) -> str:
        prompt = digest_of(example.id, render_prompt(example, self.settings.data.prompt))
        return f"sample {example.id} {prompt} {number}"

    # Stages 2 and 3

    def _check(self, prepared: Prepared) -> None:
        """Claims with verdicts of all samples.

        Raises:
            Unscored: a sample was not written, or a claim has no verdict.
        """
        failed: Unscored | None = None
        example = prepared.example
        checked = digest_of(example.question, example.topic, example.evidence)
        for number in range(self.settings.sampling.num_samples):
            key = self._sample_key(example, number)
            if key in self._failed:
                failed = failed or self._failed[key]
                continue
            row = self.journal[key]
            text = answer_part(Completion(row["text"], truncated=row["truncated"]), self.template)
            named = {"group_id": example.id, "sample": number}
            prepared.samples.append({**named, "truncated": row["truncated"], "text": text})
            failed = self._check_sample(prepared, number, text, f"claims {key} {checked}") or failed
        if failed is not None:
            raise failed
        prepared.judged = True

    def _check_sample(self, prepared: Prepared, number: int, text: str, key: str) -> Unscored | None:
        """The claims of one answer, added to `prepared`; what is missing, when something is."""
        example, failure = prepared.example, None
        if key in self.journal:
            self._count(self.found, "checks")
            claims = self.journal[key]["claims"]
        else:
            self._count(self.asked, "checks")
            report = self.parts.verifier(
                text, example.question, topic=example.topic, evidence=example.evidence or None
            )
            claims, failure = _claims(report)
            if failure is None:
                self._keep(key, {"claims": claims})
        for place, claim in enumerate(claims):
            named = {"id": f"{example.id}/{number}/{place}", "group_id": example.id, "sample": number}
            prepared.claims.append({**named, "question": example.question, **claim})
        return failure

    # Stage 4

    def _choose(self, prepared: Prepared) -> None:
        """The checklist of a question.

        Raises:
            Unscored: the choice of the judge cannot be read, or there is nothing to choose from.
        """
        sources = _supported(prepared.claims)
        facts = list(sources)
        if not facts:
            raise Unscored("no_supported_claim", "the passages support nothing that the answers say")
        choices = self._choices(prepared.example, facts)
        prepared.choices = Counter(choice["word"] for choice in choices)
        kept = {n: (fact, [*sources[fact]]) for n, fact in enumerate(facts) if choices[n]["word"] == "keep"}
        for fact, choice in zip(facts, choices, strict=True):
            if choice["of"] is not None:
                kept[choice["of"]][1].extend(sources[fact])
        if not kept:
            raise Unscored("nothing_important", "no supported claim matters for an answer")
        prepared.checklist = list(kept.values())

    def _choices(self, example: Example, facts: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        if self.parts.importance is None:
            return [{"word": "keep", "of": None}] * len(facts)
        key = f"choice {example.id} {digest_of(example.question, *facts)}"
        if key not in self.journal:
            self._count(self.asked, "choices")
            choices = self.parts.importance.choose(example.question, facts)
            self._keep(key, {"choices": [asdict(choice) for choice in choices]})
        else:
            self._count(self.found, "choices")
        return self.journal[key]["choices"]

    # The journal

    def _keep(self, key: str, row: Mapping[str, Any]) -> None:
        with self._lock:
            self.journal.add(key, row)

    def _count(self, counter: Counter[str], what: str) -> None:
        with self._lock:
            counter[what] += 1


def _done(stage: Callable[[Prepared], None], prepared: Prepared) -> None:
    """One stage of a question, unless it was left out; where something is missing, it is, with the cause."""
    try:
        if not prepared.left_out:
            stage(prepared)
    except Unscored as error:
        prepared.left_out, prepared.detail = error.cause, error.detail


def _each(label: str, waiting: Sequence[Future[None]]) -> None:
    with Progress(label, len(waiting)) as progress:
        for future in waiting:
            future.result()
            progress.advance()


def _claims(report: Report) -> tuple[list[dict[str, Any]], Unscored | None]:
    """The claims of a report as rows, and why some of it is missing."""
    rows = list(_rows(report))
    if report.failure is not None:
        return rows, report.failure
    if report.floored:  # the model's own doing: a text that is too long to be read has no claims
        return rows, None
    missing = [row for row in rows if row["label"] == "unjudged"]
    if not missing:
        return rows, None
    causes = Counter(row["cause"] for row in missing)
    told = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
    return rows, Unscored(
        "claims_unjudged", f"{len(missing)} of {report.claims} claims have no verdict ({told})"
    )


def _rows(report: Report) -> Iterator[dict[str, Any]]:
    for check in report.checks:
        verdict = check.verdict
        place = verdict.quote[0] if verdict is not None and verdict.quote is not None else None
        passage = None if place is None else check.passages[place]
        yield {
            "claim": check.claim.text,
            "label": "skipped" if verdict is None else verdict.label,
            "p": None if verdict is None else verdict.p,
            "start": check.claim.start,
            "end": check.claim.end,
            "said": report.text[check.claim.start : check.claim.end],
            "quote": check.quote,
            "title": "" if passage is None else passage.title,
            "source": "" if passage is None else passage.source,
            "cause": check.claim.skip if verdict is None else verdict.cause,
        }


def _supported(claims: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Supported claims of one question that differ, each with the ids of those that say it.

    A claim that is supported in one answer and refuted in another is in neither.
    """
    refuted = {normalised(claim["claim"]) for claim in claims if claim["label"] == "refuted"}
    named: dict[str, str] = {}
    sources: dict[str, list[str]] = {}
    for claim in claims:
        words = normalised(claim["claim"])
        if claim["label"] == "supported" and words not in refuted:
            sources.setdefault(named.setdefault(words, claim["claim"]), []).append(claim["id"])
    return sources
