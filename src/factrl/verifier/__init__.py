"""Check texts: find their claims, search passages for each, judge each claim, and compute a score.

A `Verifier` is three parts, each a function or an object with one method: `extract(text, question, topic)`
gives claims, `search.search(query, k, topic=…)` gives passages, `judge.judge(pairs)` gives verdicts.  The
parts may be plain or `async def`; any of them can be the user's own.

`open_verifier` builds one from the name of a preset.  `local` is our own and needs no server.  The others
follow published systems in how they find claims and evidence, how they judge, and in their settings:
FActScore (arXiv 2305.14251), VeriScore (arXiv 2406.19276), KnowRL's fact reward (zjunlp/KnowRL f75b0bb) and
FSPO's step check (nusnlp/FSPO 7f5e4f9).  The wording of the prompts is ours.  If a title is not in the index,
the claims of that text are unknown; FActScore stops there, and KnowRL gives the whole batch 0.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from factrl.errors import NO_OWN_VERIFIER, ConfigError, MissingExtra, ModelError, nearest
from factrl.llm import LLM
from factrl.llm.background import Call, wait_for
from factrl.llm.store import CachedLLM, Store
from factrl.text import strip_end_tokens
from factrl.text.abstention import abstains
from factrl.types import Passage
from factrl.verifier.claims import Extractor, SentenceClaims, normalised
from factrl.verifier.claims.llm import LLMClaims, Style, read_facts
from factrl.verifier.judges import (
    Judge,
    LLMJudge,
    LocalJudge,
    NLIJudge,
    Table,
    TableJudge,
    WeakJudge,
)
from factrl.verifier.search import Dense, Given, Index, Search, WebSearch

from .engine import Job, run
from .report import Check, Report

__all__ = ["Check", "Report", "Verifier", "open_judge", "open_search", "open_verifier", "verify"]

Evidence = Sequence[str | Passage]


class Verifier:
    """Checks texts: `verifier(text)` one, `verifier.batch(texts)` many at once.

    Args:
        search: None when evidence comes with every text.
        k: passages that are searched per claim.
        share: the texts of one question share one pool of passages.  It is searched with the question, with
            every sentence of the longest text, and with those sentences of the other texts that have a claim
            which the pool does not cover yet.
        max_claims: at most this many claims of one text are judged; the rest count as unknown, so that a
            policy gains nothing by making very many claims.  `factrl verify` judges all.
        max_chars: a longer text is not read; it is floored as `oversize`.
        deadline: seconds for a batch; a claim without a verdict by then is unjudged.
        store: keeps verdicts.
        topic_in_query: search for the topic and the claim instead of the claim alone.
        own_subject: cut the evidence into pieces that stand alone (`verifier.pieces`), settle what stands
            there word for word without the judge, and let a piece about another subject, or with another
            value in the same place, leave a claim at most unsure.
        accepted: claims that a person has accepted; they are not judged and count for and against nothing.

    >>> from factrl.verifier.judges import WeakJudge
    >>> search = fx.Given(["Lima is in Peru. It has three rivers."])
    >>> verifier = Verifier(SentenceClaims(), search, WeakJudge())
    >>> verifier("Lima is in Peru. It has 4 rivers.").likelier["supported"]
    1
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
        own_subject: bool = True,
        accepted: Iterable[str] = (),
    ) -> None:
        for name, value in (("k", k), ("max_claims", max_claims), ("max_chars", max_chars)):
            if value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value!r}")
        if not 0 < deadline < float("inf"):
            raise ConfigError(f"deadline must be a positive number of seconds, not {deadline!r}")
        self.extract, self.search, self.judge = extract, search, judge
        self.k, self.share, self.topic_in_query = k, share, topic_in_query
        self.max_claims, self.max_chars, self.deadline = max_claims, max_chars, deadline
        self.store, self.own_subject = store, own_subject
        self.accepted = frozenset(map(normalised, accepted))

    def __call__(
        self,
        text: str,
        question: str = "",
        *,
        topic: str = "",
        evidence: Evidence | None = None,
        watch: Callable[[int, int], None] | None = None,
    ) -> Report:
        """Check one text, as `batch` does many."""
        return self.batch([text], [question], topics=[topic], evidence=[evidence], watch=watch)[0]

    def batch(
        self,
        texts: Sequence[str],
        questions: Sequence[str] | None = None,
        *,
        topics: Sequence[str] | None = None,
        evidence: Sequence[Evidence | None] | None = None,
        watch: Callable[[int, int], None] | None = None,
        seen: Callable[[int, Check], None] | None = None,
    ) -> list[Report]:
        """Check many texts at once, within one deadline.

        Args:
            texts: what is checked.
            questions: what each text answers; texts with the same question are one group.
            topics: titles that the search is confined to; empty for the whole index.
            evidence: passages for each text, instead of the verifier's own search; None searches.
            watch: called with (claims settled, claims found so far) from another thread.
            seen: called, from another thread, with the number of a text and one of its checks, in the order
                of texts and claims, as soon as this claim and all before it are settled.

        Returns:
            One report per text, in order.  It has a `failure` if the text could not be checked because of an
            error on our side.

        Raises:
            ConfigError: lists of different lengths, a text instead of a list, or neither search nor evidence.
        """
        count = len(texts)
        for name, given in (("questions", questions), ("topics", topics), ("evidence", evidence)):
            if given is not None and len(given) != count:
                raise ConfigError(f"{name} has {len(given)} entries for {count} texts")
        if not texts:
            return []
        given_once = lru_cache(None)(Given)  # texts with the same evidence share one search
        blank = [""] * count
        jobs = []
        rows = zip(texts, questions or blank, topics or blank, evidence or [None] * count, strict=True)
        for text, question, topic, given in rows:
            if isinstance(given, str):
                raise ConfigError(f"evidence is a list of texts, not one text: give [{given[:40]!r}…]")
            search = self.search if given is None else given_once(tuple(given))
            if search is None:
                raise ConfigError(
                    "this verifier has no search; pass evidence=… with the text, a column of evidence with "
                    "rows, or name where to search: verifier.docs, verifier.index or verifier.web"
                )
            jobs.append(Job(strip_end_tokens(text), search, question, topic))
        started = time.monotonic()
        settled = _in_order(jobs)

        def show() -> None:
            while seen is not None and (one := next(settled)) is not None:
                seen(*one)

        def told(done: int, total: int) -> None:
            if watch is not None:
                watch(done, total)
            show()

        wait_for(run(self, jobs, told))
        show()  # what had no verdict at the deadline, and what needs none
        return [self.report(job, time.monotonic() - started) for job in jobs]

    def answer_together(self, calls: Sequence[Call]) -> list[Report]:
        """Run many calls of this verifier as one batch; this is how rewards call it."""

        def one(text: str, question: str = "", *, topic: str = "", evidence: Evidence | None = None) -> Any:
            return text, question, topic, evidence

        texts, questions, topics, evidence = zip(*(one(*args, **named) for args, named in calls), strict=True)
        return self.batch(texts, questions, topics=topics, evidence=evidence)

    def report(self, job: Job, seconds: float) -> Report:
        """The report of a text, which may be unfinished: claims that are not judged yet are left out."""
        return Report(
            text=job.text,
            question=job.question,
            checks=tuple(
                Check(item.claim, item.passages, item.verdict) for item in job.items if not item.is_open
            ),
            judge=self.judge.identity,
            weak=self.judge.weak,
            abstained=not any(item.verdict for item in job.items)
            and abstains(job.text, job.question or None),
            floored=job.floored,
            failure=job.failure,
            seconds=seconds,
        )


