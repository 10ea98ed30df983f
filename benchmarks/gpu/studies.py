"""All studies on one GPU, several processes at a time, each with the rows of one seed that are its own.

    python3 benchmarks/gpu/studies.py OUT --seeds 0 1 2 --workers 5 --results results.jsonl --minutes 6

A process makes the start of its seed, or waits for it, and then takes the seed's rows in turn.  A row's
result is appended to the results as soon as it is there, so a command that is cut off leaves what it has
done, and the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--workers", type=int, default=1, help="processes for each seed")
    parser.add_argument("--rows", nargs="+", help="study/row, by default all; the first are done first")
    parser.add_argument("--studies", nargs="+", default=["factreason", "klcf", "knowrl", "fspo", "truthrl"])
    parser.add_argument("--set", action="append", default=[], help="section.key=value of all studies")
    parser.add_argument("--model", default="SmolLM2-135M-Instruct")
    parser.add_argument("--results", type=Path, default=Path("results.jsonl"))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--small", action="store_true", help="the sizes of two CPU cores")
    parser.add_argument("--worker", type=int, nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    return work(args) if args.worker else lead(args)


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
    from factrl.studies import load_study
    from factrl.studies.engine import needs_known, open_seed

    seed_number, number = args.worker
    named = {Path(name).stem: name for name in args.studies}
    studies = {stem: load_study(name, tuple(args.set), gpu=not args.small) for stem, name in named.items()}
    seed = open_seed(args.out / f"seed-{seed_number}", seed_number, next(iter(studies.values())), args.model)
    begun = time.monotonic()

    def tell(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - begun:.0f} s  {text}\n")
        sys.stdout.flush()

    if number == 0:
        seed.make_start(tell)
    while not seed.weights.exists():
        time.sleep(0.5)
    rows = args.rows or [f"{name}/{row}" for name, study in studies.items() for row in study.rows]
    of_task = {study.task: study for study in studies.values()}
    known = {study.task: study for study in studies.values() if needs_known(study)}
    jobs = [*(("known", task) for task in known), *(("row", row) for row in rows)]
    jobs += [("start", task) for task in of_task]
    for place, (kind, name) in enumerate(jobs):
        if place % args.workers != number:
            continue
        if kind == "known":
            seed.reset()
            seed.known(known[name].task, known[name].train)
        elif kind == "start":
            seed.before(of_task[name])
        else:
            study = studies[name.partition("/")[0]]
            while needs_known(study) and not seed.known_file(study.task).exists():
                time.sleep(0.5)
            seed.train(name, study, tell)
        tell(f"{kind} {name} done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
