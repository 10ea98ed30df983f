"""KLCF's dataset from nothing but questions, a model, and an index of passages that are known to be true.

Paper     KLCF, arXiv:2509.23765, section 2.2.  Its code could not be had and its prompts are lost: those here
          are ours, and what it samples with are settings
Stage 1   the base model answers each question, after a few demonstrations
Stage 2   its answers are taken apart into claims                                 `factrl.verifier.claims`
Stage 3   each claim is held against passages that are searched for it            `factrl.verifier`
Stage 4   the checklist of a question is what its answers say and the passages support, without what says the
          same twice, and without what matters little: a language model filters it
          supported and refuted claims are rows for a truthfulness model           `factrl.prepare.dataset`

The paper has Wikipedia20250716 with an embedding index, an unknown number of passages, and
Qwen2.5-72B-Instruct as judge; here they are the settings `[verifier]` and `[judge]`.  A reviewer understood
that it takes one sample per question, which is the default.

Nothing is filled in: a question with a sample that was not written, a claim without a verdict or a choice
that cannot be read is left out and counted.  Every sample, every check and every choice is in the journal
as soon as it exists.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from factrl import __version__
from factrl.errors import Unscored
from factrl.job import Job
from factrl.llm import LLM, preflight
from factrl.llm.store import kept
from factrl.llm.writers import Writer, Written, digest_of
from factrl.runs.data import render_prompt
from factrl.runs.disk import Journal
from factrl.runs.progress import Progress
from factrl.runs.settings import AskSettings, VerifierSettings
from factrl.train.answering import open_writer
from factrl.types import Completion, Example
from factrl.verifier import Report, Verifier
from factrl.verifier.claims import normalised
from factrl.verifier.search.index import NAME as MANIFEST

from . import CALLERS, answer_part, write_each
from .dataset import Prepared, choose, importance_of


@dataclass
class Preparation:
    """The four stages over many questions.

    Args:
        writer: the base model.
        verifier: finds the claims and judges them.
        chooser: the model that chooses the items; None keeps all that differ.
        workers: questions that are checked at once; 1 where a model in this process judges.
        settings: sampling, prompt and seed.
        template: the prompt template of demonstrations, for answers that go on with one.

    Attributes:
        requests: samples, checks and choices that were made now; the journal had the others.
    """

    writer: Writer
    verifier: Verifier
    chooser: LLM | None
    workers: int
    settings: AskSettings
    template: str = ""
    requests: Counter[str] = field(default_factory=Counter)

    def head(self) -> dict[str, Any]:
        """What decides every row: the head of the journal."""
        verifier, sampling = self.verifier, self.settings.sampling
        return {
            "job": "prepare klcf",
            "model": self.writer.identity,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": self.settings.run.seed,
            "prompt": self.settings.data.prompt,
            "extractor": getattr(verifier.extract, "identity", None) or type(verifier.extract).__name__,
            "judge": verifier.judge.identity,
            "weak": verifier.judge.weak,
            "evidence": _evidence_of(self.settings.verifier),
            "passages": verifier.k,
            "max_claims": verifier.max_claims,
            "importance": self.chooser and importance_of(self.chooser),
        }

    def about(self, **more: Any) -> dict[str, Any]:
        """What `about.json` says beside the counts."""
        verifier = self.settings.verifier.model_dump(mode="json", exclude_none=True)
        samples = self.settings.sampling.num_samples
        return {"factrl": __version__, **self.head(), "num_samples": samples, "verifier": verifier, **more}

    def run(self, examples: Sequence[Example], journal: Journal) -> list[Prepared]:
        """All stages for every question, one stage after the other, in order.

        Args:
            journal: where every finished piece is kept; one that is there is not asked for again.

        Raises:
            SetupError: something that the user must change.
        """
        self._journal, self._lock = journal, threading.Lock()
        prepared = [Prepared(example) for example in examples]
        self._sample(examples)
        with ThreadPoolExecutor(self.workers, thread_name_prefix="factrl-prepare") as pool:
            for label, stage in (("check", self._check), ("choose", self._choose)):
                with Progress(label, len(prepared)) as progress:
                    # An error cancels what is left.
                    list(progress.over(pool.map(partial(_done, stage), prepared)))
        return prepared

    # Stage 1

    def _sample(self, examples: Sequence[Example]) -> None:
        """Have the samples written that the journal lacks."""
        self._failed: dict[str, Unscored] = {}
        numbers = range(self.settings.sampling.num_samples)
        lacking: dict[tuple[int, ...], list[Example]] = {}
        for example in examples:
            missing = tuple(n for n in numbers if self._sample_key(example, n) not in self._journal)
            lacking.setdefault(missing, []).append(example)
        with Progress("sample", sum(len(n) * len(several) for n, several in lacking.items())) as progress:

            def keep(example: Example, number: int, text: Written) -> None:
                key = self._sample_key(example, number)
                self.requests["samples"] += 1
                if isinstance(text, Unscored):
                    self._failed[key] = text
                else:
                    self._journal.add(key, {"text": text, "truncated": text.truncated})
                progress.advance()

            for missing, several in lacking.items():
                if missing:
                    write_each(self.writer, several, missing, self.settings, keep)

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
            row = self._journal[key]
            text = answer_part(Completion(row["text"], truncated=row["truncated"]), self.template)
            named = {"group_id": example.id, "sample": number}
            prepared.samples.append({**named, "truncated": row["truncated"], "text": text})

            def check(text: str = text) -> tuple[list[dict[str, Any]], Unscored | None]:
                evidence = example.evidence or None
                return _claims(self.verifier(text, example.question, topic=example.topic, evidence=evidence))

            claims, failure = self._once("checks", f"claims {key} {checked}", "claims", check)
            failed = failure or failed
            for place, claim in enumerate(claims):
                columns = {"id": f"{example.id}/{number}/{place}", **named, "question": example.question}
                prepared.claims.append({**columns, **claim})
        if failed is not None:
            raise failed
        prepared.judged = True

    def _once(
        self, kind: str, key: str, column: str, make: Callable[[], tuple[list[Any], Unscored | None]]
    ) -> tuple[list[Any], Unscored | None]:
        """What the journal has under a key, or what is made now; it is kept unless something is missing."""
        with self._lock:
            if key in self._journal:
                return self._journal[key][column], None
            self.requests[kind] += 1
        made, failure = make()
        if failure is None:
            with self._lock:
                self._journal.add(key, {column: made})
        return made, failure

    # Stage 4

    def _choose(self, prepared: Prepared) -> None:
        """The checklist of a question.

        Raises:
            Unscored: the choice of the judge cannot be read, or there is nothing to choose from.
        """
        sources, question = _supported(prepared.claims), prepared.example.question
        facts, chooser = list(sources), self.chooser
        if not facts:
            raise Unscored("no_supported_claim", "the passages support nothing that the answers say")
        choices: Sequence[Mapping[str, Any]] = [{"word": "keep", "of": None}] * len(facts)
        if chooser is not None:
            key = f"choice {prepared.example.id} {digest_of(question, *facts)}"
            choices, _ = self._once(
                "choices", key, "choices", lambda: (choose(chooser, question, facts), None)
            )
        prepared.choices = Counter(choice["word"] for choice in choices)
        kept = {n: (fact, [*sources[fact]]) for n, fact in enumerate(facts) if choices[n]["word"] == "keep"}
        for fact, choice in zip(facts, choices, strict=True):
            if choice["of"] is not None:
                kept[choice["of"]][1].extend(sources[fact])
        if not kept:
            raise Unscored("nothing_important", "no supported claim matters for an answer")
        prepared.checklist = list(kept.values())


def _done(stage: Callable[[Prepared], None], prepared: Prepared) -> None:
    """One stage of a question, unless it was left out; where something is missing, it is, with the cause."""
    try:
        if not prepared.left_out:
            stage(prepared)
    except Unscored as error:
        prepared.left_out, prepared.detail = error.cause, error.detail


def _claims(report: Report) -> tuple[list[dict[str, Any]], Unscored | None]:
    """The claims of a report as rows, and why some of it is missing."""
    rows = list(_rows(report))
    missing = [row for row in rows if row["label"] == "unjudged"]
    # A text that is too long to be read has no claims, by the model's own doing.
    if report.failure is not None or report.floored or not missing:
        return rows, report.failure
    causes = Counter(row["cause"] for row in missing)
    counted = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
    return rows, Unscored(
        "claims_unjudged", f"{len(missing)} of {report.claims} claims have no verdict ({counted})"
    )


def _rows(report: Report) -> Iterator[dict[str, Any]]:
    for check in report.checks:
        verdict = check.verdict
        passage = None if verdict is None or verdict.quote is None else check.passages[verdict.quote[0]]
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


def open_preparation(settings: AskSettings, examples: Sequence[Example], template: str) -> Preparation:
    """The writer, the verifier and the judge that the settings name; a server is asked one tiny question.

    Args:
        template: as of `Preparation`.

    Raises:
        SetupError: what the user must change.
    """
    job = Job(settings)
    job.check_evidence(examples)
    judge, workers = job.judge, 1
    if judge is not None:
        preflight(judge)
        workers = min(CALLERS, settings.judge.callers)
    verifier = job.supplier.verify()
    chooser = None if judge is None else kept(judge, verifier.store)
    return Preparation(open_writer(settings), verifier, chooser, workers, settings, template)


def _evidence_of(config: VerifierSettings) -> dict[str, Any]:
    """A fingerprint of what claims are held against; which folder or file it is does not matter."""
    if config.index is not None:
        return {"index": _sha256(Path(config.index).expanduser() / MANIFEST)}
    if config.docs:
        return {"docs": [_sha256(Path(name).expanduser()) for name in config.docs]}
    return {"web": config.web} if config.web else {"of": "the questions"}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
