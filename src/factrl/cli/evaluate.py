"""`factrl eval`: benchmarks by name or files of your own, for a model or for stored answers."""

from __future__ import annotations

import argparse
import importlib.util
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from factrl import __version__
from factrl.errors import ConfigError, MissingExtra, TooManyMasked
from factrl.evals.ask import EvalConfig, EvalSettings, NamedModel, evaluate, own_texts, several, stored_texts
from factrl.evals.catalogue import Benchmark, benchmarks, find, groups, load_questions, own_file
from factrl.evals.folder import Output, results_folder, write_questions
from factrl.evals.grade import Texts, Tools
from factrl.evals.report import output_table, write_eval_page
from factrl.evals.samples import EvalSample
from factrl.job import Job, read_job, unread_in_asking
from factrl.rewards.grading import AnswerForm, graded_by
from factrl.runs.rows import Row, read_rows
from factrl.runs.settings import AskSettings
from factrl.train.answering import open_writer
from factrl.types import Example

from .options import (
    Verbs,
    add_option,
    add_options,
    add_verb,
    as_overrides,
    at_least_one,
    check_judge,
    quiet_policy,
)
from .score import score
from .terminal import say, show_table, tally, tell

_RECORDED = ("limit", "settings", "config", "long")
_OF_STORED = (
    "data.columns.",
    "data.subset=",
    "data.eval_split=",
    "judge.",
    "grade.",
)  # with stored answers too


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "eval",
        _eval,
        about="measure accuracy, abstention and hallucination, with intervals",
        example=(
            "examples:\n"
            "  factrl eval answers.jsonl\n"
            "  factrl eval simpleqa --model SmolLM2-135M-Instruct --limit 20 --output out\n"
            "  factrl eval answers.jsonl --paper truthrl reward.wrong=-2\n"
            "  factrl eval train.jsonl --model MODEL --samples 256 sampling.temperature=1 --output out\n"
            f"benchmarks:\n{textwrap.indent(textwrap.fill(', '.join([*benchmarks(), *groups()]), 76), '  ')}"
        ),
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE|BENCH",
        help="answers to grade; with --model questions, or names of benchmarks. After them key=value: "
        "grade.extract=boxed grade.confidence=stated data.prompt=...; factrl show --settings has all",
    )
    parser.set_defaults(settings=[])
    add_options(
        parser,
        *("judge", "limit", "config", "json"),
        paper="what this reward gives to the answers in FILE; --output is a FILE.jsonl then",
        model="what answers now: a folder, a hub id, `local` or http://host:8000/v1#model",
    )
    add_option(parser, "--output FOLDER", "numbers, answers and a page; the same command goes on from there")
    add_option(parser, "--completions FILE", "grade these answers instead of asking a --model")
    add_option(
        parser,
        "--samples K",
        "answers per question: Avg@K, majority@K, and questions.jsonl with `ook` and `pass_rate`",
        type=at_least_one,
    )
    add_option(parser, "--long", "FILE asks for long answers, whose claims are checked")


