"""`factrl reproduce`: a paper's pipeline, from its data to its table, each step a command of factrl's own.

A step is a process; its words, its time and the memory that it held are a line of `steps.jsonl` in the
folder, by which the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from factrl.errors import ConfigError, SetupError, nearest
from factrl.papers import (
    SMALL_HELD_OUT,
    Pipeline,
    Stage,
    split_spec,
)
from factrl.runs.disk import Journal, check_begun, write_whole

from .options import Verbs, add_settings, add_verb, at_least_one, gpus_here
from .reproduce_asks import STAND_INS, asks, reader, to_be_given
from .reproduce_rewards import REWARDS, find_pipeline
from .reproduce_table import BASE, measured, table, write
from .terminal import say, show_table, tell

SMALL_MODEL = "SmolLM2-135M-Instruct"
_RUNS = ("train", "tune")  # verbs that make a run folder with a model
_JSON = "--json"
_VERL = ("--engine", "verl")
_FOR_VERL = {  # at the small scale; verl knows neither frozen embeddings nor a rate that falls in a line
    "model": {"freeze_embeddings": False},
    "train": {"lr_scheduler_type": "cosine"},
}


@dataclass(frozen=True)
class Command:
    """A step with its names filled in.

    Attributes:
        name: the step's; `eval NAME` for the evaluation of a row.
        words: what stands behind `factrl`.
        made: what it makes; a folder of run folders for `train` and `tune`, stdout for `--json`.
    """

    name: str
    words: tuple[str, ...]
    made: Path

    def __str__(self) -> str:
        kept = f" > {shlex.quote(str(self.made))}" if _JSON in self.words else ""
        return shlex.join(("factrl", *self.words)) + kept


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "reproduce",
        _reproduce,
        about="run a paper's pipeline, from its data over baselines and rewards to its table",
        example=(
            "examples:\n"
            "  factrl reproduce truthrl --output out --dry-run\n"
            "  factrl reproduce truthrl --output out\n"
            "  factrl reproduce truthrl --full --train crag.jsonl --held-out nq.jsonl \\\n"
            "      --judge http://host:8000/v1#Llama-3.3-70B-Instruct --output out\n"
            "The same command again goes on where it was stopped."
        ),
    )
    parser.add_argument(
        "paper", metavar="PAPER", help="one with a pipeline, one of its settings, or `rewards`: all of them"
    )
    scale = parser.add_mutually_exclusive_group()
    scale.add_argument(
        "--small",
        action="store_true",
        help="a 135M model on two CPU cores and the demo's questions (default without a GPU)",
    )
    scale.add_argument(
        "--full", action="store_true", help="the paper's model and values (default where there is a GPU)"
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="folder of everything that is made")
    parser.add_argument("--model", metavar="NAME", help="start from this model")
    parser.add_argument("--warm", metavar="FILE", help="rows of the cold start")
    parser.add_argument("--train", metavar="FILE", help="questions to train on")
    parser.add_argument("--claims", metavar="FILE", help="claims with labels, where a verifier is trained")
    parser.add_argument("--extractions", metavar="FILE", help="texts with their claims, for an extractor")
    parser.add_argument("--checked", metavar="FILE", help="texts with checked lists, for what checks them")
    parser.add_argument("--passages", metavar="FILE", help="passages to search, where the pipeline retrieves")
    parser.add_argument("--held-out", metavar="FILE", help="questions to evaluate on")
    parser.add_argument("--judge", metavar="URL", help="what grades, e.g. http://host:8000/v1#model")
    parser.add_argument(
        "--seeds", metavar="N", type=at_least_one, default=1, help="seeds 0 to N-1 (default: 1)"
    )
    parser.add_argument(
        "--engine", choices=("trl", "verl"), default="trl", help="what trains with a reward (default: trl)"
    )
    parser.add_argument(
        "--verl-python", metavar="PATH", help="Python of an environment with factrl[verl], which has no trl"
    )
    parser.add_argument(
        "--verl", metavar="KEY=VALUE", action="append", default=[], help="an override of verl's own; repeated"
    )
    parser.add_argument("--only", metavar="STEP", action="append", help="this step alone; may be repeated")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print every command, at full scale with what it asks the judge",
    )
    add_settings(
        parser, "any setting of the steps that train with a reward; [judge] and [verifier] are those of all"
    )


def _reproduce(args: argparse.Namespace) -> int:
    pipeline = find_pipeline(args.paper)
    args.paper = split_spec(args.paper)[0]
    if args.full and not pipeline.model:
        raise ConfigError(f"{args.paper} has the small scale alone; leave --full out")
    if not (args.small or args.full) and pipeline.model and gpus_here():
        args.full = True
        tell("A GPU is here, so this is --full, the paper's model and values; --small is the other")
    if args.engine != "verl" and (args.verl or args.verl_python):
        raise ConfigError("--verl and --verl-python need --engine verl")
    python = args.verl_python or sys.executable
    if shutil.which(python) is None:
        raise ConfigError(f"--verl-python {python}: there is no such program")
    out = Path(args.output)
    folders = [out / f"seed-{seed}" for seed in range(args.seeds)] if args.seeds > 1 else [out]
    check_begun(folders[0] / "steps.jsonl", out / "table.md")
    took: list[dict[str, Any]] = []
    for seed, folder in enumerate(folders):
        commands = plan(pipeline, args, folder, seed)
        if args.dry_run:
            _show(pipeline, args, commands)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_recipe(pipeline, args, folder)
        took += run(commands, folder, args.only or (), python)
    if args.dry_run or args.only:
        return 0
    rows = [step.row for step in pipeline.steps if _shown(step, full=args.full)]
    found = measured(pipeline, rows, folders, full=args.full)
    notes = [*pipeline.notes]
    if not found.tells_apart():
        notes.append(
            "No row's interval is apart from base's: at this size the chain holds, and no effect is shown."
        )
    show_table(table(found))
    for note in notes:
        tell(note)
    say(str(write(args.paper, out, found, notes, took)))
    return 0


def _show(pipeline: Pipeline, args: argparse.Namespace, commands: Sequence[Command]) -> None:
    """Every command, at full scale with what it will ask the judge; nothing is made."""
    with tempfile.TemporaryDirectory() as made:
        judge = args.judge or ("http://localhost:8000/v1#JUDGE" if "judge" in pipeline.asks else None)
        write_recipe(pipeline, argparse.Namespace(**{**vars(args), "judge": judge}), Path(made))
        read = reader()
        for command in commands:
            asked = asks(command.words, Path(made, "recipe.toml"), read) if args.full else ""
            say(f"# {command.name}{asked and ': '}{asked}\n{command}")
    if args.full:
        tell(f"A file that is not there yet counts as {STAND_INS:,} questions.")


# What is run


def plan(pipeline: Pipeline, args: argparse.Namespace, folder: Path, seed: int) -> list[Command]:
    """Every command, in order.

    Raises:
        ConfigError: something that only the user can give is not given, or a step to run does not exist.
    """
    absent = to_be_given(pipeline, args) if args.full else []
    asked = [*absent[:1], *(f"and {one}" for one in absent[1:])]
    if absent and not args.dry_run:
        raise ConfigError(f"--full of {args.paper} needs {asked[0]}", *asked[1:])
    if absent:
        tell("To be given: " + "\n".join(asked))
    model = args.model or (pipeline.model if args.full else SMALL_MODEL)
    questions = folder / "questions"
    kind = "topics-" if pipeline.long else ""
    files = {"warm": pipeline.warm or f"{kind}warm", "train": f"{kind}train", "held_out": f"{kind}test"}
    files |= {name: name for name in ("claims", "extractions", "checked", "passages")}
    names = {
        "start": model,
        BASE: model,
        "recipe": str(folder / "recipe.toml"),
        "out": str(folder),
        **{
            name: getattr(args, name) or (name.upper() if args.full else str(questions / f"{file}.jsonl"))
            for name, file in files.items()
        },
    }
    commands = []
    evaluation = pipeline.evaluation(full=args.full)
    words = " ".join([evaluation, *(step.words for step in pipeline.steps)])
    needed = [name for name in files if f"{{{name}}}" in words]
    if not args.full and not all(getattr(args, name) for name in needed):
        told = ("prepare", "questions", "--output", str(questions), "--seed", str(seed))
        commands.append(Command("questions", told, questions))
    for step in pipeline.steps:
        if _runs(step, full=args.full):
            command = _command(step, args, names, folder, seed)
            commands.append(command)
            names[step.name] = str(command.made)
        if _shown(step, full=args.full) and not step.words.startswith("eval "):
            known = {**names, "row": step.row, "trained": names[step.name]}
            words = shlex.split(evaluation.format_map(_quoted(known)))
            limit = SMALL_HELD_OUT["long" if pipeline.long else "short"]
            words += [] if args.full or args.held_out else ["--limit", str(limit)]
            words += _of_all(args)
            commands.append(Command(f"eval {step.row}", tuple(words), _output(words, folder)))
    steps = [command.name for command in commands]
    for name in args.only or ():
        if name not in steps:
            near = nearest(name, steps)
            raise ConfigError(f"--only {name!r} is no step{near} (there are: {', '.join(steps)})")
    return commands


def _runs(step: Stage, *, full: bool) -> bool:
    return (step.full if full else step.small) is not None


def _shown(step: Stage, *, full: bool) -> bool:
    """Whether it has a row: `base` has one without a step too, of the model that the others start from."""
    return step.row == BASE or (step.row != "" and _runs(step, full=full))


def _command(
    step: Stage, args: argparse.Namespace, names: Mapping[str, str], folder: Path, seed: int
) -> Command:
    filled = f"{step.words} {step.full if args.full else step.small}".format_map(_quoted(names))
    words = shlex.split(filled)
    if words[0] in ("tune", "probe", "eval"):
        words += _of_all(args)
    if words[0] in _RUNS:
        place = folder / "runs" / step.name
        words += ["--output", str(place)] if words[0] == "tune" else [f"run.dir={place}"]
        words.append(f"run.seed={seed}")
        if words[0] == "train":
            overrides = [word for one in args.verl for word in ("--verl", one)]
            words += [*args.settings, *((*_VERL, *overrides) if args.engine == "verl" else ())]
        return Command(step.name, tuple(words), place / "model")
    return Command(step.name, tuple(words), _output(words, folder / step.name))


def _of_all(args: argparse.Namespace) -> list[str]:
    """The user's settings of what judges and verifies, which are those of every step."""
    return [word for word in args.settings if word.startswith(("judge.", "verifier."))]


