"""`factrl report`: a training run as one HTML page, or evaluations compared with a first one."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError
from factrl.evals.folder import PAGE as EVALUATION_PAGE
from factrl.evals.folder import Output, is_output, read_outputs
from factrl.evals.metrics import Interval, Number
from factrl.evals.paired import Paired, WinRate, compare_outputs, texts_in_both, win_rate
from factrl.evals.published import AVERAGE, Published, read_published, row_name
from factrl.job import open_judge
from factrl.llm import preflight
from factrl.llm.models import cache_folder
from factrl.llm.store import Store, kept
from factrl.rewards.preference import second_wins
from factrl.runs.settings import JudgeSettings
from factrl.text.escape import one_line
from factrl.train.page import PAGE, write_run_page

from .options import Verbs, add_option, add_options, add_verb
from .terminal import say, show_rows, tally, tell


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "report",
        _report,
        about="make a page of a training run, or compare evaluations",
        example=(
            "examples:\n"
            "  factrl report runs/knowrl-20260101-120000\n"
            "  factrl report before after --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl report out/eval-base out/eval-sft out/eval-ternary \\\n"
            "      --published recipes/truthrl/table.toml"
        ),
    )
    parser.add_argument("folder", metavar="RUN", help="run folder; the run may still go on")
    parser.add_argument(
        "after",
        metavar="AFTER",
        nargs="*",
        help="evaluations that are compared with RUN: all are folders of factrl eval",
    )
    add_option(parser, "--output FILE.html", f"where the page of a run goes (default: {PAGE} in RUN)")
    add_option(
        parser,
        "--published TABLE.toml",
        "a paper's numbers, and its metrics alone: beside the same model, benchmark and answers per question",
    )
    judge = "`local` or a server, for one AFTER: which of two answers it prefers, asked in both orders"
    add_options(parser, judge=judge, json="print a comparison as JSON")


def _report(args: argparse.Namespace) -> int:
    folders = [args.folder, *args.after]
    evaluations = [folder for folder in folders if is_output(folder)]
    if evaluations and args.after:
        return _compare(args)
    for option, what in (
        ("json", "prints a comparison"),
        ("judge", "compares answers"),
        ("published", "stands beside a comparison"),
    ):
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
    outputs = read_outputs([args.folder, *args.after])
    before, *others = outputs
    table = read_published(args.published) if args.published else None
    two, changed = len(others) == 1, [compare_outputs(before, after) for after in others]
    if args.output is not None:
        raise ConfigError("--output is for the page of a run; a comparison is printed, with --json as data")
    if args.judge is not None and not two:
        raise ConfigError("--judge tells which of two answers is better; name one AFTER")
    rates: dict[str, WinRate] = {}
    if args.judge is not None:
        rates = _win_rates(args.judge, before, others[0], [pair.name for pair in changed[0]])
    if args.json:
        documents = [_document(*one, rates, table) for one in zip(others, changed, strict=True)]
        names = [str(after.folder) for after in others]
        say(json.dumps(documents[0] if two else dict(zip(names, documents, strict=True)), indent=2))
    else:
        _show(before, list(zip(others, changed, strict=True)), table)
        for name, rate in rates.items():
            masked = one_line(tally(rate.masked)) or "none"
            say(
                f"{name}: {args.judge} prefers the latter in {rate.rate or '–'} %: {rate.wins} wins, "
                f"{rate.ties} ties, {rate.losses} losses; of the ties it stuck to the first place in "
                f"{rate.first_place}, to the second in {rate.second_place}; masked: {masked}"
            )
    return 0


def _document(
    after: Output, pairs: Sequence[Paired], rates: Mapping[str, WinRate], table: Published | None
) -> dict[str, Any]:
    """A comparison as plain data, by benchmark."""
    document = {pair.name: pair.to_json() for pair in pairs}
    for name, rate in rates.items():
        document[name]["preference"] = asdict(rate)
    for name, one in document.items():
        if table and (row := table.beside(after, name)):
            one["published"] = {
                metric: {"value": value, "change": table.change(row, metric)}
                for metric, value in row.values.items()
            }
    return document


def _win_rates(url: str, before: Output, after: Output, names: Sequence[str]) -> dict[str, WinRate]:
    """The win rate of the later answers on each benchmark that has texts in both, by the judge at the URL."""
    settings = JudgeSettings(url=url)
    judge = open_judge(settings)
    if judge is None:
        raise ConfigError("--judge names no model; give `local` or http://host:8000/v1#model")
    preflight(judge)
    prefer = partial(second_wins, kept(judge, Store(cache_folder() / "verdicts.db")), max_tokens=512)
    rates = {}
    for name in names:
        pairs = texts_in_both(name, before, after)
        if not pairs:
            tell(f"{name}: no texts to prefer, its options were weighed")
            continue
        rates[name] = win_rate(name, pairs, prefer, settings.callers)
    return rates


Compared = Sequence[tuple[Output, Sequence[Paired]]]


def _show(before: Output, others: Compared, table: Published | None) -> None:
    names = [pair.name for pair in others[0][1]]
    rows: list[Sequence[str] | None] = []
    for name in [*names, *[AVERAGE] * (len(names) > 1)]:
        lines = [*_lines(name, before, others, table)]
        rows += [(name if not at else "", *cells) for at, cells in enumerate(lines)]
        rows.append(None)
    columns = ("benchmark", "metric", "evaluation", "value", f"change from {row_name(before)}", "")
    show_rows((*columns, *(("paper", "its change") if table else ())), rows)
    if table:
        say(f"paper: {table.source}; its change is from the row that it names as its start")


def _lines(name: str, before: Output, others: Compared, table: Published | None) -> Iterator[Sequence[str]]:
    """The cells behind the benchmark's name: each metric of each evaluation, and what goes with them."""
    pairs = [(after, *_changes(name, before, after, pairs)) for after, pairs in others]
    published = {metric for row in table.rows for metric in row.values} if table else set[str]()
    metrics = dict.fromkeys(
        metric
        for _, numbers, changes in pairs
        for metric in [*changes, *numbers]
        if (metric in published if table else changes.get(metric) is not None)
    )
    for metric in metrics:
        sides = [(before, _numbers(name, before), {}), *pairs]
        for at, (output, numbers, changes) in enumerate(sides):
            value, change = numbers.get(metric), changes.get(metric)
            percent = value is None or getattr(value, "percent", True)
            cells = [
                metric.replace("_", " ") if not at else "",
                row_name(output),
                str(value) if value else "–",
                "" if change is None else change.signed() if percent else _counted(change),
                "clear" if change is not None and change.excludes_zero else "",
            ]
            if table:
                row = table.beside(output, name)
                known = row.values.get(metric) if row else None
                moved = table.change(row, metric) if row else None
                cells += [
                    f"{known:g}" if known is not None else "",
                    f"{moved:+.1f}" if moved is not None else "",
                ]
            yield cells
    blank = ("", "") if table else ()
    for after, pair in ((after, pair) for after, pairs in others for pair in pairs if pair.name == name):
        if pair.p is not None:
            explained = f"{pair.fixed} became right, {pair.broken} stopped being right"
            yield ("McNemar p", row_name(after), f"{pair.p:.3f}", explained, "", *blank)
        left = f"{pair.left_out} questions are left out: in one only, or not graded in both"
        for note in [*([left] if pair.left_out else []), *pair.notes]:
            yield ("", row_name(after), "", note, "", *blank)


