"""KnowRL's two baselines that choose their rows (arXiv:2506.19807).

    python pairs.py dpo data/r1.jsonl out/samples --output dpo.jsonl
    python pairs.py facttune data/sft.jsonl verifier.index=data/wiki judge.url=URL#MODEL --output rows.jsonl

`dpo` prefers DeepSeek-R1's answer (`chosen` of r1.jsonl) to an own one that is not right, the first
in out/samples, a folder of `factrl eval data/train.jsonl --samples 8`.  What the paper rejects is not known.

`facttune` keeps of the rows for SFT those whose reasoning has the higher FActScore, the share of its claims
that Wikipedia supports, without a penalty for few claims: the better half, and what equals the last of it
(--keep; the paper's limit is not known).  A reasoning that declines or could not be checked is left out.

Verdicts and replies are kept, so that nothing is paid for twice.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import factrl as fx
from factrl.job import REWARD_ALONE, read_job
from factrl.prepare.dataset import write_rows
from factrl.runs.rows import read_rows
from factrl.text import think_answer

RECIPE = Path(__file__).with_name("recipe.toml")
BATCH = 64  # rows that are checked within verifier.deadline


def dpo(rows, samples):
    """Rows with `chosen` and `rejected`, and why the others have none."""
    own = {}
    for sample in samples:
        if sample["label"] in ("incorrect", "abstained") and sample["completion"].strip():
            own.setdefault(sample["question"], sample["completion"])
    made = [{**row, "rejected": own[row["question"]]} for row in rows if row["question"] in own]
    return made, {"all own answers right, or ungraded": len(rows) - len(made)}


def facttune(rows, keep, words):
    """Of the rows those with the highest precision, which they are given, and why the others are not."""
    verify = read_job(RECIPE, [*REWARD_ALONE, "paper=knowrl:format+fact", *words]).supplier.verify()
    scores, left_out = [], Counter()
    for start in range(0, len(rows), BATCH):
        part = rows[start : start + BATCH]
        reports = verify.batch(
            [reasoning(row) for row in part],
            [row["question"] for row in part],
            topics=[row.get("title") or "" for row in part],
        )
        for row, report in zip(part, reports, strict=True):
            score, cause = precision(report)
            scores += [] if cause else [(score, row)]
            left_out[cause] += bool(cause)
    if left_out.total() - left_out["declines"] > len(rows) / 10:
        sys.exit(
            f"pairs.py: {+left_out} of {len(rows)} rows; more than a tenth: mend the judge, and try again"
        )
    ranked = sorted((score for score, _ in scores), reverse=True)
    least = ranked[max(round(keep * len(ranked)), 1) - 1] if ranked else 0.0
    made = [{**row, "factscore": score} for score, row in scores if score >= least]
    return made, {**+left_out, f"below {least:.3g}": len(scores) - len(made)}


def reasoning(row):
    """The reasoning of a row for SFT."""
    think = think_answer(row["completion"]).think
    if think is None:
        raise fx.SetupError(f"row {row['id']!r}: its completion is not <think>…</think><answer>…</answer>")
    return think.text


def precision(report):
    """The share of the claims that are supported, and in a word why there is none."""
    try:
        return report.precision, "declines" if report.precision is None else ""
    except fx.Unscored as error:
        return None, error.cause


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("by", choices=("dpo", "facttune"))
    parser.add_argument("rows", help="r1.jsonl or sft.jsonl")
    parser.add_argument("more", nargs="*", help="dpo: the folder of own answers; facttune: key=value")
    parser.add_argument("--keep", type=float, default=0.5, help="facttune: share of the rows")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(words)
    if args.output.exists():
        return
    rows = list(read_rows(args.rows))
    if args.by == "facttune":
        made, left_out = facttune(rows, args.keep, args.more)
    elif len(args.more) == 1:
        made, left_out = dpo(rows, read_rows(f"{args.more[0]}/samples.jsonl"))
    else:
        parser.error("dpo needs one folder, of `factrl eval` with own answers")
    print(f"{len(made)} of {len(rows)} rows; left out: {left_out}")
    if not made:
        sys.exit(f"pairs.py: {args.rows} gives no row to learn from")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write_rows(args.output, made)


if __name__ == "__main__":
    try:
        main()
    except fx.FactrlError as error:
        sys.exit(f"pairs.py: {error}")
