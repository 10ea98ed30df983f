"""From questions to asked texts, and on through grades and numbers: a benchmark from end to end.

A model's answers are in `answers/` of the output folder as soon as they exist, as journals: a second start
with the same settings asks nothing again, and one with other settings is refused.  The replies of judges are
in their own store.  `results.json`, `samples.jsonl` and `report.html` are there when all is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from factrl.errors import ConfigError, DataError, Unscored, nearest
from factrl.evals.catalogue import Benchmark, plain, template
from factrl.evals.grade import NOTHING_STORED, Texts, Tools, check_texts, grade_texts
from factrl.evals.numbers import Source, claim_numbers, confidence_numbers, numbers_of
from factrl.evals.samples import EvalSample
from factrl.llm.writers import Writer, digest_of
from factrl.rewards.grading import AnswerForm
from factrl.runs.data import native, read_completion
from factrl.runs.disk import Journal
from factrl.runs.progress import Progress
from factrl.runs.rows import SEPARATED, read_rows
from factrl.runs.settings import AskSettings, Section
from factrl.text.confidence import ASKED, TOKENS, asks_confidence
from factrl.text.reasoning import Extract
from factrl.types import Completion, Example
from factrl.verifier import Verifier

STORED = "stored answers"  # in place of a model's identity
BLOCK = 32  # questions whose answers are kept together
AT_ONCE = 512  # answers that are kept together where each question gets many
COLUMNS = ("completion", "response", "prediction", "output")
SAMPLED = 0.6  # temperature of several samples, when none is given: KnowRL's for Avg@5 (arXiv 2506.19807)
_QUESTION_KEY = "question"  # key of a journal's row: the digest of its question


class GradeSettings(Section):
    """`[grade]`: how `factrl eval` reads and grades answers."""

    extract: Extract | None = None
    """Where the answer is: `text` all but the reasoning, `boxed` the last box, `answer` the last <answer>; by
    default as the reward of the recipe reads it, else `text`."""
    form: AnswerForm | None = None
    """What counts as right: `short`, a text that equals an accepted answer, or `sentence`, one that contains
    it; by default `sentence`, and `short` with `extract` or a recipe's reward."""
    strict: bool = False
    """Leave ungraded what only rules could guess, where there is no judge."""
    confidence: Literal["stated", "agreement"] | None = None
    """How sure an answer is: as the model states when it is asked, or by the samples that agree."""
    column: str = ""
    """Column of stored answers; by default `completion`, `response`, `prediction` or `output`."""


