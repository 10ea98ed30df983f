"""`factrl prepare KIND`: what training reads."""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from factrl.errors import ConfigError, TooManyMasked
from factrl.evals.catalogue import benchmarks
from factrl.job import open_judge, read_job
from factrl.llm import preflight
from factrl.llm.models import cache_folder
from factrl.llm.store import Store, kept
from factrl.papers.threshold import VALUES, penalty
from factrl.prepare import FEW_SHOT, ZERO_SHOT, Sieve, few_shot, normalised, read_demonstrations
from factrl.prepare.dataset import (
    FILES,
    JOURNAL,
    Target,
    convert,
    lines_of,
    write_dataset,
    write_rows,
)
from factrl.prepare.entities import entity_rows
from factrl.prepare.klcf import open_preparation
from factrl.prepare.mix import FACTS, MATHEMATICS, mix_fspo, mix_unanswerable, unanswerable
from factrl.prepare.prompts import journal_of, write_prompts
from factrl.prepare.retrieve import retrieve
from factrl.runs.config import load_settings
from factrl.runs.data import ColumnName, columns_of, load_examples, load_training
from factrl.runs.disk import Journal, check_begun, check_free, nothing, write_whole
from factrl.runs.progress import Progress
from factrl.runs.rows import Row, read_rows
from factrl.runs.settings import AskSettings, RunSettings
from factrl.studies import StartSettings
from factrl.studies.world import PARTS, Task, open_world
from factrl.text.escape import one_line
from factrl.train.answering import open_writer
from factrl.types import Example
from factrl.verifier import open_search

from .options import (
    Verbs,
    add_option,
    add_options,
    add_seed,
    add_settings,
    add_verb,
    as_overrides,
    at_least_one,
    between,
    check_place,
    quiet_policy,
    warn_of_weak,
    within,
)
from .terminal import say, tally, tell

_LENGTH = 512  # tokens of an answer that is taken apart; a training run's 2,048 are for thoughts too
_TEMPERATURE = {"klcf": 0.7, "prompts": 1.0}  # ours: KLCF's is lost, the other is not in its paper
_ASKED = "folder, hub id, local, or http://host/v1#model"
_QUESTIONS = "questions, in any form that factrl train reads"
_WORLD_FILES: Mapping[str, Task] = {"": "reasoned", "profiles-": "profile"}


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    about = "make what training reads: datasets, prompts, passages, thresholds"
    parser = add_verb(verbs, "prepare", _explain, about=about, example="")
    for add in (
        *(_add_questions, _add_klcf, _add_entities, _add_fspo, _add_mix),
        *(_add_thresholds, _add_retrieve, _add_prompts, _add_convert),
    ):
        add(verbs)
    kinds = {each.dest: each.help for each in verbs._choices_actions if each.dest.startswith("prepare ")}
    lines = [f"  factrl {name:<20}{about}" for name, about in kinds.items()]
    parser.epilog = "\n".join(["kinds, each with an example in its --help:", *lines])
    choices = [name.split()[1] for name in kinds]
    parser.add_argument("kind", metavar="KIND", choices=choices, help="what is made")


def _explain(args: argparse.Namespace) -> int:
    raise ConfigError(f"KIND stands before all else: factrl prepare {args.kind} …")


def _add_klcf(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare klcf",
        _klcf,
        about="make KLCF's dataset: checklists and truthfulness rows",
        example=(
            "examples:\n"
            "  factrl prepare klcf prompts.jsonl --model SmolLM2-135M-Instruct --judge local \\\n"
            "      --output klcf verifier.index=wiki train.max_completion_length=160\n"
            "  factrl prepare klcf prompts.jsonl --model http://host:8000/v1#Qwen2.5-14B --samples 4 \\\n"
            "      --demonstrations shots.jsonl --judge http://host:8001/v1#Qwen2.5-72B-Instruct \\\n"
            "      --output klcf --against simpleqa.jsonl verifier.index=wiki\n"
            "The same command again goes on where it was stopped, and asks nothing twice. Without --judge,\n"
            "claims are found by rule and no item is dropped for being unimportant.\n"
            "exit code: 0 there is a dataset; 2 something must be changed first; 3 no question is left"
        ),
    )
    parser.add_argument("file", metavar="PROMPTS", help="rows with a question, and maybe topic or evidence")
    judge = "finds claims, judges them and chooses the items; or local"
    add_options(parser, "samples", "limit", "seed", "config", model=f"who answers: {_ASKED}", judge=judge)
    add_option(parser, "--output DIR", "folder for the dataset and its journal", required=True)
    add_option(
        parser, "--demonstrations FILE", "questions with answers that are shown first; none by default"
    )
    _add_against(parser, "any other setting, e.g. verifier.index=wiki train.max_completion_length=256")


