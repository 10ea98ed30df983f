"""How long rewards take at sizes that no small machine can train: on paper, and through the stub's own queue.

    python benchmarks/scaling.py [--judge 70] [--efficiency 0.3] …
    FACTRL_DATA=… python benchmarks/scaling.py --live       and the real engine against the running stub

Nothing here was measured on a GPU.  Times come from a roofline: a pass over T tokens takes the longer of
2 x parameters x T / (peak x efficiency) and, when decoding, the bytes of weights and cache that it reads over
(bandwidth x efficiency).  The peaks are the data sheet's of one H100 SXM, sizes are those of the models'
public configurations; every assumption is an option with its value in --help.  The calls of a reward per
response and claim are those that `benchmarks/engine.py` counted.

On paper, the rewards of a step take the longest of

    calls x seconds of a call / slots    searches x seconds of a search / slots    the chain of one response

from the moment when everything is written.  The simulation sends every call of every response through
`Station`, the queue of `stub_server.py`, from the moment when its completion ends, and trains on each prompt
when it is judged, in the order of `train/overlap.py`.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stub_server import MODEL_S, SEARCH_S, SLOTS, Station, running_stub
from workload import Workload, data_folder

RECIPES = Path(__file__).parents[1] / "recipes"


@dataclass(frozen=True)
class Model:
    """What a roofline needs: parameters, and bytes of the cache of keys and values per token (bfloat16)."""

    name: str
    parameters: float
    cache: float
    gpus: int  # that hold one copy


# Parameters, and layers x 2 x key-value heads x 128 x 2 bytes, of Qwen2.5 and Llama-3.3.
MODELS = {
    3: Model("3B", 3.1e9, 36 * 2 * 2 * 256, 1),
    7: Model("7B", 7.6e9, 28 * 2 * 4 * 256, 1),
    14: Model("14B", 14.8e9, 48 * 2 * 8 * 256, 1),
    32: Model("32B", 32.8e9, 64 * 2 * 8 * 256, 2),
    70: Model("70B", 70.6e9, 80 * 2 * 8 * 256, 4),
}


@dataclass(frozen=True)
class Kind:
    """The calls of one reward.

    Attributes:
        before: calls of a response that start with it, such as the extraction of its claims or its grade.
        per_call: claims of one verdict call, for which one search is made; 0 where no claims are judged.
        tokens: prompt tokens of one call.
    """

    name: str
    before: int
    per_call: int
    tokens: int

    def calls(self, claims: int) -> int:
        """Of one response."""
        return self.before + (math.ceil(claims / self.per_call) if self.per_call else 0)


# engine.py: 8.6k prompt tokens over 6.4 calls with shared evidence, 26.5k over 38.1 with VeriScore's
# structure, whose extraction asks once per sentence (about seven).  A grade is one short call.
GRADE = Kind("grade", 1, 0, 400)
SHARED = Kind("verify, shared", 1, 5, 1340)
SINGLE = Kind("verify, VeriScore", 7, 1, 700)
CHECKLIST = Kind("extract and check a list", 2, 0, 1340)
# What a recipe asks its judge for; verdicts of an NLI model or of the policy's certainty are no calls.
RECIPE_KINDS = {
    "truthrl": GRADE,
    "knowrl": Kind("grade and extract", 2, 0, 1340),
    "fspo": Kind("grade", 1, 0, 400),
    "klcf": CHECKLIST,
    "factreason": SINGLE,
    "robust": Kind("grade and verify", 2, 5, 1340),
    "intuitor": Kind("none", 0, 0, 0),
}


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        prompts, size: completions are prompts x size.
        tokens: of a completion, on average.
        gpus: that generate, and then train.
    """

    model: Model
    prompts: int
    size: int
    tokens: int
    gpus: int


