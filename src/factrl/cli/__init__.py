"""The command line: `factrl VERB`, one verb per thing a user does.

Exit codes: 0 done; 1 a check failed; 2 something must be changed first; 3 too much could not be graded; 4 the
run stopped before --max-cost; 130 interrupted.  Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from factrl import __version__
from factrl.errors import (
    ConfigError,
    NoScore,
    OverBudget,
    RewardBug,
    SetupError,
    TooManyMasked,
    nearest,
)

from .terminal import (
    complain,
    drop_stdout,
    mishap,
    open_streams,
    tell,
    users_frames,
)

GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "check texts": {
        "verify": ("verify", "check a text: its claims, a verdict for each, and the evidence"),
        "index": ("verify", "build an index of passages from files or a Wikipedia dump"),
    },
    "train": {
        "demo": ("demo", "teach a small model to say when it does not know, on two CPU cores"),
        "train": ("train", "train a model with a paper's reward"),
        "tune": ("tune", "train on given answers or own pairs: SFT, RFT, R-Tuning, DPO"),
        "study": ("study", "compare rewards on a small real model"),
        "prepare": ("prepare", "make what training reads: KLCF's data, passages, rows for others"),
        "stress": ("stress", "try 37 known ways to cheat on a reward, offline and in seconds"),
        "serve": ("serve", "give rewards and verdicts over HTTP, or as an agent's tools (MCP)"),
    },
    "evaluate, and look around": {
        "eval": ("evaluate", "measure accuracy, abstention and hallucination, with intervals"),
        "ask": ("ask", "talk to a model, or to two, and see what a reward pays each answer"),
        "report": ("report", "make a page of a training run, or compare evaluations"),
        "show": ("show", "list the papers, or what one's reward pays, its knobs, variants"),
        "doctor": ("doctor", "look at this machine: packages, models, cache, keys, judge"),
    },
}
"""Verb -> the file that has it, which is loaded for this verb alone, and what it is for in one line."""
_VERBS = {name: file for verbs in GROUPS.values() for name, (file, _) in verbs.items()}


_END = "--end-of-options"  # in the place of `--`, which argparse's intermixed words do not know
_WORD = "\0"  # before a word behind it that begins with `-`; no command line can hold it


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage like any other error: in one line, which names `--help`."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if not all(map(str.strip, arg_strings)):  # an unset variable of the shell
            name = [*action.option_strings, action.metavar][0]
            self.error(f"{name} is empty; give it a value, or leave it out")
        words = [word.removeprefix(_WORD) for word in arg_strings]
        return super()._get_values(action, words)  # type: ignore[misc]

    def error(self, message: str) -> NoReturn:
        message = message.replace(", key=value", "")  # argparse wrongly lists settings as required
        raise ConfigError(f"{message}; see {self.prog} --help")


class _Root(_Parser):
    """Lists the verbs by purpose, within 80 columns and 24 lines."""

    def format_help(self) -> str:
        lines = [f"usage: factrl VERB …   ({self.epilog})", self.description or ""]
        for title, verbs in GROUPS.items():
            lines += [f"{title}:", *(f"  {name:<9}{about}" for name, (_, about) in verbs.items())]
        return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    Args:
        argv: the words after `factrl`; those of this process by default.
    """
    open_streams()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except SetupError as error:
        complain(*getattr(error, "problems", (str(error),)))
        return 2
    except (TooManyMasked, OverBudget) as error:
        complain(str(error))
        return 3 if isinstance(error, TooManyMasked) else 4
    except RewardBug as error:
        frames = users_frames(error)
        if not frames and not isinstance(error, NoScore):
            raise
        if frames:
            tell(frames)
        complain(str(error))
        return 2
    except KeyboardInterrupt as error:
        complain(str(error) or "interrupted")
        return 130
    except BrokenPipeError:
        drop_stdout()
        return 141  # as a shell reports a program that wrote to a closed pipe
    except BaseException as error:
        line = mishap(error)
        if line is not None:
            complain(line)
            try:
                sys.stdout.flush()
            except OSError:  # the error was that stdout cannot be written
                drop_stdout()
            return 2
        raise
    return code


def _run(words: Sequence[str]) -> int:
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):  # bytes that are no UTF-8
            raise ConfigError(f"{word!r} is not UTF-8 text; rename the file, or write the word in UTF-8")
    words = list(words) or ["--help"]
    verb = words[1] if words[0] == "help" and len(words) > 1 else words[0]
    parser, verbs = _parsers(*({_VERBS[verb]} if verb in _VERBS else ()))
    try:
        args = _parse(parser, verbs, words)
    except SystemExit as done:  # --help or --version
        return int(done.code or 0)
    return args.run(args)


def _parse(
    parser: argparse.ArgumentParser, verbs: Mapping[str, argparse.ArgumentParser], words: list[str]
) -> argparse.Namespace:
    if words[0] == "help":  # of a verb, or of all
        words = [*words[1:], "--help"]
    verb, *rest = words
    if rest and f"{verb} {rest[0]}" in verbs:  # "prepare klcf": argparse's own second level takes no settings
        verb, rest = f"{verb} {rest[0]}", rest[1:]
    kinds = [name.split()[1] for name in verbs if name.startswith(f"{verb} ")]
    if kinds and not (rest and rest[0].startswith("-")):
        problem = f"has no kind {rest[0]!r}{nearest(rest[0], kinds)}" if rest else "needs a kind"
        raise ConfigError(f"factrl {verb} {problem} (there are: {', '.join(kinds)})")
    if verb.startswith("-"):
        chosen, (args, unknown) = parser, parser.parse_known_args([verb])
    elif verb in verbs:
        if "--" in rest:
            end = rest.index("--")
            verbs[verb].add_argument(_END, action="store_true", help=argparse.SUPPRESS)
            files = [_WORD + word if word.startswith("-") else word for word in rest[end + 1 :]]
            rest = [*rest[:end], _END, *files]
        # Intermixed: settings may stand between options.
        chosen, (args, unknown) = verbs[verb], verbs[verb].parse_known_intermixed_args(rest)
    else:
        raise ConfigError(f"unknown verb {verb!r}{nearest(verb, _VERBS)} (there are: {', '.join(_VERBS)})")
    if unknown or verb.startswith("-"):
        option = (unknown or words)[0].partition("=")[0]
        chosen.error(f"unknown option {option!r}{nearest(option, chosen._option_string_actions)}")
    return args


def _parsers(*files: str) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser of the command line, and those of the verbs in these files."""
    parser = _Root(
        prog="factrl",
        description="Find what language models make up, and train them to be right.",
        epilog="factrl VERB --help tells more; start with: factrl demo",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"factrl {__version__}")
    verbs = parser.add_subparsers(parser_class=_Parser)
    for file in files:
        importlib.import_module(f".{file}", __name__).add_verbs(verbs)
    return parser, verbs.choices


def all_parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """As `_parsers`, of all verbs in the order of the help."""
    return _parsers(*dict.fromkeys(_VERBS.values()))
