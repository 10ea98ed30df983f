"""The verification engine against the published VeriScore package, on the same stub, in the same run.

    FACTRL_DATA=… python benchmarks/engine.py [--rounds 3] [--veriscore-responses 4] [--json FILE]

Three contestants take turns, so that a machine that slows down slows all of them:

    VeriScore 2.0.3    the package as published (`veriscore_run.py` says what surrounds it), few responses
    factrl veriscore   factrl's preset with the same structure of calls, on 16 and on 128 different responses
    factrl shared      a training step, 16 prompts x 8: one extraction call per response, five claims per
                       verdict call, one pool of evidence per prompt

The lower bound of a run is max(model calls x 0.1 s / 64, searches x 0.2 s / 64, 0.4 s), from the calls that
the stub counted: no client can be faster with these calls on this server.  0.4 s is one extraction, one
search and one verdict after each other.  A fixed time per call flatters long replies; `--ms-per-token` adds
to them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stub_server import MODEL_S, SEARCH_S, SLOTS, RunningStub, running_stub
from veriscore_run import prepare, run_veriscore, split_with_spacy
from workload import Response, Workload, data_folder, key_of, repeats

PROMPTS, SIZE = 16, 8
SETS = {"few": (16,), "many": (128,), "step": (PROMPTS, SIZE)}
CRITICAL_PATH = MODEL_S + SEARCH_S + MODEL_S
PACKAGE, FEW, MANY, STEP = (
    "VeriScore 2.0.3",
    "factrl veriscore, 16",
    "factrl veriscore, 128",
    "factrl shared, 16 x 8",
)
_ARMS = {FEW: ("veriscore", SETS["few"]), MANY: ("veriscore", SETS["many"]), STEP: ("shared", SETS["step"])}
_GOAL_RATIO, _GOAL_STEP = 1.15, 2.5

Run = dict[str, Any]


def main() -> None:
    """Alternate the contestants, print what they took, and write every run to `--json`."""
    options = _options()
    work = Workload(data_folder())
    many, grouped = work.separate(*SETS["many"]), work.grouped(*SETS["step"])
    groups = [grouped[start : start + SIZE] for start in range(0, len(grouped), SIZE)]
    python = None if options.no_veriscore else prepare(options.veriscore_venv.resolve())
    runs: dict[str, list[Run]] = {}
    say = sys.stdout.write
    say(_machine() + f"; claims repeated within a group {100 * repeats(groups):.1f} %\n")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "table.json").write_text(json.dumps(work.table([*many, *grouped, work.warm_up()])), "utf-8")
        with running_stub(folder / "table.json", f"--ms-per-token={options.ms_per_token}") as stub:
            for number in range(options.rounds):
                arms: dict[str, Callable[[], Run]] = {}
                if python:
                    some = _spread(work.separate(*SETS["few"]), options.veriscore_responses)
                    job = folder / f"veriscore-{number}"
                    arms[PACKAGE] = lambda some=some, job=job: _package(
                        python, some, work, stub, job, options
                    )
                for name in _ARMS:
                    arms[name] = lambda name=name: _ours(name, stub)
                for name, arm in arms.items():
                    run = arm()
                    runs.setdefault(name, []).append(run)
                    say(f"round {number + 1}  {_line(name, run)}\n")
                    sys.stdout.flush()
        splitting = _splitting(python, many, folder / "sentences") if python else {}
    say(
        "\n"
        + table(runs)
        + "\n"
        + _findings(runs)
        + "".join(f"{line}\n" for line in splitting.get("lines", ()))
    )
    if options.json:
        document = {"machine": _machine(), "repeats": repeats(groups), "runs": runs, "splitting": splitting}
        options.json.write_text(json.dumps(document, indent=1), "utf-8")


def bound(stub: Run) -> float:
    """Seconds that these calls need at least on this server."""
    return max(stub["llm"]["service"] / SLOTS, stub["search"]["service"] / SLOTS, CRITICAL_PATH)


def table(runs: dict[str, list[Run]]) -> str:
    """One Markdown row per contestant: medians over the rounds; the range of the wall time."""
    head = (
        "run", "responses", "wall s", "s / response", "calls / resp.", "searches / resp.",
        "prompt tokens / resp.", "claims / resp.", "model in flight mean / max", "bound s", "wall / bound",
        "CPU ms / claim",
    )  # fmt: skip
    rows = [head, ("---",) * len(head)]
    for name, own in runs.items():
        walls = sorted(run["wall"] for run in own)
        run = sorted(own, key=lambda one: one["wall"])[len(own) // 2]
        count, stub = run["responses"], run["stub"]
        wall = statistics.median(walls)
        rows.append(
            (
                name,
                str(count),
                f"{wall:.2f} ({walls[0]:.2f} to {walls[-1]:.2f})",
                f"{wall / count:.3f}",
                f"{stub['llm']['requests'] / count:.1f}",
                f"{stub['search']['requests'] / count:.1f}",
                f"{stub['tokens_in'] / count / 1000:.1f}k",
                f"{run['claims'] / count:.1f}",
                f"{stub['llm']['in_flight_mean']:.1f} / {stub['llm']['in_flight_max']}",
                f"{bound(stub):.2f}",
                f"{wall / bound(stub):.2f}",
                f"{1000 * run['cpu'] / max(1, run['claims']):.2f}",
            )
        )
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _findings(runs: dict[str, list[Run]]) -> str:
    """The goals, and what the package would take for the training step."""
    medians = {name: statistics.median(run["wall"] for run in own) for name, own in runs.items()}
    ratio = statistics.median(run["wall"] / bound(run["stub"]) for run in runs[MANY])
    step = medians[STEP]
    lines = [
        f"{MANY}: wall / bound {ratio:.2f}, goal {_GOAL_RATIO}: {_met(ratio <= _GOAL_RATIO)}",
        f"{STEP}: {step:.2f} s, goal {_GOAL_STEP} s: {_met(step <= _GOAL_STEP)}",
    ]
    if PACKAGE in runs:
        run = sorted(runs[PACKAGE], key=lambda one: one["wall"])[len(runs[PACKAGE]) // 2]
        claims = statistics.median(one["claims"] for one in runs[MANY])
        scale = claims / run["claims"]
        written = sum(seconds for saves in run["saves"].values() for _, seconds in saves)
        waiting = (run["wall"] - written) * scale
        lines += [
            f"{PACKAGE} extrapolated to the {claims:.0f} claims of these 128 responses (not run): "
            f"{waiting / 60:.0f} min in proportion to the claims, and "
            f"{_writing(run['saves'], scale) / 60:.0f} min for its caches, whose files are read and written "
            "again for every entry",
            f"seconds per response, {PACKAGE} / factrl: "
            f"{run['wall'] / run['responses'] / (medians[MANY] / 128):.0f} x the preset, "
            f"{run['wall'] / run['responses'] / (step / (PROMPTS * SIZE)):.0f} x shared evidence",
        ]
    cpu = [
        (run["stub"]["cpu"] / run["wall"], run["stub"]["cpu_per_request"])
        for own in runs.values()
        for run in own
    ]
    lines.append(
        f"the stub itself took at most {100 * max(cpu)[0]:.0f} % of one core, "
        f"{1000 * statistics.median(each for _, each in cpu):.2f} ms CPU per request"
    )
    return "".join(f"{line}\n" for line in lines)


def _writing(caches: dict[str, list[tuple[int, float]]], scale: float) -> float:
    """Seconds to fill VeriScore's caches with `scale` times the entries.

    A save takes longer the more entries there are: a straight line through the saves of this run.
    """
    total = 0.0
    for saves in caches.values():
        slope, first = statistics.linear_regression(*zip(*saves, strict=True))
        entries = scale * len(saves)
        total += first * entries + slope * entries**2 / 2
    return total


def _package(
    python: Path, responses: Sequence[Response], work: Workload, stub: RunningStub, job: Path, options: Any
) -> Run:
    load, _ = _load(), stub.stats(clear=True)
    run = run_veriscore(python, responses, work.demos, stub.url, job, options.veriscore_prompts)
    return run | {"responses": len(responses), "stub": stub.stats(), "load": load}


def _ours(name: str, stub: RunningStub) -> Run:
    preset, sizes = _ARMS[name]
    load = _load()
    command = [
        sys.executable,
        str(Path(__file__).with_name("factrl_run.py")),
        preset,
        *map(str, sizes),
        stub.url,
    ]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603
    count = sizes[0] * sizes[1] if len(sizes) == 2 else sizes[0]
    return json.loads(output) | {"responses": count, "load": load}


def _splitting(python: Path, responses: Sequence[Response], job: Path) -> Run:
    """Sentence splitting of the same texts: VeriScore's spaCy pipeline against factrl's own, milliseconds."""
    from factrl.sentences import sentences

    spacy = split_with_spacy(python, responses, job)
    sentences(responses[0].text)
    seconds, total, alike = [], 0, 0
    for one, other in zip(responses, spacy["sentences"], strict=True):
        begun = time.perf_counter()
        found = sentences(one.text)
        seconds.append(time.perf_counter() - begun)
        total += len(found)
        alike += len({key_of(one.text[part.start : part.end]) for part in found} & set(map(key_of, other)))
    theirs, ours = (1000 * statistics.fmean(each) for each in (spacy["seconds"], seconds))
    counts = [sum(map(len, spacy["sentences"])), total, alike]
    lines = [
        f"sentences of {len(responses)} responses: spaCy en_core_web_sm {theirs:.1f} ms per response "
        f"({counts[0]} sentences), factrl.sentences {ours:.3f} ms ({total}, {alike} of them the same): "
        f"{theirs / ours:.0f} x"
    ]
    return {"spacy_ms": theirs, "factrl_ms": ours, "sentences": counts, "lines": lines}


def _line(name: str, run: Run) -> str:
    stub, labels = run["stub"], run.get("labels", {})
    return (
        f"{name:22} {run['wall']:7.2f} s  {run['wall'] / bound(stub):6.2f} x bound  "
        f"{stub['llm']['requests']} calls {stub['search']['requests']} searches {run['claims']} claims  "
        f"load {run['load']:.1f}  {labels or ''} {run.get('causes') or ''}"
    )


def _spread(items: Sequence[Response], count: int) -> list[Response]:
    """`count` of `items` at equal distances."""
    return [items[number * len(items) // count] for number in range(count)]


def _met(goal: bool) -> str:
    return "met" if goal else "NOT met"


def _load() -> float:
    return os.getloadavg()[0]


def _machine() -> str:
    busy = " (busy: times are upper limits)" if _load() > 0.5 else ""
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, load {_load():.1f}{busy}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--veriscore-venv", type=Path, default=Path(".venv-veriscore"), help="made when missing"
    )
    parser.add_argument("--veriscore-responses", type=int, default=4, help="it takes about 15 s for each")
    parser.add_argument("--veriscore-prompts", type=Path, help="the prompt folder of a clone; else stand-ins")
    parser.add_argument("--no-veriscore", action="store_true", help="only factrl's own runs")
    parser.add_argument(
        "--ms-per-token", type=float, default=0.0, help="added to a call for each token it returns"
    )
    parser.add_argument("--json", type=Path, help="where to write every run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
