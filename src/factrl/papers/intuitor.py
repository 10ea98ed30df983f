"""Intuitor: the policy's own certainty as the only reward; no answers, no judge, no evidence.

Paper     Learning to Reason without External Rewards, Zhao et al. 2025, arXiv:2505.19590
Code      sunblaze-ucb/Intuitor, in two versions: for Open-R1, with which the paper's results were made, and
          for verl, whose math_intuitor.sh the settings here are from (read in a public copy)
Reward    self-certainty (Kang et al. 2025, arXiv:2502.18581), the mean over the tokens o of the completion of
          KL(U || p(. | q, o_<i)) = -1/V sum_j log(V p(j | q, o_<i)), in nats, by the policy that is trained,
          as it is at that step ("online"); V is the size of the vocabulary

It is an arm to compare with, not a way to facts: nothing in it looks at the world.  A policy that is sure of
what is wrong earns as much as one that is sure of what is right, an abstention pays what its words pay, and
text that repeats itself makes every next token easy to guess.  Compare its hallucinations with those of a
reward that knows the answers.

How we differ: the prompt is yours (the paper trains on mathematics, with prompts that are not known to us);
released code leaves out the constant log V, which cancels in the group's advantages; we keep it, so that
a uniform distribution is 0.  A completion without tokens has no mean and is masked.
"""

from __future__ import annotations

from collections.abc import Callable

from factrl.rewards import reward
from factrl.types import Completion, Example

from . import Paper


@reward
def intuitor(
    example: Example,
    completion: Completion,
    *,
    certainty: Callable[[Completion], float],
    weight: float = 1.0,
) -> dict[str, float]:
    """The policy's self-certainty about its completion, in nats; the only term is `certainty`.

    Args:
        certainty: supplied in training alone, where the policy is at hand.
        weight: what a nat is worth; without effect where advantages are divided by their deviation.

    Raises:
        Unscored: `no_tokens`.
    """
    return {"certainty": weight * certainty(completion)}


PAPER = Paper({"online": intuitor}, terms=("certainty",))
