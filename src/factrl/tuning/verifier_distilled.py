"""Rows whose label another judge gave: what one passage of a title says, held against the other passages.

The claims are clauses of Wikipedia and the evidence is other text about the same title, so that, unlike the
claims that `verifier_made` edits, a supported one is seldom said in the same words.  No construction knows
what holds; a larger judge is asked (distillation), and only verdicts that it is sure of are learnt from.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from factrl.extract import ClauseClaims
from factrl.journal import Journal
from factrl.judges.overlap import pieces_of
from factrl.judges.own import premise
from factrl.tuning.verifier_made import Document, usable_claims
from factrl.tuning.verifier_rows import Pair
from factrl.types import Claim, Passage, Verdict

SOURCE, KIND = "same_title", "judged"
CLAIMS_PER_TITLE = 2


class Teacher(Protocol):
    """A judge in this process, as `factrl.judges.Judge`."""

    @property
    def identity(self) -> str: ...
    @property
    def per_call(self) -> int: ...

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair, in their order."""
        ...


def claims_of_titles(collections: Sequence[Iterable[Document]], chars: int) -> list[Pair]:
    """Claims of one collection's text of a title with the evidence of what the others say of it.

    The order is one of their own, by hash; a row's label means nothing yet.  Texts of one collection are
    chapters of one article and seldom say the same twice, so they are not held against one another.
    """
    by: dict[str, dict[int, list[Document]]] = defaultdict(lambda: defaultdict(list))
    for number, documents in enumerate(collections):
        for document in documents:
            by[document.title.casefold()][number].append(document)
    extract = ClauseClaims()
    found: list[Pair] = []
    for title, held in sorted(by.items()):
        drawn = [
            (f"{SOURCE}-{document.id}-{claim.start}", number, claim)
            for number, documents in (held.items() if len(held) > 1 else ())
            for document in documents
            for claim in usable_claims(extract(document.text, topic=document.title))
        ]
        for id_, number, claim in sorted(drawn, key=lambda one: _hash(one[0]))[:CLAIMS_PER_TITLE]:
            others = [document for other, some in held.items() if other != number for document in some]
            shown = premise(claim.text, pieces_of([Passage(one.text, one.title) for one in others]), chars)
            found.append(Pair(id_, shown, claim.text, "unknown", f"{SOURCE} {title}", SOURCE, KIND))
    return sorted(found, key=lambda pair: _hash(pair.id))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def distil(
    pairs: Sequence[Pair], judge: Teacher, sure: float, journal: Journal, on_done: Callable[[int], object]
) -> list[Pair]:
    """The claims that a judge is sure of, with its label; what the journal has is not asked again.

    Args:
        sure: how probable the judge's word must be, supported or not, for a row to be learnt from.
        on_done: called with the number of claims of each call.
    """
    open_ = [pair for pair in pairs if pair.id not in journal]
    on_done(len(pairs) - len(open_))
    for start in range(0, len(open_), judge.per_call):
        some = open_[start : start + judge.per_call]
        verdicts = judge.judge(
            [(Claim(pair.claim, 0, len(pair.claim)), [Passage(pair.evidence)]) for pair in some]
        )
        for pair, verdict in zip(some, verdicts, strict=True):
            journal.add(pair.id, {"label": verdict.label, "p": verdict.p})
        on_done(len(some))
    rows = []
    for pair in pairs:
        said = journal[pair.id]
        if said["p"] is not None and max(said["p"], 1 - said["p"]) >= sure:
            rows.append(replace(pair, label=said["label"]))
    return rows