def _add_prompts(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare prompts",
        _prompts,
        about="have a model write new prompts that ask for facts",
        example=(
            "example:\n"
            "  factrl prepare prompts --model http://host:8000/v1#Llama-4-Maverick --count 7000 \\\n"
            "      --demonstrations longfact.jsonl --like wildchat.jsonl --output prompts.jsonl\n"
            "The same command again goes on where it was stopped."
        ),
    )
    add_options(parser, "seed", model=f"who writes: {_ASKED}")
    add_option(parser, "--count N", "prompts that are wanted", required=True, type=at_least_one)
    add_option(
        parser, "--demonstrations FILE", "prompts that ask for facts; each call shows two", required=True
    )
    add_option(parser, "--like FILE", "prompts as users write them; each call shows four", required=True)
    add_option(parser, "--output FILE.jsonl", "where they go; journal beside it", required=True)
    _add_against(parser, "any other setting, e.g. sampling.temperature=0.8")


def _add_entities(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare entities",
        _entities,
        about="make KnowRL's rows: a model names the entities",
        example=(
            "examples:\n"
            "  factrl prepare entities google-research-datasets/nq_open --judge openai/gpt-4o \\\n"
            "      --output nq.jsonl --limit 2000\n"
            "  factrl prepare entities stanfordnlp/web_questions --judge openai/gpt-4o --output wq.jsonl\n"
            "  factrl prepare entities ComplexWebQuestions.json --judge openai/gpt-4o --output cwq.jsonl\n"
            "writes id, question, answers and title, the entities parted by semicolons.\n"
            "What was answered is kept: where some were left out, remove the file and run it again.\n"
            "then: cat nq.jsonl wq.jsonl cwq.jsonl > train.jsonl; factrl train knowrl --data train.jsonl …"
        ),
    )
    parser.add_argument("file", metavar="FILE", help=f"{_QUESTIONS}, with accepted answers")
    add_options(parser, "limit", judge="names the entities, GPT-4o in the paper; or local")
    add_option(parser, "--output FILE.jsonl", "the rows that `factrl train knowrl` reads", required=True)
    _add_against(parser, "columns or the judge's, e.g. data.columns.question=q")


def _add_retrieve(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare retrieve",
        _retrieve,
        about="put passages into the rows of questions",
        example=(
            "examples:\n"
            "  factrl index wikipedia.jsonl --out wiki\n"
            "  factrl prepare retrieve questions.jsonl --index wiki --k 50 --output retrieved.jsonl\n"
            "  factrl prepare retrieve questions.jsonl --index wiki --k 5 --distractors 3 --withhold 0.3 \\\n"
            "      --output retrieved.jsonl verifier.embedder=intfloat/e5-base-v2\n"
            "  factrl prepare retrieve crag.jsonl --withhold 0.3 --output withheld.jsonl\n"
            "then: factrl train truthrl:retrieval --data retrieved.jsonl …\n"
            "      factrl eval retrieved.jsonl --by helps …"
        ),
    )
    parser.add_argument("file", metavar="FILE", help=_QUESTIONS)
    add_option(parser, "--k K", "passages for a question (50, as TruthRL)", type=at_least_one, default=50)
    about = "passages of other questions that are mixed in, without an accepted answer (0)"
    add_option(parser, "--distractors N", about, type=within(0, 1000), default=0)
    about = "share of the questions that lose every passage with an accepted answer (0)"
    add_option(parser, "--withhold SHARE", about, type=between(0, 1), default=0.0)
    add_options(parser, "limit", "seed")
    add_option(
        parser,
        "--index FOLDER",
        "an index that `factrl index` made, for questions without passages of their own",
    )
    add_option(
        parser,
        "--output FILE.jsonl",
        "the rows with passages in `evidence`, and in `helps` whether one holds an answer",
        required=True,
    )
    _add_against(parser, "columns or a ranking, e.g. data.columns.question=q verifier.embedder=NAME")


