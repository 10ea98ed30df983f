"""What the verbs' command lines have in common: how they look, and options that stand for settings."""

from __future__ import annotations

import argparse
import importlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from factrl.errors import INSTALL, ConfigError, MissingExtra, SetupError
from factrl.job import Job
from factrl.llm import preflight
from factrl.runs.disk import MayReplace, anything, check_free
from factrl.runs.folder import settings_in, version_of
from factrl.runs.settings import ModelSettings
from factrl.verifier import Verifier

from .terminal import tell

Verbs = Any  # argparse names the type of add_subparsers() only privately
RULES_ALONE = "No --judge: rules alone compare answers, so a paraphrase counts as wrong."
TRL = (1, 16)  # the newest that was tested
_ON_TRL = ("train.online", "train.offline", "studies.engine")
_DIGITS = 18  # what fits into 64 bits, as all that counts rows needs
_SETTING = re.compile(r"[A-Za-z_][\w.]*\s*=")
# Options that stand for a setting: the setting, what follows the option, and its help.
_FOR_SETTINGS: Mapping[str, tuple[str, str, str]] = {
    "model": ("model.name", "NAME", "local folder, hub id, or a policy of `factrl doctor`"),
    "data": ("data.train", "FILE", "questions with their accepted answers"),
    "judge": (
        "judge.url",
        "URL",
        "model server that grades, e.g. http://host:8000/v1#model; `local` is a small one in this process",
    ),
    "paper": ("paper", "SPEC", "truthrl, truthrl:binary or my.py:reward"),
    "steps": ("train.steps", "N", "optimizer steps"),
    "seed": ("run.seed", "N", "seed of everything that is random"),
    "docs": (
        "verifier.docs",
        "FILE",
        "evidence: txt, md, html, pdf, docx, odt, jsonl, csv, parquet, or a folder",
    ),
    "index": ("verifier.index", "FOLDER", "evidence: what factrl index made"),
    "web": (
        "verifier.web",
        "ENGINE",
        "evidence: searxng:URL, wikipedia, serper, tavily, brave, exa, or a server that speaks like Serper",
    ),
    "output": (
        "run.output",
        "DIR",
        "folder of the run, in which the same command goes on (default: a new one in runs)",
    ),
}


def add_verb(
    verbs: Verbs, name: str, run: Callable[[argparse.Namespace], int], *, about: str, example: str
) -> argparse.ArgumentParser:
    """A parser for one verb, whose help begins with examples."""
    parser = verbs.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.\n\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def start(args: argparse.Namespace) -> int:
        _take_settings(parser, args)
        return run(args)

    parser.set_defaults(run=start, stands_for={})
    return parser


