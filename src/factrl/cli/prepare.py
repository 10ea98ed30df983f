"""`factrl prepare KIND`: what training reads."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from factrl.errors import ConfigError, TooManyMasked
from factrl.job import read_job
from factrl.prepare import FEW_SHOT, ZERO_SHOT, Sieve, few_shot, read_demonstrations
from factrl.prepare.dataset import (
    FILES,
    JOURNAL,
    Target,
    convert,
    write_dataset,
    write_rows,
)
from factrl.prepare.klcf import open_preparation
from factrl.prepare.retrieve import retrieve
from factrl.runs.config import load_settings
from factrl.runs.data import load_training
from factrl.runs.disk import Journal, check_begun, check_free
from factrl.runs.progress import Progress
from factrl.runs.rows import read_rows
from factrl.runs.settings import AskSettings, RunSettings
from factrl.text.escape import one_line
from factrl.types import Example
from factrl.verifier import open_search

from .options import (
    Verbs,
    add_option,
    add_options,
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
_TEMPERATURE = 0.7  # ours: KLCF's is lost
_ASKED = "folder, hub id, local, or http://host/v1#model"
_QUESTIONS = "questions, in any form that factrl train reads"


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    about = "make what training reads: KLCF's data, passages, rows for others"
    examples = (
        "examples:\n"
        "  factrl prepare retrieve questions.jsonl --index wiki --output retrieved.jsonl\n"
        "  factrl prepare convert questions.jsonl --to trl --output train.parquet paper=truthrl"
    )
    parser = add_verb(verbs, "prepare", _explain, about=about, example=examples)
    for add in (_add_klcf, _add_retrieve, _add_convert):
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
            "  factrl prepare klcf prompts.jsonl --model http://host:8000/v1#Qwen2.5-14B --output klcf \\\n"
            "      --demonstrations shots.jsonl --judge http://host:8001/v1#Qwen2.5-72B-Instruct \\\n"
            "      --against simpleqa.jsonl verifier.index=wiki sampling.num_samples=4 data.limit=1000\n"
            "The same command again goes on where it was stopped, and asks nothing twice. Without --judge,\n"
            "claims are found by rule and no item is dropped for being unimportant.\n"
            "exit code: 0 there is a dataset; 2 something must be changed first; 3 no question is left"
        ),
    )
    parser.add_argument("file", metavar="PROMPTS", help="rows with a question, and maybe topic or evidence")
    judge = "finds claims, judges them and chooses the items; or local"
    add_options(parser, "config", model=f"who answers: {_ASKED}", judge=judge)
    add_option(parser, "--output DIR", "folder for the dataset and its journal", required=True)
    add_option(
        parser, "--demonstrations FILE", "questions with answers that are shown first; none by default"
    )
    _add_against(parser, "any other setting, e.g. verifier.index=wiki train.max_completion_length=256")


def _add_retrieve(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare retrieve",
        _retrieve,
        about="put passages into the rows of questions",
        example=(
            "examples:\n"
            "  factrl index wikipedia.jsonl --output wiki\n"
            "  factrl prepare retrieve questions.jsonl --index wiki --k 50 --output retrieved.jsonl\n"
            "  factrl prepare retrieve questions.jsonl --index wiki --k 5 --distractors 3 --withhold 0.3 \\\n"
            "      --output retrieved.jsonl verifier.embedder=intfloat/e5-base-v2\n"
            "  factrl prepare retrieve crag.jsonl --withhold 0.3 --output withheld.jsonl\n"
            "then: factrl train truthrl:retrieval --data retrieved.jsonl …"
        ),
    )
    parser.add_argument("file", metavar="FILE", help=_QUESTIONS)
    add_option(parser, "--k K", "passages for a question (50, as TruthRL)", type=at_least_one, default=50)
    about = "passages of other questions that are mixed in, without an accepted answer (0)"
    add_option(parser, "--distractors N", about, type=within(0, 1000), default=0)
    about = "share of the questions that lose every passage with an accepted answer (0)"
    add_option(parser, "--withhold SHARE", about, type=between(0, 1), default=0.0)
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


def _add_convert(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "prepare convert",
        _convert,
        about="write questions as TRL, verl or OpenRLHF read them",
        example=(
            "examples:\n"
            "  factrl prepare convert q.jsonl --to verl --config truthrl --output t.parquet\n"
            "  factrl prepare convert klcf/train.jsonl --to trl paper=klcf --output data"
        ),
    )
    parser.add_argument("file", metavar="FILE", help=_QUESTIONS)
    parser.add_argument("--to", required=True, choices=get_args(Target), help="the trainer")
    add_options(parser, "config")
    about = ".parquet or .jsonl; for trl also a folder, as TRL reads them, which gets a train.parquet"
    add_option(parser, "--output FILE", about, required=True)
    _add_against(parser, "prompt and columns, e.g. paper=truthrl data.system=... data.columns.question=q")


def _add_against(parser: argparse.ArgumentParser, settings: str) -> None:
    """`--against`, and settings with this help."""
    about = "an evaluation set, file or folder, whose questions are left out; may be repeated"
    add_option(parser, "--against EVAL", about, action="append", default=[])
    add_settings(parser, settings)


def _klcf(args: argparse.Namespace) -> int:
    folder = Path(args.output)
    check_begun(folder / JOURNAL, *(folder / name for name in FILES))
    shown = read_demonstrations(args.demonstrations) if args.demonstrations else []
    template = FEW_SHOT if shown else ZERO_SHOT
    overrides = [f"data.train={args.file}", *as_overrides(args)]
    settings = load_settings(AskSettings, args.config, overrides, _defaults(template))
    template, own = settings.data.prompt, settings.data.prompt in (ZERO_SHOT, FEW_SHOT)
    examples, contamination = _sifted(args, load_training(settings.data, require_answers=False))
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


def _retrieve(args: argparse.Namespace) -> int:
    check_place("--output", Path(args.output), ".jsonl")
    overrides = [f"data.train={args.file}", "model.name=none", *args.settings]  # no model is opened
    settings = read_job(None, overrides, AskSettings).settings
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
    write_rows(Path(args.output), rows)
    tell(
        f"{len(rows)} rows; {counts['own']} had evidence already, {counts['none']} have none, "
        f"{counts['withheld']} lost what holds an answer; in {counts['helps']} a passage holds an answer"
    )
    say(args.output)
    return 0


def _rows(args: argparse.Namespace, settings: AskSettings) -> list[tuple[Mapping[str, Any], Example]]:
    """The rows of a file with their examples, without those of an evaluation set."""
    data, examples = settings.data, load_training(settings.data, require_answers=False)
    rows = itertools.islice(read_rows(data.train, data.split, data.subset), len(examples))
    kept = {example.id for example in _sifted(args, examples)[0]}
    return [(row, one) for row, one in zip(rows, examples, strict=True) if one.id in kept]


def _convert(args: argparse.Namespace) -> int:
    path = Path(args.output)
    if args.to == "trl" and not path.suffix:
        path /= "train.parquet"
        check_free(path)
    else:
        check_place("--output", path, ".parquet", ".jsonl")
    overrides = [f"data.train={args.file}", "model.name=none", *args.settings]  # no model is opened
    job = read_job(args.config, overrides, AskSettings)
    settings, reward = job.settings, job.reward if job.settings.paper else None
    needs_answers = reward is not None and reward.needs_answers
    examples, _ = _sifted(args, load_training(settings.data, require_answers=needs_answers))
    if reward is not None:
        reward.check_examples(examples)
    path.parent.mkdir(exist_ok=True)
    convert(examples, args.to, settings.data, path)
    for line in _usage(args.to, path, settings):
        tell(line)
    say(str(path))
    return 0


def _defaults(prompt: str) -> dict[str, Any]:
    return {
        "data": {"prompt": prompt},
        "sampling": {"temperature": _TEMPERATURE},
        "train": {"max_completion_length": _LENGTH},
    }


def _sifted(
    args: argparse.Namespace, examples: Sequence[Example]
) -> tuple[list[Example], dict[str, Any] | None]:
    """The questions that are in no evaluation set, and a report on those that are."""
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


def _usage(target: Target, output: Path, settings: RunSettings) -> list[str]:
    """How the trainer is told about the file."""
    if target == "openrlhf":
        chat = " --data.apply_chat_template" if settings.data.chat else ""
        keys = f"--data.input_key input --data.label_key label{chat}"
        return [f"--data.prompt_dataset {output} {keys}; the label is JSON"]
    if target == "verl":
        return [f"data.train_files={output}; the reward's ground_truth has TruthRL's layout"]
    bridge = f"trl grpo --dataset_name {output.parent} (TRL reads a folder, with no other data in it) "
    bridge += "--reward_funcs factrl.bridges.trl.PAPER, or to_trl(reward"
    prefill = f", prefill={settings.data.prefill!r}" if settings.data.prefill else ""
    return [f"{bridge}{prefill}), reads these columns"]
