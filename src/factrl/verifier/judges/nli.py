"""A cross-encoder (NLI, MiniCheck- or HHEM-style) as the judge: one score per passage and claim, no prompt.

All passages of all claims go through the model in one call, so that it can sort and batch them by length.
A claim is as supported as its best passage makes it; passages are not joined, because these models are
trained on one short premise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from factrl.errors import ConfigError
from factrl.types import Claim, Finding, Passage, Verdict
from factrl.verifier.judges.overlap import quote_of

if TYPE_CHECKING:
    import numpy as np


class Scorer(Protocol):
    """What `factrl.llm.local.nli.CrossEncoder` is."""

    identity: str

    def scores(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Probabilities of (premise, hypothesis) pairs: (N, 3), columns supported, refuted, unknown."""
        ...


class NLIJudge:
    """Judges by thresholds on a cross-encoder's probabilities.

    A claim is supported when a passage reaches `threshold_supported`, and refuted when none does and one
    reaches `threshold_refuted`.  When two passages disagree, the surer one counts.

    Args:
        cross_encoder: the model.
        threshold_supported: probability of support from which on a claim is supported.
        threshold_refuted: probability of contradiction from which on it is refuted; None never says refuted.
        otherwise: the verdict when neither threshold is reached.

    Attributes:
        identity: the model and the thresholds.
        per_call: pairs that one call takes.
        weak: False.

    Raises:
        ConfigError: a threshold outside (0, 1].
    """

    weak = False
    per_call = 256

    def __init__(
        self,
        cross_encoder: Scorer,
        threshold_supported: float = 0.5,
        threshold_refuted: float | None = 0.5,
        *,
        otherwise: Finding = "unknown",
    ) -> None:
        for name, value in (
            ("threshold_supported", threshold_supported),
            ("threshold_refuted", threshold_refuted),
        ):
            if value is not None and not 0.0 < value <= 1.0:
                raise ConfigError(f"{name} must lie above 0 and not above 1, not {value!r}")
        self.cross_encoder = cross_encoder
        self.threshold_supported = threshold_supported
        self.threshold_refuted = threshold_refuted
        self.otherwise: Finding = otherwise

    @classmethod
    def knowrl(cls, cross_encoder: Scorer) -> NLIJudge:
        """KnowRL's test (zjunlp/KnowRL f75b0bb): entailed by any of the passages with at least 0.3."""
        return cls(cross_encoder, 0.3, None)

    @classmethod
    def fspo(cls, cross_encoder: Scorer) -> NLIJudge:
        """FSPO's test (nusnlp/FSPO 7f5e4f9): HHEM over 0.5 is consistent, and all else counts against."""
        return cls(cross_encoder, math.nextafter(0.5, 1.0), None, otherwise="refuted")

    @property
    def identity(self) -> str:
        thresholds = f"supported>={self.threshold_supported} refuted>={self.threshold_refuted}"
        return f"nli {self.cross_encoder.identity} {thresholds} otherwise={self.otherwise}"

    def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """A verdict for every pair; `p` is the highest probability of support.

        A claim without evidence is `unknown` with the cause `no_evidence`; a score that is no number leaves
        its claim `unjudged` with the cause `nan_score`.
        """
        held = [(claim, [p for p in enumerate(passages) if p[1].text.strip()]) for claim, passages in pairs]
        asked = list(dict.fromkeys((p.text, claim.text) for claim, shown in held for _, p in shown))
        scores = dict(zip(asked, self.cross_encoder.scores(asked).tolist(), strict=True)) if asked else {}
        return [
            self._verdict(claim, passages, {number: scores[p.text, claim.text] for number, p in shown})
            for (claim, shown), (_, passages) in zip(held, pairs, strict=True)
        ]

    def _verdict(
        self, claim: Claim, passages: Sequence[Passage], rows: dict[int, Sequence[float]]
    ) -> Verdict:
        if not rows:
            return Verdict("unknown", self.identity, cause="no_evidence")
        if any(map(math.isnan, chain(*rows.values()))):
            return Verdict("unjudged", self.identity, cause="nan_score")
        for_it = max(rows, key=lambda number: rows[number][0])
        against = max(rows, key=lambda number: rows[number][1])
        p, q = rows[for_it][0], rows[against][1]
        supported = p >= self.threshold_supported
        refuted = self.threshold_refuted is not None and q >= self.threshold_refuted
        if refuted and not (supported and p >= q):
            label, decided = "refuted", against
        elif supported:
            label, decided = "supported", for_it
        else:
            label, decided = self.otherwise, for_it
        quote = quote_of(claim.text, [passages[decided]])
        return Verdict(
            label,
            self.identity,
            p=min(max(p, 0.0), 1.0),
            quote=(decided, *quote[1:]) if quote else None,
            facts={"supported": round(p, 4), "refuted": round(q, 4)},
        )
