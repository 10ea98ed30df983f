"""What came of checking one text: its claims, the passages, the verdicts, and the scores they make.

A score is published as a number only when the verdicts that are missing could not move it by more than
`WIDTH`; otherwise asking for it raises `Unscored`, and `bounds` says between which values it lies.

Scores: precision, and FActScore with its length penalty (arXiv 2305.14251, equation 1 and section 4 of the
released code).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, Unscored
from factrl.text.escape import one_line
from factrl.types import Claim, Passage, Verdict

WIDTH = 0.05  # the widest interval that is still published as a number
_SIGNS = {"supported": "S", "refuted": "C", "unknown": "N", "unjudged": "?"}


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, what was found for it and what the judge said."""

    claim: Claim
    passages: tuple[Passage, ...] = ()  # the evidence that the judge saw, best first
    verdict: Verdict | None = None  # exactly when the claim has a `skip`

    @property
    def quote(self) -> str:
        """The sentence of the evidence that decided; empty when none did."""
        if self.verdict is None or self.verdict.quote is None:
            return ""
        number, start, end = self.verdict.quote
        return self.passages[number].text[start:end]

    @property
    def quoted_from(self) -> str:
        """The title of what the quote is from, or where that is; empty without a quote."""
        if self.verdict is None or self.verdict.quote is None or not self.quote:
            return ""
        passage = self.passages[self.verdict.quote[0]]
        return passage.title or passage.source


