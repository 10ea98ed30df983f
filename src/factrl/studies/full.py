"""A paper's pipeline at the paper's own scale: each step of a study's `[full]` is a command of factrl's own.

A step is a process; its words, its time and the memory that it held are a line of `steps.jsonl` in the
folder, by which the same command goes on where it was stopped.  The table has each row's held-out answers,
and its change beside the paper's.
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from factrl.errors import ConfigError, SetupError
from factrl.evals.ask import several
from factrl.evals.folder import Output, read_output
from factrl.evals.metrics import LABELS
from factrl.job import Job, read_job, unread_in_asking, unread_in_training
from factrl.papers import asked_of
from factrl.runs.config import Unused, flat, settable, why_unused
from factrl.runs.data import load_examples, render_prompt
from factrl.runs.disk import Journal, check_begun, write_whole
from factrl.runs.settings import AskSettings, RunSettings
from factrl.studies import BASE, FILES, FullSettings
from factrl.text.escape import one_line
from factrl.train.plan import Plan, make_plan
from factrl.train.tuning.plan import plan_tuning
from factrl.train.tuning.settings import TuneSettings, read_tuning_job, unread_in_tuning
from factrl.types import Example, Passage

Tell = Callable[[str], None]
Read = Callable[[str], Sequence[Example]]

STAND_INS = 1000
"""As many questions a file that is not there yet counts for, in what a dry run says of the judge."""
_TEXT = 41  # characters of a prompt in a step's line
_RUNS = ("train", "tune")  # verbs that make a run folder with a model
_VERL = ("--engine", "verl")
_CITY = "Which city is the capital of a country in Europe?"
_AT = {"threshold": 0.5, "penalty": "1"}
_ABSENT = [Example(_CITY, ("Reykjavik",), "absent", evidence=(Passage(_CITY),), meta=_AT)] * STAND_INS
_FLAGS = {
    **{"--model": "model.name", "--data": "data.train", "--judge": "judge.url"},
    **{"--rule": "tune.rule", "--probe": "tune.probe"},
}
_ANSWERING = (  # how a policy is asked, in training and in evaluations
    *("data.prompt", "data.system", "data.prefill", "data.chat"),
    *("train.max_completion_length", "train.use_vllm"),
)
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
        output: what it makes; a folder of run folders for `train` and `tune`.
    """

    name: str
    words: tuple[str, ...]
    output: Path

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
        settings: `key=value` words of the steps that train with a reward; those of `judge` and `verifier`
            are for every step that reads them, and how a policy is asked (`_ANSWERING`) for evaluations too.
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
        provided = {word.partition("=")[0] for word in self.settings}
        provided |= {*self.files, *(["judge"] if self.judge else [])}
        needed = {name: why for name, why in self.full.asks.items() if not provided & {*name.split(" or ")}}
        for words in self.full.steps.values():
            if words.partition(" ")[0] != "train":  # what is lost is of training with the reward
                continue
            parts = [word.partition("=") for word in words.split()]
            supplied = provided | {name for name, _, _ in parts}
            papers = [spec for name, _, spec in parts if name == "paper"] or [
                self.full.recipe.get("paper", "")
            ]
            lost = (asked_of(spec).items() for spec in papers)
            needed |= {key: why for each in lost for key, why in each if key not in supplied}
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
            names[step] = shlex.quote(str(commands[-1].output)) if words else start
            known, evaluate = {**names, "row": step, "trained": names[step]}, words
            if self.full.is_evaluated(step):
                evaluate = self.full.evaluate
                commands.append(self._command(f"eval {step}", evaluate, known, folder, seed))
            for number, judge in enumerate(self.judges if self.full.is_row(step) else (), 2):
                known["out"] = shlex.quote(str(judged(folder, number)))
                again = self._command(f"eval {step} by judge {number}", evaluate, known, folder, seed)
                commands.append(replace(again, words=(*again.words, f"judge.url={judge}")))
        return commands

    def with_settings(self, commands: Sequence[Command], recipe: Path) -> list[Command]:
        """The commands, each with those of the user's settings that it reads and does not set itself.

        Args:
            recipe: what the steps read, as `write_recipe` wrote it.

        Raises:
            ConfigError: a step's settings are wrong, or no step reads one of the user's or the recipe's, or
                the steps set it themselves.
        """
        read = any("--config" in command.words for command in commands)
        shared = [key for key in flat(self.full.recipe) if read and key != "paper"]
        unread, completed = {*shared, *self.settings}, list[Command]()
        keys, fixed = {word: word.partition("=")[0] for word in self.settings}, set[str]()
        for command in commands:
            words, own = command.words, list[str]()
            if stage := stage_of(command, recipe):
                set_here = {_FLAGS.get(word, word.partition("=")[0]) for word in words}
                fixed |= set_here
                own = [word for word, key in keys.items() if key not in set_here and stage.reads(key)]
                if words[0] != "train":
                    reaches = ("judge.", "verifier.", *(_ANSWERING if words[0] == "eval" else ()))
                    own = [word for word in own if word.startswith(reaches)]
                unread.difference_update(own)
                if "--config" in words:
                    unread.difference_update(filter(stage.reads, shared))
            cut = words.index(_VERL[0]) if _VERL[0] in words else len(words)
            completed.append(replace(command, words=(*words[:cut], *own, *words[cut:])))
        if unread:
            of = {key: f"[full.recipe] {key}" for key in shared}
            why = {word: "the steps set it themselves" for word, key in keys.items() if key in fixed}
            raise ConfigError(
                *(f"{of.get(one, one)}: {why.get(one, 'no step reads it')}" for one in sorted(unread))
            )
        return completed

    def _command(self, name: str, words: str, names: Mapping[str, str], folder: Path, seed: int) -> Command:
        filled = shlex.split(words.format_map(names))
        verb, output = filled[0], folder / name
        if "--output" in filled:
            output = Path(filled[filled.index("--output") + 1])
        if verb in _RUNS:
            output = folder / "runs" / name / "model"
            filled += ["--output", str(output.parent)] if verb == "tune" else [f"run.dir={output.parent}"]
            filled.append(f"run.seed={seed}")
        if verb == "train" and self.verl is not None:
            filled += [*_VERL, *(word for one in self.verl for word in ("--verl", one))]
        return Command(name, tuple(filled), output)

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
    check_begun(folder / "steps.jsonl", *(command.output for command in commands))
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
            started = time.monotonic()
            code, memory = _run(command, verl_python)
            if code:
                raise SetupError(
                    f"the step {command.name!r} ended with exit code {code}; the same command goes on here"
                )
            entry = {"command": line, "seconds": round(time.monotonic() - started, 1), "peak_mb": memory}
            journal.add(command.name, entry)
        return [{"step": c.name, **journal[c.name]} for c in commands if c.name in journal]


