"""What a reward's resources are when all the user named is a judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .errors import ConfigError
from .grading import Grader, reasoning_judge
from .llm import LLM
from .rewards import Reward


def _reasoning(judge: LLM | None) -> Any:
    if judge is None:
        raise ConfigError(
            "a reward for reasoning needs a judge; give one with --judge http://localhost:8000/v1#model"
        )
    return reasoning_judge(judge)


_MAKERS: Mapping[str, Callable[[LLM | None], Any]] = {"grade": Grader, "reason": _reasoning}


def supply(reward: Reward, judge: LLM | None) -> Reward:
    """`reward` with every missing resource made from one judge; without a judge, from rules where they do.

    Raises:
        ConfigError: a resource that a judge alone does not make, or that needs one.
    """
    unknown = [name for name in reward.missing if name not in _MAKERS]
    if unknown:
        raise ConfigError(
            f"reward {reward.name!r} needs the resource {unknown[0]!r}, which only Python can supply: "
            f".with_({unknown[0]}=…)"
        )
    return reward.with_(**{name: _MAKERS[name](judge) for name in reward.missing})
