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
    from .bridges.trl import to_trl
    from .errors import FactrlError, LLMError, SetupError, Unscored
    from .evals.grade import grade_completions
    from .evals.metrics import compare, short_form
    from .llm import LLM, FakeLLM, connect
    from .papers import Paper, load_reward, paper_names
    from .rewards import Needs, Reward, reward
    from .rewards.grading import Grader, reasoning_judge
    from .rewards.needs import supply
    from .rewards.remote import remote
    from .rewards.trl import from_trl, weighted
    from .runs.data import load_examples
    from .types import Claim, Completion, Example, Grade, Passage, Result, Score, Span, Verdict
    from .verifier import Report, Verifier, open_verifier, verify
    from .verifier.search import Given, Index, WebSearch

_NAMES = {
    "bridges.trl": ("to_trl",),
    "errors": ("FactrlError", "LLMError", "SetupError", "Unscored"),
    "evals.grade": ("grade_completions",),
    "evals.metrics": ("compare", "short_form"),
    "llm": ("FakeLLM", "LLM", "connect"),
    "papers": ("Paper", "load_reward", "paper_names"),
    "rewards": ("Needs", "Reward", "reward"),
    "rewards.grading": ("Grader", "reasoning_judge"),
    "rewards.needs": ("supply",),
    "rewards.remote": ("remote",),
    "rewards.trl": ("from_trl", "weighted"),
    "runs.data": ("load_examples",),
    "types": ("Claim", "Completion", "Example", "Grade", "Passage", "Result", "Score", "Span", "Verdict"),
    "verifier": ("Report", "Verifier", "open_verifier", "verify"),
    "verifier.search": ("Given", "Index", "WebSearch"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "LLM",
    "Claim",
    "Completion",
    "Example",
    "FactrlError",
    "FakeLLM",
    "Given",
    "Grade",
    "Grader",
    "Index",
    "LLMError",
    "Needs",
    "Paper",
    "Passage",
    "Report",
    "Result",
    "Reward",
    "Score",
    "SetupError",
    "Span",
    "Unscored",
    "Verdict",
    "Verifier",
    "WebSearch",
    "compare",
    "connect",
    "from_trl",
    "grade_completions",
    "load_examples",
    "load_reward",
    "open_verifier",
    "paper_names",
    "reasoning_judge",
    "remote",
    "reward",
    "short_form",
    "supply",
    "to_trl",
    "verify",
    "weighted",
]
__version__: str  # of the installed package, which has it from the git tag


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _version()
    elif name in _HOME:
        value = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
    else:
        raise AttributeError(f"module 'factrl' has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version(__name__)
    except metadata.PackageNotFoundError:  # it runs from a folder
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
