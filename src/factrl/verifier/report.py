"""The result of checking one text: its claims, passages and verdicts, and the scores computed from them.

A score is given as a number only if the missing verdicts could not change it by more than `WIDTH`.
Otherwise reading it raises `Unscored`, and `bounds` gives the lowest and the highest possible value.

Scores: precision, and FActScore with its length penalty (arXiv 2305.14251, equation 1 and section 4 of the
released code).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, get_args

from factrl.errors import ConfigError, TooManyMasked, Unscored
from factrl.text.escape import one_line
from factrl.text.sentences import Sentence, sentences
from factrl.types import Claim, Passage, Verdict, VerdictLabel
from factrl.verifier.claims import hedges

WIDTH = 0.05  # the widest interval for which a score is still given as a number
SURE, UNLIKELY = 0.7, 0.25
"""Probabilities: a claim is shown as supported from `SURE` on, as not supported below `UNLIKELY`, and as
unsure between them.  With these values the local judge shows at most a tenth of the false claims of seven
labelled sets as supported, and at most a tenth of the true ones as not supported (docs/verify.md)."""
VERBATIM = "word for word"
"""Whose verdict it is that a claim stands in the evidence as it is; no judge was asked."""
# Kind of a claim, as `Report.kind` gives it -> the letter and the words shown for it; the worst kind first.
KINDS: Mapping[str, tuple[str, str]] = {
    "refuted": ("R", "refuted"),
    "unsure": ("?", "unsure"),
    "unknown": ("U", "unknown"),
    "unjudged": ("!", "no verdict"),
    "supported": ("S", "supported"),
    "skipped": ("–", "not counted"),
}


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, its evidence and its verdict.

    Attributes:
        passages: the evidence that the judge saw, best first.
        verdict: None exactly when the claim has a `skip`.  Its label is the likelier of the possible ones;
            scores and rewards count it.
        shown: the kind that is shown for the claim: `supported`, `refuted`, `unsure`, `unknown`, `unjudged`
            or `skipped`; the report sets it, by `Report.kind`.
    """

    claim: Claim
    passages: tuple[Passage, ...] = ()
    verdict: Verdict | None = None
    shown: str = ""

    @property
    def hedged(self) -> bool:
        """Whether the claim is skipped as it commits to nothing ("Perhaps …"); `--strict` fails on it."""
        return self.claim.skip == "unverifiable" and hedges(self.claim.text)

    @property
    def quote(self) -> str:
        """The sentence of the evidence that decided the verdict; empty if there is none."""
        if self.verdict is None or self.verdict.quote is None:
            return ""
        number, start, end = self.verdict.quote
        return self.passages[number].text[start:end]

    @property
    def against(self) -> Passage | None:
        """The piece of another document, or of another place, that says otherwise; None where all agree."""
        place = (self.verdict.facts if self.verdict is not None else {}).get("against")
        return self.passages[place[0]] if place else None

    @property
    def quoted_from(self) -> str:
        """The title of the passage that the quote is from, or its source; empty without a quote."""
        if self.verdict is None or self.verdict.quote is None or not self.quote:
            return ""
        passage = self.passages[self.verdict.quote[0]]
        return passage.title or passage.source


