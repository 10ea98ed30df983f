"""One batch of a recipe, trained for its times and counts alone: `factrl train --dry-run --measure`.

It is the first batch of the run, with its model, its questions and its judge, which is paid for that batch.
What it writes goes into a scratch folder that is removed, verdicts included, so that neither the run nor a
second measurement finds them.
"""

from __future__ import annotations

import functools
import inspect
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PrinterCallback
from transformers.trainer_utils import SaveStrategy

from ..cache import Store
from ..errors import ConfigError, SetupError, first_line
from ..llm import preflight
from ..plan import Plan, open_judge
from ..plan_estimate import Measured
from ..resources import Supplier, supply
from ..rewards import Reward
from ..settings import RunSettings
from ..spending import Spending, Spent, judge_meter
from .grpo import FactualGRPOTrainer
from .model import check_model, load_policy, lora_config
from .online import fitting_prompts, grpo_config
from .packed import restore_forward


def measure(plan: Plan) -> Measured:
    """Train the first batch of a plan that is only shown, and forget it.

    Raises:
        SetupError: what keeps the run from starting, or from fitting on this GPU.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("--measure trains in one process; start it without accelerate or torchrun")
    check_model(plan.settings.model.name)
    with tempfile.TemporaryDirectory(prefix="factrl-measure-") as scratch:
        settings = _one_batch(plan.settings, scratch)
        model, tokenizer = load_policy(settings.model)
        judge = open_judge(settings.judge, max_cost=settings.run.max_cost)
        if judge is not None:
            preflight(judge)
        reward = supply(
            plan.reward, supplier=_Scratch(judge, settings.judge, settings.verifier, Path(scratch))
        )
        examples, prompts = fitting_prompts(plan.examples, tokenizer, settings)
        config = grpo_config(settings, Path(scratch))
        config.save_strategy = SaveStrategy.NO
        model.get_input_embeddings().requires_grad_(not settings.model.freeze_embeddings)
        clock = _Clock()
        trainer = _Timed(
            model,
            clock.timed(reward),
            examples,
            prompts,
            config,
            processing_class=tokenizer,
            peft_config=lora_config(settings.model),
        )
        trainer.remove_callback(PrinterCallback)
        return _timed(trainer, judge, clock)


def _one_batch(settings: RunSettings, scratch: str) -> RunSettings:
    told = settings.train.model_copy(update={"steps": settings.train.num_iterations, "report_to": ()})
    run = settings.run.model_copy(update={"dir": scratch, "resume": None})
    return settings.model_copy(update={"train": told, "run": run})


def _timed(trainer: _Timed, judge: Any, clock: _Clock) -> Measured:
    meter = judge_meter(judge)
    spending = Spending(meter) if meter is not None else None
    before = spending.here() if spending is not None else Spent()  # what asking whether it is there has cost
    on_gpu = trainer.accelerator.device.type == "cuda"
    began = time.monotonic()
    try:
        trainer.train()
        if on_gpu:
            torch.cuda.synchronize()
    except torch.OutOfMemoryError as error:
        raise SetupError(
            f"one batch does not fit on {torch.cuda.get_device_name()}: {first_line(error)}; lower "
            "train.micro_batch_size or train.max_completion_length, or train an adapter: model.lora=true"
        ) from error
    finally:
        restore_forward(trainer.accelerator.unwrap_model(trainer.model))
    seconds = time.monotonic() - began
    return Measured(
        device=torch.cuda.get_device_name() if on_gpu else f"CPU with {torch.get_num_threads()} threads",
        seconds=seconds,
        generating=trainer.generating,
        rewarding=clock.seconds,
        completions=trainer.counts["completions"],
        masked=sum(trainer.masked_causes.values()),
        read=trainer.counts["read"],
        written=trainer.counts["written"],
        spent=spending.here() - before if spending is not None else Spent(),
        peak=torch.cuda.max_memory_allocated() if on_gpu else None,
    )


@dataclass(frozen=True)
class _Scratch(Supplier):
    """Resources that keep what they find in a folder of their own."""

    folder: Path

    def _store(self) -> Any:
        return Store(self.folder / "verdicts.db") if self.verifier.cache else None


class _Timed(FactualGRPOTrainer):
    """Takes the time of generating, and counts what was written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.generating = 0.0
        self.counts: Counter[str] = Counter()
        super().__init__(*args, **kwargs)

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        began = time.monotonic()
        made = super()._generate_single_turn(prompt_ids, *args, **kwargs)
        self.generating += time.monotonic() - began
        self.counts["read"] += sum(map(len, prompt_ids))
        return made

    def _keep(self, advantages: torch.Tensor) -> None:
        super()._keep(advantages)
        self.counts["completions"] += len(self._token_ids)
        self.counts["written"] += sum(map(len, self._token_ids))


class _Clock:
    """Seconds during which at least one sample was being rewarded."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._active, self._began, self._mutex = 0, 0.0, threading.Lock()

    def timed(self, reward: Reward) -> Reward:
        """The same reward, looked at."""

        @functools.wraps(reward.fn)
        def rewarded(*args: Any, **kwargs: Any) -> Any:
            with self._running():
                returned = reward.fn(*args, **kwargs)
            return self._awaited(returned) if inspect.iscoroutine(returned) else returned

        return replace(reward, fn=rewarded)

    async def _awaited(self, coroutine: Any) -> Any:
        with self._running():
            return await coroutine

    @contextmanager
    def _running(self) -> Iterator[None]:
        with self._mutex:
            self._active += 1
            if self._active == 1:
                self._began = time.monotonic()
        try:
            yield
        finally:
            with self._mutex:
                self._active -= 1
                if not self._active:
                    self.seconds += time.monotonic() - self._began
