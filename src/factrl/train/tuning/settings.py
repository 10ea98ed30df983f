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
from factrl.papers import load_reward, settings_of, split_spec
from factrl.runs.config import Unused, dump_toml, load_settings, read_setting
from factrl.runs.data import template_names
from factrl.runs.settings import AskSettings, Positive, RunSettings, Section
from factrl.text.reasoning import Extract
from factrl.train.tuning.labelled import LABELLED, Labelled
from factrl.train.tuning.rules import RULES, Measure, Rule

Method = Literal["sft", "rft", "r-tuning", "dpo", "iterative-dpo", "sft-seed", Labelled]
RuleName = Literal["correctness", "max-min", "margin-length", "factscore", "factscore-ends", "klc", "given"]
PAIRED = ("dpo", "iterative-dpo")
VERIFIED = "factreason"  # a reward that asks `verify` alone of what is needed to measure precision
TUNE = "tune.toml"  # of a run folder: all settings; its config.toml says how the model is asked

_REWARDED = (  # of `[train]`: for training with a reward alone
    *("num_generations", "loss_type", "scale_rewards", "beta", "use_bias_correction_kl", "entropy_coef"),
    *("epsilon", "epsilon_high", "advantage_epsilon", "num_iterations", "temperature", "top_p"),
    *("mask_truncated_completions", "eval_steps", "use_vllm", "vllm_mode", "vllm_server_base_url"),
)
_TARGETS: Mapping[Extract, str] = {
    "text": "{answer}",
    "boxed": r"\boxed{{{answer}}}",
    "answer": "<answer>{answer}</answer>",
}


class TuneSection(Section):
    """`[tune]`: where the rows come from and how pairs are learnt from."""

    method: Method
    """What is done: sft, rft, r-tuning, sft-seed, dpo or iterative-dpo; on labelled rows, for KLCF's own
    models, truthfulness, checklist-verifier or extractor."""
    rule: RuleName | None = None
    """How samples become pairs, for dpo: correctness, max-min, margin-length, factscore or klc, or the
    `given` ones, whose columns are `data.columns.answers` and `data.columns.rejected`."""
    chosen: str | None = None
    """Column of a completion that is preferred to the sample of the lowest value, in place of the sample of
    the highest (max-min, factscore-ends, klc); KnowRL's DPO prefers DeepSeek-R1's."""
    claims_of: Literal["answer", "reasoning"] = "answer"
    """Whose claims precision is the share of: the answer's, or those of the reasoning before `<answer>`, as
    in KnowRL's FactTune-FS."""
    beta: float = Field(default=0.1, gt=0)
    """How closely DPO keeps to its reference; TRL's default, as no paper here says."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=0.5)
    """Share of the pairs that DPO takes to be the wrong way round (conservative DPO)."""
    rounds: Positive = 1
    """Rounds of iterative-dpo: each samples from the model of the round before, which is its reference."""
    probe: str | None = None
    """Output of `factrl probe` on these questions: what the model knows, and samples that need not be written
    again."""
    demonstrations: str | None = None
    """File of worked examples, `prompt` and `response`, of which the first ones precede the question while
    sampling; the model is trained without them. By default sft-seed and margin-length have two of factrl's
    own, where the prompt is factreason's."""
    shots: Positive = 2
    """How many of them."""
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
    """A reward: the one that max-min ranks by, and whose prompt, form of answers, verifier and adapter are
    taken."""
    tune: TuneSection

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        tune, train = self.tune, self.train
        if tune.rule is None and tune.method in PAIRED:
            yield f"tune.method = {tune.method!r} needs tune.rule, one of {', '.join(get_args(RuleName))}"
        elif tune.rule is not None and tune.method not in PAIRED:
            yield f"tune.rule = {tune.rule!r} makes pairs, and {tune.method!r} learns from none"
        elif tune.rule == "given" and tune.method != "dpo":
            yield "tune.rule = 'given' has the same pairs in every round; it is for dpo"
        if tune.chosen is not None and tune.rule not in ("max-min", "factscore-ends", "klc"):
            yield (
                f"tune.chosen = {tune.chosen!r} is for the rules max-min, factscore-ends and klc, not for "
                f"{tune.rule or tune.method!r}"
            )
        if tune.rounds > 1 and tune.method != "iterative-dpo":
            yield f"tune.rounds = {tune.rounds} is for iterative-dpo, not for {tune.method!r}"
        if tune.rule == "max-min" and not self.paper:
            yield "tune.rule = 'max-min' ranks by a reward; name it: paper=truthrl"
        if not self.model.is_policy:
            yield (
                f"model.name = {self.model.name!r} cannot be trained; give a folder or a hub id, and samples "
                "that a server wrote with --probe"
            )
        if self.model.load_in_4bit:
            yield "model.load_in_4bit is for factrl train: tune saves whole weights, which 4 bits do not hold"
        rows, part = train.prompts_per_step, train.micro_batch_size
        if rows % part and rows > part:
            yield (
                f"train.micro_batch_size = {part} does not divide train.prompts_per_step = {rows}, "
                "the rows of a step"
            )
        yield from self.unclosed(self.data.prefill)

    def unclosed(self, begun: str) -> Iterator[str]:
        """What is wrong with answers without reasoning where the assistant's turn has begun in one."""
        tune = self.tune
        if (
            self.writes_answers
            and tune.method not in LABELLED
            and tune.target is None
            and begun.rfind("<think>") > begun.rfind("</think>")
        ):
            yield (
                f"tune.target is needed: the assistant's turn starts with {begun!r}, a reasoning that the "
                f"answer alone would never close, and {tune.rule or tune.method!r} writes answers; say what "
                "stands before one, e.g. tune.target='I recall this.</think><answer>{answer}</answer>'"
            )

    @property
    def writes_answers(self) -> bool:
        """Whether completions are made of given answers, and are not all the model's own."""
        return self.tune.method in ("sft", "r-tuning", *LABELLED) or self.tune.rule == "correctness"

    @property
    def rule(self) -> Rule:
        """How samples become rows."""
        return RULES[self.tune.rule or self.tune.method]

    @property
    def measure(self) -> Measure | None:
        """What the samples are measured by; None when none are needed."""
        return self.rule.measure

    def asking(self) -> str:
        """`config.toml`: how the model is asked, without what is only of tuning; any verb reads it."""
        values = {name: getattr(self, name) for name in RunSettings.model_fields}
        return dump_toml(RunSettings.model_construct(**values))


