"""`factrl eval`: benchmarks by name or files of your own, for a model or for stored answers."""

from __future__ import annotations

import argparse
import importlib.util
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, get_args

from factrl import __version__
from factrl.errors import ConfigError, MissingExtra, TooManyMasked
from factrl.evals.catalogue import Benchmark, benchmarks, find, groups, load_questions, own_file
from factrl.evals.metrics import Number
from factrl.evals.numbers import check_parts
from factrl.evals.paired import check_questions
from factrl.evals.report import output_table, write_eval_page
from factrl.evals.samples import EvalSample, Output, read_output, results_folder
from factrl.evals.shortqa import Extract, Texts, Tools
from factrl.evals.suite import (
    EvalConfig,
    NamedModel,
    evaluate,
    gives_likelihoods,
    own_texts,
    several,
    stored_texts,
)
from factrl.job import Job, read_job, unread_in_asking
from factrl.llm import LLM
from factrl.prepare import few_shot, read_demonstrations
from factrl.rewards.grading import AnswerForm, Grader, graded_by
from factrl.runs.settings import AskSettings
from factrl.text.escape import one_line
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
from .report import win_rates
from .score import score
from .terminal import say, show_table, tally, tell

_RECORDED = (
    *("evidence", "confidence", "limit", "settings", "column", "config", "long", "by", "baseline"),
    *("reasoning", "demonstrations"),
)

_OF_GRADES = ("extract", "form", "by", "baseline", "long", "evidence", "reasoning", "confidence", "samples")
_OF_STORED = ("data.columns.", "data.subset=", "data.eval_split=", "judge.")  # read with stored answers too


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "eval",
        _eval,
        about="measure accuracy, abstention and hallucination, with intervals",
        example=(
            "examples:\n"
            "  factrl eval simpleqa truthfulqa gsm8k --model MODEL --limit 100 --output out\n"
            "  factrl eval answers.jsonl --judge http://localhost:8000/v1#Qwen/Qwen3-8B\n"
            "  factrl eval answers.jsonl --paper truthrl reward.wrong=-2 --output scores.jsonl\n"
            "  factrl eval questions.jsonl --model runs/R/model --config runs/R/config.toml --output R\n"
            f"benchmarks:\n{textwrap.indent(textwrap.fill(', '.join([*benchmarks(), *groups()]), 76), '  ')}"
        ),
    )
    parser.add_argument(
        "words",
        nargs="+",
        metavar="FILE|BENCH",
        help="answers to grade; with --model, questions to answer; or names of benchmarks. After them "
        "key=value, how FILE is read, e.g. data.columns.question=q, and how a --model is asked, e.g. "
        "data.prompt=... train.max_completion_length=64; factrl show --settings lists them",
    )
    parser.set_defaults(settings=[])
    add_options(
        parser,
        *("judge", "column", "limit", "config", "json"),
        paper="what this reward gives to the answers in FILE: terms, states and causes; --output is a "
        "FILE.jsonl then",
        model="what answers now: a folder, a hub id, a policy of `factrl models list`, `local` or "
        "http://host:8000/v1#model",
    )
    parser.add_argument(
        "--extract",
        choices=get_args(Extract),
        help=r"where the answer is: all but the reasoning, the last \boxed{}, the last <answer> "
        "(default: text; with --config as its reward does)",
    )
    parser.add_argument(
        "--form",
        choices=get_args(AnswerForm),
        help="what counts as right: short, a text that equals an accepted answer; sentence, one that "
        "contains it (default: sentence; short with --extract, or for a FILE with the --config of a reward)",
    )
    add_option(
        parser, "--strict-rules", "leave ungraded what only rules could guess, where there is no --judge"
    )
    add_option(parser, "--by COLUMN", "also the rows of each value, e.g. question_type")
    add_option(
        parser,
        "--output FOLDER",
        "numbers, answers and a page; each answer is saved when it is written, and the same command "
        "goes on from there; may be left out for answers in FILE",
    )
    add_option(
        parser,
        "--baseline FOLDER",
        "evaluation of the same prompts for long answers: also how often the --judge prefers these "
        "answers to those (50 for itself)",
    )
    add_option(parser, "--completions FILE", "grade these answers instead of asking a --model")
    add_option(
        parser,
        "--demonstrations FILE",
        "questions with answers that are shown first, each in the words of data.prompt; for a base model "
        "with data.chat=false",
    )
    add_option(parser, "--samples K", "answers per question: Avg@K and majority@K", type=at_least_one)
    add_option(
        parser,
        "--long",
        "FILE asks for long answers: their claims are checked, against the evidence of its rows",
    )
    add_option(parser, "--evidence", "show the documents that come with a question")
    add_option(
        parser,
        "--reasoning",
        "also the share of true steps of the <think> block, where a question has evidence",
    )
    sure = parser.add_mutually_exclusive_group()
    for option, source, about in (
        ("--confidence", "stated", "confidence: what the model states when it is asked"),
        ("--agreement", "agreement", "confidence: the share of K samples with the commonest answer"),
        ("--likelihood", "likelihood", "confidence: the probabilities of the tokens that it writes"),
    ):
        sure.add_argument(option, dest="confidence", action="store_const", const=source, help=about)


