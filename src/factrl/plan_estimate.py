"""What a run will ask, write, cost and need: for `factrl train --dry-run`.

Every line ends with where it comes from:

    recipe      counted or bounded from the settings and the questions; text at four bytes a token
    formula     computed from the model's shape, `factrl.plan_memory`
    measured    one real batch of the run, trained on this machine with `--measure`, times their number

What none of them can tell is unknown, and says what would.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from .data import render_prompt
from .detect.held_out import FIRST
from .grading import GRADE_PROMPT, REASONING_PROMPT
from .plan import Plan
from .plan_memory import find_shape, memory_of
from .preference import RATING_PROMPT
from .settings import LOCAL
from .spending import Spent
from .usage import BYTES_PER_TOKEN

_REPLY = 512  # tokens that a verdict may have
_ANSWER = 200  # characters of a short answer that a grader is shown
_LOCAL = ("truthfulness", "certainty")  # resources that ask no server


@dataclass(frozen=True)
class Measured:
    """One batch of a run, as it went.

    Attributes:
        device: where.
        seconds: of the whole batch.
        generating, rewarding: seconds of it; the two may overlap.
        completions, masked: how many were written, and how many of them could not be graded.
        read, written: tokens of their prompts, counted once for each completion, and of themselves.
        spent: by the judge.
        peak: bytes on the GPU at most; None without one.
    """

    device: str
    seconds: float
    generating: float
    rewarding: float
    completions: int
    masked: int
    read: int
    written: int
    spent: Spent
    peak: int | None


@dataclass(frozen=True)
class _Judged:
    """What the judge will be asked; None where only a measurement can tell."""

    spent: Spent | None
    source: str


def estimate(plan: Plan, measured: Measured | None = None, why_not: str = "") -> dict[str, str]:
    """Label -> line, the source of its numbers at its end.

    Args:
        why_not: why nothing could be measured, when it was asked for.
    """
    judged = _judged(plan, measured)
    return {
        "calls": _calls(plan, judged),
        "tokens": f"policy: {_policy_tokens(plan, measured)}{_judge_tokens(judged)}",
        "cost": _cost(plan, judged),
        "memory": _memory(plan, measured),
        "hours": _hours(plan, measured, why_not),
    }


def _evaluated(plan: Plan) -> int:
    """Answers to held-out questions that are graded: every `eval_steps`, and at the end."""
    every = plan.settings.train.eval_steps
    return len(plan.held_out) * (1 + ((plan.steps - 1) // every if every else 0))


def _scored(plan: Plan) -> int:
    """Held-out answers that the reward scores too, at each evaluation at most."""
    held_out = len(plan.held_out) if plan.settings.train.eval_steps else 0
    return _evaluated(plan) // held_out * min(held_out, FIRST) if held_out else 0


def _prompt_bytes(plan: Plan) -> list[int]:
    data = plan.settings.data
    around = len(f"{data.system or ''}{data.prefill}".encode())
    return [around + len(render_prompt(e, data.prompt).encode()) for e in plan.examples]


def _policy_tokens(plan: Plan, measured: Measured | None) -> str:
    if measured is not None:
        scale = plan.completions / measured.completions
        mean = measured.written / measured.completions
        return (
            f"{measured.read * scale:,.0f} read, {measured.written * scale:,.0f} written, {mean:,.0f} a "
            f"completion [measured on {measured.completions}]"
        )
    sizes = _prompt_bytes(plan)
    read = sum(sizes) / len(sizes) / BYTES_PER_TOKEN * plan.completions
    most = plan.completions * plan.settings.train.max_completion_length
    return f"about {read:,.0f} read, at most {most:,} written [recipe]"


def _judged(plan: Plan, measured: Measured | None) -> _Judged:
    url = plan.settings.judge.url
    needed = (
        set(plan.reward.missing) - set(_LOCAL) - ({"rate"} if plan.settings.judge.reward_model else set())
    )
    if not url or url == LOCAL or not (needed or _evaluated(plan)):
        return _Judged(Spent(), "recipe")
    answers = _bound(plan, "grade", _evaluated(plan))
    if measured is not None:
        scale, one = (plan.completions + _scored(plan)) / measured.completions, measured.spent
        trained = Spent(*(round(n * scale) for n in (one.calls, one.tokens_in, one.tokens_out)))
        source = f"measured on {measured.completions} completions"
        return _Judged(trained + answers, source + (", evaluation at most: recipe" if answers.calls else ""))
    if needed - _PROMPTS.keys():
        return _Judged(None, "")
    rewarded = plan.completions + _scored(plan)
    return _Judged(sum((_bound(plan, name, rewarded) for name in needed), answers), "recipe, at most")


_PROMPTS = {"grade": GRADE_PROMPT, "reason": REASONING_PROMPT, "rate": RATING_PROMPT}


def _bound(plan: Plan, name: str, calls: int) -> Spent:
    """What one resource asks at most, but for repeated requests: once for each completion."""
    room = _ANSWER if name == "grade" else plan.settings.train.max_completion_length * BYTES_PER_TOKEN
    asked = [sum(len(t.encode()) for t in (e.question, *e.answers)) for e in plan.examples]
    text = len(_PROMPTS[name].encode()) + sum(asked) / len(asked) + room
    return Spent(calls, round(calls * text / BYTES_PER_TOKEN), calls * _REPLY)


def _calls(plan: Plan, judged: _Judged) -> str:
    url = plan.settings.judge.url
    if not url or url == LOCAL:
        return f"0 of a server: the judge is {'in this process' if url else 'none'} [recipe]"
    if judged.spent is None:
        return "unknown: as many as the completions make claims; --measure counts them on one batch"
    return f"{judged.spent.calls:,} of the judge [{judged.source}]"


def _judge_tokens(judged: _Judged) -> str:
    if judged.spent is None:
        return "; judge: unknown"
    if not judged.spent.calls:
        return ""
    spent = judged.spent
    return f"; judge: {spent.tokens_in:,} read, {spent.tokens_out:,} written [{judged.source}]"


def _cost(plan: Plan, judged: _Judged) -> str:
    told = plan.settings.judge
    if not told.url or told.url == LOCAL:
        return "$0 for the judge [recipe]"
    if told.price is None:
        return "no price set: judge.price_in and judge.price_out, US dollars for a million tokens"
    cap = plan.settings.run.max_cost
    stops = f"; the run stops before ${cap:g} [recipe]" if cap is not None else ""
    if judged.spent is None:
        return f"unknown: --measure counts the judge's tokens on one batch{stops}"
    return f"${judged.spent.cost(told.price):,.4g} for the judge [{judged.source}]{stops}"


def _memory(plan: Plan, measured: Measured | None) -> str:
    told = plan.settings
    found = f"{_gb(measured.peak)} at most [measured]; " if measured is not None and measured.peak else ""
    shape = find_shape(told.model)
    if isinstance(shape, str):
        return f"{found}unknown: {shape}"
    longest = math.ceil(max(_prompt_bytes(plan)) / BYTES_PER_TOKEN)
    prompt = min(longest, told.train.max_prompt_length or longest)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    memory = memory_of(shape, told.model, told.train, prompt=prompt, processes=processes)
    parts = ", ".join(f"{name} {_gb(size)}" for name, size in memory.parts().items())
    where = {"colocate": " + vLLM's share", "server": ", vLLM elsewhere"}[told.train.vllm_mode]
    return (
        f"{found}{_gb(memory.peak)} on each GPU{where if told.train.use_vllm else ''} "
        f"[formula, without fragments and CUDA's own]: {parts}"
    )


def _hours(plan: Plan, measured: Measured | None, why_not: str) -> str:
    if measured is None:
        return f"unknown: {why_not or 'add --measure to train one batch here and take its time'}"
    batches = plan.batches
    masked = f", {measured.masked} of {measured.completions} masked" if measured.masked else ""
    return (
        f"{measured.seconds * batches / 3600:.3g} for {batches} batches of {measured.seconds:.3g} s, without "
        f"evaluation and checkpoints [measured on {measured.device}: generating {measured.generating:.3g} s, "
        f"rewards {measured.rewarding:.3g} s, which may run beside each other and the update{masked}]"
    )


def _gb(size: int) -> str:
    return f"{size / 1e9:.3g} GB"
