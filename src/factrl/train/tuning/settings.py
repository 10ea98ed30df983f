"""The settings of `factrl tune`: those of a model that is asked, a section `[tune]`, and what each method
takes from its paper.

In `[train]`, `prompts_per_step` are the rows of one optimizer step and `micro_batch_size` those of one
forward pass; what belongs to reinforcement learning alone is refused as an override.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, field_validator

from factrl.errors import ConfigError
from factrl.job import Job, unread
from factrl.papers import load_reward, settings_of
from factrl.runs.config import Unused, load_settings, read_setting
from factrl.runs.data import template_names
from factrl.runs.resume import settings_text
from factrl.runs.settings import AskSettings, RunSettings, Section
from factrl.text.reasoning import Extract
from factrl.train.tuning.rules import RULES, Rule

Method = Literal["sft", "rft", "r-tuning", "dpo"]
RuleName = Literal["correctness", "given"]
TUNE = "tune.toml"  # of a run folder: all settings; its config.toml says how the model is asked

_REWARDED = (  # of `[train]`: for training with a reward alone
    *("num_generations", "loss_type", "scale_rewards", "beta", "use_bias_correction_kl", "entropy_coef"),
    *("epsilon", "epsilon_high", "advantage_epsilon", "num_iterations", "temperature", "top_p"),
    *("mask_truncated_completions", "eval_steps", "vllm_mode", "vllm_server_base_url"),
)
_TARGETS: Mapping[Extract, str] = {
    "text": "{answer}",
    "boxed": r"\boxed{{{answer}}}",
    "answer": "<answer>{answer}</answer>",
}


class TuneSection(Section):
    """`[tune]`: where the rows come from and how pairs are learnt from."""

    method: Method
    """What is done: sft, rft, r-tuning or dpo."""
    rule: RuleName | None = None
    """Where dpo's pairs are from: own samples by `correctness`, or the file, where they are `given`."""
    beta: float = Field(default=0.1, gt=0)
    """How closely DPO keeps to its reference; TRL's default, as no paper here says."""
    probe: str | None = None
    """`questions.jsonl` of `factrl eval --samples` on these questions: what the model knows, and samples that
    need not be written again."""
    target: str | None = None
    """The completion that gives an answer, with {answer} for the answer; by default the answer alone, where
    the reward of `paper` looks for it: no reasoning stands before it."""
    abstention: str = Field(default="I don't know", min_length=1)
    """The answer that declines."""

    @field_validator("target")
    @classmethod
    def _target_holds_the_answer(cls, value: str | None) -> str | None:
        if value is not None and template_names(value) != ["answer"]:
            raise ValueError(
                f"tune.target = {value!r} must hold {{answer}} once and no other name; write {{{{ and }}}} "
                "for literal braces"
            )
        return value


class TuneSettings(AskSettings):
    """All settings of `factrl tune`."""

    paper: str = ""
    """A reward: whose prompt, form of answers and adapter are taken."""
    tune: TuneSection

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        tune, train = self.tune, self.train
        if tune.rule is None and tune.method == "dpo":
            yield f"tune.method = 'dpo' needs tune.rule, one of {', '.join(get_args(RuleName))}"
        elif tune.rule is not None and tune.method != "dpo":
            yield f"tune.rule = {tune.rule!r} makes pairs, and {tune.method!r} learns from none"
        if not self.model.is_policy:
            yield (
                f"model.name = {self.model.name!r} cannot be trained; give a folder or a hub id, and samples "
                "that a server wrote with tune.probe="
            )
        if self.model.load_in_4bit:
            yield "model.load_in_4bit is for factrl train: tune saves whole weights, which 4 bits do not hold"
        rows, part = train.prompts_per_step, train.micro_batch_size
        if rows % part and rows > part:
            yield (
                f"train.micro_batch_size = {part} does not divide train.prompts_per_step = {rows}, "
                "the rows of a step"
            )

    def unclosed(self, begun: str) -> Iterator[str]:
        """What is wrong with answers without reasoning where the assistant's turn has begun in one."""
        tune = self.tune
        opens = begun.rfind("<think>") > begun.rfind("</think>")
        if self.writes_answers and tune.target is None and opens:
            yield (
                f"tune.target is needed: the assistant's turn starts with {begun!r}, a reasoning that the "
                f"answer alone would never close, and {tune.rule or tune.method!r} writes answers; say what "
                "stands before one, e.g. tune.target='I recall this.</think><answer>{answer}</answer>'"
            )

    @property
    def writes_answers(self) -> bool:
        """Whether completions are made of given answers, and are not all the model's own."""
        return self.tune.method in ("sft", "r-tuning") or self.tune.rule == "correctness"

    @property
    def rule(self) -> Rule | None:
        """How questions and samples become rows; None of pairs that are given."""
        return RULES.get(self.tune.rule or self.tune.method)

    @property
    def samples(self) -> bool:
        """Whether the model's own samples are learned from."""
        return self.rule is not None and self.rule.samples

    def asking(self) -> str:
        """`config.toml`: how the model is asked, without what is only of tuning; any verb reads it."""
        values = {name: getattr(self, name) for name in RunSettings.model_fields}
        return settings_text(RunSettings.model_construct(**values))


