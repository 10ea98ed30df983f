"""A judge for machines without a model: it compares words, and its verdicts are no verification."""

from __future__ import annotations

from collections.abc import Sequence

from factrl.types import Claim, Passage, Verdict
from factrl.verifier.judges.overlap import ENOUGH, Piece, compare, lacks
from factrl.verifier.judges.subjects import ASKED, apart, differs, under_another


class WeakJudge:
    """A `Judge` that counts words in the passages that are about a claim's subject, each on its own.

    A claim is `refuted` only when a sentence covers it but for another number or a negation, and its passage
    has all of the claim's names, so that it is about the same thing; `supported` when one passage holds
    `ENOUGH` of its words, lacks none of its names and numbers and has no other in their place; else
    `unknown`.
    """

    weak = True
    per_call = 256
    identity = f"weak word overlap/2 covered>={ENOUGH} names apart={ASKED}"

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair; without evidence `unknown` with the cause `no_evidence`."""
        return [self._verdict(claim.text, passages) for claim, passages in pairs]

    def _verdict(self, claim: str, passages: Sequence[Passage]) -> Verdict:
        found = [self._of_one(claim, one, passages) for one in apart(claim, passages)]
        order = ("supported", "refuted", "unknown")
        nothing = Verdict("unknown", self.identity, cause="no_evidence")
        return min(found, key=lambda verdict: order.index(verdict.label), default=nothing)

    def _of_one(self, claim: str, pieces: Sequence[Piece], passages: Sequence[Passage]) -> Verdict:
        features, quote = compare(claim, pieces)
        why = lacks(features)
        if not why and quote:
            number, start, end = quote
            passage = passages[number]
            why = differs(claim, passage.text[start:end], passage) or under_another(claim, start, passage)
        supported = not why and features["covered"] >= ENOUGH
        refuted = features["conflict"] and not features["missing_names"]
        label = "refuted" if refuted else "supported" if supported else "unknown"
        return Verdict(label, self.identity, quote=quote, why=why)