def _run(command: Command, verl_python: str) -> tuple[int, int]:
    """The exit code, and the most memory that it held in MB; a training run that was begun goes on."""
    words = command.words
    of_verl = words[words.index(_VERL[0]) :] if _VERL[0] in words else ()
    runs = command.output.parent if words[0] in _RUNS else None
    command.output.parent.mkdir(parents=True, exist_ok=True)
    if runs is not None and (unfinished := _last_run(runs)):
        words = (words[0], "--resume", str(unfinished), *of_verl)
    line = [verl_python if of_verl else sys.executable, "-m", "factrl", *words]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL)  # noqa: S603
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except KeyboardInterrupt:
        process.wait()
        raise
    code = process.returncode = os.waitstatus_to_exitcode(status)
    if not code and runs is not None and (last := _last_run(runs)):
        command.output.unlink(missing_ok=True)
        command.output.symlink_to(model_in(last).relative_to(runs))
        if model_in(last) == last / "model":  # the step is done, and a checkpoint holds three models' worth
            shutil.rmtree(last / "checkpoints", ignore_errors=True)
    return code, usage.ru_maxrss // 1024


def model_in(run: Path) -> Path:
    """The model of a run: verl has it in its last checkpoint."""
    saved = run.glob("checkpoints/global_step_*/actor/huggingface")
    return max(saved, key=lambda path: int(path.parts[-3].rpartition("_")[2]), default=run / "model")