def _eval(args: argparse.Namespace) -> int:
    targets = args.words
    if not targets:
        raise ConfigError(f"{args.settings[0]!r} says how a model is asked; name a FILE or a BENCH first")
    files = [word for word in targets if _is_file(word)]
    named = find(word for word in targets if word not in files)
    # Without a model, the answers in the user's own file are graded.
    asks = args.completions is None and bool(args.model or named)
    if args.paper and not asks and args.completions is None:
        return score(args, _one_file(args, files))
    # Only the first, as it may cause the others.
    if problem := next(_problems(args, files, named, asks=asks), None):
        raise ConfigError(problem)
    job, config = _config(args, asks=asks, long=args.long or any(one.kind == "long" for one in named))
    settings = config.settings
    benchmarks = [*named, *(own_file(file, settings.data, long=args.long) for file in files)]
    kinds = {one.kind for one in benchmarks}
    if len({one.name for one in benchmarks}) < len(benchmarks):
        raise ConfigError(
            f"two of {', '.join(targets)} have one name; rename one, or evaluate each by itself"
        )
    if "reasoning" in kinds and not importlib.util.find_spec("math_verify"):
        raise MissingExtra("math-verify", "eval")
    # Files are read first, so that their errors come before any paid request.
    jobs = [(one, *_read(one, args, config, asks=asks)) for one in benchmarks]
    with_evidence = [any(one.evidence for one in examples) for _, examples, *_ in jobs]
    bare = [file for file, any_has in zip(files, with_evidence[len(named) :], strict=True) if not any_has]
    short = any(held and one.kind == "short" for one, held in zip(benchmarks, with_evidence, strict=True))
    if args.reasoning and (bare or not short):
        raise ConfigError(
            f"--reasoning holds steps against the evidence of their question, and no short question of "
            f"{', '.join(bare or targets)} has any; name its column with data.columns.evidence=…, or leave "
            "it out"
        )
    if asks:
        quiet_policy(settings.model)
    check_judge(job, rules="short" in kinds)
    long = {one.name: examples for one, examples, *_ in jobs if one.kind == "long"}
    supplier, baseline = job.supplier, _baseline(args, long, job.judge)
    extract = args.extract or job.extract
    # What the rules expect: a text that is graded as a whole may consist of sentences.
    form: AnswerForm = args.form or (
        "short" if extract != "text" or (files and settings.paper) else "sentence"
    )
    judge = graded_by(job.judge)
    model = NamedModel(open_writer) if asks else None
    verifier = supplier.verify() if "long" in kinds or args.reasoning else None
    folder = Path(args.output) if args.output else None
    stated = args.confidence == "stated"
    grader = supplier.grade(form, guess=not args.strict_rules)
    tools = Tools(grader, extract, stated, settings.data.chat, settings.judge.callers)
    graded = f"{judge} {form} {extract}" + " strict" * args.strict_rules
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
                model=model,
                texts=texts,
                verifier=verifier,
            )
            for one, examples, source, texts in jobs
        }
        rows = {name: row for name, (row, _) in results.items()}
        samples = {name: graded for name, (_, graded) in results.items()}
        output, page = Output(folder or Path(), about, rows, samples), None
        if args.baseline and job.judge:
            _add_win_rates(output, baseline or output, job.judge, settings.judge.callers)
        if folder:
            output.write()
            page = write_eval_page(output)
    if args.json:
        say(output.document().rstrip())
    else:
        show_table(output_table(output))
    if form == "short" and job.judge is None:
        _tell_sentences([one for rows in samples.values() for one in rows])
    _tell_guessed([one for rows in samples.values() for one in rows])
    if page:
        tell(f"page: {page}")
    _report_masked(output)
    return 0


def _one_file(args: argparse.Namespace, files: Sequence[str]) -> str:
    """The file whose answers a reward scores."""
    told = [name for name in _OF_GRADES if getattr(args, name)]
    if told or len(files) != 1:
        wrong = f"--{told[0]} is not its matter" if told else f"{len(files)} files are given"
        raise ConfigError(f"--paper {args.paper} reads the answers in one FILE as its reward does; {wrong}")
    return files[0]


def _baseline(
    args: argparse.Namespace, questions: Mapping[str, Sequence[Example]], judge: LLM | None
) -> Output | None:
    """The evaluation that answers are compared with; None where there is none, or it is this one.

    Args:
        questions: of long answers, by benchmark.

    Raises:
        ConfigError: nobody compares, or no benchmark of long answers is in both.
        DataError: there is no such evaluation, or it is of other questions with the same ids.
    """
    if not args.baseline:
        return None
    if judge is None:
        raise ConfigError(f"--baseline {args.baseline} needs a --judge, which says whose answers are better")
    itself = args.output and Path(args.output).resolve() == Path(args.baseline).resolve()
    baseline = None if itself else read_output(args.baseline)
    both = questions.keys() & (questions if baseline is None else baseline.benchmarks).keys()
    if not both:
        raise ConfigError(f"--baseline {args.baseline} has no long answers to the prompts that are evaluated")
    if baseline is not None:
        for name in sorted(both):
            check_questions(name, (one.example for one in baseline.samples[name]), questions[name])
    return baseline


