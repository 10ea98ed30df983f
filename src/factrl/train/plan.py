"""What a training run will do: its settings, reward, questions and judge, all checked, without torch.

Everything that is wrong here is found in a second, before a model is loaded or a run folder exists, and
whether or not the extra `train` is installed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from factrl.errors import ConfigError, DataError
from factrl.llm import connect
from factrl.llm.spending import Account, allowance, overdraft, read_account
from factrl.papers import asked_of, load_reward, settings_of
from factrl.rewards import Reward
from factrl.rewards.resources import Supplier, check_resources, check_unjudged, supply
from factrl.runs.config import load_settings, peek
from factrl.runs.data import load_held_out, load_training, render_prompt
from factrl.runs.settings import LOCAL, JudgeSettings, RunSettings
from factrl.types import Example

if TYPE_CHECKING:
    from factrl.llm.local.llama import LlamaModel
    from factrl.llm.openai_compatible import OpenAICompatible


REWARD_ALONE = ("model.name=none", "data.train=none")
"""Settings that every run needs, where a reward is made and nothing is trained."""
_LIMITS = ("max_concurrency", "timeout_attempt", "timeout_call", "max_attempts")


@dataclass(frozen=True)
class Plan:
    """A run that can start as far as can be told without its model.

    Attributes:
        reward: with its knobs set; its resources are supplied unless the plan is only shown.
        judge: None when answers are compared by rules alone.
        examples: the questions to train on.
        held_out: the questions to evaluate on; may be empty.
        prompt: what the user says in the first example.
    """

    settings: RunSettings
    reward: Reward
    judge: OpenAICompatible | LlamaModel | None
    examples: Sequence[Example]
    held_out: Sequence[Example]
    prompt: str

    @property
    def steps(self) -> int:
        """Optimizer steps; fewer when `train.epochs` counts and some prompts are too long."""
        told = self.settings.train
        batches = len(self.examples) // told.prompts_per_step
        # A step that an epoch cuts short is done, as transformers counts.
        return told.steps or max(1, math.ceil(batches * told.num_iterations * told.epochs))

    @property
    def batches(self) -> int:
        """Times that completions are written, each for `num_iterations` steps."""
        return math.ceil(self.steps / self.settings.train.num_iterations)

    @property
    def completions(self) -> int:
        """Completions that are written and graded."""
        told = self.settings.train
        return self.batches * told.prompts_per_step * told.num_generations


def run_settings(source: Path | str | None, overrides: Sequence[str]) -> RunSettings:
    """The settings of a run; knobs and defaults are those of the paper that they name.

    Args:
        source: a recipe, or the `config.toml` of an earlier run.
        overrides: `key=value`.

    Raises:
        ConfigError: every problem at once, one line each.
    """
    problems: list[str] = []
    knobs = defaults = None
    paper = peek(RunSettings, source, overrides, "paper")
    if isinstance(paper, str) and paper:
        try:
            knobs = {"reward": load_reward(paper).knobs}
            defaults = settings_of(paper)
        except ConfigError as error:
            problems.append(str(error))
    return load_settings(RunSettings, source, overrides, defaults, knobs, problems)


def make_plan(settings: RunSettings, *, only_show: bool = False) -> Plan:
    """Check what can be checked without the model.

    Args:
        only_show: the plan is not carried out, so no judge is opened.

    Raises:
        SetupError: what the user must change.
    """
    check_asked(settings)
    reward, judge, data = bare_reward(settings), None, settings.data
    examples = load_training(data, require_answers=reward.needs_answers)
    check_usable(settings, reward, examples)
    check_enough(len(examples), len(examples), settings)
    held_out = load_held_out(data)
    for example in (*examples, *held_out):  # each can lack a column, or hold what is no text
        render_prompt(example, data.prompt)
    prompt = render_prompt(examples[0], data.prompt)
    if not only_show:
        reward, judge = supplied_reward(settings)
    return Plan(settings, reward, judge, examples, held_out, prompt)


def check_asked(settings: RunSettings) -> None:
    """Refuse a run without a value that its paper has and does not tell.

    Raises:
        ConfigError: the setting, and why the user has to give it.
    """
    for key, why in asked_of(settings.paper).items():
        section, _, name = key.partition(".")
        if name not in getattr(settings, section).model_fields_set:
            raise ConfigError(f"{settings.paper} needs {key}: {why}")


def bare_reward(settings: RunSettings) -> Reward:
    """The reward that the settings name, without what it needs, after a look at whether that can be had.

    Raises:
        ConfigError: a resource that no settings make, or that needs the judge that is not named.
    """
    reward = load_reward(settings.paper).with_(**settings.reward)
    check_resources(reward)
    if not settings.judge.url:
        check_unjudged(reward, Supplier(None, settings.judge, settings.verifier))
    elif settings.judge.url != LOCAL:
        open_judge(settings.judge)  # the address alone; nothing is sent
    return reward


def check_usable(settings: RunSettings, reward: Reward, examples: Sequence[Example]) -> None:
    """Refuse questions that lack what the reward needs, evidence among it where nothing is named to search.

    Args:
        reward: as `bare_reward` returns it.

    Raises:
        DataError: how many they are, the first of them, and what to do.
    """
    reward.check_examples(examples)
    told = settings.verifier
    if not reward.searches or "verify" not in reward.missing:
        return
    bare = [] if told.docs or told.index or told.web else [e for e in examples if not e.evidence]
    if bare:
        raise DataError(
            f"{len(bare)} of {len(examples)} questions come without evidence, first {bare[0].id!r}; name the "
            "column with data.columns.evidence=…, or where to search: verifier.index=FOLDER, "
            "verifier.docs=FILE or verifier.web=URL"
        )


def check_enough(left: int, total: int, settings: RunSettings) -> None:
    """Refuse fewer questions than one step takes.

    Args:
        left: questions whose prompts are short enough, of `total`.
    """
    told = settings.train
    if left < told.prompts_per_step:
        limit = f" (train.max_prompt_length = {told.max_prompt_length})" if left < total else ""
        raise DataError(
            f"{settings.data.train}: {left} of {total} questions can be used{limit}, fewer than the "
            f"{told.prompts_per_step} of one step; lower train.prompts_per_step or add questions"
        )


def supplied_reward(settings: RunSettings) -> tuple[Reward, OpenAICompatible | LlamaModel | None]:
    """The reward that the settings name with everything that it needs, and the judge among it.

    Raises:
        SetupError: what the user must change.
    """
    judge = open_judge(settings.judge, max_cost=_allowed(settings))
    return supply(bare_reward(settings), supplier=Supplier(judge, settings.judge, settings.verifier)), judge


def open_judge(
    settings: JudgeSettings, *, max_cost: float | None = None
) -> OpenAICompatible | LlamaModel | None:
    """The judge that the settings name, None when they name none; nothing is sent yet.

    Args:
        max_cost: US dollars after which it is asked no more.
    """
    if not settings.url:
        return None
    if settings.url == LOCAL:
        from factrl.llm.local.llama import shared_model

        return shared_model()
    limits = settings.model_dump(include=set(_LIMITS))
    return connect(settings.url, price=settings.price, max_cost_usd=max_cost, **limits)


def _allowed(settings: RunSettings) -> float | None:
    """US dollars that this process may spend on the judge; None for any amount.

    Raises:
        ConfigError: a resumed run has spent so much that not one more step fits.
    """
    told, price = settings.run, settings.judge.price
    account = read_account(told.resume) if told.resume else Account()
    if why := overdraft(account, price, told.max_cost):
        raise ConfigError(f"{why}; to go on, raise it: --max-cost MORE")
    return allowance(account, price, told.max_cost, int(os.environ.get("WORLD_SIZE", "1")))
