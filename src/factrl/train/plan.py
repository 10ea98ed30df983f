"""What a training run will do: settings, reward, questions and judge, checked without torch.

Mistakes are reported within a second, before a model is loaded or a run folder exists, and whether or not the
extra `train` is installed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from factrl.errors import ConfigError, DataError, MissingExtra
from factrl.job import Job
from factrl.llm import models
from factrl.papers import asked_of
from factrl.rewards import Reward
from factrl.runs.data import load_held_out, load_training, render_prompt
from factrl.runs.settings import LOCAL, RunSettings, TrainSettings
from factrl.text import clean
from factrl.train.answering import check_no_search
from factrl.types import Example

if TYPE_CHECKING:
    from factrl.verifier.search.index import Index

SCORED = 64  # held-out answers that the reward scores too (`train.held_out`)


@dataclass(frozen=True)
class Plan:
    """A run that was checked as far as possible without its model.

    Attributes:
        index: what the policy may search before it answers; None where it answers at once.
        repeats: a warning about prompts that stand in several rows; "" where there are none.
    """

    job: Job
    examples: Sequence[Example]
    held_out: Sequence[Example] = ()
    index: Index | None = None
    repeats: str = ""

    @property
    def settings(self) -> RunSettings:
        """The settings of the job."""
        return self.job.settings

    @property
    def prompt(self) -> str:
        """The user's message for the first example."""
        return render_prompt(self.examples[0], self.settings.data.prompt)

    @property
    def steps(self) -> int:
        """Optimizer steps; an upper bound where `train.epochs` sets them and some prompts are too long."""
        return steps_of(len(self.examples), self.settings.train)

    @property
    def batches(self) -> int:
        """How often completions are sampled; each time serves `num_iterations` steps."""
        return math.ceil(self.steps / self.settings.train.num_iterations)

    @property
    def completions(self) -> int:
        """Completions that are written and graded."""
        train = self.settings.train
        return self.batches * train.prompts_per_step * train.num_generations


def steps_of(questions: int, train: TrainSettings) -> int:
    """Optimizer steps of a run over so many questions, of which a rest that fills no batch is left out."""
    batches = questions // train.prompts_per_step
    # Rounded up: transformers also does a step that the end of an epoch cuts short.
    return train.steps or max(1, math.ceil(batches * train.num_iterations * train.epochs))


def make_plan(job: Job) -> Plan:
    """Check what can be checked without the model; no request is sent."""
    settings, data = job.settings, job.settings.data
    for key, why in asked_of(settings.paper).items():  # settings whose values the paper does not give
        section, _, name = key.partition(".")
        if name not in getattr(settings, section).model_fields_set:
            raise ConfigError(f"{settings.paper} needs {key}: {why}")
    reward = job.checked()
    examples = load_training(data, require_answers=reward.needs_answers)
    job.check_examples(examples)
    check_enough(len(examples), len(examples), settings)
    held_out = load_held_out(data)
    # Each row can lack a column of the prompt, or hold something other than text in it.
    prompts = [render_prompt(example, data.prompt) for example in (*examples, *held_out)]
    index = None
    if settings.search.index is not None:
        if "certainty" in reward.resources:
            raise ConfigError(f"{settings.paper} rewards certainty about one text; leave search.index out")
        if held_out:
            check_no_search(settings)
        from factrl.verifier.search.index import Index

        index = Index.open(settings.search.index)
    return Plan(job, examples, held_out, index, repeated(prompts[: len(examples)], examples))


def repeated(prompts: Sequence[str], examples: Sequence[Example]) -> str:
    """A warning about prompts in several rows, and about those whose answers differ; "" without any."""
    rows: dict[str, list[Example]] = {}
    for prompt, example in zip(prompts, examples, strict=True):
        rows.setdefault(prompt, []).append(example)
    several = [same for same in rows.values() if len(same) > 1]
    if not several:
        return ""
    note = f"{len(several)} of {len(rows)} prompts stand in {sum(map(len, several))} rows"
    others = [(same[0], next(filter(partial(_disagree, same[0]), same), None)) for same in several]
    disagreeing = [(one, other) for one, other in others if other is not None]
    if disagreeing:
        one, other = disagreeing[0]
        note += (
            f"; the rows of {len(disagreeing)} have no accepted answer in common, so one row rewards what "
            f"another punishes, first {one.question[:80]!r}: {one.answers[0]!r} ({one.id}) and "
            f"{other.answers[0]!r} ({other.id}); mend them or leave them out"
        )
    return note


def _disagree(one: Example, other: Example) -> bool:
    accepted = ({clean(answer).casefold() for answer in example.answers} for example in (one, other))
    return all((one.answers, other.answers)) and set.isdisjoint(*accepted)


def check_enough(left: int, total: int, settings: RunSettings) -> None:
    """Refuse fewer questions than one step takes; `left` counts those whose prompts are short enough."""
    train = settings.train
    if left < train.prompts_per_step:
        limit = f" (train.max_prompt_length = {train.max_prompt_length})" if left < total else ""
        lower = f"give train.prompts_per_step={left}" if left else "lower train.prompts_per_step"
        raise DataError(
            f"{settings.data.train}: {left} of {total} questions can be used{limit}, fewer than the "
            f"{train.prompts_per_step} of one step; {lower} or add questions"
        )


def not_installed(settings: RunSettings, reward: Reward) -> MissingExtra | None:
    """The first package that a run with this reward lacks on this machine; nothing is imported."""
    local = settings.judge.url == LOCAL
    needs: list[tuple[tuple[str, ...], str]] = [
        (("torch", "transformers", "trl", "peft", "accelerate", "datasets"), "train")
    ]
    embedded = {model.name for model in models.MODELS if model.role == "policy"}
    if local:
        needs.insert(0, (("xllamacpp",), "local"))
    elif settings.verifier.judge == LOCAL and "verify" in reward.missing:
        # The judge in 8-bit integers needs gguf; where it cannot run, llama.cpp of the same extra judges.
        needs.append((("gguf",), "local"))
    if settings.verifier.embedder or settings.search.embedder:
        needs.append((("sentence_transformers",), "dense"))
    if settings.model.name in embedded and not Path(settings.model.name).exists():
        needs.append((("gguf",), "local" if local else "demo"))
    absent = ((name, extra) for names, extra in needs for name in names if find_spec(name) is None)
    return next((MissingExtra(name, extra) for name, extra in absent), None)


def estimate(plan: Plan) -> dict[str, str]:
    """What a run writes, and where its judge stops costing, a line each."""
    settings, longest = plan.settings, plan.settings.train.max_completion_length
    lines = {"writes": f"{plan.completions:,} completions of at most {longest:,} tokens"}
    if settings.run.max_cost is not None:
        lines["cost"] = f"the run stops before the judge has cost ${settings.run.max_cost:g}"
    return lines