def _last_run(runs: Path) -> Path | None:
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
        values = flat(self.settings.model_dump())
        left = ("train.epochs",) if self.settings.train.steps else ()
        shown = {key: values[key] for key in _SHOWN if key in values and key not in left and self.reads(key)}
        shown = {key: value for key, value in shown.items() if value not in (None, "")}
        return {**shown, "form": Job(self.settings).extract}


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
        problems = (one.replace(str(recipe), "[full.recipe]") for one in error.problems)
        raise ConfigError(*(f"the step {command.name!r}: {one}" for one in problems)) from error


def _stage(words: Sequence[str], recipe: Path) -> Stage | None:
    verb, words = words[0], words[: words.index(_VERL[0])] if _VERL[0] in words else words
    # What labelled rows teach is no policy of the paper's; elsewhere a step without --config asks no model.
    source = None if verb == "tune" and "--config" not in words else recipe
    overrides = [f"{_FLAGS[a]}={b}" for a, b in itertools.pairwise(words) if a in _FLAGS]
    overrides += [word for word in words if "=" in word and not word.startswith("-")]
    if verb == "train":
        trained = read_job(source, overrides, unread=unread_in_training)
        return Stage(trained.settings, unread_in_training(trained))
    if verb == "tune":
        tuned = read_tuning_job(source, [f"tune.method={words[1]}", f"data.train={words[2]}", *overrides])
        return Stage(tuned.settings, unread_in_tuning(tuned))
    if verb not in ("probe", "eval"):
        return None
    samples = int(words[words.index("--samples") + 1]) if "--samples" in words else None
    # Stored answers are evaluated without a model.
    first = [f"data.train={_sets(words)[0]}", *([] if "--model" in words else ["model.name=any"])]
    if verb == "probe":
        first += [f"sampling.num_samples={samples}"] * (samples is not None)
        probed = read_job(source, [*first, *overrides], AskSettings, unread_in_asking)
        return Stage(probed.settings, unread_in_asking(probed))
    kinds = {kind: f"--{kind}" in words for kind in ("long", "reasoning")}
    unused = functools.partial(unread_in_asking, **kinds)
    job = read_job(source, [*first, *several(samples), *overrides], AskSettings, unused)
    return Stage(job.settings, unused(job))


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
        ConfigError: a step's settings are wrong, or it names an unknown reward.
        SetupError: a file is not there, or a step cannot use its rows.
    """

    def there(name: str) -> bool:
        return Path(name).exists() or name in (files or ())

    @functools.cache  # many steps read the same questions
    def read(name: str) -> Sequence[Example]:
        return load_examples(name, require_answers=False) if Path(name).is_file() else _ABSENT

    for command in commands:
        stage, plan = stage_of(command, recipe), None
        if stage and files is not None:
            try:
                plan = _checked_rows(command.words, stage.settings, there)
            except SetupError as error:
                rename = "; in a study, rename the column in the file" * ("data.columns." in str(error))
                raise SetupError(f"the step {command.name!r}: {error}{rename}") from error
        asks = _asks(command.words, stage, plan, read) if stage else ""
        about = f"# {command.name}{asks and ': '}{asks}"
        yield "\n".join([about, *([f"## {_described(stage)}"] if stage else []), str(command)])


def _checked_rows(words: Sequence[str], settings: RunSettings, there: Callable[[str], bool]) -> Plan | None:
    """Read a step's rows as its command does, where all of its files are there; the plan of a training."""
    if isinstance(settings, TuneSettings):
        if there(settings.data.train) and there(settings.tune.probe or settings.data.train):
            plan_tuning(Job(settings))
    elif isinstance(settings, AskSettings):
        for name in filter(there, _sets(words)):
            render_prompt(load_examples(name, require_answers="--long" not in words)[0], settings.data.prompt)
    elif there(settings.data.train):
        return make_plan(Job(settings))
    return None


