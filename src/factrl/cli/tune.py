"""`factrl tune`: methods that learn from given rows instead of rewards."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import get_args

from factrl.errors import ConfigError
from factrl.job import Job
from factrl.runs.config import dump_toml
from factrl.runs.resume import going_on, nothing_to_do
from factrl.train.tuning.plan import TunePlan, plan_tuning
from factrl.train.tuning.settings import (
    TUNE,
    Method,
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
    resumed,
)
from .terminal import say, tell
from .train import as_lines, limit_of_prompts

METHODS = get_args(Method)


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "tune",
        _tune,
        about="train on given answers or own pairs: SFT, RFT, R-Tuning, DPO",
        example=(
            "examples:\n"
            "  factrl tune sft rows.jsonl --model Qwen/Qwen2.5-0.5B-Instruct --output sft\n"
            "  factrl eval train.jsonl --model SmolLM2-135M-Instruct --samples 64 --output known\n"
            "  factrl tune r-tuning train.jsonl --model SmolLM2-135M-Instruct \\\n"
            "      tune.probe=known/questions.jsonl\n"
            "  factrl tune dpo pairs.jsonl --model sft/model --output dpo tune.rule=given\n"
            "Rows of sft have `prompt` and `completion`, or `messages`, and are learned as they stand, or\n"
            "`question` and `answers`; given pairs have `prompt`, `chosen` and `rejected`.\n"
            "The same words again, with --output, go on where they were stopped."
        ),
    )
    parser.add_argument("method", nargs="?", metavar="METHOD", help=", ".join(METHODS))
    parser.add_argument("file", nargs="?", metavar="QUESTIONS", help="questions, or rows as they are learned")
    add_options(parser, "config", "model", "judge", "steps", "seed", "output", "resume")
    add_option(parser, "--dry-run", "print the resolved settings and the plan; train nothing")
    add_settings(parser)


def _tune(args: argparse.Namespace) -> int:
    job = Job(going_on(read_tuning_job(*_layers(args)).settings, TUNE))
    settings = job.settings
    if (nothing := nothing_to_do(settings)) and not args.dry_run:
        tell(nothing)
        say(str(settings.run.output))
        return 0
    plan = plan_tuning(job)
    for note in plan.notes:
        tell(note)
    if args.dry_run:
        tell(_described(plan))
        say(dump_toml(settings).rstrip())
        return 0
    if not settings.judge.url and settings.samples:
        tell(RULES_ALONE)
    needs_extra("train.model", "train").for_command_line()
    folder: Path = needs_extra("train.offline", "train").tune(plan, tell)
    rows, model, recipe = (shlex.quote(str(folder / name)) for name in ("data", "model", "config.toml"))
    tell(f"rows:       {rows}")
    tell(f"evaluate:   factrl eval QUESTIONS.jsonl --model {model} --config {recipe} --output after")
    say(str(folder))
    return 0


def _layers(args: argparse.Namespace) -> tuple[Path | str | None, list[str]]:
    """The file of settings and the overrides behind the command line."""
    overrides = as_overrides(args)
    if args.resume is not None:
        return resumed(args, TUNE, args.method or args.file or args.config)
    if args.method is None and args.config is None:
        raise ConfigError(f"name a method: factrl tune METHOD QUESTIONS, one of {', '.join(METHODS)}")
    if args.method is not None:
        overrides.insert(0, f"tune.method={args.method}")
    if args.file is not None:
        overrides.insert(0, f"data.train={args.file}")
    return args.config, overrides


def _described(plan: TunePlan) -> str:
    """What the settings, which are printed below, do not say themselves."""
    settings, sampling = plan.settings, plan.settings.sampling
    samples = "those of the probe" if settings.samples else "none are needed"
    if plan.samples:
        samples = f"{plan.samples} to write, {sampling.num_samples} a question"
    lines = {
        "questions": f"{len(plan.examples)} to learn from",
        "prompts": limit_of_prompts(settings),
        "samples": samples,
        "judge": settings.judge.url or "none: rules alone compare answers",
    }
    if plan.given:
        lines["rows"] = "learned as they stand"
    elif settings.writes_answers:
        lines["answers"] = f"written as {completion_for(plan.job, 'ANSWER')!r}"
    return as_lines(lines)
