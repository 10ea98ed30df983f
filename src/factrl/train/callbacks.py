"""What happens around the optimizer steps: metrics, progress, evaluation, stopping, complete checkpoints."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from transformers import PrinterCallback, Trainer, TrainerCallback
from transformers.integrations import integration_utils

from factrl.errors import ConfigError
from factrl.job import Job
from factrl.llm import preflight
from factrl.llm.spending import Spending
from factrl.runs.disk import write_whole
from factrl.runs.folder import Run
from factrl.runs.progress import Progress
from factrl.runs.resume import COMPLETE, DONE
from factrl.runs.settings import RunSettings

from .model import check_start, uses_bf16

_TRACKER = "tracker.json"
_NO_MODEL = (  # of a checkpoint: what goes on with training
    *("optimizer*", "scheduler*", "scaler*", "rng_state*", "trainer_state.json", "training_args.bin"),
    *("global_step*", "latest", "zero_to_fp32.py", "pytorch_model_fsdp*", COMPLETE),
)
_SAME = {  # settings of `[train]` that all of TRL's configurations have
    *("learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm"),
    *("optim", "gradient_checkpointing", "save_steps"),
}


def check_setup(job: Job) -> None:
    """Refuse, before a run folder exists, a model, optimizer, tracker or judge that is not available."""
    train = job.settings.train
    check_start(job.settings.model)
    trackers = train.report_to[0] if len(train.report_to) == 1 else [*train.report_to]
    try:  # as transformers does, once the run has begun
        for tracker in integration_utils.get_reporting_integration_callbacks(trackers):
            tracker()
    except (ValueError, RuntimeError, ImportError) as error:
        raise ConfigError(f"train.report_to = {trackers!r}: {error}") from error
    if train.optim == "adamw_8bit" and find_spec("bitsandbytes") is None:
        raise ConfigError(
            "train.optim = 'adamw_8bit' needs bitsandbytes, which is not installed; run: pip install "
            "bitsandbytes, or give train.optim=adamw_torch_fused"
        )
    if job.judge is not None:
        preflight(job.judge)


def shared_arguments(settings: RunSettings, output_dir: Path) -> dict[str, Any]:
    """The arguments that all of TRL's configurations share."""
    train = settings.train
    return {
        **train.model_dump(include=_SAME),
        "output_dir": str(output_dir),
        "max_steps": train.steps or -1,
        "num_train_epochs": train.epochs,
        "bf16": uses_bf16(train),
        "use_cpu": not torch.cuda.is_available(),
        "save_strategy": "steps",
        "save_total_limit": 2,
        "logging_steps": 1,
        "report_to": list(train.report_to),
        "disable_tqdm": True,
        "seed": settings.run.seed,
    }