def _add_thresholds(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare thresholds",
        _thresholds,
        about="say in each row how sure an answer has to be",
        example=(
            "examples:\n"
            "  factrl prepare thresholds questions.jsonl --output train.jsonl\n"
            "  factrl prepare thresholds held_out.jsonl --each --output asked.jsonl\n"
            "writes the columns `threshold` and `penalty`, what a wrong answer costs, t / (1 - t).\n"
            "then: factrl train threshold --data train.jsonl …, factrl eval asked.jsonl --by threshold …"
        ),
    )
    parser.add_argument("file", metavar="FILE", help=_QUESTIONS)
    of = f"from 0 up to 1; one is drawn for each question ({' '.join(f'{t:g}' for t in VALUES)})"
    add_option(parser, "--of T", of, nargs="+", type=float, default=VALUES)
    add_option(parser, "--each", "each question at each threshold, to evaluate")
    add_options(parser, "limit", "seed")
    add_option(parser, "--output FILE.jsonl", "the rows with their thresholds", required=True)
    _add_against(parser, "columns, e.g. data.columns.question=q")


def _add_mix(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare mix",
        _mix,
        about="mix unanswerable questions into others",
        example=(
            "examples:\n"
            "  factrl prepare mix questions.jsonl --unanswerable selfaware.jsonl --output train.jsonl\n"
            "  factrl prepare mix mathematics.jsonl --unanswerable lime-nlp/Synthetic_Unanswerable_Math \\\n"
            "      --column unanswerable_question --share 0.1 --output train.jsonl\n"
            "then: factrl train truthrl --data train.jsonl …, or factrl probe train.jsonl … first\n"
            "All of QUESTIONS are kept, and the order is drawn. A tenth is the share in The Hallucination\n"
            "Tax of Reinforcement Finetuning (arXiv:2505.13988)."
        ),
    )
    parser.add_argument("file", metavar="QUESTIONS", help=f"{_QUESTIONS}, with accepted answers")
    about = "share of the rows written that are unanswerable (0.1)"
    add_option(parser, "--share SHARE", about, type=between(0.001, 0.9), default=0.1)
    add_options(parser, "limit", "seed")
    add_option(
        parser,
        "--unanswerable FILE",
        "questions that nobody can answer: rows with `answerable` false or, where they have no such "
        "column, without an answer; others are left out",
        required=True,
    )
    add_option(
        parser, "--column NAME", "the column of FILE with the question; then answers beside it do not count"
    )
    add_option(
        parser,
        "--output FILE.jsonl",
        "the rows, the unanswerable ones with `answerable` false",
        required=True,
    )
    _add_against(parser, "columns of QUESTIONS, e.g. data.columns.question=q")


def _add_convert(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare convert",
        _convert,
        about="write questions as TRL, verl or OpenRLHF read them",
        example=(
            "examples:\n"
            "  factrl prepare convert q.jsonl --to verl --config truthrl --output t.parquet\n"
            "  factrl prepare convert klcf/train.jsonl --to trl paper=klcf --output data/train.parquet"
        ),
    )
    parser.add_argument("file", metavar="FILE", help=_QUESTIONS)
    parser.add_argument("--to", required=True, choices=get_args(Target), help="the trainer")
    add_options(parser, "config", "limit")
    add_option(parser, "--output FILE", ".parquet or .jsonl", required=True)
    _add_against(parser, "prompt and columns, e.g. paper=truthrl data.system=... data.columns.question=q")


def _add_fspo(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare fspo",
        _fspo,
        about="mix FSPO's questions: HotpotQA, 2Wiki and mathematics",
        example=(
            "examples:\n"
            "  factrl prepare fspo hotpotqa 2wiki simplerl.jsonl --output train.jsonl\n"
            "  factrl prepare fspo hotpotqa 2wiki --facts 500 --seed 1 --against train.jsonl \\\n"
            "      --output held_out.jsonl\n"
            "then: factrl train fspo:mixed --data train.jsonl …\n"
            "      factrl study fspo --full --train train.jsonl --held-out held_out.jsonl …\n"
            "Of the first two the gold paragraphs are kept (supporting_facts), as in the release."
        ),
    )
    source = "a file as released or with a column `evidence`, or {} for the hub's training split"
    parser.add_argument("hotpotqa", metavar="HOTPOTQA", help=source.format("hotpotqa"))
    parser.add_argument("wiki", metavar="2WIKI", help=source.format("2wiki"))
    about = "questions and answers without evidence, all of which are taken; the paper's are SimpleRL's 8,523"
    parser.add_argument(MATHEMATICS, metavar="MATHEMATICS", nargs="?", help=about)
    about = f"questions of the first two, drawn in the release's proportion (default: {sum(FACTS)})"
    add_option(parser, "--facts N", about, type=at_least_one, default=sum(FACTS))
    add_seed(parser, "seed of what is drawn (default: 0)")
    add_option(parser, "--output FILE.jsonl", "the rows, in an order drawn", required=True)
    _add_against(parser)