@dataclass(frozen=True)
class Report:
    """The result of checking one text.

    Attributes:
        checks: one per claim, in the order of the text.
        judge: identity of the judge.
        weak: no model judged; words and numbers were compared only, which is not a verification.
        abstained: the text claims nothing because it declines to answer.
        floored: why the text itself could not be checked (`oversize`, `unjudgeable`), else None.
        failure: the error on our side because of which there are no claims; else None.
        seconds: wall-clock time of the whole batch that this text was checked in.
        sure: a claim with at least this probability is shown as supported.  Between this and `UNLIKELY` it
            is shown as unsure, but scores and rewards still count its likelier verdict.
        counts: number of claims by the kind that is shown; skipped ones do not count.
        likelier: number of claims by the label of their verdict, which is never unsure; scores and rewards
            count these.

    >>> report = fx.verify("Lima is in Peru.", evidence=["Lima is in Peru."], judge="weak")
    >>> print(report)
    S supported  Lima is in Peru.  p=1.00
                 “Lima is in Peru.”
    1 supported of 1; precision 1/1 = 1.00
    weak: compared by words and numbers only; this is not a verification
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
    sure: float = SURE
    counts: Mapping[str, int] = field(init=False)
    likelier: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checks = tuple(replace(check, shown=self.kind(check)) for check in self.checks)
        labels = Counter(check.verdict.label for check in checks if check.verdict is not None)
        counts = Counter(check.shown for check in checks)
        object.__setattr__(self, "checks", checks)
        object.__setattr__(self, "counts", {kind: counts[kind] for kind in KINDS if kind != "skipped"})
        object.__setattr__(self, "likelier", {label: labels[label] for label in get_args(VerdictLabel)})

    @property
    def claims(self) -> int:
        """How many claims count."""
        return sum(self.likelier.values())

    @property
    def not_looked_at(self) -> int:
        """How many claims nobody looked at, as the user set a limit; they count nowhere."""
        return sum(check.claim.skip == "limit" for check in self.checks)

    def kind(self, check: Check) -> str:
        """The kind that is shown for a claim: the label of its verdict, `skipped`, or `unsure`.

        A verdict is unsure if its probability lies between `UNLIKELY` and `sure`, or if it is "supported"
        because words were compared and the claim does not stand there word for word.
        """
        verdict = check.verdict
        if verdict is None:
            return "skipped"
        between = verdict.p is not None and UNLIKELY <= verdict.p < self.sure and not verdict.cause
        words_alone = self.weak and verdict.label == "supported" and verdict.by != VERBATIM
        return "unsure" if between or words_alone else verdict.label

    def unread(self) -> list[Sentence]:
        """The headings, blocks of code and parts of the reasoning in which no claim was found."""
        spans = sorted((check.claim.start, check.claim.end) for check in self.checks)
        starts = [start for start, _ in spans]
        # Entry n: the furthest end of the first n claims.
        reached = [0, *accumulate((end for _, end in spans), max)]
        parts = [part for part in sentences(self.text) if part.kind in ("heading", "code", "reasoning")]
        return [one for one in parts if reached[bisect_left(starts, one.end)] <= one.start]

    @property
    def precision(self) -> float | None:
        """Supported claims / all claims that count, by the likelier verdicts.

        0 without claims, so that a text that claims nothing earns nothing; None if the text abstained.

        Raises:
            Unscored: too many verdicts are missing, or the claims themselves.
        """
        return self.factscore(gamma=0)

    def factscore(self, gamma: int = 10) -> float | None:
        """Precision times `exp(1 - gamma / claims)` below `gamma` claims; `gamma=0` turns this penalty off.

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
            detail = f"{self.likelier['unjudged']} of {self.claims} claims have no verdict ({tally})"
            raise Unscored("claims_unjudged", detail, stage="verify", causes=dict(causes))
        return (low + high) / 2

    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest precision that the missing verdicts allow.

        Raises:
            Unscored: there are no claims because of an error on our side.
        """
        if self.failure is not None:
            raise self.failure
        supported, missing = self.likelier["supported"], self.likelier["unjudged"]
        return supported / max(self.claims, 1), (supported + missing) / max(self.claims, 1)

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values; passages are listed once and claims name them by number.

        The label of a verdict is the kind that is shown.  `precision` is null if no claim counts.
        """
        passages: dict[Passage, int] = {}
        claims = []
        for check in self.checks:
            numbers = [passages.setdefault(passage, len(passages)) for passage in check.passages]
            verdict = None if check.verdict is None else {**asdict(check.verdict), "label": check.shown}
            shown = {"passages": numbers, "verdict": verdict, "shown": check.shown}
            claims.append({**asdict(check.claim), **shown})
        unknown = self.failure is not None or not self.claims
        low_high = None if unknown else dict(zip(("low", "high"), self.bounds(), strict=True))
        fields = ("question", "text", "judge", "weak", "abstained", "floored", "sure")
        return {
            **{name: getattr(self, name) for name in fields},
            "failure": str(self.failure) if self.failure else None,
            "counts": dict(self.counts),
            "not_looked_at": self.not_looked_at,
            "unread": [asdict(part) for part in self.unread()],
            "precision": low_high,
            "claims": claims,
            "passages": [asdict(passage) for passage in passages],
            "seconds": round(self.seconds, 3),
        }

    @property
    def is_unjudged(self) -> bool:
        """Whether there are claims, and none of them has a verdict."""
        return 0 < self.claims == self.likelier["unjudged"]

    def check_verdicts(self, max_chars: int) -> None:
        """Refuse a report without any verdict, where there should be one.

        Args:
            max_chars: the limit of the verifier, which reads no longer text.

        Raises:
            TooManyMasked: our side failed, or the model that lists the claims could not read the text.
            ConfigError: the text is too long.
        """
        if self.failure is not None:
            raise TooManyMasked(f"the text could not be checked: {self.failure}")
        if self.floored and len(self.text) <= max_chars:
            raise TooManyMasked(
                f"the text could not be checked ({self.floored}): the model cannot list its claims; shorten "
                "it, or take a model with a longer context"
            )
        if self.floored:
            raise ConfigError(
                f"the text has {len(self.text):,} characters, more than the {max_chars:,} that are "
                "read; shorten it"
            )
        if self.is_unjudged:
            verdicts = [check.verdict for check in self.checks if check.verdict is not None]
            causes = Counter(verdict.cause for verdict in verdicts).most_common()
            # The first is a search's, the second a judge's.
            details = (each.facts.get("detail") or each.why for each in verdicts)
            detail = next((f": {one_line(str(each))}" for each in details if each), "")
            why = ", ".join(f"{count} {cause}" for cause, count in causes) + detail
            raise TooManyMasked(f"none of the claims could be judged ({why})")

    def checked(self) -> list[dict[str, str]]:
        """At most 8 claims that were judged, short enough to be kept beside every completion of a run."""
        return [
            {
                "claim": check.claim.text[:160],
                "verdict": check.shown,
                "quote": check.quote[:160],
                "source": check.quoted_from[:80],
            }
            for check in self.checks
            if check.verdict is not None
        ][:8]

    def to_html(self, path: str | Path) -> Path:
        """Write the report as one self-contained page."""
        from factrl.runs.disk import write_page

        return write_page(path, page(self))

    def __repr__(self) -> str:
        """The counts and the score, in one line; `print` has the claims."""
        return f"<Report: {'; '.join(self.summary())}; judge {one_line(self.judged_by)}>"

    @property
    def judged_by(self) -> str:
        """The judge as a reader knows it: a model and where it ran; `judge` has all settings.

        >>> Report("", judge="nli org/model@1a2b supported>=0.5").judged_by
        'org/model, a cross-encoder'
        """
        kind, _, rest = self.judge.partition(" ")
        name = rest.partition(" ")[0].partition("@")[0]  # without the fingerprint of its weights
        address, _, model = kind.partition("#")
        said = {
            "local": f"{name}, in this process",
            "nli": f"{name}, a cross-encoder",
            "weak": "words, names and numbers alone",
            "table": "a table of facts",
        }
        return said.get(kind) or (f"{model} at {address}" if model else kind.partition("@")[0]) or "none"

    def __str__(self) -> str:
        """A line per claim, below it the sentence that decided its verdict, and at the end the score."""
        return "\n".join([*(line for check in self.checks for line in lines_of(check)), *self.ending()])

    def ending(self) -> list[str]:
        """What is printed below the claims: what was not read, and the counts and the score."""
        unread = []
        for part in self.unread():
            seen = one_line(self.text[part.start : part.end])
            unread.append(
                f"– not read   {seen if len(seen) <= _SHOWN else f'{seen[:_SHOWN]}…'} ({part.kind})"
            )
        return [*unread, *self.summary()]

    def _repr_html_(self) -> str:
        """In a notebook: a row per claim with the reason for its verdict; `to_html` writes a whole page."""
        from factrl.text.html import table

        rows = [(" ".join(KINDS[check.shown]), check.claim.text, _reason(check)) for check in self.checks]
        return table(("verdict", "claim", "because"), rows, caption="; ".join(self.summary()))

    def summary(self) -> list[str]:
        """The counts and the score, in words."""
        if self.failure is not None:
            return [f"could not be checked: {one_line(str(self.failure))}"]
        if self.floored:
            return [f"not checked: {self.floored}"]
        if not self.claims:
            return ["the text declines to answer: no claims" if self.abstained else "no claim to check"]
        low, high = self.bounds()
        supported, missing = self.likelier["supported"], self.likelier["unjudged"]
        score = f"{low:.2f}" if low == high else f"between {low:.2f} and {high:.2f}"
        score += f" ({missing} without a verdict)" if missing else ""
        parts = ", ".join(f"{count} {KINDS[kind][1]}" for kind, count in self.counts.items() if count)
        by = " by the likelier verdicts" if self.counts["unsure"] else ""
        lines = [f"{parts} of {self.claims}; precision{by} {supported}/{self.claims} = {score}"]
        if left := self.not_looked_at:
            lines.append(f"{left} not looked at: verifier.max_claims")
        if self.weak:
            lines.append("weak: compared by words and numbers only; this is not a verification")
        return lines