def _output(words: Sequence[str], otherwise: Path) -> Path:
    return Path(words[words.index("--output") + 1]) if "--output" in words else otherwise


def _quoted(names: Mapping[str, str]) -> dict[str, str]:
    return {name: shlex.quote(value) for name, value in names.items()}


def write_recipe(pipeline: Pipeline, args: argparse.Namespace, folder: Path) -> None:
    """Write `recipe.toml`, which every step reads.

    Raises:
        ConfigError: the folder was begun with another one.
    """
    scale = pipeline.full if args.full else pipeline.small_settings
    # That of all rewards names each in its step, with all that a recipe's paper would decide.
    settings = {**({} if args.paper == REWARDS else {"paper": args.paper}), **scale}
    if args.judge:
        settings["judge"] = {**scale.get("judge", {}), "url": args.judge}
    if args.engine == "verl" and not args.full:
        settings |= {name: {**settings[name], **values} for name, values in _FOR_VERL.items()}
    text = tomli_w.dumps(settings).encode()
    path = folder / "recipe.toml"
    if path.exists() and path.read_bytes() != text:
        raise ConfigError(f"--output {folder} was begun with other settings ({path}); give another folder")
    write_whole(path, text)


def run(
    commands: Sequence[Command], folder: Path, only: Sequence[str], verl_python: str = sys.executable
) -> list[dict[str, Any]]:
    """Run what is not done yet; the lines of `steps.jsonl`.

    Args:
        verl_python: runs the steps that verl trains, beside which no trl may be installed.

    Raises:
        ConfigError: a step that is done had other words.
        SetupError: a step ended with an error.
    """
    check_begun(folder / "steps.jsonl", *(command.made for command in commands))
    with Journal(folder / "steps.jsonl", {"job": "factrl reproduce"}) as journal:
        for number, command in enumerate(commands, start=1):
            if only and command.name not in only:
                continue
            line = str(command)
            if command.name in journal:
                done = journal[command.name]
                if done["command"] != line:
                    raise ConfigError(
                        f"{folder}: the step {command.name!r} was run as\n{done['command']}\n"
                        f"and would now be\n{line}\ngive another --output"
                    )
                continue
            tell(f"[{number}/{len(commands)}] {command.name}: {line}")
            begun = time.monotonic()
            code, memory = _run(command, verl_python)
            if code:
                raise SetupError(
                    f"the step {command.name!r} ended with exit code {code}; the same command goes on here"
                )
            took = {"command": line, "seconds": round(time.monotonic() - begun, 1), "peak_mb": memory}
            journal.add(command.name, took)
        return [{"step": c.name, **journal[c.name]} for c in commands if c.name in journal]