def _eval(args: argparse.Namespace) -> int:
    targets = args.words
    if not targets:
        raise ConfigError(f"{args.settings[0]!r} says how a model is asked; name a FILE or a BENCH first")
    files = [word for word in targets if _is_file(word)]
    named = find(word for word in targets if word not in files)
    # Without a model, the answers in the user's own file are graded.
    asks = args.completions is None and bool(args.model or named)
    if args.paper and not asks:
        return score(args, _one_file(args, files))
    # Only the first, as it may cause the others.
    if problem := next(_problems(args, files, named, asks=asks), None):
        raise ConfigError(problem)
    job, config = _config(args, asks=asks, long=args.long or any(one.kind == "long" for one in named))
    settings, told = job.settings, job.settings.grade
    every = [*named, *(own_file(file, settings.data, long=args.long) for file in files)]
    kinds = {one.kind for one in every}
    if len({one.name for one in every}) < len(every):
        raise ConfigError(
            f"two of {', '.join(targets)} have one name; rename one, or evaluate each by itself"
        )
    if "reasoning" in kinds and not importlib.util.find_spec("math_verify"):
        raise MissingExtra("math-verify", "eval")
    # Files are read first, so that their errors come before any paid request.
    jobs = [(one, *_read(one, args, config, told.column, asks=asks)) for one in every]
    if asks:
        quiet_policy(settings.model)
    check_judge(job, rules="short" in kinds)
    extract = told.extract or job.extract
    # What the rules expect: a text that is graded as a whole may consist of sentences.
    alone = extract != "text" or bool(files and settings.paper)
    form: AnswerForm = told.form or ("short" if alone else "sentence")
    judge = graded_by(job.judge)
    model = NamedModel(open_writer) if asks else None
    verifier = job.supplier.verify() if "long" in kinds else None
    folder = Path(args.output) if args.output else None
    grader = job.supplier.grade(form, guess=not told.strict)
    tools = Tools(
        grader, extract, told.confidence == "stated", settings.data.chat, min(settings.judge.callers, 64)
    )
    graded = f"{judge} {form} {extract}" + " strict" * told.strict
    about = {**_about(args, settings), "judge": judge, "extract": extract, "form": form}
    sources = {one.name: source for one, _, source, _ in jobs}
    with results_folder(folder, about, sources) if folder else nullcontext():
        results = {
            one.name: evaluate(
                one,
                examples,
                source,
                config,
                folder,
                tools,
                graded,
                open_writer=model,
                texts=texts,
                verifier=verifier,
            )
            for one, examples, source, texts in jobs
        }
        rows = {name: row for name, (row, _) in results.items()}
        samples = {name: graded for name, (_, graded) in results.items()}
        output, page = Output(folder or Path(), about, rows, samples), None
        if folder:
            output.write()
            page = write_eval_page(output)
            if asks and settings.sampling.num_samples > 1:
                _write_questions(folder, [(one, samples[one.name]) for one in every], settings, extract)
    if args.json:
        say(output.document().rstrip())
    else:
        show_table(output_table(output))
    _tell_guessed([one for rows in samples.values() for one in rows])
    if page:
        tell(f"page: {page}")
    _report_masked(output)
    return 0


def _one_file(args: argparse.Namespace, files: Sequence[str]) -> str:
    """The file whose answers a reward scores."""
    told = [f"--{name}" for name in ("long", "samples") if getattr(args, name)]
    told += [word for word in args.settings if word.startswith("grade.") and "grade.column" not in word]
    if told or len(files) != 1:
        wrong = f"{told[0]} is not its matter" if told else f"{len(files)} files are given"
        raise ConfigError(f"--paper {args.paper} reads the answers in one FILE as its reward does; {wrong}")
    return files[0]


def _read(
    benchmark: Benchmark, args: argparse.Namespace, config: EvalConfig, column: str, *, asks: bool
) -> tuple[Sequence[Example], str, Texts | None]:
    """The questions, where they are from, and the answers where there are some."""
    examples, source = load_questions(benchmark, limit=config.limit)
    if asks:
        return examples, source, None
    if args.completions is not None:
        texts, left = stored_texts(args.completions, column, benchmark, examples)
        if left and args.limit is None:
            tell(f"{benchmark.name}: {left}")
        return examples, source, texts
    return examples, source, own_texts(benchmark.path, examples, column)


def _write_questions(
    folder: Path,
    evaluated: Sequence[tuple[Benchmark, Sequence[EvalSample]]],
    settings: EvalSettings,
    extract: str,
) -> None:
    """The questions that were answered several times, with what the model knows of them."""
    rows: dict[str, Row] = {}
    for one, samples in evaluated:
        examples = {sample.example.id: sample.example for sample in samples}
        if one.path:  # the columns of the questions as they are, which an example no longer has
            own = read_rows(one.path, one.split, one.subset)
            rows |= zip(examples, own, strict=False)
        else:
            rows |= {name: {"question": e.question, "answers": [*e.answers]} for name, e in examples.items()}
    asked = settings.data.model_dump(include={"prompt", "system", "prefill", "chat"})
    if any(not one.path for one, _ in evaluated):
        del asked["prompt"]  # each benchmark has its own
    about = {**asked, "policy": settings.model.name, "extract": extract, "factrl": __version__}
    every = [sample for one, samples in evaluated if one.kind != "long" for sample in samples]
    if every:
        tell(f"questions: {write_questions(folder, rows, every, about)}")


