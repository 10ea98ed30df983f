"""A job: settings, and the reward, judge, verifier and form of the answer that are made from them.

A command reads its job once and passes it on; the code that it calls looks up nothing by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from factrl.errors import ConfigError, DataError
from factrl.llm import connect
from factrl.llm.spending import Account, read_account
from factrl.papers import (
    form_of,
    load_reward,
    paper_names,
    settings_of,
    split_spec,
    variant_settings,
)
from factrl.rewards import Reward
from factrl.rewards.needs import Supplier, check_resources, check_unjudged, readers, supply
from factrl.runs.config import Unused, load_settings, read_setting
from factrl.runs.settings import LOCAL, AskSettings, JudgeSettings, RunSettings, TrainSettings
from factrl.types import Example

if TYPE_CHECKING:
    from factrl.llm.local.llama import LlamaModel
    from factrl.llm.openai_compatible import OpenAICompatible
    from factrl.text.reasoning import Extract

S = TypeVar("S", bound=RunSettings)
REWARD_ALONE = ("model.name=none", "data.train=none")
"""Overrides for a job that makes a reward and trains nothing: values of the settings that every job needs."""
_ADAPTER = ("lora_rank", "lora_alpha", "lora_dropout", "lora_target_modules")
_READ_IN_ASKING = (
    *("max_completion_length", "max_prompt_length", "max_long_share"),
    *("bf16", "use_vllm", "vllm_mode", "vllm_server_base_url"),
)
_EXTRACTS: Mapping[str, Extract] = {
    "boxed": "boxed",
    "text": "text",
    "tags": "answer",
    "confidence": "answer",
}


@dataclass(frozen=True)
class Job(Generic[S]):
    """Settings and what is made from them; each part is made once, when it is first used.

    >>> job = read_job(None, ["paper=truthrl", "reward.wrong=-2", *REWARD_ALONE])
    >>> job.reward.missing
    ('grade',)
    >>> job.supplied(Example("Capital of Peru?", ("Lima",)), r"<think>Easy.</think> \\boxed{Lima}").value
    1.0
    """

    settings: S

    @cached_property
    def reward(self) -> Reward:
        """The reward with its knobs set and its resources not yet supplied."""
        return load_reward(self.settings.paper).with_(**self.settings.reward)

    @cached_property
    def judge(self) -> OpenAICompatible | LlamaModel | None:
        """The model that grades and compares; None where the settings name none.  Nothing is sent yet.

        It gets no requests once `run.max_cost` is spent; a job that only asks a model has no such limit.

        Raises:
            ConfigError: the run that is resumed has already spent it.
        """
        run, price = self.settings.run, self.settings.judge.price
        if isinstance(self.settings, AskSettings):
            return open_judge(self.settings.judge)
        account = read_account(run.output) if run.output else Account()
        if why := account.overdraft(price, run.max_cost):
            raise ConfigError(f"{why}; to go on, raise it: run.max_cost=MORE")
        allowed = account.allowance(price, run.max_cost, int(os.environ.get("WORLD_SIZE", "1")))
        return open_judge(self.settings.judge, max_cost=allowed)

    @cached_property
    def supplier(self) -> Supplier:
        """Makes the resources that a reward may ask for, such as graders and verifiers."""
        return Supplier(self.judge, self.settings.judge, self.settings.verifier)

    @cached_property
    def supplied(self) -> Reward:
        """The reward with everything that it needs."""
        return supply(self.checked(), supplier=self.supplier)

    @cached_property
    def extract(self) -> Extract:
        """The part of a completion that is the answer; your own reward says it only by its knob `answer`."""
        settings = self.settings
        if not settings.paper:
            return "text"
        if split_spec(settings.paper)[0] in paper_names():
            return _EXTRACTS[form_of(settings.paper, self.reward)]
        answer = settings.reward.get("answer")
        return _EXTRACTS[answer] if answer in ("boxed", "tags") else "text"

    def checked(self) -> Reward:
        """The reward without its resources, after a check that they can be made."""
        check_resources(self.reward)
        if self.settings.judge.url != LOCAL and self.judge is None:  # `local` is loaded on its first request
            check_unjudged(self.reward, self.supplier)
        return self.reward

    def check_examples(self, examples: Sequence[Example]) -> None:
        """Refuse questions that lack what the reward needs, such as evidence where nothing is searched."""
        self.reward.check_examples(examples)
        if self.reward.needed.searches and {*readers()["verifier.docs"]} & {*self.reward.missing}:
            self.check_evidence(examples)

    def check_evidence(self, examples: Sequence[Example]) -> None:
        """Refuse questions that come without evidence where the settings name nothing to search.

        Raises:
            DataError: there are such questions.
        """
        verifier = self.settings.verifier
        bare = [example for example in examples if not example.evidence]
        if bare and not (verifier.docs or verifier.index or verifier.web):
            raise DataError(
                f"{len(bare)} of {len(examples)} questions come without evidence, first {bare[0].id!r}; name "
                "the column with data.columns.evidence=…, or where to search: verifier.index=FOLDER, "
                "verifier.docs=FILE or verifier.web=URL"
            )


def read_job(
    source: Path | str | None,
    overrides: Sequence[str],
    cls: type[S] = RunSettings,
    unread: Callable[[Job[S]], Unused] | None = None,
) -> Job[S]:
    """The job of a recipe or an earlier run, with the knobs and defaults of the paper that they name.

    Args:
        cls: a kind of `RunSettings`, such as the `AskSettings` of a model that is only asked.
        unread: returns settings that the job does not read; overrides must not set them (`load_settings`).

    Raises:
        ConfigError: every problem at once, one line each.
    """
    problems: list[str] = []
    knobs = defaults = named = None
    paper = read_setting(cls, source, overrides, "paper")
    if isinstance(paper, str) and paper:
        try:
            knobs = {"reward": load_reward(paper).knobs}
            defaults = settings_of(paper)
            named = variant_settings(paper) if paper != read_setting(cls, source, (), "paper") else None
        except ConfigError as error:
            problems.append(str(error))
    unused = None if unread is None else lambda settings: unread(Job(settings))
    return Job(load_settings(cls, source, overrides, defaults, knobs, problems, unused, named=named))


def open_judge(
    settings: JudgeSettings, *, max_cost: float | None = None
) -> OpenAICompatible | LlamaModel | None:
    """The judge that the settings name, with no requests after `max_cost` US dollars; nothing is sent yet."""
    if not settings.url:
        return None
    if settings.url == LOCAL:
        from factrl.llm.local.llama import shared_model

        return shared_model()
    tpm = settings.tpm and settings.tpm / int(os.environ.get("WORLD_SIZE", "1"))
    return connect(settings.url, price=settings.price, max_cost_usd=max_cost, tpm=tpm, **settings.limits())


# -- Settings that a job does not read ----------------------------------------------------------------


def unread(settings: RunSettings, resources: Collection[str]) -> Unused:
    """The settings of `[model]`, `[judge]` and `[verifier]` that a job does not read, each with the reason.

    Args:
        resources: what its reward asks for, such as `grade` or `verify`.
    """
    needs = ", ".join(resources) or "no judge and no verifier"
    unused = {
        key: f"it is for {', '.join(names)}, and this needs {needs}"
        for key, names in readers().items()
        if not {*names} & {*resources}
    }
    if not settings.model.lora:
        unused |= {f"model.{name}": "all weights are trained without model.lora=true" for name in _ADAPTER}
    return unused


def unread_in_training(job: Job) -> Unused:
    """The settings that training with the job's reward does not read."""
    return unread(job.settings, [*job.reward.missing, *["grade"] * bool(job.settings.data.eval)])


def unread_in_asking(job: Job, *, long: bool = False) -> Unused:
    """The settings that a job which only asks a model does not read, and nor does its judge.

    Args:
        long: claims of long answers are checked.
    """
    needed = ["verify" if long else "grade"]
    trained = [f"train.{name}" for name in TrainSettings.model_fields if name not in _READ_IN_ASKING]
    trained += [f"model.{name}" for name in _ADAPTER]
    why = "it is for training; how answers are sampled is [sampling]"
    return {**unread(job.settings, needed), **dict.fromkeys(trained, why)}
