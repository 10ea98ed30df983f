"""`factrl label`: what an evaluation's wrong answers do wrong, or what its reasoning does."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from factrl.errors import ConfigError, DataError, TooManyMasked
from factrl.evals.categories import CATEGORIES, KINDS, Sorted, own_categories, shares, sort_rows
from factrl.evals.metrics import bootstrap
from factrl.evals.samples import read_output
from factrl.llm import preflight
from factrl.prepare.dataset import write_rows
from factrl.runs.disk import nothing
from factrl.runs.progress import Progress
from factrl.runs.settings import LOCAL, JudgeSettings
from factrl.train.plan import open_judge

from .options import Verbs, add_options, add_verb, check_place
from .terminal import say, show_rows, tally, tell

_LACKS = {"causes": "wrong answer", "strategies": "well-formed <think> block"}


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verb to the command line."""
    parser = add_verb(
        verbs,
        "label",
        _label,
        about="sort an evaluation's wrong answers by cause, or its reasoning by strategy, with a judge",
        example=(
            "examples:\n"
            "  factrl label out --of causes --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl label out --of strategies --categories mine.json --judge URL --output rows.jsonl\n"
            "The causes are those of FSPO's Appendix E, in our words.\n"
            "Strategies are listed in the judge's own words with a helpfulness score, as factreason does.\n"
            'A file of yours holds {"name": "what it is"}, one of which each text gets.'
        ),
    )
    parser.add_argument("folder", metavar="FOLDER", help="evaluation that factrl eval wrote")
    parser.add_argument("--of", required=True, choices=KINDS, help="what is sorted")
    parser.add_argument("--categories", metavar="FILE.json", help="categories of yours instead")
    parser.add_argument("--output", metavar="FILE.jsonl", help="write the category of each answer, and why")
    add_options(parser, "judge", "limit", "json")


def _label(args: argparse.Namespace) -> int:
    if args.output:
        check_place("--output", Path(args.output), ".jsonl", mine=nothing)
    categories = own_categories(args.categories) if args.categories else CATEGORIES.get(args.of)
    rows = [row for rows in read_output(args.folder).samples.values() for row in rows][: args.limit]
    judge = open_judge(JudgeSettings(url=args.judge))
    if judge is None:
        raise ConfigError("factrl label needs --judge: http://localhost:8000/v1#model or local")
    preflight(judge)
    with Progress("label", len(rows)) as progress:
        workers = 1 if args.judge == LOCAL else 16
        found = sort_rows(args.of, rows, categories, judge, workers=workers, on_done=progress.advance)
    if not found:
        raise DataError(f"{args.folder}: none of {len(rows)} answers has a {_LACKS[args.of]}")
    if args.output:
        write_rows(Path(args.output), [_row(one) for one in found])
    left_out = Counter(one.why for one in found if not one.categories)
    _show(args, categories, found, left_out)
    if left_out.total() == len(found):
        raise TooManyMasked(f"none of {len(found)} answers got a category ({dict(left_out)})")
    return 0


def _row(one: Sorted) -> dict[str, object]:
    about = {"benchmark": one.row.benchmark, "id": one.row.example.id, "number": one.row.number}
    if one.helpfulness is not None:
        return {**about, "strategies": list(one.categories), "helpfulness_score": one.helpfulness}
    return {**about, "category": one.categories[0] if one.categories else None, "why": one.why}


def _show(
    args: argparse.Namespace,
    categories: Mapping[str, str] | None,
    found: Sequence[Sorted],
    left_out: Counter[str],
) -> None:
    counted = shares(found, categories)
    scores = [one.helpfulness for one in found if one.helpfulness is not None]
    helpful = bootstrap(scores) if scores else None
    if args.json:
        about = {"of": args.of, "answers": len(found)}
        about |= {"helpfulness_score": asdict(helpful)} if helpful else {}
        numbers = {name: {"answers": count, "share": share} for name, (count, share) in counted.items()}
        say(json.dumps({**about, "categories": numbers, "left_out": dict(left_out)}, indent=2))
        return
    told = categories or {}
    columns = (args.of, "answers", "share, 95 % interval", "what it is")[: 4 if told else 3]
    rows = [
        (name, str(count), share, told.get(name, "none of these"))[: len(columns)]
        for name, (count, share) in counted.items()
    ]
    show_rows(columns, rows, lines=False)
    if helpful:
        tell(f"helpfulness from 0 to 10: {helpful.value:.2f} [{helpful.low:.2f}, {helpful.high:.2f}]")
    if left_out:
        tell(f"{left_out.total()} of {len(found)} answers have no category ({tally(left_out)})")
