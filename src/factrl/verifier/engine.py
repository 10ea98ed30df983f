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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from factrl.errors import PolicyFault, Unscored
from factrl.llm.background import on_thread
from factrl.llm.judging import LENGTH, judged, may_be_own
from factrl.llm.store import Store, digest
from factrl.text import clean
from factrl.text.abstention import abstains
from factrl.text.sentences import sentences
from factrl.types import Claim, Passage, Verdict
from factrl.verifier.claims import normalised
from factrl.verifier.pieces import Found, Piece, found_in, ranked, stems
from factrl.verifier.report import UNLIKELY, VERBATIM
from factrl.verifier.search import Given, Search
from factrl.verifier.subjects import ELSE, Context, contexts, heads, may_be_same, other_subject, subject_of
from factrl.verifier.tokens import read
from factrl.verifier.values import contradicts, is_verbatim, other_value, rivals

if TYPE_CHECKING:
    from . import Verifier

AT_MOST = 0.49
"""The probability of a claim at most whose best piece may be about something else or has another value."""
ABOUT = 0.5
"""Share of a claim's words that a piece must have before it can refute the claim: silence refutes nothing."""
DISAGREE = "the documents disagree"
_FIELDS = tuple(one.name for one in fields(Verdict))
_SHOWN = 8  # pieces that a judge sees at most which sees them together
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
    doubts: tuple[str, ...] = ()  # of each passage: why it may not say the claim
    bears: tuple[
        bool, ...
    ] = ()  # of each passage: whether it has so many of the claim's words as to refute it
    against: int | None = None  # the passage that has the claim's words and another value
    perhaps: int | None = None  # one of another document that has most of them, and something else
    best: int = 0  # how many passages come first because they share most words with the claim
    documents: tuple[tuple[str, str], ...] = ()  # of each passage: which document it is from
    verdict: Verdict | None = None
    asked: dict[int, Verdict] = field(default_factory=dict)  # of judges that see one passage at a time

    @property
    def query(self) -> str:
        """The search query for its evidence."""
        return f"{self.context.words} {self.claim.text}".lstrip()

    @cached_property
    def words(self) -> str:
        """The claim in one spelling, as it is compared and judged."""
        return clean(self.claim.text)

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
            if verifier.accepted:
                claims = [_accepted(claim, verifier.accepted) for claim in claims]
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
            if self.verifier.own_subject and item.passages:
                self._choose(item)
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

    # -- Pieces: what a judge sees, and what words alone decide

    def _choose(self, item: Item) -> None:
        """Put the pieces that bear on a claim in place of its passages, and settle what is there verbatim."""
        found = [one for one in found_in(item.passages) if not one.pieces[0].asks]
        known = heads(found)
        best = ranked(item.words, found, item.context.words) or found
        if not best:  # blank, or of signs only: no evidence
            item.passages = ()
            return

        @cache
        def other(one: Found) -> str:
            return other_subject(item.words, item.context, one, known)

        @cache
        def doubt(one: Found) -> str:
            return other(one) or other_value(item.words, one.pieces, one.passage.title)

        def says(one: Found) -> bool:
            """Whether it says the claim word for word, or with its subject where the claim names that."""
            (piece, *more) = one.pieces
            said = is_verbatim(item.words, piece.text, subject_of(one))
            said = said or is_verbatim(piece.text, item.words, item.context.subject)
            # What stands before an item may take it back ("The following is wrong:"): the judge is asked.
            leans = piece.kind == "item" and piece.before
            return not more and not leans and said and not doubt(one) and not read(one.passage.title).denies

        def differs(claim: str, one: Found, check: Callable[[str, Piece, str], bool]) -> bool:
            return len(one.pieces) == 1 and check(claim, one.pieces[0], one.passage.title) and not other(one)

        near = best[: 3 * _SHOWN]
        verbatim = next(filter(says, near[:_SHOWN]), None)
        first = verbatim or best[0]
        same = [one for one in near if may_be_same(first, one)]
        others = [one for one in same if _document(one) != _document(first)]
        against = next((one for one in same if differs(item.words, one, contradicts)), None)
        against = against or next((one for one in others if differs(item.query, one, rivals)), None)
        wanted = stems(item.words)

        def bears(one: Found) -> bool:
            own = stems(one.passage.title) | stems(one.passage.text)
            return len(wanted & own) >= ABOUT * len(wanted)

        # What another document says of the same thing in other words is the judge's to tell.
        perhaps = next((one for one in others if bears(one) and doubt(one) not in ("", ELSE)), None)
        first_ones = [*dict.fromkeys(filter(None, (verbatim, *best[: self.alone or _SHOWN])))]
        shown = [*dict.fromkeys(filter(None, (*first_ones, against, perhaps)))]
        item.best = len(first_ones)
        item.passages = tuple(one.passage for one in shown)
        item.documents = tuple(map(_document, shown))
        item.doubts = tuple(map(doubt, shown))
        item.bears = tuple(map(bears, shown))
        item.against, item.perhaps = (None if one is None else shown.index(one) for one in (against, perhaps))
        if verbatim is not None:
            start = len(verbatim.passage.text) - len(verbatim.pieces[0].text)
            item.asked[0] = Verdict(
                "supported", VERBATIM, p=1.0, quote=(0, start, len(verbatim.passage.text))
            )
            if item.perhaps is None or item.against is not None or not self.alone:
                self._settle({item: _weighed(item, item.asked)})

    @property
    def alone(self) -> int:
        """How many pieces the judge is asked about, each alone; 0 where it is asked about all together."""
        return getattr(self.verifier.judge, "alone", 0) if self.verifier.own_subject else 0

    # -- Verdicts

    async def _judge(self, items: Sequence[Item]) -> None:
        # The key covers all that a verdict depends on; claims of the group with equal keys are judged once.
        waiting: dict[str, list[_Ask]] = {}
        for item in items:
            own = [n for n in range(len(item.passages)) if not item.doubts or item.doubts[n] != ELSE]
            together = own or range(len(item.passages))  # those of one subject
            numbers = [*range(len(item.passages))][: self.alone] if not item.asked else []
            if item.perhaps is not None and self.alone:
                numbers = [*dict.fromkeys([*numbers, item.perhaps])]
            for own in [(n,) for n in numbers] or [tuple(together)]:
                ask = _Ask(item, own, len(numbers) + len(item.asked) if self.alone else 0)
                evidence = [[passage.title, passage.text] for passage in ask.passages]
                claim = normalised(item.claim.text)
                about = {"kind": "verdict/1", "judge": self.identity, "claim": claim, "evidence": evidence}
                waiting.setdefault(digest(about), []).append(ask)
        known = {} if self.store is None else self.store.get_many(waiting)
        stored = {
            key: Verdict(**{**row, "quote": tuple(row["quote"]) if row["quote"] else None})
            for key, row in known.items()
        }
        self._answer({key: (waiting[key], verdict) for key, verdict in stored.items()})
        todo = [key for key in waiting if key not in known]
        # A judge in this process takes its calls one by one, in the order of the text: the first ones are
        # small, so that verdicts come soon, and later ones larger, as what their prompts have in common is
        # computed once.
        most = max(1, self.verifier.judge.per_call)
        size = min(self.alone + 1, most) if self.alone else most
        chunks: list[dict[str, list[_Ask]]] = []
        while todo:
            chunks.append({key: waiting[key] for key in todo[:size]})
            todo, size = todo[size:], min(2 * size, most)
        if self.alone:
            for chunk in chunks:
                await self._judge_chunk(chunk)
        else:
            await asyncio.gather(*map(self._judge_chunk, chunks))

    def _answer(self, answers: Mapping[str, tuple[Sequence[_Ask], Verdict]]) -> None:
        """Give every claim the verdict of its passages, once all that it waits for are there."""
        settled: dict[Item, Verdict] = {}
        for asks, verdict in answers.values():
            for item, numbers, of in asks:
                quote = verdict.quote and (numbers[verdict.quote[0]], *verdict.quote[1:])
                if not of:
                    own = replace(verdict, quote=quote)
                    settled[item] = _weighed(item, {numbers[0]: own}, together=True) if item.doubts else own
                    continue
                (number,) = numbers
                item.asked[number] = replace(verdict, quote=quote)
                if len(item.asked) == of:
                    settled[item] = _weighed(item, item.asked)
        self._settle(settled)

    async def _judge_chunk(self, chunk: Mapping[str, Sequence[_Ask]]) -> None:
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
            kept = {
                key: {name: getattr(verdict, name) for name in _FIELDS}
                for key, verdict in by_key.items()
                if verdict.label != "unjudged"
            }
            await self.store.aput_many(kept)
        for key, pair in zip(chunk, pairs, strict=True):
            if by_key[key].label == "unjudged" and may_be_own(by_key[key].cause, by_key[key].facts):
                by_key[key] = await self._judge_again(*pair, by_key[key])
                if by_key[key].label == "unjudged":  # our side fails, and would for the other claims too
                    break
        self._answer({key: (chunk[key], verdict) for key, verdict in by_key.items()})

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


