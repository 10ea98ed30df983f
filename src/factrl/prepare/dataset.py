"""The folder that `factrl prepare klcf` leaves: the dataset, the rows behind it, and how it came to be.

- `train.jsonl`: id, question and checklist, as `factrl train klcf` reads them; `checklist_claims` names the
  claims that say each item.
- `truthfulness.jsonl`: claim, label (`supported` or `refuted`), question, `group_id` to split by, `copy`.
- `claims.jsonl`: every claim with its verdict, the words that decided and where it stands in its sample.
- `samples.jsonl`: the answers that the claims were found in.
- `about.json`: models, prompts, seeds, and how many of what became of what.

Equal journals make equal files, byte for byte.

The truthfulness rows are balanced.  KLCF's sentence (arXiv:2509.23765, section 2.2) is "negatives x3,
positives down-sampled to 2:1"; in which order and against which count is not known.  It is read here as:
every refuted claim stands in the set three times, then supported claims are drawn until there are at most two
for each row of a refuted one.  Claims that the evidence does not decide are in neither class.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factrl.llm.writers import digest_of
from factrl.runs.disk import write_whole
from factrl.verifier.claims import normalised

from .klcf import Prepared

JOURNAL = "journal.jsonl"
_LABELS = ("supported", "refuted", "unknown", "unjudged")
COPIES = 3  # of a refuted claim
RATIO = 2  # supported claims for each row of a refuted one
READ_AS = (
    "each refuted claim three times, then at most two supported claims for each of these rows; the paper's "
    "own order of the two steps is not known"
)

_CLASSES = ("supported", "refuted")


def write_dataset(
    folder: Path, prepared: Sequence[Prepared], about: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Write all files; returns the counts, which also stand in `about.json`."""
    truths, balance = truthfulness_rows(
        (claim for one in prepared if one.judged for claim in _truths(one.claims)), seed
    )
    counts = {**_counts(prepared), "truthfulness": {**balance, "read_as": READ_AS}}
    write_rows(folder / "train.jsonl", (_row(one) for one in prepared if not one.left_out))
    write_rows(folder / "truthfulness.jsonl", truths)
    write_rows(folder / "claims.jsonl", (claim for one in prepared for claim in one.claims))
    write_rows(folder / "samples.jsonl", (sample for one in prepared for sample in one.samples))
    write_whole(folder / "about.json", json.dumps({**about, "counts": counts}, indent=2).encode() + b"\n")
    return counts


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A JSON Lines file, whole or not at all."""
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def _row(one: Prepared) -> dict[str, Any]:
    example = one.example
    return {
        "id": example.id,
        "question": example.question,
        **({"topic": example.topic} if example.topic else {}),
        "checklist": [fact for fact, _ in one.checklist],
        "checklist_claims": [claims for _, claims in one.checklist],
        "samples": len(one.samples),
    }


def _truths(claims: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    columns = ("id", "claim", "label", "question", "group_id")
    return ({column: claim[column] for column in columns} for claim in claims)


def _counts(prepared: Sequence[Prepared]) -> dict[str, Any]:
    claims = [claim for one in prepared for claim in one.claims]
    over = sum(claim["cause"] == "over_limit" for claim in claims)
    labels = Counter(claim["label"] for claim in claims)
    choices = sum((one.choices for one in prepared), Counter[str]())
    kept = [one for one in prepared if not one.left_out]
    return {
        "prompts": len(prepared),
        "questions": len(kept),
        "left_out": dict(Counter(one.left_out for one in prepared if one.left_out).most_common()),
        "samples": sum(len(one.samples) for one in prepared),
        "claims": sum(labels[label] for label in _LABELS),
        **{label: labels[label] for label in _LABELS},
        "unknown_over_limit": over,  # claims beyond verifier.max_claims, which nobody judged
        "skipped": dict(Counter(c["cause"] for c in claims if c["label"] == "skipped").most_common()),
        "different_supported": sum(choices.values()),
        **{word: choices[word] for word in ("keep", "minor", "duplicate")},
        "checklist_items": sum(len(one.checklist) for one in kept),
    }


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