def _changes(
    name: str, before: Output, after: Output, pairs: Sequence[Paired]
) -> tuple[Mapping[str, Interval], Mapping[str, Interval | None]]:
    """The numbers of the latter and their changes, on one benchmark or the average of all."""
    if name != AVERAGE:
        return _numbers(name, after), next(pair.differences for pair in pairs if pair.name == name)
    numbers, changes = _numbers(name, after), _mean([pair.differences for pair in pairs])
    return numbers, {metric: change for metric, change in changes.items() if metric in numbers}


def _numbers(name: str, output: Output) -> Mapping[str, Interval]:
    if name != AVERAGE:
        return output.numbers(name)
    return _mean([output.numbers(one) for one in output.benchmarks])


def _mean(sides: Sequence[Mapping[str, Interval | None]]) -> dict[str, Interval]:
    """The mean of a number over benchmarks, each counting alike; their questions are independent."""
    means = dict[str, Interval]()
    for metric in sides[0]:
        known = [one for side in sides if (one := side.get(metric)) is not None]
        if len(known) < len(sides):
            continue
        value = sum(one.value for one in known) / len(known)
        low, high = (
            math.hypot(*(getattr(one, limit) - one.value for one in known)) / len(known)
            for limit in ("low", "high")
        )
        counted = any(isinstance(one, Number) and not one.percent for one in known)
        spread = (value, value - low, value + high)
        means[metric] = Number(*spread, len(known), percent=False) if counted else Interval(*spread)
    return means


def _counted(change: Interval) -> str:
    """A change of what is no share, such as supported claims."""
    return f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"