def _run(command: Command, verl_python: str) -> tuple[int, int]:
    """The exit code, and the most memory that it held in MB; a training run that was begun goes on."""
    words = command.words
    of_verl = words[words.index(_VERL[0]) :] if _VERL[0] in words else ()
    runs = command.made.parent if words[0] in _RUNS else None
    command.made.parent.mkdir(parents=True, exist_ok=True)
    if runs is not None and (begun := _begun(runs)):
        words = (words[0], "--resume", str(begun), *of_verl)
    with Path(command.made if _JSON in words else os.devnull).open("wb") as out:
        python = verl_python if of_verl else sys.executable
        process = subprocess.Popen([python, "-m", "factrl", *words], stdout=out)  # noqa: S603
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except KeyboardInterrupt:
            process.wait()
            raise
    code = process.returncode = os.waitstatus_to_exitcode(status)
    if not code and runs is not None and (made := _begun(runs)):
        command.made.unlink(missing_ok=True)
        command.made.symlink_to(model_in(made).relative_to(runs))
        if model_in(made) == made / "model":  # the step is done, and a checkpoint holds three models' worth
            shutil.rmtree(made / "checkpoints", ignore_errors=True)
    return code, usage.ru_maxrss // 1024


def model_in(run: Path) -> Path:
    """The model of a run: verl has it in its last checkpoint."""
    saved = run.glob("checkpoints/global_step_*/actor/huggingface")
    return max(saved, key=lambda path: int(path.parts[-3].rpartition("_")[2]), default=run / "model")


def _begun(runs: Path) -> Path | None:
    """The last run folder in a folder of them."""
    return max((path.parent for path in runs.glob("*/*.toml") if not path.parent.is_symlink()), default=None)
