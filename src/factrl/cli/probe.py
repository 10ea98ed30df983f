"""`factrl probe`."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from factrl import __version__
from factrl.errors import ConfigError, TooManyMasked
from factrl.evals.probe import ProbeRunSettings, majority_curve, probe, summary, write_probed
from factrl.evals.shortqa import Extract
from factrl.job import read_job, unread_in_asking
from factrl.rewards.grading import AnswerForm, graded_by
from factrl.runs.data import load_training
from factrl.runs.disk import Journal, check_begun, write_whole
from factrl.runs.rows import read_rows
from factrl.train.answering import open_writer

from .options import (
    Verbs,
    add_option,
    add_options,
    add_settings,
    add_verb,
    as_overrides,
    check_judge,
    check_place,
    quiet_policy,
)
from .terminal import say, show_rows, tally, tell


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "probe",
        _probe,
        about="find the questions that a model never gets right, by many samples",
        example=(
            "examples:\n"
            "  factrl probe questions.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --output probed.jsonl\n"
            "  factrl probe questions.jsonl --model http://localhost:8000/v1#Qwen/Qwen3-8B --samples 64 \\\n"
            "      --judge http://localhost:8001/v1#judge --config recipe.toml --output probed.jsonl\n"
            "then: factrl train truthrl:knowledge-ternary --data probed.jsonl …\n"
            "A probe that was stopped goes on with the same command; more --samples or questions add to it."
        ),
    )
    parser.add_argument("questions", metavar="QUESTIONS", help="questions with their accepted answers")
    add_options(
        parser,
        *("config", "judge", "limit", "seed", "json"),
        model="the model that answers: a folder, a hub id, a policy of `factrl models list`, `local`, or "
        "http://host:8000/v1#model (key: FACTRL_POLICY_API_KEY)",
        samples="answers per question, at most (default: 256, as TruthRL)",
    )
    add_option(
        parser,
        "--output FILE.jsonl",
        "the questions with `ook`, `pass_rate` and `samples`; what made them goes beside it",
        required=True,
    )
    add_option(parser, "--full", "stop no question early; adds the majority of k answers")
    parser.add_argument(
        "--extract",
        choices=get_args(Extract),
        help=r"what of a completion is the answer: all of it, the last \boxed{}, the last <answer> "
        "(default: as the reward of --config reads it, else text)",
    )
    add_settings(parser, "how the model is asked, e.g. data.prompt=... train.max_completion_length=64")


def _probe(args: argparse.Namespace) -> int:
    output = Path(args.output)
    check_place("--output", output, ".jsonl")
    path, beside = output.with_suffix(".journal.jsonl"), output.with_suffix(".about.json")
    check_begun(path, output, beside)
    if output.exists() and Path(args.questions).exists() and output.samefile(args.questions):
        raise ConfigError(f"--output {output} is the file of the questions; name another one")
    overrides = [f"data.train={args.questions}", *as_overrides(args)]
    if args.limit:
        overrides.append(f"data.limit={args.limit}")
    if args.full:
        overrides.append("probe.first_correct=false")
    job = read_job(args.config, overrides, ProbeRunSettings, unread_in_asking)
    settings = job.settings
    data, stopping = settings.data, settings.stopping
    if "ook" in data.columns:
        raise ConfigError(
            f"data.columns.ook = {data.columns['ook']!r} would be read in place of the `ook` that the probe "
            "writes; leave it out"
        )
    examples = load_training(data)
    check_judge(job)
    quiet_policy(settings.model)
    writer = open_writer(settings)
    sampling: dict[str, Any] = {"extract": args.extract or job.extract, **settings.draw}
    # A label is for the reward that will read it; without one, answers may be sentences.
    form: AnswerForm = "short" if settings.paper or sampling["extract"] != "text" else "sentence"
    about = {"model": writer.identity, "grader": graded_by(job.judge), **sampling, "form": form}
    with Journal(path, about) as journal:
        if journal.resumed:
            tell(f"{path}: {journal.resumed} rows of an earlier probe are not asked again.")
        probed = probe(
            examples,
            writer,
            job.supplier.grade(form),
            journal,
            stopping=stopping,
            max_ungraded=settings.probe.max_ungraded,
            workers=min(settings.judge.callers, 64),
            **sampling,
        )
    # The columns of the questions as they are, which an example no longer has.
    rows = itertools.islice(read_rows(data.train, data.split, data.subset), data.limit)
    write_probed(output, list(rows), probed)
    document = {"output": str(output), **summary(probed, stopping), "majority": []}
    if not stopping.first_correct and any(one.ook is not None for one in probed):
        document["majority"] = majority_curve(probed, seed=settings.run.seed)
    document["about"] = {**about, **_provenance(settings), "factrl": __version__}
    write_whole(beside, (json.dumps(document, indent=2) + "\n").encode())
    _show(document, as_json=args.json)
    return 0


def _provenance(settings: ProbeRunSettings) -> Mapping[str, Any]:
    data = settings.data
    return {
        "questions": data.train,
        "policy": settings.model.name,
        **data.model_dump(include={"prompt", "system", "prefill", "chat"}),
        "max_completion_length": settings.train.max_completion_length,
        "stopping": asdict(settings.stopping),
    }


def _show(document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        say(json.dumps(document, indent=2))
    else:
        show_rows(("questions", "number", "share, 95 % interval"), _rows(document))
        say(f"questions  {document['output']}")
    undecided = sum(document["undecided"].values())
    if undecided == document["questions"]:
        raise TooManyMasked(f"none of the {undecided} questions has a label ({tally(document['undecided'])})")
    if undecided:
        tell(
            f"{undecided} questions have no label (`ook` is null): the same command asks them again, and a "
            "reward that needs the label refuses their rows."
        )


def _rows(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    """Questions by label, what stopping early saved, and the majority of k answers."""
    share, most = document["ook_share"], document["samples_of_a_full_probe"]
    interval = f"{share['value']:.1%} [{share['low']:.1%}, {share['high']:.1%}]" if share else "–"
    yield "asked", str(document["questions"]), ""
    yield "out of knowledge", str(document["out_of_knowledge"]), interval
    yield "known", str(document["known"]), ""
    for part, name in (("undecided", "undecided"), ("ungraded", "without a grade")):
        for cause, count in document[part].items():
            yield f"{name}: {cause}", str(count), ""
    yield "samples", str(document["samples"]), f"{document['saved']:.1%} of {most} saved"
    for vote in document["majority"]:
        shares = [f"{name} {100 * vote[name]:.1f}" for name in ("accuracy", "abstention", "hallucination")]
        yield f"majority of {vote['k']}", "", ", ".join(shares)
