"""`factrl train`."""

from __future__ import annotations

import argparse
import shlex
from importlib.util import find_spec
from pathlib import Path

from factrl.errors import ConfigError, SetupError
from factrl.job import Job, read_job, unread_in_training
from factrl.runs.config import dump_toml
from factrl.runs.folder import gpus_here
from factrl.runs.resume import going_on, nothing_to_do
from factrl.runs.settings import RunSettings
from factrl.stress.payoffs import try_out
from factrl.text.escape import one_line
from factrl.train.page import PAGE
from factrl.train.plan import Plan, estimate, make_plan, not_installed

from .options import (
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


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "train",
        _train,
        about="train a model with a paper's reward",
        example=(
            "examples:\n"
            "  factrl train truthrl --model Qwen/Qwen2.5-0.5B-Instruct --data questions.jsonl \\\n"
            "      --judge http://localhost:8000/v1#Qwen/Qwen3-8B --steps 100 train.learning_rate=2e-6\n"
            "  factrl train small/truthrl --data mine.jsonl\n"
            "  factrl train recipe.toml --output here           # killed, the same words again go on\n"
            "  factrl train --resume here --steps 200\n"
            "  factrl train recipe.toml run.max_cost=5 judge.price_in=0.15 judge.price_out=0.6\n"
            "exit code 4: the run stopped before run.max_cost, with a checkpoint that --resume goes on from"
        ),
    )
    parser.add_argument(
        "paper",
        nargs="?",
        metavar="PAPER_OR_RECIPE",
        help="truthrl, truthrl:binary, my.py:reward, a recipe.toml that names it, or small/truthrl: a 135M "
        "model on a CPU",
    )
    add_options(parser, "config", "model", "data", "judge", "steps", "seed", "output", "resume")
    add_option(
        parser,
        "--dry-run",
        "print the resolved settings, the plan and what it will take; train nothing, ask nobody",
    )
    add_settings(parser)


def _train(args: argparse.Namespace) -> int:
    job = read_job(*_layers(args), unread=unread_in_training)
    job = Job(going_on(job.settings, "config.toml"))
    settings = job.settings
    if (nothing := nothing_to_do(settings)) and not args.dry_run:
        tell(nothing)
        say(str(settings.run.output))
        return 0
    plan = make_plan(job)
    tried = try_out(job.reward, plan.examples[0])  # a mistake in it comes before any model
    if tried and all(result.value is None for result in tried):
        tell(
            f"reward {job.reward.name!r} could grade none of {len(tried)} texts in a trial: {tried[0].detail}"
        )
    missing = not_installed(settings, job.reward)
    if missing is not None and find_spec("torch") is not None and find_spec("trl") is not None:
        raise missing
    if args.dry_run:
        tell(_described(plan))
        if plan.repeats:
            tell(as_lines({"repeated": plan.repeats}))
        if missing is not None:  # no trainer is here, so the plan is for another machine
            tell(as_lines({"not here": str(missing)}))
        say(dump_toml(plan.settings).rstrip())
        return 0
    if plan.repeats:
        tell(plan.repeats)
    needs_extra("train.model", "train").for_command_line()
    if settings.train.use_vllm:
        _check_vllm()
    elif not gpus_here():
        tell("no GPU here, so this trains on the CPU; the time left is shown once a step is done")
    folder: Path = needs_extra("train.online", "train").train(plan, tell)
    page, model, recipe, run = (
        shlex.quote(str(path)) for path in (folder / PAGE, folder / "model", folder / "config.toml", folder)
    )
    tell(f"look at it: {page}")
    tell(f"evaluate:   factrl eval QUESTIONS.jsonl --model {model} --config {recipe} --output after")
    tell(f"train on:   factrl train --resume {run} --steps MORE")
    tell(f"publish:    hf upload ME/NAME {model} --private")
    say(str(folder))
    return 0


def _layers(args: argparse.Namespace) -> tuple[str | Path | None, list[str]]:
    """The recipe and the overrides behind the command line."""
    overrides = as_overrides(args)
    if args.resume is not None:
        return resumed(args, "config.toml", args.paper or args.config)
    if args.paper is None:
        return args.config, overrides
    if not args.paper.endswith(".toml") and ("/" not in args.paper or ".py" in args.paper):
        return args.config, [f"paper={args.paper}", *overrides]
    if args.config is not None:
        raise ConfigError(f"{args.paper} and --config {args.config} are two recipes; give one")
    return args.paper, overrides


def _check_vllm() -> None:
    """Refuse to start, before a model is loaded, where TRL cannot use vLLM.

    Raises:
        SetupError: vLLM is not installed, or no GPU takes part in sending it the weights.
    """
    if find_spec("vllm") is None:
        raise SetupError(
            "train.use_vllm = true needs vLLM, on a server of its own too, and it is not installed; run: "
            "pip install 'trl[vllm]', or give train.use_vllm=false"
        )
    if not gpus_here():
        raise SetupError(
            "train.use_vllm = true needs a GPU in this process: TRL sends vLLM the weights from there; give "
            "train.use_vllm=false"
        )


def _described(plan: Plan) -> str:
    settings, train, verifier = plan.settings, plan.settings.train, plan.settings.verifier
    reward, prompt = plan.job.reward, plan.prompt
    rules = "none: rules alone compare answers, so a paraphrase counts as wrong"
    source = verifier.index or ", ".join(verifier.docs) or verifier.web or "what comes with each question"
    lines = {
        "reward": f"{settings.paper}, " + ", ".join(f"{k}={v}" for k, v in reward.knobs.items()),
        "model": settings.model.name + (" (LoRA)" if settings.model.lora else ""),
        "questions": f"{len(plan.examples)} to train on, {len(plan.held_out)} to evaluate on",
        "prompt": prompt if len(prompt) <= 200 else f"{prompt[:200]}…",
        "prompts": limit_of_prompts(settings),
        "steps": f"{plan.steps} of {train.prompts_per_step} questions with {train.num_generations} "
        "completions",
        "to grade": f"{plan.completions} completions",
        "judge": settings.judge.url or (rules if "grade" in reward.missing else "none"),
    }
    if plan.index is not None:
        search = settings.search
        lines["search"] = (
            f"{plan.index!r}, at most {search.turns} times an answer with {search.k} passages each, which "
            f"count towards the {train.max_completion_length} tokens of train.max_completion_length"
        )
    if "verify" in reward.missing:
        lines["claims"] = f"verifier {verifier.preset}, evidence: {source}"
    return as_lines(lines | estimate(plan))


def limit_of_prompts(settings: RunSettings) -> str:
    """How long prompts may be, for a plan; which of them are longer only a tokenizer can tell."""
    train = settings.train
    if train.max_prompt_length is None:
        return "of any length (train.max_prompt_length)"
    return (
        f"at most {train.max_prompt_length:,} tokens (train.max_prompt_length): documents are cut, longer "
        f"ones left out, and refused if more than {train.max_long_share:.0%} (train.max_long_share)"
    )


def as_lines(lines: dict[str, str]) -> str:
    """A plan, a line for each of its parts."""
    return "\n".join(f"{name:<10}{one_line(text)}" for name, text in lines.items())
