"""Twenty sentences about ten subjects with the answers beside them, checked as `factrl verify` checks them.

    python benchmarks/twenty.py [local|weak]

The evidence of every sentence is all ten passages together.  A sentence is right when each of its claims is
supported (answer `supported`), or when one of them is refuted and none is unjudged (answer `refuted`).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from factrl.cli.terminal import say
from factrl.runs.rows import read_rows
from factrl.types import Passage
from factrl.verifier import Report, open_verifier

ROWS = list(read_rows(str(Path(__file__).parent / "twenty.jsonl")))


def verdict(report: Report) -> str:
    """What the report says about the whole sentence."""
    labels = {label for label, count in report.counts.items() if count}
    if "unjudged" in labels or not labels:
        return "unjudged"
    return "refuted" if "refuted" in labels else "supported" if labels == {"supported"} else "unknown"


def main() -> None:
    """Print every sentence with its answer and its verdict, then how many agree."""
    verifier = open_verifier(judge=sys.argv[1] if len(sys.argv) > 1 else "local")
    verifier.deadline = 3600.0  # on a busy machine a batch takes longer than anybody would wait
    evidence = [Passage(row["text"], row["title"]) for row in ROWS]
    right = 0
    started = time.monotonic()
    for row in ROWS:
        # The two sentences of one subject are one text, so that "She" has somebody to mean.
        text = " ".join(said for said, _ in row["sentences"])
        report = verifier(text, topic=row["title"], evidence=evidence)
        for said, answer in row["sentences"]:
            start = report.text.index(said)
            checks = [c for c in report.checks if start <= c.claim.start < start + len(said)]
            found = verdict(Report(said, checks=tuple(checks), judge=report.judge))
            right += found == answer
            say(f"{'ok' if found == answer else 'NO'}  {answer:<9} {found:<9} {said}")
            if found != answer:
                say("\n".join(f"        {line}" for line in str(report).split("\n")))
    say(f"{right}/20 right, {time.monotonic() - started:.0f} s, judge: {verifier.judge.identity}")


if __name__ == "__main__":
    main()
