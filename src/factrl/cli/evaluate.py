"""`factrl eval`: answers that are stored in a file or that a model gives now, or benchmarks by name."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import textwrap
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn, get_args

from factrl import __version__
from factrl.errors import ConfigError, LLMError, TooManyMasked
from factrl.evals.asking import ask
from factrl.evals.catalogue import BENCHMARKS, GROUPS, find
from factrl.evals.metrics import TRUTHRL, Weights
from factrl.evals.shortqa import (
    Evaluation,
    Extract,
    GradeAnswer,
    Row,
    check_gradable,
    grade_completions,
    load_completions,
    summarise,
)
from factrl.llm import LLM, preflight
from factrl.llm.writers import digest_of
from factrl.rewards.grading import Form, graded_by
from factrl.rewards.resources import Supplier
from factrl.runs.data import load_examples
from factrl.runs.journal import Journal
from factrl.runs.progress import Progress
from factrl.runs.settings import AskSettings, JudgeSettings, VerifierSettings
from factrl.runs.whole_file import write_whole
from factrl.train.plan import open_judge
from factrl.train.tuning.extraction import extract_of
from factrl.types import Example, Grade

from .options import Verbs, add_verb, as_overrides, ask_settings, at_least_one, check_place, needs_extra
from .terminal import complain, say, show_table, tell

_SETTING = re.compile(r"[a-z_]+(\.[a-z_]+)*=")

Answered = Sequence[tuple[Example, str | None]]


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "eval",
        _eval,
        about="evaluate a model or stored answers: accuracy, abstention, hallucination, with intervals",
        example=(
            "examples:\n"
            "  factrl eval simpleqa truthfulqa gsm8k --model MODEL --limit 100 --output out\n"
            "  factrl eval answers.jsonl --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl eval questions.jsonl --model runs/R/model --config runs/R/config.toml --output R.json\n"
            f"benchmarks:\n{_wrapped([*BENCHMARKS, *GROUPS])}"
        ),
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE|BENCH",
        help="answers to grade; with --model, questions to answer; or names of benchmarks. After them "
        "key=value, how a --model is asked, e.g. data.prompt=... train.max_completion_length=64; "
        "factrl show --settings lists them",
    )
    _add_grading_options(parser)
    parser.add_argument("--limit", metavar="N", type=at_least_one, help="only the first N questions")
    parser.add_argument(
        "--weights",
        metavar="C,A,W",
        type=_weights,
        default=TRUTHRL,
        help="truthfulness = C correct + A abstained - W wrong (default: 1,0,1)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="what answers now: a folder, a hub id, a policy of `factrl models list`; for benchmarks also "
        "`local` or http://host:8000/v1#model",
    )
    parser.add_argument("--config", metavar="RECIPE.toml", help="ask the --model as this recipe does")
    parser.add_argument(
        "--output",
        metavar="PATH",
        help="FILE.json for numbers and grades of a FILE; a folder for benchmarks; what is done is kept "
        "beside or in it, and the same command goes on from there",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_benchmark_options(parser.add_argument_group("for benchmarks"))


def _add_grading_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--judge", metavar="URL", help="model server that grades, e.g. http://host:8000/v1#model"
    )
    parser.add_argument(
        "--extract",
        choices=get_args(Extract),
        help=r"where the answer is: all but the reasoning, the last \boxed{}, the last <answer> "
        "(default: text; with --config as its reward does)",
    )
    parser.add_argument(
        "--form",
        choices=get_args(Form),
        help="what rules take an answer for: short, it must equal an accepted one, as rewards have it; "
        "sentence, it must give one (default: short for a FILE, sentence for benchmarks without --extract)",
    )
    parser.add_argument(
        "--column", metavar="NAME", default="", help="column of the answers in FILE or in --completions"
    )


def _add_benchmark_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--completions", metavar="FILE", help="grade these answers instead of asking a --model"
    )
    group.add_argument(
        "--samples", metavar="K", type=at_least_one, help="answers per question: Avg@K and majority@K"
    )
    group.add_argument("--shots", metavar="N", type=at_least_one, help="worked examples before each question")
    group.add_argument("--evidence", action="store_true", help="show the documents that come with a question")
    group.add_argument("--confidence", action="store_true", help="ask how sure the model is of its answer")
    group.add_argument(
        "--base-probe",
        metavar="FILE",
        help="what the base model knows, from `factrl probe`; for false abstention",
    )
    group.add_argument(
        "--judge-quality",
        metavar="FILE",
        help="how often the verifier's judge is right, from benchmarks/judge_quality.py: long answers get "
        "their precision without its errors, beside the raw one",
    )


def _eval(args: argparse.Namespace) -> int:
    targets = [word for word in args.words if not _SETTING.match(word) or Path(word).exists()]
    args.settings = [word for word in args.words if word not in targets]
    if not targets:
        raise ConfigError(f"{args.words[0]!r} says how a model is asked; name a FILE or a BENCH first")
    files = [word for word in targets if _is_file(word)]
    if not files:
        return evaluate_benchmarks().run_benchmarks(args, find(targets))
    if len(targets) > 1:
        raise ConfigError(f"{files[0]} is a file of its own; evaluate one file, or benchmarks by name")
    (args.file,) = files
    for option in (
        "completions",
        "samples",
        "shots",
        "evidence",
        "confidence",
        "base_probe",
        "judge_quality",
    ):
        if getattr(args, option):
            raise ConfigError(f"--{option.replace('_', '-')} is for benchmarks, not for a file")
    return _eval_file(args)


def evaluate_benchmarks() -> Any:
    """The module for benchmarks, loaded only when they are asked for."""
    return importlib.import_module("factrl.cli.evaluate_benchmarks")


def _is_file(word: str) -> bool:
    """A path or a hub id, which has a slash, rather than a benchmark's name."""
    if word in BENCHMARKS or word in GROUPS:
        return False
    return Path(word).exists() or "/" in word or Path(word).suffix != ""


