"""Benchmarks from end to end: questions, answers, grades, numbers, files.

A model's answers are in `answers/` of the output folder as soon as they exist, as journals: a second start
with the same settings asks nothing again, and one with other settings is refused.  What a judge said is in
the store of replies.  `results.json`, `samples.jsonl` and `report.html` are there when all is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError, Unscored
from factrl.evals.catalogue import Benchmark, Questions, completions_column, completions_of, template
from factrl.evals.longform import ClaimChecker, check_texts, claim_bounds, claim_numbers
from factrl.evals.numbers import Bin, Numbers, confidence_bins, confidence_numbers, numbers_by, numbers_of
from factrl.evals.samples import Output, Row
from factrl.evals.shortqa import NOTHING_STORED, Texts, Tools, by_likelihood, grade_texts
from factrl.llm.writers import Writer, digest_of, open_writer
from factrl.runs.disk import Journal
from factrl.runs.progress import Progress
from factrl.runs.rows import read_rows
from factrl.runs.settings import AskSettings
from factrl.types import Completion, Example

STORED = "stored answers"  # in place of a model's identity
CONFIDENCE_TOKENS = 16  # more of them, when an answer is followed by a confidence
BLOCK = 32  # questions whose answers are kept together

_DOCUMENTS = "Documents that may help:\n\n{evidence}\n\n"
_CONFIDENCE = (
    "\n\nThen write, on a line of its own, how sure you are that your answer is right, from 0 to 100, "
    "as: Confidence: 75"
)
_OF = "question"  # where a row of a journal keeps which question it is about


@dataclass(frozen=True)
class How:
    """What all benchmarks of an evaluation have in common.

    Attributes:
        settings: of the model and of what grades, without a source of questions.
        own_prompt: what is answered in words is asked with the template in `settings`, not the benchmark's.
        own_length: the length limit is that in `settings`; of a file of the user's own both always are.
        limit: questions of each benchmark; all by default.
        evidence: show the documents that come with a question.
        confidence: ask how sure the model is.
        by: a column, whose values' rows have numbers of their own too.
    """

    settings: AskSettings
    own_prompt: bool = False
    own_length: bool = False
    limit: int | None = None
    evidence: bool = False
    confidence: bool = False
    by: str = ""


@dataclass(frozen=True)
class Result:
    """One benchmark, evaluated.

    Attributes:
        source: where the questions are from.
        model, judge: identities; `judge` says what graded.
        prompt: the template.
        asked_for: `text`, `letter` or `likelihood`.
        bounds: of long answers, between which values the numbers lie whatever the missing verdicts are.
        by: value of a column -> the numbers of its rows, those on a false premise included.
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
    by: Mapping[str, Numbers] = field(default_factory=dict)

    @property
    def masked(self) -> Counter[str]:
        """Cause -> answers that could not be graded."""
        return Counter(one.cause for one in self.samples if one.cause)

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json.dumps`; the answers are in a file of their own."""
        floored = Counter(one.floored for one in self.samples if one.floored)
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
            "masked": dict(self.masked.most_common()),
            "floored": dict(floored.most_common()),
            "numbers": _plain(self.numbers),
            "by": {value: _plain(numbers) for value, numbers in self.by.items()},
            "bounds": {name: list(pair) for name, pair in self.bounds.items()},
            "confidence_bins": [asdict(one) for one in self.bins],
        }


def _plain(numbers: Numbers) -> dict[str, Any]:
    return {name: asdict(number) for name, number in numbers.items()}


def output_of(about: Mapping[str, Any], results: Sequence[Result], folder: Path | None = None) -> Output:
    """Results as an output, written where there is a folder.

    Raises:
        ConfigError: the folder cannot be written.
    """
    benchmarks = {one.benchmark.name: one.to_json() for one in results}
    samples = {one.benchmark.name: one.samples for one in results}
    output = Output(folder or Path(), about, benchmarks, samples)
    if folder is not None:
        output.write()
    return output


def evaluate(
    benchmark: Benchmark,
    questions: Questions,
    how: How,
    folder: Path | None,
    tools: Tools,
    judge: str,
    *,
    model: Any = None,
    texts: Texts | None = None,
    checker: ClaimChecker | None = None,
) -> Result:
    """One benchmark: the answers to its questions, their grades, the numbers.

    Args:
        folder: where a model's answers are kept.
        judge: identity of what grades short answers.
        model: what answers now, such as a `NamedModel`.
        texts: answers that exist already; instead of `model`.
        checker: counts the supported claims of long answers.

    Raises:
        SetupError: what the user must change.
    """
    examples, writer, long = questions.examples, STORED, benchmark.kind == "long"
    if long and checker is None:
        raise ConfigError(f"{benchmark.name} needs a verifier for its claims")
    by_kind = {"short": judge, "reasoning": "math-verify", "long": checker.identity if checker else ""}
    graded_by = by_kind.get(benchmark.kind, "letter")
    asked_for = "letter" if benchmark.kind in ("choice", "discrimination") else "text"
    scorer = None
    if benchmark.kind == "choice" and model is not None:
        scorer = model.scorer(_settings(benchmark, how, questions, weighs=True))
    settings = _settings(benchmark, how, questions, weighs=scorer is not None)
    if scorer is not None:
        writer, graded_by, asked_for = scorer.identity, "likelihood", "likelihood"
        with _asking(benchmark, questions, folder, model=writer, asked_for=asked_for) as (journal, on_done):
            samples = weigh(benchmark, scorer, examples, journal, on_done)
    else:
        if model is not None:
            asked: Writer = model.writer(settings)
            sampling = settings.sampling
            told = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": settings.run.seed}
            writer = asked.identity
            with _asking(benchmark, questions, folder, model=writer, **told) as (journal, on_done):
                texts = ask(asked, examples, journal, sampling.num_samples, on_done, **told)
        texts = texts or {}
        with Progress(f"{benchmark.name}: grade", len(texts)) as progress:
            if checker is not None and long:
                samples = check_texts(benchmark, examples, texts, checker, progress.advance, chat=tools.chat)
            else:
                samples = grade_texts(benchmark, examples, texts, tools, progress.advance)
    numbers, bounds, bins = numbers_of(benchmark.kind, samples), {}, list[Bin]()
    if long:
        numbers |= claim_numbers(samples, benchmark.recall_at)
        bounds = claim_bounds(samples, benchmark.recall_at)
    if how.confidence:
        numbers |= confidence_numbers(samples)
        bins = confidence_bins(samples)
    about = (questions.source, writer, graded_by, settings.data.prompt, asked_for)
    return Result(benchmark, *about, samples, numbers, bins, bounds, numbers_by(samples, how.by))


def _settings(benchmark: Benchmark, how: How, questions: Questions, *, weighs: bool) -> AskSettings:
    """How this benchmark is asked: its own template unless the user gave one, with everything around it."""
    prompt, tokens = benchmark.prompt, benchmark.max_tokens
    if benchmark.kind == "choice" and not weighs:
        prompt, tokens = template("letter"), 12
    data, train, own = how.settings.data, how.settings.train, benchmark.path != ""
    if (how.own_prompt or own) and benchmark.kind not in ("choice", "discrimination"):
        prompt = data.prompt
    if how.confidence and benchmark.kind in ("short", "reasoning"):
        prompt, tokens = prompt + _CONFIDENCE, tokens + CONFIDENCE_TOKENS
    if how.own_length or own:
        tokens = train.max_completion_length
    # A model that only continues text is given a cue for the answer.
    whole = (_DOCUMENTS if how.evidence else "") + prompt + ("" if data.chat else "\nAnswer:")
    changed = {
        "data": data.model_copy(update={"train": questions.source, "prompt": whole}),
        "train": train.model_copy(update={"max_completion_length": tokens}),
    }
    return how.settings.model_copy(update=changed)


# -- Answers of a model ------------------------------------------------------------------------------


class NamedModel:
    """What `model.name` names, opened at its first use.

    A policy in this process stays loaded; a server is asked with other prompts by a writer of its own.
    """

    def __init__(self) -> None:
        self._policy: Any = None

    def writer(self, settings: AskSettings) -> Writer:
        """The model, asked as the settings say.

        Raises:
            SetupError: what the user must change.
        """
        if not _gives_likelihoods(settings):
            return open_writer(settings)
        self._policy = open_writer(settings) if self._policy is None else self._policy.asked(settings)
        return self._policy

    def scorer(self, settings: AskSettings) -> Any:
        """A `factrl.train.scoring.PolicyScorer`; None where there are no likelihoods."""
        if not _gives_likelihoods(settings):
            return None
        from factrl.train.scoring import PolicyScorer

        writer: Any = self.writer(settings)
        return PolicyScorer(writer, settings)


def _gives_likelihoods(settings: AskSettings) -> bool:
    """A policy in this process does, unless a method around it writes in steps."""
    return settings.sampling.method != "cove" and settings.model.is_policy


@contextmanager
def _asking(
    benchmark: Benchmark, questions: Questions, folder: Path | None, **about: Any
) -> Iterator[tuple[Journal, Callable[[int], None]]]:
    """What was answered before, which `about` decides beside the questions, and who counts."""
    if folder is None:
        raise ConfigError(f"{benchmark.name} needs a folder for its answers")
    head = {"benchmark": benchmark.name, "source": questions.source, **about}
    with (
        Journal(folder / "answers" / f"{benchmark.name}.jsonl", head) as journal,
        Progress(f"{benchmark.name}: answer", len(questions.examples)) as progress,
    ):
        yield journal, progress.advance


def ask(
    writer: Writer,
    examples: Sequence[Example],
    journal: Journal,
    samples: int = 1,
    on_done: Callable[[int], None] = lambda count: None,
    **how: Any,
) -> Texts:
    """Samples 0 to `samples - 1` of every question; failed calls are `Unscored` and are not kept.

    Questions are asked in blocks whose members do not depend on what was there before: a job that was killed
    asks the rest of a block together with what it already has of it, so that batches, and with them the
    texts, are those of a job that was never killed.

    Args:
        journal: what was written before; new texts are added to it.
        on_done: called with a number of questions that are done.
        how: temperature, top_p and seed.
    """
    texts: Texts = {}
    for start in range(0, len(examples), BLOCK):
        block = examples[start : start + BLOCK]
        told = {example.id: _digest(example) for example in block}
        rows = {
            (name, number): journal.get(f"{number}:{name}", {}) for name in told for number in range(samples)
        }
        missing = sorted({number for (name, number), row in rows.items() if row.get(_OF) != told[name]})
        groups = writer.write(block, missing, **how) if missing else [()] * len(block)
        for example, group in zip(block, groups, strict=True):
            for number, text in zip(missing, group, strict=bool(group)):
                key = (example.id, number)
                if rows[key].get(_OF) == told[example.id]:  # it came back only to make up the batch
                    continue
                if isinstance(text, Unscored):
                    texts[key] = text
                    continue
                about = {"prefill": text.prefill, "truncated": text.truncated, "tokens": text.tokens}
                rows[key] = {"text": str(text), **about, _OF: told[example.id]}
                journal.add(f"{number}:{example.id}", rows[key])
        for key, row in rows.items():
            if key not in texts:
                given = {name: row[name] for name in ("prefill", "truncated", "tokens")}
                texts[key] = Completion(row["text"], **given)
        on_done(len(block))
    return texts


def weigh(
    benchmark: Benchmark,
    scorer: Any,
    examples: Sequence[Example],
    journal: Journal,
    on_done: Callable[[int], None] = lambda count: None,
) -> list[Row]:
    """A row for every question, by the log-probabilities of its options."""
    rows = []
    for example in examples:
        row, told = journal.get(example.id, {}), _digest(example)
        if row.get(_OF) != told:
            row = {"sums": scorer.score([example], [example.meta["choices"]])[0], _OF: told}
            journal.add(example.id, row)
        grade, values = by_likelihood(example, row["sums"], several=benchmark.options == "mc2")
        rows.append(Row(example, None, grade, benchmark=benchmark.name, values=values))
        on_done(1)
    return rows


def _digest(example: Example) -> str:
    """Of what a model can be shown of a question: everything but the accepted answers."""
    return digest_of(example.question, example.topic, example.evidence, sorted(example.meta.items()))


# -- Answers that exist already ----------------------------------------------------------------------


def stored_texts(path: str | Path, column: str, benchmark: Benchmark, examples: Sequence[Example]) -> Texts:
    """The answers to a benchmark's questions in a file.

    A row belongs to a question by its `question`, of equal ones by its `id` too, and without a `question` by
    its `id`; a column `benchmark`, where there is one, must agree.  Several rows of one question are its
    samples, in the order of the file.  A question without a row is masked.

    Args:
        path: .jsonl, .jsonl.gz, .json or .parquet; `samples.jsonl` of an earlier evaluation is one.
        column: of the completions; by default `completion`, `response`, `prediction` or `output`.

    Raises:
        DataError: the file or the column is not there.
    """
    rows, known = list(read_rows(str(path))), ("id", "question", "benchmark")
    chosen = completions_column(path, column, [name for row in rows for name in row if name not in known])
    both: dict[tuple[str | None, str | None], list[Any]] = {}
    for row in rows:
        if row.get("benchmark") in (None, benchmark.name):
            name, question = (None if row.get(k) is None else str(row[k]) for k in ("id", "question"))
            for key in {(name, question), (None, question)}:
                both.setdefault(key, []).append(row.get(chosen))
    texts: Texts = {}
    for example in examples:
        keys = ((example.id, example.question), (None, example.question), (example.id, None))
        found = next((both[key] for key in keys if key in both), [None])
        for number, text in enumerate(found):
            texts[example.id, number] = Completion(text) if isinstance(text, str) else NOTHING_STORED
    if all(isinstance(text, Unscored) for text in texts.values()):
        raise DataError(f"{path} answers none of the {len(examples)} questions of {benchmark.name}")
    return texts


def own_texts(path: str, examples: Sequence[Example], column: str = "") -> Texts:
    """The answers to a file's questions in the file itself, see `completions_of`; null is masked."""
    texts = completions_of(path, examples, column)
    return {
        (example.id, 0): NOTHING_STORED if text is None else Completion(text)
        for example, text in zip(examples, texts, strict=True)
    }
