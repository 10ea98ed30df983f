"""What happens beside the optimizer steps: metrics, progress, evaluation, stopping, complete checkpoints."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from accelerate.utils import gather_object
from transformers import (
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations import integration_utils

from factrl.errors import ConfigError, nearest
from factrl.llm.spending import Spending
from factrl.runs.folder import Run
from factrl.runs.progress import Progress

COMPLETE = "complete"  # an empty file that says a checkpoint was written to its end


def check_trackers(names: Sequence[str]) -> None:
    """Refuse a tracker that there is not, before a run folder exists.

    Args:
        names: `train.report_to`.

    Raises:
        ConfigError: transformers does not know it, or its package is not installed.
    """
    known = (*integration_utils.INTEGRATION_TO_CALLBACK, "all", "none")
    for name in names:
        if name not in known:
            close = nearest(name, known) or f" (there are: {', '.join(known)})"
            raise ConfigError(f"train.report_to names {name!r}, which is no tracker{close}")
        installed = getattr(integration_utils, f"is_{name}_available", lambda: True)
        if not installed():
            raise ConfigError(
                f"train.report_to names {name!r}, which is not installed; run: pip install {name}"
            )


class LogToRun(TrainerCallback):
    """Append what the trainer logs to the run's metrics; its first step follows those `before` it."""

    def __init__(self, run: Run, before: int = 0) -> None:
        self.run, self.before = run, before

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if state.is_world_process_zero and logs and "train_runtime" not in logs:
            self.run.log(self.before + state.global_step, logs)


class ShowProgress(TrainerCallback):
    """Advance a bar by one per step, with reward and masked share beside it."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._note = ""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        self.progress.advance(1, self._note)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if logs and logs.get("reward") is not None:
            masked = logs.get("reward/masked_frac") or 0
            self._note = f"reward {logs['reward']:+.2f}" + (f", {masked:.0%} masked" if masked else "")


class EvaluateEvery(TrainerCallback):
    """Call `evaluate(step)` every so many steps and at the end; log what it returns."""

    def __init__(
        self, evaluate: Callable[[int], Mapping[str, float | None]], steps: int | None, run: Run | None
    ) -> None:
        self.evaluate = evaluate
        self.steps = steps
        self.run = run

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        due = state.global_step == state.max_steps or (self.steps and state.global_step % self.steps == 0)
        if due and state.is_world_process_zero:
            metrics = self.evaluate(state.global_step)
            if self.run is not None:
                named = {n if n.startswith("hack/") else f"eval/{n}": value for n, value in metrics.items()}
                self.run.log(state.global_step, named)


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


class StopWhen(TrainerCallback):
    """Save a checkpoint and stop after the step in which `condition()` becomes true."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        self.condition = condition
        self.stopped = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self.condition() and state.global_step < state.max_steps:
            control.should_save = control.should_training_stop = self.stopped = True


class MarkComplete(TrainerCallback):
    """Mark a checkpoint once all of it is on disk, so that a kill while saving leaves no trap."""

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if state.is_world_process_zero and args.output_dir:
            (Path(args.output_dir) / f"checkpoint-{state.global_step}" / COMPLETE).touch()


def train_on(
    trainer: Trainer, checkpoint: Path | None, progress: Progress, *callbacks: TrainerCallback
) -> bool:
    """Train, from a checkpoint on if there is one, with a bar; whether SIGINT or SIGTERM stopped it.

    A checkpoint is saved before a stop, and each is marked once it is complete.
    """
    trainer.remove_callback(PrinterCallback)
    with Interrupt() as interrupt, progress:
        stop = StopWhen(lambda: interrupt.asked)
        for callback in (ShowProgress(progress), *callbacks, MarkComplete(), stop):
            trainer.add_callback(callback)
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return stop.stopped


class Interrupted(KeyboardInterrupt):
    """The user stopped the run; its folder holds a complete checkpoint."""

    def __init__(self, verb: str, run: Path, step: int) -> None:
        super().__init__(f"stopped after step {step}; go on with: factrl {verb} --resume {run}")


class Interrupt:
    """Turns the first SIGINT or SIGTERM into a flag; the second SIGINT ends the process as usual.

    Signals reach only the main thread; elsewhere this does nothing.
    """

    asked = False

    def __init__(self) -> None:
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._ask)
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


def last_checkpoint(folder: Path) -> tuple[Path, int] | None:
    """The newest complete checkpoint and its step; None when there is none."""
    steps = sorted(
        int(path.name.removeprefix("checkpoint-"))
        for path in folder.glob("checkpoint-*")
        if path.name.removeprefix("checkpoint-").isdigit() and (path / COMPLETE).exists()
    )
    return (folder / f"checkpoint-{steps[-1]}", steps[-1]) if steps else None
