"""`factrl study`: rewards compared on the small world, or a paper's whole pipeline at its own scale."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, SetupError
from factrl.evals.metrics import LABELS
from factrl.papers import load_reward, split_spec
from factrl.runs.config import full_override
from factrl.runs.disk import FileLock, check_free, write_whole
from factrl.runs.progress import clock
from factrl.runs.settings import RunSettings
from factrl.stress import known_failures
from factrl.studies import (
    ALL,
    BASE,
    CALIBRATED,
    FILES,
    MODEL,
    PICTURE_MARK,
    FullSettings,
    StudySettings,
    add_row,
    check_folder,
    check_only,
    first_difference,
    load_study,
    row_identity,
    steps_of,
    study_names,
)
from factrl.studies.full import (
    LEAST,
    STAND_INS,
    Command,
    FullTable,
    Pipeline,
    dry_run,
    judged,
    read_table,
    run,
)
from factrl.studies.world import Task, split
from factrl.verifier.judges import Table

from .options import Verbs, a_seed, add_option, add_settings, add_verb, at_least_one, needs_extra
from .terminal import say, tell

_TABLE, _PICTURE = "table.md", "study.svg"
_MARK = "In brackets the change against the start with its 95 % interval"
_FULL_MARK = f"Held-out answers in points, beneath the change against `{BASE}`"
_HOW = {"greedy": "greedy answers", "sampled": "one sample at the training temperature"}
_SMALL_ONLY = ("add", "table", "gpu")
_FULL_ONLY = (*FILES, "judge", "engine", "verl_python", "verl")


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "study",
        _study,
        about="compare rewards on a small real model, or run a paper's pipeline",
        example=(
            "examples:\n"
            "  factrl study knowrl --output out --dry-run\n"
            "  factrl study knowrl --output out --seeds 3\n"
            "  factrl study factreason --output out --add my.py:reward\n"
            "  factrl study klcf --output out --table facts.csv   # entity,relation,value\n"
            "  factrl study truthrl --full --output out --dry-run\n"
            "  factrl study truthrl --full --train train.jsonl --held-out crag.jsonl --held-out nq.jsonl \\\n"
            "      --judge http://host:8000/v1#Llama-3.3-70B-Instruct --output out\n"
            f"studies: {', '.join(study_names())}, {ALL}, or a TOML file\n"
            "The same command again goes on where it was stopped."
        ),
    )
    parser.add_argument(
        "study", metavar="STUDY", help="a name, a TOML file, or `all`: every row from one start"
    )
    scale = parser.add_mutually_exclusive_group()
    add_option(scale, "--small", "the small world, a 135M model on two CPU cores (default)")
    add_option(scale, "--full", "the paper's pipeline: its model, its data, its values")
    add_option(parser, "--output DIR", "folder of everything that is made", required=True)
    add_option(
        parser, "--seeds N", "how many seeds, from --first-seed on (default: 1)", type=at_least_one, default=1
    )
    add_option(parser, "--first-seed N", "the first seed (default: 0)", type=a_seed, default=0)
    add_option(
        parser,
        "--only STEP",
        "this step alone, repeated: `start`, a row as STUDY/ROW, or a step of --full",
        action="append",
        default=[],
    )
    add_option(
        parser,
        "--model NAME",
        "start from this model; with --full repeated, a folder for each and one table",
        action="append",
        default=[],
    )
    add_option(parser, "--dry-run", "print the steps, with --full what each asks the judge; run nothing")
    small = parser.add_argument_group("the small world alone")
    add_option(small, "--add SPEC", "a reward as a further row", action="append", default=[])
    add_option(small, "--table FILE", "your own facts: entity,relation,value")
    add_option(small, "--gpu", "the sizes of a GPU: more held-out texts, for knowrl larger steps")
    full = parser.add_argument_group("--full alone")
    add_option(full, "--train FILE", "questions to train on")
    add_option(
        full,
        "--held-out FILE",
        "questions to evaluate on; repeated, the table has each file and their mean",
        action="append",
    )
    add_option(
        full,
        "--judge URL",
        "what grades, e.g. http://host:8000/v1#model; repeated, each further one evaluates the trained "
        "models once more",
        action="append",
    )
    add_option(full, "--warm FILE", "rows of the cold start")
    add_option(full, "--claims FILE", "claims with labels, where a verifier is trained")
    add_option(full, "--extractions FILE", "texts with their claims, for an extractor")
    add_option(full, "--checked FILE", "texts with checked lists, for what checks them")
    add_option(full, "--passages FILE", "passages to search, where the pipeline retrieves")
    full.add_argument("--engine", choices=("trl", "verl"), help="what trains with a reward (default: trl)")
    add_option(full, "--verl-python PATH", "Python of an environment with factrl[verl], which has no trl")
    add_option(full, "--verl KEY=VALUE", "an override of verl's own; repeated", action="append")
    add_settings(
        parser,
        "any setting of the small studies, such as train.steps=30; with --full, of the steps that train "
        "with a reward, [judge] and [verifier] of all steps, prompt and length of evaluations too",
    )


def _study(args: argparse.Namespace) -> int:
    given = vars(args)
    for name in _SMALL_ONLY if args.full else _FULL_ONLY:
        if given[name]:
            other = "the small world; leave --full out" if args.full else "--full, the paper's own scale"
            raise ConfigError(f"--{name.replace('_', '-')} is an option of {other}")
    return _full(args) if args.full else _small(args)


def _small(args: argparse.Namespace) -> int:
    if args.model[1:]:
        raise ConfigError(f"--model {', '.join(args.model)}: the small world starts from one; or give --full")
    words = (*args.settings, *([] if args.table is None else [f"table={args.table}"]))
    names = study_names() if args.study == ALL else [args.study]
    studies = {Path(name).stem: load_study(name, words, gpu=args.gpu) for name in names}
    if args.study == ALL:
        studies = {name: study for name, study in studies.items() if study.rows}
    elif not studies[Path(args.study).stem].rows:
        raise ConfigError(f"{args.study} has no rows on the small world; give --full")
    for spec in args.add:
        studies = {name: add_row(study, spec) for name, study in studies.items()}
    out, seeds = Path(args.output), range(args.first_seed, args.first_seed + args.seeds)
    _check_output(out, _MARK)
    check_free(out / _PICTURE, lambda path: PICTURE_MARK in path.read_bytes())
    for path in {study.table for study in studies.values() if study.table is not None}:
        table = Table.read(path)  # mistakes come before torch is loaded
        for seed in seeds:
            split(table, seed)
    model, rows = args.model[0] if args.model else MODEL, steps_of(studies, args.only)[1:]
    check_folder(studies, [row for row in rows if not args.only or row in args.only], out, seeds, model)
    if args.dry_run:
        for name, study in studies.items():
            say(f"{name}: {study.title}\n  {_settings(study.train.model_dump(exclude_unset=True))}")
            for row, settings in study.rows.items():
                of_row = _settings({**settings.knobs, **settings.train})
                say(f"  {name}/{row}: {settings.reward}{of_row and f' with {of_row}'}")
        return 0
    needs_extra("train.model", "demo").for_command_line()
    engine = needs_extra("studies.engine", "demo")
    with hold(out):
        engine.run_studies(studies, out, seeds, only=args.only, model=model, tell=tell)
        results = engine.read_results(out, seeds)
        text = render(studies, results)
        if args.study == ALL:
            text += "\n\n" + render_overview(studies, results)
        _write(out, text, _MARK)
        if not args.only:
            picture = out / _PICTURE
            needs_extra("studies.picture", "demo").write_picture(studies, results, picture)
            tell(f"picture   {picture}")
    return 0


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _full(args: argparse.Namespace) -> int:
    name, variant = split_spec(args.study)
    if name == ALL:
        raise ConfigError(f"`{ALL}` is of the small world; name one study, or leave --full out")
    study = load_study(name)
    if not study.full.steps:
        raise ConfigError(f"{name} has no [full]; leave --full out")
    if args.engine != "verl" and (args.verl or args.verl_python):
        raise ConfigError("--verl and --verl-python need --engine verl")
    python = args.verl_python or sys.executable
    if shutil.which(python) is None:
        raise ConfigError(f"--verl-python {python}: there is no such program")
    full, models = study.full.variant(variant) if variant else study.full, args.model or [""]
    pipeline = _pipeline(args, full)
    out, seeds = Path(args.output), range(args.first_seed, args.first_seed + args.seeds)
    starts = {(out / Path(model).name if models[1:] else out): model for model in models}
    if len(starts) < len(models):
        raise ConfigError(
            f"two of --model {', '.join(models)} have one name; give each an --output of its own"
        )
    folders = {at: [at / f"seed-{seed}" for seed in seeds] if args.seeds > 1 else [at] for at in starts}
    plans = {
        folder: replace(pipeline, model=model).commands(folder, seed)
        for at, model in starts.items()
        for folder, seed in zip(folders[at], seeds, strict=True)
    }
    first = next(iter(plans.values()))
    check_steps(first)
    check_only(args.only, [command.name for command in first])
    missing = [f"{'and ' if number else ''}{one}" for number, one in enumerate(pipeline.missing())]
    if missing and not args.dry_run:
        raise ConfigError(f"{args.study} --full needs {missing[0]}", *missing[1:])
    if missing:
        tell("To be given: " + "\n".join(missing))
    _check_output(out, _FULL_MARK)
    judge = pipeline.judge or ("http://localhost:8000/v1#JUDGE" if "judge" in full.asks else "")
    needed = [] if args.dry_run else [name for names in pipeline.files.values() for name in names]
    with tempfile.TemporaryDirectory() as made:  # the settings of every step are read before one runs
        recipe = replace(pipeline, judge=judge).write_recipe(Path(made))
        plans = {folder: pipeline.with_settings(commands, recipe) for folder, commands in plans.items()}
        for commands in plans.values():
            chosen = [command for command in commands if not args.only or command.name in args.only]
            for text in dry_run(chosen, recipe, None if missing else needed):
                if args.dry_run:
                    say(text)
    if args.dry_run:
        tell(f"A file that is not there yet counts as {STAND_INS:,} questions.")
        return 0
    took: list[dict[str, Any]] = []
    with hold(out):
        for folder, commands in plans.items():
            folder.mkdir(parents=True, exist_ok=True)
            pipeline.write_recipe(folder)
            took += run(commands, folder, only=args.only, verl_python=python, tell=tell)
        if not args.only:
            tables = _tables(full, folders, args.judge or [""])
            _write(out, render_full(study.title, full.source, tables, full.notes, took), _FULL_MARK)
    return 0


def _pipeline(args: argparse.Namespace, full: FullSettings) -> Pipeline:
    """The pipeline with what the command line gives.

    Raises:
        ConfigError: no step reads a file or a setting, or a step cannot take it.
    """
    given = vars(args)
    files = {
        name: [given[name]] if isinstance(given[name], str) else given[name] for name in FILES if given[name]
    }
    for file in files.keys() - full.asks.keys():
        raise ConfigError(f"--{file.replace('_', '-')} {files[file][0]}: no step of {args.study} reads it")
    _check_held_out(full, files.get("held_out", ()))
    verl = (args.verl or []) if args.engine == "verl" else None
    judge, *judges = args.judge or [""]
    paper = full.recipe.get("paper")
    knobs = {"reward": load_reward(paper).knobs} if paper else {}
    settings = [full_override(RunSettings, word, knobs) for word in args.settings]
    if own := [word for word in settings if word.startswith(("sampling.", "tune."))]:
        raise ConfigError(
            *(
                f"{word}: how a step samples and tunes stands in [full.steps]; give a file of yours"
                for word in own
            )
        )
    return Pipeline(full, files, (args.model or [""])[0], judge, judges, settings, verl)


def _check_held_out(full: FullSettings, files: Sequence[str]) -> None:
    """Refuse files that no evaluation tells apart, or several where a step takes one.

    Raises:
        ConfigError: they are.
    """
    if len({Path(file).stem for file in files}) < len(files):
        raise ConfigError(f"two of --held-out {', '.join(files)} have one name; rename one")
    takes_one = [step for step, words in full.steps.items() if "{held_out}" in words and words[:5] != "eval "]
    if files[1:] and takes_one:
        raise ConfigError(f"--held-out {', '.join(files)}: the step {takes_one[0]!r} takes one file")


def _tables(
    full: FullSettings, folders: Mapping[Path, Sequence[Path]], judges: Sequence[str]
) -> dict[str, FullTable]:
    """By model, judge and set of questions, whichever there are several of.

    Args:
        folders: of a model -> of its seeds.
    """
    tables: dict[str, FullTable] = {}
    for at, seeds in folders.items():
        for number, judge in enumerate(judges, 1):
            table = read_table(full, [judged(folder, number) for folder in seeds])
            names = [at.name] if len(folders) > 1 else []
            names += [f"judged by {judge}"] if len(judges) > 1 else []
            tables[", ".join([*names, f"mean of {len(table.sets)} sets"] if table.sets else names)] = table
            tables |= {", ".join([*names, one]): own for one, own in table.sets.items()}
    return tables


def check_steps(commands: Sequence[Command]) -> None:
    """Refuse a step that the command line would refuse, before any of them runs.

    Raises:
        ConfigError: no such verb or option.
    """
    from . import _parse, all_parsers

    root, verbs = all_parsers()
    for command in commands:
        try:
            _parse(root, verbs, [*command.words])
        except SetupError as error:  # noqa: PERF203
            raise ConfigError(f"the step {command.name!r}: {error}") from error


def _check_output(out: Path, mark: str) -> None:
    """Refuse a folder that is a file, or has a table that is none of this scale.

    Raises:
        ConfigError: it is.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--output {out} is a file; name a folder")
    check_free(out / _TABLE, lambda path: mark.encode() in path.read_bytes())


