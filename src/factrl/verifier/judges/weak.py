"""A judge without a model: it compares the words of a claim with those of its evidence.

For machines with nothing else.  It cannot tell "the dog bit the man" from "the man bit the dog", so its
verdicts are marked weak wherever they are shown, and are never called verification.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from factrl.types import Claim, Passage, Verdict
from factrl.verifier.judges.calibration import Calibration
from factrl.verifier.judges.overlap import Overlap, Piece, compare, nearest_pieces, pieces_of

if TYPE_CHECKING:
    import numpy as np

_NEAREST = 64  # sentences per claim that are embedded


class Embedder(Protocol):
    """What `factrl.llm.local.embed.Potion` and `MiniLM` are."""

    @property
    def identity(self) -> str: ...

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors, one row for each text."""
        ...


class WeakJudge:
    """Judges by covered words, numbers, names and negations, and by an embedding when there is one.

    A claim is `refuted` only when a sentence covers it but for another number or a negation; `supported` from
    a calibrated probability of 0.5 on, when the evidence lacks none of its names and numbers; else `unknown`.

    Args:
        embedder: adds the likeness of claim and sentences.
        calibration: weights for `features`; by default those that come with factrl.

    Attributes:
        identity: begins with "weak".
        per_call: pairs that one call takes.
        weak: True.
    """

    weak = True
    per_call = 256

    def __init__(self, embedder: Embedder | None = None, *, calibration: Calibration | None = None) -> None:
        self.embedder = embedder
        self.calibration = calibration or Calibration.shipped("weak-embedded" if embedder else "weak")
        likeness = f" with {embedder.identity}" if embedder else ""
        self.identity = f"weak word overlap{likeness} calibration={self.calibration.identity}"

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair; without evidence `unknown` with the cause `no_evidence`."""
        return [self._verdict(*held) for held in self._held(pairs)]

    def features(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[dict[str, float]]:
        """What the calibration sees of every pair, for a calibration of your own."""
        return [features for _, features in self._held(pairs)]

    def _held(
        self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]
    ) -> list[tuple[Overlap, dict[str, float]]]:
        split = [(claim.text, pieces_of(passages)) for claim, passages in pairs]
        overlaps = [compare(claim, pieces) for claim, pieces in split]
        if self.embedder is None:
            return [(overlap, overlap.features) for overlap in overlaps]
        likeness = _likeness(self.embedder, split)
        return [
            (overlap, {**overlap.features, "likeness": like})
            for overlap, like in zip(overlaps, likeness, strict=True)
        ]

    def _verdict(self, overlap: Overlap, features: Mapping[str, float]) -> Verdict:
        if overlap.best is None:
            return Verdict("unknown", self.identity, cause="no_evidence")
        label, p = self.calibration.decide(features)
        why = lacks(features)
        if why:
            # p stays on the label's side, so that a cascade and an interval see the same verdict.
            label, p = "unknown", min(p, 0.49)
        if overlap.conflict:
            label, p = "refuted", min(p, 0.49)
        elif label == "refuted":
            label = "unknown"
        return Verdict(label, self.identity, p=p, quote=overlap.quote, why=why)


def lacks(features: Mapping[str, float]) -> str:
    """What keeps a claim from being supported, however many of its words are there; empty if nothing does."""
    if features["conflict"]:
        return "the same words with another number or a negation"
    if features["missing_numbers"]:
        return "the evidence lacks a number of the claim"
    return "the evidence lacks a name of the claim" if features["missing_names"] else ""


def _likeness(embedder: Embedder, split: Sequence[tuple[str, Sequence[Piece]]]) -> list[float]:
    """The highest cosine of each claim with a sentence of its evidence; 0 without a sentence."""
    near = [(claim, nearest_pieces(claim, pieces, _NEAREST)) for claim, pieces in split]
    texts = list(dict.fromkeys(text for claim, some in near for text in (claim, *(p.text for p in some))))
    rows = dict(zip(texts, embedder.encode(texts), strict=True)) if texts else {}
    return [max((float(rows[claim] @ rows[p.text]) for p in some), default=0.0) for claim, some in near]