def is_narrow(low: float, high: float) -> bool:
    """Whether a score with these bounds is given as a number.

    The tolerance is for 19/20 and 20/20, whose difference exceeds `WIDTH` by a rounding error.
    """
    return high - low <= WIDTH + 1e-9


def lines_of(check: Check) -> list[str]:
    """A claim of a report as it is printed, and below it the sentence that decided its verdict."""
    claim, kind = one_line(check.claim.text), check.shown
    letter, word = KINDS[kind]
    if check.verdict is None:
        return [f"{letter} {'skipped':<10} {claim} ({check.claim.skip})"]
    verdict = check.verdict
    p = f"  p={verdict.p:.2f}" if verdict.p is not None else ""
    because = f" ({one_line(verdict.cause)})" if verdict.cause else ""
    lines = [f"{letter} {word:<10} {claim}{p}{because}"]
    if check.quote:
        where = one_line(check.quoted_from)
        nearest = "nearest: " if kind in ("unsure", "unknown") else ""
        lines.append(f"             {nearest}“{one_line(check.quote)}”" + (f" ({where})" if where else ""))
    if against := check.against:
        lines.append(
            f"             against: “{one_line(against.text)}” ({one_line(against.title or against.source)})"
        )
    return lines


def _reason(check: Check) -> str:
    """The reason for a verdict, for a cell of a table."""
    if check.verdict is None:
        return str(check.claim.skip)
    p = "" if check.verdict.p is None else f"p={check.verdict.p:.2f} "
    where = f" ({check.quoted_from})" if check.quoted_from else ""
    return p + (f"“{check.quote}”{where}" if check.quote else check.verdict.cause or "")


