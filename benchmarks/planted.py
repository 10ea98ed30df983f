"""What a checker of texts makes of sixty planted claims, 27 of them false (tests/fixtures/planted.jsonl).

    python benchmarks/planted.py weak|local|URL... [--sure P]

A claim that is shown as supported passes; refuted or unknown it is caught; unsure is unsure.  A planted claim
that no verdict stands over was not checked.  The claims were frozen on 2026-11-25, before the first run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from factrl.llm import connect
from factrl.runs.rows import read_rows
from factrl.verifier import open_verifier
from factrl.verifier.report import KINDS, SURE

CLAIMS = Path(__file__).parents[1] / "tests" / "fixtures" / "planted.jsonl"
ENDS = {"refuted": "caught", "unknown": "caught", "supported": "passed", "unsure": "unsure"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("judges", nargs="+", help="weak, local, or a model server")
    parser.add_argument("--sure", type=float, default=SURE)
    args = parser.parse_args()
    for judge in args.judges:
        counts: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        for row in read_rows(str(CLAIMS)):
            for planted, kind, shown in checked(row, judge, args.sure):
                counts[planted["true"]][ENDS.get(kind, "not checked")] += 1
                sys.stdout.write(
                    f"{judge}\t{row['kind']}\t{planted['true']}\t{kind}\t{shown}\t{planted['text']}\n"
                )
        for true, count in counts.items():
            told = ", ".join(f"{count[end]} {end}" for end in ("caught", "unsure", "passed", "not checked"))
            sys.stdout.write(f"{judge}: of {count.total()} {'true' if true else 'false'} claims {told}\n")


def checked(row: dict[str, Any], judge: str, sure: float) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Each planted claim of a text, the gravest of what is shown over it, and the judge's probability."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"source-{number}.txt") for number, _ in enumerate(row["docs"])]
        for file, text in zip(files, row["docs"], strict=True):
            file.write_text(text, encoding="utf-8")
        llm = connect(judge) if "://" in judge else None
        verifier = open_verifier("local", docs=files, llm=llm, judge=None if llm else judge)
        verifier.deadline = 3600.0  # on a busy machine a text takes longer than anybody would wait
        report = replace(verifier(row["text"]), sure=sure)
    for planted in row["claims"]:
        start = row["text"].index(planted["text"])
        end = start + len(planted["text"])
        over = [one for one in report.checks if one.claim.start < end and start < one.claim.end]
        judged = [one for one in over if one.verdict is not None]
        gravest = min(judged, key=lambda one: [*KINDS].index(report.kind(one)), default=None)
        kind = report.kind(gravest) if gravest else "not checked"
        p = gravest.verdict.p if gravest and gravest.verdict else None
        yield planted, kind, "" if p is None else f"p={p:.2f}"


if __name__ == "__main__":
    main()
