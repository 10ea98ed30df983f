"""A finished evaluation as it is on disk: `results.json` and `samples.jsonl`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError
from factrl.evals.metrics import Number
from factrl.evals.numbers import known
from factrl.evals.samples import EvalSample, by_question
from factrl.runs.disk import FileLock, check_free, no_empty_folder, whole_file, write_whole

COLUMNS = ("benchmark", "metric", "value", "95 % interval", "questions")
RESULTS, SAMPLES, PAGE, QUESTIONS = "results.json", "samples.jsonl", "report.html", "questions.jsonl"
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # what a broken file raises


@dataclass(frozen=True)
class Output:
    """A finished evaluation.

    Attributes:
        about: what was evaluated and how: model, judge, seed, sampling, version.
        benchmarks: by name, what `results.json` says of it, see `factrl.evals.ask.evaluate`.
        samples: by benchmark, its graded answers.
    """

    folder: Path
    about: Mapping[str, Any]
    benchmarks: Mapping[str, Mapping[str, Any]]
    samples: Mapping[str, Sequence[EvalSample]]

    def numbers(self, name: str) -> dict[str, Number]:
        return {key: Number(**value) for key, value in self.benchmarks[name]["numbers"].items()}

    def _repr_html_(self) -> str:
        """In a notebook: what `factrl eval` prints."""
        from factrl.text.html import table

        rows = (row for lines in output_lines(self) for row in lines)
        return table(COLUMNS, rows, caption=str(self.about.get("model") or ""))

    def document(self) -> str:
        """`results.json`."""
        whole = {**self.about, "benchmarks": self.benchmarks}
        return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"

    def write(self) -> None:
        """Write it to its folder, which `results_folder` holds: the same bytes for the same outcome.

        Half a character, which UTF-8 cannot say, becomes JSON's escape of it.

        Raises:
            ConfigError: the folder cannot be written.
        """
        rows = (sample.to_json() for samples in self.samples.values() for sample in samples)
        lines = "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack:  # both are on the disk before either has its name
                for name, text in ((SAMPLES, lines), (RESULTS, self.document())):
                    unfinished = stack.enter_context(whole_file(self.folder / name))
                    unfinished.write_bytes(text.encode(errors="backslashreplace"))
        except OSError as error:
            raise ConfigError(f"{self.folder} cannot be written: {error.strerror}") from error


def output_lines(output: Output) -> Iterator[list[tuple[str, ...]]]:
    """The rows of each benchmark under `COLUMNS`."""
    for name, row in output.benchmarks.items():
        lines: list[tuple[str, ...]] = []
        for metric, number in output.numbers(name).items():
            lines.append(("", metric.replace("_", " "), *str(number).split(" ", 1), str(number.n)))
        for metric, why in row.get("absent", {}).items():
            lines.append(("", metric.replace("_", " "), "–", why, ""))
        for causes in ("masked", "floored"):
            if row[causes]:
                counts = ", ".join(f"{cause} {count}" for cause, count in row[causes].items())
                lines.append(("", causes, "", counts, str(sum(row[causes].values()))))
        yield [(name if not index else first, *rest) for index, (first, *rest) in enumerate(lines)]


def write_questions(
    folder: Path,
    rows: Mapping[str, Mapping[str, Any]],
    samples: Sequence[EvalSample],
    about: Mapping[str, Any],
) -> Path:
    """Write `questions.jsonl`, which `factrl train` and `tune` read: what a model knows of its questions.

    Added to each row: `id`; `ook` and `pass_rate` of its samples, see `factrl.evals.numbers.known`; and
    `samples`, tables with `text`, `label`, `answer`, `cause`, `truncated` and `tokens`.  How they were asked
    is beside it, in `questions.about.json`.

    Args:
        rows: id -> the question's row as its file has it.

    Raises:
        ConfigError: it cannot be written.
    """
    lines = []
    for name, group in by_question(samples).items():
        ook, pass_rate = known(group)
        told = [_sample(one) for one in group]
        whole = {**rows.get(name, {}), "id": name, "ook": ook, "pass_rate": pass_rate, "samples": told}
        lines.append(json.dumps(whole, default=str) + "\n")
    path = folder / QUESTIONS
    try:
        write_whole(path, "".join(lines).encode())
        write_whole(path.with_suffix(".about.json"), json.dumps({"about": about}, indent=2).encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _sample(one: EvalSample) -> dict[str, Any]:
    text = one.completion
    marks = {"truncated": getattr(text, "truncated", False), "tokens": getattr(text, "tokens", None)}
    told = None if text is None else str(text)
    return {"text": told, "label": one.label, "answer": one.answer, "cause": one.cause, **marks}


@contextmanager
def results_folder(folder: Path, about: Mapping[str, Any], sources: Mapping[str, str]) -> Iterator[None]:
    """Hold a folder for the results of one evaluation; other results that are there are never replaced.

    Args:
        about: what decides the numbers beside the benchmarks, as `Output.about` has it.
        sources: by benchmark, where its questions are from.

    Raises:
        ConfigError: the folder holds something else, another process has it, or it cannot be written.
    """
    with no_empty_folder(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--output {folder} cannot be written: {error.strerror}") from error
        lock = FileLock(folder / ".lock", f"--output {folder}")
        try:
            _check_same(folder, about, sources)
            yield
        finally:
            lock.release()


def _check_same(folder: Path, about: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Refuse results of anything but this very evaluation."""
    path = folder / RESULTS
    if not path.exists():
        for name in (SAMPLES, PAGE, QUESTIONS):
            check_free(folder / name)
        return
    try:
        document = json.loads(path.read_bytes())
        earlier = {name: row["source"] for name, row in document["benchmarks"].items()}
    except (OSError, *_DAMAGED) as error:
        raise ConfigError(f"{path} is no result of factrl eval; name another --output") from error
    now = json.loads(json.dumps({**about, "benchmarks": sources}))  # as it is read back
    for name, value in now.items():
        was = earlier if name == "benchmarks" else document.get(name)
        if name != "factrl" and was != value:
            values = [json.dumps(one)[:80] for one in (was, value)]
            raise ConfigError(
                f"--output {folder} holds the results of another evaluation: its {name} is {values[0]}, not "
                f"{values[1]}; name another folder, or remove {path} to replace them (answers that a model "
                "gave are kept)"
            )


