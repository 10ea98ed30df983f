"""How far the embedded judges can be believed, and what correcting a precision with that is worth.

    python benchmarks/judge_quality.py --data FOLDER --scores FILE [--only weak] [--output FOLDER]

Claims, judges and raw scores are those of `benchmarks/verifier.py`, whose file of scores is read and filled
in.  A judge's verdict on a document is that of a calibration fitted on the other documents.

The second table is a trial: half of the documents give the judge's sensitivity and specificity, the other
half is evaluated, once as it is and once without two thirds of its unsupported claims, which is closer to
what a good model writes.  People's own share stands beside the raw and the corrected one.

`--output` writes a JSON file for each judge, which corrects the precision of an evaluation with the same
judge.  The labels are of the seven sets together; for texts of another kind, label your own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from verifier import FILES, Item, fitted, fold, load, sample, score

from factrl.evals.judge_quality import Judged, JudgeQuality, measure
from factrl.evals.metrics import summed
from factrl.verifier.judges import LocalJudge, WeakJudge

KEPT = 3  # one of so many unsupported claims stays in the second trial


def told(items: Sequence[Item], judge: str) -> list[Judged]:
    """What people and the judge say of each item."""
    predicted = fitted(items, judge, None, fold)
    return [
        Judged(item.supported, bool(said), f"{item.set} {item.group}")
        for item, said in zip(items, predicted.supported, strict=True)
    ]


def quality_table(items: Sequence[Item], verdicts: Mapping[str, Sequence[Judged]]) -> list[str]:
    """Agreement, sensitivity, specificity and kappa: of all claims, and without an interval of each set."""
    names = ("agreement", "sensitivity", "specificity", "kappa")
    lines = [f"| judge, claims | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for judge, judged in verdicts.items():
        found = measure(judged).metrics
        cells = [str(found[name] or "–") for name in names]
        lines.append(f"| **{judge}**, all {len(items)} | {' | '.join(cells)} |")
        for name in FILES:
            part = [one for one, item in zip(judged, items, strict=True) if item.set == name]
            if part:
                values = [measure(part, least=1).metrics[name] for name in names]
                cells = [f"{100 * value.value:.0f}" if value else "–" for value in values]
                lines.append(f"| {judge}, {name} ({len(part)}) | {' | '.join(cells)} |")
    return lines


def trial_table(items: Sequence[Item], verdicts: Mapping[str, Sequence[Judged]]) -> list[str]:
    """People's share of supported claims beside the raw and the corrected one."""
    lines = ["| judge | claims | people | raw | corrected |", "|---|---|---|---|---|"]
    for judge, judged in verdicts.items():
        quality = measure([one for one, item in zip(judged, items, strict=True) if fold(item) % 2])
        others = [one for one, item in zip(judged, items, strict=True) if not fold(item) % 2]
        missing = [one for one in others if not one.truth]
        fewer = [one for one in others if one.truth] + missing[::KEPT]
        for evaluated in (others, fewer):
            columns = np.array([[bool(one.said), 1.0, one.truth] for one in evaluated], dtype=np.float64)
            _, sums = summed([one.group for one in evaluated], columns)
            found = quality.correct(sums[:, :2])
            people = 100 * columns[:, 2].mean()
            shown = f"{found.interval}{' (clipped)' if found.interval.value != found.unclipped else ''}"
            lines.append(f"| {judge} | {len(evaluated)} | {people:.1f} | {found.raw} | {shown} |")
    return lines


def identity(judge: str) -> str:
    """Of the judge that factrl ships."""
    if judge == "local":
        return LocalJudge().identity
    if judge == "weak":
        return WeakJudge().identity
    from factrl.llm.local.embed import Potion

    return WeakJudge(Potion()).identity


def main() -> None:
    """Score what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("FACTRL_DATA"), help="the staged data")
    parser.add_argument("--scores", type=Path, default=Path("build/verifier.jsonl"), help="raw scores, kept")
    parser.add_argument("--per-set", type=int, default=100, help="claims of each set")
    parser.add_argument("--only", default="weak,embedded,local", help="judges, separated by commas")
    parser.add_argument("--output", type=Path, help="write a quality for each judge into this folder")
    options = parser.parse_args()
    if not options.data:
        parser.error("name the folder with the data: --data FOLDER, or set FACTRL_DATA")
    judges = options.only.split(",")
    items = [item for name in FILES for item in sample(load(Path(options.data), name), options.per_set)]
    score(items, options.scores, judges)
    items = [item for item in items if all(judge in item.scores for judge in judges)]
    verdicts = {judge: told(items, judge) for judge in judges}
    tables = (quality_table(items, verdicts), trial_table(items, verdicts))
    sys.stdout.write("\n\n".join("\n".join(table) for table in tables) + "\n")
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        for judge in judges:
            found: JudgeQuality = measure(verdicts[judge], identity(judge))
            path = options.output / f"{judge}.json"
            path.write_text(json.dumps(found.to_json()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
