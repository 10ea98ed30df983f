"""Benchmarks from end to end: questions, answers, grades, numbers, files; every step can go on.

In the output folder `answers/` and `grades/` hold what exists so far, as journals: a second start with the
same settings repeats nothing, and one with other settings is refused.  `results.json`, `samples.jsonl` and
`report.html` are there when all is done.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from factrl import __version__
from factrl.errors import ConfigError, DataError
from factrl.evals.asking import Texts, ask, weigh
from factrl.evals.catalogue import Benchmark
from factrl.evals.loading import Questions, load_questions
from factrl.evals.longform import ClaimChecker, check_texts, claim_bounds, claim_numbers
from factrl.evals.metrics import TRUTHRL, Weights
from factrl.evals.numbers import Bin, Number, Numbers, confidence_bins, confidence_numbers, numbers_of
from factrl.evals.outcomes import Scorer, Tools, grade_likelihoods, grade_texts
from factrl.evals.prompts import LETTER, compose
from factrl.evals.samples import Row, read_samples, write_samples
from factrl.llm.writers import Writer, digest_of
from factrl.runs.journal import Journal
from factrl.runs.progress import Progress
from factrl.runs.settings import AskSettings
from factrl.text.escape import one_line
from factrl.types import Example

if TYPE_CHECKING:
    from rich.table import Table


RESULTS, SAMPLES, PAGE = "results.json", "samples.jsonl", "report.html"
STORED = "stored answers"  # in place of a model's identity
CONFIDENCE_TOKENS = 16  # more of them, when an answer is followed by a confidence


class Model(Protocol):
    """What answers."""

    def writer(self, settings: AskSettings) -> Writer:
        """The model, asked as the settings say."""
        ...

    def scorer(self, settings: AskSettings) -> Scorer | None:
        """The same as a scorer of continuations; None when it gives no likelihoods."""
        ...


@dataclass(frozen=True)
class How:
    """What all benchmarks of an evaluation have in common.

    Attributes:
        settings: of the model and of what grades, without a source of questions.
        own_prompt: what is answered in words is asked with the template in `settings`, not the benchmark's.
        own_length: the length limit is that in `settings`.
        limit: questions of each benchmark; all by default.
        evidence: show the documents that come with a question.
        confidence: ask how sure the model is.
    """

    settings: AskSettings
    own_prompt: bool = False
    own_length: bool = False
    limit: int | None = None
    evidence: bool = False
    confidence: bool = False
    weights: Weights = TRUTHRL


@dataclass(frozen=True)
class Result:
    """One benchmark, evaluated.

    Attributes:
        source: where the questions are from.
        model, judge: identities; `judge` says what graded.
        prompt: the template.
        asked_for: `text`, `letter` or `likelihood`.
        masked, floored: answers by cause.
        bounds: of long answers, between which values the numbers lie whatever the missing verdicts are.
    """

    benchmark: Benchmark
    source: str
    model: str
    judge: str
    prompt: str
    asked_for: str
    samples: Sequence[Row]
    numbers: Numbers
    bins: Sequence[Bin] = ()
    bounds: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)

    @property
    def masked(self) -> dict[str, int]:
        """Cause -> answers that could not be graded."""
        return dict(Counter(one.cause for one in self.samples if one.cause).most_common())

    @property
    def floored(self) -> dict[str, int]:
        """Cause -> answers that were wrong because of their form."""
        return dict(Counter(one.floored for one in self.samples if one.floored).most_common())

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; the answers are in a file of their own."""
        return {
            "kind": self.benchmark.kind,
            "about": self.benchmark.about,
            "licence": self.benchmark.licence,
            "source": self.source,
            "model": self.model,
            "judge": self.judge,
            "asked_for": self.asked_for,
            "prompt": self.prompt,
            "prompt_hash": digest_of(self.prompt),
            "questions": len({one.example.id for one in self.samples}),
            "answers": len(self.samples),
            "masked": self.masked,
            "floored": self.floored,
            "numbers": {name: asdict(number) for name, number in self.numbers.items()},
            "bounds": {name: list(pair) for name, pair in self.bounds.items()},
            "confidence_bins": [asdict(one) for one in self.bins],
        }