# What each method takes from its paper.  The values of sft, rft, r-tuning and dpo are TruthRL's; its DPO
# temperature is not given, RFT's is taken.  One epoch, unless told otherwise, is `train.epochs`' own default.
_SFT = {
    "learning_rate": 5e-6,
    "prompts_per_step": 16,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.03,  # a share
}
_NUCLEUS = {"temperature": 0.6, "top_p": 0.9}
_METHODS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "sft": {"train": _SFT},
    "r-tuning": {"train": _SFT},
    "rft": {"train": _SFT, "sampling": {"num_samples": 64, **_NUCLEUS}},
    "dpo": {"train": {"learning_rate": 3e-6, "prompts_per_step": 32}},
    "correctness": {"sampling": {"num_samples": 32, **_NUCLEUS}},
}


def read_tuning_job(source: Path | str | None, overrides: Sequence[str]) -> Job[TuneSettings]:
    """The job of a recipe or an earlier run, with the defaults of method, rule and paper.

    Raises:
        ConfigError: every problem at once, one line each.
    """
    method, rule, paper = (
        read_setting(TuneSettings, source, overrides, key) for key in ("tune.method", "tune.rule", "paper")
    )
    defaults: dict[str, Any] = {}
    problems: list[str] = []
    knobs = None
    if isinstance(paper, str) and paper:
        try:
            knobs = {"reward": load_reward(paper).knobs}
            _merge(defaults, _of_every_stage(paper))
        except ConfigError as error:
            problems.append(str(error))
    for layer in (_METHODS.get(str(method), {}), _METHODS.get(str(rule), {})):
        _merge(defaults, layer)

    def unused(settings: TuneSettings) -> Unused:
        return unread_in_tuning(Job(settings))

    return Job(load_settings(TuneSettings, source, overrides, defaults, knobs, problems, unused))


def unread_in_tuning(job: Job[TuneSettings]) -> Unused:
    """The settings that tuning by the job's method does not read."""
    settings, tune = job.settings, job.settings.tune
    unused = {f"train.{name}": "it is for training with a reward" for name in _REWARDED}
    unused |= unread(settings, ["grade"] if settings.samples else [])
    unused |= {"run.max_cost": "factrl tune has no limit of cost"}
    unused |= {"data.eval": "factrl eval asks a model before and after, and factrl report compares"}
    if tune.method != "dpo":
        unused["tune.beta"] = f"{tune.method} learns from no pairs"
    if not settings.writes_answers:
        unused |= dict.fromkeys(("tune.target", "tune.abstention"), "no completion is made of an answer")
    if not settings.samples:
        names = ("sampling", "train.max_masked_share", "train.use_vllm")
        unused |= dict.fromkeys(names, f"{tune.rule or tune.method} writes no samples")
    return unused


def completion_for(job: Job[TuneSettings], answer: str) -> str:
    """The completion that gives this answer and nothing else.

    >>> words = ["tune.method=sft", "paper=truthrl", "model.name=org/model", "data.train=questions.jsonl"]
    >>> completion_for(read_tuning_job(None, words), "Lima")
    '\\\\boxed{Lima}'
    """
    return (job.settings.tune.target or _TARGETS[job.extract]).format_map({"answer": answer})


def _of_every_stage(paper: str) -> Mapping[str, Mapping[str, Any]]:
    """What a paper says of all its stages: of `[train]`, which is its reward's, an answer's length."""
    settings = dict(settings_of(paper))
    train = settings.pop("train", {})
    length = "max_completion_length"
    return {**settings, "train": {length: train[length]}} if length in train else settings


def _merge(into: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value
