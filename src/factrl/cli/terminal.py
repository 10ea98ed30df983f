"""Where the command line writes: results to stdout, everything else to stderr.

What the user's disk does to a command is one line; a bug of ours keeps its traceback.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import factrl
from factrl.errors import FactrlError, RewardBug
from factrl.text.escape import one_line, visible

if TYPE_CHECKING:
    from rich.table import Table

_LONGEST = 2_000  # characters of a line that says what went wrong
PIPE_WIDTH = 120  # columns of a table that no terminal shows
_OF_THE_PROGRAM = {errno.EINVAL, errno.EBADF}  # what no disk does


def say(text: str) -> None:
    """One line, or a block of lines, on stdout; of several processes the first one says it."""
    if _is_first():
        sys.stdout.write(f"{text}\n")


def tell(text: str) -> None:
    """The same on stderr, for a person who watches; text of others in it cannot steer the terminal."""
    if _is_first():
        sys.stderr.write(f"{visible(text)}\n")


def _is_first() -> bool:
    """Whether no other process of a launcher (torchrun, accelerate) speaks for this one."""
    return os.environ.get("RANK", "0") == "0" or "WORLD_SIZE" not in os.environ


def users_frames(error: RewardBug) -> str:
    """The traceback of a reward that failed, from where it leaves our code; "" where it never does."""
    cause = error.__cause__
    if cause is None:
        return ""
    ours, frames = Path(factrl.__file__).parent, traceback.extract_tb(cause.__traceback__)
    while frames and Path(frames[0].filename).is_relative_to(ours):
        del frames[0]
    return "".join([*frames.format(), *traceback.format_exception_only(cause)]).rstrip() if frames else ""


def show_table(table: Table) -> None:
    """A table on stdout, coloured and fitted where that is a terminal."""
    from rich.console import Console

    fixed = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    Console(file=sys.stdout, width=fixed, markup=False, highlight=False, emoji=False).print(table)


def show_rows(
    columns: Sequence[str], rows: Iterable[Sequence[str] | None], *, title: str = "", lines: bool = True
) -> None:
    """A table of words on stdout, None for a line between rows.

    Args:
        lines: draw lines; else the table stands after an empty line.
    """
    from rich.table import Table
    from rich.text import Text

    # Text of others: as a rich Text it cannot carry console markup.
    table = Table(title=Text(one_line(title)) if title else None, pad_edge=lines)
    if not lines:
        table.box = None
        say("")
    for number, column in enumerate(columns):
        table.add_column(column, overflow="ellipsis" if lines else "fold", no_wrap=not lines and not number)
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*(Text(one_line(cell)) for cell in row))
    show_table(table)


def tally(causes: Mapping[str, int]) -> str:
    """How many of each, in words.

    >>> tally({"timeout": 2, "http_400": 1})
    '2 timeout, 1 http_400'
    """
    return ", ".join(f"{count} {cause}" for cause, count in causes.items())


def complain(*problems: str) -> None:
    """What went wrong, on stderr, as `factrl: ...` with further problems beneath, a line each.

    Of a line that a value makes very long the middle is left out.
    """
    lines = [
        line if len(line) <= _LONGEST else f"{line[: _LONGEST // 2]} … {line[-_LONGEST // 2 :]}"
        for line in map(one_line, problems)
    ]
    sys.stderr.write(visible("factrl: " + "\n        ".join(lines)) + "\n")


def open_streams() -> None:
    """Give a closed stream somewhere to go, so that no file gets its number; escape what a terminal lacks."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            place = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, open(place, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_stdout() -> None:
    """After the reader of a pipe has gone: let the interpreter's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def mishap(error: BaseException) -> str | None:
    """The line for an error that the user's disk made; None for any other error."""
    if isinstance(error, FactrlError) or not isinstance(error, Exception):
        return None
    from factrl.runs.disk import is_full

    cause: BaseException | None = error
    while cause is not None:  # the error, and what it was raised from
        if isinstance(cause, OSError) and not isinstance(cause, ConnectionError) and cause.strerror:
            if cause.errno not in _OF_THE_PROGRAM:
                name = cause.filename2 or cause.filename
                return one_line(f"{name}: {cause.strerror}" if name is not None else cause.strerror)
        elif is_full(cause):
            return one_line(f"a file could not be written whole: {cause}")
        cause = cause.__cause__
    return None
