"""KLCF's DPO rows (arXiv:2509.23765): of a question's 8 samples the best over the worst.

    python pairs.py factscore out/samples --output pairs.jsonl
    python pairs.py klc out/samples --train out/dataset/train.jsonl --output pairs.jsonl \\
        reward.alpha=0.4 reward.beta=0.2 reward.gamma=0.4 judge.extractor_model=FOLDER \\
        judge.truthfulness_model=FOLDER judge.checklist_model=FOLDER

out/samples is an evaluation by `factrl eval --long --samples 8`.  `factscore` ranks by the share of supported
claims, which that evaluation has found; `klc` by Eq. 11 of Eqs. 3, 4 and 6, without the general, format and
length terms, over the answer block.  A sample that could not be measured is in no pair, nor is one without
claims (factscore) or in no form (klc), nor a question whose samples are all equal.  Writes question, chosen,
rejected and why.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import factrl as fx
from factrl.job import REWARD_ALONE, read_job
from factrl.prepare.dataset import write_rows
from factrl.runs.rows import read_lines
from factrl.types import Completion

RECIPE = Path(__file__).parent / "recipe.toml"


def factscore(rows):
    """The share of supported claims of each sample; None where it has none or some are not judged."""
    for row in rows:
        claims = row["marks"].get("claims") or {}
        total = sum(claims.get(name, 0) for name in ("supported", "refuted", "unknown"))
        usable = row["cause"] is None and total and not claims.get("unjudged") and not row["floored"]
        yield claims["supported"] / total if usable else None


def klc(rows, train, words):
    """Eq. 11 of each sample; None where it could not be scored or has not the form of an answer."""
    job = read_job(RECIPE, [*REWARD_ALONE, "paper=klcf", *words, "reward.general=0"])
    examples = {example.id: example for example in fx.load_examples(train, require_answers=False)}
    texts = [Completion(row["completion"] or "", truncated=row["truncated"]) for row in rows]
    for result in job.supplied.batch([examples[row["id"]] for row in rows], texts):
        yield None if result.value is None or result.state == "floored" else result.value


def pairs(rows, values):
    """A row for each question with two samples that differ, and why others have none."""
    groups = {}
    for row, value in zip(rows, values, strict=True):
        groups.setdefault(row["id"], []).append((value, row))
    made, left_out = [], Counter()
    for name, group in groups.items():
        known = [(value, row) for value, row in group if value is not None]
        if len(known) < 2:
            left_out["fewer than two measured"] += 1
            continue
        (best, chosen), (worst, rejected) = max(known, key=first), min(known, key=first)
        if best - worst < 1e-9:
            left_out["all equal"] += 1
            continue
        texts = {"chosen": chosen["completion"], "rejected": rejected["completion"]}
        made.append(
            {"id": name, "question": chosen["question"], **texts, "why": f"{best:.3g} over {worst:.3g}"}
        )
    return made, left_out


def first(pair):
    return pair[0]


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("by", choices=("factscore", "klc"))
    parser.add_argument("samples", help="folder of `factrl eval --long --samples 8`")
    parser.add_argument("--train", help="klc: the questions with their checklists")
    parser.add_argument("--output", required=True)
    args, settings = parser.parse_known_args(words)
    if Path(args.output).exists():
        return
    rows = [*read_lines(Path(args.samples) / "samples.jsonl")]
    values = factscore(rows) if args.by == "factscore" else klc(rows, args.train, settings)
    made, left_out = pairs(rows, values)
    print(f"{len(made)} pairs; left out: {dict(left_out)}")
    if not made:
        sys.exit(f"{args.samples}: no question has two samples that differ")
    Path(args.output).parent.mkdir(parents=True, exist_ok=True)
    write_rows(Path(args.output), made)


if __name__ == "__main__":
    try:
        main()
    except fx.FactrlError as error:
        sys.exit(f"pairs.py: {error}")