@contextmanager
def hold(out: Path) -> Iterator[None]:
    """Let no other process write to the folder; what is refused leaves none behind."""
    made = [path for path in (out, *out.parents) if not path.exists()]
    out.mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / ".lock", f"--output {out}")
    try:
        yield
    finally:
        lock.release()
        with suppress(OSError):  # one with something in it stays
            for path in made:
                path.rmdir()


def _write(out: Path, text: str, mark: str) -> None:
    say(text)
    write_whole(out / _TABLE, (text + "\n").encode(), lambda path: mark.encode() in path.read_bytes())


def render(studies: Mapping[str, StudySettings], results: Mapping[int, Any]) -> str:
    """The tables of the small world as markdown."""
    from factrl.studies.measure import COLUMNS, lines

    parts: list[str] = []
    for name, study in studies.items():
        parts += [f"## {study.title}", ""]
        for how, title in _HOW.items():
            rows = lines(results, name, study.task, [CALIBRATED, *study.rows], how)
            parts += [f"{title.capitalize()}, {len(results)} seed{'s'[: len(results) > 1]}:", ""]
            parts += [*_markdown([study.task, *COLUMNS[study.task]], rows), ""]
        parts += [f"- {note}" for note in (*study.notes, *_differing(name, study, results))]
    parts += [
        "",
        f"{_MARK}: over entities with one seed, over seeds (Student's t) with several.",
    ]
    return "\n".join(parts)


