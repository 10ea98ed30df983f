"""Which languages the local judge reads: three true and three false claims in each, about the same evidence.

    python benchmarks/languages.py

The claims were written on 2026-11-26 before the first run.  `READS`, above which a text is not judged, was
chosen on set 1, before set 2 was run.  `anyway` is what the judge would say of what it does not read.
"""

from __future__ import annotations

import sys
from pathlib import Path

from factrl.runs.rows import read_rows
from factrl.types import Claim, Passage
from factrl.verifier.judges.local import READS, LocalJudge


def main() -> None:
    judge = LocalJudge()
    for row in read_rows(str(Path(__file__).with_name("languages.jsonl"))):
        evidence = [Passage(row["evidence"])]
        pairs = [(Claim(one["text"], 0, len(one["text"])), evidence) for one in row["claims"]]
        text = " ".join([row["evidence"], *(claim.text for claim, _ in pairs)])
        spelled = judge.model.tokens(text) / len(text)
        read = [verdict.cause is None for verdict in judge.judge(pairs)]
        judge._unread = lambda evidence, claim: None
        verdicts = judge.judge(pairs)
        del judge._unread
        sides = zip(verdicts, row["claims"], strict=True)
        right = sum(((one.p or 0) >= 0.5) == told["true"] for one, told in sides)
        kind = "read" if all(read) else "not read, anyway" if not any(read) else "in parts, anyway"
        sys.stdout.write(
            f"set {row['set']}  {row['language']:<11} {spelled:.2f} tokens a character (most {READS})  "
            f"{kind}: {right} of {len(pairs)} right\n"
        )


if __name__ == "__main__":
    main()
