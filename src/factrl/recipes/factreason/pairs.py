"""The rows of SFT and DPO in Learning to Reason for Factuality (arXiv:2508.05618).

    python pairs.py best out/sft-samples --output sft-rows.jsonl
    python pairs.py margin out/dpo-samples --output pairs.jsonl

A folder is an evaluation by `factrl eval --long --samples 10` with the reward's VeriScore; the precision of
a sample is the share of its claims that are supported.  `best` takes the most precise sample of a prompt.
`margin` takes, of all pairs whose precisions differ by more than .1 and whose lengths l of the better and m
of the worse one keep |1 - l / m| <= .1, the pair that differs most; a prompt without one is dropped.
Lengths are in tokens of the whole text (ours: the paper names no unit).  A sample without claims, with
claims that nobody could judge, or not of the form <think>…</think><answer>…</answer>, which it would teach,
is in no row.
"""

import argparse
from collections import Counter
from itertools import combinations
from pathlib import Path

from factrl.prepare.dataset import write_rows
from factrl.runs.rows import read_lines
from factrl.text import think_answer

MARGIN, LENGTHS, ROUNDING = 0.1, 0.1, 1e-9  # 0.4 - 0.3 is a little over 0.1


def measured(row):
    """The precision of a sample; None where it has none."""
    claims = row["marks"].get("claims") or {}
    total = sum(claims.get(name, 0) for name in ("supported", "refuted", "unknown"))
    if row["cause"] or row["floored"] or not total or claims.get("unjudged"):
        return None
    return None if think_answer(row["completion"]).answer is None else claims["supported"] / total


def length(row):
    return row["tokens"] or len(row["completion"].split())


def best(samples):
    """The first of the most precise samples."""
    value, row = max(samples, key=lambda pair: pair[0])
    return {"answers": [row["completion"]], "why": f"precision {value:.3g} of {len(samples)}"}


def margin(samples):
    """The pair that differs most in precision and little in length; None where there is none."""
    near = []
    for one, other in combinations(samples, 2):
        (high, better), (low, worse) = (one, other) if one[0] > other[0] else (other, one)
        ratio = abs(1 - length(better) / max(1, length(worse)))
        if high - low > MARGIN + ROUNDING and ratio <= LENGTHS + ROUNDING:
            near.append((high - low, better, worse, f"{high:.3g} over {low:.3g}"))
    if not near:
        return None
    _, better, worse, why = max(near, key=lambda pair: pair[0])
    return {"chosen": better["completion"], "rejected": worse["completion"], "why": why}


def rows_of(lines, choose):
    """A row for each prompt that `choose` finds one for, and why others have none."""
    groups, left_out, made = {}, Counter(), []
    for row in lines:
        groups.setdefault(row["id"], []).append(row)
    for name, group in groups.items():
        samples = [(value, row) for row in group if (value := measured(row)) is not None]
        chosen = choose(samples) if samples else None
        if chosen is None:
            left_out["no such pair" if samples else "nothing measured"] += 1
        else:
            made.append({"id": name, "question": group[0]["question"], **chosen})
    return made, left_out


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("how", choices=("best", "margin"))
    parser.add_argument("samples", help="folder of `factrl eval --long --samples 10`")
    parser.add_argument("--output", required=True)
    args = parser.parse_args(words)
    lines = read_lines(Path(args.samples) / "samples.jsonl")
    made, left_out = rows_of(lines, {"best": best, "margin": margin}[args.how])
    print(f"{len(made)} rows; left out: {dict(left_out)}")
    if not made:
        raise SystemExit(f"{args.samples}: no row can be learnt from")
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    write_rows(Path(args.output), made)


if __name__ == "__main__":
    main()
