"""One GRPO step: TRL's own path against factrl's shortcuts, in CPU seconds.

    python benchmarks/step.py [ROUNDS]                    the demo's step: 128 completions of a few words
    python benchmarks/step.py [ROUNDS] --long             4 completions of 512 tokens to a prompt of 1,024

Both start from the same weights and take turns, so that a machine that slows down slows both.  The shortcuts
are exact (tests/training/test_packed.py, test_grpo.py); this says what they save.

On the demo's questions the second of two steps counts, as the first warms up.  The long step is a minute and
counts alone; both sides write 512 tokens four times and are then given the same completions, and the reward
is a number made of the text, so that no advantage is 0 and no row is left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PrinterCallback

from factrl.papers import load_reward
from factrl.rewards import reward
from factrl.rewards.grading import Grader
from factrl.runs.settings import ModelSettings, RunSettings
from factrl.studies import load_study, row_settings
from factrl.studies.engine import data_settings
from factrl.studies.world import real_world
from factrl.train.grpo import FactualGRPOTrainer
from factrl.train.model import SMALLEST, for_command_line, load_policy, render_prompts
from factrl.train.online import grpo_config
from factrl.types import Completion, Example

PROMPT, SIZE, LONGEST = 1024, 4, 512  # of the long step
Seconds = dict[str, float]


def demo_settings(*words: str) -> RunSettings:
    """The demo's training of its main row."""
    study = load_study("truthrl", words)
    model = ModelSettings(name=SMALLEST, freeze_embeddings=True, freeze_layers=study.start.freeze_layers)
    train = row_settings(study, "ternary")
    return RunSettings(paper="truthrl", model=model, data=data_settings(study.task), train=train)


def demo_step(shortcuts: bool, folder: Path) -> Seconds:
    """CPU seconds of the second of two steps, generation to gradient."""
    settings = demo_settings("train.steps=2")
    model, tokenizer = load_policy(settings.model)
    questions = real_world().examples("short", "train")
    config = grpo_config(settings, folder)
    config.shortcuts, config.save_strategy = shortcuts, "no"
    times: list[float] = []

    class Timed(FactualGRPOTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            loss = super().training_step(*args, **kwargs)
            times.append(time.process_time() - started)
            return loss

    ternary = load_reward("truthrl:ternary").with_(answer="text", grade=Grader())
    prompts = render_prompts(questions, tokenizer, settings.data)
    rows = Dataset.from_list(
        [
            {"prompt": p, "question": q.question, "answers": [*q.answers]}
            for p, q in zip(prompts, questions, strict=True)
        ]
    )
    _train(Timed(model, ternary, config, rows, processing_class=tokenizer))
    return {"step": sum(times[len(times) // 2 :])}  # each micro-batch; the first generates


def _train(trainer: FactualGRPOTrainer) -> None:
    trainer.remove_callback(PrinterCallback)
    trainer.train()


@reward
def numbered(example: Example, completion: Completion) -> dict[str, float]:
    """0 to 9, of the text alone."""
    return {"number": float(zlib.crc32(completion.encode()) % 10)}


def long_step(shortcuts: bool, folder: Path) -> Seconds:
    """CPU seconds of one step, and those of its generation."""
    words = ["train.steps=1", "train.prompts_per_step=1", f"train.num_generations={SIZE}"]
    words += [f"train.micro_batch_size={SIZE}", f"train.max_completion_length={LONGEST}"]
    settings = demo_settings(*words)
    model, tokenizer = load_policy(settings.model)
    known = " ".join(f"{each.question} {each.answers[0]}" for each in real_world().examples("short", "train"))
    prompt = tokenizer.decode(tokenizer(known)["input_ids"][:PROMPT])
    config = grpo_config(settings, folder)
    config.shortcuts, config.save_strategy = shortcuts, "no"
    drawn = torch.randint(1_000, 40_000, (SIZE, LONGEST), generator=torch.Generator().manual_seed(0))
    unused = len(tokenizer) - 1  # as the end of a completion: none ends early
    took: Seconds = {}

    class Timed(FactualGRPOTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            loss = super().training_step(*args, **kwargs)
            took["step"] = time.process_time() - started
            return loss

        # TRL has no public place for what its own path generates.
        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            self.eos_token_ids = self.generation_config.eos_token_id = [unused]
            started = time.process_time()
            ids, more = super()._generate_single_turn(*args, **kwargs)
            return self.given(ids, started), more

        def given(self, ids: list[list[int]], started: float) -> list[list[int]]:
            took["generation"] = time.process_time() - started
            assert {len(row) for row in ids} == {LONGEST}  # noqa: S101
            return drawn.tolist()

    timed = Timed(
        model, numbered, config, Dataset.from_dict({"prompt": [prompt]}), processing_class=tokenizer
    )
    timed.ends = [unused]
    if own := timed.rollout_func:  # the shortcuts

        def written(prompts: list[Any], trainer: Any) -> dict[str, Any]:
            started = time.process_time()
            told = own(prompts, trainer)
            return {**told, "completion_ids": timed.given(told["completion_ids"], started)}

        timed.rollout_func = written
    _train(timed)
    return {**took, "update": took["step"] - took["generation"]}


def compared(step: Callable[[bool, Path], Seconds], rounds: int) -> str:
    """Medians, and the ratio of every pair, of each part of a step."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(step(False, Path(folder)), step(True, Path(folder))) for _ in range(rounds)]
    lines = ["part         TRL's own path  shortcuts  ratio (least to most)\n"]
    for part in pairs[0][0]:
        theirs, ours = zip(*((one[part], other[part]) for one, other in pairs), strict=True)
        ratios = sorted(a / b for a, b in zip(theirs, ours, strict=True))
        middle = [statistics.median(values) for values in (theirs, ours, ratios)]
        lines.append(
            f"{part:12} {middle[0]:14.1f} {middle[1]:10.1f}  {middle[2]:5.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f})\n"
        )
    return "".join(lines)


def main() -> None:
    """Print CPU seconds of both, and the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rounds", type=int, nargs="?", default=3)
    parser.add_argument("--long", action="store_true", help="one long prompt, long completions")
    options = parser.parse_args()
    for_command_line()
    what = (
        f"{SIZE} completions of {LONGEST} tokens, a prompt of {PROMPT}" if options.long else "128 completions"
    )
    sys.stdout.write(f"CPU seconds per step of {what}, {options.rounds} pairs\n")
    sys.stdout.write(compared(long_step if options.long else demo_step, options.rounds))


if __name__ == "__main__":
    main()
