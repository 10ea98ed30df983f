"""How fast factrl is, in one run of at most ten minutes on two idle cores, as one table.

    FACTRL_DATA=… python benchmarks/speed.py [PART …] [--json FILE]

    load      `import factrl` and `factrl --help`
    words     a claim judged by words, over a response's own evidence
    grade     an answer graded by rules
    local     `factrl verify` with the local judge: one claim, and each further one (needs its model)
    serve     completions a second of `factrl serve`: two workers, eight clients, a judge that costs nothing
    engine    a batch against its lower bound, with each response's own evidence and with a group's shared one
    step      a GRPO step of the demo against TRL's own path (needs the extra `demo`)

CPU seconds are those of all threads and child processes.  The bound of a batch is max(model calls x 0.1 s,
searches x 0.2 s) / 64, and at least 0.4 s, an extraction, a search and a verdict after each other: no client
can be faster with these calls on the stub (`stub_server.py`).  To compare two versions, run the script with
either on PYTHONPATH, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stub_server import MODEL_S, SEARCH_S, SLOTS, Connection, RunningStub, running_stub
from workload import Response, Workload, data_folder

import factrl as fx
from factrl.runs.rows import read_rows

HERE = Path(__file__).parent
CRITICAL = MODEL_S + SEARCH_S + MODEL_S
IN_FLIGHT = 96  # more than the slots: a request that waits there needs no round trip when one falls free
WORKERS, CLIENTS, BATCH, COMPLETIONS = 2, 8, 32, 2048
SETS = {"veriscore": (128,), "shared": (16, 8)}
Row = tuple[str, str, float, float | None]
"""What, in which unit, how much, and the goal."""


def main() -> None:
    """Measure what is named, or everything, and print the table; or be a part of a measurement."""
    if sys.argv[1:2] and sys.argv[1] in _PARTS:
        return _PARTS[sys.argv[1]](*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", default=[*_MEASURES])
    parser.add_argument("--json", type=Path, help="where to write the rows")
    args = parser.parse_args()
    rows: list[Row] = []
    sys.stdout.write("| what | measured | goal |\n|---|--:|--:|\n")
    for part in args.parts:
        for row in _MEASURES[part]():
            what, unit, value, goal = row
            sys.stdout.write(f"| {what} | {value:.3g} {unit} | {'' if goal is None else f'{goal:g}'} |\n")
            sys.stdout.flush()
            rows.append(row)
    sys.stdout.write(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    if args.json:
        args.json.write_text(json.dumps(rows), "utf-8")


# -- In this process and in one of its own


def load() -> Iterator[Row]:
    """CPU seconds of a new interpreter beyond an empty one's."""
    empty = _cpu_of("-c", "pass")
    yield "import factrl", "CPU s", _cpu_of("-c", "import factrl") - empty, 0.15
    yield "factrl --help", "CPU s", _cpu_of("-m", "factrl", "--help") - empty, 0.25


def words() -> Iterator[Row]:
    """Of 64 responses, after one that loads what is loaded once."""
    work = Workload(data_folder())
    responses = work.separate(64)
    pages = work.table([*responses, work.warm_up()])["pages"]
    check = fx.open_verifier("local", judge="weak")

    def judged(some: Sequence[Response]) -> int:
        evidence = [[fx.Passage(text, one.topic) for text in pages[one.topic]] for one in some]
        reports = check.batch([one.text for one in some], [one.question for one in some], evidence=evidence)
        return sum(len(report.checks) for report in reports)

    judged([work.warm_up()])
    seconds, claims = _cpu(lambda: judged(responses))
    yield "a claim by words", "CPU ms", 1000 * seconds / claims, 0.9


def grade() -> Iterator[Row]:
    """Of the answers in `grading_blind.jsonl`."""
    rows = [*read_rows(str(HERE / "grading_blind.jsonl"))]
    grader = fx.Grader()
    grader(rows[0]["question"], rows[0]["text"], rows[0]["gold"])
    seconds, _ = _cpu(lambda: [grader(row["question"], row["text"], row["gold"]) for row in rows])
    yield "an answer by rules", "CPU ms", 1000 * seconds / len(rows), 0.9


def local() -> Iterator[Row]:
    """Wall seconds, as a user waits for them."""
    said = ["Curie was born in Warsaw.", "She died in 1934.", "She won two Nobel Prizes.", "She was French."]
    evidence = "Marie Curie, born in Warsaw, won the Nobel Prizes of 1903 and 1911 and died in Passy in 1934."
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder) / "curie.txt"
        docs.write_text(evidence, "utf-8")

        def waited(count: int) -> float:
            began = time.monotonic()
            words = ("verify", " ".join(said[:count]), "--docs", str(docs), "--no-cache")
            subprocess.run([sys.executable, "-m", "factrl", *words], check=False, stdout=subprocess.DEVNULL)  # noqa: S603
            return time.monotonic() - began

        one, all_of_them = (statistics.median(waited(count) for _ in range(3)) for count in (1, len(said)))
    yield "factrl verify, one claim, local judge", "s", one, 4.0
    yield "each further claim", "s", (all_of_them - one) / (len(said) - 1), 0.7