def evaluate(
    benchmark: Benchmark,
    how: How,
    folder: Path,
    tools: Tools,
    judge: str,
    *,
    model: Model | None = None,
    stored: Callable[[Benchmark, Sequence[Example]], Texts] | None = None,
    checker: ClaimChecker | None = None,
) -> Result:
    """One benchmark: its questions, the answers, their grades, the numbers.

    Args:
        folder: where journals are kept.
        judge: identity of what grades short answers.
        model: what answers now.
        stored: finds answers that exist already; instead of `model`.
        checker: counts the supported claims of long answers.

    Raises:
        SetupError: what the user must change.
    """
    if (model is None) == (stored is None):
        raise ConfigError("an evaluation needs either a model or stored answers")
    if benchmark.kind == "long" and checker is None:
        raise ConfigError(f"{benchmark.name} needs a verifier for its claims")
    questions = load_questions(benchmark, limit=how.limit, evidence=how.evidence)
    scorer = None
    if benchmark.kind == "choice" and model is not None:
        scorer = model.scorer(_settings(benchmark, how, questions, weighs=True))
    settings = _settings(benchmark, how, questions, weighs=scorer is not None)
    graded_by = {"short": judge, "reasoning": "math-verify", "long": checker.identity if checker else ""}
    if scorer is not None:
        writer, graded, asked_for = scorer.identity, "likelihood", "likelihood"
        samples = _weighed(benchmark, questions, scorer, folder)
    else:
        texts, writer = _texts(benchmark, questions, settings, folder, model, stored)
        graded = graded_by.get(benchmark.kind, "letter")
        asked_for = "letter" if benchmark.kind in ("choice", "discrimination") else "text"
        samples = _graded(benchmark, questions, texts, folder, tools, graded, writer, checker)
    numbers = numbers_of(benchmark.kind, samples, how.weights)
    bounds = {}
    if benchmark.kind == "long":
        numbers |= claim_numbers(samples, benchmark.recall_at)
        bounds = claim_bounds(samples, benchmark.recall_at)
    bins: Sequence[Bin] = ()
    if how.confidence:
        numbers |= confidence_numbers(samples)
        bins = confidence_bins(samples)
    about = (questions.source, writer, graded, settings.data.prompt, asked_for)
    return Result(benchmark, *about, samples, numbers, bins, bounds)


def _settings(benchmark: Benchmark, how: How, questions: Questions, *, weighs: bool) -> AskSettings:
    """How this benchmark is asked: its own template unless the user gave one, with everything around it."""
    letters = benchmark.kind == "choice" and not weighs
    prompt, tokens = (LETTER, 12) if letters else (benchmark.prompt, benchmark.max_tokens)
    confidence = how.confidence and benchmark.kind in ("short", "reasoning")
    data, train = how.settings.data, how.settings.train
    if how.own_prompt and benchmark.kind not in ("choice", "discrimination"):
        prompt = data.prompt
    whole = compose(prompt, evidence=how.evidence, confidence=confidence, chat=data.chat)
    length = train.max_completion_length if how.own_length else tokens + CONFIDENCE_TOKENS * confidence
    changed = {
        "data": data.model_copy(update={"train": questions.source, "prompt": whole}),
        "train": train.model_copy(update={"max_completion_length": length}),
    }
    return how.settings.model_copy(update=changed)


def _journal(folder: Path, benchmark: Benchmark, questions: Questions, about: Mapping[str, Any]) -> Journal:
    """What exists of a benchmark; `about` decides it beside the questions."""
    head = {"benchmark": benchmark.name, "source": questions.source, **about}
    return Journal(folder / f"{benchmark.name}.jsonl", head)


def _weighed(benchmark: Benchmark, questions: Questions, scorer: Scorer, folder: Path) -> list[Row]:
    about = {"model": scorer.identity, "asked_for": "likelihood"}
    with (
        _journal(folder / "answers", benchmark, questions, about) as journal,
        Progress(f"{benchmark.name}: weigh", len(questions.examples)) as progress,
    ):
        sums = weigh(scorer, questions.examples, journal, progress.advance)
    return grade_likelihoods(benchmark, questions.examples, sums)


def _texts(
    benchmark: Benchmark,
    questions: Questions,
    settings: AskSettings,
    folder: Path,
    model: Model | None,
    stored: Callable[[Benchmark, Sequence[Example]], Texts] | None,
) -> tuple[Texts, str]:
    """What was written, and by whom."""
    if stored is not None or model is None:
        return stored(benchmark, questions.examples) if stored else {}, STORED
    writer = model.writer(settings)
    sampling = settings.sampling
    how = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": settings.run.seed}
    about = {"model": writer.identity, **how}
    with (
        _journal(folder / "answers", benchmark, questions, about) as journal,
        Progress(f"{benchmark.name}: answer", len(questions.examples)) as progress,
    ):
        asked = (writer, questions.examples, journal)
        texts = ask(*asked, samples=sampling.num_samples, on_done=progress.advance, **how)
    return texts, writer.identity


def _graded(
    benchmark: Benchmark,
    questions: Questions,
    texts: Texts,
    folder: Path,
    tools: Tools,
    judge: str,
    model: str,
    checker: ClaimChecker | None,
) -> list[Row]:
    about: dict[str, Any] = {
        "model": model,
        "judge": judge,
        "confidence": tools.confidence,
        "chat": tools.chat,
        "factrl": __version__,
    }
    if model == STORED:  # grades belong to the texts themselves, whoever wrote them
        about["answers"] = digest_of(sorted((*key, str(text)) for key, text in texts.items()))
    with (
        _journal(folder / "grades", benchmark, questions, about) as journal,
        Progress(f"{benchmark.name}: grade", len(texts)) as progress,
    ):
        if checker is not None and benchmark.kind == "long":
            checked = (benchmark, questions.examples, texts, checker, journal, progress.advance)
            return check_texts(*checked, chat=tools.chat)
        return grade_texts(benchmark, questions.examples, texts, tools, journal, progress.advance)


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
