"""factrl: train language models to be right, and to say so when they do not know.

    import factrl as fx

    reward = fx.load_reward("truthrl").with_(grade=fx.Grader(fx.connect("http://localhost:8000/v1#model")))
    result = reward(fx.Example("Where was Marie Curie born?", ("Warsaw",)), r"\\boxed{Warsaw}")

The names below are loaded when first used, so that `import factrl` stays fast and needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bench.metrics import compare, short_form
    from .bench.shortqa import evaluate_file, grade_completions
    from .data import load_examples
    from .errors import FactrlError, LLMError, SetupError, Unscored
    from .grading import Grader, reasoning_judge
    from .llm import LLM, FakeLLM, connect
    from .papers import load_reward, paper_names
    from .resources import supply
    from .rewards import Reward, reward
    from .types import Completion, Example, Grade, Result, Score, Span

_HOME = {
    "Completion": "types",
    "Example": "types",
    "FactrlError": "errors",
    "FakeLLM": "llm",
    "Grade": "types",
    "Grader": "grading",
    "LLM": "llm",
    "LLMError": "errors",
    "Result": "types",
    "Reward": "rewards",
    "Score": "types",
    "SetupError": "errors",
    "Span": "types",
    "Unscored": "errors",
    "compare": "bench.metrics",
    "connect": "llm",
    "evaluate_file": "bench.shortqa",
    "grade_completions": "bench.shortqa",
    "load_examples": "data",
    "load_reward": "papers",
    "paper_names": "papers",
    "reasoning_judge": "grading",
    "reward": "rewards",
    "short_form": "bench.metrics",
    "supply": "resources",
}

__all__ = [
    "LLM",
    "Completion",
    "Example",
    "FactrlError",
    "FakeLLM",
    "Grade",
    "Grader",
    "LLMError",
    "Result",
    "Reward",
    "Score",
    "SetupError",
    "Span",
    "Unscored",
    "compare",
    "connect",
    "evaluate_file",
    "grade_completions",
    "load_examples",
    "load_reward",
    "paper_names",
    "reasoning_judge",
    "reward",
    "short_form",
    "supply",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'factrl' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