@dataclass(frozen=True)
class Report:
    """The checked text.

    Attributes:
        checks: one per claim, in the order of the text.
        judge: identity of the judge.
        weak: no model judged, only overlap of words and numbers; not a verification.
        abstained: the text claims nothing because it declines to answer.
        floored: why the text itself could not be checked (`oversize`, `unjudgeable`), else None.
        failure: why there are no claims although the text was fine: our side failed; else None.
        seconds: wall-clock time of the whole batch that this text was checked in.
        counts: claims by verdict; skipped ones do not count.
    """

    text: str
    question: str = ""
    checks: tuple[Check, ...] = ()
    judge: str = ""
    weak: bool = False
    abstained: bool = False
    floored: str | None = None
    failure: Unscored | None = None
    seconds: float = 0.0
    counts: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        labels = Counter(check.verdict.label for check in self.checks if check.verdict is not None)
        object.__setattr__(self, "counts", {label: labels[label] for label in _SIGNS})

    @property
    def claims(self) -> int:
        """How many claims count."""
        return sum(self.counts.values())

    @property
    def precision(self) -> float | None:
        """Supported claims over all that count; 0 without claims, None when the text abstained.

        Raises:
            Unscored: too many verdicts are missing, or the claims themselves.
        """
        return self.factscore(gamma=0)

    def factscore(self, gamma: int = 10) -> float | None:
        """Precision times `exp(1 - gamma / claims)` below `gamma` claims; `gamma=0` is without the penalty.

        Raises:
            Unscored: as `precision`.
        """
        if gamma < 0:
            raise ConfigError(f"gamma must be at least 0, not {gamma!r}")
        short = 0 < self.claims < gamma  # at gamma itself the penalty is exp(0) = 1
        penalty = math.exp(1 - gamma / self.claims) if short else 1.0
        low, high = (penalty * end for end in self.bounds())
        if self.floored:
            return 0.0
        if self.abstained and not self.claims:
            return None
        if not is_narrow(low, high):
            verdicts = [check.verdict for check in self.checks if check.verdict is not None]
            causes = Counter(verdict.cause for verdict in verdicts if verdict.label == "unjudged")
            tally = ", ".join(f"{cause} {count}" for cause, count in causes.most_common())
            detail = f"{self.counts['unjudged']} of {self.claims} claims have no verdict ({tally})"
            raise Unscored("claims_unjudged", detail, stage="verify", causes=dict(causes))
        return (low + high) / 2

    def bounds(self) -> tuple[float, float]:
        """Between which values precision lies, whatever the missing verdicts are.

        Raises:
            Unscored: the claims themselves are missing, so nothing is known.
        """
        if self.failure is not None:
            raise self.failure
        supported, missing = self.counts["supported"], self.counts["unjudged"]
        return supported / max(self.claims, 1), (supported + missing) / max(self.claims, 1)

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values; passages are listed once and claims name them by number."""
        passages: dict[Passage, int] = {}
        claims = []
        for check in self.checks:
            numbers = [passages.setdefault(passage, len(passages)) for passage in check.passages]
            verdict = None if check.verdict is None else asdict(check.verdict)
            claims.append({**asdict(check.claim), "passages": numbers, "verdict": verdict})
        low_high = None if self.failure else dict(zip(("low", "high"), self.bounds(), strict=True))
        fields = ("question", "text", "judge", "weak", "abstained", "floored")
        return {
            **{name: getattr(self, name) for name in fields},
            "failure": str(self.failure) if self.failure else None,
            "counts": dict(self.counts),
            "precision": low_high,
            "claims": claims,
            "passages": [asdict(passage) for passage in passages],
            "seconds": round(self.seconds, 3),
        }

    def checked(self) -> list[dict[str, str]]:
        """At most 8 claims that were judged, short enough to be kept beside every completion of a run."""
        return [
            {
                "claim": check.claim.text[:160],
                "verdict": check.verdict.label,
                "quote": check.quote[:160],
                "source": check.quoted_from[:80],
            }
            for check in self.checks
            if check.verdict is not None
        ][:8]

    def to_html(self, path: str | Path) -> Path:
        """Write the report as one self-contained page."""
        from factrl.text.html import write_page

        from .html import page

        return write_page(path, page(self))

    def __repr__(self) -> str:
        """The counts and the score, in one line; `print` has the claims."""
        told = "; ".join(self.summary())
        return f"<Report: {told}; judge {one_line(self.judge) or 'none'}>"

    def __str__(self) -> str:
        """One line per claim, the sentence that decided beneath it, and the arithmetic of the score."""
        lines = [line for check in self.checks for line in _lines(check)]
        return "\n".join([*lines, *self.summary()])

    def summary(self) -> list[str]:
        """The counts and the score, in words."""
        if self.failure is not None:
            return [f"could not be checked: {one_line(str(self.failure))}"]
        if self.floored:
            return [f"not checked: {self.floored}"]
        if not self.claims:
            return ["the text declines to answer: no claims" if self.abstained else "no claim to check"]
        low, high = self.bounds()
        supported, missing = self.counts["supported"], self.counts["unjudged"]
        score = (
            f"{low:.2f}" if low == high else f"between {low:.2f} and {high:.2f} ({missing} without a verdict)"
        )
        parts = ", ".join(f"{count} {label}" for label, count in self.counts.items() if count)
        lines = [f"{parts}: precision {supported}/{self.claims} = {score}"]
        if self.weak:
            lines.append("weak: compared by words and numbers only; this is not a verification")
        return lines


def is_narrow(low: float, high: float) -> bool:
    """Whether a score between these ends is published; 19/20 and 20/20 lie a rounding error over `WIDTH`."""
    return high - low <= WIDTH + 1e-9


def _lines(check: Check) -> list[str]:
    claim = one_line(check.claim.text)
    if check.verdict is None:
        return [f"- skipped    {claim} ({check.claim.skip})"]
    verdict = check.verdict
    p = f"  p={verdict.p:.2f}" if verdict.p is not None else ""
    because = f" ({one_line(verdict.cause)})" if verdict.cause else ""
    lines = [f"{_SIGNS[verdict.label]} {verdict.label:<10} {claim}{p}{because}"]
    if check.quote:
        where = one_line(check.quoted_from)
        lines.append(f"             “{one_line(check.quote)}”" + (f" ({where})" if where else ""))
    return lines
