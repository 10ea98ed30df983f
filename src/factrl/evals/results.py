"""The folder of an evaluation: `results.json`, `samples.jsonl` and `report.html`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from factrl.errors import ConfigError, DataError
from factrl.evals.numbers import Number
from factrl.evals.samples import Row, read_samples, write_samples
from factrl.text.escape import one_line

if TYPE_CHECKING:
    from rich.table import Table

    from factrl.evals.suite import Result

RESULTS, SAMPLES, PAGE = "results.json", "samples.jsonl", "report.html"


@dataclass(frozen=True)
class Output:
    """A finished evaluation, as it is on disk.

    Attributes:
        folder: where it is.
        about: what was evaluated and how: model, judge, seed, sampling, version.
        benchmarks: by name, what `Result.to_json` gives.
        samples: by benchmark, its graded answers.
    """

    folder: Path
    about: Mapping[str, Any]
    benchmarks: Mapping[str, Mapping[str, Any]]
    samples: Mapping[str, Sequence[Row]]

    def numbers(self, name: str) -> dict[str, Number]:
        """The numbers of one benchmark."""
        return {key: Number(**value) for key, value in self.benchmarks[name]["numbers"].items()}


def write_output(folder: Path, about: Mapping[str, Any], results: Sequence[Result]) -> Output:
    """Write everything but the page; two runs with the same outcome write the same bytes.

    Raises:
        ConfigError: the folder cannot be written.
    """
    document = {**about, "benchmarks": {one.benchmark.name: one.to_json() for one in results}}
    samples = {one.benchmark.name: one.samples for one in results}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / RESULTS).write_text(text + "\n", encoding="utf-8", errors="backslashreplace")
        write_samples(folder / SAMPLES, [sample for one in results for sample in one.samples])
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
    return Output(folder, about, document["benchmarks"], samples)


def read_output(folder: str | Path) -> Output:
    """An evaluation that `write_output` wrote.

    Raises:
        DataError: the folder holds none, or it cannot be read.
    """
    folder = Path(folder)
    path = folder / RESULTS
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        benchmarks = document.pop("benchmarks")
        for row in benchmarks.values():
            for number in row["numbers"].values():
                Number(**number)
    except OSError as error:
        raise DataError(
            f"{folder} holds no evaluation (no {RESULTS}); give a folder of factrl eval"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is not a result of factrl eval: {error}") from error
    samples: dict[str, list[Row]] = {name: [] for name in benchmarks}
    for sample in read_samples(folder / SAMPLES):
        samples.setdefault(sample.benchmark, []).append(sample)
    return Output(folder, document, benchmarks, samples)


def is_output(folder: str | Path) -> bool:
    """Whether a folder holds an evaluation."""
    return (Path(folder) / RESULTS).is_file()


def output_table(output: Output) -> Table:
    """For a terminal: every number of every benchmark with its interval."""
    from rich.table import Table
    from rich.text import Text

    table = Table("benchmark", "metric", "value", "95 % interval", "questions")
    for name, row in output.benchmarks.items():
        first = name
        for metric, number in output.numbers(name).items():
            value, limits = str(number).split(" ", 1)
            table.add_row(first, metric.replace("_", " "), value, limits, str(number.n))
            first = ""
        for causes in ("masked", "floored"):
            if row[causes]:
                told = ", ".join(f"{one_line(cause)} {count}" for cause, count in row[causes].items())
                # Causes are others' words: as Text they cannot carry console markup.
                table.add_row(first, causes, "", Text(told), str(sum(row[causes].values())))
                first = ""
        table.add_section()
    return table