# What each method takes from its paper.  The values of sft, rft, r-tuning and dpo are TruthRL's; its DPO
# temperature is not given, RFT's is taken.  One epoch, unless told otherwise, is `train.epochs`' own default.
_SFT = {
    "learning_rate": 5e-6,
    "prompts_per_step": 16,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.03,  # a share
}
_LABELLED = {**_SFT, "learning_rate": 2e-5, "warmup_steps": 0.1}
_DPO = {"learning_rate": 3e-6, "prompts_per_step": 32}
_NUCLEUS = {"temperature": 0.6, "top_p": 0.9}
_METHODS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "sft": {"train": _SFT},
    "r-tuning": {"train": _SFT},
    "rft": {"train": _SFT, "sampling": {"num_samples": 64, **_NUCLEUS}},
    # 4 rows on each of 8 processes; the temperature is not given.
    "sft-seed": {
        "paper": "factreason",
        "train": {"learning_rate": 5.5e-6, "prompts_per_step": 32},
        "sampling": {"num_samples": 10, "temperature": 1.0},
    },
    # Of KLCF's own models only the two epochs are known: the rest is ours.  Its prompt of claims ends where
    # the answer begins.
    "truthfulness": {
        "train": {**_LABELLED, "max_completion_length": 4},
        "data": {"chat": False, "prompt": "{question}"},
        "tune": {"target": " {answer}"},
    },
    "checklist-verifier": {"train": {**_LABELLED, "epochs": 2.0}, "data": {"prompt": "{question}"}},
    "extractor": {"train": {**_LABELLED, "epochs": 2.0}, "data": {"prompt": "{question}"}},
    "dpo": {"train": _DPO},
    "iterative-dpo": {"train": _DPO, "tune": {"rounds": 4}},
}
_KLCF = {  # rate and schedule are those of all its experiments; the share of warm-up and the temperature are
    # ours, and the rows of a step, which are lost, are those of `dpo`
    "train": {"learning_rate": 1e-6, "lr_scheduler_type": "cosine", "warmup_steps": 0.1},
    "sampling": {"num_samples": 8, "temperature": 1.0},
}
_RULES: Mapping[str, Mapping[str, Any]] = {
    # TruthRL's code smooths labels by 0.1, which its text does not say: tune.label_smoothing=0.1.
    "correctness": {"sampling": {"num_samples": 32, **_NUCLEUS}},
    "max-min": {"paper": "truthrl", "sampling": {"num_samples": 32, **_NUCLEUS}},
    "margin-length": {
        "paper": "factreason",
        "train": {"learning_rate": 1e-6, "prompts_per_step": 16},  # 1 row on each of 16 processes
        "sampling": {"num_samples": 10, "temperature": 1.0},
    },
    "factscore": {"sampling": {"num_samples": 10, "temperature": 1.0}},  # the temperature is the paper's
    "factscore-ends": _KLCF,
    "klc": {"paper": "klcf", **_KLCF},
}