def _add_questions(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare questions",
        _questions,
        about="write the studies' questions on countries and cities",
        example="example:\n  factrl prepare questions --output questions\n"
        "writes warm.jsonl, train.jsonl and test.jsonl, each about other entities, with what is known of an\n"
        "entity as evidence; profiles-warm.jsonl and so on, which ask for all that is known of an entity,\n"
        "with its facts as checklist; in both of warm a column `reasoned`, a text as the studies teach it,\n"
        "of whose answers a share declines, at random; and, without --table, facts.csv, which is for\n"
        "verifier.judge=table:facts.csv and factrl study --table",
    )
    add_option(parser, "--output DIR", "folder for the files", required=True)
    add_option(parser, "--table FILE", "your own facts: entity,relation,value")
    add_seed(parser, "seed of the split (default: 0)")


def _add_against(parser: argparse.ArgumentParser, settings: str = "") -> None:
    """`--against`, and maybe settings with this help."""
    about = "an evaluation set, file or folder, whose questions are left out; may be repeated"
    add_option(parser, "--against EVAL", about, action="append", default=[])
    if settings:
        add_settings(parser, settings)


def _klcf(args: argparse.Namespace) -> int:
    folder = Path(args.output)
    check_begun(folder / JOURNAL, *(folder / name for name in FILES))
    shown = read_demonstrations(args.demonstrations) if args.demonstrations else []
    template = FEW_SHOT if shown else ZERO_SHOT
    overrides = [f"data.train={args.file}", *as_overrides(args)]
    settings = load_settings(AskSettings, args.config, overrides, _defaults("klcf", template))
    template, own = settings.data.prompt, settings.data.prompt in (ZERO_SHOT, FEW_SHOT)
    examples, contamination = _read(args, settings)
    data = settings.data.model_copy(update={"prompt": few_shot(template, shown)})
    settings = settings.model_copy(update={"data": data})
    quiet_policy(settings.model)
    work = open_preparation(settings, examples, template if shown else "")
    warn_of_weak(work.verifier)
    if work.chooser is None:
        tell("No --judge: items are not filtered by importance; only equal ones are one.")
    with Journal(folder / JOURNAL, work.head()) as journal:
        prepared = work.run(examples, journal)
        by = "factrl's own; the paper's is lost" if own else "given"
        about = work.about(prompts=args.file, prompt_by=by, contamination=contamination)
        counts = write_dataset(folder, prepared, about, settings.run.seed)
    tell("asked now: " + tally({kind: work.requests[kind] for kind in ("samples", "checks", "choices")}))
    names = ("claims", "supported", "refuted", "unknown", "unjudged", "questions", "checklist_items")
    tell(tally({name.replace("_", " "): counts[name] for name in names}) + "; about.json has all counts")
    if counts["left_out"]:
        _tell_left_out(counts, prepared)
    if not counts["questions"]:
        raise TooManyMasked(
            f"none of the {len(prepared)} questions has a checklist ({tally(counts['left_out'])})"
        )
    say(str(folder / "train.jsonl"))
    return 0


def _prompts(args: argparse.Namespace) -> int:
    path = Path(args.output)
    check_place("--output", path, ".jsonl")
    check_begun(journal_of(path), path)
    overrides = ["data.train=none", *as_overrides(args)]
    settings = load_settings(AskSettings, None, overrides, _defaults("prompts", "{question}"))
    groups = [load_examples(name, require_answers=False) for name in (args.demonstrations, args.like)]
    sieve = Sieve.read(args.against)
    quiet_policy(settings.model)
    made = write_prompts(open_writer(settings), settings, groups, args.count, path, sieve)
    tell(f"{made.tries} tries: " + tally(made.outcomes))
    if len(made.rows) < args.count:
        tell(
            f"only {len(made.rows)} of {args.count} prompts; more demonstrations or another "
            "sampling.temperature give others (with another --output)"
        )
    if not made.rows:
        raise TooManyMasked(f"no reply held a prompt ({tally(made.outcomes)})")
    say(args.output)
    return 0