def _in_order(jobs: Sequence[Job]) -> Iterator[tuple[int, Check] | None]:
    """The number of each text with each of its checks; None where the next one has no verdict yet."""
    for number, job in enumerate(jobs):
        while not (job.extracted or job.failure or job.floored):
            yield None
        for item in job.items:
            while item.is_open:
                yield None
            yield number, Check(item.claim, item.passages, item.verdict)
    while True:
        yield None


# -- Presets, judges and searches by name

KNOWRL_NLI = "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"  # zjunlp/KnowRL f75b0bb: its fact scorer
FSPO_NLI = "vectara/hallucination_evaluation_model"  # nusnlp/FSPO, issue 6
_THRESHOLDS: Mapping[str, dict[str, Any]] = {
    # zjunlp/KnowRL f75b0bb: entailed by any of the passages with at least 0.3.
    "knowrl": {"threshold_supported": 0.3, "threshold_refuted": None},
    # nusnlp/FSPO 7f5e4f9: an HHEM score over 0.5 is consistent, and any other is refuted.
    "fspo": {
        "threshold_supported": math.nextafter(0.5, 1.0),
        "threshold_refuted": None,
        "otherwise": "refuted",
    },
}
_AS_PUBLISHED = {"own_subject": False}
_STYLES: Mapping[str, tuple[Style, dict[str, Any]]] = {
    "local": ("factscore", {"k": 12}),  # passages, of whose pieces those that bear on a claim are judged
    "factscore": ("factscore", {"k": 5, **_AS_PUBLISHED}),  # section 4.1: five passages of the title
    "veriscore": ("veriscore", {"k": 10, **_AS_PUBLISHED}),  # ten search results, the command line's default
    "knowrl": ("knowrl", {"k": 5, "topic_in_query": True, **_AS_PUBLISHED}),
}
"""Preset -> the style in which a model is asked for claims, and settings of `Verifier`; `fspo` asks none."""
_SERVER = "http://localhost:8000/v1#model"


