"""What a training run will do, ask and cost: settings, reward, questions and judge, checked without torch.

Everything that is wrong here is found in a second, before a model is loaded or a run folder exists, and
whether or not the extra `train` is installed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from factrl.errors import ConfigError, DataError, MissingExtra
from factrl.evals.shortqa import Extract
from factrl.llm import connect, models
from factrl.llm.spending import BYTES_PER_TOKEN, Account, Spent, allowance, overdraft, read_account
from factrl.papers import asked_of, form_of, load_reward, paper_names, settings_of, split_spec
from factrl.rewards import Reward
from factrl.rewards.resources import RESOURCES, Supplier, check_resources, check_unjudged, readers, supply
from factrl.runs.config import Unused, load_settings, read_setting
from factrl.runs.data import load_held_out, load_training, render_prompt
from factrl.runs.settings import LOCAL, JudgeSettings, RunSettings, TrainSettings
from factrl.text import clean
from factrl.types import Example

if TYPE_CHECKING:
    from factrl.llm.local.llama import LlamaModel
    from factrl.llm.openai_compatible import OpenAICompatible
    from factrl.verifier.search import Search

S = TypeVar("S", bound=RunSettings)
REWARD_ALONE = ("model.name=none", "data.train=none")
"""Settings that every run needs, where a reward is made and nothing is trained."""
SCORED = 64  # held-out answers that the reward scores too (`train.held_out`)
_LIMITS = {"max_concurrency", "timeout_attempt", "timeout_call", "max_attempts"}
_REPLY = 512  # tokens that a verdict may have
_ANSWER = 200  # bytes of a short answer that a grader is shown
_UNKNOWN = "unknown: it depends on what the completions say"
_ADAPTER = ("lora_rank", "lora_alpha", "lora_dropout", "lora_target_modules")
_ASKED = ("max_completion_length", "bf16", "use_vllm", "vllm_mode", "vllm_server_base_url")
_EXTRACTS = dict[str, Extract](boxed="boxed", text="text", tags="answer", confidence="answer")


@dataclass(frozen=True)
class Plan:
    """A run that can start as far as can be told without its model.

    Attributes:
        reward: with its knobs set; its resources are supplied unless the plan is only shown.
        judge: None when answers are compared by rules alone.
        prompt: what the user says in the first example.
        search: what the policy may search before it answers; None where it answers at once.
        repeats: what is to be said of prompts that stand in several rows; "" where none does.
    """

    settings: RunSettings
    reward: Reward
    judge: OpenAICompatible | LlamaModel | None
    examples: Sequence[Example]
    held_out: Sequence[Example]
    prompt: str
    search: Search | None = None
    repeats: str = ""

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


def run_settings(
    source: Path | str | None,
    overrides: Sequence[str],
    cls: type[S] = RunSettings,
    unused: Callable[[S], Unused] | None = None,
) -> S:
    """The settings of a recipe or an earlier run, with the knobs and defaults of the paper that they name.

    Args:
        cls: a kind of `RunSettings`, such as the `AskSettings` of a model that is only asked.
        unused: of the settings, those that must not be among the overrides (`load_settings`).

    Raises:
        ConfigError: every problem at once, one line each.
    """
    problems: list[str] = []
    knobs = defaults = None
    paper = read_setting(cls, source, overrides, "paper")
    if isinstance(paper, str) and paper:
        try:
            knobs = {"reward": load_reward(paper).knobs}
            defaults = settings_of(paper)
        except ConfigError as error:
            problems.append(str(error))
    return load_settings(cls, source, overrides, defaults, knobs, problems, unused)


def unread(settings: RunSettings, resources: Collection[str]) -> Unused:
    """The settings of `[model]`, `[judge]` and `[verifier]` that a job with these resources does not read."""
    needs = ", ".join(resources) or "no judge and no verifier"
    found = {
        key: f"it is for {', '.join(names)}, and this needs {needs}"
        for key, names in readers().items()
        if not {*names} & {*resources}
    }
    if not settings.model.lora:
        found |= {f"model.{name}": "all weights are trained without model.lora=true" for name in _ADAPTER}
    return found


def unread_in_training(settings: RunSettings) -> Unused:
    """The settings that training with the reward that they name does not read."""
    reward = load_reward(settings.paper).with_(**settings.reward)
    return unread(settings, [*reward.missing, *["grade"] * bool(settings.data.eval)])


def unread_in_asking(settings: RunSettings, *, long: bool = False, reasoning: bool = False) -> Unused:
    """The settings that a model which is asked, and its judge, do not read.

    Args:
        long: claims of long answers are checked.
        reasoning: the sentences before a short answer are.
    """
    needed = ["verify"] if long else ["grade", *["verify"] * reasoning]
    trained = [f"train.{name}" for name in TrainSettings.model_fields if name not in _ASKED]
    trained += [f"model.{name}" for name in _ADAPTER]
    told = dict.fromkeys(trained, "it is for training; how answers are sampled is [sampling]")
    return {**unread(settings, needed), **told}


def make_plan(settings: RunSettings, *, only_show: bool = False) -> Plan:
    """Check what can be checked without the model; a plan that is only shown opens no judge."""
    for key, why in asked_of(settings.paper).items():  # what the paper has and does not tell
        section, _, name = key.partition(".")
        if name not in getattr(settings, section).model_fields_set:
            raise ConfigError(f"{settings.paper} needs {key}: {why}")
    reward, judge, data = bare_reward(settings), None, settings.data
    examples = load_training(data, require_answers=reward.needs_answers)
    check_usable(settings, reward, examples)
    check_enough(len(examples), len(examples), settings)
    held_out = load_held_out(data)
    # Each can lack a column, or hold what is no text.
    prompts = [render_prompt(example, data.prompt) for example in (*examples, *held_out)]
    told = settings.search
    search = None
    if told.index is not None:
        if "certainty" in reward.resources:
            raise ConfigError(f"{settings.paper} pays for the certainty of one text; leave search.index out")
        from factrl.verifier import open_search

        search = open_search(index=told.index, embedder="" if only_show else told.embedder)
    if not only_show:
        reward, judge = supplied_reward(settings)
    repeats = repeated(prompts[: len(examples)], examples)
    return Plan(settings, reward, judge, examples, held_out, prompts[0], search, repeats)


def repeated(prompts: Sequence[str], examples: Sequence[Example]) -> str:
    """What is to be said of prompts that stand in several rows, above all with other answers; "" of none."""
    rows: dict[str, list[Example]] = {}
    for prompt, example in zip(prompts, examples, strict=True):
        rows.setdefault(prompt, []).append(example)
    several = [same for same in rows.values() if len(same) > 1]
    if not several:
        return ""
    said = f"{len(several)} of {len(rows)} prompts stand in {sum(map(len, several))} rows"
    others = [(same[0], next(filter(partial(_apart, same[0]), same), None)) for same in several]
    apart = [(one, other) for one, other in others if other is not None]
    if apart:
        one, other = apart[0]
        said += (
            f"; the rows of {len(apart)} have no accepted answer in common, so that one row pays what the "
            f"other punishes, first {one.question[:80]!r}: {one.answers[0]!r} ({one.id}) and "
            f"{other.answers[0]!r} ({other.id}); mend them or leave them out"
        )
    return said


def _apart(one: Example, other: Example) -> bool:
    accepted = ({clean(answer).casefold() for answer in example.answers} for example in (one, other))
    return all((one.answers, other.answers)) and set.isdisjoint(*accepted)


def bare_reward(settings: RunSettings) -> Reward:
    """The reward that the settings name, without what it needs, after a look at whether that can be had."""
    reward = load_reward(settings.paper).with_(**settings.reward)
    check_resources(reward)
    if not settings.judge.url:
        check_unjudged(reward, Supplier(None, settings.judge, settings.verifier))
    elif settings.judge.url != LOCAL:
        open_judge(settings.judge)  # the address alone; nothing is sent
    return reward


def check_usable(settings: RunSettings, reward: Reward, examples: Sequence[Example]) -> None:
    """Refuse questions that lack what the bare reward needs, such as evidence where nothing is searched."""
    reward.check_examples(examples)
    told = settings.verifier
    if not reward.searches or not {*readers()["verifier.docs"]} & {*reward.missing}:
        return
    bare = [] if told.docs or told.index or told.web else [e for e in examples if not e.evidence]
    if bare:
        raise DataError(
            f"{len(bare)} of {len(examples)} questions come without evidence, first {bare[0].id!r}; name the "
            "column with data.columns.evidence=…, or where to search: verifier.index=FOLDER, "
            "verifier.docs=FILE or verifier.web=URL"
        )


def check_enough(left: int, total: int, settings: RunSettings) -> None:
    """Refuse fewer questions than one step takes; those that are left have prompts that are short enough."""
    told = settings.train
    if left < told.prompts_per_step:
        limit = f" (train.max_prompt_length = {told.max_prompt_length})" if left < total else ""
        lower = f"give train.prompts_per_step={left}" if left else "lower train.prompts_per_step"
        raise DataError(
            f"{settings.data.train}: {left} of {total} questions can be used{limit}, fewer than the "
            f"{told.prompts_per_step} of one step; {lower} or add questions"
        )


def supplied_reward(settings: RunSettings) -> tuple[Reward, OpenAICompatible | LlamaModel | None]:
    """The reward that the settings name with everything that it needs, and the judge among it."""
    told, price = settings.run, settings.judge.price
    account = read_account(told.resume) if told.resume else Account()
    if why := overdraft(account, price, told.max_cost):
        raise ConfigError(f"{why}; to go on, raise it: --max-cost MORE")
    allowed = allowance(account, price, told.max_cost, int(os.environ.get("WORLD_SIZE", "1")))
    judge = open_judge(settings.judge, max_cost=allowed)
    return supply(bare_reward(settings), supplier=Supplier(judge, settings.judge, settings.verifier)), judge


def open_judge(
    settings: JudgeSettings, *, max_cost: float | None = None
) -> OpenAICompatible | LlamaModel | None:
    """The judge that the settings name, asked no more after so many US dollars; nothing is sent yet."""
    if not settings.url:
        return None
    if settings.url == LOCAL:
        from factrl.llm.local.llama import shared_model

        return shared_model()
    limits = settings.model_dump(include=_LIMITS)
    limits["tpm"] = settings.tpm and settings.tpm / int(os.environ.get("WORLD_SIZE", "1"))
    return connect(settings.url, price=settings.price, max_cost_usd=max_cost, **limits)


def extract_of(spec: str, knobs: Mapping[str, Any]) -> Extract:
    """What of a completion is the answer, for the reward of this name once its knobs are set.

    A reward of your own is not loaded: its knob `answer` says it, else it reads the whole text.
    """
    if split_spec(spec)[0] not in paper_names():
        said = knobs.get("answer")
        return _EXTRACTS[said] if said in ("boxed", "tags") else "text"
    reward = load_reward(spec)
    return _EXTRACTS[form_of(spec, replace(reward, knobs={**reward.knobs, **knobs}))]


def not_installed(settings: RunSettings, reward: Reward) -> MissingExtra | None:
    """What a run with this bare reward would miss first on this machine; None where nothing is missing.

    Nothing is imported or loaded.
    """
    local = settings.judge.url == LOCAL
    needs: list[tuple[tuple[str, ...], str]] = [
        (("torch", "transformers", "trl", "peft", "accelerate", "datasets"), "train")
    ]
    embedded = {model.name for model in models.known() if model.role == "policy"}
    if local or ("truthfulness" in reward.missing and settings.judge.truthfulness_model is None):
        needs.insert(0, (("xllamacpp",), "local"))
    elif settings.verifier.judge == LOCAL and {"verify", "checklist"} & {*reward.missing}:
        needs.append((("gguf",), "local"))  # with it, 8-bit integers judge, or else llama.cpp beside it
    if settings.verifier.embedder or settings.search.embedder:
        needs.append((("sentence_transformers",), "dense"))
    if settings.model.name in embedded and not Path(settings.model.name).exists():
        needs.append((("gguf",), "local" if local else "demo"))
    absent = ((name, extra) for names, extra in needs for name in names if find_spec(name) is None)
    return next((MissingExtra(name, extra) for name, extra in absent), None)


# -- What it will take --------------------------------------------------------------------------------


def estimate(plan: Plan) -> dict[str, str]:
    """Calls, tokens and cost, each counted or bounded in a line; what cannot be told is unknown."""
    told, url, price = plan.settings, plan.settings.judge.url, plan.settings.judge.price
    around = len(f"{told.data.system or ''}{told.data.prefill}".encode())
    prompt = around + fmean(len(render_prompt(e, told.data.prompt).encode()) for e in plan.examples)
    read, most = prompt / BYTES_PER_TOKEN, told.train.max_completion_length
    tokens = f"policy: about {read * plan.completions:,.0f} read, at most {plan.completions * most:,} written"
    if not url or url == LOCAL:
        calls = f"0 of a server: the judge is {'in this process' if url else 'none'}"
        return {"calls": calls, "tokens": tokens, "cost": "$0 for the judge"}
    spent = _of_judge(plan)
    if spent is None:
        calls, cost, tokens = _UNKNOWN, _UNKNOWN, f"{tokens}; judge: unknown"
    else:
        calls, cost = f"{spent.calls:,} of the judge, at most", ""
        if spent.calls:
            tokens += f"; judge: {spent.tokens_in:,} read, {spent.tokens_out:,} written, at most"
        if price is not None:
            cost = f"${spent.cost(price):,.4g} for the judge, at most"
    if price is None:
        cost = "no price set: judge.price_in and judge.price_out, US dollars for a million tokens"
    elif told.run.max_cost is not None:
        cost += f"; the run stops before ${told.run.max_cost:g}"
    return {"calls": calls, "tokens": tokens, "cost": cost}


def _of_judge(plan: Plan) -> Spent | None:
    """What the judge will be asked at most, but for repeated requests; None where claims decide it.

    The text of a request is the prompt, the question, its answers and the completion, at four bytes a token.
    """
    told, every = plan.settings, plan.settings.train.eval_steps
    asking = {name: RESOURCES[name] for name in plan.reward.missing if RESOURCES[name].asks(told.judge)}
    if not all(row.prompt for row in asking.values()):
        return None
    rounds = 1 + ((plan.steps - 1) // every if every else 0)
    rewarded = plan.completions + (rounds * min(len(plan.held_out), SCORED) if every else 0)
    question = fmean(sum(len(t.encode()) for t in (e.question, *e.answers)) for e in plan.examples)
    spent = Spent()
    for name, calls in (("grade", len(plan.held_out) * rounds), *((name, rewarded) for name in asking)):
        room = _ANSWER if name == "grade" else told.train.max_completion_length * BYTES_PER_TOKEN
        text = len(RESOURCES[name].prompt.encode()) + question + room
        spent += Spent(calls, round(calls * text / BYTES_PER_TOKEN), calls * _REPLY)
    return spent
