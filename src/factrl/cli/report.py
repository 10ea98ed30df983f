"""`factrl report`: a training run as one HTML page, evaluations side by side, one's answers by category."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from factrl.errors import ConfigError, DataError, TooManyMasked
from factrl.evals.categories import CAUSES, KINDS, Categorized, categorize, shares
from factrl.evals.metrics import bootstrap
from factrl.evals.paired import Paired, WinRate, compare_outputs, texts_in_both, win_rate
from factrl.evals.report import beside_rows, names_beside, side_names, write_beside_page, write_paired_page
from factrl.evals.samples import PAGE as EVALUATION_PAGE
from factrl.evals.samples import Output, is_output, read_output, read_outputs
from factrl.job import open_judge
from factrl.llm import LLM, preflight
from factrl.llm.models import cache_folder
from factrl.llm.store import Store, kept
from factrl.rewards.preference import second_wins
from factrl.runs.settings import JudgeSettings
from factrl.text.escape import one_line
from factrl.train.page import PAGE, write_run_page

from .options import Verbs, add_option, add_options, add_verb
from .terminal import say, show_rows, tally, tell

COMPARISON = "comparison.html"
_LACKS = {"causes": "wrong answer", "strategies": "well-formed <think> block"}


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "report",
        _report,
        about="make a page of a training run, compare or sort evaluations",
        example=(
            "examples:\n"
            "  factrl report runs/knowrl-20260101-120000\n"
            "  factrl report before after --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl report ternary sampled threshold --output risk.html   # risk against coverage\n"
            "  factrl report out --of causes --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "Causes are those of FSPO's Appendix E, in our words. Strategies are listed in the judge's own\n"
            "words with a helpfulness score, as factreason does. --json has each answer's too."
        ),
    )
    parser.add_argument("folder", metavar="RUN", help="run folder; the run may still go on")
    parser.add_argument(
        "after",
        metavar="AFTER",
        nargs="*",
        help="another evaluation: RUN and AFTER are of factrl eval; of more than two, their numbers and risk "
        "against coverage side by side",
    )
    add_option(parser, "--output FILE.html", f"where to (default: {PAGE} in RUN; {COMPARISON} in AFTER)")
    about = "sort the wrong answers of one evaluation by cause, or its reasoning by strategy, with --judge"
    parser.add_argument("--of", choices=KINDS, help=about)
    judge = "`local` or a server: which of two answers it prefers, asked in both orders; or what --of asks"
    add_options(parser, judge=judge, json="print a comparison, or what --of finds, as JSON")


def _report(args: argparse.Namespace) -> int:
    folders = [args.folder, *args.after]
    if args.of:
        return _sort(args)
    evaluations = [folder for folder in folders if is_output(folder)]
    if evaluations and len(folders) == 2:
        return _compare(args)
    if evaluations and len(folders) > 2 and args.judge is None:
        return _beside(args, read_outputs(folders))
    for option, what in (("json", "prints a comparison"), ("judge", "compares answers")):
        if getattr(args, option):
            raise ConfigError(f"--{option} {what}; name two folders of factrl eval")
    for folder in evaluations:
        raise ConfigError(
            f"{folder} is an evaluation, whose page is {Path(folder) / EVALUATION_PAGE}; name a second one "
            "to compare it with"
        )
    if args.after:
        raise ConfigError(
            "a training run has a page of its own; compare runs in a tracker (train.report_to=wandb), or "
            "what their models answer: factrl eval of each, then factrl report BEFORE AFTER"
        )
    say(str(write_run_page(args.folder, args.output)))
    return 0


def _compare(args: argparse.Namespace) -> int:
    before, after = read_outputs([args.folder, *args.after])
    pairs = compare_outputs(before, after)
    rates = {} if args.judge is None else _preferred(args.judge, before, after, [pair.name for pair in pairs])
    path = Path(args.output) if args.output is not None else after.folder / COMPARISON
    write_paired_page(path, before, after, pairs, rates)
    if args.json:
        document = {pair.name: pair.to_json() for pair in pairs}
        for name, rate in rates.items():
            document[name]["preference"] = asdict(rate)
        say(json.dumps(document, indent=2))
    else:
        _show(before, after, pairs)
        for name, rate in rates.items():
            masked = one_line(tally(rate.masked)) or "none"
            say(
                f"{name}: {args.judge} prefers the latter in {rate.rate or '–'} %: {rate.wins} wins, "
                f"{rate.ties} ties, {rate.losses} losses; of the ties it stuck to the first place in "
                f"{rate.first_place}, to the second in {rate.second_place}; masked: {masked}"
            )
    tell(f"page: {path}")
    return 0


def _beside(args: argparse.Namespace, outputs: Sequence[Output]) -> int:
    sides = names_beside(outputs)
    names = [name for name in outputs[0].benchmarks if all(name in one.benchmarks for one in outputs)]
    if not names:
        raise DataError(f"{', '.join(sides)}: no benchmark is in all of them")
    path = Path(args.output) if args.output is not None else outputs[-1].folder / COMPARISON
    write_beside_page(path, sides, names)
    if args.json:
        numbers = {name: {side: one.benchmarks[name] for side, one in sides.items()} for name in names}
        say(json.dumps(numbers, indent=2))
    else:
        for name in names:
            head, *rows = zip(*beside_rows(sides, name), strict=True)  # a column for each evaluation
            show_rows(head, rows, title=name)
    tell(f"page: {path}")
    return 0


def _sort(args: argparse.Namespace) -> int:
    if args.after or args.output:
        raise ConfigError("--of sorts the answers of one evaluation; --json prints each answer's")
    rows = [row for rows in read_output(args.folder).samples.values() for row in rows]
    judge, workers = _judge(args.judge)
    sorted_rows = categorize(args.of, rows, judge, workers)
    if not sorted_rows:
        raise DataError(f"{args.folder}: none of {len(rows)} answers has a {_LACKS[args.of]}")
    left_out = Counter(one.why for one in sorted_rows if not one.categories)
    counted = shares(args.of, sorted_rows)
    scores = [one.helpfulness for one in sorted_rows if one.helpfulness is not None]
    helpful = bootstrap(scores) if scores else None
    if args.json:
        about = {"of": args.of, "answers": len(sorted_rows)}
        about |= {"helpfulness_score": asdict(helpful)} if helpful else {}
        numbers = {name: {"answers": count, "share": share} for name, (count, share) in counted.items()}
        about |= {"categories": numbers, "left_out": dict(left_out), "rows": [*map(_row, sorted_rows)]}
        say(json.dumps(about, indent=2))
    else:
        cells = [(name, str(count), share, CAUSES.get(name, "")) for name, (count, share) in counted.items()]
        show_rows((args.of, "answers", "share, 95 % interval", ""), cells, lines=False)
        if helpful:
            tell(f"helpfulness from 0 to 10: {helpful.value:.2f} [{helpful.low:.2f}, {helpful.high:.2f}]")
    if left_out:
        tell(f"{left_out.total()} of {len(sorted_rows)} answers have no category ({tally(left_out)})")
    if left_out.total() == len(sorted_rows):
        raise TooManyMasked(f"none of {len(sorted_rows)} answers got a category ({dict(left_out)})")
    return 0


def _row(one: Categorized) -> dict[str, object]:
    about = {"benchmark": one.row.benchmark, "id": one.row.example.id, "number": one.row.number}
    if one.helpfulness is not None:
        return {**about, "strategies": list(one.categories), "helpfulness_score": one.helpfulness}
    return {**about, "category": one.categories[0] if one.categories else None, "why": one.why}


def _judge(url: str | None) -> tuple[LLM, int]:
    """The judge, which is there, and how many calls it takes at once."""
    settings = JudgeSettings(url=url)
    judge = open_judge(settings)
    if judge is None:
        raise ConfigError("--judge names no model; give `local` or http://host:8000/v1#model")
    preflight(judge)
    return judge, settings.callers


def _preferred(url: str, before: Output, after: Output, names: Sequence[str]) -> dict[str, WinRate]:
    judge, workers = _judge(url)
    return win_rates(judge, before, after, names, workers=workers)


def win_rates(
    judge: LLM, before: Output, after: Output, names: Sequence[str], *, workers: int
) -> dict[str, WinRate]:
    """The win rate of the later answers on every benchmark that has texts in both."""
    prefer = partial(second_wins, kept(judge, Store(cache_folder() / "verdicts.db")), max_tokens=512)
    rates = {}
    for name in names:
        pairs = texts_in_both(name, before, after)
        if not pairs:
            tell(f"{name}: no texts to prefer, its options were weighed")
            continue
        rates[name] = win_rate(name, pairs, prefer, workers)
    return rates


def _show(before: Output, after: Output, pairs: Sequence[Paired]) -> None:
    rows: list[Sequence[str] | None] = []
    for pair in pairs:
        first, numbers = pair.name, {**before.numbers(pair.name), **after.numbers(pair.name)}
        for metric, change in pair.differences.items():
            if change is not None:
                if metric not in numbers or numbers[metric].percent:
                    value, limits = change.signed().split(" ", 1)
                else:  # no share, such as supported claims
                    value, limits = f"{change.value:+.2f}", f"[{change.low:+.2f}, {change.high:+.2f}]"
                clear = "clear" if change.excludes_zero else ""
                rows.append((first, metric.replace("_", " "), value, limits, clear, str(pair.n)))
                first = ""
        if pair.p is not None:
            explained = f"{pair.fixed} became right, {pair.broken} stopped being right"
            rows.append((first, "McNemar p", f"{pair.p:.3f}", explained, "", ""))
        left = f"{pair.left_out} questions are left out: in one only, or not graded in both"
        notes = [left, *pair.notes] if pair.left_out else pair.notes
        rows += [("", note, "", "", "", "") for note in notes]
        rows.append(None)
    title = " → ".join(side_names(before, after))
    show_rows(("benchmark", "metric", "change", "95 % interval", "", "questions"), rows, title=title)
