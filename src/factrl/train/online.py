"""`factrl train`: from a plan to a trained model and a run folder.

What can be wrong is found before the run folder exists and before anything is paid for.  A run that stops
leaves a complete checkpoint.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from datasets import Dataset

from factrl.errors import ConfigError, OverBudget, TooManyMasked
from factrl.llm.spending import Spending, judge_meter, read_account
from factrl.llm.writers import conversation
from factrl.rewards import Reward
from factrl.runs.folder import Run, read_metrics, version_of
from factrl.runs.resume import settings_text
from factrl.runs.settings import RunSettings
from factrl.train.held_out import Evaluate, TrueGap, evaluator
from factrl.train.page import write_run_page
from factrl.train.plan import Plan, check_enough, steps_of
from factrl.types import Example
from factrl.verifier import open_search
from factrl.verifier.search import Given, Search

from .callbacks import (
    Interrupted,
    RunCallback,
    check_setup,
    is_finished,
    keep_model,
    last_checkpoint,
    open_run,
    same_trackers,
    say_done,
    shared_arguments,
)
from .grpo import STEPS_OVER_LIMIT, FactualGRPOConfig, FactualGRPOTrainer
from .model import (
    Fitted,
    beginning,
    fit_prompts,
    load_policy,
    lora_config,
    prompts_note,
    refuse_long,
)
from .search import SearchEnvironment, check_calls
from .shortcuts import restore_forward
from .trl_rows import TRLReward

_SAME = {  # settings of `[train]` that TRL, or our own configuration, calls by the same name
    *("num_generations", "num_iterations", "max_completion_length", "mask_truncated_completions"),
    *("scale_rewards", "advantage_epsilon", "max_masked_share", "beta", "use_bias_correction_kl"),
    *("entropy_coef", "epsilon", "epsilon_high", "temperature", "top_p"),
    *("use_vllm", "vllm_mode", "vllm_server_base_url"),
}


def train(plan: Plan, tell: Callable[[str], None] = lambda text: None) -> Path:
    """Train a model with a reward; returns the run folder.

    Args:
        tell: gets what a person should know before it starts.

    Raises:
        SetupError: something the user must change; nothing has been written.
        Interrupted, TooManyMasked, OverBudget: the run stopped; a checkpoint was written.
    """
    settings = plan.settings
    grpo_config(settings, Path(settings.run.dir))  # raises where the numbers do not fit the processes
    reward = plan.job.supplied
    check_setup(plan.job)
    search = None
    if plan.index is not None:
        search = open_search(index=plan.index, embedder=settings.search.embedder)
    model, tokenizer = load_policy(settings.model)
    if search is not None:
        check_calls(settings.model.name, tokenizer)
    examples, prompts, fitted = fitting_prompts(plan.examples, tokenizer, settings)
    if note := prompts_note(fitted.too_long, fitted.cut, len(plan.examples), settings):
        tell(note)
    name = settings.run.name or Path(settings.paper.replace(":", "-")).name
    with open_run(settings, name, {"config.toml": settings_text(settings)}) as run, same_trackers(run):
        if note and PartialState().is_main_process and not read_metrics(run.path):
            run.log(0, {"prompts/too_long": fitted.too_long, "prompts/cut": fitted.cut})
        steps, _ = in_order(len(examples), settings)
        if not is_finished(last_checkpoint(run.checkpoints), steps):
            optimise(
                settings,
                model,
                tokenizer,
                reward,
                examples,
                prompts,
                run,
                _evaluation(plan, tokenizer, run),
                _spending(plan, run),
                search,
            )
        if PartialState().is_main_process:
            checkpoint, done = last_checkpoint(run.checkpoints) or (run.checkpoints, 0)
            keep_model(checkpoint, run.path / "model")
            write_run_page(run.path)
            say_done(run, done)
    return run.path


def _evaluation(plan: Plan, tokenizer: Any, run: Run) -> Evaluate | None:
    """What asks the held-out questions; None without any."""
    if not plan.held_out:
        return None
    job, data = plan.job, plan.settings.data
    if not plan.settings.train.eval_steps:  # a single evaluation has nothing to be compared with
        return evaluator(job, plan.held_out, tokenizer)
    begun = beginning(tokenizer, data.prefill, chat=data.chat)
    gap = TrueGap(job.supplied, job.extract, run.path, prefill=begun)
    return evaluator(job, plan.held_out, tokenizer, gap)


def optimise(
    settings: RunSettings,
    model: Any,
    tokenizer: Any,
    reward: Reward,
    examples: Sequence[Example],
    prompts: Sequence[Any],
    run: Run,
    evaluate: Evaluate | None,
    spending: Spending | None = None,
    search: Search | None = None,
    stepped: Callable[[str], None] | None = None,
) -> FactualGRPOTrainer:
    """The GRPO run itself, from step 0 or from the run's last complete checkpoint.

    Args:
        stepped: called after each step with a word about it, in place of a progress bar.
    """
    options, inputs, more = settings.search, prompts, dict[str, Any]()
    if search is not None:
        episode = partial(SearchEnvironment, search, k=options.k, turns=options.turns)
        inputs = [conversation(example, settings.data) for example in examples]
        more["environment_factory"] = episode
    config = grpo_config(settings, run.checkpoints)
    reader = TRLReward(reward, beginning(tokenizer, settings.data.prefill, chat=settings.data.chat))
    reader.table = examples
    config.max_steps, rows = in_order(len(examples), settings)
    with warnings.catch_warnings():  # about TRL's environments, which may change
        warnings.filterwarnings("ignore", message="You are using 'environment_factory'")
        trainer = FactualGRPOTrainer(
            model,
            reader,
            config,
            Dataset.from_dict({"prompt": [*inputs], "example": range(len(examples))}).select(rows),
            run=run,
            processing_class=tokenizer,
            peft_config=lora_config(settings.model),
            **more,
        )
    checkpoint = last_checkpoint(run.checkpoints)
    if trainer.accelerator.is_main_process:
        run.truncate_after(checkpoint[1] if checkpoint else 0)
    policy = trainer.accelerator.unwrap_model(trainer.model)
    callback = RunCallback(
        run,
        evaluate=None if evaluate is None else lambda step: evaluate(policy, step),
        eval_steps=settings.train.eval_steps,
        spending=spending,
        must_stop=lambda: (
            trainer.steps_over_limit >= STEPS_OVER_LIMIT
            or (spending is not None and bool(spending.why_over()))
        ),
        stepped=stepped,
    )
    stopped = callback.train(trainer, checkpoint, f"train {reward.name}")
    restore_forward(policy)
    if stopped:
        raise _why_it_stopped(trainer, run, spending)
    return trainer


def in_order(questions: int, settings: RunSettings) -> tuple[int, list[int]]:
    """The steps of a run, and the numbers of the questions that it asks, one after the other.

    Each round over the questions has an order of its own, which depends on the seed and the round's number
    alone: a run that was resumed asks as one that was never stopped.  A rest that fills no batch is left out.
    """
    train = settings.train
    steps, whole = steps_of(questions, train), questions - questions % train.prompts_per_step
    count = math.ceil(steps / train.num_iterations) * train.prompts_per_step
    rows, round_number = list[int](), 0
    while len(rows) < count:
        order = torch.Generator().manual_seed(settings.run.seed + round_number)
        shuffled = torch.randperm(questions, generator=order).tolist()
        rows += shuffled[:whole]
        round_number += 1
    return steps, rows[:count]


def _why_it_stopped(
    trainer: FactualGRPOTrainer, run: Run, spending: Spending | None
) -> TooManyMasked | OverBudget | Interrupted:
    step, resume = trainer.state.global_step, f"factrl train --resume {run.path}"
    if trainer.steps_over_limit >= STEPS_OVER_LIMIT:
        tally = ", ".join(f"{count} {cause}" for cause, count in trainer.masked_causes.most_common())
        return TooManyMasked(
            f"step {step}: more than {trainer.args.max_masked_share:.0%} of the completions "
            f"could not be graded for {STEPS_OVER_LIMIT} steps in a row ({tally}); a checkpoint was saved; "
            f"mend the judge, then: {resume}"
        )
    if spending is not None and (why := spending.why_over()):
        return OverBudget(f"step {step}: {why}; a checkpoint was saved; to go on: {resume} run.max_cost=MORE")
    return Interrupted("train", run.path, step)


def _spending(plan: Plan, run: Run) -> Spending | None:
    """What counts for the judge; None where it is not paid for."""
    meter, settings = judge_meter(plan.job.judge), plan.settings
    if meter is None:
        return None
    before = read_account(run.path)
    return Spending(meter, price=settings.judge.price, cap=settings.run.max_cost, before=before)


def grpo_config(settings: RunSettings, output_dir: Path) -> FactualGRPOConfig:
    """TRL's arguments for these settings; every default in which TRL differs from the papers is set."""
    train = settings.train
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    completions = train.prompts_per_step * train.num_generations
    if completions % (train.micro_batch_size * processes):
        raise ConfigError(
            f"train.micro_batch_size = {train.micro_batch_size} on {processes} processes does not divide the "
            f"{completions} completions of a step"
        )
    reinforce = train.loss_type == "reinforce++"
    supported = {field.name for field in fields(FactualGRPOConfig)}
    same = train.model_dump(include=_SAME)
    unsupported = train.model_dump(include=_SAME - supported, exclude_defaults=True)
    if unsupported:
        raise ConfigError(
            f"train.{min(unsupported)}: trl {version_of('trl')} has no such setting; pip install -U trl"
        )
    return FactualGRPOConfig(
        **shared_arguments(settings, output_dir),
        per_device_train_batch_size=train.micro_batch_size,
        gradient_accumulation_steps=completions // (train.micro_batch_size * processes),
        **{name: value for name, value in same.items() if name in supported},
        loss_type="dapo" if reinforce else train.loss_type,
        advantage_estimator="reinforce++" if reinforce else "group",
        top_k=0,
        # One round more than searches, in which the policy hears that there are no more.
        max_tool_calling_iterations=settings.search.turns + 1,
        log_completions=not {"wandb", "trackio", "all"}.isdisjoint(train.report_to),
        num_completions_to_print=0,
        shuffle_dataset=False,  # `in_order`
    )


def fitting_prompts(
    examples: Sequence[Example], tokenizer: Any, settings: RunSettings
) -> tuple[list[Example], list[str], Fitted]:
    """The questions whose prompts fit into `train.max_prompt_length`, those prompts, and what became of all.

    Raises:
        DataError: too many do not, or too few are left for a step.
    """
    tools = [SearchEnvironment(Given(())).search] if settings.search.index else []
    fitted = fit_prompts(examples, tokenizer, settings, tools)
    refuse_long(fitted.too_long, len(examples), settings)
    check_enough(len(fitted.kept), len(examples), settings)
    return (
        [examples[number] for number in fitted.kept],
        [prompt for prompt in fitted.prompts if prompt is not None],
        fitted,
    )