class EvalSettings(AskSettings):
    """All settings of `factrl eval`."""

    grade: GradeSettings = GradeSettings()


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
        own_prompt: use the template in `settings` instead of the benchmark's.
        own_length: use the length limit in `settings`.  For a file of the user's own both always hold.
        limit: at most this many questions of each benchmark; all by default.
        confidence: how sure the model is: `stated`, which is asked for, or by the `agreement` of samples.
    """

    settings: AskSettings
    own_prompt: bool = False
    own_length: bool = False
    limit: int | None = None
    confidence: Source | None = None


def evaluate(
    benchmark: Benchmark,
    examples: Sequence[Example],
    source: str,
    config: EvalConfig,
    folder: Path | None,
    tools: Tools,
    judge: str,
    *,
    open_writer: Callable[[AskSettings], Writer] | None = None,
    texts: Texts | None = None,
    verifier: Verifier | None = None,
) -> tuple[dict[str, Any], list[EvalSample]]:
    """Evaluate one benchmark: take or ask for its answers, grade them, and compute its numbers.

    Args:
        examples, source: its questions, and where they are from.
        folder: where a model's answers are kept.
        judge: identity of what grades short answers.
        open_writer: opens what answers now, such as `factrl.train.answering.open_writer`.
        texts: answers that exist already; instead of `open_writer`.
        verifier: counts the supported claims of long answers.

    Returns:
        What `results.json` says of it, and its graded answers.

    Raises:
        SetupError: what the user must change.
    """
    graded_by = {"short": judge, "reasoning": "math-verify"}.get(benchmark.kind, "letter")
    settings, model = asked(benchmark, config, source), STORED
    if open_writer is not None:
        writer = open_writer(settings)
        model, draw = writer.identity, settings.draw
        if folder is None:
            raise ConfigError(f"{benchmark.name} needs a folder for its answers")
        head = {"benchmark": benchmark.name, "source": source, "model": model, **draw}
        with (
            Journal(folder / "answers" / f"{benchmark.name}.jsonl", head) as journal,
            Progress(f"{benchmark.name}: answer", len(examples)) as progress,
        ):
            texts = ask(writer, examples, journal, settings.sampling.num_samples, progress.advance, **draw)
    if benchmark.kind != "long":
        samples = grade_texts(benchmark, examples, texts or {}, tools)
    elif verifier is None:
        raise ConfigError(f"{benchmark.name} needs a verifier for its claims")
    else:
        graded_by = f"{verifier.judge.identity} {digest_of(config.settings.verifier.model_dump())}"
        samples = check_texts(benchmark, examples, texts or {}, verifier, chat=tools.chat)
    about = {"source": source, "model": model, "judge": graded_by, "prompt": settings.data.prompt}
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
        **sure,
    }


def asked(benchmark: Benchmark, config: EvalConfig, source: str) -> AskSettings:
    """How this benchmark is asked: its own template unless the user gave one, with everything around it."""
    prompt, tokens = benchmark.prompt, benchmark.max_tokens
    data, train, own = config.settings.data, config.settings.train, benchmark.path != ""
    if config.own_prompt or own:  # options are a part of the question
        options = template("options") if benchmark.kind == "choice" else "{question}"
        prompt = data.prompt.replace("{question}", options)
    short = benchmark.kind in ("short", "reasoning")
    if config.confidence == "stated" and short and not asks_confidence(prompt):
        prompt, tokens = prompt + ASKED, tokens + TOKENS
    if config.own_length or own:
        tokens = train.max_completion_length
    # A model that only continues text gets a cue for the answer.  A template of the user's own gets none, so
    # that a policy is asked as it was trained.
    cue = "" if data.chat or config.own_prompt else "\nAnswer:"
    changed = {
        "data": data.model_copy(update={"train": source, "prompt": prompt + cue}),
        "train": train.model_copy(update={"max_completion_length": tokens}),
    }
    return config.settings.model_copy(update=changed)


# -- Answers of a model ------------------------------------------------------------------------------


class NamedModel:
    """What `model.name` names, opened at its first use: it writes for one benchmark after the other.

    A policy in this process stays loaded; a server is asked with other prompts by a writer of its own.

    Args:
        open_writer: opens a model by its settings, such as `factrl.train.answering.open_writer`.
    """

    def __init__(self, open_writer: Callable[[AskSettings], Any]) -> None:
        self._open, self._policy = open_writer, None

    def __call__(self, settings: AskSettings) -> Any:
        """The model, a `Writer` that asks as the settings say."""
        if not settings.model.is_policy:
            return self._open(settings)
        self._policy = self._policy.with_settings(settings) if self._policy else self._open(settings)
        return self._policy


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
    size = max(1, min(BLOCK, AT_ONCE // samples))
    for start in range(0, len(examples), size):
        block = examples[start : start + size]
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


def _digest(example: Example) -> str:
    """The digest of all that a model may see of a question: everything but the accepted answers."""
    return digest_of(example.question, example.topic, example.evidence, sorted(example.meta.items()))


# -- Answers that exist already ----------------------------------------------------------------------


def stored_texts(
    path: str | Path, column: str, benchmark: Benchmark, examples: Sequence[Example]
) -> tuple[Texts, str]:
    """The answers to a benchmark's questions in a file.

    A row belongs to a question by its `question`, of equal ones by its `id` too, and without one by its
    `id`; a column `benchmark`, where it is filled, must agree.  Several rows of one question are its samples,
    in the order of the file.  A question without a row is masked.

    Args:
        path: .jsonl, .json, .csv, .tsv or .parquet; `samples.jsonl` of an earlier evaluation is one.
        column: of the completions, see `COLUMNS`.

    Returns:
        The answers, and which rows belong to none of the questions, in words.

    Raises:
        DataError: no file, no such column, a completion that is no text, or no row of a question.
    """
    rows, known = list(read_rows(str(path))), ("id", "question", "benchmark")
    beside = [{name: cell for name, cell in row.items() if name not in known} for row in rows]
    chosen = completions_column(path, column, beside)
    written = read_completions(path, chosen, [row.get(chosen) for row in rows])
    of = dict[tuple[str, str], list[int]]()
    own = [at for at, row in enumerate(rows) if plain(row.get("benchmark")) in ("", benchmark.name)]
    for at in own:
        name, question = plain(rows[at].get("id")), plain(rows[at].get("question"))
        for key in {(name, question), ("", question)} - {("", "")}:
            of.setdefault(key, []).append(at)
    texts, found = Texts(), set[int]()
    for example in examples:
        name, question = plain(example.id), plain(example.question)
        keys = (key for key in ((name, question), ("", question), (name, "")) if key in of)
        numbers = of[first] if (first := next(keys, None)) else []
        for number, text in enumerate([written[at] for at in numbers] or [None]):
            texts[example.id, number] = NOTHING_STORED if text is None else Completion(text)
        found.update(numbers)
    how = "rows are paired by their question, and those without one by their id"
    if all(isinstance(text, Unscored) for text in texts.values()):
        raise DataError(f"{path} answers none of the {len(examples)} questions of {benchmark.name}; {how}")
    if not (left := [rows[at] for at in own if at not in found]):
        return texts, ""
    shown = plain(left[0].get("question"))[:80] or plain(left[0].get("id"))
    note = f"{len(left)} of {len(rows)} rows of {path} belong to none of its questions, first {shown!r}"
    return texts, f"{note}; {how}"


def own_texts(path: str, examples: Sequence[Example], column: str = "") -> Texts:
    """The answers to a file's questions in the file itself, see `completions_of`; null is masked."""
    texts = completions_of(path, examples, column)
    return {
        (example.id, 0): NOTHING_STORED if text is None else Completion(text)
        for example, text in zip(examples, texts, strict=True)
    }


