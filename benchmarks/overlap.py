"""A training step with a judge that takes its time: stock TRL against factrl, which overlaps it.

    python benchmarks/overlap.py [--rounds 3] [--model FOLDER]

Three contestants train in turns on the same model (random by default, without a learning rate, so that every
step starts from the same weights), the same prompts and the same completions, which are drawn once:

    TRL            `GRPOTrainer` as it comes, with the reward as an `async def`; it generates by itself and is
                   then given the same completions as the others, which are as long in the mean
    in a row       factrl, its shortcuts on, `overlap` and `sort_by_length` off
    overlapped     factrl as it comes

The judge is a server on loopback in a process of its own, and both sides ask it with the same client.  Its
time J is 0, 0.5 and 2 times factrl's time to generate, in two shapes: `answers after J` answers every
request J seconds after it came, however many there are; `needs J for a step` has eight slots, in which the
requests of one step take J seconds together.

The bound is max(generation + update, J), with both from `in a row` at J = 0.  No trainer that starts a step
from the weights of the last one always reaches it: the last completion is written at the end of the
generation and judged later, and a prompt is trained on when the longest of its completions is judged.  What
these lengths and this judge allow is the last column, from the simulation of `scaling.py`, with overlapped's
own generation and update at J = 0.  Times are wall times: run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scaling import GRADE, simulate
from stub_server import Connection, Station

PROMPTS, SIZE, MICRO, LONGEST = 8, 8, 8, 64
WORDS, ENDS = 4096, 128  # tokens of the vocabulary, and how many of them end a completion
SLOTS, UNLIMITED, STEPS = 8, 1_000, 3  # the first step of a run is left out
TIMES, SHAPES = (0.0, 0.5, 2.0), ("answers after J", "needs J for a step")
ARMS = ("TRL", "in a row", "overlapped")
Steps = list[dict[str, float]]
Cells = dict[tuple[str, float], dict[str, Steps]]


class Judge:
    """The server's state; `Connection` asks it."""

    def __init__(self) -> None:
        self._station = Station(0.0, UNLIMITED)

    def answer(self, method: str, path: str, body: bytes) -> tuple[float, bytes]:
        """Seconds to wait, and a number from 0 to 9 that depends on the text alone."""
        document = json.loads(body)
        if path == "/set":
            self._station = Station(document["seconds"], document["slots"])
            return 0.0, b"{}"
        now = time.monotonic()
        text = str(zlib.crc32(document["messages"][-1]["content"].encode()) % 10)
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        reply = {"id": "judge", "object": "chat.completion", "created": 0, "model": "judge"}
        return self._station.admit(now) - now, json.dumps(reply | {"choices": [choice]}).encode()


