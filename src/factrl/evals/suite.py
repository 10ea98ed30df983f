"""Benchmarks from end to end: questions, answers, grades, numbers, files.

A model's answers are in `answers/` of the output folder as soon as they exist, as journals: a second start
with the same settings asks nothing again, and one with other settings is refused.  The replies of judges are
in their own store.  `results.json`, `samples.jsonl` and `report.html` are there when all is done.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from factrl.errors import ConfigError, DataError, Unscored
from factrl.evals.catalogue import (
    Benchmark,
    completions_column,
    completions_of,
    plain,
    read_completions,
    template,
)
from factrl.evals.longform import check_texts, claim_numbers, with_steps
from factrl.evals.numbers import Source, confidence_numbers, numbers_by, numbers_of
from factrl.evals.samples import EvalSample
from factrl.evals.shortqa import NOTHING_STORED, Texts, Tools, by_likelihood, grade_texts
from factrl.llm.writers import Writer, digest_of
from factrl.runs.data import questions_in
from factrl.runs.disk import Journal
from factrl.runs.progress import Progress
from factrl.runs.rows import read_rows
from factrl.runs.settings import AskSettings
from factrl.text.confidence import ASKED, TOKENS, asks_confidence
from factrl.types import Completion, Example
from factrl.verifier import Verifier

STORED = "stored answers"  # in place of a model's identity
BLOCK = 32  # questions whose answers are kept together

_DOCUMENTS = "Documents that may help:\n\n{evidence}\n\n"
_QUESTION_KEY = "question"  # key of a journal's row: the digest of its question


SAMPLED = 0.6  # temperature of several samples, when none is given: KnowRL's for Avg@5 (arXiv 2506.19807)


def several(samples: int | None) -> list[str]:
    """The overrides that ask each question `samples` times."""
    if samples is None or samples < 2:
        return []
    return [f"sampling.num_samples={samples}", f"sampling.temperature={SAMPLED}"]


@dataclass(frozen=True)
class EvalConfig:
    """What all benchmarks of an evaluation have in common.

    Attributes:
        settings: of the model and of what grades, without a source of questions.
        own_prompt: use the template in `settings` instead of the benchmark's, except for choices.
        own_length: use the length limit in `settings`.  For a file of the user's own both always hold.
        limit: at most this many questions of each benchmark; all by default.
        evidence: show the documents that come with a question.
        confidence: how sure the model is: `stated`, which is asked for, by the `agreement` of samples, or by
            the `likelihood` of what it wrote, which a policy in this process can tell.
        by: a column; the rows of each of its values also get numbers of their own.
        reasoning: of short answers to questions with evidence, also the share of true steps before them.
    """

    settings: AskSettings
    own_prompt: bool = False
    own_length: bool = False
    limit: int | None = None
    evidence: bool = False
    confidence: Source | None = None
    by: str = ""
    reasoning: bool = False


def evaluate(
    benchmark: Benchmark,
    examples: Sequence[Example],
    source: str,
    config: EvalConfig,
    folder: Path | None,
    tools: Tools,
    judge: str,
    *,
    model: Any = None,
    texts: Texts | None = None,
    verifier: Verifier | None = None,
) -> tuple[dict[str, Any], list[EvalSample]]:
    """Evaluate one benchmark: take or ask for its answers, grade them, and compute its numbers.

    Args:
        examples, source: its questions, and where they are from.
        folder: where a model's answers are kept.
        judge: identity of what grades short answers.
        model: what answers now, such as a `NamedModel`.
        texts: answers that exist already; instead of `model`.
        verifier: counts the supported claims of long answers, and of `config.reasoning` the true steps.

    Returns:
        What `results.json` says of it, and its graded answers.

    Raises:
        SetupError: what the user must change.
    """
    kind = benchmark.kind
    if kind == "long" and verifier is None:
        raise ConfigError(f"{benchmark.name} needs a verifier for its claims")
    graded_by = {"short": judge, "reasoning": "math-verify"}.get(kind, "letter")
    if verifier is not None and kind == "long":
        graded_by = f"{verifier.judge.identity} {digest_of(config.settings.verifier.model_dump())}"
    asked_for = "letter" if kind in ("choice", "letter") else "text"
    weighs = kind == "choice" and model is not None and gives_likelihoods(config.settings)
    settings = _settings(benchmark, config, source, weighs=weighs)
    policy = model.writer(settings) if model is not None else None
    if policy is not None and weighs:
        graded_by = asked_for = "likelihood"
        with _open_journal(benchmark, examples, source, folder, policy, asked_for=asked_for) as (
            journal,
            on_done,
        ):
            samples = weigh(benchmark, policy, examples, journal, on_done)
    else:
        if policy is not None:
            draw = settings.draw
            with _open_journal(benchmark, examples, source, folder, policy, **draw) as (journal, on_done):
                texts = ask(policy, examples, journal, settings.sampling.num_samples, on_done, **draw)
        if verifier is not None and kind == "long":
            samples = check_texts(benchmark, examples, texts or {}, verifier, chat=tools.chat)
        else:
            samples = grade_texts(benchmark, examples, texts or {}, tools)
        if config.confidence == "likelihood" and policy is not None:
            samples = with_likelihood(samples, policy)
        if config.reasoning and kind == "short" and verifier is not None:
            samples = with_steps(samples, verifier)
            graded_by += f"; reasoning: {verifier.judge.identity}"
    about = {"source": source, "model": policy.identity if policy is not None else STORED}
    about |= {"judge": graded_by, "asked_for": asked_for, "prompt": settings.data.prompt}
    return _summary(benchmark, about, samples, config), samples


def _summary(
    benchmark: Benchmark, about: Mapping[str, Any], samples: Sequence[EvalSample], config: EvalConfig
) -> dict[str, Any]:
    """The numbers of a benchmark, and what they are of, as plain data for `json.dumps`."""
    numbers = numbers_of(benchmark.kind, samples)
    if benchmark.kind == "long":
        numbers |= claim_numbers(samples, benchmark.recall_at)
    sure: dict[str, Any] = {}
    if config.confidence:
        more, sure = confidence_numbers(samples, config.confidence)
        numbers |= more
    parts = numbers_by(samples, config.by)
    return {
        "kind": benchmark.kind,
        "about": benchmark.about,
        "licence": benchmark.licence,
        **about,
        "prompt_hash": digest_of(about["prompt"]),
        "questions": len({one.example.id for one in samples}),
        "answers": len(samples),
        # By cause: answers that could not be graded, and those that are wrong because of their form.
        "masked": dict(Counter(one.cause for one in samples if one.cause).most_common()),
        "floored": dict(Counter(one.floored for one in samples if one.floored).most_common()),
        "numbers": {name: asdict(number) for name, number in numbers.items()},
        # Value of the column `by` -> the numbers of its rows, with those that nobody can answer.
        "by": {value: {n: asdict(one) for n, one in part.items()} for value, part in parts.items()},
        **sure,
    }


def _settings(benchmark: Benchmark, config: EvalConfig, source: str, *, weighs: bool) -> AskSettings:
    """How this benchmark is asked: its own template unless the user gave one, with everything around it."""
    prompt, tokens = benchmark.prompt, benchmark.max_tokens
    if benchmark.kind == "choice" and not weighs:
        prompt, tokens = template("letter"), 12
    data, train, own = config.settings.data, config.settings.train, benchmark.path != ""
    in_words = benchmark.kind not in ("choice", "letter")
    if (config.own_prompt or own) and in_words:
        # Options are a part of the question.
        options = benchmark.kind == "discrimination"
        prompt = data.prompt.replace("{question}", prompt) if options else data.prompt
    if (
        config.confidence == "stated"
        and benchmark.kind in ("short", "reasoning")
        and not asks_confidence(prompt)
    ):
        prompt, tokens = prompt + ASKED, tokens + TOKENS
    if config.own_length or own:
        tokens = train.max_completion_length
    # A model that only continues text gets a cue for the answer.  A template of the user's own gets none, so
    # that a policy is asked as it was trained.
    cue = "" if data.chat or (config.own_prompt and in_words) else "\nAnswer:"
    whole = (_DOCUMENTS if config.evidence else "") + prompt + cue
    changed = {
        "data": data.model_copy(update={"train": source, "prompt": whole}),
        "train": train.model_copy(update={"max_completion_length": tokens}),
    }
    return config.settings.model_copy(update=changed)


# -- Answers of a model ------------------------------------------------------------------------------


class NamedModel:
    """What `model.name` names, opened at its first use.

    A policy in this process stays loaded; a server is asked with other prompts by a writer of its own.

    Args:
        open_writer: opens a model by its settings, such as `factrl.train.answering.open_writer`.
    """

    def __init__(self, open_writer: Callable[[AskSettings], Any]) -> None:
        self._open, self._policy = open_writer, None

    def writer(self, settings: AskSettings) -> Any:
        """The model, a `Writer` that asks as the settings say; one with likelihoods has `score` too."""
        if not gives_likelihoods(settings):
            return self._open(settings)
        self._policy = self._policy.with_settings(settings) if self._policy else self._open(settings)
        return self._policy


def gives_likelihoods(settings: AskSettings) -> bool:
    """Whether the model gives likelihoods, as a policy in this process does."""
    return settings.model.is_policy


@contextmanager
def _open_journal(
    benchmark: Benchmark,
    examples: Sequence[Example],
    source: str,
    folder: Path | None,
    model: Writer,
    **about: Any,
) -> Iterator[tuple[Journal, Callable[[int], None]]]:
    """The journal of earlier answers with the same model, questions and `about`, and a progress counter."""
    if folder is None:
        raise ConfigError(f"{benchmark.name} needs a folder for its answers")
    head = {"benchmark": benchmark.name, "source": source, "model": model.identity, **about}
    with (
        Journal(folder / "answers" / f"{benchmark.name}.jsonl", head) as journal,
        Progress(f"{benchmark.name}: answer", len(examples)) as progress,
    ):
        yield journal, progress.advance


def ask(
    writer: Writer,
    examples: Sequence[Example],
    journal: Journal,
    samples: int = 1,
    on_done: Callable[[int], None] = lambda count: None,
    **sampling: Any,
) -> Texts:
    """Samples 0 to `samples - 1` of every question; failed calls are `Unscored` and are not kept.

    Questions are asked in fixed blocks.  After a kill, an unfinished block is asked again as a whole, with
    the answers that it already has, so that batches, and with them the texts, are the same as without the
    kill.

    Args:
        journal: what was written before; new texts are added to it.
        on_done: called with a number of questions that are done.
        sampling: temperature, top_p and seed.
    """
    texts: Texts = {}
    for start in range(0, len(examples), BLOCK):
        block = examples[start : start + BLOCK]
        digests = [_digest(example) for example in block]
        rows = {
            (example.id, number): row
            for example, digest in zip(block, digests, strict=True)
            for number in range(samples)
            if (row := journal.get(f"{number}:{example.id}", {})).get(_QUESTION_KEY) == digest
        }
        missing = [n for n in range(samples) if any((example.id, n) not in rows for example in block)]
        groups = writer.write(block, missing, **sampling) if missing else [[]] * len(block)
        for example, digest, group in zip(block, digests, groups, strict=True):
            for number, text in zip(missing, group, strict=True):
                key = (example.id, number)
                if isinstance(text, Unscored):
                    texts[key] = text
                elif key not in rows:  # else it was asked again only to keep the batch the same
                    about = {"prefill": text.prefill, "truncated": text.truncated, "tokens": text.tokens}
                    rows[key] = {"text": str(text), **about, _QUESTION_KEY: digest}
                    journal.add(f"{number}:{example.id}", rows[key])
        for key, row in rows.items():
            options = {name: row[name] for name in ("prefill", "truncated", "tokens")}
            texts[key] = Completion(row["text"], **options)
        on_done(len(block))
    return texts


def with_likelihood(samples: Sequence[EvalSample], scorer: Any) -> list[EvalSample]:
    """The answers with the geometric mean of their tokens' probabilities among their `values`."""
    indices = [at for at, one in enumerate(samples) if getattr(one.completion, "tokens", None)]
    with Progress("likelihood", len(indices)) as progress:
        texts = [[str(samples[at].completion).lstrip()] for at in indices]
        examples = [samples[at].example for at in indices]
        sums = scorer.score(examples, texts, lambda: progress.advance(1))
    rows = list(samples)
    for at, (total,) in zip(indices, sums, strict=True):
        mean = math.exp(total / getattr(rows[at].completion, "tokens", 1))
        rows[at] = replace(rows[at], values={**rows[at].values, "likelihood": mean})
    return rows


