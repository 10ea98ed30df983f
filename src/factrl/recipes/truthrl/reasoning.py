"""Table 8's reasoning score: how often the judge calls the reasoning of CRAG's answers precise, in percent.

    python reasoning.py out/eval-ternary --judge http://host:8000/v1#model --output score.json

An answer that declines counts 0, as in the paper (section 4.6); one that could not be graded or rated is in
no number, and is counted.
"""

from __future__ import annotations

import argparse
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean

import factrl as fx
from factrl.runs.rows import read_lines


def rated(rate, row: dict) -> float | None:
    """1 for precise, 0 for vague or declined; None where nobody knows."""
    if row["label"] is None:
        return None
    if row["label"] == "abstained":
        return 0.0
    text = row["completion"]
    reasoning = text.partition("<think>")[2].partition("</think>")[0] or text.partition(r"\boxed")[0]
    try:
        return rate(row["question"], reasoning, row["answers"])
    except (fx.Unscored, fx.LLMError):
        return None


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("evaluation", type=Path, metavar="FOLDER", help="of factrl eval")
    parser.add_argument("--judge", required=True, metavar="URL")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE.json")
    args = parser.parse_args(words)
    rows = [row for row in read_lines(args.evaluation / "samples.jsonl") if row["benchmark"] == "crag"]
    rate = fx.reasoning_judge(fx.connect(args.judge))
    with ThreadPoolExecutor(16) as pool:
        ratings = list(pool.map(lambda row: rated(rate, row), rows))
    known = [(row["label"], value) for row, value in zip(rows, ratings, strict=True) if value is not None]
    parts = {label: [value for of, value in known if of == label] for label, _ in known}
    score = {
        "reasoning_score": 100 * fmean(value for _, value in known) if known else None,
        "by_outcome": {label: 100 * fmean(values) for label, values in sorted(parts.items())},
        "answers": len(known),
        "not_rated": len(rows) - len(known),
    }
    args.output.write_text(json.dumps(score, indent=2) + "\n", encoding="utf-8")
    print(f"{args.evaluation}: {score}")


if __name__ == "__main__":
    main()