def step() -> Iterator[Row]:
    """Of the second of two steps: the first warms up."""
    ours, theirs = (_printed("trained", str(shortcuts)) for shortcuts in (1, 0))
    yield "a GRPO step of the demo", "CPU s", ours, None
    yield "TRL's own path / ours", "x", theirs / ours, 6.0


def trained(shortcuts: str) -> None:
    """A process that trains two steps of the demo, and prints the CPU seconds of the second."""
    from datasets import Dataset
    from transformers import PrinterCallback

    from factrl.runs.settings import ModelSettings, RunSettings
    from factrl.studies import load_study, row_settings
    from factrl.studies.engine import MODEL, data_settings
    from factrl.studies.world import real_world
    from factrl.train.grpo import FactualGRPOTrainer
    from factrl.train.model import for_command_line, load_policy, render_prompts
    from factrl.train.online import grpo_config

    for_command_line()
    study = load_study("truthrl", ("train.steps=2",))
    model = ModelSettings(name=MODEL, freeze_embeddings=True, freeze_layers=study.start.freeze_layers)
    train = row_settings(study, "ternary")
    settings = RunSettings(paper="truthrl", model=model, data=data_settings(study.task), train=train)
    policy, tokenizer = load_policy(settings.model)
    questions = real_world().examples("short", "train")
    times: list[float] = []

    class Timed(FactualGRPOTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            seconds, loss = _cpu(lambda: super(Timed, self).training_step(*args, **kwargs))
            times.append(seconds)
            return loss

    with tempfile.TemporaryDirectory() as folder:
        config = grpo_config(settings, Path(folder))
        config.shortcuts, config.save_strategy = shortcuts == "1", "no"
        prompts = render_prompts(questions, tokenizer, settings.data)
        rows = [
            {"prompt": prompt, "question": one.question, "answers": [*one.answers]}
            for prompt, one in zip(prompts, questions, strict=True)
        ]
        ternary = fx.load_reward("truthrl:ternary").with_(answer="text", grade=fx.Grader())
        trainer = Timed(policy, ternary, config, Dataset.from_list(rows), processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    sys.stdout.write(json.dumps(sum(times[len(times) // 2 :])))  # micro-batches; the first generates


# -- The engine, on a stub


def engine() -> Iterator[Row]:
    """The median of two batches of each kind, a process for each."""
    work = Workload(data_folder())
    responses = {
        preset: (work.separate if len(sizes) == 1 else work.grouped)(*sizes) for preset, sizes in SETS.items()
    }
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.json"
        known = work.table([*(one for some in responses.values() for one in some), work.warm_up()])
        table.write_text(json.dumps(known), "utf-8")
        with running_stub(table) as stub:
            for preset, evidence in (("veriscore", "own"), ("shared", "shared")):
                runs = [_printed("verified", preset, stub.url) for _ in range(2)]
                ratio = statistics.median(run["wall"] / run["bound"] for run in runs)
                cpu = statistics.median(run["cpu"] / run["claims"] for run in runs)
                yield f"a batch with {evidence} evidence / its bound", "x", ratio, 1.1
                yield f"a claim of it ({runs[0]['claims']})", "CPU ms", 1000 * cpu, None


def verified(preset: str, url: str) -> None:
    """A process that verifies one batch with an empty store, and prints what that took."""
    from factrl.llm.store import Store
    from factrl.verifier.search import WebSearch

    work, sizes, stub = Workload(data_folder()), SETS[preset], RunningStub(url)
    responses = (work.separate if len(sizes) == 1 else work.grouped)(*sizes)
    llm = fx.connect(f"{url}/v1#stub", max_concurrency=IN_FLIGHT)
    search = WebSearch(url, "stub", max_concurrency=IN_FLIGHT)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "verdicts.sqlite")
        own = preset == "veriscore"
        check = fx.open_verifier(preset if own else "local", web=search, llm=llm, store=store)
        check.share = not own
        warm = work.warm_up()
        check.batch([warm.text], [warm.question])
        stub.stats(clear=True)
        wall = time.perf_counter()
        texts, questions = [one.text for one in responses], [one.question for one in responses]
        cpu, reports = _cpu(lambda: check.batch(texts, questions))
        wall = time.perf_counter() - wall
        store.close()
    counted = stub.stats()
    busy = max(counted[station]["service"] / SLOTS for station in ("llm", "search"))
    claims = sum(len(report.checks) for report in reports)
    if unjudged := sum(report.likelier["unjudged"] for report in reports):
        raise SystemExit(f"{unjudged} of {claims} claims have no verdict: stub_replies.py is out of date")
    told = {"wall": wall, "cpu": cpu, "claims": claims, "bound": max(busy, CRITICAL)}
    sys.stdout.write(json.dumps(told))


# -- The server


def serve() -> Iterator[Row]:
    """All completions differ, so each is judged."""
    with tempfile.TemporaryDirectory() as folder, _process("judge", stdin=subprocess.PIPE) as judge:
        assert judge.stdout  # noqa: S101
        with _server(judge.stdout.readline().strip(), folder) as (server, url):
            before = _cpu_below(server.pid)
            began = time.monotonic()
            clients = [_start("client", url, str(number)) for number in range(CLIENTS)]
            told = [json.loads(client.communicate()[0]) for client in clients]
            wrong = sum(one["wrong"] for one in told)
            seconds = max(one["ended"] for one in told) - min(one["began"] for one in told)
            cpu = _cpu_below(server.pid) - before
    if wrong:
        raise SystemExit(
            f"{wrong} completions have a wrong score, or none ({time.monotonic() - began:.0f} s)"
        )
    yield "completions a second of factrl serve", "/ s", COMPLETIONS / seconds, 300.0
    yield "a completion in its workers", "CPU ms", 1000 * cpu / COMPLETIONS, None


def judge() -> None:
    """A process that judges at once, until its input ends."""

    class Judge:
        def answer(self, method: str, path: str, body: bytes) -> tuple[float, bytes]:
            text = f"So it is.\nVERDICT: {'correct' if b'Lyon' in body else 'incorrect'}"
            choice = {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": text},
            }
            usage = {"prompt_tokens": 900, "completion_tokens": 10, "total_tokens": 910}
            told = {"id": "1", "model": "fake", "choices": [choice], "usage": usage}
            return 0.0, json.dumps(told).encode()

    async def listen() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        any_judge: Any = Judge()
        server = await loop.create_server(lambda: Connection(any_judge), "127.0.0.1", 0, backlog=1024)
        sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
        sys.stdout.flush()
        loop.add_reader(sys.stdin.fileno(), over.set)
        await over.wait()
        server.close()

    asyncio.run(listen())


def client(url: str, number: str) -> None:
    """A process that has its share of the completions scored, 32 at once."""
    reward, began, wrong = fx.remote(url, "truthrl"), time.time(), 0
    for start in range(0, COMPLETIONS // CLIENTS, BATCH):
        numbers = range(start, start + BATCH)
        examples = [fx.Example(f"In which town was person {number} {n} born?", ("Rome",)) for n in numbers]
        texts = [rf"\boxed{{{('Lyon', 'Nice')[n % 2]} {number} {n}}}" for n in numbers]
        results = reward.batch(examples, texts)
        wrong += sum(result.value != (1.0, -1.0)[n % 2] for n, result in enumerate(results))
    sys.stdout.write(json.dumps({"began": began, "ended": time.time(), "wrong": wrong}))


@contextmanager
def _server(judge: str, folder: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    words = ["serve", "truthrl", "--judge", f"{judge}/v1#fake", "--port", url.rpartition(":")[2]]
    command = [sys.executable, "-m", "factrl", *words, "--workers", str(WORKERS)]
    process = subprocess.Popen(command, env={**os.environ, "FACTRL_CACHE": folder}, text=True)  # noqa: S603
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        while process.poll() is None:
            try:
                with direct.open(f"{url}/health/ready", timeout=10):
                    break
            except OSError:
                time.sleep(0.25)
        else:
            raise SystemExit("the server did not start; its message is above")
        yield process, url
    finally:
        process.terminate()
        process.wait(timeout=60)


# -- Processes and their seconds


def _cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of all threads of this process, and what the work returned."""
    began = time.process_time()
    done = work()
    return time.process_time() - began, done


def _cpu_of(*words: str) -> float:
    """CPU seconds of a process of Python, the median of five."""

    def once() -> float:
        before = os.times()
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        after = os.times()
        return after[2] + after[3] - before[2] - before[3]

    return statistics.median(once() for _ in range(5))


def _cpu_below(pid: int) -> float:
    """CPU seconds of a process and of its children so far."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("utf-8").split()
    ticks = 0
    for one in (str(pid), *children):
        fields = Path(f"/proc/{one}/stat").read_text("utf-8").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _start(*words: str, **more: Any) -> subprocess.Popen[str]:
    """This script in another role."""
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, **more)  # noqa: S603


def _printed(*words: str) -> Any:
    process = _start(*words)
    told = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"{words[0]} failed; its message is above")
    return json.loads(told)


@contextmanager
def _process(*words: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """The same, which ends when its input does."""
    process = _start(*words, **more)
    try:
        yield process
    finally:
        process.communicate(timeout=30)


_MEASURES: dict[str, Callable[[], Iterator[Row]]] = {
    one.__name__: one for one in (load, words, grade, local, serve, engine, step)
}
_PARTS: dict[str, Callable[..., None]] = {one.__name__: one for one in (judge, client, verified, trained)}


if __name__ == "__main__":
    main()