def read_output(folder: str | Path) -> Output:
    """An evaluation that was written.

    Raises:
        DataError: the folder holds none, or it cannot be read.
    """
    path, answers = Path(folder) / RESULTS, Path(folder) / SAMPLES
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
    except _DAMAGED as error:
        raise DataError(f"{path} is not a result of factrl eval: {error}") from error
    try:
        lines = answers.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{answers} cannot be read: {error}") from error
    samples: dict[str, list[EvalSample]] = {name: [] for name in benchmarks}
    for number, line in enumerate(lines, start=1):
        try:
            sample = EvalSample.from_json(json.loads(line)) if line else None
        except _DAMAGED as error:
            raise DataError(f"{answers}, line {number} is not a graded answer: {error}") from error
        if sample is not None:
            samples.setdefault(sample.benchmark, []).append(sample)
    for name, row in benchmarks.items():
        there = len(samples[name])
        counted = row.get("answers", there)
        if there < counted:
            raise DataError(
                f"{answers} holds {there} answers of {name}, and {RESULTS} counts {counted}; copy the whole "
                "folder again"
            )
    return Output(Path(folder), document, benchmarks, samples)


def read_outputs(folders: Sequence[str | Path]) -> list[Output]:
    """Evaluations to compare.  Stored answers are named after their file, so where each is of one benchmark
    with a name of its own, all get the first one's.

    Raises:
        DataError: as `read_output`.
    """
    outputs = [read_output(folder) for folder in folders]
    if any(len(output.benchmarks) != 1 for output in outputs):
        return outputs
    names = [next(iter(output.benchmarks)) for output in outputs]
    first = names[0]
    return [
        replace(one, benchmarks={first: one.benchmarks[name]}, samples={first: one.samples.get(name, ())})
        for one, name in zip(outputs, names, strict=True)
    ]


def is_output(folder: str | Path) -> bool:
    """Whether a folder holds an evaluation."""
    return (Path(folder) / RESULTS).is_file()
