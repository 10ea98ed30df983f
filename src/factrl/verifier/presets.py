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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..cache import Store
from ..cached_llm import CachedLLM
from ..errors import NO_OWN_VERIFIER, ConfigError, MissingExtra, ModelError, Unscored, nearest
from ..extract import ClauseClaims, Extractor, LLMClaims, SentenceClaims
from ..extract.replies import read_facts
from ..judges import Judge, LLMJudge, LocalJudge, NLIJudge, WeakJudge
from ..llm import LLM, Reply, connect
from ..search import Given, Index, Search, WebSearch
from . import Evidence, Report, Verifier

KNOWRL_NLI = "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli"  # systems page of KnowRL: fact scorer, HEAD
FSPO_NLI = "vectara/hallucination_evaluation_model"  # nusnlp/FSPO, issue 6


@dataclass(frozen=True)
class _Asked:
    """What the user named."""

    search: Search | None
    llm: LLM | None
    judge: str | Judge | None
    store: Store | None
    controls: bool = False

    def server(self, preset: str) -> LLM:
        if self.llm is None:
            raise ConfigError(
                f"preset {preset!r} asks a model server, which the model `local` is not; name one with "
                f"--llm {_SERVER} (factrl verify) or judge.url={_SERVER}, or take the preset local"
            )
        return self.llm

    def claims(self, llm: LLM, style: Any) -> LLMClaims:
        """Claims by an LLM whose readable replies are kept."""
        if self.store is not None:
            llm = CachedLLM(llm, self.store, accept=_readable)
        return LLMClaims(llm, style=style)

    def nli(self, usual: str, thresholds: Callable[[Any], NLIJudge]) -> Judge:
        """A cross-encoder, the usual one or the one that was named, with a preset's thresholds."""
        named = self.judge if isinstance(self.judge, str) else ""
        if named.startswith("nli:") and named != "nli:":
            return thresholds(_cross_encoder(named.removeprefix("nli:")))
        return self.judge_or(lambda: thresholds(_cross_encoder(usual)))

    def judge_or(self, usual: Callable[[], Judge]) -> Judge:
        """The judge that was named, else the usual one."""
        if self.judge is None:
            return usual()
        return open_judge(self.judge) if isinstance(self.judge, str) else self.judge


_SERVER = "http://localhost:8000/v1#model"
_Maker = Callable[[_Asked], tuple[Extractor, Judge, dict[str, Any]]]