def _add_win_rates(output: Output, baseline: Output, judge: LLM, workers: int) -> None:
    """How often the answers are preferred to the baseline's, in both orders, among the numbers.

    Against itself the rate is a half, and no judge is asked.
    """
    names = [n for n, row in output.benchmarks.items() if row["kind"] == "long" and n in baseline.benchmarks]
    about = f"answers preferred to those of {baseline.about.get('model')}; a tie counts half"
    if baseline is output:
        for name in names:
            half = Number(0.5, 0.5, 0.5, output.benchmarks[name]["questions"], about, "higher")
            output.benchmarks[name]["numbers"]["win_rate"] = asdict(half)
        return
    for name, won in win_rates(judge, baseline, output, names, workers=workers).items():
        if won.masked:
            tell(f"{name}: {sum(won.masked.values())} pairs could not be compared ({tally(won.masked)})")
        if won.rate is not None:
            n = won.wins + won.ties + won.losses
            number = Number(**asdict(won.rate), n=n, about=about, better="higher")
            output.benchmarks[name]["numbers"]["win_rate"] = asdict(number)


def _read(
    benchmark: Benchmark, args: argparse.Namespace, config: EvalConfig, *, asks: bool
) -> tuple[Sequence[Example], str, Texts | None]:
    """The questions, where they are from, and the answers where there are some."""
    examples, source = load_questions(benchmark, limit=config.limit, evidence=config.evidence)
    check_parts(examples, config.by)
    if asks:
        return examples, source, None
    if args.completions is not None:
        texts, left = stored_texts(args.completions, args.column, benchmark, examples)
        if left and args.limit is None:
            tell(f"{benchmark.name}: {left}")
        return examples, source, texts
    return examples, source, own_texts(benchmark.path, examples, args.column)


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
    if asking and not (args.long or args.reasoning):
        given = asking[0]
    if files and args.model is None and given:
        yield f"{given!r} says how a model is asked; name one with --model, or leave it out"
    if asks and args.column:
        yield "--column names stored answers, but a model gives new ones; leave one of them out"
    if asks and args.output is None:
        yield "a model needs --output FOLDER, where its answers are kept"
    if args.output and (args.output.lower().endswith(".json") or Path(args.output).is_file()):
        yield f"--output {args.output} names a file; give a folder, as several files are written"
    if args.demonstrations and not asks:
        yield "--demonstrations are shown to a --model; stored answers are there already"
    if args.samples and not asks:
        yield "--samples is for answers that are given now; stored ones are as many as there are"


def _config(args: argparse.Namespace, *, asks: bool, long: bool) -> tuple[Job, EvalConfig]:
    """The job, and what the benchmarks have in common."""
    first = ["data.train=-", *([] if asks else ["model.name=stored"]), *several(args.samples)]
    given = {word.partition("=")[0].strip().rpartition(".")[2] for word in args.settings}
    unused = partial(unread_in_asking, long=long, reasoning=args.reasoning)
    job = read_job(args.config, [*first, *as_overrides(args)], AskSettings, unused)
    settings = job.settings
    if asks and args.confidence == "agreement" and settings.sampling.num_samples < 2:
        raise ConfigError("--agreement compares a question's samples; add --samples K, e.g. 8")
    if args.confidence == "likelihood" and not (asks and gives_likelihoods(settings)):
        raise ConfigError("--likelihood needs a --model in this process: a folder, a hub id or a policy")
    own_prompt = args.config is not None or "prompt" in given
    if args.demonstrations:
        if not own_prompt:
            raise ConfigError("--demonstrations are written as data.prompt=… says; give it, or a --config")
        prompt = few_shot(settings.data.prompt, read_demonstrations(args.demonstrations))
        data = settings.data.model_copy(update={"prompt": prompt})
        settings = settings.model_copy(update={"data": data})
    return job, EvalConfig(
        settings,
        own_prompt=own_prompt,
        own_length=args.config is not None or "max_completion_length" in given,
        limit=args.limit,
        evidence=args.evidence,
        confidence=args.confidence,
        by=args.by or "",
        reasoning=args.reasoning,
    )


def _about(args: argparse.Namespace, settings: AskSettings) -> dict[str, Any]:
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
            "guesses): a --judge decides them, --strict-rules leaves them ungraded"
        )


def _tell_sentences(samples: Sequence[EvalSample]) -> None:
    """Name answers that are wrong only because a sentence stands around them."""
    grader = Grader(form="sentence")
    refused = [
        one
        for one in samples
        if one.label == "incorrect"
        and one.example.answers
        and grader(one.example.question, one.answer, one.example.answers).label == "correct"
    ]
    if refused:
        shown = "; ".join(one_line(one.answer)[:60] for one in refused[:3])
        are = "wrong answer would" if len(refused) == 1 else "wrong answers would"
        tell(f"{len(refused)} {are} be right as sentences (--form sentence): {shown}")