@dataclass(frozen=True)
class Machine:
    """The assumptions: one GPU, how much of its peaks is reached, the judge, its replies and the search."""

    flops: float
    bandwidth: float
    efficiency: float
    judge: Model
    slots: int
    call_tokens: int
    prompt_tokens: int
    search_slots: int

    def decode(self, model: Model, batch: float, context: float) -> float:
        """Seconds for one token of each of `batch` sequences on one copy of a model."""
        read = 2 * model.parameters + batch * context * model.cache
        compute = 2 * model.parameters * batch / self.flops
        return max(read / self.bandwidth, compute) / (self.efficiency * model.gpus)

    def generation(self, step: Step) -> float:
        """Seconds to write the completions of a step; the batch shrinks as they end, which is not counted."""
        batch = step.prompts * step.size / max(1, step.gpus // step.model.gpus)
        return step.tokens * self.decode(step.model, batch, self.prompt_tokens + step.tokens / 2)

    def update(self, step: Step) -> float:
        """Seconds to train: a forward pass, a backward pass, and the forward again of checkpointing."""
        tokens = step.prompts * step.size * (self.prompt_tokens + step.tokens)
        return 8 * step.model.parameters * tokens / (self.flops * self.efficiency * step.gpus)

    def call(self, kind: Kind) -> float:
        """Seconds of one call of the judge while all of its slots are busy."""
        prompt = 2 * self.judge.parameters * kind.tokens / (self.flops * self.efficiency * self.judge.gpus)
        # Every other call's prompt is read once meanwhile, in between the tokens of this one.
        return self.slots * prompt + self.call_tokens * self.decode(self.judge, self.slots, kind.tokens)


def on_paper(responses: int, claims: int, kind: Kind, call: float, slots: int, searches: int) -> float:
    """Seconds of the rewards of a step, all of whose completions are there; `searches` at once."""
    verdicts = kind.calls(claims) - kind.before
    return max(
        responses * kind.calls(claims) * call / slots,
        responses * verdicts * SEARCH_S / searches,
        call + (SEARCH_S + call) * (verdicts > 0),
    )


def simulate(
    ends: list[float],
    size: int,
    claims: int,
    kind: Kind,
    call: float,
    slots: int,
    searches: int,
    update: float = 0.0,
) -> tuple[float, float]:
    """When the last reward is there, and when the step ends, in seconds from its beginning.

    A verdict call follows a search; all of a response's begin when its first calls are answered.

    Args:
        ends: when each completion is written; those of one prompt are neighbours.
        update: seconds to train on all.
    """
    judge, search = Station(call, slots), Station(SEARCH_S, searches)
    number = itertools.count()
    events = [(end, next(number), "call", row) for row, end in enumerate(ends) for _ in range(kind.before)]
    heapq.heapify(events)
    left, verdicts = [kind.before] * len(ends), [kind.calls(claims) - kind.before] * len(ends)
    rewarded = list(ends)
    while events:
        now, _, what, row = heapq.heappop(events)
        if what == "search":
            heapq.heappush(events, (search.admit(now), next(number), "call", row))
        elif what == "call":
            heapq.heappush(events, (judge.admit(now), next(number), "answer", row))
        else:
            left[row] -= 1
            rewarded[row] = now
            if not left[row]:
                left[row], verdicts[row] = verdicts[row], 0
                for _ in range(left[row]):
                    heapq.heappush(events, (now, next(number), "search", row))
    groups = [range(start, start + size) for start in range(0, len(ends), size)]
    groups.sort(key=lambda rows: max(ends[row] for row in rows))
    free = max(ends)
    for rows in groups:
        free = max(free, *(rewarded[row] for row in rows)) + update / len(groups)
    return max(rewarded), free


def written(step: Step, machine: Machine) -> list[float]:
    """When each completion ends: lengths are uniform from half to one and a half times the mean."""
    draw = random.Random(0)
    each = machine.generation(step) / step.tokens
    return [each * step.tokens * draw.uniform(0.5, 1.5) for _ in range(step.prompts * step.size)]


def needed(step: Step, claims: int, kind: Kind, machine: Machine) -> tuple[int, float]:
    """The fewest replicas of the judge whose overlapped step is within 5 % of what any number gives, and the
    seconds of that step."""
    ends, update, call = written(step, machine), machine.update(step), machine.call(kind)

    def seconds(replicas: int) -> float:
        slots = replicas * machine.slots
        return simulate(ends, step.size, claims, kind, call, slots, machine.search_slots, update)[1]

    enough = 1.05 * seconds(4096)
    low, high = 0, 1
    while seconds(high) > enough:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if seconds(middle) <= enough else (middle, high)
    return high, seconds(high)


def growth(machine: Machine, prompts: int) -> Iterator[tuple[str, ...]]:
    """Reward seconds by group size, claims and replicas: on paper and simulated, from when all is written."""
    yield "reward", "group", "claims", "replicas", "calls", "paper s", "simulated s", "simulated / paper"
    grid = [(8, 28, 1), (16, 28, 1), (32, 28, 1), (8, 14, 1), (8, 56, 1), (8, 28, 2), (8, 28, 4), (8, 28, 16)]
    for kind, (size, claims, replicas) in itertools.product((GRADE, SHARED, SINGLE), grid):
        call, slots = machine.call(kind), replicas * machine.slots
        responses = prompts * size
        paper = on_paper(responses, claims, kind, call, slots, machine.search_slots)
        found, _ = simulate([0.0] * responses, size, claims, kind, call, slots, machine.search_slots)
        calls = responses * kind.calls(claims)
        row = (kind.name, size, claims, replicas, f"{calls:,}", f"{paper:.1f}", f"{found:.1f}")
        yield (*map(str, row), f"{found / paper:.2f}")


def hiding(machine: Machine, prompts: int, claims: int, tokens: int) -> Iterator[tuple[str, ...]]:
    """When the reward stops hiding, for runs of 7B on 8 and 32B on 32 GPUs."""
    yield (
        *("policy", "GPUs", "group", "reward", "generation s", "update s", "reward s, 1 replica"),
        *("replicas", "step s", "step / (generation + update)", "one after the other s"),
    )
    for (model, gpus), size in itertools.product(((MODELS[7], 8), (MODELS[32], 32)), (8, 16)):
        step = Step(model, prompts, size, tokens, gpus)
        ends, update = written(step, machine), machine.update(step)
        for kind in (GRADE, SHARED, SINGLE):
            call, searches = machine.call(kind), machine.search_slots
            replicas, seconds = needed(step, claims, kind, machine)
            one, many = (
                on_paper(len(ends), claims, kind, call, number * machine.slots, searches)
                for number in (1, replicas)
            )
            row = (model.name, gpus, size, kind.name, f"{max(ends):.0f}", f"{update:.0f}", f"{one:.0f}")
            alone = max(ends) + update
            yield (
                *map(str, (*row, replicas)),
                f"{seconds:.0f}",
                f"{seconds / alone:.2f}",
                f"{alone + many:.0f}",
            )


def of_recipes(machine: Machine, claims: int, gpus: int, share: float) -> Iterator[tuple[str, ...]]:
    """The judge replicas of each recipe, at the size of its model and step."""
    from factrl.plan import run_settings

    yield (
        *("recipe", "policy", "completions", "tokens", "calls / response", "generation + update s"),
        *("replicas", "step s"),
    )
    for path in sorted(RECIPES.glob("*.toml")):
        named = bool(re.search(r"^name *=", path.read_text("utf-8"), re.MULTILINE))
        given = ["data.train=questions.jsonl", *([] if named else ["model.name=policy-7B"])]
        told = run_settings(path, given)
        billions = re.search(r"(\d+)B", told.model.name)
        model = min(MODELS.values(), key=lambda one: abs(one.parameters - 1e9 * float(billions[1])))  # pyright: ignore
        train, kind = told.train, RECIPE_KINDS[path.stem]
        tokens = round(share * train.max_completion_length)
        step = Step(model, train.prompts_per_step, train.num_generations, tokens, max(gpus, model.gpus))
        alone = max(written(step, machine)) + machine.update(step)
        replicas, seconds = needed(step, claims, kind, machine) if kind.before else (0, alone)
        completions = f"{step.prompts} x {step.size}"
        row = (path.stem, model.name, completions, tokens, kind.calls(claims), f"{alone:.0f}", replicas)
        yield (*map(str, row), f"{seconds:.0f}")


def live() -> Iterator[tuple[str, ...]]:
    """The real engine with shared evidence against the stub, 16 prompts of 4, 8 and 16 responses."""
    yield "responses", "claims", "paper s", "simulated s", "measured s", "CPU s of the engine"
    work = Workload(data_folder())
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "table.json"
        responses = [one for size in (4, 8, 16) for one in work.grouped(16, size)]
        path.write_text(json.dumps(work.table([*responses, work.warm_up()])), "utf-8")
        with running_stub(path) as stub:
            for size in (4, 8, 16):
                script = Path(__file__).with_name("factrl_run.py")
                command = [sys.executable, str(script), "shared", "16", str(size), stub.url]
                run = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)  # noqa: S603
                claims = round(run["claims"] / (16 * size))
                paper = on_paper(16 * size, claims, SHARED, MODEL_S, SLOTS, SLOTS)
                found, _ = simulate([0.0] * 16 * size, size, claims, SHARED, MODEL_S, SLOTS, SLOTS)
                yield (
                    *(str(16 * size), str(run["claims"]), f"{paper:.2f}", f"{found:.2f}"),
                    *(f"{run['wall']:.2f}", f"{run['cpu']:.2f}"),
                )


