"""A paper's pipeline at the paper's own scale: each step of a study's `[full]` is a command of factrl's own.

A step is a process; its words, its time and the memory that it held are a line of `steps.jsonl` in the
folder, by which the same command goes on where it was stopped.
"""

from __future__ import annotations

import functools
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from factrl.errors import ConfigError, SetupError, nearest
from factrl.evals.probe import ProbeRunSettings
from factrl.evals.suite import several
from factrl.papers import asked_of
from factrl.runs.config import Unused, flat, settable, why_unused
from factrl.runs.data import load_examples, render_prompt
from factrl.runs.disk import Journal, check_begun, write_whole
from factrl.runs.settings import AskSettings, RunSettings
from factrl.studies import FILES, FullSettings
from factrl.text.escape import one_line
from factrl.train.plan import (
    Plan,
    bare_reward,
    estimate,
    extract_of,
    make_plan,
    run_settings,
    unread_in_asking,
    unread_in_training,
)
from factrl.train.tuning.plan import plan_tuning
from factrl.train.tuning.settings import TuneSettings, tune_settings
from factrl.types import Example, Passage

Tell = Callable[[str], None]
Read = Callable[[str], Sequence[Example]]

STAND_INS = 1000
"""As many questions a file that is not there yet counts for, in what a dry run says of the judge."""
_TEXT = 40  # characters of a prompt in a step's line
_RUNS = ("train", "tune")  # verbs that make a run folder with a model
_VERL = ("--engine", "verl")
_CITY = "Which city is the capital of a country in Europe?"
_AT = {"threshold": 0.5, "penalty": "1"}
_ABSENT = [Example(_CITY, ("Reykjavik",), "absent", evidence=(Passage(_CITY),), meta=_AT)] * STAND_INS
_FLAGS = {
    **{"--model": "model.name", "--data": "data.train", "--judge": "judge.url"},
    **{"--rule": "tune.rule", "--probe": "tune.probe"},
}
_SHOWN = (  # of a step's settings, beside its command
    *("paper", "data.prompt", "data.system", "data.prefill", "data.chat"),
    *("verifier.preset", "verifier.judge", "judge.reward_model"),
    *("model.lora_rank", "model.lora_alpha", "model.lora_target_modules"),
    *("train.steps", "train.epochs", "train.prompts_per_step", "train.num_generations"),
    *("train.learning_rate", "train.lr_scheduler_type", "train.warmup_steps"),
    *("train.loss_type", "train.scale_rewards", "train.beta", "train.temperature"),
    *("train.max_completion_length", "sampling.num_samples", "sampling.temperature", "sampling.top_p"),
    *("tune.rounds", "tune.beta", "tune.label_smoothing"),
)
_ALWAYS = ("verifier.preset", "train.learning_rate", "train.lr_scheduler_type")


@dataclass(frozen=True)
class Command:
    """A step with its names filled in.

    Attributes:
        name: the step's; `eval NAME` for the evaluation of a row.
        words: what stands behind `factrl`.
        made: what it makes; a folder of run folders for `train` and `tune`.
    """

    name: str
    words: tuple[str, ...]
    made: Path

    def __str__(self) -> str:
        return shlex.join(("factrl", *self.words))


