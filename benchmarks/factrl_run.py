"""factrl's side of the engine benchmark: one preset on one set of responses, in a process of its own.

    python benchmarks/factrl_run.py veriscore|shared SEPARATE|GROUPS… URL       prints JSON

A process per run and an empty store, because nothing may be left over from the run before: no verdict, no
search result, no open connection.  One response that belongs to no set is verified first, as a trainer's
first step would pay for imports and connections once; then the stub's counters are cleared and the clock
starts.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stub_server import RunningStub
from workload import Response, Workload, data_folder

from factrl.llm import connect
from factrl.llm.store import Store
from factrl.verifier import Verifier, open_verifier
from factrl.verifier.search import WebSearch

# Requests of each kind in flight.  More than the server's 64 slots: a request that already waits there when a
# slot falls free needs no round trip first.
IN_FLIGHT = 96


def peak_mb() -> float:
    """This process's largest resident size so far; `getrusage` would begin with that of the parent."""
    return int(re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024


def verifier(preset: str, url: str, store: Store) -> Verifier:
    """VeriScore's published settings, or a training step's: one extraction per response, shared evidence."""
    llm = connect(f"{url}/v1#stub", max_concurrency=IN_FLIGHT)
    search = WebSearch(url, "stub", max_concurrency=IN_FLIGHT)
    if preset == "veriscore":
        return open_verifier("veriscore", web=search, llm=llm, store=store)
    check = open_verifier("local", web=search, llm=llm, store=store)
    check.share = True
    return check


def timed(preset: str, responses: Sequence[Response], warm_up: Response, url: str) -> dict[str, Any]:
    """Verify `responses` as one batch.

    Returns:
        wall, cpu: seconds, the CPU of all threads of this process.  claims, labels: what became of them.
        failures: responses that could not be checked.  peak_mb: the process's largest resident
        size so far, in MiB.  stub: what the stub counted.
    """
    stub = RunningStub(url)
    with tempfile.TemporaryDirectory() as folder:
        check = verifier(preset, url, store := Store(Path(folder) / "verdicts.sqlite"))
        check.batch([warm_up.text], [warm_up.question])
        stub.stats(clear=True)
        wall, cpu = time.perf_counter(), time.process_time()
        reports = check.batch([one.text for one in responses], [one.question for one in responses])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        store.close()
    checks = [entry for report in reports for entry in report.checks]
    labels = Counter(
        entry.verdict.label if entry.verdict else f"skipped: {entry.claim.skip}" for entry in checks
    )
    causes = Counter(entry.verdict.cause for entry in checks if entry.verdict and entry.verdict.cause)
    return {
        "wall": wall,
        "cpu": cpu,
        "claims": len(checks),
        "labels": dict(labels),
        "causes": dict(causes),
        "failures": sum(report.failure is not None for report in reports),
        "peak_mb": peak_mb(),
        "stub": stub.stats(),
    }


def main() -> None:
    """Run what the command line names."""
    preset, *shape, url = sys.argv[1:]
    work, sizes = Workload(data_folder()), [int(size) for size in shape]
    responses = work.separate(*sizes) if len(sizes) == 1 else work.grouped(*sizes)
    sys.stdout.write(json.dumps(timed(preset, responses, work.warm_up(), url)) + "\n")


if __name__ == "__main__":
    main()
