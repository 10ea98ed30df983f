"""What a step of GRPO costs on a GPU, part by part, and what the reward adds to it.

    python benchmarks/gpu/speed.py 0.5b|1.5b|7b [--vllm] [--json FILE]    random weights, no download
    python benchmarks/gpu/speed.py tiny                                   the same on CPU cores, to try it

TRL's own trainer with `to_trl(reward)` and factrl's write completions of random tokens, none of which ends
early, for a judge in a process of its own that takes 0, half and twice as long for a reply as a step took to
generate.  factrl's trainer also asks the reward through `factrl serve`.  Of each run the first step warms up;
the table has medians of the others, and how often the judge was asked about a completion: once, or something
is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast, PrinterCallback
from trl.trainer.grpo_trainer import GRPOTrainer

import factrl as fx
from factrl.bridges.trl import to_trl
from factrl.job import read_job
from factrl.runs.settings import RunSettings
from factrl.train.grpo import FactualGRPOTrainer
from factrl.train.model import for_command_line, load_policy, lora_config, render_prompts
from factrl.train.online import grpo_config

# Hidden and inner size, layers, heads, heads of keys, words: as Qwen2.5 has them, in a Llama.
SHAPES = {
    "tiny": (64, 128, 2, 4, 2, 2_000),
    "0.5b": (896, 4_864, 24, 14, 2, 151_936),
    "1.5b": (1_536, 8_960, 28, 12, 2, 151_936),
    "7b": (3_584, 18_944, 28, 28, 4, 151_936),
}
PROMPT = 200  # words, each a token
Seconds = dict[str, float]


@fx.reward
def judged(example: fx.Example, completion: fx.Completion, *, grade: fx.Grader) -> dict[str, float]:
    """1 where the judge finds a completion right; no rule decides random words, so it is asked about each."""
    return {"right": float(grade(example.question, completion, example.answers).label == "correct")}


def make_model(shape: str, folder: Path) -> None:
    """Random weights of a shape, and a tokenizer with a word for every token."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    hidden, inner, layers, heads, keys, words = SHAPES[shape]
    vocabulary = {"<pad>": 0, "<end>": 1, **{f"w{number}": number for number in range(2, words)}}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")  # noqa: S106
    fast.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    fast.save_pretrained(folder)
    told = LlamaConfig(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        tie_word_embeddings=shape != "7b",
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(told, dtype=torch.bfloat16).save_pretrained(folder)


def _judge(port: int, seconds: Any, asked: Any) -> None:
    """A judge that finds everything wrong, `seconds.value` after it was asked; it counts in `asked`."""
    reply = {"message": {"role": "assistant", "content": "VERDICT: incorrect"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [{"index": 0, **reply}], "usage": {}, "model": "judge"}).encode()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            with asked.get_lock():
                asked.value += 1
            time.sleep(seconds.value)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: Any) -> None:
            """Nothing is logged."""

    ThreadingHTTPServer.request_queue_size = 1_024
    ThreadingHTTPServer(("127.0.0.1", port), Answers).serve_forever()


