"""`factrl train --engine verl`: writes what verl reads into a run folder, and starts verl there.

On a cluster the run folder must be one that all nodes see, factrl must be installed on each of them, and the
judge's key, FACTRL_JUDGE_API_KEY, in the environment that Ray was started in; no command line holds it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from factrl.bridges.verl import ONCE
from factrl.bridges.verl_overrides import (
    AGENT,
    HELD_OUT,
    MODULES,
    PLUGIN,
    RECIPE,
    TRAIN,
    agent_loops,
    as_words,
    modules,
    overrides,
    recipe_of_workers,
)
from factrl.errors import ConfigError, MissingExtra, SetupError
from factrl.job import Job
from factrl.llm import preflight
from factrl.rewards.needs import outside_training
from factrl.runs.config import dump_toml
from factrl.runs.data import render_prompt
from factrl.runs.disk import anything, nothing, write_whole
from factrl.runs.folder import gpus_here
from factrl.train.plan import Plan, estimate, make_plan

_MODULE = "verl.trainer.main_ppo"
_NEEDS = ("torch", "verl", "ray", "hydra", "transfer_queue")
_ENGINE = "actor_rollout_ref.rollout.name="
_CPUS = 16
_MARKUP = 512  # tokens that a chat template may add to a prompt
_TOOL = 2_048  # and where the policy has a search
# What every actor of verl 0.9.1 imports at its start, in verl.models.transformers.monkey_patch.
_OF_TRL = """
from importlib.util import find_spec
if find_spec("trl"):
    try:
        from trl.experimental.ppo import AutoModelForCausalLMWithValueHead
    except ImportError:
        from trl import AutoModelForCausalLMWithValueHead