def _take_settings(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Make settings of the `key=value` words that stand where another word may be left out."""
    actions = [action for action in parser._get_positional_actions() if action.nargs in ("?", "+", "*")]
    for action in reversed(actions if "settings" in args else []):
        value = getattr(args, action.dest)
        words = value if isinstance(value, list) else [value] if value else []
        if action.dest != "settings" and any(map(is_setting, words)):
            args.settings = [*filter(is_setting, words), *args.settings]
            others = [word for word in words if not is_setting(word)]
            setattr(args, action.dest, others if isinstance(value, list) else None)


def add_options(parser: argparse.ArgumentParser, *names: str, **helps: str) -> None:
    """Options that many verbs have, in this order.

    Args:
        names: keys of `_FOR_SETTINGS`, or `config`, `limit`, `resume`, `json`.
        helps: the same, each with a help of its own.
    """
    others: Mapping[str, dict[str, Any]] = {
        "config": {"metavar": "RECIPE.toml", "help": "settings from a recipe"},
        "limit": {"metavar": "N", "type": at_least_one, "help": "only the first N questions"},
        "resume": {"metavar": "RUN", "help": "go on with the run in this folder"},
        "json": {"action": "store_true", "help": "print JSON instead of a table"},
    }
    stands_for = dict[str, str]()
    for name in (*names, *helps):
        told: dict[str, Any] = others.get(name, {})
        if name in _FOR_SETTINGS:
            stands_for[name], metavar, about = _FOR_SETTINGS[name]
            told = {"metavar": metavar, "help": about}
        if name == "docs":
            told |= {"nargs": "+", "action": "extend"}
        parser.add_argument(f"--{name}", **{**told, **({"help": helps[name]} if name in helps else {})})
    parser.set_defaults(stands_for=stands_for)


def add_seed(parser: argparse.ArgumentParser, about: str) -> None:
    """`--seed` of a verb that has no setting for it."""
    parser.add_argument("--seed", metavar="N", type=a_seed, default=0, help=about)


def add_option(parser: Any, usage: str, about: str, **more: Any) -> None:
    """An option as its usage shows it: `--output FILE` takes a value, `--dry-run` is a flag.

    Args:
        parser: or a group of one.
        more: what else `add_argument` takes.
    """
    option, _, metavar = usage.partition(" ")
    more |= {"metavar": metavar} if metavar else {"action": "store_true"}
    parser.add_argument(option, help=about, **more)


def add_settings(
    parser: argparse.ArgumentParser, about: str = "any other setting; factrl show --settings lists them"
) -> None:
    """Free `key=value` words, last."""
    parser.add_argument("settings", nargs="*", metavar="key=value", help=about)


def as_overrides(args: argparse.Namespace) -> list[str]:
    """Options as the settings they stand for, then the `key=value` words, which win."""
    given = {key: getattr(args, option) for option, key in args.stands_for.items()}
    return [
        *(
            f"{key}={json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value}"
            for key, value in given.items()
            if value is not None
        ),
        *getattr(args, "settings", ()),
    ]


def resumed(args: argparse.Namespace, file: str, given: str | None) -> tuple[Path, list[str]]:
    """The settings of the run that `--resume` names, and the overrides.

    Raises:
        ConfigError: it is no run, or something else is `given` that a run has already.
    """
    if args.output is not None:
        raise ConfigError(f"--resume goes on in the run's own folder; leave out --output {args.output}")
    if given:
        raise ConfigError(f"--resume takes everything from the run; leave out {given!r}")
    return settings_in(args.resume, file), [*as_overrides(args), f"run.output={args.resume}"]


def is_setting(word: str) -> bool:
    """Whether a word is `key=value`; a file of such a name is given as ./key=value.

    >>> is_setting("train.steps=3"), is_setting("./train.steps=3")
    (True, False)
    """
    return bool(_SETTING.match(word))


def check_judge(job: Job, *, rules: bool = True) -> None:
    """Make sure that the judge is there before anything is answered, which takes longest.

    Args:
        rules: where no judge is named, rules alone grade, which is said.

    Raises:
        SetupError: the judge is not there.
    """
    if job.judge is not None:
        preflight(job.judge)
    elif rules:
        tell(RULES_ALONE)


def warn_of_weak(verifier: object) -> None:
    """Say that a verifier compares words, where it does."""
    if isinstance(verifier, Verifier) and verifier.judge.weak:
        tell("No model judges claims: words, names and numbers are compared, which is no verification.")


def quiet_policy(model: ModelSettings) -> None:
    """Before a model is opened: where it is loaded into this process, quiet the libraries that do it.

    Raises:
        MissingExtra: they are not installed.
    """
    if model.is_policy:
        needs_extra("train.model", "train").for_command_line()


def within(least: int, most: int) -> Callable[[str], int]:
    """An argparse type: a whole number with both limits allowed."""

    def number(text: str) -> int:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        if not re.fullmatch(f"-?[0-9]{{1,{_DIGITS}}}", text) or not least <= int(text) <= most:
            limits = f" of at least {least}" if least > 0 else ""
            limits += f" and at most {most}" if most < 10**_DIGITS else f", with {_DIGITS} digits at most"
            raise argparse.ArgumentTypeError(f"{shown!r} is not a whole number{limits}")
        return int(text)

    return number


at_least_one = within(1, 10**_DIGITS)
LAST_SEED = 2**32 - 1
a_seed = within(0, LAST_SEED)


def between(low: float, high: float) -> Callable[[str], float]:
    """An argparse type: a number with both limits allowed."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text[:60]!r} is no number from {low:g} to {high:g}")
        return value

    return number


def check_place(option: str, path: Path, *suffixes: str, may_replace: MayReplace = anything) -> None:
    """Refuse a file that cannot be written, before anything is read or paid for.

    Args:
        may_replace: see `factrl.runs.disk.check_free`.

    Raises:
        ConfigError: it is a folder, in one that does not exist, has none of the suffixes, or something is
            there that may not be replaced.
    """
    if path.is_dir() or not path.parent.is_dir():
        wrong = "is a folder" if path.is_dir() else f"is in {path.parent}, which does not exist"
        raise ConfigError(f"{option} {path} {wrong}")
    device = path.exists() and not path.is_file()  # or a pipe, which has no name of its own
    if suffixes and path.suffix.lower() not in suffixes and not device:
        raise ConfigError(f"{option} {path} must end in {' or '.join(suffixes)}")
    check_free(path, may_replace)


def needs_extra(module: str, extra: str) -> Any:
    """A module of factrl that needs an optional extra.

    Raises:
        MissingExtra: a package that it imports is not installed.
        SetupError: it trains, and TRL is older than 1.0.
    """
    trl = version_of("trl") if module in _ON_TRL else None
    found = tuple(int(part) for part in re.findall(r"\d+", trl or "")[:2])
    if found and found < (1, 0):
        raise SetupError(f"trl {trl} is installed, and 1.0 is needed; run: {INSTALL.format(f'[{extra}]')}")
    if found > TRL:
        newest = ".".join(map(str, TRL))
        tell(f"trl {trl} is newer than {newest}, the newest that factrl was tested with")
    try:
        return importlib.import_module(f"factrl.{module}")
    except ModuleNotFoundError as error:
        package = (error.name or "factrl").partition(".")[0]
        if package == "factrl":
            raise
        raise MissingExtra(package, extra) from error
