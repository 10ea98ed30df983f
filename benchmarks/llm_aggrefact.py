"""The table of the LLM-AggreFact leaderboard: balanced accuracy of a judge on each of its sets, and the mean.

    python benchmarks/llm_aggrefact.py JUDGE [--data FILE] [--per-set N] [--trust-remote-code]

JUDGE is what `--judge` of `factrl verify` takes: local, weak, factcg, factcg:FOLDER, nli:NAME.
The data (lytang/LLM-AggreFact, CC BY-ND 4.0, its terms to be accepted on the hub, and not to be trained on)
is a file with `dataset`, `doc`, `claim` and `label` (1: supported): parquet or jsonl; by default
`llm_aggrefact/test.parquet` in the folder named by FACTRL_DATA.  As on the leaderboard a claim is judged
whole, with its whole document, and counts as supported from 0.5 on.  A claim without a verdict counts as
wrong and is counted beside the table.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from factrl.runs.rows import read_rows
from factrl.types import Claim, Passage
from factrl.verifier import open_judge


def table(rows: list[Mapping[str, object]], supported: list[bool | None]) -> str:
    """Markdown: a row for each set; `supported` is what the judge says, None where it says nothing."""
    found: dict[str, dict[bool, list[bool]]] = defaultdict(lambda: {True: [], False: []})
    for row, said in zip(rows, supported, strict=True):
        truth = bool(row["label"])
        found[str(row["dataset"])][truth].append(said is truth)
    lines = ["| set | claims | balanced accuracy |", "|---|--:|--:|"]
    values = []
    for name, by_truth in sorted(found.items()):
        shares = [sum(right) / len(right) for right in by_truth.values() if right]
        values.append(100 * sum(shares) / len(shares))
        lines.append(f"| {name} | {sum(map(len, by_truth.values()))} | {values[-1]:.1f} |")
    return "\n".join([*lines, f"| mean | {len(rows)} | {sum(values) / len(values):.1f} |"])


def main() -> None:
    """Judge the claims and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("judge")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--per-set", type=int, help="claims of each set, drawn by a fixed seed; without: all")
    parser.add_argument("--trust-remote-code", action="store_true")
    options = parser.parse_args()
    default = Path(os.environ.get("FACTRL_DATA", ".")) / "llm_aggrefact" / "test.parquet"
    data = options.data or default
    if not data.is_file():
        sys.stdout.write(
            f"skipped: {data} is not there; get it at huggingface.co/datasets/lytang/LLM-AggreFact\n"
        )
        return
    by_set: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for row in read_rows(str(data)):
        by_set[str(row["dataset"])].append(row)
    rows = [
        row
        for own in by_set.values()
        for row in random.Random(0).sample(own, min(options.per_set or len(own), len(own)))
    ]
    judge = open_judge(options.judge, trust_remote_code=options.trust_remote_code)
    started = time.process_time()
    verdicts = []
    for start in range(0, len(rows), judge.per_call):
        some = rows[start : start + judge.per_call]
        pairs = [(Claim(str(r["claim"]), 0, len(str(r["claim"]))), [Passage(str(r["doc"]))]) for r in some]
        verdicts += judge.judge(pairs)
    supported = [None if one.label == "unjudged" else one.label == "supported" for one in verdicts]
    spent = (time.process_time() - started) / max(len(rows), 1)
    sys.stdout.write(f"{judge.identity}\n\n{table(rows, supported)}\n\n")
    sys.stdout.write(f"{supported.count(None)} without a verdict; {spent:.3f} CPU seconds a claim\n")


if __name__ == "__main__":
    main()