@dataclass(frozen=True)
class Pipeline:
    """A study's `[full]` with what the user gives.

    Attributes:
        files: of `FILES`, those that are given; of `held_out` there may be several.
        model: to start from, in place of the paper's.
        judge: URL of what grades.
        judges: further ones, by each of which the trained models are evaluated once more.
        settings: `key=value` words of the steps that train with a reward, and of `judge` and `verifier` for
            every step that reads them.
        verl: the overrides of verl where it trains with rewards; None for TRL.
    """

    full: FullSettings
    files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    model: str = ""
    judge: str = ""
    judges: Sequence[str] = ()
    settings: Sequence[str] = ()
    verl: Sequence[str] | None = None

    def missing(self) -> list[str]:
        """What only the user can give and has not given, a line each; lost values of papers among it."""
        given = {word.partition("=")[0] for word in self.settings}
        given |= {*self.files, *(["judge"] if self.judge else [])}
        needed = {name: why for name, why in self.full.asks.items() if not given & {*name.split(" or ")}}
        for words in self.full.steps.values():
            if words.partition(" ")[0] != "train":  # what is lost is of training with the reward
                continue
            parts = [word.partition("=") for word in words.split()]
            told = given | {name for name, _, _ in parts}
            papers = [spec for name, _, spec in parts if name == "paper"] or [
                self.full.recipe.get("paper", "")
            ]
            lost = (asked_of(spec).items() for spec in papers)
            needed |= {key: why for each in lost for key, why in each if key not in told}
        return [
            f"{name}=…: {why}" if "." in name else f"--{name.replace('_', '-')}: {why}"
            for name, why in sorted(needed.items(), key=lambda one: "." in one[0])
        ]

    def commands(self, folder: Path, seed: int) -> list[Command]:
        """Every command, in order, without the user's settings."""
        names = {name: shlex.join(self.files.get(name, [name.upper()])) for name in FILES}
        start = shlex.quote(self.model or self.full.model)
        places = {"recipe": folder / "recipe.toml", "out": folder}
        names |= {"start": start, **{name: shlex.quote(str(path)) for name, path in places.items()}}
        commands = list[Command]()
        for step, words in self.full.steps.items():
            if words:
                commands.append(self._command(step, words, names, folder, seed))
            names[step] = shlex.quote(str(commands[-1].made)) if words else start
            known, evaluate = {**names, "row": step, "trained": names[step]}, words
            if self.full.is_evaluated(step):
                evaluate = self.full.evaluate
                commands.append(self._command(f"eval {step}", evaluate, known, folder, seed))
            for number, judge in enumerate(self.judges if self.full.is_row(step) else (), 2):
                known["out"] = shlex.quote(str(judged(folder, number)))
                again = self._command(f"eval {step} by judge {number}", evaluate, known, folder, seed)
                commands.append(replace(again, words=(*again.words, f"judge.url={judge}")))
        return commands

    def given(self, commands: Sequence[Command], recipe: Path) -> list[Command]:
        """The commands, each with those of the user's settings that it reads and does not set itself.

        Args:
            recipe: what the steps read, as `write_recipe` wrote it.

        Raises:
            ConfigError: a step's settings are wrong, or no step reads one of the user's or the recipe's, or
                the steps set it themselves.
        """
        read = any("--config" in command.words for command in commands)
        shared = [key for key in flat(self.full.recipe) if read and key != "paper"]
        unread, told = {*shared, *self.settings}, list[Command]()
        keys, fixed = {word: word.partition("=")[0] for word in self.settings}, set[str]()
        for command in commands:
            words, own = command.words, list[str]()
            if stage := stage_of(command, recipe):
                said = {_FLAGS.get(word, word.partition("=")[0]) for word in words}
                fixed |= said
                own = [word for word, key in keys.items() if key not in said and stage.reads(key)]
                if words[0] != "train":
                    own = [word for word in own if word.startswith(("judge.", "verifier."))]
                unread.difference_update(own)
                if "--config" in words:
                    unread.difference_update(filter(stage.reads, shared))
            cut = words.index(_VERL[0]) if _VERL[0] in words else len(words)
            told.append(replace(command, words=(*words[:cut], *own, *words[cut:])))
        if unread:
            of = {key: f"[full.recipe] {key}" for key in shared}
            why = {word: "the steps set it themselves" for word, key in keys.items() if key in fixed}
            raise ConfigError(
                *(f"{of.get(one, one)}: {why.get(one, 'no step reads it')}" for one in sorted(unread))
            )
        return told

    def _command(self, name: str, words: str, names: Mapping[str, str], folder: Path, seed: int) -> Command:
        filled = shlex.split(words.format_map(names))
        verb, made = filled[0], folder / name
        if "--output" in filled:
            made = Path(filled[filled.index("--output") + 1])
        if verb in _RUNS:
            made = folder / "runs" / name / "model"
            filled += ["--output", str(made.parent)] if verb == "tune" else [f"run.dir={made.parent}"]
            filled.append(f"run.seed={seed}")
        if verb == "train" and self.verl is not None:
            filled += [*_VERL, *(word for one in self.verl for word in ("--verl", one))]
        return Command(name, tuple(filled), made)

    def write_recipe(self, folder: Path) -> Path:
        """Write `recipe.toml`, which the steps read; returns its place.

        Raises:
            ConfigError: the folder was begun with another one.
        """
        settings = dict(self.full.recipe)
        if self.judge:
            settings["judge"] = {**settings.get("judge", {}), "url": self.judge}
        text, path = tomli_w.dumps(settings).encode(), folder / "recipe.toml"
        if path.exists() and path.read_bytes() != text:
            raise ConfigError(
                f"--output {folder} was begun with other settings ({path}); give another folder"
            )
        write_whole(path, text)
        return path