def _described(stage: Stage) -> str:
    """A line of a step's settings that are not the usual ones; of a text its beginning."""
    usual = {key: field.default for key, field in settable(type(stage.settings)).items()}
    unusual = {key: value for key, value in stage.values.items() if key in _ALWAYS or usual.get(key) != value}
    return ", ".join(f"{key} = {one_line(str(value), _TEXT)}" for key, value in unusual.items())


def _asks(words: Sequence[str], stage: Stage, plan: Plan | None, read: Read) -> str:
    """One line on what a step asks the judge, and what that may cost; "" where no judge is asked."""
    settings = stage.settings
    if not settings.judge.url:
        return ""
    if isinstance(settings, TuneSettings):
        if settings.measure is None or settings.tune.probe:
            return ""
        questions = len(read(settings.data.train)[: settings.data.limit])
        answers = questions * settings.sampling.num_samples * settings.tune.rounds
        graded = f"at most {answers:,} requests"
        requests = graded if settings.measure == "grade" else "what the reward asks, once an answer"
    elif isinstance(settings, AskSettings):
        limit = int(words[words.index("--limit") + 1]) if "--limit" in words else None
        answers = sum(len(read(one)[:limit]) for one in _sets(words)) * settings.sampling.num_samples
        requests = "one request a claim and more" if "--long" in words else f"at most {answers:,} requests"
    else:
        job = Job(settings)
        plan = plan or Plan(job, read(settings.data.train))
        return f"{plan.steps:,} steps; {plan.completions:,} answers"
    return f"{answers:,} answers; the judge: {requests}"


# -- The table

LEAST = 2.0
"""Points; a smaller change counts as no change."""


@dataclass(frozen=True)
class FullTable:
    """The table's numbers.

    Attributes:
        columns: as they are shown.
        paper: row -> column -> the paper's change against `base`.
        rows: row -> by seed, column -> value with its limits; without what there is no number of.
        grades: row -> question of a seed -> its grade's label; empty for long answers.
        sets: where a column is the mean over several sets of questions, the table of each.
    """

    columns: Sequence[str]
    paper: Mapping[str, Mapping[str, float]]
    rows: Mapping[str, Sequence[Mapping[str, Mapping[str, Any]]]]
    grades: Mapping[str, Mapping[str, str | None]]
    sets: Mapping[str, FullTable] = field(default_factory=dict)

    def lines(self) -> Iterator[list[str]]:
        """Each row's values, and beneath its changes."""
        for row in self.rows:
            yield [row, *(self._value(row, column) for column in self.columns)]
            if row != BASE:
                yield ["", *(self._changed(row, column) for column in self.columns)]

    def difficult(self) -> tuple[int, list[list[str]]]:
        """How many questions at most one row gets right, and each row's outcomes on them in percent.

        TruthRL has such a table: these questions can only be declined.
        """
        right = Counter(
            name for row in self.grades.values() for name, label in row.items() if label == "correct"
        )
        names = [name for name in next(iter(self.grades.values()), {}) if right[name] <= 1]
        counted = {row: Counter(labels[name] for name in names) for row, labels in self.grades.items()}
        return len(names), [
            [row, *(f"{100 * counts[label] / max(len(names), 1):.1f}" for label in LABELS)]
            for row, counts in counted.items()
        ]

    def tells_apart(self) -> bool:
        """Whether any row lies outside the interval of `base` with its own, in any column of any seed."""
        return any(
            after[column]["low"] > before[column]["high"] or after[column]["high"] < before[column]["low"]
            for row in self.rows
            for before, after in zip(self.rows[BASE], self.rows[row], strict=True)
            for column in self.columns
            if column in before and column in after
        )

    def change(self, row: str, column: str) -> float | None:
        """Against `base`, the mean over the seeds; None where a number is missing."""
        pairs = [*zip(self.rows[BASE], self.rows[row], strict=True)]
        if not all(column in side for pair in pairs for side in pair):
            return None
        return statistics.fmean(after[column]["value"] - before[column]["value"] for before, after in pairs)

    def _value(self, row: str, column: str) -> str:
        """`27.3 [24.1, 30.2]` of one seed, `27.3 ± 2.1` of several."""
        cells = [one[column] for one in self.rows[row] if column in one]
        if len(cells) < len(self.rows[row]):
            return "–"
        values = [one["value"] for one in cells]
        if len(values) > 1:
            return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"
        return f"{values[0]:.1f} [{cells[0]['low']:.1f}, {cells[0]['high']:.1f}]"

    def _changed(self, row: str, column: str) -> str:
        """`+3.1 (+4.2) =`."""
        ours, paper = self.change(row, column), self.paper.get(row, {}).get(column)
        if ours is None:
            return ""
        if paper is None:
            return f"{ours:+.1f}"
        same = (ours >= LEAST) == (paper >= LEAST) and (ours <= -LEAST) == (paper <= -LEAST)
        return f"{ours:+.1f} ({paper:+.1f}) {'=' if same else '≠'}"