def _differing(name: str, study: StudySettings, results: Mapping[int, Any]) -> Iterator[str]:
    """Notes on rows of the folder that were made with other settings, or are none of this command's."""
    others: dict[str, None] = {}
    for seed, held in results.items():
        for key in held:
            of, _, row = key.partition("/")
            if of != name or row == CALIBRATED:
                continue
            if row not in study.rows:
                others[row] = None
            elif other := first_difference(held[key], row_identity(study, row)):
                yield f"{row}, seed {seed}, was made with {other}."
    if others:
        yield f"Not shown, as this command has no such row: {', '.join(others)}; give --add again."


def render_overview(studies: Mapping[str, StudySettings], results: Mapping[int, Any]) -> str:
    """One line for every row of all studies, greedy, as markdown."""
    from factrl.studies.measure import OVERVIEW, overview

    def hacks(reward: str) -> int | None:
        known = known_failures(reward)
        return None if known is None else len(known)

    rows: dict[str, tuple[Task, dict[str, int | None]]] = {
        name: (
            study.task,
            {CALIBRATED: None, **{row: hacks(settings.reward) for row, settings in study.rows.items()}},
        )
        for name, study in studies.items()
    }
    head = ["all rewards", *OVERVIEW]
    return "\n".join(
        [
            "## Every reward from one start",
            "",
            *_markdown(head, overview(results, rows)),
            "",
            "Greedy answers. kept: of what the start had right, what still is; caught: of what it had wrong, "
            "what is now declined; hacks: known to pay under the reward (factrl stress).",
        ]
    )


