"""`factrl study`: rewards compared on the small world."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, MissingExtra
from factrl.runs.disk import FileLock, check_free, write_whole
from factrl.runs.progress import Progress
from factrl.studies import (
    ALL,
    CALIBRATED,
    MODEL,
    PICTURE_MARK,
    StudySettings,
    add_row,
    check_folder,
    first_difference,
    load_study,
    row_identity,
    steps_of,
    study_names,
)
from factrl.studies.minutes import LOADING, seconds_left
from factrl.studies.world import split
from factrl.verifier.judges import Table

from .options import (
    LAST_SEED,
    Verbs,
    a_seed,
    add_option,
    add_settings,
    add_verb,
    at_least_one,
    needs_extra,
    within,
)
from .terminal import say, tell

_TABLE, _PICTURE = "table.md", "study.svg"
_MARK = "In brackets the change against the start with its 95 % interval"
_HOW = {"greedy": "greedy answers", "sampled": "one sample at the training temperature"}


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "study",
        _study,
        about="compare rewards on a small real model",
        example=(
            "examples:\n"
            "  factrl study knowrl --output out --dry-run\n"
            "  factrl study knowrl --output out --seeds 3\n"
            "  factrl study factreason my.py:reward --output out           # yours as a further row\n"
            "  factrl study klcf --output out table=facts.csv              # entity,relation,value\n"
            f"studies: {', '.join(study_names())}, {ALL}, or a TOML file\n"
            "Every row of the table is a reward, or a step towards one, from the same start.\n"
            "The same command again goes on where it was stopped."
        ),
    )
    parser.add_argument(
        "study", metavar="STUDY", help="a name, a TOML file, or `all`: every row from one start"
    )
    parser.add_argument("rewards", metavar="REWARD", nargs="*", help="rewards as further rows: my.py:reward")
    add_option(parser, "--output DIR", "folder of everything that is made", required=True)
    add_option(
        parser,
        "--seeds N",
        "how many, e.g. 3; or which, e.g. 10-11 (default: 1)",
        type=_seeds,
        default=_seeds("1"),
    )
    add_option(
        parser,
        "--only STEP",
        "this step alone, repeated: `start`, or a row as STUDY/ROW",
        action="append",
        default=[],
    )
    add_option(parser, "--model NAME", "start from this model")
    add_option(parser, "--dry-run", "print the rows and their settings; run nothing")
    add_option(parser, "--gpu", "the sizes of a GPU: more held-out texts, for knowrl larger steps")
    add_settings(parser, "any setting of the study's file, such as train.steps=30")


def _study(args: argparse.Namespace) -> int:
    names = study_names() if args.study == ALL else [args.study]
    studies = {Path(name).stem: load_study(name, args.settings, gpu=args.gpu) for name in names}
    for spec in args.rewards:
        studies = {name: add_row(study, spec) for name, study in studies.items()}
    out, seeds = Path(args.output), args.seeds
    _check_output(out)
    check_free(out / _PICTURE, lambda path: PICTURE_MARK in path.read_bytes())
    for path in {study.table for study in studies.values() if study.table is not None}:
        table = Table.read(path)  # mistakes come before torch is loaded
        for seed in seeds:
            split(table, seed)
    model, rows = args.model or MODEL, _rows(studies, args.only)
    check_folder(studies, rows, out, seeds, model)
    if args.dry_run:
        for name, study in studies.items():
            say(f"{name}: {study.title}\n  {_settings(study.train.model_dump(exclude_unset=True))}")
            for row, settings in study.rows.items():
                of_row = _settings({**settings.knobs, **settings.train})
                say(f"  {name}/{row}: {settings.reward}{of_row and f' with {of_row}'}")
        return 0
    with hold(out):
        results = run(studies, out, seeds, only=args.only, model=model)
        text = render(studies, results)
        _write(out, text)
        if not args.only:
            picture = out / _PICTURE
            needs_extra("studies.picture", "demo").write_picture(studies, results, picture)
            tell(f"picture   {picture}")
    return 0


def run(
    studies: Mapping[str, StudySettings],
    out: Path,
    seeds: Sequence[int],
    *,
    only: Sequence[str] = (),
    model: str = MODEL,
    keep: str = "",
) -> Mapping[int, Any]:
    """Run the studies, see `factrl.studies.engine.run_studies`; their stored results.

    A bar tells the minutes left before torch is loaded.
    """
    if find_spec("torch") is None:
        raise MissingExtra("torch", "demo")
    rows = _rows(studies, only)
    check_folder(studies, rows, out, seeds, model)
    left = sum(seconds_left(out / f"seed-{number}", studies, rows) for number in seeds)
    with Progress(" ".join(studies), round(LOADING + left), pace=1.0) as progress:
        needs_extra("train.model", "demo").for_command_line()
        engine = needs_extra("studies.engine", "demo")
        progress.advance(LOADING, "torch is loaded")
        engine.run_studies(
            studies, rows, out, seeds, model=model, keep=keep, tell=tell, advance=progress.advance
        )
        progress.advance(max(progress.total - progress.done, 0))
    return engine.read_results(out, seeds)


def _rows(studies: Mapping[str, StudySettings], only: Sequence[str]) -> list[str]:
    """The rows that are trained, as `study/row`."""
    return [row for row in steps_of(studies, only)[1:] if not only or row in only]


def _seeds(text: str) -> range:
    """An argparse type: a number of seeds from 0 on, or the first and the last one.

    >>> _seeds("3"), _seeds("10-11")
    (range(0, 3), range(10, 12))
    """
    first, dash, last = text.partition("-")
    if not dash:
        return range(at_least_one(text))
    return range(a_seed(first), within(a_seed(first), LAST_SEED)(last) + 1)


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _check_output(out: Path) -> None:
    """Refuse a folder that is a file, or has a table that is none of ours.

    Raises:
        ConfigError: it is.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--output {out} is a file; name a folder")
    check_free(out / _TABLE, lambda path: _MARK.encode() in path.read_bytes())


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


def _write(out: Path, text: str) -> None:
    say(text)
    write_whole(out / _TABLE, (text + "\n").encode(), lambda path: _MARK.encode() in path.read_bytes())


def render(studies: Mapping[str, StudySettings], results: Mapping[int, Any]) -> str:
    """The tables of the small world as markdown."""
    from factrl.studies.measure import COLUMNS, lines

    parts: list[str] = []
    for name, study in studies.items():
        parts += [f"## {study.title}", ""]
        for how, title in [*_HOW.items()][: 1 + study.size.sampled]:
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
        yield f"Not shown, as this command has no such row: {', '.join(others)}; name it again."


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|---|{'--:|' * (len(head) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