# -- The report as a page: claims underlined by verdict, the evidence beside them, the score

_SHOWN = 80  # characters of what is not read
_AROUND = 240  # characters shown on each side of a quote
_SKIPPED = {
    "question": "the question already says it",
    "self": "it speaks of the text itself, or of whoever grades it",
    "repeat": "an earlier claim says it",
    "unverifiable": "there is nothing to check",
    "limit": "it is beyond the limit of claims that are looked at",
    "accepted": "it is among the accepted claims",
}


def page(*reports: Report, names: Sequence[str] = ()) -> str:
    """Reports as one self-contained HTML page; several have the names of their texts."""
    from factrl.text.html import page as whole_page

    return whole_page("verifier/report.html", main="verified", **_values(reports, names))


def body(report: Report) -> str:
    """The content of that page, to be put into a page that already has its style sheet."""
    from factrl.text.html import fragment

    return fragment("verifier/report.html", **_values([report], ()))


def _values(reports: Sequence[Report], names: Sequence[str]) -> dict[str, Any]:
    # The claims of all texts are numbered on, as a number is where a link leads to.
    firsts = [*accumulate((len(report.checks) for report in reports), initial=1)][:-1]
    shown = [*map(_shown, reports, firsts, names or [""] * len(reports))]
    whole = _headline(reports)
    return {"title": f"factrl: {whole}", "headline": whole, "kinds": KINDS, "texts": shown}


def _shown(report: Report, first: int, name: str) -> dict[str, Any]:
    skipped = sum(check.verdict is None for check in report.checks)
    unread = Counter(part.kind for part in report.unread())
    facts = {
        "judge": report.judged_by,
        "claims": str(report.claims) + (f" and {skipped} not counted" if skipped else ""),
        "text": f"{len(report.text):,} characters",
        **({"not read": ", ".join(f"{n} × {kind}" for kind, n in unread.items())} if unread else {}),
        "took": f"{report.seconds:.1f} s",
    }
    claims = [_claim(number, check, report) for number, check in enumerate(report.checks, start=first)]
    return {
        "name": name,
        "headline": _headline([report]),
        "report": report,
        "facts": facts,
        "counts": {**report.counts, "skipped": skipped},
        "pieces": _pieces(report.text, claims),
        "claims": sorted(claims, key=lambda one: [*KINDS].index(one["kind"])),
    }