def weigh(
    benchmark: Benchmark,
    scorer: Any,
    examples: Sequence[Example],
    journal: Journal,
    on_done: Callable[[int], None] = lambda count: None,
) -> list[EvalSample]:
    """A row for every question, by the log-probabilities of its options."""
    rows = []
    for example in examples:
        row, digest = journal.get(example.id, {}), _digest(example)
        if row.get(_QUESTION_KEY) != digest:
            row = {"sums": scorer.score([example], [example.meta["choices"]])[0], _QUESTION_KEY: digest}
            journal.add(example.id, row)
        grade, values = by_likelihood(example, row["sums"], several=benchmark.options == "mc2")
        rows.append(EvalSample(example, None, grade, benchmark=benchmark.name, values=values))
        on_done(1)
    return rows


def _digest(example: Example) -> str:
    """The digest of all that a model may see of a question: everything but the accepted answers."""
    return digest_of(example.question, example.topic, example.evidence, sorted(example.meta.items()))


# -- Answers that exist already ----------------------------------------------------------------------


def stored_texts(
    path: str | Path, column: str, benchmark: Benchmark, examples: Sequence[Example]
) -> tuple[Texts, str]:
    """The answers to a benchmark's questions in a file.

    A row belongs to a question by its `question`, `prompt` or `problem`, of equal ones by its `id` too, and
    where it has none of the benchmark's by its `id`, compared as `plain` text; a column `benchmark`, where it
    is filled, must agree.  Several rows of one question are its samples, in the order of the file, also of
    each of two questions in the same words.  A question without a row is masked.

    Args:
        path: .jsonl, .json, .csv, .tsv or .parquet; `samples.jsonl` of an earlier evaluation is one.
        column: of the completions; by default `completion`, `response`, `prediction` or `output`.

    Returns:
        The answers, and which rows belong to none of the questions, in words.

    Raises:
        DataError: no file, no such column, a completion that is no text, or no row of a question.
    """
    rows, known = list(read_rows(str(path))), ("id", "question", "benchmark")
    beside = [{name: cell for name, cell in row.items() if name not in known} for row in rows]
    chosen = completions_column(path, column, beside)
    written = read_completions(path, chosen, [row.get(chosen) for row in rows])
    both, own = dict[tuple[str, str], list[int]](), list[int]()
    questions = {plain(example.question) for example in examples}
    for number, row in enumerate(rows):
        if plain(row.get("benchmark")) in ("", benchmark.name):
            there = (text for text in map(plain, questions_in(row)) if text in questions)
            name, question = plain(row.get("id")), next(there, plain(row.get("question")))
            own.append(number)
            for key in {(name, question), ("", question)} - {("", "")}:
                both.setdefault(key, []).append(number)
    texts, found = Texts(), set[int]()
    for example in examples:
        name, question = plain(example.id), plain(example.question)
        numbers = next(
            (both[key] for key in ((name, question), ("", question), (name, "")) if key in both), []
        )
        for number, text in enumerate([written[at] for at in numbers] or [None]):
            texts[example.id, number] = NOTHING_STORED if text is None else Completion(text)
        found.update(numbers)
    how = "rows are paired by their question, and those without one by their id"
    if all(isinstance(text, Unscored) for text in texts.values()):
        raise DataError(f"{path} answers none of the {len(examples)} questions of {benchmark.name}; {how}")
    if not (left := [rows[at] for at in own if at not in found]):
        return texts, ""
    first = plain(left[0].get("question"))[:80] or plain(left[0].get("id"))
    note = f"{len(left)} of {len(rows)} rows of {path} belong to none of its questions, first {first!r}"
    return texts, f"{note}; {how}"


def own_texts(path: str, examples: Sequence[Example], column: str = "") -> Texts:
    """The answers to a file's questions in the file itself, see `completions_of`; null is masked."""
    texts = completions_of(path, examples, column)
    return {
        (example.id, 0): NOTHING_STORED if text is None else Completion(text)
        for example, text in zip(examples, texts, strict=True)
    }
