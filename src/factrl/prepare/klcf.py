"""KLCF's dataset from nothing but questions, a model, and an index of passages that are known to be true.

Paper     KLCF, arXiv:2509.23765, section 2.2.  Its code could not be had and its prompts are lost
Stage 1   the base model answers each question, after a few demonstrations        `factrl.prepare.asking`
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

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from factrl import __version__
from factrl.errors import ConfigError, Unscored
from factrl.llm import preflight
from factrl.llm.writers import Writer, Written, digest_of, open_writer
from factrl.rewards.resources import Supplier
from factrl.runs.data import render_prompt
from factrl.runs.disk import Journal
from factrl.runs.progress import Progress
from factrl.runs.settings import LOCAL, AskSettings, VerifierSettings
from factrl.train.plan import open_judge
from factrl.types import Completion, Example
from factrl.verifier import Report, Verifier
from factrl.verifier.claims import normalised
from factrl.verifier.search.index import NAME as MANIFEST

from .asking import answer_part, write_each
from .importance import Importance

WORKERS = 16  # questions that are checked at once by a server; each of them keeps several calls in flight


@dataclass(frozen=True)
class Parts:
    """Who does the work.

    Attributes:
        writer: the base model.
        verifier: finds the claims and judges them.
        importance: chooses the items; None keeps all that differ.
        workers: questions that are checked at once; 1 where a model in this process judges.
    """

    writer: Writer
    verifier: Verifier
    importance: Importance | None = None
    workers: int = 1


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
        """All stages for every question, one stage after the other, in order.

        Raises:
            SetupError: something that the user must change.
        """
        prepared = [Prepared(example) for example in examples]
        self._sample(examples)
        pool = ThreadPoolExecutor(self.parts.workers, thread_name_prefix="factrl-prepare")
        try:
            for label, stage in (("check", self._check), ("choose", self._choose)):
                waiting = [pool.submit(_done, stage, one) for one in prepared]
                with Progress(label, len(waiting)) as progress:
                    for future in waiting:
                        future.result()
                        progress.advance()
        finally:
            pool.shutdown(cancel_futures=True)
        return prepared

    # Stage 1

    def _sample(self, examples: Sequence[Example]) -> None:
        """Have the samples written that the journal lacks."""
        numbers = range(self.settings.sampling.num_samples)
        lacking: dict[tuple[int, ...], list[Example]] = {}
        for example in examples:
            missing = tuple(n for n in numbers if self._sample_key(example, n) not in self.journal)
            lacking.setdefault(missing, []).append(example)
        asked = sum(len(missing) * len(several) for missing, several in lacking.items())
        self.found["samples"] = len(examples) * len(numbers) - asked
        with Progress("sample", asked) as progress:

            def keep(example: Example, number: int, written: Written) -> None:
                self._keep_sample(example, number, written)
                progress.advance()

            for missing, several in lacking.items():
                if missing:
                    write_each(self.parts.writer, several, missing, self.settings, keep)

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


# What it works with


def open_parts(settings: AskSettings, examples: Sequence[Example]) -> Parts:
    """The writer, the verifier and the judge that the settings name; a server is asked one tiny question.

    Raises:
        SetupError: what the user must change.
    """
    told = settings.verifier
    bare = [] if told.docs or told.index or told.web else [e for e in examples if not e.evidence]
    if bare:
        raise ConfigError(
            f"{len(bare)} of {len(examples)} questions come without evidence, and nothing says where to "
            "search: verifier.index=FOLDER (made by factrl index), verifier.docs=FILE or verifier.web=URL"
        )
    judge = open_judge(settings.judge)
    served = judge is not None and settings.judge.url != LOCAL
    if judge is not None and served:
        preflight(judge)
    supplier = Supplier(judge, settings.judge, settings.verifier)
    verifier = supplier.verify()
    return Parts(
        open_writer(settings),
        verifier,
        None if judge is None else Importance(judge, verifier.store),
        min(WORKERS, settings.judge.max_concurrency) if served else 1,
    )


def head_of(settings: AskSettings, parts: Parts) -> dict[str, Any]:
    """What decides every row: the head of the journal."""
    verifier, sampling = parts.verifier, settings.sampling
    extract = getattr(verifier.extract, "identity", None) or type(verifier.extract).__name__
    return {
        "job": "prepare klcf",
        "model": parts.writer.identity,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": settings.run.seed,
        "prompt": settings.data.prompt,
        "extractor": extract,
        "judge": verifier.judge.identity,
        "weak": verifier.judge.weak,
        "evidence": evidence_of(settings.verifier),
        "passages": verifier.k,
        "max_claims": verifier.max_claims,
        "importance": None if parts.importance is None else parts.importance.identity,
    }


def about_of(settings: AskSettings, head: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What `about.json` says beside the counts."""
    told = settings.verifier.model_dump(mode="json", exclude_none=True)
    samples = settings.sampling.num_samples
    return {"factrl": __version__, **head, "num_samples": samples, "verifier": told, **more}


def evidence_of(told: VerifierSettings) -> dict[str, Any]:
    """A fingerprint of what claims are held against; which folder or file it is does not matter."""
    if told.index is not None:
        return {"index": _sha256(Path(told.index).expanduser() / MANIFEST)}
    if told.docs:
        return {"docs": [_sha256(Path(name).expanduser()) for name in told.docs]}
    return {"web": told.web} if told.web else {"of": "the questions"}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
