"""FSPO's data (arXiv:2505.24630, App. C): from public files to what run.sh reads.

    python data.py --facts hotpotqa 2wiki --mathematics simplerl.parquet --output data
    python data.py --facts FSPO/data/hotpot/qwen-base-4k/train.parquet \\
        --mathematics FSPO/data/simple-rl/qwen-base/train.parquet --output data

It writes into --output:

    train.jsonl        2,000 questions of --facts, each with the paragraphs that its answer needs as
                       `evidence`, and all of --mathematics, without (8,523 in the paper, SimpleRL's choice)
    train-1000.jsonl   the same with 1,000, and so on with 4,000 and 8,000 (Fig. 6); each has the rows of a
                       smaller one, and one for which there are too few is not written, and said
    held_out.jsonl     further questions of --facts, for the share of true steps (Fig. 7); their number is
                       ours

--facts are names of `factrl eval`, whose training split is taken, or files, as upstream has them or with
`evidence`; HotpotQA and then 2WikiMultiHopQA are drawn as 4,761 to 3,737, as R1-Searcher's subset has them,
of which the paper draws 2,000.  The second call reads the authors' own rows (nusnlp/FSPO), 4,000 of the two:
with --held-out 0 they are train-4000.jsonl.  Seed and order of the paper's draw are not known.
"""

import argparse
import random
import sys
from pathlib import Path

import factrl as fx
from factrl.evals.catalogue import benchmarks, paragraphs
from factrl.prepare import Sieve
from factrl.prepare.dataset import write_rows
from factrl.runs.data import to_example, unpacked
from factrl.runs.disk import anything
from factrl.runs.rows import read_rows

SHARES = (4761, 3737)
SIZES = {"train.jsonl": 2000, **{f"train-{size}.jsonl": size for size in (1000, 4000, 8000)}}


def source(name):
    """The rows of a benchmark's training split, or of a file."""
    known = benchmarks().get(name)
    return read_rows(known.hub, "train", known.subset) if known and known.hub else read_rows(name)


def gold(row, at):
    """The row with the paragraphs alone that its answer needs, where it says which."""
    row = paragraphs(row, at) if "context" in row else row
    passages = unpacked(row.get("evidence"))
    if not isinstance(passages, list):
        return row
    kept = [one for one in passages if not (isinstance(one, dict) and one.get("is_supporting") is False)]
    return {**row, "evidence": kept}


def rows_of(name, sieve, *, facts):
    """The rows of a source that are in no set to leave out; each has an answer, and facts have evidence."""
    for number, row in enumerate(source(name), start=1):
        at = f"{name}, row {number}"
        example = to_example(gold(row, at) if facts else row, at=at)
        if not (example.question and example.answers and (example.evidence or not facts)):
            wanted = "question, answer and evidence" if facts else "question and answer"
            raise fx.SetupError(f"{at} has not {wanted}; its columns: {', '.join(row)}")
        if sieve.found_in(example.question) is None:
            kind = "facts" if facts else "mathematics"
            about = {"id": f"{kind}-{Path(name).stem}-{number}", "data_source": kind}
            evidence = [{"title": one.title, "text": one.text} for one in example.evidence]
            made = {**about, "question": example.question, "answers": [*example.answers]}
            yield {**made, "evidence": evidence} if facts else made


def split(size, pools):
    """How many of each pool make up a size."""
    if len(pools) != len(SHARES):
        return [size // len(pools)] * len(pools)
    first = round(size * SHARES[0] / sum(SHARES))
    return [first, size - first]


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--facts", nargs="+", required=True, metavar="NAME_OR_FILE")
    parser.add_argument("--mathematics", required=True, metavar="FILE")
    parser.add_argument("--against", nargs="*", default=(), metavar="FILE", help="leave their questions out")
    parser.add_argument("--held-out", type=int, default=500, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args(words)
    draw, sieve = random.Random(args.seed), Sieve.read(args.against)
    pools = [[*rows_of(name, sieve, facts=True)] for name in args.facts]
    sums = [*rows_of(args.mathematics, sieve, facts=False)]
    for pool in pools:
        draw.shuffle(pool)
    parts = split(args.held_out, pools)
    held = [row for pool, n in zip(pools, parts, strict=True) for row in pool[len(pool) - n :]]
    pools = [pool[: len(pool) - n] for pool, n in zip(pools, parts, strict=True)]
    args.output.mkdir(parents=True, exist_ok=True)
    if held:
        write_rows(args.output / "held_out.jsonl", held, anything)
    for name, size in SIZES.items():
        parts = split(size, pools)
        if any(n > len(pool) for pool, n in zip(pools, parts, strict=True)):
            have = [*map(len, pools)]
            print(f"{name}: not written; it takes {parts} rows of {args.facts}, which have {have}")
            continue
        mixed = [row for pool, n in zip(pools, parts, strict=True) for row in pool[:n]] + sums
        draw.shuffle(mixed)
        write_rows(args.output / name, mixed, anything)
        print(f"{name}: {size} with evidence, {len(sums)} of mathematics")
    print(f"held_out.jsonl: {len(held)}")


if __name__ == "__main__":
    try:
        main()
    except fx.FactrlError as error:
        sys.exit(f"data.py: {error}")