def _is_file(word: str) -> bool:
    """A path or a hub id, which has a slash, rather than a benchmark's name."""
    if word in benchmarks() or word in groups():
        return False
    return Path(word).exists() or "/" in word or Path(word).suffix != ""


def _problems(
    args: argparse.Namespace, files: Sequence[str], named: Sequence[Benchmark], *, asks: bool
) -> Iterator[str]:
    """Wrong combinations, before anything is read or paid for."""
    stored = args.completions is not None
    if stored and (args.model is not None or args.config is not None):
        yield "--completions are answers that exist; leave --model and --config out"
    if named and not stored and args.model is None and args.config is None:
        yield (
            "a benchmark needs either --model NAME, which answers now, or --completions FILE, the answers "
            "that it gave"
        )
    asking = [word for word in args.settings if not word.strip().startswith(_OF_STORED)]
    given = args.config and "--config"
    if asking and not args.long:
        given = asking[0]
    if given and given.startswith("reward.") and not args.paper:
        yield f"{given!r} is a knob of a reward; name the reward with --paper, or leave it out"
    if files and args.model is None and given:
        yield f"{given!r} says how a model is asked; name one with --model, or leave it out"
    if asks and args.output is None:
        yield "a model needs --output FOLDER, where its answers are kept"
    if args.output and (args.output.lower().endswith(".json") or Path(args.output).is_file()):
        yield f"--output {args.output} names a file; give a folder, as several files are written"
    if args.samples and not asks:
        yield "--samples is for answers that are given now; stored ones are as many as there are"


def _config(args: argparse.Namespace, *, asks: bool, long: bool) -> tuple[Job[EvalSettings], EvalConfig]:
    """The job, and what the benchmarks have in common."""
    first = ["data.train=-", *([] if asks else ["model.name=stored"]), *several(args.samples)]
    given = {word.partition("=")[0].strip().rpartition(".")[2] for word in args.settings}
    unused = partial(unread_in_asking, long=long)
    job = read_job(args.config, [*first, *as_overrides(args)], EvalSettings, unused)
    settings, told = job.settings, job.settings.grade
    if asks and told.column:
        raise ConfigError("grade.column names stored answers, but a model gives new ones; leave one out")
    if asks and told.confidence == "agreement" and settings.sampling.num_samples < 2:
        raise ConfigError("grade.confidence=agreement compares a question's samples; add --samples K, e.g. 8")
    return job, EvalConfig(
        settings,
        own_prompt=args.config is not None or "prompt" in given,
        own_length=args.config is not None or "max_completion_length" in given,
        limit=args.limit,
        confidence=told.confidence,
    )


def _about(args: argparse.Namespace, settings: AskSettings) -> Mapping[str, Any]:
    """The settings that the numbers depend on, besides the benchmarks themselves."""
    return {
        "factrl": __version__,
        "model": args.model or settings.model.name,
        "completions": args.completions,
        "judge": None,
        "seed": settings.run.seed,
        "sampling": settings.sampling.model_dump(),
        "system": settings.data.system,
        "chat": settings.data.chat,
        **{name: getattr(args, name) for name in _RECORDED},
    }


def _report_masked(output: Output) -> None:
    """Report the answers that could not be graded.

    Raises:
        TooManyMasked: no answer of some benchmark could be graded.
    """
    none = []
    for name, row in output.benchmarks.items():
        masked, total = sum(row["masked"].values()), row["answers"]
        if masked:
            tell(f"{name}: {masked} of {total} answers could not be graded ({tally(row['masked'])})")
            none += [name] * (masked == total)
    if none:
        raise TooManyMasked(f"none of the answers of {', '.join(none)} could be graded")


def _tell_guessed(samples: Sequence[EvalSample]) -> None:
    """Say how many grades are guesses, and what decides them."""
    guessed = sum(one.grade is not None and one.grade.how == "rules" for one in samples)
    if guessed:
        tell(
            f"{guessed} of {len(samples)} answers were graded by guess (people agree with 92 % of such "
            "guesses): a --judge decides them, grade.strict=true leaves them ungraded"
        )
