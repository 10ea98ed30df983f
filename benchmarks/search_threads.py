"""Searches per second of `factrl index` on one thread and on several, in one process.

    FACTRL_DATA=… python benchmarks/search_threads.py [--passages N] [--threads 2] [--rounds 5]

An index has no call for many queries: its search releases the interpreter's lock, so that threads are the
batch.  The passages are those of `search.py`, the queries claims of `factscore_human`.  Every round asks all
of them one by one and then again on the threads, each of which has its share; the same passages have to come
back.  With one core, or a lock that is held, the ratio is 1 at most.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from search import corpus, data, rows

from factrl.verifier.search import Index


def asked(index: Index, queries: Sequence[str], threads: int) -> tuple[float, float, list[list[str]]]:
    """Wall and CPU seconds, and what was found for each query."""
    shares = [queries[start::threads] for start in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(time.sleep, [0.01] * threads))  # they are all there
        wall, cpu = time.perf_counter(), time.process_time()
        found = list(
            pool.map(lambda share: [[hit.text for hit in index.search(one)] for one in share], shares)
        )
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall, cpu, [found[number % threads][number // threads] for number in range(len(queries))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--passages", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--queries", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    claims = [row["claim"] for row in rows(data() / "factscore_human" / "facts.jsonl.gz")]
    queries = list(dict.fromkeys(claims))[: options.queries]
    rates: dict[int, list[float]] = {1: [], options.threads: []}
    costs: dict[int, list[float]] = {1: [], options.threads: []}
    with tempfile.TemporaryDirectory() as place:
        passages = corpus(Path(place), options.passages)
        index = Index.build(Path(place) / "index", [passages])
        expected = asked(index, queries, 1)[2]  # warm up
        for _ in range(options.rounds):
            for threads in rates:
                wall, cpu, found = asked(index, queries, threads)
                if found != expected:
                    raise SystemExit(f"{threads} threads find other passages than one")
                rates[threads].append(len(queries) / wall)
                costs[threads].append(1e3 * cpu / len(queries))
        lines = [
            f"{len(index)} passages, {len(queries)} queries, {options.rounds} rounds, "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "| threads | searches / s | CPU ms / search |",
            "|--:|--:|--:|",
        ]
    for threads, seen in rates.items():
        lines.append(
            f"| {threads} | {statistics.median(seen):,.0f} ({min(seen):,.0f} to {max(seen):,.0f}) | "
            f"{statistics.median(costs[threads]):.3f} |"
        )
    ratios = [many / one for one, many in zip(rates[1], rates[options.threads], strict=True)]
    lines.append(
        f"ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), each round's own"
    )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
