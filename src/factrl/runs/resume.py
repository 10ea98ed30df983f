"""A run that goes on: the same command in the same folder, or `--resume`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from factrl.errors import ConfigError, DataError
from factrl.runs.config import dump_toml, flat, read_toml
from factrl.runs.settings import RunSettings

DONE = "done.json"  # of a run folder: how many steps its model has; the last file that a run writes
COMPLETE = "complete"  # an empty file that says a checkpoint was written to its end
_MAY_CHANGE = {  # what a run costs, and where; not what the model learns
    *("train.steps", "train.save_steps", "train.micro_batch_size", "train.gradient_checkpointing"),
    *("train.report_to", "train.max_masked_share", "train.use_vllm", "train.vllm_mode"),
    *("train.vllm_server_base_url", "run.dir", "run.name", "run.max_cost", "judge.max_concurrency"),
    *("judge.tpm", "judge.timeout_attempt", "judge.timeout_call", "judge.max_attempts", "judge.price_in"),
    *("judge.price_out", "verifier.deadline", "verifier.cache"),
}
S = TypeVar("S", bound=RunSettings)


def settings_text(settings: RunSettings) -> str:
    """What a run folder keeps: all settings but its own place, so that the file starts another such run."""
    run = settings.run.model_copy(update={"output": None})
    return dump_toml(settings.model_copy(update={"run": run}))


def going_on(settings: S, file: str) -> S:
    """The settings of the run in `run.output`, which goes on with them; any others of a new run.

    Args:
        file: of the run folder, what `settings_text` wrote when it began.

    Returns:
        The same, with the run's number of steps where they give none.

    Raises:
        ConfigError: the run was begun with another value of a setting that decides what is learned.
    """
    path = Path(settings.run.output or "", file)
    if not settings.run.output or not path.is_file():
        return settings
    before = flat(read_toml(path))
    now = {name: value for name, value in flat(settings.model_dump()).items() if value is not None}
    now.pop("run.output")
    # Another paper is why other settings differ.
    for name in sorted({*before, *now} - _MAY_CHANGE, key=lambda name: (name != "paper", name)):
        if _meant(name, before) != _meant(name, now):
            raise ConfigError(
                f"{path.parent} was begun with {_shown(name, before)}, not {_shown(name, now)}; give the "
                "same, or start another run: with another --output, and without --resume"
            )
    steps, wanted = before.get("train.steps"), settings.train.steps
    if steps is not None and wanted is None:
        return settings.model_copy(update={"train": settings.train.model_copy(update={"steps": steps})})
    if steps is not None and wanted is not None and wanted < steps:
        raise ConfigError(f"train.steps = {wanted} is fewer than the {steps} of {path.parent}; give more")
    return settings


def _meant(name: str, values: Mapping[str, Any]) -> Any:
    """A value as far as it matters: of a judge the model, and not where it is served."""
    value = values.get(name)
    return str(value).rpartition("#")[2] if name == "judge.url" and value else value


def _shown(name: str, values: Mapping[str, Any]) -> str:
    return f"{name} = {values[name]!r}" if name in values else f"no {name}"


def nothing_to_do(settings: RunSettings) -> str:
    """That the run in `run.output` is finished, in words; "" where it is not, or there is none.

    Raises:
        DataError: the file that says so is damaged, or the run has no checkpoint to go on from.
    """
    path = Path(settings.run.output or "", DONE)
    if not settings.run.output or not path.is_file():
        return ""
    try:
        steps = int(json.loads(path.read_text("utf-8"))["steps"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} cannot be read; remove it, and the run ends anew") from error
    wanted = settings.train.steps or steps
    if steps >= wanted and (path.parent / "model").is_dir():
        return f"nothing to do: {steps} of {wanted} steps are done"
    if not any(path.parent.glob(f"checkpoints/*/{COMPLETE}")):
        raise DataError(
            f"{path} says that {steps} steps are done, and {path.parent / 'checkpoints'} holds no complete "
            "checkpoint; put it back, or give another --output"
        )
    return ""
