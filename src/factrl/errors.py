"""The errors factrl raises on purpose.

    FactrlError
    ├── SetupError               something the user must change before a run can start (exit code 2)
    │   ├── ConfigError          a key or a value in a recipe, an override or a flag
    │   ├── DataError            a dataset: missing file, missing column, no answers
    │   ├── BrokenIndex          an index that must be built again (factrl.verifier.search)
    │   ├── ModelError           a model that is not there or cannot be loaded
    │   └── MissingExtra         an optional package that is not installed
    ├── Unscored                 "could not be graded": the sample is masked, never given a number
    │   ├── LLMError             a model server that failed after bounded retries
    │   └── PolicyFault          the policy's own text is why: a reward that knows its floor pays that
    ├── RewardBug                a reward raised something else; names the reward and the sample
    │   └── NoScore              a reward returned what is not a score
    ├── TooManyMasked            so much of the run could not be graded that it stopped
    └── OverBudget               the judge has cost what the run may spend

Every message says what is wrong, with which value, and what fixes it.  `SetupError` is printed by
the command line as one line without a traceback.  `Unscored` becomes a masked sample in exactly
one place, `factrl.rewards`; anything a reward raises beside it is a bug and stops the run.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class FactrlError(Exception):
    """Base of every error that factrl raises on purpose."""


class SetupError(FactrlError):
    """The run cannot start until the user changes something; exit code 2, no traceback."""


class ConfigError(SetupError, ValueError):
    """A key or value in a recipe, a `key=value` override or a flag; several problems are a line each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class DataError(SetupError, ValueError):
    """A dataset that is missing, unreadable or lacks what the reward needs."""


class ModelError(SetupError, OSError):
    """A model that is not there or cannot be loaded."""


INSTALL = "pip install '.{}' in a clone of factrl"
"""What a hint says, until there is a release; filled with `[extra]`, or with nothing."""


class MissingExtra(SetupError, ImportError):
    """A package of one of factrl's optional extras is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: {INSTALL.format(f'[{extra}]')}")
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.package, self.extra)


class Unscored(FactrlError):
    """A sample that could not be graded through no fault of the policy.

    Args:
        cause: one short word for counting, e.g. `judge_unreadable`; becomes the metric `masked/<cause>`.
        detail: the sentence a person reads.
        facts: what is known about the failure (`stage`, `status`, `attempts`, `elapsed`, `request_id`, …).

    >>> raise Unscored("judge_unreadable", "the judge gave no verdict", attempts=3)
    Traceback (most recent call last):
    factrl.errors.Unscored: judge_unreadable: the judge gave no verdict
    """

    def __init__(self, cause: str, detail: str = "", **facts: Any) -> None:
        if not isinstance(cause, str) or not cause.strip():
            raise TypeError(f"Unscored({cause!r}) has no cause; give one short word, such as 'no_source'")
        detail = str(detail)
        super().__init__(f"{cause}: {detail}" if detail else cause)
        self.cause = cause
        self.detail = detail
        self.facts: Mapping[str, Any] = facts

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.cause, self.detail, dict(self.facts))


class LLMError(Unscored):
    """A model server did not give a usable reply within its attempts and deadlines."""


class PolicyFault(Unscored):
    """A text that cannot be judged through its own doing; a reward floors the sample, for its cause."""


class RewardBug(FactrlError, RuntimeError):
    """A reward raised something other than `Unscored`, or returned something that is not a score."""


class NoScore(RewardBug):
    """A reward returned something that is not a score, such as NaN; exit code 2, no traceback."""


class TooManyMasked(FactrlError, RuntimeError):
    """More samples than the configured share could not be graded for several steps in a row."""


class OverBudget(FactrlError, RuntimeError):
    """The judge has cost what the run may spend on it; its folder holds a complete checkpoint."""


def _rebuild(cls: type[Unscored], cause: str, detail: str, facts: dict[str, Any]) -> Unscored:
    return cls(cause, detail, **facts)


def first_line(error: BaseException) -> str:
    """What another library's error says first, without its full stop; its name where it says nothing.

    >>> first_line(ValueError("no such key.\\nsee the manual"))
    'no such key'
    """
    return (str(error).strip().split("\n")[0] or type(error).__name__).rstrip(".")


def nearest(word: str, known: Iterable[str]) -> str:
    """The closest other word that is known, as an error message has it, or "" when nothing is close.

    >>> nearest("truthrI", ["knowrl", "truthrl"])
    "; did you mean 'truthrl'?"
    """
    close = difflib.get_close_matches(word, sorted({*known} - {word}), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


NO_OWN_VERIFIER = "verifiers of one's own did not judge well enough to keep; commit 1b92e7e has them"