def completions_of(path: str | Path, examples: Sequence[Example], column: str = "") -> list[str | None]:
    """The completion of each row of a file, None where there is none.

    Args:
        examples: the file's rows, as `load_examples` reads them.
        column: of the completions; by default `completion`, `response`, `prediction` or `output`.

    Raises:
        DataError: the column is missing, or holds something else than text and conversations.
    """
    chosen = completions_column(path, column, [example.meta for example in examples])
    return read_completions(path, chosen, [example.meta.get(chosen) for example in examples])


def read_completions(path: str | Path, column: str, cells: Sequence[Any]) -> list[str | None]:
    """What the cells of a file's column say, see `read_completion`."""
    spelled = str(path).lower().endswith(SEPARATED)
    return [
        read_completion(cell, f"{path}, row {number}: {column}", spelled=spelled)
        for number, cell in enumerate(cells, start=1)
    ]


def completions_column(path: str | Path, column: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Which column of a file's rows holds the completions; `column` where it is given.

    Of those with a usual name it is the first with anything in it.
    """
    present = dict.fromkeys(name for row in rows for name in row)
    usual = [name for name in COLUMNS if name in present]
    filled = (name for name in usual if any(native(row.get(name)) not in (None, "") for row in rows))
    chosen = column or next(filled, next(iter(usual), ""))
    if chosen not in present:
        hint = "its rows hold only questions and what is known about them; add a column `completion`"
        if present:
            shown = ", ".join(map(repr, present))
            hint = f"columns beside the question: {shown}; name the right one with grade.column=NAME"
        missing = f"{column!r} beside the question and its answers" if column else "for the completions"
        raise DataError(f"{path} has no column {missing}{nearest(column, present)}; {hint}")
    return chosen
