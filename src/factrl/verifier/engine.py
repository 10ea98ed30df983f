"""Verifies a whole batch of texts at once, on the background event loop.

Every group of texts (the rollouts of one question) passes its three stages on its own: claims, then
evidence, then verdicts.  The stages of different groups overlap, so a server that takes many requests at a
time stays busy, and no group waits for the slowest text of another.  Within a group equal claims are judged
once, and evidence can be shared.  Claims are merged only when their normalised words and their evidence are
equal: near-duplicates often differ in the very number or name that matters.

The content of a request depends on the texts alone, never on timing, so that the same batch sends the same
requests again and a store can answer them.
"""

from __future__ import annotations

import asyncio
import inspect
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from factrl.errors import PolicyFault, Unscored
from factrl.llm.background import on_thread
from factrl.llm.judging import LENGTH, judged, may_be_own
from factrl.llm.store import Store, digest
from factrl.text.abstention import abstains
from factrl.text.sentences import sentences
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.claims import normalised
from factrl.verifier.judges.subjects import Context, contexts, own_passages
from factrl.verifier.search import Given, Search

if TYPE_CHECKING:
    from . import Verifier

SHORTER = (
    2_000  # characters of evidence in the second request, when a claim with all its evidence was too long
)
_Result = tuple[Passage, ...] | Unscored  # of one search
THREADS = 32  # for stages that are plain functions; a stage that waits for a network should be `async def`


@dataclass
class Job:
    """One text and what the stages found; the engine fills the fields from `items` on."""

    text: str
    search: Search
    question: str = ""
    topic: str = ""
    items: list[Item] = field(default_factory=list)
    extracted: bool = False
    floored: str | None = None
    failure: Unscored | None = None


@dataclass(eq=False)
class Item:
    """One claim of a text, what was found for it, and its verdict once it has one."""

    job: Job
    claim: Claim
    context: Context  # what comes before the claim in its text
    passages: tuple[Passage, ...] = ()
    verdict: Verdict | None = None

    @property
    def query(self) -> str:
        """The search query for its evidence."""
        return f"{self.context.subject} {self.claim.text}".lstrip()

    @property
    def is_open(self) -> bool:
        """Whether it is still to be judged."""
        return self.claim.skip is None and self.verdict is None


async def run(verifier: Verifier, jobs: Sequence[Job], watch: Callable[[int, int], None] | None) -> None:
    """Fill `jobs`; claims without a verdict at the verifier's deadline become unjudged.

    Any error of a stage other than `Unscored`, such as a bug or a `SetupError`, stops the other groups.
    """
    ends = asyncio.get_running_loop().time() + verifier.deadline
    counter, store = _Counter(watch), verifier.store
    ready = getattr(verifier.judge, "ready", None)
    if ready is not None and store is not None:
        try:
            await asyncio.wait_for(ready(), verifier.deadline)
        except (Unscored, asyncio.TimeoutError):  # the judge's model is unknown, and the store's keys need it
            store = None
    groups: dict[Any, list[Job]] = {}
    # A group has one question and one search; a text without a question is its own.
    for number, job in enumerate(jobs):
        key = (job.question, job.topic, id(job.search)) if job.question else number
        groups.setdefault(key, []).append(job)
    tasks = [
        asyncio.ensure_future(_Group(verifier, group, counter, store).run()) for group in groups.values()
    ]
    try:
        left = max(ends - asyncio.get_running_loop().time(), 0.0)
        done, _ = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    late = Unscored("deadline", f"not done within {verifier.deadline:.0f} s", stage="verify")
    for job in jobs:
        if not job.extracted and not job.failure and not job.floored:
            job.failure = late
        for item in job.items:
            if item.is_open:
                item.verdict = Verdict("unjudged", by=verifier.judge.identity, cause="deadline")


@dataclass
class _Counter:
    """Claims of the whole batch: those to judge, and those that are settled."""

    watch: Callable[[int, int], None] | None
    total: int = 0
    done: int = 0


