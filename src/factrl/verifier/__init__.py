"""Checking texts: claims, the passages that bear on them, a worded verdict for each, and a score.

A `Verifier` is three parts, each a function or an object with one method: `extract(text, question, topic)`
gives claims, `search.search(query, k, topic=…)` gives passages, `judge.judge(pairs)` gives verdicts.  The
parts may be plain or `async def`; any of them can be the user's own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from factrl.errors import ConfigError
from factrl.llm.background import Call, wait_for
from factrl.llm.store import Store
from factrl.text.abstention import abstains
from factrl.types import Passage
from factrl.verifier.claims import Extractor
from factrl.verifier.judges import Judge
from factrl.verifier.search import Search
from factrl.verifier.search.given import Given

from .engine import Job, run
from .report import Check, Report

__all__ = ["Check", "Report", "Verifier"]

Evidence = Sequence[str | Passage]


class Verifier:
    """Checks texts: `verifier(text)` one, `verifier.batch(texts)` many at once.

    Args:
        extract: text -> claims.
        search: query -> passages; None when evidence comes with every text.
        judge: claims with passages -> verdicts.
        k: passages per claim.
        share: the texts of one question share what is found for the question and for the sentences of one of
            them, and of the others' sentences for those with a claim that nothing of it covers.
        max_claims: claims of one text that are judged; those after count as unknown, so that a flood of
            claims does not pay.
        max_chars: a longer text is not read at all but floored as `oversize`.
        deadline: seconds for a batch; what has no verdict then is unjudged.
        store: keeps verdicts; None keeps nothing.
        topic_in_query: search for the topic and the claim instead of the claim alone.

    Raises:
        ConfigError: a limit that cannot work.
    """

    def __init__(
        self,
        extract: Extractor,
        search: Search | None,
        judge: Judge,
        *,
        k: int = 5,
        share: bool = False,
        max_claims: int = 64,
        max_chars: int = 32_768,
        deadline: float = 240.0,
        store: Store | None = None,
        topic_in_query: bool = False,
    ) -> None:
        for name, value in (("k", k), ("max_claims", max_claims), ("max_chars", max_chars)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value!r}")
        if not 0 < deadline < float("inf"):
            raise ConfigError(f"deadline must be a positive number of seconds, not {deadline!r}")
        self.extract, self.search, self.judge = extract, search, judge
        self.k, self.share, self.topic_in_query = k, share, topic_in_query
        self.max_claims, self.max_chars, self.deadline = max_claims, max_chars, deadline
        self.store = store

    def __call__(
        self,
        text: str,
        question: str = "",
        *,
        topic: str = "",
        evidence: Evidence | None = None,
        watch: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Check one text; see `batch`."""
        return self.batch([text], [question], topics=[topic], evidence=[evidence], watch=watch)[0]

    def batch(
        self,
        texts: Sequence[str],
        questions: Sequence[str] | None = None,
        *,
        topics: Sequence[str] | None = None,
        evidence: Sequence[Evidence | None] | None = None,
        watch: Callable[[int, int], None] | None = None,
    ) -> list[Report]:
        """Check many texts at once, within one deadline.

        Args:
            texts: what is checked.
            questions: what each text answers; texts with the same question are one group.
            topics: titles that the search is confined to; empty for the whole index.
            evidence: passages for each text, instead of the verifier's own search; None searches.
            watch: called with (claims settled, claims found so far) from another thread.

        Returns:
            One report per text, in order.  A text that our side could not check has a `failure`.

        Raises:
            ConfigError: lists of different lengths, a text where a list belongs, or neither a search nor
                evidence.
            SetupError: something that the user must change, found by one of the parts.
        """
        count = len(texts)
        for name, given in (("questions", questions), ("topics", topics), ("evidence", evidence)):
            if given is not None and len(given) != count:
                raise ConfigError(f"{name} has {len(given)} entries for {count} texts")
        if not texts:
            return []
        search_for = lru_cache(None)(self._search_for)  # texts with the same evidence share one search
        for one in evidence or ():
            if isinstance(one, str):
                raise ConfigError(f"evidence is a list of texts, not one text: give [{one[:40]!r}…]")
        blank = [""] * count
        rows = zip(texts, questions or blank, topics or blank, evidence or [None] * count, strict=True)
        jobs = [
            Job(text, search_for(None if given is None else tuple(given)), question, topic)
            for text, question, topic, given in rows
        ]
        started = time.monotonic()
        wait_for(run(self, jobs, watch))
        return [self._report(job, time.monotonic() - started) for job in jobs]

    def answer_together(self, calls: Sequence[Call]) -> list[Report]:
        """Many calls of this verifier as one batch; rewards ask this way."""

        def one(text: str, question: str = "", *, topic: str = "", evidence: Evidence | None = None) -> Any:
            return text, question, topic, evidence

        texts, questions, topics, evidence = zip(*(one(*args, **named) for args, named in calls), strict=True)
        return self.batch(texts, questions, topics=topics, evidence=evidence)

    def _search_for(self, evidence: tuple[str | Passage, ...] | None) -> Search:
        if evidence is not None:
            return Given(evidence)
        if self.search is None:
            raise ConfigError("this verifier has no search; pass evidence=… with the text")
        return self.search

    def _report(self, job: Job, seconds: float) -> Report:
        return Report(
            text=job.text,
            question=job.question,
            checks=tuple(Check(item.claim, item.passages, item.verdict) for item in job.items),
            judge=self.judge.identity,
            weak=self.judge.weak,
            abstained=abstains(job.text, job.question or None),
            floored=job.floored,
            failure=job.failure,
            seconds=seconds,
        )
