"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from factrl.text.escape import one_line, visible

if TYPE_CHECKING:
    from rich.table import Table

PIPE_WIDTH = 120  # columns of a table that no terminal shows


def say(text: str) -> None:
    """One line, or a block of lines, on stdout."""
    sys.stdout.write(f"{text}\n")


def tell(text: str) -> None:
    """The same on stderr, for a person who watches; others' text in it cannot steer the terminal."""
    sys.stderr.write(f"{visible(text)}\n")


def show_table(table: Table) -> None:
    """A table on stdout, coloured and fitted where that is a terminal."""
    from rich.console import Console

    fixed = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    Console(file=sys.stdout, width=fixed, markup=False, highlight=False, emoji=False).print(table)


def complain(message: str) -> None:
    """What went wrong, on stderr, as `factrl: ...` with further lines beneath."""
    lines = [one_line(line) for line in message.split("\n")]
    tell("factrl: " + "\n        ".join(lines))


def never_fail_on_letters() -> None:
    """Write what the terminal's encoding lacks as escapes instead of ending with an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def drop_stdout() -> None:
    """After the reader of a pipe has gone: let the interpreter's last flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
