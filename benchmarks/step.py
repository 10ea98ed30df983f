"""One GRPO step on the demo's questions: TRL's own path against factrl's shortcuts, in CPU seconds.

    python benchmarks/step.py [STEPS]

Both start from the same weights and alternate step by step, so that a machine that slows down slows both.
The shortcuts are exact (tests/training/test_packed.py, test_grpo.py); this says what they save.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from factrl.demo.questions import build_questions
from factrl.demo.settings import demo_settings
from factrl.papers import load_reward
from factrl.resources import supply
from factrl.train.embedded import SMALLEST
from factrl.train.grpo import FactualGRPOTrainer
from factrl.train.model import load_policy
from factrl.train.online import grpo_config
from factrl.train.prompts import render_prompts
from factrl.train.quiet import quiet_libraries


def seconds_per_step(shortcuts: bool, folder: Path) -> float:
    """CPU seconds of the second of two steps, generation to gradient; the first warms up."""
    settings = demo_settings([f"model.name={SMALLEST}", "train.steps=2"], "truthrl:ternary")
    model, tokenizer = load_policy(settings.model)
    questions = build_questions(0).train
    config = grpo_config(settings, folder)
    config.shortcuts, config.save_strategy = shortcuts, "no"
    times: list[float] = []

    class Timed(FactualGRPOTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            loss = super().training_step(*args, **kwargs)
            times.append(time.process_time() - started)
            return loss

    reward = supply(load_reward(settings.paper).with_(**settings.reward), None)
    prompts = render_prompts(questions, tokenizer, settings.data)
    Timed(model, reward, questions, prompts, config, processing_class=tokenizer).train()
    return times[-1]


def main() -> None:
    """Print the medians and the ratio of every pair."""
    quiet_libraries()
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as folder:
        pairs = [
            (seconds_per_step(False, Path(folder)), seconds_per_step(True, Path(folder)))
            for _ in range(rounds)
        ]
    plain, short = zip(*pairs, strict=True)
    ratios = sorted(a / b for a, b in pairs)
    sys.stdout.write(
        f"TRL's own path  {statistics.median(plain):6.1f} CPU s per step of 128 completions\n"
        f"shortcuts       {statistics.median(short):6.1f}\n"
        f"ratio           {statistics.median(ratios):6.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})\n"
    )


if __name__ == "__main__":
    main()