def open_verifier(
    preset: str = "local",
    *,
    docs: Sequence[str | Path] = (),
    index: str | Path | Index | None = None,
    web: str | WebSearch | None = None,
    llm: LLM | None = None,
    judge: str | Judge | None = None,
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
        judge: instead of the preset's own: a judge, or `local`, `weak`, `nli:NAME`.
        controls: every call carries a true and a false claim of ours, as `LLMJudge` says; only where the
            preset `local` asks a server.
        k: passages for a claim instead of the preset's number.
        max_claims, max_chars: limits of `Verifier`.
        store: keeps verdicts and claims.

    Raises:
        ConfigError: an unknown preset, no evidence or several kinds, a server that the preset lacks.
        SetupError: a file, an index, a model or a package that is not there.
    """
    if preset not in _PRESETS:
        raise ConfigError(
            f"unknown preset {preset!r}{nearest(preset, _PRESETS)} (there are: {', '.join(_PRESETS)})"
        )
    if controls and (preset != "local" or llm is None or judge is not None):
        raise ConfigError("controls are for a server that the preset local asks: give llm and no judge")
    asked = _Asked(_open_search(docs, index, web), llm, judge, store, controls)
    extract, chosen, settings = _PRESETS[preset](asked)
    limits = {"k": k, "max_claims": max_claims, "max_chars": max_chars}
    settings.update({name: value for name, value in limits.items() if value is not None})
    return Verifier(extract, asked.search, chosen, store=store, **settings)


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


def open_judge(name: str) -> LocalJudge | NLIJudge | WeakJudge:
    """A judge by name: `local`, `weak`, or `nli:MODEL`.

    Raises:
        ConfigError: another name.
        SetupError: its model or a package is not there.
    """
    if name == "local":
        return LocalJudge()
    if name == "weak":
        return _weak()
    kind, _, model = name.partition(":")
    if kind == "nli" and model:
        return NLIJudge(_cross_encoder(model))
    if kind == "own":
        raise ConfigError(
            f"{name!r}: {NO_OWN_VERIFIER}; use local, or nli:NAME with any cross-encoder's name"
        )
    raise ConfigError(
        f"unknown judge {name!r} (there are: local, weak, nli:NAME with any cross-encoder's name)"
    )


def _local(asked: _Asked) -> tuple[Extractor, Judge, dict[str, Any]]:
    llm = asked.llm
    if llm is not None:
        judge = asked.judge_or(lambda: LLMJudge(llm, controls=asked.controls))
        return asked.claims(llm, "factscore"), judge, {}
    return ClauseClaims(), asked.judge_or(_best_here), {}


def _factscore(asked: _Asked) -> tuple[Extractor, Judge, dict[str, Any]]:
    llm = asked.server("factscore")
    judge = asked.judge_or(lambda: LLMJudge(llm, style="factscore"))
    return asked.claims(llm, "factscore"), judge, {"k": 5}  # section 4.1: five passages of the title


def _veriscore(asked: _Asked) -> tuple[Extractor, Judge, dict[str, Any]]:
    llm = asked.server("veriscore")
    judge = asked.judge_or(lambda: LLMJudge(llm, style="veriscore"))
    return asked.claims(llm, "veriscore"), judge, {"k": 10}  # ten search results, the command line's default


def _knowrl(asked: _Asked) -> tuple[Extractor, Judge, dict[str, Any]]:
    llm = asked.server("knowrl")
    judge = asked.nli(KNOWRL_NLI, NLIJudge.knowrl)
    return asked.claims(llm, "knowrl"), judge, {"k": 5, "topic_in_query": True}


def _fspo(asked: _Asked) -> tuple[Extractor, Judge, dict[str, Any]]:
    return SentenceClaims(), asked.nli(FSPO_NLI, NLIJudge.fspo), {}


_PRESETS: Mapping[str, _Maker] = {
    "local": _local,
    "factscore": _factscore,
    "veriscore": _veriscore,
    "knowrl": _knowrl,
    "fspo": _fspo,
}


def _readable(reply: Reply) -> bool:
    try:
        read_facts(reply.text)
    except Unscored:
        return False
    return True


def _best_here() -> Judge:
    """The local model where it can run and be had, else the comparison of words."""
    try:
        return LocalJudge()
    except (MissingExtra, ModelError):
        return _weak()


def _weak() -> WeakJudge:
    if not _embeds():
        return WeakJudge()
    from ..local.embed import Potion
    from ..models import cached

    return WeakJudge(Potion()) if cached("potion-base-8M") else WeakJudge()


def _cross_encoder(name: str) -> Any:
    if not _installed("torch") or not _installed("transformers"):
        raise MissingExtra("transformers", "train")
    from ..local.nli import CrossEncoder

    return CrossEncoder(name)


def _open_search(
    docs: Sequence[str | Path], index: str | Path | Index | None, web: str | WebSearch | None
) -> Search | None:
    named = [name for name, value in (("docs", docs), ("index", index), ("web", web)) if value]
    if len(named) > 1:
        raise ConfigError(f"evidence comes from one place, not from {' and '.join(named)}")
    if docs:
        return Given.read(docs)
    if index is not None:
        return index if isinstance(index, Index) else _open_index(index)
    return WebSearch(web) if isinstance(web, str) else web


def _open_index(folder: str | Path) -> Index:
    """The index, with the embedder it was built with where that is installed."""
    found = Index.open(folder)
    if not found.dense or not _embeds():
        return found
    from ..local.embed import Potion

    return Index.open(folder, embedder=Potion())


def _embeds() -> bool:
    return _installed("tokenizers") and _installed("safetensors")


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