def _wrapped(names: Sequence[str]) -> str:
    return textwrap.fill(", ".join(names), 78, initial_indent="  ", subsequent_indent="  ")


def _eval_file(args: argparse.Namespace) -> int:
    _check(args)
    if args.model is not None:
        answered, supplier, extract = _ask(args)
    else:
        answered = load_completions(args.file, args.column, args.limit)
        check_gradable([example for example, _ in answered], args.file)
        extract = args.extract or "text"
        told = JudgeSettings(url=args.judge)
        supplier = Supplier(open_judge(told), told, VerifierSettings())
    judge = supplier.judge
    if judge is None:
        tell("No --judge: rules alone compare answers, so a paraphrase counts as wrong.")
    rows = _graded(answered, supplier, extract, args)
    evaluation = summarise(rows, args.weights)
    about = {
        "file": args.file,
        "model": args.model,
        "judge": getattr(judge, "identity", None),
        "extract": extract,
        "form": args.form or "short",
    }
    written = _report(evaluation, {**about, **evaluation.to_json()}, args)
    masked = sum(evaluation.masked.values())
    if masked == len(rows):
        tally = ", ".join(f"{count} {cause}" for cause, count in evaluation.masked.items())
        raise TooManyMasked(f"none of the {masked} answers could be graded ({tally})")
    if masked:
        tell(f"{masked} of {len(rows)} answers could not be graded; the numbers are of the others.")
    return 0 if written else 2


def _graded(answered: Answered, supplier: Supplier, extract: Extract, args: argparse.Namespace) -> list[Row]:
    """What became of the answers; the judge must be there only for what earlier replies do not decide."""
    form: Form = args.form or "short"
    journal, judge = nullcontext(None), supplier.judge
    if judge is not None and args.output is not None:
        journal = Journal(Path(args.output).with_suffix(".grades.jsonl"), {"job": "factrl eval"})
    with journal as grades:

        def grade(chosen: Answered, source: Supplier, on_row: Callable[[], None]) -> list[Row]:
            grader: GradeAnswer = source.grade(form)
            if grades is not None:
                grader = _KeptGrader(grader, grades, f"{graded_by(source.judge)} {form} {__version__}")
            return grade_completions(chosen, grader, extract, on_row=on_row)

        rows: dict[int, Row] = {}
        if judge is not None and getattr(judge, "model", "") is not None:  # else nobody knows yet who judges
            first = grade(answered, replace(supplier, judge=_Unasked(judge)), lambda: None)
            rows = {n: row for n, row in enumerate(first) if row.grade is not None or row.completion is None}
        left = [n for n in range(len(answered)) if n not in rows]
        if judge is not None and left:
            preflight(judge)
        with Progress("grade", len(answered), already=len(rows)) as progress:
            new = grade([answered[n] for n in left], supplier, progress.advance)
        rows |= zip(left, new, strict=True)
        return [rows[n] for n in range(len(answered))]


