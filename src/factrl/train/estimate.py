"""What a run will ask, write, cost and need: for `factrl train --dry-run`.

Counted or bounded from the settings and the questions, text at four bytes a token.  What cannot be told is
unknown, and says why.
"""

from __future__ import annotations

from factrl.llm.spending import BYTES_PER_TOKEN, Spent
from factrl.rewards.grading import GRADE_PROMPT, REASONING_PROMPT
from factrl.rewards.preference import RATING_PROMPT
from factrl.runs.data import render_prompt
from factrl.runs.settings import LOCAL
from factrl.train.held_out import FIRST
from factrl.train.plan import Plan

_REPLY = 512  # tokens that a verdict may have
_ANSWER = 200  # characters of a short answer that a grader is shown
_LOCAL = ("truthfulness", "certainty")  # resources that ask no server
_PROMPTS = {"grade": GRADE_PROMPT, "reason": REASONING_PROMPT, "rate": RATING_PROMPT}
_UNKNOWN = "unknown: as many as the completions make claims"


def estimate(plan: Plan) -> dict[str, str]:
    """Label -> line, the source of its numbers at its end."""
    asks = plan.settings.judge.url not in (None, "", LOCAL)
    spent = _of_judge(plan) if asks else Spent()
    sizes = _prompt_bytes(plan)
    read = sum(sizes) / len(sizes) / BYTES_PER_TOKEN * plan.completions
    most = plan.completions * plan.settings.train.max_completion_length
    judge = "unknown" if spent is None else f"{spent.tokens_in:,} read, {spent.tokens_out:,} written, at most"
    return {
        "calls": _calls(plan, spent),
        "tokens": f"policy: about {read:,.0f} read, at most {most:,} written"
        + (f"; judge: {judge}" if spent is None or spent.calls else ""),
        "cost": _cost(plan, spent) if asks else "$0 for the judge",
    }


def _of_judge(plan: Plan) -> Spent | None:
    """What the judge will be asked at most, but for repeated requests; None where claims decide it."""
    told = plan.settings
    own = {"rate": told.judge.reward_model, "checklist": told.judge.checklist_model}
    own["extract"] = told.judge.extractor_model
    rewards = set(plan.reward.missing) - set(_LOCAL) - {name for name, model in own.items() if model}
    every = told.train.eval_steps
    rounds = 1 + ((plan.steps - 1) // every if every else 0)
    graded = _bound(plan, "grade", len(plan.held_out) * rounds)
    if rewards - _PROMPTS.keys():
        return None
    rewarded = plan.completions + (rounds * min(len(plan.held_out), FIRST) if every else 0)
    return sum((_bound(plan, name, rewarded) for name in rewards), graded)


def _bound(plan: Plan, name: str, calls: int) -> Spent:
    """What one resource asks at most: once for each completion."""
    room = _ANSWER if name == "grade" else plan.settings.train.max_completion_length * BYTES_PER_TOKEN
    asked = [sum(len(t.encode()) for t in (e.question, *e.answers)) for e in plan.examples]
    text = len(_PROMPTS[name].encode()) + sum(asked) / len(asked) + room
    return Spent(calls, round(calls * text / BYTES_PER_TOKEN), calls * _REPLY)


def _prompt_bytes(plan: Plan) -> list[int]:
    data = plan.settings.data
    around = len(f"{data.system or ''}{data.prefill}".encode())
    return [around + len(render_prompt(e, data.prompt).encode()) for e in plan.examples]


def _calls(plan: Plan, spent: Spent | None) -> str:
    url = plan.settings.judge.url
    if not url or url == LOCAL:
        return f"0 of a server: the judge is {'in this process' if url else 'none'}"
    return _UNKNOWN if spent is None else f"{spent.calls:,} of the judge, at most"


def _cost(plan: Plan, spent: Spent | None) -> str:
    price, cap = plan.settings.judge.price, plan.settings.run.max_cost
    if price is None:
        return "no price set: judge.price_in and judge.price_out, US dollars for a million tokens"
    stops = f"; the run stops before ${cap:g}" if cap is not None else ""
    found = _UNKNOWN if spent is None else f"${spent.cost(price):,.4g} for the judge, at most"
    return found + stops
