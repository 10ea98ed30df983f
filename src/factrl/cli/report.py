"""`factrl report`: a training run as one HTML page, or two evaluations compared."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from factrl.errors import ConfigError
from factrl.evals.folder import PAGE as EVALUATION_PAGE
from factrl.evals.folder import Output, is_output, read_outputs
from factrl.evals.paired import Paired, WinRate, compare_outputs, texts_in_both, win_rate
from factrl.evals.report import side_names, write_paired_page
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


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "report",
        _report,
        about="make a page of a training run, or compare two evaluations",
        example=(
            "examples:\n"
            "  factrl report runs/knowrl-20260101-120000\n"
            "  factrl report before after --judge http://localhost:8000/v1#Qwen/Qwen3-8B"
        ),
    )
    parser.add_argument("folder", metavar="RUN", help="run folder; the run may still go on")
    parser.add_argument(
        "after",
        metavar="AFTER",
        nargs="*",
        help="another evaluation: RUN and AFTER are of factrl eval",
    )
    add_option(parser, "--output FILE.html", f"where to (default: {PAGE} in RUN; {COMPARISON} in AFTER)")
    judge = "`local` or a server: which of two answers it prefers, asked in both orders"
    add_options(parser, judge=judge, json="print a comparison as JSON")


def _report(args: argparse.Namespace) -> int:
    folders = [args.folder, *args.after]
    evaluations = [folder for folder in folders if is_output(folder)]
    if evaluations and len(folders) == 2:
        return _compare(args)
    if evaluations and len(folders) > 2:
        raise ConfigError("two evaluations are compared; name RUN and AFTER, or read each results.json")
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
