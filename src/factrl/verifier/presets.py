"""Verifiers by name: what a checked text needs, put together from files, folders, addresses and names.

`local` is ours and needs no server.  The others are the published systems' claims, evidence and judges with
their settings: FActScore (arXiv 2305.14251), VeriScore (arXiv 2406.19276), KnowRL's fact reward
(zjunlp/KnowRL f75b0bb) and FSPO's step check (nusnlp/FSPO 7f5e4f9).  Prompts are in words of ours, and a
title that is not in the index leaves the claims of that text unknown, where FActScore stops and KnowRL gives
the whole batch 0.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factrl.errors import NO_OWN_VERIFIER, ConfigError, MissingExtra, ModelError, Unscored, nearest
from factrl.llm import LLM, Reply, connect
from factrl.llm.store import CachedLLM, Store
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.claims.llm import LLMClaims, Style, read_facts
from factrl.verifier.judges import Judge, LLMJudge, LocalJudge, NLIJudge, WeakJudge
from factrl.verifier.search import Given, Index, Search, WebSearch

from . import Evidence, Report, Verifier

KNOWRL_NLI = "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"  # systems page of KnowRL: fact scorer, HEAD
FSPO_NLI = "vectara/hallucination_evaluation_model"  # nusnlp/FSPO, issue 6


_STYLES: Mapping[str, tuple[Style, dict[str, Any]]] = {
    "local": ("factscore", {}),
    "factscore": ("factscore", {"k": 5}),  # section 4.1: five passages of the title
    "veriscore": ("veriscore", {"k": 10}),  # ten search results, the command line's default
    "knowrl": ("knowrl", {"k": 5, "topic_in_query": True}),
}
"""Whose claims a preset asks a model for, and its settings; `fspo` asks none."""
_SERVER = "http://localhost:8000/v1#model"


def open_verifier(
    preset: str = "local",
    *,
    docs: Sequence[str | Path] = (),
    index: str | Path | Index | None = None,
    web: str | WebSearch | None = None,
    llm: LLM | None = None,
    judge: str | Judge | None = None,
    trust_remote_code: bool = False,
    controls: bool = False,
    k: int | None = None,
    max_claims: int | None = None,
    max_chars: int | None = None,
    store: Store | None = None,
) -> Verifier:
    """The verifier of a preset with its evidence.

    Args:
        preset: `local`, `factscore`, `veriscore`, `knowrl` or `fspo`.
        docs: files of evidence; `index` is a folder made by `factrl index`, `web` a Serper-compatible server.
            One of the three, or none where evidence comes with every text.
        llm: finds the claims and judges; the published presets need it where they ask one.
        judge: instead of the preset's own: a judge, or `local`, `weak`, `nli:NAME`, or `llm`, which is `llm`.
        trust_remote_code: run Python code that comes with a cross-encoder, which is HHEM's case: the preset
            `fspo` needs `judge="nli:vectara/hallucination_evaluation_model@COMMIT"` or a folder, and this.
        controls: every call carries a true and a false claim of ours, as `LLMJudge` says; only where the
            preset `local` asks a server.
        k: passages for a claim instead of the preset's number.
        max_claims, max_chars: limits of `Verifier`.
        store: keeps verdicts and claims.

    Raises:
        ConfigError: an unknown preset, no evidence or several kinds, a server that the preset lacks.
        SetupError: a file, an index, a model or a package that is not there.
    """
    presets = (*_STYLES, "fspo")
    if preset not in presets:
        raise ConfigError(
            f"unknown preset {preset!r}{nearest(preset, presets)} (there are: {', '.join(presets)})"
        )
    if controls and (preset != "local" or llm is None or judge is not None):
        raise ConfigError("controls are for a server that the preset local asks: give llm and no judge")
    search = _open_search(docs, index, web)
    settings = dict(_STYLES[preset][1]) if preset in _STYLES else {}
    if preset == "fspo" or (preset == "local" and llm is None):
        extract = SentenceClaims()
    elif llm is not None:
        asked = llm if store is None else CachedLLM(llm, store, accept=_readable)
        extract = LLMClaims(asked, style=_STYLES[preset][0])
    else:
        raise ConfigError(
            f"preset {preset!r} asks a model server, which the model `local` is not; name one with "
            f"--llm {_SERVER} (factrl verify) or judge.url={_SERVER}, or take the preset local"
        )
    limits = {"k": k, "max_claims": max_claims, "max_chars": max_chars}
    settings.update({name: value for name, value in limits.items() if value is not None})
    chosen = _judge(preset, judge, llm, controls, trust_remote_code)
    return Verifier(extract, search, chosen, store=store, **settings)


def _judge(preset: str, judge: str | Judge | None, llm: LLM | None, controls: bool, trusted: bool) -> Judge:
    """The judge that was named, else the preset's own."""
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
        thresholds = {"knowrl": NLIJudge.knowrl, "fspo": NLIJudge.fspo}.get(preset, NLIJudge)
        return open_judge(judge, trust_remote_code=trusted, thresholds=thresholds)
    if judge is not None:
        return judge
    if llm is not None:
        return LLMJudge(llm, style="factrl" if preset == "local" else style, controls=controls)
    try:
        return LocalJudge()
    except (MissingExtra, ModelError):  # it cannot run here, or cannot be had
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
    """Check one text: `fx.verify(text, docs=["curie.txt"])`.

    Args:
        text: what is checked.
        question: what it answers.
        topic: the title of the document that evidence may come from; empty for all.
        evidence: passages, instead of `docs`, `index` or `web`.
        llm: a model server like `http://localhost:8000/v1#model`, or any LLM.
        named: whatever else `open_verifier` takes.

    Raises:
        SetupError: as `open_verifier`.
    """
    model = connect(llm) if isinstance(llm, str) else llm
    return open_verifier(llm=model, **named)(text, question, topic=topic, evidence=evidence)