def _entities(args: argparse.Namespace) -> int:
    check_place("--output", Path(args.output), ".jsonl", may_replace=nothing)
    settings = _settings(args)
    judge = open_judge(settings.judge)
    if judge is None:
        raise ConfigError("prepare entities needs --judge: the model that names the entities")
    examples, _ = _read(args, settings, require_answers=True)
    preflight(judge)
    store = Store(cache_folder() / "verdicts.db") if settings.verifier.cache else None
    with Progress("entities", len(examples)) as progress:
        rows, left_out = entity_rows(
            kept(judge, store), examples, callers=settings.judge.callers, on_done=progress.advance
        )
    if not rows:
        raise TooManyMasked(f"none of the {len(examples)} questions has entities ({tally(left_out)})")
    return _write(args, rows, f"{len(rows)} rows; {tally(left_out) or 'none'} left out")


def _retrieve(args: argparse.Namespace) -> int:
    settings = _settings(args)
    search, pairs = open_search(index=args.index, embedder=settings.verifier.embedder), _rows(args, settings)
    with Progress("retrieve", len(pairs)) as progress:
        rows, counts = retrieve(
            pairs,
            search,
            args.k,
            distractors=args.distractors,
            withhold=args.withhold,
            seed=settings.run.seed,
            column=settings.data.columns.get("evidence") or "evidence",
            on_done=progress.advance,
        )
    note = (
        f"{len(rows)} rows; {counts['own']} had evidence already, {counts['none']} have none, "
        f"{counts['withheld']} lost what holds an answer; in {counts['helps']} a passage holds an answer"
    )
    return _write(args, rows, note)


def _thresholds(args: argparse.Namespace) -> int:
    costs, rows, settings = {t: f"{penalty(t):g}" for t in args.of}, [], _settings(args)
    for row, example in _rows(args, settings):
        draw = random.Random(f"{settings.run.seed} {example.id}")
        for t in costs if args.each else [draw.choice([*costs])]:
            name = f"{example.id}@{t:g}" if args.each else example.id
            rows.append({**row, "id": name, "threshold": t, "penalty": costs[t]})
    return _write(args, rows)


def _mix(args: argparse.Namespace) -> int:
    settings, file = _settings(args), args.unanswerable
    questions = load_training(settings.data, limit=args.limit)
    columns: dict[ColumnName, str] = {"question": args.column} if args.column else {}
    others = load_examples(file, columns=columns, require_answers=False)
    found = unanswerable(others, every=bool(args.column))
    answered = {normalised(one.question) for one in questions}
    pool = {one.id: one for one in found if normalised(one.question) not in answered}
    if twice := len(found) - len(pool):
        tell(f"{twice} of {len(found)} unanswerable questions are in {args.file} too, and left out")
    if not found:
        raise ConfigError(f"{file}: each row has an accepted answer, or an `answerable` that is not false")
    kept, _ = _sifted(args, [*questions, *pool.values()])
    known = [one for one in kept if one.id not in pool]
    unknown = [one for one in kept if one.id in pool]
    mixed, count = mix_unanswerable(known, unknown, args.share, settings.run.seed, file)
    empty = (None, "", [])
    rows = ({**one.meta, **{k: v for k, v in columns_of(one).items() if v not in empty}} for one in mixed)
    return _write(args, rows, f"{len(mixed)} rows, {count} of them unanswerable")


def _fspo(args: argparse.Namespace) -> int:
    check_place("--output", Path(args.output), ".jsonl")
    files = {"hotpotqa": args.hotpotqa, "2wikimultihopqa": args.wiki, MATHEMATICS: args.mathematics}
    sources = {name: (file, _released(file)) for name, file in files.items() if file}
    rows, counts = mix_fspo(sources, args.facts, args.seed, Sieve.read(args.against))
    note, facts = f"{len(rows)} rows ({tally(counts)})", len(rows) - counts.get(MATHEMATICS, 0)
    if facts < args.facts:
        note += f"\nonly {facts} of {args.facts} questions with evidence; give more, or a lower --facts"
    return _write(args, rows, note)


def _released(source: str) -> Iterator[Row]:
    """The rows of a benchmark's training split, or of a file."""
    named = benchmarks().get(source)
    return read_rows(named.hub, "train", named.subset) if named and named.hub else read_rows(source)


def _questions(args: argparse.Namespace) -> int:
    world, folder, decline = open_world(args.table, args.seed), Path(args.output), StartSettings().decline
    contents = {
        folder / f"{before}{part}.jsonl": lines_of(world.rows(task, part, args.seed, decline=decline))
        for before, task in _WORLD_FILES.items()
        for part in PARTS
    }
    if not args.table:  # a table of the user's is there already, and could hold what a spreadsheet would run
        contents[folder / "facts.csv"] = world.table.to_csv()
    for path, content in contents.items():  # all of them, before the first is written
        check_free(path, lambda there, content=content: there.read_bytes() == content)
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in contents.items():
        write_whole(path, content, nothing)
    say(args.output)
    return 0