def main() -> None:
    """Print the assumptions and the three tables."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--flops", type=float, default=989e12, help="peak of one GPU, dense bfloat16")
    parser.add_argument("--bandwidth", type=float, default=3.35e12, help="of one GPU's memory, bytes/s")
    parser.add_argument("--efficiency", type=float, default=0.4, help="share of either peak that is reached")
    parser.add_argument("--judge", type=int, default=7, choices=sorted(MODELS), help="its size, in billions")
    parser.add_argument("--slots", type=int, default=64, help="calls that one replica of it answers at once")
    parser.add_argument("--call-tokens", type=int, default=160, help="that the judge writes for one call")
    parser.add_argument("--prompts", type=int, default=64, help="of a step, in the first two tables")
    parser.add_argument("--prompt-tokens", type=int, default=200, help="of the policy's prompt")
    parser.add_argument("--tokens", type=int, default=1000, help="of a completion, on average")
    parser.add_argument("--claims", type=int, default=28, help="of a completion, on average")
    parser.add_argument("--gpus", type=int, default=8, help="of the policy, in the table of recipes")
    parser.add_argument(
        "--share", type=float, default=0.5, help="mean length over the recipe's longest completion"
    )
    parser.add_argument("--search-slots", type=int, default=256, help="searches of 0.2 s answered at once")
    parser.add_argument("--live", action="store_true", help="run the engine against the stub instead")
    told = parser.parse_args()
    if told.live:
        show(live())
        return
    machine = Machine(
        told.flops,
        told.bandwidth,
        told.efficiency,
        MODELS[told.judge],
        told.slots,
        told.call_tokens,
        told.prompt_tokens,
        told.search_slots,
    )
    sys.stdout.write(
        "assumed: " + ", ".join(f"{name} {value:g}" for name, value in vars(told).items()) + "\n"
    )
    calls = ", ".join(f"{kind.name} {machine.call(kind):.1f} s" for kind in (GRADE, SHARED, SINGLE))
    sys.stdout.write(f"one call of the judge: {calls}\n")
    show(growth(machine, told.prompts))
    show(hiding(machine, told.prompts, told.claims, told.tokens))
    show(of_recipes(machine, told.claims, told.gpus, told.share))


def show(rows: Iterator[tuple[str, ...]]) -> None:
    """A Markdown table, of which the first row is the head."""
    head = next(rows)
    sys.stdout.write("\n| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|\n")
    for row in rows:
        sys.stdout.write("| " + " | ".join(row) + " |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
