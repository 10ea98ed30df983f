"""One graded answer, a line of `samples.jsonl`; and a finished evaluation as it is on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError
from factrl.evals.catalogue import in_json, is_hopeless, options_of
from factrl.evals.metrics import Number
from factrl.runs.disk import FileLock, check_free, no_empty_folder, whole_file
from factrl.types import Completion, Example, Grade, Label

KINDS = ("question_type", "threshold")
"""Columns of a question by which tables part answers; they are kept with them."""

RESULTS, SAMPLES, PAGE = "results.json", "samples.jsonl", "report.html"
_GRADE = ("label", "answer", "how", "floored", "why")
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # what a broken file raises


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a long answer by verdict, and text and verdict, or `skipped`, of each in `claims`.

    Attributes:
        skipped: claims that do not count, such as repeats.
        abstained: the answer declines.
        floored: why the answer was not read, such as `oversize`; it is 0 everywhere.
    """

    supported: int = 0
    refuted: int = 0
    unknown: int = 0
    unjudged: int = 0
    skipped: int = 0
    abstained: bool = False
    floored: str | None = None
    claims: tuple[tuple[str, str], ...] = ()

    @property
    def total(self) -> int:
        """Claims that count, judged or not."""
        return self.supported + self.refuted + self.unknown + self.unjudged


@dataclass(frozen=True, slots=True)
class EvalSample:
    """One question, what the model wrote and what became of it.

    Attributes:
        completion: None where the model was not asked to write, or nothing came.
        grade: None when masked, and of a long answer, which is neither right nor wrong.
        cause, detail: why it could not be graded; None where it could.
        number: which of the question's samples this is, from 0.
        values: other numbers of this answer, such as `mc2`.
        claims: what was found of a long answer; None where its claims are not known.
    """

    example: Example
    completion: str | None
    grade: Grade | None
    cause: str | None = None
    detail: str = ""
    benchmark: str = ""
    number: int = 0
    values: Mapping[str, float] = field(default_factory=dict, hash=False)
    claims: Claims | None = None

    @property
    def label(self) -> Label | None:
        return self.grade.label if self.grade else None

    @property
    def floored(self) -> str | None:
        """Why the model's own text could not be read, else None."""
        return self.claims.floored if self.claims else self.grade.floored if self.grade else None

    @property
    def chance(self) -> float | None:
        """How likely a guess is right, where there are options to choose from."""
        if options := options_of(self.example):
            return sum(options[1]) / len(options[1])
        chance = in_json(self.example.meta.get("chance"))
        return chance if type(chance) in (int, float) and 0 <= chance <= 1 else None

    @property
    def answer(self) -> str:
        """What was graded, in a few words."""
        if self.claims and self.cause is None:
            return f"{self.claims.supported} of {self.claims.total} claims supported"
        return self.grade.answer if self.grade else ""

    def to_json(self) -> dict[str, Any]:
        """One flat line of `samples.jsonl`."""
        example, grade, text = self.example, self.grade, self.completion
        marks = {
            "answerable": False if is_hopeless(example) else None,
            "false_premise": example.false_premise,
            "chance": self.chance,
            **{column: example.meta.get(column) for column in KINDS},
            "prefill": getattr(text, "prefill", None) or None,
            "claims": self.claims and asdict(self.claims),
        }
        return {
            "benchmark": self.benchmark,
            "id": example.id,
            "number": self.number,
            "question": example.question,
            "answers": list(example.answers),
            "completion": None if text is None else str(text),
            "truncated": getattr(text, "truncated", False),
            "tokens": getattr(text, "tokens", None),
            "label": self.label,
            "answer": self.answer,
            "how": "claims" if self.claims else grade.how if grade else "",
            "floored": self.floored,
            "why": grade.why if grade else "",
            "cause": self.cause,
            "detail": self.detail,
            "values": dict(self.values),
            "marks": {name: mark for name, mark in marks.items() if mark is not None},
        }

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> EvalSample:
        """What `to_json` gave."""
        marks, text, claims = line["marks"], line["completion"], None
        if "claims" in marks:
            pairs = tuple((claim, verdict) for claim, verdict in marks["claims"]["claims"])
            claims = Claims(**{**marks["claims"], "claims": pairs})
        meta = {name: marks[name] for name in ("answerable", "chance", *KINDS) if name in marks}
        premise = marks.get("false_premise")
        options = {name: line[name] for name in ("truncated", "tokens")}
        return cls(
            Example(line["question"], tuple(line["answers"]), line["id"], false_premise=premise, meta=meta),
            None if text is None else Completion(text, prefill=marks.get("prefill", ""), **options),
            Grade(**{name: line[name] for name in _GRADE}) if line["label"] else None,
            **{name: line[name] for name in ("cause", "detail", "benchmark", "number", "values")},
            claims=claims,
        )


def by_question(samples: Iterable[EvalSample]) -> dict[str, list[EvalSample]]:
    """The samples of every question, in the order of the questions and of their numbers."""
    groups: dict[str, list[EvalSample]] = {}
    for sample in samples:
        groups.setdefault(sample.example.id, []).append(sample)
    return {name: sorted(group, key=lambda one: one.number) for name, group in groups.items()}


# -- On disk -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """A finished evaluation.

    Attributes:
        about: what was evaluated and how: model, judge, seed, sampling, version.
        benchmarks: by name, what `results.json` says of it, see `factrl.evals.suite.evaluate`.
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
        from factrl.evals.report import COLUMNS, output_lines
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
        for name in (SAMPLES, PAGE):
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
