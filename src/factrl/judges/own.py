"""A small verifier of our own as the judge: one pair of texts for each claim, no prompt, no torch.

The folder that `factrl tune verifier` writes holds a three-way cross-encoder in 8-bit ONNX and the weights
that turn its logits into probabilities.  The evidence of a claim is the sentences of all its passages that
bear on it, as the model saw it when it was trained; so a claim costs one forward pass however many passages
were found for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from factrl.judges.calibration import Calibration
from factrl.judges.local import shown_pieces
from factrl.judges.overlap import Piece, best_pieces, compare, pieces_of
from factrl.types import Claim, Passage, Verdict

if TYPE_CHECKING:
    import numpy as np


class ThreeWay(Protocol):
    """What `factrl.local.own_verifier.OwnVerifier` is."""

    identity: str
    calibration: Calibration
    evidence_chars: int

    def logits(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Logits of (evidence, claim) pairs: (N, 3), columns supported, refuted, unknown; NaN: too long."""
        ...


class OwnJudge:
    """Judges by a three-way cross-encoder's calibrated probabilities.

    Args:
        model: the cross-encoder with its calibration.
        calibration: another one, fitted on labelled pairs of your own kind (`factrl.judges.fit`).

    Attributes:
        identity: the model, the calibration and how much evidence is shown.
        per_call: pairs that one call takes.
        weak: False.
    """

    weak = False
    per_call = 256

    def __init__(self, model: ThreeWay, *, calibration: Calibration | None = None) -> None:
        self.model = model
        self.calibration = calibration or model.calibration
        self.identity = (
            f"own {model.identity} calibration={self.calibration.identity} evidence={model.evidence_chars}"
        )

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair, in their order; `p` is the probability that the claim is supported.

        A claim without evidence is `unknown` with the cause `no_evidence`; one that leaves the model no room
        for evidence is `unjudged` with the cause `too_long`.
        """
        held = [(claim, pieces_of(passages)) for claim, passages in pairs]
        return [
            self._verdict(claim, pieces, features)
            for (claim, pieces), features in zip(held, self._features(held), strict=True)
        ]

    def features(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[dict[str, float] | None]:
        """What the calibration sees of every pair; None for one without evidence or that is too long."""
        found = self._features([(claim, pieces_of(passages)) for claim, passages in pairs])
        return [features or None for features in found]

    def _features(self, held: Sequence[tuple[Claim, Sequence[Piece]]]) -> list[dict[str, float]]:
        """Features of each; empty without evidence or where the claim is too long."""
        asked = [number for number, (_, pieces) in enumerate(held) if pieces]
        shown = [
            (premise(held[number][0].text, held[number][1], self.model.evidence_chars), held[number][0].text)
            for number in asked
        ]
        found: list[dict[str, float]] = [{} for _ in held]
        for number, row in zip(asked, self.model.logits(shown).tolist() if shown else [], strict=True):
            if not any(math.isnan(value) for value in row):
                found[number] = features_of(row)
        return found

    def _verdict(self, claim: Claim, pieces: Sequence[Piece], features: Mapping[str, float]) -> Verdict:
        if not pieces:
            return Verdict("unknown", self.identity, cause="no_evidence")
        if not features:
            return Verdict("unjudged", self.identity, cause="too_long")
        label, p = self.calibration.decide(features)
        facts = {name: round(value, 3) for name, value in features.items()}
        return Verdict(label, self.identity, p=p, quote=compare(claim.text, pieces).quote, facts=facts)


def premise(claim: str, pieces: Sequence[Piece], chars: int) -> str:
    """The sentences that bear on a claim, or else the first one: at most twice `chars` characters."""
    return shown_pieces(best_pieces(claim, pieces, chars) or pieces[:1])[: 2 * chars]


def features_of(logits: Sequence[float]) -> dict[str, float]:
    """What a calibration is fitted on: supported against the others, and refuted against unknown."""
    supported, refuted, unknown = logits
    others = max(refuted, unknown) + math.log1p(math.exp(-abs(refuted - unknown)))
    return {"supports": supported - others, "contradicts": refuted - unknown}
