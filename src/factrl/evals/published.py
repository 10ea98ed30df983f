"""A paper's numbers beside one's own: `table.toml` of a paper's folder under `recipes/`.

    source = "TruthRL (arXiv 2509.25760), Table 1"
    [[row]]
    name = "ternary"                  # an evaluation in the folder `ternary` or `eval-ternary`
    model = "Llama-3.1-8B-Instruct"   # what it started from, without the organisation
    set = "CRAG"                      # a benchmark, or `average` of all that the row, or the table, has
    runs = 1                          # answers per question; without it the paper does not say
    start = "base"                    # the row that its change is taken against
    truthfulness = 37.2               # a metric of `factrl eval`; shares in percent

What a paper measured in another way is not beside what is measured here: model, set and runs are the same, as
far as the paper names them, or nothing is shown.  Digits that are lost are left out of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError
from factrl.evals.folder import Output, is_output, read_output
from factrl.runs.config import read_toml

AVERAGE = "average"
_KEYS = {"name": str, "model": str, "set": str, "runs": int, "start": str}
_OPTIONAL = ("runs", "start")
_ALIASES = {"incorrect": "hallucination", "correct": "accuracy", "abstained": "abstention"}


@dataclass(frozen=True)
class Row:
    """A published row on one set; `values` by metric, shares in percent; `runs` None where nobody knows."""

    name: str
    model: str
    set: str
    runs: int | None
    start: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class Published:
    """The rows of a paper's table."""

    source: str
    rows: Sequence[Row]

    def beside(self, output: Output, benchmark: str) -> Row | None:
        """The row with the same name, model, set and number of runs as an evaluation's benchmark."""
        name, model = row_name(output), first_model(output)
        runs = (output.about.get("sampling") or {}).get("num_samples", 1)
        named = [one for one in self.rows if (one.name, one.model) == (name, model)]
        of_row = [one for one in named if one.runs in (runs, None)]
        sets = {_plain(one.set) for one in of_row} - {AVERAGE}
        sets = sets or {_plain(one.set) for one in self.rows} - {AVERAGE}  # a row of averages alone
        if benchmark == AVERAGE and sets != {*map(_plain, output.benchmarks)}:
            return None
        return next((one for one in of_row if _plain(one.set) == _plain(benchmark)), None)

    def change(self, row: Row, metric: str) -> float | None:
        """A row's value less that of the row that it started from; None where either is not known."""
        named = [one for one in self.rows if (one.name, one.set, one.runs) == (row.start, row.set, row.runs)]
        start = next((one for one in named if one.model == row.model), named[0] if len(named) == 1 else None)
        if start is None or start is row or not {metric} <= {*row.values} & {*start.values}:
            return None
        return row.values[metric] - start.values[metric]


def read_published(path: str | Path) -> Published:
    """The table in a file.

    Raises:
        ConfigError: the file is not there, or a row lacks a key or has one that is no number.
    """
    table = read_toml(Path(path))
    rows = [_row(one, f"{path}, row {number}") for number, one in enumerate(table.get("row", []), 1)]
    if not rows:
        raise ConfigError(f"{path} has no [[row]]")
    return Published(str(table.get("source", path)), rows)


def _row(cells: Mapping[str, Any], where: str) -> Row:
    for key, kind in _KEYS.items():
        missing = key in _OPTIONAL and key not in cells
        if not (missing or isinstance(cells.get(key), kind)):
            raise ConfigError(
                f"{where}: {key} = {cells.get(key)!r} must be {'a number' if kind is int else 'text'}"
            )
    values = {key: value for key, value in cells.items() if key not in _KEYS}
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ConfigError(f"{where}: {key} = {value!r} must be a number; leave out what is not known")
    named = {_ALIASES.get(key, key): float(value) for key, value in values.items()}
    known = {key: cells.get(key, "") for key in ("name", "set", "start")}
    return Row(**known, model=_bare(cells["model"]), runs=cells.get("runs"), values=named)


def row_name(output: Output) -> str:
    """What an evaluation's row is called: its folder, without `eval-`."""
    return output.folder.resolve().name.removeprefix("eval-")


def first_model(output: Output) -> str:
    """The model that an evaluated one was made from, over the runs that made it, without its organisation."""
    completions = output.about.get("completions")
    if completions and is_output(Path(completions).parent):
        return first_model(read_output(Path(completions).parent))
    name = str(output.about.get("model") or "")
    for _ in range(100):  # a run that starts from itself ends too
        run = Path(name).parent / "config.toml"
        if not name or not run.is_file():
            break
        name = str(read_toml(run).get("model", {}).get("name", ""))
    return _bare(name)


def _bare(model: str) -> str:
    """A model's name without its organisation, folder or server."""
    return re.split(r"[/#]", model.rstrip("/"))[-1]


def _plain(name: str) -> str:
    return re.sub(r"\W|_", "", name).casefold()
