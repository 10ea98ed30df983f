"""The verification engine against the published packages, on the same stub, in the same run.

    FACTRL_DATA=… python benchmarks/engine.py [--rounds 3] [--large] [--patterns] [--json FILE]

The contestants take turns, so that a machine that slows down slows all of them:

    VeriScore 2.0.3    the package as published (`veriscore_run.py` says what surrounds it), few responses
    FActScore 0.2.0    the same (`factscore_run.py`), on the same responses; its evidence is a local table
    factrl veriscore   factrl's preset with the same structure of calls, on 16 and on 128 different responses,
                       and with --large on the 1,024 of 128 prompts x 8
    factrl shared      a training step, 16 prompts x 8 and 128 x 8: one extraction call per response, five
                       claims per verdict call, one pool of evidence per prompt
    call pattern of …  with --patterns: in which order SAFE and KnowRL's reward call (`call_patterns.py`), on
                       the few responses; not their code

What --large and --patterns add runs in the first round only: two to five minutes.

The lower bound of a run is max(model calls x 0.1 s / 64, searches x 0.2 s / 64, critical path), from the
calls that the stub counted: no client can be faster with these calls on this server.  The critical path is
0.4 s: one extraction, one search and one verdict after each other; 0.2 s without a search, and 1.9 s for
SAFE's thirteen steps.  A fixed time per call flatters long replies; `--ms-per-token` adds
to them.
"""

from __future__ import annotations

import argparse
import json
import math
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

from call_patterns import PAIR_S, SAFE_ROUNDS
from factscore_run import prepare as add_factscore
from factscore_run import run_factscore
from stub_server import MODEL_S, SEARCH_S, SLOTS, RunningStub, running_stub
from veriscore_run import prepare, run_veriscore, split_with_spacy
from workload import Response, Workload, data_folder, key_of, repeats

PROMPTS, SIZE = 16, 8
SETS = {"few": (16,), "many": (128,), "step": (PROMPTS, SIZE), "large": (128, SIZE)}
CRITICAL_PATH = MODEL_S + SEARCH_S + MODEL_S
PACKAGE, FACTSCORE, FEW, MANY, STEP = (
    "VeriScore 2.0.3",
    "FActScore 0.2.0",
    "factrl veriscore, 16",
    "factrl veriscore, 128",
    "factrl shared, 16 x 8",
)
_ARMS = {
    FEW: ("veriscore", SETS["few"]),
    MANY: ("veriscore", SETS["many"]),
    STEP: ("shared", SETS["step"]),
    "factrl shared, 128 x 8": ("shared", SETS["large"]),
}
_LARGE = {"factrl veriscore, 128 x 8": ("veriscore", SETS["large"])}
# Name -> pattern, and its critical path.
_PATTERNS = {
    "call pattern: one call at a time": ("sequential", CRITICAL_PATH),
    "call pattern of SAFE, 25 threads": ("safe", 4 * MODEL_S + SAFE_ROUNDS * (MODEL_S + SEARCH_S)),
    "call pattern of KnowRL's reward": ("knowrl", 2 * MODEL_S + PAIR_S),
}
_GOAL_RATIO, _GOAL_STEP = 1.15, 2.5

Run = dict[str, Any]


def main() -> None:
    """Alternate the contestants, print what they took, and write every run to `--json`."""
    options = _options()
    work = Workload(data_folder())
    many, grouped = work.separate(*SETS["many"]), work.grouped(*SETS["large"])
    groups = [grouped[start : start + SIZE] for start in range(0, PROMPTS * SIZE, SIZE)]
    some = _spread(work.separate(*SETS["few"]), options.veriscore_responses)
    python = None if options.no_veriscore else prepare(options.veriscore_venv.resolve())
    if python:
        add_factscore(python)
    runs: dict[str, list[Run]] = {}
    say = sys.stdout.write
    say(_machine() + f"; claims repeated within a group {100 * repeats(groups):.1f} %\n")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        known = work.table([*many, *grouped, work.warm_up()])
        (folder / "table.json").write_text(json.dumps(known), "utf-8")
        with running_stub(folder / "table.json", f"--ms-per-token={options.ms_per_token}") as stub:
            for number in range(options.rounds):
                ours = _ARMS | (_LARGE if options.large and not number else {})
                arms: dict[str, Callable[[], Run]] = {}
                if python:
                    job = folder / f"veriscore-{number}"
                    arms[PACKAGE] = lambda job=job: _package(python, some, work, stub, job, options)
                    job = folder / f"factscore-{number}"
                    arms[FACTSCORE] = lambda job=job: _factscore(python, some, known, many, stub, job)
                for name, (preset, sizes) in ours.items():
                    arms[name] = lambda preset=preset, sizes=sizes: _ours(preset, sizes, stub)
                for name in _PATTERNS if options.patterns and not number else ():
                    arms[name] = lambda name=name: _pattern(name, some, stub, folder / "some.json")
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