def read_table(full: FullSettings, folders: Sequence[Path]) -> FullTable:
    """The evaluations of all rows in these folders, one for each seed."""
    rows = [step for step in full.steps if full.is_row(step)]
    short = "--long" not in full.evaluate.split()
    outputs = {row: [read_output(folder / "evaluations" / row) for folder in folders] for row in rows}
    grades = {row: _grades(folders, runs) for row, runs in outputs.items()} if short else {}

    def values(columns: Mapping[str, str]) -> dict[str, list[Mapping[str, Mapping[str, float]]]]:
        return {row: [_evaluation(columns, output) for output in runs] for row, runs in outputs.items()}

    pooled = {column: key for column, key in full.columns.items() if ":" not in key}
    sets = {
        name: FullTable([*full.columns], {}, values({c: f"{name}:{key}" for c, key in pooled.items()}), {})
        for name in (outputs[BASE][0].benchmarks if pooled else ())
    }
    shown = sets if len(sets) > 1 else {}
    return FullTable([*full.columns], full.rows, values(full.columns), grades, shown)


def _grades(folders: Sequence[Path], outputs: Sequence[Output]) -> dict[str, str | None]:
    """The label of the first answer to each question of each seed."""
    labels: dict[str, str | None] = {}
    for folder, output in zip(folders, outputs, strict=True):
        for benchmark, samples in output.samples.items():
            for one in samples:
                labels.setdefault(f"{folder.name}/{benchmark}/{one.example.id}", one.label)
    return labels


def _evaluation(columns: Mapping[str, str], output: Output) -> Mapping[str, Mapping[str, float]]:
    """A folder of `factrl eval`; shares in points.

    A metric without a benchmark is the mean over all of them, each set counting alike.  They are independent,
    so the squared distances of its limits are the sum of theirs, divided by their squared number.
    """
    numbers = {name: output.numbers(name) for name in output.benchmarks}
    cells = {}
    for column, key in columns.items():
        benchmark, _, name = key.rpartition(":")
        of = [numbers[one].get(name) for one in ([benchmark] if benchmark else numbers)]
        known = [one for one in of if one is not None]
        if not known:  # such as calibration, of answers without a confidence
            continue
        scale = (100 if known[0].percent else 1) / len(known)
        value = scale * sum(one.value for one in known)
        cells[column] = {"value": value}
        for limit, sign in (("low", -1), ("high", 1)):
            away = math.hypot(*(getattr(one, limit) - one.value for one in known))
            cells[column][limit] = value + sign * scale * away
    return cells