"""
_COUNT = """
import ray
ray.init(logging_level="error", log_to_driver=False)
print(int(max(node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"])))
"""
_CHECK = f"import verl, {PLUGIN} as plugin; plugin.check_registered()"


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def train_with_verl(
    job: Job,
    *,
    dry_run: bool = False,
    words: Sequence[str] = (),
    say: Callable[[str], object] = print,
    tell: Callable[[str], object] = _tell,
) -> int:
    """Write what verl reads into a run folder and start it there; returns its exit code.

    Args:
        dry_run: pass the command to `say`; write and start nothing.
        words: verl's own overrides, which come last.
        say, tell: print the command, and what is planned and made.

    Raises:
        SetupError: what the user must change; among it settings that verl has no counterpart of.
    """
    plan, settings = make_plan(job), job.settings
    if why := outside_training(job.reward):
        raise ConfigError(f"the reward {settings.paper!r} works with --engine trl alone: {why}")
    name = settings.run.name or Path(settings.paper.replace(":", "-")).name
    folder = Path(settings.run.resume or Path(settings.run.dir) / f"{name}-verl").absolute()
    command = _command(plan, folder, _gpus(), words)
    engine = next(
        (word.removeprefix(_ENGINE) for word in reversed(words) if word.startswith(_ENGINE)), "vllm"
    )
    if dry_run:
        lines = (f"{name:<10}{what}" for name, what in estimate(plan).items())
        tell("\n".join([*lines, f"{plan.completions} completions to grade; this would be started:"]))
        say(_shown(command))
        return 0
    _check_machine(engine)
    if job.judge is not None:
        preflight(job.judge)
    write_files(plan, folder)
    tell(f"run folder: {folder}")
    return subprocess.run(command, env=_environment(), check=False).returncode  # noqa: S603


def _command(plan: Plan, run: Path, gpus: int, words: Sequence[str]) -> list[str]:
    values = overrides(
        plan.settings,
        run,
        held_out=bool(plan.held_out),
        batches=plan.batches,
        longest_prompt=_longest(plan),
        gpus=gpus,
    )
    # Its default of 8 storage units was seen to hang where Ray has fewer CPUs than they and workers take.
    few = (os.cpu_count() or 1) < _CPUS
    values |= {"transfer_queue.backend.SimpleStorage.num_data_storage_units": 1} if few else {}
    if importlib.util.find_spec("flash_attn") is None:  # which verl takes for granted
        values |= {
            "actor_rollout_ref.model.use_remove_padding": False,
            "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        }
    return [sys.executable, "-m", _MODULE, *as_words(values), *words]


def write_files(plan: Plan, run: Path) -> None:
    """The questions in verl's parquet, the reward workers' recipe and the agent loop's configuration.

    Raises:
        ConfigError: the run folder holds a run.
    """
    from factrl.prepare.dataset import convert

    settings = plan.settings
    if (run / "config.toml").exists() and not settings.run.resume:
        raise ConfigError(f"{run} holds a run; go on with it by --resume {run}, or give another run.name")
    run.mkdir(parents=True, exist_ok=True, mode=0o700)
    kept = settings.model_copy(update={"run": settings.run.model_copy(update={"resume": None})})
    # First: of two processes that come this far, one is refused here.
    write_whole(run / "config.toml", dump_toml(kept).encode(), anything if settings.run.resume else nothing)
    (run / "rollouts").mkdir(exist_ok=True)
    # The agent loop begins the assistant's turn, and leaves out the chat template where it is not wanted.
    data = settings.data.model_copy(update={"prefill": "", "chat": True, "split": "train"})
    convert(plan.examples, "verl", data, run / TRAIN, anything)
    if plan.held_out:
        convert(plan.held_out, "verl", data.model_copy(update={"split": ONCE}), run / HELD_OUT, anything)
    write_whole(run / AGENT, json.dumps(agent_loops(settings)).encode())
    write_whole(run / RECIPE, dump_toml(recipe_of_workers(settings)).encode())


def _check_machine(engine: str) -> None:
    """Refuse to start where verl cannot run.

    Args:
        engine: what samples completions: vllm, sglang or one that somebody registered with verl.

    Raises:
        SetupError: a package, a GPU or the plugin is not there.
    """
    for package in (*_NEEDS, *(name for name in ("vllm", "sglang") if name == engine)):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra(package, "verl")
    # A user who names a platform of verl's knows what it computes on.
    if not gpus_here() and not os.environ.get("RAY_ADDRESS") and not os.environ.get("VERL_PLATFORM"):
        raise SetupError(
            "verl needs a GPU and this machine has none; run it where one is, or set RAY_ADDRESS to a cluster"
        )
    _check_trl()
    if message := _fails(_CHECK):
        raise SetupError(f"verl does not take up factrl's plugin ({PLUGIN}): {message}")


def _check_trl() -> None:
    """Refuse an environment in which every actor would die at its start.

    Raises:
        SetupError: a trl is installed that verl cannot live with.
    """
    if message := _fails(_OF_TRL):
        raise SetupError(
            f"verl's actors cannot start beside the installed trl ({message}); use an environment with "
            "factrl[verl] and without factrl[train], or: pip uninstall trl"
        )


def _fails(code: str) -> str:
    """The last line of Python's error for `code` in a process of its own; empty when it runs."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)  # noqa: S603
    return (done.stderr.strip().split("\n")[-1] or "no message") if done.returncode else ""


def _environment() -> dict[str, str]:
    return {**os.environ, MODULES: modules()}


def _gpus() -> int:
    """GPUs of each node: of this machine, or of the cluster that RAY_ADDRESS names; 1 where there is none."""
    if not os.environ.get("RAY_ADDRESS"):
        return max(1, gpus_here())
    done = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        message = done.stderr.strip().split("\n")[-1]
        raise SetupError(f"RAY_ADDRESS={os.environ['RAY_ADDRESS']!r}: the cluster does not answer: {message}")
    return max(1, int(done.stdout.split()[-1]))


def _longest(plan: Plan) -> int:
    """Tokens that hold any prompt: no tokenizer makes more of a text than it has bytes."""
    data = plan.settings.data
    around = len(f"{data.system or ''}{data.prefill}".encode()) + _MARKUP
    around += _TOOL if plan.index is not None else 0
    return around + max(len(render_prompt(e, data.prompt).encode()) for e in plan.examples)


def _shown(command: Sequence[str]) -> str:
    start, words = command[:3], command[3:]
    lines = [f"{MODULES}={modules()} {shlex.join(start)}", *map(shlex.quote, words)]
    return " \\\n    ".join(lines)
