"""A trainer whose steps are looked at for signs of reward hacking, and what becomes of an alarm.

`factrl.train.signals` has the signals and the limits.  Here they meet the trainer: the signals are logged
beside the other metrics, and an alarm is one line on the terminal and a line in the run's `alarms.jsonl`.
Rewards, advantages and the course of the run stay what they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from factrl.runs.folder import Run
from factrl.text.escape import one_line
from factrl.train.signals import HeldOut, Sample, Watch, append_alarms, signals
from factrl.train.signals.step import source_of

from .grpo import FactualGRPOTrainer

SOURCES = 16  # beyond so many a source is no group: a column may hold a URL for each question


class WatchedTrainer(FactualGRPOTrainer):
    """`FactualGRPOTrainer` that logs the signals of each step.

    Attributes:
        watch: keeps the samples of the last steps for the tables of alarms; None keeps none.
    """

    watch: Watch | None = None

    def _keep(self, advantages: torch.Tensor) -> None:
        super()._keep(advantages)
        mine = [(index, str(text), r) for (index, text), r in zip(self._texts, self._results, strict=True)]
        everyone = gather_object(mine)
        if not self.accelerator.is_main_process:
            return
        prefill = self.args.prefill
        samples = [Sample(self.examples[index], text, r, prefill) for index, text, r in everyone]
        found = signals(samples, by_source=self._few_sources)
        for name, value in found.metrics.items():
            self._metrics["train"][name].append(value)
        if self.watch is not None:
            self.watch.keep(self.state.global_step + 1, found)

    @cached_property
    def _few_sources(self) -> bool:
        return len({source_of(example) for example in self.examples}) <= SOURCES


class RaiseAlarms(TrainerCallback):
    """Show what is logged to a watch, and tell of its alarms."""

    def __init__(self, watch: Watch, run: Run) -> None:
        self.watch, self.run = watch, run

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if state.is_world_process_zero and logs and "reward" in logs:
            self.tell(state.global_step, logs)

    def tell(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Look at the metrics of a step or of an evaluation."""
        alarms = self.watch.see(step, metrics)
        if not alarms:
            return
        path = append_alarms(self.run.path, alarms)
        for alarm in alarms:
            sys.stderr.write(f"{one_line(str(alarm))}; its worst samples: {path}\n")

    def evaluated(
        self, evaluate: Callable[[int], Mapping[str, float | None]], held_out: HeldOut | None
    ) -> Callable[[int], Mapping[str, float | None]]:
        """The same evaluation, its numbers shown to the watch."""
        if held_out is not None:
            held_out.start(self.run.path)

        def evaluate_and_tell(step: int) -> Mapping[str, float | None]:
            metrics = evaluate(step)
            if held_out is not None:
                self.watch.keep(step, held_out.found)
                self.tell(step, metrics)
            return metrics

        return evaluate_and_tell