def judged(folder: Path, number: int) -> Path:
    """Where the evaluations by a pipeline's judge of this number, from 1, are."""
    return folder / f"judge-{number}" if number > 1 else folder


def check_only(only: Sequence[str], commands: Sequence[Command]) -> None:
    """Refuse a step that is none.

    Raises:
        ConfigError: there is no such step.
    """
    steps = [command.name for command in commands]
    for name in only:
        if name not in steps:
            near = nearest(name, steps)
            raise ConfigError(f"--only {name!r} is no step{near} (there are: {', '.join(steps)})")


# -- What is run


def run(
    commands: Sequence[Command],
    folder: Path,
    *,
    only: Sequence[str] = (),
    verl_python: str = sys.executable,
    tell: Tell = lambda text: None,
) -> list[dict[str, Any]]:
    """Run what is not done yet; the lines of `steps.jsonl`.

    Args:
        only: these steps alone.
        verl_python: runs the steps that verl trains, beside which no trl may be installed.

    Raises:
        ConfigError: a step that is done had other words.
        SetupError: a step ended with an error.
    """
    check_begun(folder / "steps.jsonl", *(command.made for command in commands))
    with Journal(folder / "steps.jsonl", {"job": "factrl study --full"}) as journal:
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
    line = [verl_python if of_verl else sys.executable, "-m", "factrl", *words]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)  # noqa: S603
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


# -- What a step is


@dataclass(frozen=True)
class Stage:
    """What a command resolves its words to.

    Attributes:
        unused: the settings that it does not read.
    """

    settings: RunSettings
    unused: Unused

    def reads(self, key: str) -> bool:
        """Whether the command reads a setting."""
        return why_unused(key, self.unused) is None

    @property
    def values(self) -> dict[str, Any]:
        """The settings that tell steps apart, of those that are read, and where an answer stands (`form`)."""
        told = flat(self.settings.model_dump())
        left = ("train.epochs",) if self.settings.train.steps else ()
        found = {key: told[key] for key in _SHOWN if key in told and key not in left and self.reads(key)}
        found = {key: value for key, value in found.items() if value not in (None, "")}
        return {**found, "form": extract_of(self.settings.paper, self.settings.reward)}


def stage_of(command: Command, recipe: Path) -> Stage | None:
    """A step's settings as its command resolves them; None for a verb that has none.

    Args:
        recipe: what stands for the file of `--config`.

    Raises:
        ConfigError: they are wrong.
    """
    try:
        return _stage(command.words, recipe)
    except ConfigError as error:
        told = (one.replace(str(recipe), "[full.recipe]") for one in error.problems)
        raise ConfigError(*(f"the step {command.name!r}: {one}" for one in told)) from error


def _stage(words: Sequence[str], recipe: Path) -> Stage | None:
    verb, words = words[0], words[: words.index(_VERL[0])] if _VERL[0] in words else words
    # What labelled rows teach is no policy of the paper's; elsewhere a step without --config asks no model.
    source = None if verb == "tune" and "--config" not in words else recipe
    told = [f"{_FLAGS[a]}={b}" for a, b in itertools.pairwise(words) if a in _FLAGS]
    told += [word for word in words if "=" in word and not word.startswith("-")]
    if verb == "train":
        trained = run_settings(source, told, unused=unread_in_training)
        return Stage(trained, unread_in_training(trained))
    if verb == "tune":
        tuned = tune_settings(source, [f"tune.method={words[1]}", f"data.train={words[2]}", *told])
        return Stage(tuned, tuned.unused())
    if verb not in ("probe", "eval"):
        return None
    samples = int(words[words.index("--samples") + 1]) if "--samples" in words else None
    # Stored answers are evaluated without a model.
    first = [f"data.train={_sets(words)[0]}", *([] if "--model" in words else ["model.name=any"])]
    if verb == "probe":
        first += [f"sampling.num_samples={samples}"] * (samples is not None)
        probed = run_settings(source, [*first, *told], ProbeRunSettings, unread_in_asking)
        return Stage(probed, unread_in_asking(probed))
    kinds = {kind: f"--{kind}" in words for kind in ("long", "reasoning")}
    unused = functools.partial(unread_in_asking, **kinds)
    asked = run_settings(source, [*first, *several(samples), *told], AskSettings, unused)
    return Stage(asked, unused(asked))


