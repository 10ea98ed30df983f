"""`factrl report`: a training run as one HTML page, or runs or evaluations side by side."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from factrl.errors import ConfigError, DataError
from factrl.evals.paired import Paired, WinRate, compare_outputs, llm_preference, win_rate, written_in_both
from factrl.evals.report import beside_rows, names_beside, side_names, write_beside_page, write_paired_page
from factrl.evals.samples import PAGE as EVALUATION_PAGE
from factrl.evals.samples import Output, is_output, read_outputs
from factrl.llm import LLM, preflight
from factrl.llm.models import cache_folder
from factrl.llm.store import Store
from factrl.runs.progress import Progress
from factrl.runs.settings import LOCAL, JudgeSettings
from factrl.text.escape import one_line
from factrl.train.page import PAGE, write_run_page
from factrl.train.plan import open_judge

from .options import Verbs, add_options, add_verb
from .terminal import say, show_rows, tally, tell

COMPARISON = "comparison.html"


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "report",
        _report,
        about="write a training run as one HTML page, or compare evaluations",
        example=(
            "examples:\n"
            "  factrl report runs/knowrl-20260101-120000\n"
            "  factrl report before after --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl report ternary sampled threshold --output risk.html   # risk against coverage"
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
    parser.add_argument(
        "--output",
        metavar="FILE.html",
        help=f"where to (default: {PAGE} in RUN; {COMPARISON} in AFTER)",
    )
    judge = "model that says whose answers it prefers, asked in both orders: `local` or a server"
    add_options(parser, judge=judge, json="print a comparison as JSON")


def _report(args: argparse.Namespace) -> int:
    folders = [args.folder, *args.after]
    evaluations = [folder for folder in folders if is_output(folder)]
    if len(evaluations) == len(folders) == 2:
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
        told = {name: {side: one.benchmarks[name] for side, one in sides.items()} for name in names}
        say(json.dumps(told, indent=2))
    else:
        for name in names:
            head, *rows = zip(*beside_rows(sides, name), strict=True)  # a column for each evaluation
            show_rows(head, rows, title=name)
    tell(f"page: {path}")
    return 0


def _preferred(url: str, before: Output, after: Output, names: Sequence[str]) -> dict[str, WinRate]:
    judge = open_judge(JudgeSettings(url=url))
    if judge is None:
        raise ConfigError("--judge names no model; give `local` or http://host:8000/v1#model")
    preflight(judge)
    return win_rates(judge, before, after, names, workers=1 if url == LOCAL else 16)


def win_rates(
    judge: LLM, before: Output, after: Output, names: Sequence[str], *, workers: int
) -> dict[str, WinRate]:
    """The win rate of the later answers on every benchmark that has texts in both."""
    prefer = llm_preference(judge, store=Store(cache_folder() / "verdicts.db"))
    rates = {}
    for name in names:
        pairs = written_in_both(name, before, after)
        if not pairs:
            tell(f"{name}: no texts to prefer, its options were weighed")
            continue
        with Progress(f"{name}: prefer", len(pairs)) as progress:
            rates[name] = win_rate(pairs, prefer, workers=workers, on_done=progress.advance)
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
            told = f"{pair.fixed} became right, {pair.broken} stopped being right"
            rows.append((first, "McNemar p", f"{pair.p:.3f}", told, "", ""))
        rows += [("", note, "", "", "", "") for note in pair.notes]
        rows.append(None)
    title = " → ".join(side_names(before, after))
    show_rows(("benchmark", "metric", "change", "95 % interval", "", "questions"), rows, title=title)