def read_tuning_job(source: Path | str | None, overrides: Sequence[str]) -> Job[TuneSettings]:
    """The job of a recipe or an earlier run, with the defaults of method, rule and paper.

    Raises:
        ConfigError: every problem at once, one line each.
    """
    method, rule, paper = (
        read_setting(TuneSettings, source, overrides, key) for key in ("tune.method", "tune.rule", "paper")
    )
    layers = (_METHODS.get(str(method), {}), _RULES.get(str(rule), {}))
    paper = paper or layers[1].get("paper") or layers[0].get("paper")
    defaults: dict[str, Any] = {}
    problems: list[str] = []
    knobs = None
    if isinstance(paper, str) and paper:
        try:
            knobs = {"reward": load_reward(paper).knobs}
            if method not in LABELLED:  # whose rows are whole prompts, and no answers of the policy
                _merge(defaults, _of_every_stage(paper))
        except ConfigError as error:
            problems.append(str(error))
        if rule == "klc" and split_spec(paper)[0] != "klcf":
            problems.append(
                f"tune.rule = 'klc' ranks by KLCF's Eq. 11, not by {paper!r}; leave the paper out"
            )
    for layer in layers:
        _merge(defaults, layer)

    def unused(settings: TuneSettings) -> Unused:
        return unread_in_tuning(Job(settings))

    return Job(load_settings(TuneSettings, source, overrides, defaults, knobs, problems, unused))


def measuring_job(job: Job[TuneSettings]) -> Job[TuneSettings] | None:
    """The job whose reward needs what samples are measured with; None where they are graded, or are none.

    For precision it is a reward that needs a verifier alone; of KLCF's, what is not of its Eq. 11 has no
    weight.
    """
    settings, measure = job.settings, job.settings.measure
    changed: dict[str, Any] = {}
    if measure == "precision":
        changed = {"paper": VERIFIED, "reward": {"weight_preference": 0.0}}
    elif measure == "klcf":
        own = {"general": 0.0, "length_max": None, "length_buffer": None}
        changed = {"reward": {**settings.reward, **own}}
    elif measure != "reward":
        return None
    return Job(settings.model_copy(update=changed))


def unread_in_tuning(job: Job[TuneSettings]) -> Unused:
    """The settings that tuning by the job's method does not read."""
    settings, tune, measuring = job.settings, job.settings.tune, measuring_job(job)
    needed = ["grade"] if settings.measure == "grade" or settings.data.eval else []
    needed += measuring.reward.missing if measuring else ()
    unused = {f"train.{name}": "it is for training with a reward" for name in _REWARDED}
    unused |= {**unread(settings, needed), "run.max_cost": "factrl tune has no limit of cost"}
    if tune.method not in PAIRED:
        of_pairs = ("tune.beta", "tune.label_smoothing")
        unused |= dict.fromkeys(of_pairs, f"{tune.method} learns from no pairs")
    if not settings.writes_answers:
        unused |= dict.fromkeys(("tune.target", "tune.abstention"), "all completions are the model's own")
    if settings.measure is None:
        names = ("sampling", "tune.demonstrations", "tune.shots", "train.max_masked_share")
        unused |= dict.fromkeys(names, f"{tune.method} writes no samples")
    if tune.method != "iterative-dpo":
        unused["tune.rounds"] = f"{tune.method} has one round"
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