def _headline(reports: Sequence[Report]) -> str:
    """The result in a few words."""
    report, several = reports[0], len(reports) > 1
    if not several and report.failure is not None:
        return "The text could not be checked"
    if not several and report.floored:
        return "The text was not checked"
    count = sum(one.claims for one in reports)
    if not count:
        return "The text declines to answer" if report.abstained and not several else "No claim to check"
    words = {"refuted": "refuted", "unsure": "unsure", "unknown": "unknown", "unjudged": "without a verdict"}
    totals = {kind: sum(one.counts[kind] for one in reports) for kind in words}
    suspects = [f"{totals[kind]} {word}" for kind, word in words.items() if totals[kind]]
    where = f" in {len(reports)} texts" if several else ""
    if not suspects:
        return f"{'The claim is' if count == 1 else f'All {count:,} claims{where} are'} supported"
    return f"{', '.join(suspects)} of {count:,} {'claim' if count == 1 else 'claims'}{where}"


def _claim(number: int, check: Check, report: Report) -> Mapping[str, Any]:
    claim, verdict, length = check.claim, check.verdict, len(report.text)
    notes = []
    if verdict is None:
        notes.append(f"Not counted: {_SKIPPED.get(str(claim.skip), str(claim.skip))}.")
    elif verdict.cause:
        detail = verdict.facts.get("detail")
        more = f": {detail}" if isinstance(detail, str) and detail else ""
        notes.append(f"Cause: {verdict.cause.replace('_', ' ')}{more}")
    if verdict is not None and verdict.why:
        notes.append(verdict.why)
    quote = verdict.quote if verdict is not None else None
    read = list(enumerate(check.passages, start=1))
    return {
        "number": number,
        "kind": check.shown,
        "text": claim.text,
        "place": (claim.start, min(claim.end, length)),
        "found": claim.start < min(claim.end, length),
        "p": verdict.p if verdict is not None else None,
        "notes": notes,
        "deciding": read[quote[0]] if quote else None,
        "excerpt": _excerpt(check.passages[quote[0]].text, *quote[1:]) if quote else None,
        "against": check.against,
        "others": [
            one for one in read if (quote is None or one[0] != quote[0] + 1) and one[1] is not check.against
        ],
    }


def _excerpt(text: str, start: int, end: int) -> tuple[str, str, str]:
    """The text before the quote, the quote, and the text after it."""
    before, after = text[max(0, start - _AROUND) : start], text[end : end + _AROUND]
    if start > _AROUND:  # no word is cut
        before = f"… {before.partition(' ')[2]}"
    if end + _AROUND < len(text):
        after = f"{after.rpartition(' ')[0]} …"
    return before, text[start:end], after


def _pieces(text: str, claims: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The text, cut wherever a claim begins or ends; claims may overlap, as those of one sentence do.

    A piece has the kinds of its claims, the worst first; the first claim of the worst kind; and the claims
    that end with the piece.  The page draws a line below it per kind, the worst next to the letters; the
    style of a line and its letter tell the kinds apart without colour.
    """
    shown = [one for one in claims if one["found"]]
    cuts = sorted({0, len(text), *(place for one in shown for place in one["place"])})
    # In reverse, so that `pop` gives the next.
    later = sorted(shown, key=lambda one: one["place"][0], reverse=True)
    here: list[Mapping[str, Any]] = []
    for start, end in pairwise(cuts):
        while later and later[-1]["place"][0] <= start:
            here.append(later.pop())
        kinds = [kind for kind in KINDS if any(one["kind"] == kind for one in here)]
        yield {
            "text": text[start:end],
            "kinds": kinds,
            "first": min((one["number"] for one in here if one["kind"] == kinds[0]), default=0),
            "ends": sorted((one["number"], one["kind"]) for one in here if one["place"][1] == end),
        }
        here = [one for one in here if one["place"][1] > end]
