"""All studies on one GPU, several processes at a time, each with the rows of one seed that are its own.

    python3 benchmarks/gpu/studies.py run OUT --seeds 0 1 2 --workers 5 --results results.jsonl --minutes 6
    python3 benchmarks/gpu/studies.py table results.jsonl --rate 2.50      # US dollars an hour

A process makes the start of its seed, or waits for it, and then takes the seed's rows in turn.  A row's
result is appended to the results as soon as it is there, so a command that is cut off leaves what it has
done, and the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    run = parts.add_parser("run")
    run.add_argument("out", type=Path)
    run.add_argument("--seeds", type=int, nargs="+", default=[0])
    run.add_argument("--workers", type=int, default=1, help="processes for each seed")
    run.add_argument("--rows", nargs="+", help="study/row, by default all; the first are done first")
    run.add_argument("--studies", nargs="+", default=["factreason", "klcf", "knowrl", "fspo", "truthrl"])
    run.add_argument("--set", action="append", default=[], help="section.key=value of all studies")
    run.add_argument("--model", default="SmolLM2-135M-Instruct")
    run.add_argument("--results", type=Path, default=Path("results.jsonl"))
    run.add_argument("--minutes", type=float, default=60)
    run.add_argument("--small", action="store_true", help="the sizes of two CPU cores")
    run.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    table = parts.add_parser("table")
    table.add_argument("results", type=Path, nargs="+")
    table.add_argument("--rate", type=float, default=0.0, help="US dollars an hour")
    args = parser.parse_args()
    return show(args) if args.part == "table" else work(args) if args.worker else lead(args)


def lead(args: argparse.Namespace) -> int:
    """Start the workers, gather what they finish, end them when the minutes are over."""
    ends = time.monotonic() + 60 * args.minutes
    running = {}
    for number in range(args.workers):
        for seed in args.seeds:
            words = [sys.executable, __file__, *sys.argv[1:], "--worker", str(seed), str(number)]
            log = args.out / f"log-{seed}-{number}.txt"
            log.parent.mkdir(parents=True, exist_ok=True)
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
            running[seed, number] = subprocess.Popen(  # noqa: S603
                words, stdout=log.open("w"), stderr=subprocess.STDOUT, env=environment
            )
    seen: set[Path] = set()
    while time.monotonic() < ends and any(one.poll() is None for one in running.values()):
        time.sleep(2)
        seen |= gather(args, seen)
    seen |= gather(args, seen)
    for one in running.values():
        one.kill()
    failed = [key for key, one in running.items() if one.poll() not in (0, None, -9)]
    for seed, number in failed[:3]:
        sys.stdout.write(
            f"--- worker {seed} {number}\n{(args.out / f'log-{seed}-{number}.txt').read_text()[-3000:]}\n"
        )
    sys.stdout.write(f"{len(seen)} results, {len(failed)} workers failed\n")
    return 1 if failed else 0


def gather(args: argparse.Namespace, seen: set[Path]) -> set[Path]:
    """Append the new results; the paths of them."""
    new = [
        path
        for seed in args.seeds
        for path in sorted((args.out / f"seed-{seed}" / "rows").glob("*.json"))
        if path not in seen
    ]
    with args.results.open("a", encoding="utf-8") as file:
        for path in new:
            row = json.loads(path.read_text("utf-8"))
            file.write(json.dumps({"seed": int(path.parents[1].name.removeprefix("seed-")), **row}) + "\n")
            shown = {name: row[name] for name in ("row", "task", "seconds", "gpu_peak_mb") if name in row}
            sys.stdout.write(f"{path.parents[1].name} {shown}\n")
            sys.stdout.flush()
    return set(new)


def work(args: argparse.Namespace) -> int:
    """One process: the start of its seed, and every row that is its own."""
    from factrl.train.model import for_command_line

    for_command_line()
    from factrl.studies import check_begun, load_study
    from factrl.studies.engine import open_seed

    seed_number, number = args.worker
    named = {Path(name).stem: name for name in args.studies}
    studies = {stem: load_study(name, tuple(args.set), gpu=not args.small) for stem, name in named.items()}
    seed = open_seed(args.out / f"seed-{seed_number}", seed_number, studies, args.model)
    begun = time.monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - begun:.0f} s  {text}\n")
        sys.stdout.flush()

    if number == 0:
        seed.begin(check_begun(seed.folder, studies, args.model))
        seed.make_start(tell)
    while not seed.weights.exists():
        time.sleep(0.5)
    rows = args.rows or [f"{name}/{row}" for name, study in studies.items() for row in study.rows]
    of_task = {study.task: study for study in studies.values()}
    jobs = [("prepare", name) for name in studies if not seed.is_prepared(name, studies[name])]
    jobs += [*(("row", row) for row in rows), *(("start", task) for task in of_task)]
    for place, (kind, name) in enumerate(jobs):
        if place % args.workers != number:
            continue
        if kind == "prepare":
            seed.prepare(name, studies[name], tell)
        elif kind == "start":
            seed.evaluate_start(of_task[name])
        else:
            study_name = name.partition("/")[0]
            while not seed.is_prepared(study_name, studies[study_name]):
                time.sleep(0.5)
            seed.train(name, studies[study_name], tell)
        tell(f"{kind} {name} done")
    return 0


def show(args: argparse.Namespace) -> int:
    """Print the studies' tables, and what each row took."""
    from factrl.cli.study import render
    from factrl.runs.rows import read_rows
    from factrl.studies import load_study, study_names

    results: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in (row for path in args.results for row in read_rows(str(path))):
        results[row["seed"]][f"start-{row['task']}" if row["row"] == "start" else row["row"]] = row
    there = {name.partition("/")[0] for held in results.values() for name in held}
    studies = {name: load_study(name) for name in study_names() if name in there}
    sys.stdout.write(f"{render(studies, results)}\n\n{spent(results, args.rate)}\n")
    return 0


def spent(results: Mapping[int, Mapping[str, Any]], rate: float) -> str:
    """Seconds, tokens and memory of every row's training, means over the seeds."""
    lines = ["| row | steps | seconds, a step | tokens a second | of which CPU | GPU memory | price |"]
    lines.append("|---|--:|--:|--:|--:|--:|--:|")
    trained: dict[str, list[Any]] = defaultdict(list)
    for held in results.values():
        for name, row in held.items():
            if "cpu_seconds" in row:
                trained[name].append(row)
    for name, rows in sorted(trained.items()):
        steps, seconds = len(rows[0]["rewards"]), mean(rows, "seconds")
        tokens = f"{mean(rows, 'tokens') / seconds:.0f}" if all("tokens" in row for row in rows) else "–"
        price = f"{rate * seconds / 3600:.3f}" if rate else "–"
        cpu, memory = mean(rows, "cpu_seconds") / seconds, mean(rows, "gpu_peak_mb") / 1024
        cells = [name, str(steps), f"{seconds:.0f}, {seconds / steps:.1f}", tokens]
        lines.append(f"| {' | '.join([*cells, f'{cpu:.0%}', f'{memory:.1f} GB', price])} |")
    return "\n".join(lines)


def mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.fmean(row[name] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
