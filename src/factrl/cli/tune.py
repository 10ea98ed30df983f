"""`factrl tune`: methods that learn from given rows instead of rewards."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any, get_args

from factrl.errors import ConfigError
from factrl.runs.config import dump_toml, flat
from factrl.runs.folder import settings_in
from factrl.train.tuning.plan import TunePlan, plan_tuning
from factrl.train.tuning.settings import (
    TUNE,
    Method,
    TuneSettings,
    completion_for,
    read_tuning_job,
)

from .options import (
    RULES_ALONE,
    Verbs,
    add_option,
    add_options,
    add_settings,
    add_verb,
    as_overrides,
    needs_extra,
)
from .terminal import say, show_table, tell
from .train import as_lines

METHODS = get_args(Method)
# What decides rows and weights; how long to train, who judges and what is evaluated may still change.
_FIXED = ("paper", "reward", "tune", "sampling", "model", "data", "run.seed", "run.dir")


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "tune",
        _tune,
        about="train on given answers or own pairs: SFT, RFT, R-Tuning, DPO",
        example=(
            "methods: sft, r-tuning, rft, sft-seed; dpo and iterative-dpo with --rule correctness, max-min,\n"
            "margin-length, factscore or klc; on labelled rows truthfulness,\n"
            "checklist-verifier, extractor\n\n"
            "examples:\n"
            "  factrl probe train.jsonl --model SmolLM2-135M-Instruct --output probed.jsonl\n"
            "  factrl tune r-tuning train.jsonl --model SmolLM2-135M-Instruct --probe probed.jsonl \\\n"
            "      --evaluate test.jsonl\n"
            "  factrl tune dpo train.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --rule max-min paper=truthrl\n"
            "  factrl tune --resume runs/dpo-max-min-20260101-120000"
        ),
    )
    parser.add_argument("method", nargs="?", metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("file", nargs="?", metavar="QUESTIONS", help="questions, or rows of claims")
    names = ("config", "model", "rule", "judge", "probe", "evaluate", "steps", "seed", "runs", "resume")
    add_options(parser, *names)
    add_option(parser, "--dry-run", "print the resolved settings and the plan; train nothing")
    add_settings(parser)


def _tune(args: argparse.Namespace) -> int:
    source, overrides = _layers(args)
    job = read_tuning_job(source, overrides)
    settings = job.settings
    if args.resume is not None:
        _check_unchanged(args.resume, read_tuning_job(source, ()).settings, settings)
    plan = plan_tuning(job)
    for note in plan.notes:
        tell(note)
    if args.dry_run:
        tell(_described(plan))
        say(dump_toml(settings).rstrip())
        return 0
    if not settings.judge.url and (settings.measure == "grade" or plan.held_out):
        tell(RULES_ALONE)
    needs_extra("train.model", "train").for_command_line()
    folder, outcome = needs_extra("train.offline", "train").tune(plan, tell)
    rows, model, recipe = (shlex.quote(str(folder / name)) for name in ("data", "model", "config.toml"))
    tell(f"rows:       {rows}")
    tell(f"evaluate:   factrl eval QUESTIONS.jsonl --model {model} --config {recipe} --output after")
    if outcome is not None:
        show_table(outcome.table())
    say(str(folder))
    return 0


def _layers(args: argparse.Namespace) -> tuple[Path | str | None, list[str]]:
    """The file of settings and the overrides behind the command line."""
    overrides = as_overrides(args)
    given = args.method or args.file or args.config
    if args.resume is not None:
        if given is not None:
            raise ConfigError(f"--resume takes everything from the run; leave out {given!r}")
        return settings_in(args.resume, TUNE), [*overrides, f"run.resume={args.resume}"]
    if args.method is None and args.config is None:
        raise ConfigError(f"name a method: factrl tune METHOD QUESTIONS, one of {', '.join(METHODS)}")
    if args.method is not None:
        overrides.insert(0, f"tune.method={args.method}")
    if args.file is not None:
        overrides.insert(0, f"data.train={args.file}")
    return args.config, overrides


def _check_unchanged(run: str, before: TuneSettings, now: TuneSettings) -> None:
    """Refuse other settings of what a resumed run has partly done."""
    first, last = _fixed(before), _fixed(now)
    changed = [name for name in {**first, **last} if first.get(name) != last.get(name)]
    if changed:
        changes = "; ".join(f"{name} was {first.get(name)!r}, not {last.get(name)!r}" for name in changed)
        raise ConfigError(
            f"--resume {run} goes on with what the run began ({changes}); leave that out, or start a new run"
        )


def _fixed(settings: TuneSettings) -> dict[str, Any]:
    values = flat(settings.model_dump())
    return {
        name: value
        for name, value in values.items()
        if (name in _FIXED or name.split(".")[0] in _FIXED) and not name.startswith("data.eval")
    }


def _described(plan: TunePlan) -> str:
    """What the settings, which are printed below, do not say themselves."""
    settings, sampling = plan.settings, plan.settings.sampling
    samples = "none are needed" if settings.measure is None else "those of the probe"
    if plan.samples:
        samples = f"{plan.samples} to write, {sampling.num_samples} a question"
    return as_lines(
        {
            "questions": f"{len(plan.examples)} to learn from, {len(plan.held_out)} to evaluate on",
            "samples": samples,
            "measure": settings.measure or "nothing",
            "judge": settings.judge.url or "none: rules alone compare answers",
            "answers": f"written as {completion_for(plan.job, 'ANSWER')!r}",
        }
    )
