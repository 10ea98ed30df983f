"""What each saving of the verification engine saves, and what it costs in agreement.

    FACTRL_DATA=… python benchmarks/savings.py [--rounds 3] [--claims 40]

The first table is a training step, 16 prompts x 8 responses, against the stub of `engine.py` on loopback.
It begins without any saving and switches one more on in every row:

    streaming            a group's texts go on as soon as they can; without it every text waits, before its
                         searches and again before its verdicts, until all texts have come so far
    one extraction call  for a response instead of for each of its sentences
    five claims a call   of the judge instead of one
    equal claims         of the responses to one prompt, with equal evidence, are searched for and judged once
    shared evidence      one pool of passages for a prompt, as `Verifier(share=True)` has it

Calls, searches and tokens are what the stub counted, and the same in every round but for tokens, which move
by a few; the rounds take turns, and wall time and CPU are medians.  The stub answers with its labels whatever
it is shown, so what a saving costs is in the tables of `savings_agreement.py`, which follow: real judges and
claims that people labelled.  `--claims` is how many of them the model in this process judges (half an hour
for 40; 0, as in `make bench`, leaves these rows out).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from factrl_run import IN_FLIGHT
from savings_agreement import agreement
from stub_server import RunningStub, running_stub
from workload import Response, Workload, data_folder

from factrl.llm import connect
from factrl.types import Claim, Passage, Verdict
from factrl.verifier import Verifier
from factrl.verifier.claims.llm import LLMClaims
from factrl.verifier.judges import Judge, LLMJudge
from factrl.verifier.search import WebSearch

PROMPTS, SIZE = 16, 8

Run = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """How a step is verified."""

    name: str = "none"
    streaming: bool = False
    style: Any = "veriscore"
    claims_per_call: int = 1
    groups: bool = False
    share: bool = False


def ways() -> list[Way]:
    """The engine without savings, then with one more each."""
    found = [Way()]
    for name, more in (
        ("streaming", {"streaming": True}),
        ("one extraction call", {"style": "veriscore_response"}),
        ("five claims a call", {"claims_per_call": 5}),
        ("equal claims", {"groups": True}),
        ("shared evidence", {"share": True}),
    ):
        found.append(replace(found[-1], name=f"+ {name}", **more))
    return found


class Stages:
    """Holds every text back until all have finished the stage before; `begin` before every batch."""

    def __init__(self, extract: LLMClaims, search: WebSearch, judge: Judge) -> None:
        self._extract, self._search, self._judge = extract, search, judge
        self.identity, self.per_call, self.weak = judge.identity, judge.per_call, judge.weak

    def begin(self, texts: int) -> None:
        """The next batch has so many texts."""
        self._texts, self._searches = texts, 0
        self._extracted, self._searched = asyncio.Event(), asyncio.Event()

    async def __call__(self, text: str, question: str = "", topic: str = "") -> list[Claim]:
        """As an extractor: the last one to finish lets all go on."""
        try:
            return await self._extract(text, question, topic)
        finally:
            self._texts -= 1
            if not self._texts:
                self._extracted.set()
            await self._extracted.wait()

    async def search(self, query: str, k: int = 5, *, topic: str = "") -> Sequence[Passage]:
        """As a search; all are under way before the first can have its answer."""
        self._searches += 1
        try:
            return await self._search.search(query, k, topic=topic)
        finally:
            self._searches -= 1
            if not self._searches:
                self._searched.set()

    async def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        """As a judge."""
        await self._searched.wait()
        judged: Any = self._judge.judge(pairs)
        return await judged


def verifier(way: Way, url: str) -> tuple[Verifier, Stages | None]:
    """New connections and no store: nothing is left over from the run before."""
    llm = connect(f"{url}/v1#stub", max_concurrency=IN_FLIGHT)
    search = WebSearch(url, "stub", max_concurrency=IN_FLIGHT)
    extract = LLMClaims(llm, way.style)
    judge: Judge = LLMJudge(llm, claims_per_call=way.claims_per_call)
    if way.streaming:
        return Verifier(extract, search, judge, share=way.share), None
    stages = Stages(extract, search, judge)
    return Verifier(stages, stages, stages), stages


def timed(way: Way, responses: Sequence[Response], warm_up: Response, url: str) -> Run:
    """Verify `responses` as one batch; what it took and what the stub counted."""
    stub = RunningStub(url)
    check, stages = verifier(way, url)

    def verify(asked: Sequence[Response]) -> list[Any]:
        if stages is not None:
            stages.begin(len(asked))
        # A question with other white space is another question, so each text is a group of its own.
        apart = ["" if way.groups else " " * number for number in range(len(asked))]
        questions = [one.question + space for one, space in zip(asked, apart, strict=True)]
        return check.batch([one.text for one in asked], questions)

    verify([warm_up])
    stub.stats(clear=True)
    wall, cpu = time.perf_counter(), time.process_time()
    reports = verify(responses)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    counted, checks = stub.stats(), [entry for report in reports for entry in report.checks]
    verdicts = [entry.verdict for entry in checks if entry.verdict]
    unjudged = sum(verdict.label == "unjudged" for verdict in verdicts)
    if unjudged or any(report.failure for report in reports):
        sys.stderr.write(f"{way.name}: {unjudged} claims unjudged\n")
    return {"wall": wall, "cpu": cpu, "claims": len(checks), "stub": counted}


def table(runs: dict[str, list[Run]], count: int) -> str:
    """One Markdown row per way; counts of the first round, medians of the times."""
    head = (
        "savings", "extraction calls", "verdict calls", "searches", "prompt tokens", "reply tokens",
        "wall s", "CPU ms / claim",
    )  # fmt: skip
    rows = [head, ("---",) + ("--:",) * (len(head) - 1)]
    for name, own in runs.items():
        stub, walls = own[0]["stub"], sorted(run["wall"] for run in own)
        kinds = stub["llm"]["kinds"]
        rows.append(
            (
                name,
                f"{kinds.get('extract', 0) / count:.1f}",
                f"{kinds.get('judge', 0) / count:.1f}",
                f"{stub['search']['requests'] / count:.1f}",
                f"{stub['tokens_in'] / count:,.0f}",
                f"{stub['tokens_out'] / count:,.0f}",
                f"{statistics.median(walls):.1f} ({walls[0]:.1f} to {walls[-1]:.1f})",
                f"{statistics.median(1000 * run['cpu'] / run['claims'] for run in own):.2f}",
            )
        )
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def main() -> None:
    """Print the table of the counts, then what the savings cost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--claims", type=int, default=40, help="that the model in this process judges; or 0")
    options = parser.parse_args()
    work = Workload(data_folder())
    responses, warm_up = work.grouped(PROMPTS, SIZE), work.warm_up()
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as place:
        known = Path(place) / "table.json"
        known.write_text(json.dumps(work.table([*responses, warm_up])), "utf-8")
        with running_stub(known) as stub:
            for _ in range(options.rounds):
                for way in ways():
                    runs.setdefault(way.name, []).append(timed(way, responses, warm_up, stub.url))
    say = sys.stdout.write
    say(f"{PROMPTS} x {SIZE} responses; calls, searches and tokens per response\n\n")
    say(table(runs, len(responses)))
    say("\n")
    sys.stdout.flush()
    for part in agreement(data_folder(), options.claims):
        say(part + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