def open_verifier(
    preset: str = "local",
    *,
    docs: Sequence[str | Path] = (),
    index: str | Path | Index | None = None,
    web: str | WebSearch | None = None,
    embedder: str = "",
    llm: LLM | None = None,
    judge: str | Judge | None = None,
    trust_remote_code: bool = False,
    controls: bool = False,
    k: int | None = None,
    max_claims: int | None = None,
    max_chars: int | None = None,
    store: Store | None = None,
    accepted: Iterable[str] = (),
) -> Verifier:
    """A verifier by the name of a preset, with the evidence that it searches.

    Args:
        preset: `local`, `factscore`, `veriscore`, `knowrl` or `fspo`.
        docs: files of evidence; `index` is a folder made by `factrl index`, `web` a search
            engine, as `WebSearch` takes it.  Give one of the three, or none if every text brings evidence.
        embedder: a model of sentence-transformers that ranks the passages of `docs` or `index`.
        llm: finds the claims and judges them; the published presets that ask a model need it.
        judge: replaces the preset's own judge: a judge, `local`, `weak`, `table:FILE`, `nli:NAME`,
            a verifier of `factrl doctor` (`factcg`, or `factcg:FOLDER`), or `llm`,
            for the model given as `llm`.
        trust_remote_code: run Python code that comes with a cross-encoder.  HHEM has such code, so the preset
            `fspo` needs this and `judge="nli:vectara/hallucination_evaluation_model@COMMIT"` or a folder.
        controls: add a true and a false claim of ours to every call, as `LLMJudge` explains; only for the
            preset `local` with a server.
        k, max_claims, max_chars: limits of `Verifier`; None takes the preset's.
        store: keeps verdicts and claims.
        accepted: as of `Verifier`.

    Raises:
        SetupError: an unknown preset, several kinds of evidence, or something that is not there: a server
            that the preset asks, a file, an index, a model, a package.

    >>> verifier = open_verifier(judge="weak")
    >>> verifier("Lima is in Chile. It has 3 rivers.", evidence=["Lima is in Peru."]).claims
    2
    """
    presets = (*_STYLES, "fspo")
    if preset not in presets:
        raise ConfigError(
            f"unknown preset {preset!r}{nearest(preset, presets)} (there are: {', '.join(presets)})"
        )
    if controls and (preset != "local" or llm is None or judge is not None):
        raise ConfigError("controls are for a server that the preset local asks: give llm and no judge")
    search = open_search(docs, index, web, embedder)
    settings: dict[str, Any] = {**(_STYLES[preset][1] if preset in _STYLES else _AS_PUBLISHED)}
    if preset == "fspo" or (preset == "local" and llm is None):
        extract = SentenceClaims()
    elif llm is not None:
        extractor_llm = llm if store is None else CachedLLM(llm, store).accepting(read_facts)
        extract = LLMClaims(extractor_llm, style=_STYLES[preset][0])
    else:
        raise ConfigError(
            f"preset {preset!r} asks a model server, which the model `local` is not; name one with "
            f"--judge {_SERVER} (factrl verify) or judge.url={_SERVER}, or take the preset local"
        )
    limits = {"k": k, "max_claims": max_claims, "max_chars": max_chars}
    settings.update({name: value for name, value in limits.items() if value is not None})
    chosen = _judge(preset, judge, llm, controls, trust_remote_code)
    if isinstance(chosen, TableJudge):  # it splits texts itself, and has its own documents
        extract, search, settings["own_subject"] = chosen.extract, search or chosen, False
    return Verifier(extract, search, chosen, store=store, accepted=accepted, **settings)


