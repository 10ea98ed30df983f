"""The folder that `factrl prepare klcf` leaves: the dataset, the rows behind it, and how it came to be.

- `train.jsonl`: id, question and checklist, as `factrl train klcf` reads them; `checklist_claims` names the
  claims that say each item.
- `truthfulness.jsonl`: claim, label (`supported` or `refuted`), question, `group_id` to split by, `copy`.
- `claims.jsonl`: every claim with its verdict, the words that decided and where it stands in its sample.
- `samples.jsonl`: the answers that the claims were found in.
- `about.json`: models, prompts, seeds, and how many of what became of what.

Equal journals make equal files, byte for byte.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from factrl.runs.whole_file import write_whole

from .klcf import Prepared
from .truths import READ_AS, truthfulness_rows

JOURNAL = "journal.jsonl"
_LABELS = ("supported", "refuted", "unknown", "unjudged")


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
