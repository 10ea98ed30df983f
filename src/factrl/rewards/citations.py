"""Citations: a term for an answer that the passages it cites support.

`cited(reward)` is a reward with one more term, `citations`, and one more knob of that name, what a fully
supported answer earns; 0 asks nobody and changes nothing.  The idea is that of citation precision (ALCE,
arXiv 2305.14627): of the passages that the last message cites as `[1]` or `[1, 2]`, the share of those that
each by itself support the answer, by the verifier.  Ours is the rest:

- The number of a passage that was never shown, or more than `MOST` different ones, earn nothing: else citing
  everything pays.
- What declines, and what is floored, has no answer that a passage could support.
- Whether the answer is right does not matter here.  A wrong one that a wrong passage supports earns the term
  and loses the outcome, so keep the knob below what the outcomes are apart.
- A passage that could not be judged masks the sample.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from factrl.rewards import Reward
from factrl.types import Completion, Example, Passage, Score

MOST = 5  # passages that an answer can cite
_CITED = re.compile(r"\[(\d{1,4}(?:\s{0,2}[,;]\s{0,2}\d{1,4}){0,20})\]")
_STOP = re.compile(r"[.!?]+(?=\s|$)")


def cited(reward: Reward, name: str) -> Reward:
    """`reward` with the knob and the term `citations`; its facts must have the `answer` and its `label`.

    >>> cited(fx.load_reward("truthrl"), "with_citations").knobs["citations"]
    0.0

    Args:
        name: what the new reward is assigned to in the module of `reward`, by which other processes find it.
    """

    def with_citations(
        example: Example, completion: Completion, *, verify: Any, citations: float, **others: Any
    ) -> Score:
        score: Score = reward.fn(example, completion, **others)
        if not citations:
            return score
        numbers = numbers_in(completion)
        facts = {**score.facts, "cited": numbers, "supporting": []}
        if not score.floored and facts["label"] != "abstained":
            shown = example.evidence if completion.shown is None else completion.shown
            facts["supporting"] = supporting(example.question, facts["answer"], numbers, shown, verify)
        share = len(facts["supporting"]) / len(numbers) if numbers else 0.0
        return replace(score, terms={**score.terms, "citations": citations * share}, facts=facts)

    with_citations.__module__, with_citations.__qualname__ = reward.fn.__module__, name
    line = "        citations: what an answer earns whose cited passages all support it; 0 looks at none.\n"
    with_citations.__doc__ = (reward.fn.__doc__ or "").replace("Args:\n", f"Args:\n{line}", 1)

    def unused(knobs: Any) -> list[str]:
        others = reward.unused(knobs) if reward.unused is not None else ()
        return [*others, *([] if knobs["citations"] else ["verify"])]

    knobs = MappingProxyType({**reward.knobs, "citations": 0.0})
    resources = MappingProxyType({**reward.resources, "verify": None})
    return replace(
        reward, fn=with_citations, name=name, knobs=knobs, resources=resources, unused=unused, searches=False
    )


def numbers_in(completion: Completion) -> list[int]:
    """The numbers that a completion cites outside of its thoughts, each once, in order."""
    answer = str(completion).rpartition("</think>")[2]
    numbers = (number for match in _CITED.finditer(answer) for number in re.split(r"[,;]", match[1]))
    return list(dict.fromkeys(map(int, numbers)))


def supporting(
    question: str, answer: str, numbers: Sequence[int], shown: Sequence[Passage], verify: Any
) -> list[int]:
    """Which of the cited passages support the answer; none where one was never shown or too many are cited.

    Raises:
        Unscored: the verifier could not judge one.
    """
    if len(numbers) > MOST or any(not 0 < number <= len(shown) for number in numbers):
        return []
    claim = f"To the question “{_STOP.sub(',', question).rstrip(' ,')}” the answer is {answer.strip(' .')}."
    reports = {n: verify(claim, question, evidence=[shown[n - 1]]) for n in numbers}
    return [number for number, report in reports.items() if report.precision == 1.0]