def _judge(preset: str, judge: str | Judge | None, llm: LLM | None, controls: bool, trusted: bool) -> Judge:
    """The judge that the user named, or the preset's own."""
    style = "veriscore" if preset == "veriscore" else "factscore"
    if judge == "llm":
        if llm is None:
            raise ConfigError("judge=llm (verifier.judge) asks a model server; name one with judge.url")
        return LLMJudge(llm, style=style)
    if judge is None and preset == "knowrl":
        judge = f"nli:{KNOWRL_NLI}"
    if judge is None and preset == "fspo":
        raise ConfigError(
            f"the preset fspo judges with {FSPO_NLI}, which comes with Python code of its own: "
            f"read it, then give judge=nli:{FSPO_NLI}@COMMIT and trust_remote_code=true "
            "(verifier.judge and verifier.trust_remote_code in a recipe); or judge=local, or "
            "another nli:NAME"
        )
    if isinstance(judge, str):
        return open_judge(judge, trust_remote_code=trusted, **_THRESHOLDS.get(preset, {}))
    if judge is not None:
        return judge
    if llm is not None:
        return LLMJudge(llm, style="factrl" if preset == "local" else style, controls=controls)
    try:
        return LocalJudge()
    except (MissingExtra, ModelError):  # its packages are missing, or its model is
        return WeakJudge()


def verify(
    text: str,
    question: str = "",
    *,
    topic: str = "",
    evidence: Evidence | None = None,
    llm: str | LLM | None = None,
    **named: Any,
) -> Report:
    """Check one text.

    >>> report = fx.verify("Lima is in Chile.", evidence=["Lima is in Peru."], judge="weak")
    >>> report.claims, report.precision
    (1, 0.0)

    Args:
        question, topic, evidence: as of `Verifier.batch`.
        llm: a model server like `http://localhost:8000/v1#model`, or any LLM.
        named: the other arguments of `open_verifier`.

    Raises:
        ConfigError: several texts, or a name that `open_verifier` does not have.
        SetupError: as `open_verifier`.
    """
    if not isinstance(text, str):
        kind = type(text).__name__
        raise ConfigError(f"text is one text, not a {kind}; fx.open_verifier(…).batch(texts) checks several")
    known = inspect.signature(open_verifier).parameters
    for name in named.keys() - known:
        raise ConfigError(
            f"verify has no argument {name!r}{nearest(name, known)} (it has: {', '.join(known)})"
        )
    if isinstance(llm, str):
        from factrl.llm import connect  # imported late: most verifiers need no client

        llm = connect(llm)
    return open_verifier(llm=llm, **named)(text, question, topic=topic, evidence=evidence)


def open_judge(
    name: str, *, trust_remote_code: bool = False, **thresholds: Any
) -> LocalJudge | NLIJudge | TableJudge | WeakJudge:
    """A judge by name: `local`, `weak`, `table:FILE`, `nli:MODEL`, or one of `VERIFIERS`,
    also `NAME:FOLDER`.

    The thresholds are those of `NLIJudge`; the `VERIFIERS` cannot tell refuted from unknown.
    """
    if name == "local":
        return LocalJudge()
    if name == "weak":
        return WeakJudge()
    kind, _, model = name.partition(":")
    if kind == "table":
        return TableJudge(Table.read(model))
    from factrl.llm.local.classifiers import VERIFIERS, CrossEncoder

    named = VERIFIERS.get(kind)
    if named is not None or (kind == "nli" and model):
        if not all(importlib.util.find_spec(package) for package in ("torch", "transformers")):
            raise MissingExtra("transformers", "train")
        if named is None:
            return NLIJudge(CrossEncoder(model, trust_remote_code=trust_remote_code), **thresholds)
        own = CrossEncoder(model or named.address, trust_remote_code=trust_remote_code, named=named)
        return NLIJudge(own, **{"threshold_refuted": None, **thresholds})
    names = [*VERIFIERS]
    problem = (
        f"{name!r}: {NO_OWN_VERIFIER}" if kind == "own" else f"unknown judge {name!r}{nearest(kind, names)}"
    )
    there_are = f"local, weak, llm, table:FILE, nli:NAME with any cross-encoder's name, {', '.join(names)}"
    raise ConfigError(f"{problem} (there are: {there_are})")


def open_search(
    docs: Sequence[str | Path] = (),
    index: str | Path | Index | None = None,
    web: str | WebSearch | None = None,
    embedder: str = "",
) -> Search | None:
    """The search that these arguments of `open_verifier` name; None if they name none.

    Raises:
        SetupError: several places, or something that is not there.
    """
    named = [name for name, value in (("docs", docs), ("index", index), ("web", web)) if value]
    if len(named) > 1:
        raise ConfigError(f"evidence comes from one place, not from {' and '.join(named)}")
    if web is not None:
        return WebSearch(web) if isinstance(web, str) else web
    if docs:
        search: Given | Index | None = Given.read(docs)
    else:
        search = index if index is None or isinstance(index, Index) else Index.open(index)
    return search if search is None or not embedder else Dense(search, embedder)
