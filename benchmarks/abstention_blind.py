"""What the detector of abstentions finds of a blind set, by kind and by language.

    python benchmarks/abstention_blind.py [FILE]

The sets were written by other hands than the training data and the code, and frozen before either changed:
`abstention_blind.jsonl` (400 texts), `abstention_blind2.jsonl` and `abstention_blind3.jsonl` (300 each, the
last is the default).  docs/results.md says how often each was run.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from factrl.evals.metrics import wilson
from factrl.rewards.grading import Grader
from factrl.runs.rows import read_rows

DEFAULT = Path(__file__).with_name("abstention_blind3.jsonl")
FORMS = {"short": "factuality rewards", "sentence": "evaluation"}


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    rows = [_named(row) for row in read_rows(str(path))]
    for form in FORMS:
        grade = Grader(form=form)
        found = [
            grade(row["question"], row["text"], row.get("answers") or ["?"]).label == "abstained"
            for row in rows
        ]
        right = sum(took for took, row in zip(found, rows, strict=True) if row["declines"])
        lines = [f"{form} ({FORMS[form]}): precision {share(right, sum(found))}, "]
        lines[0] += f"recall {share(right, sum(row['declines'] for row in rows))}"
        for field in ("kind", "lang"):
            groups: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
            for took, row in zip(found, rows, strict=True):
                groups[row[field]].append((took, row["declines"]))
            lines += [f"  {name:<12} {counts(pairs)}" for name, pairs in sorted(groups.items())]
        sys.stdout.write("\n".join(lines) + "\n")


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the names of the later sets; the first set has its own."""
    if "declines" in row:
        return row
    names = {"lang": row["language"], "answers": row["accepted"], "declines": row["label"] == "abstained"}
    return {**row, **names}


def counts(pairs: Iterable[tuple[bool, bool]]) -> str:
    """Found of those that decline, and taken for one of the others."""
    pairs = list(pairs)
    yes, no = ([took for took, declines in pairs if declines is side] for side in (True, False))
    return f"found {sum(yes)} of {len(yes)}" * bool(yes) + f"  taken for one {sum(no)} of {len(no)}" * bool(
        no
    )


def share(part: int, whole: int) -> str:
    interval = wilson(part, whole)
    return f"{100 * part / max(whole, 1):.1f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}]"


if __name__ == "__main__":
    main()