@contextlib.contextmanager
def running_judge() -> Iterator[str]:
    """The address of a judge that ends with this process at the latest."""
    command = [sys.executable, __file__, "--serve"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert process.stdout  # noqa: S101
        yield process.stdout.readline().strip()
    finally:
        assert process.stdin  # noqa: S101
        process.stdin.close()
        process.wait(timeout=30)


def set_judge(url: str, shape: str, seconds: float) -> None:
    """How long the judge takes from now on."""
    each, slots = pace(shape, seconds)
    body = json.dumps({"seconds": each, "slots": slots}).encode()
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    direct.open(urllib.request.Request(f"{url}/set", data=body), timeout=30).close()  # noqa: S310


def pace(shape: str, seconds: float) -> tuple[float, int]:
    """Seconds of one request, and how many are answered at once."""
    return (seconds, UNLIMITED) if shape == SHAPES[0] else (seconds * SLOTS / (PROMPTS * SIZE), SLOTS)


async def _serve() -> None:
    loop, over, judge = asyncio.get_running_loop(), asyncio.Event(), Judge()
    server = await loop.create_server(lambda: Connection(judge), "127.0.0.1", 0, backlog=1024)  # pyright: ignore
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop.add_reader(sys.stdin.fileno(), over.set)
    await over.wait()
    server.close()


class Bench:
    """The policy, its prompts and completions, and the client that both sides ask the judge with."""

    def __init__(self, url: str, folder: Path, model: Path | None) -> None:
        import torch

        from factrl.llm import connect

        self.folder, self.model = folder, model or random_model(folder / "policy")
        self.client: Any = connect(f"{url}/v1#judge", max_concurrency=256)
        self.uniforms = torch.rand(
            STEPS, PROMPTS, SIZE, LONGEST, generator=torch.Generator().manual_seed(0), dtype=torch.float64
        )
        self.drawn: dict[int, list[list[int]]] = {}

    async def grade(self, text: str) -> float:
        """What the judge says of a completion."""
        return float((await self.client.acomplete([{"role": "user", "content": text}])).text)

    def run(self, arm: str) -> Steps:
        """Of every step but the first: wall seconds, those of its generation, loss and gradient norm."""
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback

        from factrl.rewards import reward
        from factrl.types import Completion, Example

        policy = AutoModelForCausalLM.from_pretrained(self.model)
        tokenizer: Any = AutoTokenizer.from_pretrained(self.model, padding_side="left")
        prompts = [tokenizer.decode(range(100 + 20 * number, 140 + 20 * number)) for number in range(PROMPTS)]
        kind, config = trainer_kind(self, arm), settings(self.folder, arm)
        if arm == "TRL":

            async def judged(completions: list[str], **_: Any) -> list[float]:
                return list(await asyncio.gather(*map(self.grade, completions)))

            rows = Dataset.from_dict({"prompt": prompts})
            trainer = kind(policy, judged, args=config, train_dataset=rows, processing_class=tokenizer)
        else:

            @reward
            async def graded(example: Example, completion: Completion) -> dict[str, float]:
                return {"grade": await self.grade(completion)}

            examples = [Example(prompt) for prompt in prompts]
            trainer = kind(policy, graded, examples, prompts, config, processing_class=tokenizer)
        trainer.remove_callback(PrinterCallback)
        clock = step_clock()
        trainer.add_callback(clock)
        trainer.train()
        logs = [entry for entry in trainer.state.log_history if "loss" in entry]
        told = zip(clock.seconds, trainer.generation, logs, strict=True)
        return [
            {"step": step, "generation": generation, "loss": log["loss"], "gradient": log["grad_norm"]}
            for step, generation, log in told
        ][1:]


def step_clock() -> Any:
    """A callback that times the optimizer steps."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):
        def __init__(self) -> None:
            self.seconds: list[float] = []

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self._begun = time.perf_counter()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.seconds.append(time.perf_counter() - self._begun)

    return Clock()


def trainer_kind(bench: Bench, arm: str) -> Any:
    """A trainer that times its generation and writes what the others write."""
    from trl.trainer.grpo_trainer import GRPOTrainer

    from factrl.train import shortcuts
    from factrl.train.grpo import FactualGRPOTrainer
    from factrl.train.sampling import sample

    parent: Any = GRPOTrainer if arm == "TRL" else FactualGRPOTrainer

    class Timed(parent):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.generation: list[float] = []
            super().__init__(*args, **kwargs)

        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            number = len(self.generation)
            shortcuts.sample = functools.partial(sample, uniforms=bench.uniforms[number])
            begun = time.perf_counter()
            ids, more = super()._generate_single_turn(*args, **kwargs)
            self.generation.append(time.perf_counter() - begun)
            if arm != "TRL":
                drawn = bench.drawn.setdefault(number, ids)
                assert drawn == ids  # noqa: S101
            return bench.drawn[number], more

    return Timed


def settings(folder: Path, arm: str) -> Any:
    """TRL's settings, the same for all."""
    from trl.trainer.grpo_config import GRPOConfig

    from factrl.train.grpo import FactualGRPOConfig

    told: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "max_steps": STEPS,
        "per_device_train_batch_size": MICRO,
        "gradient_accumulation_steps": PROMPTS * SIZE // MICRO,
        "num_generations": SIZE,
        "max_completion_length": LONGEST,
        "learning_rate": 0.0,
        "top_k": 0,
        "gradient_checkpointing": False,
        "bf16": False,
        "use_cpu": True,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "shuffle_dataset": False,
    }
    if arm == "TRL":
        return GRPOConfig(**told)
    on = arm == "overlapped"
    return FactualGRPOConfig(**told, chat=False, advantage_epsilon=1e-4, overlap=on, sort_by_length=on)