class _Ask(NamedTuple):
    """What a judge is asked about a claim: some of its passages by number, one of `of` such questions."""

    item: Item
    numbers: tuple[int, ...]
    of: int  # 0: the only one, with all passages

    @property
    def claim(self) -> Claim:
        return replace(self.item.claim, text=self.item.words)

    @property
    def passages(self) -> tuple[Passage, ...]:
        return tuple(self.item.passages[number] for number in self.numbers)


_ORDER = ("unknown", "refuted", "unjudged", "supported")


def _weighed(item: Item, verdicts: Mapping[int, Verdict], *, together: bool = False) -> Verdict:
    """The verdict of a claim, of those that its passages have given: that of the one that supports it most.

    A passage that may be about something else, or that has another value in the same place, supports a claim
    at most with `AT_MOST`, and one that may be about something else refutes nothing.  Where one passage
    supports a claim and another one has its words with another value, the documents disagree.
    """
    weighed: dict[int, Verdict] = {}
    held_back = False
    for number, verdict in verdicts.items():
        place = verdict.quote[0] if verdict.quote else number
        why = item.doubts[place] if not together or verdict.quote else ""
        held_back |= why == ELSE and verdict.label == "supported"
        if why and verdict.label == "supported":
            verdict = replace(verdict, label="unknown", p=min(verdict.p or 1.0, AT_MOST), why=why)
        elif verdict.label == "refuted" and (why == ELSE or not (together or item.bears[place])):
            verdict = replace(verdict, label="unknown", why=why)
        weighed[number] = verdict

    def rank(number: int) -> tuple[int, float]:
        verdict = weighed[number]
        unsure = verdict.label == "unknown" and verdict.p is not None and verdict.p >= UNLIKELY
        p = verdict.p if verdict.p is not None else -1.0
        capped = item.doubts[number] == ELSE or (item.doubts[number] and verdict.p != AT_MOST)
        label = "unjudged" if unsure and not capped else verdict.label
        return _ORDER.index(label), -number if verdict.label == "refuted" else p

    # What was asked only because it may speak against another document decides nothing alone.
    own = [number for number in weighed if number != item.perhaps or number < item.best]
    best = max(own or weighed, key=rank)
    verdict = weighed[best]
    if verdict.label == "refuted" and item.context.subject and held_back:
        # Whom it is about stands in another sentence, and of somebody else it is true.
        return replace(verdict, label="unknown", p=AT_MOST, why=ELSE)
    place = verdict.quote[0] if together and verdict.quote else best
    # A refutation counts against another document where it would be shown as one.
    refuting = [
        number
        for number, other in weighed.items()
        if other.label == "refuted"
        and (other.p is None or other.p < UNLIKELY)
        and item.documents[number] != item.documents[place]
    ]
    against = item.against if item.against is not None or together else next(iter(refuting), None)
    if verdict.label == "supported" and against is not None:
        facts = {**verdict.facts, "against": [against, 0, len(item.passages[against].text)]}
        return replace(verdict, label="unknown", p=AT_MOST, why=DISAGREE, facts=facts)
    return verdict


def _document(one: Found) -> tuple[str, str]:
    return one.title, one.passage.source


def _repeats_kept(claims: Iterable[Claim], before: Iterable[Context]) -> list[Claim]:
    """The claims, where equal words are a `repeat` only if they cannot be about another subject."""
    seen: set[tuple[str, str]] = set()
    kept: list[Claim] = []
    for claim, context in zip(claims, before, strict=True):
        key = normalised(claim.text), context.words
        kept.append(replace(claim, skip=None) if claim.skip == "repeat" and key not in seen else claim)
        seen.add(key)
    return kept


def _accepted(claim: Claim, known: Collection[str]) -> Claim:
    """The claim, to be skipped if it would count and a person has accepted its words."""
    counts = claim.skip in (None, "unverifiable") and normalised(claim.text) in known
    return replace(claim, skip="accepted") if counts else claim


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