def bound(run: Run) -> float:
    """Seconds that these calls need at least on this server."""
    busy = (run["stub"][station]["service"] / SLOTS for station in ("llm", "search"))
    return max(*busy, run.get("critical", CRITICAL_PATH))


def table(runs: dict[str, list[Run]]) -> str:
    """One Markdown row per contestant: medians over the rounds; the range of the wall time."""
    head = (
        "run", "responses", "wall s", "s / response", "calls / resp.", "searches / resp.",
        "prompt tokens / resp.", "claims / resp.", "model in flight mean / max", "bound s", "wall / bound",
        "CPU ms / claim", "peak MB",
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
                "-" if name in _PATTERNS else f"{stub['tokens_in'] / count / 1000:.1f}k",
                f"{run['claims'] / count:.1f}",
                f"{stub['llm']['in_flight_mean']:.1f} / {stub['llm']['in_flight_max']}",
                f"{bound(run):.2f}",
                f"{wall / bound(run):.2f}",
                f"{1000 * run['cpu'] / max(1, run['claims']):.2f}",
                f"{run['peak_mb']:.0f}" if "peak_mb" in run else "-",
            )
        )
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _findings(runs: dict[str, list[Run]]) -> str:
    """The goals, and what the package would take for the training step."""
    medians = {name: statistics.median(run["wall"] for run in own) for name, own in runs.items()}
    ratio = statistics.median(run["wall"] / bound(run) for run in runs[MANY])
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


def _factscore(
    python: Path,
    responses: Sequence[Response],
    known: Run,
    many: Sequence[Response],
    stub: RunningStub,
    job: Path,
) -> Run:
    load, _ = _load(), stub.stats(clear=True)
    others = [one for one in many if one not in responses]
    run = run_factscore(python, responses, known["pages"], others, stub.url, job)
    return run | {"responses": len(responses), "stub": stub.stats(), "load": load, "critical": 2 * MODEL_S}


def _pattern(name: str, responses: Sequence[Response], stub: RunningStub, path: Path) -> Run:
    pattern, critical = _PATTERNS[name]
    items = [{"text": one.text, "sentences": one.sentences} for one in responses]
    path.write_text(json.dumps(items), "utf-8")
    load, _ = _load(), stub.stats(clear=True)
    run = _printed("call_patterns.py", pattern, str(path), stub.url)
    return run | {"responses": len(responses), "stub": stub.stats(), "load": load, "critical": critical}


def _ours(preset: str, sizes: Sequence[int], stub: RunningStub) -> Run:
    load = _load()
    run = _printed("factrl_run.py", preset, *map(str, sizes), stub.url)
    return run | {"responses": math.prod(sizes), "load": load}


def _printed(script: str, *told: str) -> Run:
    command = [sys.executable, str(Path(__file__).with_name(script)), *told]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)  # noqa: S603


def _splitting(python: Path, responses: Sequence[Response], job: Path) -> Run:
    """Sentence splitting of the same texts: VeriScore's spaCy pipeline against factrl's own, milliseconds."""
    from factrl.text.sentences import sentences

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
        f"({counts[0]} sentences), factrl.text.sentences {ours:.3f} ms ({total}, {alike} of them the same): "
        f"{theirs / ours:.0f} x"
    ]
    return {"spacy_ms": theirs, "factrl_ms": ours, "sentences": counts, "lines": lines}


def _line(name: str, run: Run) -> str:
    stub, labels = run["stub"], run.get("labels", {})
    return (
        f"{name:32} {run['wall']:7.2f} s  {run['wall'] / bound(run):6.2f} x bound  "
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--veriscore-venv", type=Path, default=Path(".venv-veriscore"), help="made when missing"
    )
    parser.add_argument("--veriscore-responses", type=int, default=4, help="it takes about 15 s for each")
    parser.add_argument("--veriscore-prompts", type=Path, help="the prompt folder of a clone; else stand-ins")
    parser.add_argument("--no-veriscore", action="store_true", help="without the published packages")
    parser.add_argument("--large", action="store_true", help="VeriScore's calls for 1,024 responses, once")
    parser.add_argument("--patterns", action="store_true", help="the call patterns of SAFE and KnowRL, once")
    parser.add_argument(
        "--ms-per-token", type=float, default=0.0, help="added to a call for each token it returns"
    )
    parser.add_argument("--json", type=Path, help="where to write every run")
    return parser.parse_args()


if __name__ == "__main__":
    main()