def _write(args: argparse.Namespace, rows: Iterable[Mapping[str, Any]], note: str = "") -> int:
    """Write the rows of a kind; on stdout stands where they are."""
    write_rows(Path(args.output), rows)
    if note:
        tell(note)
    say(args.output)
    return 0


def _settings(args: argparse.Namespace) -> AskSettings:
    """The settings of a verb that opens no model and writes rows."""
    check_place("--output", Path(args.output), ".jsonl")
    overrides = [f"data.train={args.file}", "model.name=none", *as_overrides(args)]
    return read_job(None, overrides, AskSettings).settings


def _rows(args: argparse.Namespace, settings: AskSettings) -> list[tuple[Mapping[str, Any], Example]]:
    """The rows of a file with their examples, without those of an evaluation set."""
    data, examples = settings.data, load_training(settings.data, limit=args.limit, require_answers=False)
    rows = itertools.islice(read_rows(data.train, data.split, data.subset), len(examples))
    kept = {example.id for example in _sifted(args, examples)[0]}
    return [(row, one) for row, one in zip(rows, examples, strict=True) if one.id in kept]


def _convert(args: argparse.Namespace) -> int:
    check_place("--output", Path(args.output), ".parquet", ".jsonl")
    overrides = [f"data.train={args.file}", "model.name=none", *args.settings]  # no model is opened
    settings = read_job(args.config, overrides, AskSettings).settings
    examples, _ = _read(args, settings)
    convert(examples, args.to, settings.data, Path(args.output))
    for line in _usage(args.to, args.output, settings):
        tell(line)
    say(args.output)
    return 0


def _defaults(job: str, prompt: str) -> dict[str, Any]:
    return {
        "data": {"prompt": prompt},
        "sampling": {"temperature": _TEMPERATURE[job]},
        "train": {"max_completion_length": _LENGTH},
    }


def _read(
    args: argparse.Namespace, settings: RunSettings, *, require_answers: bool = False
) -> tuple[list[Example], dict[str, Any] | None]:
    """The questions that are in no evaluation set, and a report on those that are."""
    return _sifted(args, load_training(settings.data, limit=args.limit, require_answers=require_answers))


def _sifted(
    args: argparse.Namespace, examples: Sequence[Example]
) -> tuple[list[Example], dict[str, Any] | None]:
    if not args.against:
        return list(examples), None
    kept, matches = Sieve.read(args.against).sift(examples)
    where = ", ".join(f"{file}: {count}" for file, count in matches["files"].items())
    message = f"{matches['found']} of {len(examples)} questions are in an evaluation set"
    tell(message + (f" ({where}), first {one_line(matches['ids'][0])}; they are left out" if where else ""))
    if not kept:
        raise ConfigError(f"all {len(examples)} questions of {args.file} are in an evaluation set")
    return kept, {"against": [str(name) for name in args.against], **matches}


def _tell_left_out(counts: dict[str, Any], prepared: Sequence[Any]) -> None:
    left = [one for one in prepared if one.left_out]
    tell(f"{len(left)} of {len(prepared)} questions were left out: {tally(counts['left_out'])}")
    failed = [one for one in left if one.left_out not in ("no_supported_claim", "nothing_important")]
    if failed:
        tell(
            f"run the same command again to try what failed; first {one_line(failed[0].example.id)}: "
            f"{failed[0].left_out}: {one_line(failed[0].detail[:200])}"
        )


def _usage(target: Target, output: str, settings: RunSettings) -> list[str]:
    """How the trainer is told about the file."""
    if target == "openrlhf":
        chat = " --data.apply_chat_template" if settings.data.chat else ""
        keys = f"--data.input_key input --data.label_key label{chat}"
        return [f"--data.prompt_dataset {output} {keys}; the label is JSON"]
    if target == "verl":
        return [f"data.train_files={output}; the reward's ground_truth has TruthRL's layout"]
    folder = Path(output).parent
    bridge = f"trl grpo --dataset_name {folder} (TRL reads a folder, with no other data in it) "
    bridge += "--reward_funcs factrl.bridges.trl.PAPER, or to_trl(reward"
    prefill = f", prefill={settings.data.prefill!r}" if settings.data.prefill else ""
    return [f"{bridge}{prefill}), reads these columns"]