def _sets(words: Sequence[str]) -> list[str]:
    """The files and benchmarks of `probe` and `eval`."""
    start = 2 if words[1] == "--long" else 1
    return [*itertools.takewhile(lambda word: not word.startswith("-"), words[start:])]


# -- What the judge will be asked


def dry_run(commands: Sequence[Command], recipe: Path, files: Collection[str] | None = None) -> Iterator[str]:
    """Every command, and in front of it what it asks the judge; nothing is made.

    A step's own `--dry-run` needs the files that earlier steps make.  Here `STAND_INS` questions stand for a
    file that is not there yet, and a reward's requests, tokens and dollars are bounded as `factrl train
    --dry-run` does.

    Args:
        recipe: what the steps read, as `Pipeline.write_recipe` wrote it.
        files: those that must be there.  With them, steps whose files are there read them, and refuse what
            they would refuse once they run; None where not all that the pipeline needs is given yet.

    Raises:
        ConfigError: a step's settings are wrong, or it names a reward that there is not.
        SetupError: a file is not there, or a step cannot use its rows.
    """

    def there(name: str) -> bool:
        return Path(name).exists() or name in (files or ())

    @functools.cache  # many steps read the same questions
    def read(name: str) -> Sequence[Example]:
        return load_examples(name, require_answers=False) if Path(name).is_file() else _ABSENT

    for command in commands:
        stage = stage_of(command, recipe)
        if stage and files is not None:
            try:
                _check_rows(command.words, stage.settings, there)
            except SetupError as error:
                raise SetupError(f"the step {command.name!r}: {error}{_renamed(str(error))}") from error
        asks = _asks(command.words, stage, read) if stage else ""
        about = f"# {command.name}{asks and ': '}{asks}"
        yield "\n".join([about, *([f"## {_described(stage)}"] if stage else []), str(command)])


def _check_rows(words: Sequence[str], settings: RunSettings, there: Callable[[str], bool]) -> None:
    """Read a step's rows as its command does, where all of its files are there."""
    if isinstance(settings, TuneSettings):
        if there(settings.data.train) and there(settings.tune.probe or settings.data.train):
            plan_tuning(settings, only_show=True)
    elif not isinstance(settings, AskSettings):
        if there(settings.data.train):
            make_plan(settings, only_show=True)
    else:
        for name in filter(there, _sets(words)):
            render_prompt(load_examples(name, require_answers="--long" not in words)[0], settings.data.prompt)


def _renamed(problem: str) -> str:
    """What a study says where a command would be told a column."""
    return "; in a study, rename the column in the file" if "data.columns." in problem else ""


def _described(stage: Stage) -> str:
    """A line of a step's settings that are not the usual ones; of a text its beginning."""
    usual = {key: field.default for key, field in settable(type(stage.settings)).items()}
    told = {key: value for key, value in stage.values.items() if key in _ALWAYS or usual.get(key) != value}
    return ", ".join(f"{key} = {_short(value)}" for key, value in told.items())


def _short(value: Any) -> str:
    text = one_line(str(value))
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"


def _asks(words: Sequence[str], stage: Stage, read: Read) -> str:
    """One line on what a step asks the judge, and what that may cost; "" where no judge is asked."""
    settings = stage.settings
    if isinstance(settings, TuneSettings):
        return _of_tuning(settings, read)
    if not isinstance(settings, AskSettings):
        plan = Plan(settings, bare_reward(settings), None, read(settings.data.train), [], "")
        found = estimate(plan) if settings.judge.url else {}
        about = "; ".join(f"{name}: {value}" for name, value in found.items())
        return about and f"{plan.steps:,} steps; {plan.completions:,} answers; {about}"
    limit = int(words[words.index("--limit") + 1]) if "--limit" in words else None
    answers = sum(len(read(one)[:limit]) for one in _sets(words)) * settings.sampling.num_samples
    asked = "one request a claim and more" if "--long" in words else f"at most {answers:,} requests"
    return f"{answers:,} answers; the judge: {asked}" if settings.judge.url else ""


def _of_tuning(settings: TuneSettings, read: Read) -> str:
    if settings.measure is None or settings.tune.probe or not settings.judge.url:
        return ""
    questions = len(read(settings.data.train)[: settings.data.limit])
    answers = questions * settings.sampling.num_samples * settings.tune.rounds
    graded = f"at most {answers:,} requests"
    rewarded = "what the reward asks, once an answer"
    return f"{answers:,} answers; the judge: {graded if settings.measure == 'grade' else rewarded}"
