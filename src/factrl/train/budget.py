"""Counts what the judge costs, step by step, into the run folder."""

from __future__ import annotations

from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from factrl.llm.spending import Spending
from factrl.runs.folder import Run


class CountSpending(TrainerCallback):
    """After each step, its evaluation included, add up what all processes have spent; add it behind both."""

    def __init__(self, spending: Spending, run: Run) -> None:
        self.spending, self.run = spending, run

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.spending.note(gather_object([self.spending.here()]))
        if state.is_world_process_zero:
            self.spending.save(self.run.path)