def open_judge(
    name: str, *, trust_remote_code: bool = False, thresholds: Callable[[Any], NLIJudge] = NLIJudge
) -> LocalJudge | NLIJudge | WeakJudge:
    """A judge by name: `local`, `weak`, or `nli:MODEL`.

    Args:
        trust_remote_code: as of `open_verifier`.
        thresholds: makes the judge of a cross-encoder.

    Raises:
        ConfigError: another name.
        SetupError: its model or a package is not there.
    """
    if name == "local":
        return LocalJudge()
    if name == "weak":
        return WeakJudge()
    kind, _, model = name.partition(":")
    if kind == "nli" and model:
        return thresholds(_cross_encoder(model, trust_remote_code))
    if kind == "own":
        raise ConfigError(
            f"{name!r}: {NO_OWN_VERIFIER}; use local, or nli:NAME with any cross-encoder's name"
        )
    raise ConfigError(
        f"unknown judge {name!r} (there are: local, weak, llm, nli:NAME with any cross-encoder's name)"
    )


def _readable(reply: Reply) -> bool:
    try:
        read_facts(reply.text)
    except Unscored:
        return False
    return True


def _cross_encoder(name: str, trusted: bool) -> Any:
    if not all(importlib.util.find_spec(package) for package in ("torch", "transformers")):
        raise MissingExtra("transformers", "train")
    from factrl.llm.local.nli import CrossEncoder

    return CrossEncoder(name, trust_remote_code=trusted)


def _open_search(
    docs: Sequence[str | Path], index: str | Path | Index | None, web: str | WebSearch | None
) -> Search | None:
    named = [name for name, value in (("docs", docs), ("index", index), ("web", web)) if value]
    if len(named) > 1:
        raise ConfigError(f"evidence comes from one place, not from {' and '.join(named)}")
    if docs:
        return Given.read(docs)
    if index is not None:
        return index if isinstance(index, Index) else Index.open(index)
    return WebSearch(web) if isinstance(web, str) else web