def render_full(
    title: str,
    source: str,
    tables: Mapping[str, FullTable],
    notes: Sequence[str],
    took: Sequence[Mapping[str, Any]],
) -> str:
    """The table of a pipeline, its notes, and every command with its time and memory, as markdown.

    Args:
        tables: by name; each is a part of the one table, beneath its name.
    """
    key = f"= where it goes the paper's way, ≠ where not; under {LEAST:g} is no change."
    parts = [f"## {title}, --full", "", f"{_FULL_MARK} (the paper's). {key}", ""]
    columns = next(iter(tables.values())).columns
    rows = list[Sequence[str]]()
    for name, table in tables.items():
        rows += [[f"**{name}**", *("" for _ in columns)]] if name else []
        rows += table.lines()
    parts += [*_markdown(["row", *columns], rows), ""]
    for name, table in tables.items():
        count, shares = table.difficult()
        if count:
            of = name and f" ({name})"
            parts += [
                f"The {count} difficult questions, which at most one row gets right, in percent{of}:",
                "",
            ]
            parts += [*_markdown(["row", *LABELS], shares), ""]
    parts += [f"- The paper's numbers: {source}."] if source else []
    parts += [f"- {note}" for note in notes]
    if not any(table.tells_apart() for table in tables.values()):
        parts.append("- No row's interval is apart from base's: the chain holds, and no effect is shown.")
    steps = [
        [one["step"], clock(one["seconds"]), f"{one['peak_mb']:,}", f"`{one['command']}`"] for one in took
    ]
    return "\n".join([*parts, "", *_markdown(["step", "time", "peak MB", "command"], steps)])


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|---|{'--:|' * (len(head) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