class RunCallback(TrainerCallback):
    """Logs to the run folder and progress bar, evaluates, adds up costs, stops, marks checkpoints.

    Args:
        evaluate: called with the step, every `eval_steps` steps and at the end; its numbers are logged.
        spending: what all processes spend, added up after each step and its evaluation.
        must_stop: called after each step; if true, a checkpoint is saved and the run stops, as for a signal.
        verb: the command that resumes the run.
        stepped: called after each step with a word about it, in place of a progress bar.
    """

    def __init__(
        self,
        run: Run,
        *,
        evaluate: Callable[[int], Mapping[str, float | None]] | None = None,
        eval_steps: int | None = None,
        spending: Spending | None = None,
        must_stop: Callable[[], bool] = lambda: False,
        verb: str = "train",
        stepped: Callable[[str], None] | None = None,
    ) -> None:
        self.run, self.evaluate, self.eval_steps = run, evaluate, eval_steps
        self.spending, self.must_stop, self.verb = spending, must_stop, verb
        self.stopped, self.stepped = False, stepped
        self._interrupted = threading.Event()
        self._label, self._bar = "", ExitStack()
        self._progress: Progress | None = None  # None where the trainer is not run by `train`
        self._note = ""
        self._callbacks: Sequence[TrainerCallback] = ()

    def train(self, trainer: Trainer, checkpoint: tuple[Path, int] | None, label: str) -> bool:
        """Train with a progress bar, from the checkpoint if there is one; whether it was stopped early."""
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(self)
        self._callbacks = trainer.callback_handler.callbacks
        with _signals(self._interrupted), ExitStack() as self._bar:
            self._label = label
            try:
                trainer.train(resume_from_checkpoint=str(checkpoint[0]) if checkpoint else None)
            except KeyboardInterrupt as error:  # the second one, in the middle of a step
                saved = last_checkpoint(Path(str(trainer.args.output_dir)))
                step = saved[1] if saved else 0
                raise Interrupted(self.verb, self.run.path, step) from error
        return self.stopped

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._label and self.stepped is None:
            bar = Progress(self._label, state.max_steps, already=state.global_step)
            self._progress = self._bar.enter_context(bar)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not logs or "train_runtime" in logs:
            return
        if logs.get("reward") is not None:
            masked = logs.get("reward/masked_frac") or 0
            self._note = f"reward {logs['reward']:+.2f}" + (f", {masked:.0%} masked" if masked else "")
            self._note += (
                f", graded in {took:.1f} s" if (took := logs.get("reward/seconds", 0)) >= 0.1 else ""
            )
        if state.is_world_process_zero:
            self.run.log(state.global_step, logs)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._progress is not None:
            self._progress.advance(1, self._note)
        if self.stepped is not None:
            self.stepped(f"step {state.global_step} of {state.max_steps}, {self._note}")
        last, step = state.global_step == state.max_steps, state.global_step
        due = last or (self.eval_steps and step % self.eval_steps == 0)
        if due and self.evaluate is not None and state.is_world_process_zero:
            metrics = self.evaluate(step)
            named = {n if n.startswith("hack/") else f"eval/{n}": value for n, value in metrics.items()}
            self.run.log(step, named)
            self._track(args, state, control, named)
            state.log_history.append({**named, "step": step})  # checkpoints keep it, for rewards to read
        if self.spending is not None:
            self.spending.note(gather_object([self.spending.here()]))
            if state.is_world_process_zero:
                self.spending.save(self.run.path)
        if (self._interrupted.is_set() or self.must_stop()) and not last:
            control.should_save = control.should_training_stop = self.stopped = True

    def _track(self, args: Any, state: Any, control: Any, named: Mapping[str, float | None]) -> None:
        """Send held-out numbers to the trackers, which show a metric `eval_NAME` as `eval/NAME`."""
        logs = {name.replace("eval/", "eval_", 1): n for name, n in named.items() if n is not None}
        for callback in self._callbacks:
            if callback is not self:
                callback.on_log(args, state, control, logs=dict(logs))

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Mark a checkpoint when all of it is on disk: one cut short by a kill is not resumed from."""
        PartialState().wait_for_everyone()  # each process writes a part
        if state.is_world_process_zero and args.output_dir:
            (Path(args.output_dir) / f"checkpoint-{state.global_step}" / COMPLETE).touch()


class Interrupted(KeyboardInterrupt):
    """The user stopped the run; its folder holds a complete checkpoint, unless the step is 0."""

    def __init__(self, verb: str, run: Path, step: int) -> None:
        super().__init__(f"stopped after step {step}; go on with: factrl {verb} --resume {run}")


def open_run(settings: RunSettings, name: str, files: Mapping[str, str]) -> Run:
    """The folder, which one process takes and tells the others of; see `Run.begin`."""
    state = PartialState(cpu=not torch.cuda.is_available())
    run = Run.begin(settings.run, name, files) if state.is_main_process else None
    path = broadcast_object_list([run and run.path])[0]
    return run or Run(Path(str(path)), shared=True)


@contextmanager
def same_trackers(run: Run) -> Iterator[None]:
    """For trackers that are opened meanwhile the run is the same one, whichever process goes on with it."""
    about = run.path / _TRACKER
    if PartialState().is_main_process and not about.exists():
        write_whole(about, json.dumps({"id": secrets.token_hex(8)}).encode())
    variables = {"TENSORBOARD_LOGGING_DIR": str(run.path / "tensorboard")}
    if PartialState().is_main_process:  # which alone reports
        variables |= {"WANDB_RUN_ID": json.loads(about.read_text("utf-8"))["id"], "WANDB_RESUME": "allow"}
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


@contextmanager
def _signals(flag: threading.Event) -> Iterator[None]:
    """Turns the first SIGINT or SIGTERM into a flag; the second SIGINT ends the process as usual.

    Signals reach only the main thread; elsewhere this does nothing.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        flag.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        again = "; again stops now" if number == signal.SIGINT else ""
        os.write(2, f"\nfinishing this step{again}\n".encode())  # sys.stderr may be in the middle of a line

    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM) if main}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def last_checkpoint(folder: Path) -> tuple[Path, int] | None:
    """The newest complete checkpoint and its step; None when there is none."""
    steps = [
        int(path.parent.name.removeprefix("checkpoint-")) for path in folder.glob(f"checkpoint-*/{COMPLETE}")
    ]
    return (folder / f"checkpoint-{max(steps)}", max(steps)) if steps else None


def is_finished(checkpoint: tuple[Path, int] | None, steps: int | None) -> bool:
    """Whether training ended with this checkpoint.

    Args:
        steps: all that are wanted; None for those that it was to end with.
    """
    if checkpoint is None:
        return False
    state = json.loads((checkpoint[0] / "trainer_state.json").read_text("utf-8"))
    return checkpoint[1] >= (steps or state["max_steps"])


def keep_model(checkpoint: Path, target: Path) -> None:
    """Make the trained model of the last checkpoint, at once and, where links are, without more disk."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    leave_out = shutil.ignore_patterns(*_NO_MODEL)
    shutil.copytree(checkpoint, unfinished, ignore=leave_out, copy_function=_link)
    replace_folder(unfinished, target)


def replace_folder(new: Path, target: Path) -> None:
    """Put a folder in another's place."""
    if target.exists():
        shutil.rmtree(target)
    new.replace(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without
        shutil.copy2(source, target)


def say_done(run: Run, steps: int) -> None:
    """Write that the run is finished."""
    write_whole(run.path / DONE, json.dumps({"steps": steps}).encode())