def random_model(folder: Path) -> Path:
    """A Llama of 1.4 million random weights, whose completions end after about thirty tokens."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<end>": 1, **{f"w{number}": number for number in range(2, WORDS)}}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))  # noqa: S106
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>")  # noqa: S106
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = list(range(1, 1 + ENDS))
    model.save_pretrained(folder)
    return folder


def table(found: Cells, bench: Bench, generation: float) -> str:
    """One Markdown row per judge."""
    ratios = ("TRL / overlapped", "in a row / overlapped", "overlapped / bound", "simulated s")
    head = ("judge", "J s", *(f"{arm} s" for arm in ARMS), *ratios)
    rows = [head, ("---",) * len(head)]
    at_once = found[SHAPES[0], 0.0]
    bound_alone = statistics.median(step["step"] for step in at_once["in a row"])
    for (shape, times), runs in found.items():
        seconds = {arm: [step["step"] for step in runs[arm]] for arm in ARMS}
        theirs, plain, ours = seconds.values()
        bound = max(bound_alone, times * generation)
        rows.append(
            (
                shape if times else "answers at once",
                f"{times * generation:.2f}",
                *(_spread(seconds[arm]) for arm in ARMS),
                _spread([a / b for a, b in zip(theirs, ours, strict=True)]),
                _spread([a / b for a, b in zip(plain, ours, strict=True)]),
                _spread([step / bound for step in ours]),
                f"{possible(shape, times * generation, bench, at_once['overlapped']):.2f}",
            )
        )
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def possible(shape: str, judge: float, bench: Bench, at_once: Steps) -> float:
    """Seconds of an overlapped step with these completions, as tokens come at a steady pace."""
    generation = statistics.median(step["generation"] for step in at_once)
    update = statistics.median(step["step"] - step["generation"] for step in at_once)
    each, slots = pace(shape, judge)
    steps = [
        simulate([generation * len(ids) / LONGEST for ids in drawn], SIZE, 0, GRADE, each, slots, 1, update)
        for number, drawn in bench.drawn.items()
        if number
    ]
    return statistics.median(end for _, end in steps)


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Print the table and whether the losses agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path, help="folder of a policy; a random one by default")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(_serve())
        return
    from factrl.train.quiet import quiet_libraries

    quiet_libraries()
    say: Callable[[str], Any] = sys.stdout.write
    found: Cells = {}
    with running_judge() as url, tempfile.TemporaryDirectory() as place:
        bench = Bench(url, Path(place), options.model)
        generation = statistics.median(step["generation"] for step in bench.run("in a row"))
        cells = [(SHAPES[0], 0.0), *((shape, times) for shape in SHAPES for times in TIMES[1:])]
        for number in range(options.rounds):
            say(f"round {number + 1}, load {os.getloadavg()[0]:.1f}\n")
            for shape, times in cells:
                set_judge(url, shape, times * generation)
                for arm in ARMS:
                    found.setdefault((shape, times), {}).setdefault(arm, []).extend(bench.run(arm))
    pairs = [pair for runs in found.values() for pair in zip(runs["TRL"], runs["overlapped"], strict=True)]
    loss = max(abs(one["loss"] - other["loss"]) for one, other in pairs)
    gradient = max(abs(one["gradient"] / other["gradient"] - 1) for one, other in pairs)
    say(f"\n{table(found, bench, generation)}\n")
    say(
        f"TRL and overlapped differ by at most {loss:.0e} in the loss and {100 * gradient:.3f} % in the norm "
        "of the gradient\n"
    )


if __name__ == "__main__":
    main()
