"""`factrl prepare fspo`: FSPO's mix of questions with evidence and mathematics as one file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from factrl.evals.catalogue import benchmarks
from factrl.prepare import Sieve
from factrl.prepare.dataset import write_rows
from factrl.prepare.fspo import FACTS, MATHEMATICS, mix
from factrl.runs.rows import Row, read_rows

from .options import Verbs, a_seed, add_verb, at_least_one, check_place
from .terminal import say, tally, tell


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verb to the command line."""
    parser = add_verb(
        verbs,
        "prepare fspo",
        _run,
        about="mix FSPO's training questions: HotpotQA and 2WikiMultiHopQA with evidence, and mathematics",
        example=(
            "examples:\n"
            "  factrl prepare fspo hotpotqa 2wiki simplerl.jsonl --output train.jsonl\n"
            "  factrl prepare fspo hotpotqa 2wiki --facts 500 --seed 1 --against train.jsonl \\\n"
            "      --output held_out.jsonl\n"
            "then: factrl train fspo:mixed --data train.jsonl …\n"
            "      factrl study fspo --full --train train.jsonl --held-out held_out.jsonl …\n"
            "Of the first two the gold paragraphs are kept (supporting_facts), as in the release."
        ),
    )
    told = "a file as released or with a column `evidence`, or {} for the hub's training split"
    parser.add_argument("hotpotqa", metavar="HOTPOTQA", help=told.format("hotpotqa"))
    parser.add_argument("wiki", metavar="2WIKI", help=told.format("2wiki"))
    about = "questions and answers without evidence, all of which are taken; the paper's are SimpleRL's 8,523"
    parser.add_argument(MATHEMATICS, metavar="MATHEMATICS", nargs="?", help=about)
    about = f"questions of the first two, drawn in the release's proportion (default: {sum(FACTS)})"
    parser.add_argument("--facts", metavar="N", type=at_least_one, default=sum(FACTS), help=about)
    parser.add_argument("--output", metavar="FILE.jsonl", required=True, help="the rows, in an order drawn")
    about = "an evaluation set, file or folder, whose questions are left out; may be repeated"
    parser.add_argument("--against", metavar="EVAL", action="append", default=[], help=about)
    parser.add_argument(
        "--seed", metavar="N", type=a_seed, default=0, help="seed of what is drawn (default: 0)"
    )


def _run(args: argparse.Namespace) -> int:
    check_place("--output", Path(args.output), ".jsonl")
    sources = {"hotpotqa": _rows(args.hotpotqa), "2wikimultihopqa": _rows(args.wiki)}
    if args.mathematics:
        sources[MATHEMATICS] = _rows(args.mathematics)
    rows, counts = mix(sources, args.facts, args.seed, Sieve.read(args.against))
    write_rows(Path(args.output), rows)
    tell(f"{len(rows)} rows ({tally(counts)})")
    facts = len(rows) - counts.get(MATHEMATICS, 0)
    if facts < args.facts:
        tell(f"only {facts} of {args.facts} questions with evidence; give more of them, or a lower --facts")
    say(args.output)
    return 0


def _rows(source: str) -> Iterator[Row]:
    named = benchmarks().get(source)
    return read_rows(named.hub, "train", named.subset) if named and named.hub else read_rows(source)