def _serve(port: int, url: str) -> None:
    """`factrl serve` with this reward and that judge."""
    from factrl.cli import main as cli

    cli(["serve", f"{__file__}:judged", "--judge", url, "--port", str(port), "verifier.cache=false"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _reachable(port: int) -> None:
    for _ in range(1_800):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


@contextlib.contextmanager
def beside(work: Any, *arguments: Any) -> Iterator[int]:
    """A process that serves on a port of its own."""
    port = _free_port()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(port, *arguments), daemon=True)
    process.start()
    try:
        _reachable(port)
        yield port
    finally:
        process.terminate()
        process.join()


def measured(kind: type[GRPOTrainer], times: list[Seconds]) -> Any:
    """That trainer, which appends the seconds of each step's parts."""

    class Timed(kind):  # type: ignore[valid-type, misc]
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            if self._step % self.args.gradient_accumulation_steps == 0:
                times.append({"step": 0.0, "generation": 0.0, "reward": 0.0})
            return _timed(times, "step", super().training_step, *args, **kwargs)

        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            return _timed(times, "generation", super()._generate_single_turn, *args, **kwargs)

        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
            return _timed(times, "reward", super()._calculate_rewards, *args, **kwargs)

    return Timed


def _timed(times: list[Seconds], part: str, work: Any, *args: Any, **kwargs: Any) -> Any:
    started = time.perf_counter()
    found = work(*args, **kwargs)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    times[-1][part] += time.perf_counter() - started
    return found


def steps(engine: str, settings: RunSettings, reward: Any, folder: Path) -> list[Seconds]:
    """The parts of each step of a run."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    model, tokenizer = load_policy(settings.model)
    rows = [fx.Example(_words(number), ("nothing",), id=str(number)) for number in range(64)]
    prompts = render_prompts(rows, tokenizer, settings.data)
    config = grpo_config(settings, folder)
    config.save_strategy, config.generation_kwargs = "no", {"min_new_tokens": config.max_completion_length}
    if settings.train.use_vllm:
        config.generation_kwargs = {"ignore_eos": True}
        config.vllm_gpu_memory_utilization = 0.3
    times: list[Seconds] = []
    known = {"processing_class": tokenizer, "peft_config": lora_config(settings.model)}
    if engine == "factrl":
        kind, score = FactualGRPOTrainer, reward
    else:
        kind, score = GRPOTrainer, to_trl(reward)
    from datasets import Dataset

    columns = {
        "prompt": prompts,
        "question": [row.question for row in rows],
        "answers": [["nothing"]] * 64,
    }
    trainer = measured(kind, times)(model, score, config, Dataset.from_dict(columns), **known)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return times


def _words(number: int) -> str:
    return " ".join(f"w{2 + (number * 31 + place * 7) % 1_900}" for place in range(PROMPT))


def row(name: str, times: list[Seconds], tokens: int) -> dict[str, Any]:
    """Medians of all steps but the first, tokens a second, the reward's share, and the memory held."""
    middle = {part: statistics.median(step[part] for step in times[1:]) for part in times[0]}
    gpu = torch.cuda.is_available()
    return {
        "run": name,
        **{part: round(value, 3) for part, value in middle.items()},
        "update": round(middle["step"] - middle["generation"] - middle["reward"], 3),
        "tokens_per_s": round(tokens / middle["step"]),
        "reward_share": round(middle["reward"] / middle["step"], 3),
        "memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 1) if gpu else None,
        "seconds_of_steps": [round(step["step"], 2) for step in times],
    }


def main() -> None:
    """Print one table, and write one JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--vllm", action="store_true", help="completions by vLLM in the trainer's process")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--completions", type=int, default=64, help="of a step, eight to a prompt")
    parser.add_argument("--tokens", type=int, default=256, help="of a completion")
    parser.add_argument("--lora", action="store_true", help="an adapter, as 7b in float32 wants 112 GB")
    parser.add_argument("--json", type=Path, help="where the numbers go")
    options = parser.parse_args()
    for_command_line()
    os.environ["FACTRL_JUDGE_API_KEY"] = "none"
    found: list[dict[str, Any]] = []
    spawn = multiprocessing.get_context("spawn")
    seconds, asked = spawn.Value("d", 0.0), spawn.Value("i", 0)
    with tempfile.TemporaryDirectory() as place, beside(_judge, seconds, asked) as port:
        folder = Path(place)
        make_model(options.shape, folder / "model")
        url = f"http://127.0.0.1:{port}/v1#judge"
        words = (
            f"paper=truthrl model.name={folder / 'model'} model.lora={str(options.lora).lower()} "
            f"data.train=none data.prompt={{question}} judge.max_concurrency={options.completions} "
            f"train.steps={options.steps} train.prompts_per_step={options.completions // 8} "
            "train.num_generations=8 train.micro_batch_size=8 "
            f"train.max_completion_length={options.tokens} train.use_vllm={str(options.vllm).lower()}"
        )
        told = read_job(None, words.split()).settings
        # Without a store every completion is asked about, also where another run had the same.
        judge = fx.connect(url, max_concurrency=options.completions)
        reward = judged.with_(grade=fx.Grader(judge))
        tokens = options.completions * options.tokens

        def run(name: str, engine: str, by: Any) -> None:
            before = asked.value
            found.append(row(name, steps(engine, told, by, folder / "run"), tokens))
            found[-1]["judge_calls"] = (asked.value - before) / options.steps / options.completions
            sys.stdout.write(json.dumps(found[-1]) + "\n")
            sys.stdout.flush()

        for engine in ("TRL", "factrl"):
            run(f"{engine}, judge 0", engine, reward)
            generation = found[-1]["generation"]
            for times in (0.5, 2.0):
                seconds.value = times * generation
                run(f"{engine}, judge {times}x", engine, reward)
            seconds.value = 0.0
        with beside(_serve, url) as served:
            run(
                "factrl, reward over HTTP, judge 0",
                "factrl",
                fx.remote(f"http://127.0.0.1:{served}", f"{__file__}:judged"),
            )
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    names = [name for name in found[0] if name not in ("run", "seconds_of_steps")]
    sys.stdout.write(f"\n{options.shape} on {device}, {options.completions} x {options.tokens} tokens\n")
    sys.stdout.write(f"{'':34}{''.join(f'{name:>14}' for name in names)}\n")
    for one in found:
        sys.stdout.write(f"{one['run']:34}{''.join(f'{one[name]!s:>14}' for name in names)}\n")
    if options.json:
        options.json.write_text(
            json.dumps({"device": device, **vars(options), "json": None, "rows": found}, default=str)
        )


if __name__ == "__main__":
    main()
