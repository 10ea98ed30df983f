"""Learning to Reason for Factuality: precision, detail and preference behind a format gate.

Paper     Learning to Reason for Factuality, arXiv:2508.05618 (Meta)
Reward    -1 when malformed, else F / (T + 1) + λ ln(1 + F) + μ [the answer beats the judge's own]
Claims    T claims of the answer, F of them supported, as VeriScore has them; the reasoning is not checked
Main      λ = 0, μ = 0.1; the paper also has (0.01, 0.1), (0.1, 0.1), (0.01, 0)
          and factuality alone (0, 0)

Their training code (facebookresearch/factual_reasoning) was not read.  What the paper leaves open, and ours:

- the base of the logarithm: e.
- an answer without claims: F / (T + 1) is 0 there, and the preference is still asked for.
- a tie: does not win.
- a judge, a search or a model server that fails: the sample is masked.
- verdicts that are missing: the reward is used where they cannot move it by more than 0.05, and the middle of
  that interval is the number; else the sample is masked.  A verifier's report has the same rule.
- well-formed: both blocks once, in order, not empty, nothing around them (`factrl.text.think_answer`).
- an answer too long for the verifier to read: the gate, as it is the policy's own doing.  One that the judge
  of preferences cannot read does not win.

The judge of preference is the base model in the paper (Figure 9), `judge.preference_model` here, and without
it the judge.  Its own answer comes about inside the comparison, as in the paper's appendix 10.

The gate is a term of its own, `format`, which is 0 for a well-formed completion.  A term whose weight is 0 is
left out, and whoever would measure it is not asked.

Known weaknesses of the published reward, which `robust` closes: one safe claim earns 0.5, and claims off the
request, of any kind, as much as those that answer it.

VeriScore judges every claim, and so do the settings of this paper.  Where the user gives the verifier a limit
(`verifier.max_claims`), an answer with more claims is the gate: the policy's own doing, and no "unsupported".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from factrl.errors import ConfigError, PolicyFault, Unscored
from factrl.llm.judging import judged_here
from factrl.rewards import Needs, reward
from factrl.text import think_answer
from factrl.types import Completion, Example, Score
from factrl.verifier.report import WIDTH, Report

from . import Paper


def _needs(knobs: Mapping[str, Any]) -> Needs:
    if knobs["weight_detail"] < 0:  # under a negative λ missing verdicts have no interval
        raise ConfigError(f"weight_detail must not be negative, and is {knobs['weight_detail']!r}")
    return Needs(unused=() if knobs["weight_preference"] else ("compare",), searches=True)


@reward(needs=_needs)
def factreason(
    example: Example,
    completion: Completion,
    *,
    verify: Callable[..., Report],
    compare: Callable[..., float],
    gate: float = -1.0,
    weight_detail: float = 0.0,
    weight_preference: float = 0.1,
) -> Score:
    """The paper's reward; the terms are `format`, `precision`, `detail` and `preference`.

    Args:
        gate: what a malformed completion earns, and all it earns.
        weight_detail: λ, of the logarithm of the supported claims.
        weight_preference: μ, of the win against the judge's own answer.
    """
    blocks = think_answer(completion, completion.prefill)
    if blocks.answer is None:
        return Score({"format": gate}, floored=blocks.malformed)
    answer = blocks.answer.text
    evidence = example.evidence or None
    report = verify(answer, example.question, topic=example.topic, evidence=evidence)
    if report.floored and report.failure is None:
        return Score({"format": gate}, floored=report.floored)
    if any(check.verdict is not None and check.verdict.cause == "over_limit" for check in report.checks):
        return Score({"format": gate}, floored="over_limit", facts={"claims": report.claims})
    precision, detail = _claims(report, weight_detail)
    terms = {"format": 0.0, "precision": precision}
    if weight_detail:
        terms["detail"] = detail
    floored = None
    if weight_preference:
        try:
            request = example.question
            wins = judged_here(lambda text: compare(request, text), answer, about=request, judge=compare)
        except PolicyFault as error:
            wins, floored = 0.0, error.cause
        terms["preference"] = weight_preference * wins
    facts = {"answer": answer, "claims": report.claims, **report.likelier, "checked": report.checked()}
    return Score(terms, floored=floored, facts=facts)


def _claims(report: Report, weight: float) -> tuple[float, float]:
    """F / (T + 1) and λ ln(1 + F); where verdicts are missing, the middle of what each can be.

    Raises:
        Unscored: the claims themselves are missing, or so many verdicts that the sum is not known.
    """
    _ = report.precision  # raises where a report would
    total, least = report.claims, report.likelier["supported"]
    most = least + report.likelier["unjudged"]
    precision = least / (total + 1), most / (total + 1)
    detail = weight * math.log1p(least), weight * math.log1p(most)
    if precision[1] + detail[1] - precision[0] - detail[0] > WIDTH + 1e-9:
        missing = f"{most - least} of {total} claims have no verdict"
        raise Unscored("claims_unjudged", missing, stage="verify")
    return sum(precision) / 2, sum(detail) / 2


PAPER = Paper(
    {
        "paper": factreason,
        "detail-0.01": factreason.with_(weight_detail=0.01),
        "detail-0.1": factreason.with_(weight_detail=0.1),
        "fact-only": factreason.with_(weight_preference=0.0),
        "fact+detail-0.01": factreason.with_(weight_detail=0.01, weight_preference=0.0),
    },
    terms=("format", "precision", "preference", "detail"),
    form="tags",
    length="long",
    asks={
        "": {
            "train.beta": "it has a KL penalty whose weight is not in the paper (0.001 is the default of "
            "fairseq2, which it was trained with); 0 leaves the penalty out"
        }
    },
)
