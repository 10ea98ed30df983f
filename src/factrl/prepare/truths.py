"""Rows to tune a truthfulness model on: claims of the model's own answers, each supported or refuted.

KLCF's sentence (arXiv:2509.23765, section 2.2) is "negatives x3, positives down-sampled to 2:1"; in which
order and against which count is not known.  It is read here as: every refuted claim stands in the set three
times, then supported claims are drawn until there are at most two for each row of a refuted one.  Claims
that the evidence does not decide are in neither class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from factrl.llm.writers import digest_of
from factrl.verifier.claims.marks import normalised

COPIES = 3  # of a refuted claim
RATIO = 2  # supported claims for each row of a refuted one
READ_AS = (
    "each refuted claim three times, then at most two supported claims for each of these rows; the paper's "
    "own order of the two steps is not known"
)

_CLASSES = ("supported", "refuted")


def truthfulness_rows(
    claims: Iterable[Mapping[str, Any]], seed: int
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Balanced rows from judged claims, and how many claims became what.

    Equal claims are one row, that of the first; a claim that is supported in one place and refuted in another
    is left out.  Which supported claims stay depends on `seed` and their words alone.

    Args:
        claims: rows with `id`, `claim`, `label`, `question` and `group_id`; other labels are passed over.

    Returns:
        Rows with the same columns and `copy`, counted from 0, in the order of the claims; and the counts
        `supported`, `refuted`, `repeated`, `contradictory`, `not_drawn`, `rows`.
    """
    first: dict[str, Mapping[str, Any]] = {}
    labels: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for claim in claims:
        if claim["label"] in _CLASSES:
            words = normalised(claim["claim"])
            counts["repeated"] += words in first
            first.setdefault(words, claim)
            labels.setdefault(words, set()).add(claim["label"])
    counts["contradictory"] = sum(len(said) > 1 for said in labels.values())
    clear = {words: claim for words, claim in first.items() if len(labels[words]) == 1}
    supported = [words for words, claim in clear.items() if claim["label"] == "supported"]
    counts["supported"], counts["refuted"] = len(supported), len(clear) - len(supported)
    room = RATIO * COPIES * counts["refuted"]
    drawn = {*sorted(supported, key=lambda words: digest_of(seed, words))[:room]}
    counts["not_drawn"] = len(supported) - len(drawn)
    rows = [
        {**claim, "copy": copy}
        for words, claim in clear.items()
        if claim["label"] == "refuted" or words in drawn
        for copy in range(COPIES if claim["label"] == "refuted" else 1)
    ]
    counts["rows"] = len(rows)
    names = (*_CLASSES, "repeated", "contradictory", "not_drawn", "rows")
    return rows, {name: counts[name] for name in names}
