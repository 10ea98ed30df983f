"""What bfloat16 weights with float32 masters would save a training step on a CPU, and what they change.

    OMP_NUM_THREADS=1 python benchmarks/half.py [ROUNDS]

factrl keeps float32 weights and lets autocast take the products in bfloat16 (`train.bf16`).  With masters the
model itself would be bfloat16 and be copied from float32 weights after each update.  For the demo's model, in
turns: CPU milliseconds per token of 4 rows while generating, CPU seconds of one forward and backward pass of
4 x 256 tokens, and how far the log-probabilities of the tokens are from float32's.
"""

from __future__ import annotations

import contextlib
import copy
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from factrl.demo.questions import build_questions
from factrl.demo.settings import demo_settings
from factrl.train.embedded import SMALLEST
from factrl.train.model import load_policy
from factrl.train.quiet import quiet_libraries
from factrl.train.sampling import sample

ROWS, NEW, TOKENS = 4, 24, 256
PROMPTS = (30, 1000)  # tokens before those that are generated


def main() -> None:
    """Print a line for every kind of weights."""
    quiet_libraries()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    model, tokenizer = load_policy(demo_settings([f"model.name={SMALLEST}"], "truthrl:ternary").model)
    model.config.use_cache = True
    text = " ".join(f"{each.question} {each.answers[0]}" for each in build_questions(0).train)
    ids = tokenizer(text)["input_ids"]
    halved = copy.deepcopy(model).to(torch.bfloat16)
    kinds = {
        "float32": (model, contextlib.nullcontext),
        "float32, autocast": (model, lambda: torch.autocast("cpu", torch.bfloat16)),
        "bfloat16, masters": (halved, contextlib.nullcontext),
    }
    batch = torch.tensor(ids[: ROWS * TOKENS]).view(ROWS, TOKENS)
    took: dict[str, list[tuple[float, ...]]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, (weights, context) in kinds.items():
            with context():
                tokens = [generation(weights, ids[:size]) for size in PROMPTS]
            took[name].append((*tokens, update(weights, context, batch)))
    exact = logprobs(model, contextlib.nullcontext, batch)
    head = ", ".join(f"{size} before" for size in PROMPTS)
    sys.stdout.write(f"weights             ms per token ({head})   update, s   off by, nats (mean, most)\n")
    for name, (weights, context) in kinds.items():
        off = (logprobs(weights, context, batch) - exact).abs()
        first, second, third = (statistics.median(values) for values in zip(*took[name], strict=True))
        sys.stdout.write(
            f"{name:18} {1000 * first:9.0f} {1000 * second:9.0f} {third:18.2f} "
            f"{off.mean().item():16.4f} {off.max().item():.3f}\n"
        )


def generation(model: Any, prompt: list[int]) -> float:
    """CPU seconds of one token of all rows, the prompt's pass left out."""
    times = []
    for new in (1, NEW + 1):
        started = time.process_time()
        sample(model, [prompt], num_samples=ROWS, max_new_tokens=new, temperature=1.0, eos_ids=[])
        times.append(time.process_time() - started)
    return (times[1] - times[0]) / NEW


def update(model: Any, context: Callable[[], Any], batch: torch.Tensor) -> float:
    """CPU seconds of a forward and a backward pass."""
    started = time.process_time()
    with context():
        loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    model.zero_grad()
    return time.process_time() - started


@torch.no_grad()
def logprobs(model: Any, context: Callable[[], Any], batch: torch.Tensor) -> torch.Tensor:
    """Log-probability of every token but the first of a row."""
    with context():
        logits = model(input_ids=batch).logits[:, :-1].float()
    return logits.log_softmax(-1).gather(-1, batch[:, 1:, None]).squeeze(-1)


if __name__ == "__main__":
    main()