class _Group:
    """The texts that answer one question."""

    def __init__(
        self, verifier: Verifier, jobs: Sequence[Job], counter: _Counter, store: Store | None
    ) -> None:
        self.verifier, self.jobs, self.counter, self.store = verifier, jobs, counter, store
        self.identity = verifier.judge.identity
        self._searches: dict[tuple[int, str], asyncio.Future[tuple[Passage, ...]]] = {}

    async def run(self) -> None:
        try:
            extracted = asyncio.gather(*map(self._extract, self.jobs))
            results, _ = await asyncio.gather(self._search_ahead(), extracted)
            items = [item for job in self.jobs for item in job.items if item.is_open]
            self.counter.total += len(items)
            pool = await self._pool(results, items) if self.verifier.share else None
            await asyncio.gather(*(self._search(item, pool) for item in items))
            await self._judge([item for item in items if item.is_open])
        finally:  # after the deadline no search may continue
            for search in self._searches.values():
                search.cancel()

    async def _extract(self, job: Job) -> None:
        verifier = self.verifier
        if len(job.text) > verifier.max_chars:
            job.floored = "oversize"
            return
        try:
            claims = await judged(
                lambda text: _call(verifier.extract, text, job.question, job.topic),
                job.text,
                about=(job.question, job.topic),
                judge=verifier.extract,
            )
        except PolicyFault as error:
            job.floored = error.cause
        except Unscored as error:
            job.failure = error
        else:
            if verifier.own_subject:
                before = contexts(claims, job.text, job.topic, job.question)
                claims = _repeats_kept(claims, before)
            else:
                before = [Context()] * len(claims)
            job.items = [Item(job, *one) for one in zip(claims, before, strict=True)]
            job.extracted = True
            for item in [item for item in job.items if item.is_open][verifier.max_claims :]:
                # The policy caused this, so the claim is not masked; it counts as unsupported.
                item.verdict = Verdict("unknown", by=self.identity, cause="over_limit")

    # -- Evidence: one search per claim, or one pool of passages per group.  The pool is searched with the
    # -- question and the sentences of the longest text (this need not wait for the claims), and then with the
    # -- sentences of claims that it does not cover yet.

    async def _search_ahead(self) -> list[_Result]:
        readable = [
            job for job in self.jobs if self.verifier.share and len(job.text) <= self.verifier.max_chars
        ]
        longest = max(readable, key=lambda job: len(job.text), default=None)
        if longest is None or abstains(longest.text, longest.question or None):
            return []
        parts = [longest.text[part.start : part.end] for part in sentences(longest.text)]
        queries = [query for query in (longest.question, *parts[: self.verifier.max_claims]) if query]
        return await self._search_all((longest, query) for query in queries)

    async def _pool(self, results: list[_Result], items: Iterable[Item]) -> Given | Unscored:
        """The passages that the group shares, or the error of a search if there are none because of it.

        A query that an engine refuses because of its words counts as one without results.
        """
        pool = _merged(results)
        parts = {id(job): sentences(job.text) for job in self.jobs}
        queries: dict[str, Job] = {}
        for item in items:
            claim, job = item.claim, item.job
            if not pool.covers(item.query):
                number = bisect_right(parts[id(job)], claim.start, key=lambda part: part.start) - 1
                part = parts[id(job)][number] if number >= 0 else claim
                queries.setdefault(job.text[part.start : part.end] or claim.text, job)
        results = [*results, *await self._search_all((job, query) for query, job in queries.items())]
        failures = [one for one in results if isinstance(one, Unscored) and not isinstance(one, PolicyFault)]
        pool = _merged(results)
        return failures[-1] if failures and not pool.passages else pool

    async def _search_all(self, queries: Iterable[tuple[Job, str]]) -> list[_Result]:
        return await asyncio.gather(*(self._passages_or_error(*one) for one in queries))

    async def _passages_or_error(self, job: Job, query: str) -> _Result:
        try:
            return await self._passages(job, query)
        except Unscored as error:
            return error

    async def _search(self, item: Item, pool: Given | Unscored | None) -> None:
        try:
            if isinstance(pool, Unscored):
                raise pool
            if pool is None:
                item.passages = await self._passages(item.job, item.query)
            else:  # a score of 0 means no word in common with the claim
                best = pool.search(item.query, self.verifier.k)
                item.passages = tuple(passage for passage in best if passage.score)
            if self.verifier.own_subject:
                item.passages = own_passages(item.claim.text, item.context, item.passages)
        except Unscored as error:  # a `PolicyFault` is not masked: the claim counts as unsupported
            facts = {**error.facts, "detail": error.detail}
            label = "unknown" if isinstance(error, PolicyFault) else "unjudged"
            self._settle({item: Verdict(label, by=self.identity, cause=error.cause, facts=facts)})
        else:
            if not item.passages:
                self._settle({item: Verdict("unknown", by=self.identity, cause="no_evidence")})

    async def _passages(self, job: Job, query: str) -> tuple[Passage, ...]:
        """Search results; equal queries of one group are sent once.

        Raises:
            PolicyFault: the engine works, but refuses these words.
        """
        before = f"{job.topic} " if self.verifier.topic_in_query and job.topic else ""
        key = (id(job.search), before + query)
        if key not in self._searches:

            def search(words: str) -> Any:
                return _call(job.search.search, before + words, self.verifier.k, topic=job.topic)

            own = query != job.question
            call = (
                judged(search, query, about=(job.topic, before), judge=job.search) if own else search(query)
            )
            self._searches[key] = asyncio.ensure_future(call)
        return tuple(await asyncio.shield(self._searches[key]))

    # -- Verdicts

    async def _judge(self, items: Sequence[Item]) -> None:
        # The key covers all that a verdict depends on; claims of the group with equal keys are judged once.
        waiting: dict[str, list[Item]] = {}
        for item in items:
            evidence = [[passage.title, passage.text] for passage in item.passages]
            claim = normalised(item.claim.text)
            about = {"kind": "verdict/1", "judge": self.identity, "claim": claim, "evidence": evidence}
            waiting.setdefault(digest(about), []).append(item)
        known = {} if self.store is None else self.store.get_many(waiting)
        stored = {
            key: Verdict(**{**row, "quote": tuple(row["quote"]) if row["quote"] else None})
            for key, row in known.items()
        }
        self._settle({item: verdict for key, verdict in stored.items() for item in waiting[key]})
        todo = [key for key in waiting if key not in known]
        size = max(1, self.verifier.judge.per_call)
        chunks = [todo[start : start + size] for start in range(0, len(todo), size)]
        await asyncio.gather(*(self._judge_chunk({key: waiting[key] for key in chunk}) for chunk in chunks))

    async def _judge_chunk(self, chunk: Mapping[str, Sequence[Item]]) -> None:
        judge = self.verifier.judge
        pairs = [(first.claim, first.passages) for first, *_ in chunk.values()]
        try:
            verdicts = await _call(judge.judge, pairs)
        except Unscored as error:
            failed = Verdict("unjudged", by=judge.identity, cause=error.cause, facts=dict(error.facts))
            verdicts = [failed] * len(pairs)
        if len(verdicts) != len(pairs):
            raise RuntimeError(
                f"judge {judge.identity!r} returned {len(verdicts)} verdicts for {len(pairs)} claims"
            )
        by_key = dict(zip(chunk, verdicts, strict=True))
        if self.store is not None:  # a failure is never kept
            kept = {key: asdict(verdict) for key, verdict in by_key.items() if verdict.label != "unjudged"}
            await self.store.aput_many(kept)
        for key, pair in zip(chunk, pairs, strict=True):
            if by_key[key].label == "unjudged" and may_be_own(by_key[key].cause, by_key[key].facts):
                by_key[key] = await self._judge_again(*pair, by_key[key])
                if by_key[key].label == "unjudged":  # our side fails, and would for the other claims too
                    break
        self._settle({item: verdict for key, verdict in by_key.items() for item in chunk[key]})

    async def _judge_again(self, claim: Claim, passages: Sequence[Passage], first: Verdict) -> Verdict:
        """Judge a claim without a verdict again, in a request of its own: it may be why the first one failed.

        If the request may have been too long, it has less evidence now.
        """
        judge = self.verifier.judge
        if first.cause in LENGTH:  # offsets in a shortened passage are valid in the whole one
            passages = [replace(passage, text=passage.text[:SHORTER]) for passage in passages[:1]]

        async def ask(text: str) -> Verdict:
            (verdict,) = await _call(judge.judge, [(replace(claim, text=text), passages)])
            if verdict.label == "unjudged":
                raise Unscored(verdict.cause or "unjudged", verdict.why, **verdict.facts)
            return verdict

        error = Unscored(first.cause or "unjudged", first.why, **first.facts)
        try:
            first_error = None if first.cause in LENGTH else error
            return await judged(ask, claim.text, first=first_error, about=tuple(passages), judge=judge)
        except PolicyFault as own:  # not masked: it counts as unsupported
            return Verdict("unknown", judge.identity, why=own.detail, cause=own.cause, facts=dict(own.facts))
        except Unscored:
            return first

    def _settle(self, verdicts: Mapping[Item, Verdict]) -> None:
        for item, verdict in verdicts.items():
            item.verdict = verdict
        counter = self.counter
        counter.done += len(verdicts)
        if verdicts and counter.watch is not None:
            counter.watch(counter.done, counter.total)


def _repeats_kept(claims: Iterable[Claim], before: Iterable[Context]) -> list[Claim]:
    """The claims, where equal words are a `repeat` only if they cannot be about another subject."""
    seen: set[tuple[str, tuple[int, str]]] = set()
    kept: list[Claim] = []
    for claim, context in zip(claims, before, strict=True):
        key = normalised(claim.text), context.named
        kept.append(replace(claim, skip=None) if claim.skip == "repeat" and key not in seen else claim)
        seen.add(key)
    return kept


def _merged(results: Iterable[_Result]) -> Given:
    """The passages of all results, each once; passages with the same words are one."""
    passages = (passage for one in results if not isinstance(one, Unscored) for passage in one)
    once = {" ".join(passage.text.split()): passage for passage in reversed([*passages])}
    return Given(passage for key, passage in reversed(once.items()) if key)


async def _call(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """`function`, awaited if it is a coroutine function, else on a worker thread of this process.

    A plain function may return a coroutine, as a `partial` of a coroutine function does; it is awaited here.
    """
    called = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(called):
        return await function(*args, **named)
    result = await on_thread("stage", THREADS, function, *args, **named)
    return await result if inspect.isawaitable(result) else result