def _check(args: argparse.Namespace) -> None:
    """Wrong combinations, before anything is read or paid for."""
    if args.model is None and (args.config is not None or args.settings):
        given = args.settings[0] if args.settings else "--config"
        raise ConfigError(f"{given!r} says how a model is asked; name one with --model, or leave it out")
    if args.model is not None and args.column:
        raise ConfigError("--column names stored answers, but --model gives new ones; leave one of them out")
    if args.model is not None and args.output is None:
        raise ConfigError("--model needs --output FILE.json; the answers are kept beside it")
    if args.output is not None:
        output = Path(args.output)
        check_place("--output", output)
        if output.suffix != ".json":
            raise ConfigError(f"--output {output} must end in .json")
        if output.resolve() == Path(args.file).resolve():
            raise ConfigError(f"--output {output} would replace the file that is evaluated")


def _ask(args: argparse.Namespace) -> tuple[Answered, Supplier, Extract]:
    """A model's answers, with the judge and the extraction that its recipe names."""
    overrides = [
        f"data.train={args.file}",
        *as_overrides(args, {"model": "model.name", "judge": "judge.url"}),
    ]
    settings = ask_settings(AskSettings, args.config, overrides)
    extract = args.extract or extract_of(settings.paper, settings.reward)
    data = settings.data
    examples = load_examples(
        args.file,
        split=data.eval_split,
        subset=data.subset,
        columns=data.columns,
        limit=args.limit,
        require_answers=False,
    )
    check_gradable(examples, args.file)
    supplier = Supplier(open_judge(settings.judge), settings.judge, settings.verifier)
    if supplier.judge is not None:
        preflight(supplier.judge)  # before the answers, which take longest
    answers = _answers(settings, examples, Path(args.output))
    return list(zip(examples, answers, strict=True)), supplier, extract


def _answers(settings: AskSettings, examples: Sequence[Example], output: Path) -> list[str]:
    """Greedy answers, each kept beside the output as soon as it is there; at the end `NAME.answers.jsonl`."""
    needs_extra("train.quiet", "train").quiet_libraries()
    writer = needs_extra("train.writing", "train").PolicyWriter.load(settings)
    path, about = output.with_suffix(".answers.jsonl"), {"job": "factrl eval", "model": writer.identity}
    with (
        Journal(output.with_suffix(".journal.jsonl"), about) as journal,
        Progress("answer", len(examples)) as progress,
    ):
        texts = ask(writer, examples, journal, on_done=progress.advance)
    rows = [_row(example, str(texts[example.id, 0])) for example in examples]
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
    tell(f"answers: {path}")
    return [row["completion"] for row in rows]


def _row(example: Example, text: str) -> dict[str, Any]:
    return {
        "id": example.id,
        "question": example.question,
        "answers": list(example.answers),
        "false_premise": example.false_premise,
        "completion": text,
    }


def _report(evaluation: Evaluation, document: dict[str, Any], args: argparse.Namespace) -> bool:
    """To the file first, which a reader who closes the pipe cannot prevent; false when it was not written."""
    text, written = json.dumps(document, indent=2), True
    if args.output is not None:
        try:
            Path(args.output).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            complain(f"--output {args.output} could not be written: {error.strerror}")
            written = False
    if args.json:
        say(text)
    else:
        show_table(evaluation.table())
    return written


def _weights(text: str) -> Weights:
    """An argparse type."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not all(map(math.isfinite, numbers)) or numbers[2] < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not three numbers such as 1,0,1, of which the last is what a wrong answer costs"
        )
    return Weights(*numbers)


class _KeptGrader:
    """A grader in front of another one, which is not asked again what it has graded.

    Args:
        grader: grades what the journal does not hold; what it raises is not kept.
        journal: of this run and of those before it.
        by: everything that decides a grade beside the question, the answer and the accepted ones.
    """

    def __init__(self, grader: GradeAnswer, journal: Journal, by: str) -> None:
        self._grader, self._journal, self._by = grader, journal, by
        self._writing = threading.Lock()

    def __call__(
        self, question: str, prediction: str, answers: Sequence[str], *, false_premise: bool | None = None
    ) -> Grade:
        """The grade that is kept, or a new one."""
        key = digest_of(self._by, question, prediction, list(answers), false_premise)
        row = self._journal.get(key)
        if row is not None:
            return Grade(**row)
        grade = self._grader(question, prediction, answers, false_premise=false_premise)
        with self._writing:
            self._journal.add(key, asdict(grade))
        return grade


class _Unasked:
    """A model that answers nothing, in the place of one that need not be there for what is kept.

    Args:
        llm: whose identity it has.
    """

    def __init__(self, llm: LLM) -> None:
        self.identity = getattr(llm, "identity", "")

    def complete(self, *_: object, **__: object) -> NoReturn:
        """Raises `LLMError`, whatever it is asked."""
        raise LLMError("not_asked", "nothing is asked yet")
