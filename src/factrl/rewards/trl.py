"""Rewards that were written for TRL, and several rewards as one.

def short(completions, **columns):  # as trl.GRPOTrainer(reward_funcs=short) calls it
    return [-len(text) / 1000 for text in completions]

mine = fx.weighted([fx.load_reward("truthrl"), short], weights=[1.0, 0.2])
"""

from __future__ import annotations

import importlib
import inspect
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from factrl.errors import ConfigError, NoScore, Unscored
from factrl.llm.background import Call, wait_for
from factrl.rewards import Needs, Reward
from factrl.runs.data import columns_of
from factrl.types import Example, Score, Span

_PREFERRED = ("answer", "ground_truth", "solution", "gold", "target")  # what functions call the right answer
_IGNORED = ("log_extra", "log_metric")  # what TRL's trainers hand a function to log with
_TRAINERS = ("completion_ids", "trainer_state")  # what only a trainer has


def is_trl(function: Any) -> bool:
    """Whether it is in the form that TRL calls: a function, or an object that is called like one, which has a
    parameter `completions`."""
    if inspect.isclass(function) or not callable(function):
        return False
    try:
        return "completions" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C, without a signature
        return False


def _name_of(function: Any) -> str:
    """What TRL calls it."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def from_trl(function: Callable[..., Any], /) -> Reward:
    """A reward of a function in TRL's form, `f(prompts, completions, **columns)`, plain or `async`.

    It gets several completions at a time, which may be fewer than a whole step: `prompts` are the questions,
    `columns` what the data has beside them: `answers`, a list for each, `answer`, `ground_truth`, `solution`,
    `gold` or `target`, the first of these, and every column of another kind by its own name.  Texts are
    handed over as strings; a function that cannot read those gets conversations, as TRL has both.
    `completion_ids` and `trainer_state` can be read in training alone; `log_extra` and `log_metric` do
    nothing.  A completion for which it returns None is masked.

    >>> def brief(completions, **columns):
    ...     return [float(len(text) < 20) for text in completions]
    >>> fx.from_trl(brief)(Example("Capital of Peru?"), "Lima").value
    1.0

    Raises:
        ConfigError: it has no parameter `completions`.
    """
    if not is_trl(function):
        raise ConfigError(
            f"{getattr(function, '__name__', function)!r} is no function in TRL's form, "
            "f(prompts, completions, **columns)"
        )
    name, takes = _name_of(function), inspect.signature(function).parameters
    needed = [
        one.name
        for one in takes.values()
        if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]

    def run(example: Example, completion: str, *, function: Any) -> Mapping[str, float]:
        return {name: function(example, completion)}

    def lacks(example: Example) -> str | None:
        there = _columns(example)
        passed = (*there, *_IGNORED, *_TRAINERS, "prompts", "completions")
        absent = [one for one in needed if one not in passed]
        return f"it has no column {absent[0]!r}, which {name} reads" if absent else None

    run.__module__, run.__name__, run.__doc__ = function.__module__, name, function.__doc__
    run.__qualname__ = getattr(function, "__qualname__", name)
    if not inspect.isfunction(function):  # its module may not have it under its name
        vars(run)["rebuilt"] = lambda reward: (from_trl, (function,))
    given = MappingProxyType({"function": _Function(function)})
    return Reward(run, name, MappingProxyType({}), given, lambda knobs: Needs(lacks))


def _columns(example: Example) -> dict[str, Any]:
    """What an example has beside its question, under the names that functions of TRL's form may have."""
    first = dict.fromkeys(_PREFERRED, example.answers[0]) if example.answers else {}
    return {**first, **columns_of(example), **example.meta}


def _function_of(module: str, name: str) -> _Function:
    """Of the function that a module has under this name, as it is or as `from_trl` made a reward of it."""
    found = attrgetter(name)(importlib.import_module(module))
    return (found if isinstance(found, Reward) else from_trl(found)).resources["function"]


def _turn(role: str, text: str, messages: bool) -> Any:
    return [{"role": role, "content": text}] if messages else text


class TrainerOnly(ConfigError):
    """A function reads what only a trainer has, and there is none."""

    def __init__(self, function: str, name: str) -> None:
        super().__init__(
            f"reward {function!r} reads {name}, which only a trainer has; use it with factrl train, or give "
            f"the parameter a default: {name}=None"
        )


class _Absent:
    """In the place of what only a trainer has: a function may take it, and not read it."""

    def __init__(self, function: str, name: str) -> None:
        self.function, self.name = function, name

    def _refuse(self, *_: Any) -> Any:
        raise TrainerOnly(self.function, self.name)

    __getattr__ = __getitem__ = __iter__ = __len__ = _refuse


def _ignore(*_: Any) -> None:
    """In the place of what TRL's trainers log with."""


class _Function:
    """A function of TRL's form as a resource: the completions of a batch are handed to it together."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.name = function, _name_of(function)
        self.messages: bool | None = None  # whether it reads conversations; None until its first batch
        self.takes = inspect.signature(function).parameters
        self.takes_all = any(one.kind is one.VAR_KEYWORD for one in self.takes.values())

    def __reduce__(self) -> tuple[Any, ...]:
        if not inspect.isfunction(self.function):
            return _Function, (self.function,)
        return _function_of, (self.function.__module__, self.function.__qualname__)

    def __call__(self, example: Example, completion: str) -> float:
        answer = self.answer_together([((example, completion), {})])[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer_together(self, calls: Sequence[Call]) -> list[Any]:
        """A number for each call, or the error that masks it."""
        rows = [args for args, _ in calls]
        try:
            returned = self._call(rows, self.messages or False)
        except (TypeError, AttributeError, IndexError) as error:
            if self.messages is not None:
                raise
            try:  # it may read conversations
                returned, self.messages = self._call(rows, True), True
            except Exception:  # noqa: BLE001  (what it says of texts is the error)
                raise error from None
        self.messages = self.messages or False
        name = self.name
        masked = Unscored("no_reward", f"{name} returned None for it")
        try:
            texts = any(isinstance(value, (str, bytes)) for value in returned)
            values = [] if texts else [masked if value is None else float(value) for value in returned]
        except (TypeError, ValueError):
            values = []
        if len(values) != len(rows):
            raise NoScore(
                f"reward {name!r} returned {reprlib.repr(returned)} for {len(rows)} completions; return a "
                "list with a number for each, or None where it has none"
            )
        return values

    def _call(self, rows: Sequence[tuple[Example, str]], messages: bool) -> Any:
        columns = [_columns(example) for example, _ in rows]
        named: dict[str, Any] = {
            name: [row.get(name) for row in columns]
            for name in dict.fromkeys(n for row in columns for n in row)
        }
        named["prompts"] = [_turn("user", example.question, messages) for example, _ in rows]
        named["completions"] = [_turn("assistant", str(text), messages) for _, text in rows]
        named |= dict.fromkeys(_IGNORED, _ignore) | self._passed([text for _, text in rows])
        given = {name: value for name, value in named.items() if self.takes_all or name in self.takes}
        try:
            returned = self.function(**given)
            return wait_for(returned) if inspect.iscoroutine(returned) else returned
        except KeyError as error:  # of **columns
            if error.args and error.args[0] in _TRAINERS:
                raise TrainerOnly(self.name, error.args[0]) from error
            raise

    def _passed(self, texts: Sequence[str]) -> dict[str, Any]:
        """What a trainer passes beside the columns; where there is none, what must be passed."""
        passed = [found for text in texts if (found := getattr(text, "passed", None)) is not None]
        if len(passed) == len(texts):
            return {"completion_ids": [ids for ids, _ in passed], "trainer_state": passed[0][1]}
        taken = [self.takes[name] for name in _TRAINERS if name in self.takes]
        return {one.name: _Absent(self.name, one.name) for one in taken if one.default is one.empty}


def _key(parts: Sequence[Reward], part: Reward, resource: str) -> str:
    """What the sum calls a resource of a part: its name, if no two parts bring others of it."""
    given = [one.resources[resource] for one in parts if one.resources.get(resource) is not None]
    same = all(one is given[0] for one in given)
    return resource if same and resource != "function" else f"{part.name}_{resource}"


def _lacks(part: Reward, example: Example) -> str | None:
    """What an example lacks for a part."""
    if part.needed.lacks is not None:
        return part.needed.lacks(example)
    graded = "grade" in part.resources and not example.answers and not example.false_premise
    return "it has no accepted answers" if graded else None


class _Sum:
    """The function of a sum: its rewards, and what each calls which of the sum's resources."""

    def __init__(self, parts: Sequence[Reward], keys: Sequence[Mapping[str, str]]) -> None:
        self.parts, self.keys = parts, keys
        self.__doc__ = f"The weighted sum of {', '.join(part.name for part in parts)}."

    def __call__(self, example: Example, completion: str, *, weights: Sequence[float], **given: Any) -> Score:
        terms, facts = dict[str, float](), dict[str, Any]()
        spans, floored = tuple[Span, ...](), None
        for part, own, weight in zip(self.parts, self.keys, weights, strict=True):
            own_resources = MappingProxyType({of: given[key] for of, key in own.items()})
            result = replace(part, resources=own_resources).graded(example, completion)
            for term, value in result.terms.items():
                terms[term if term == part.name else f"{part.name}/{term}"] = weight * value
            spans, floored = spans or result.spans, floored or result.cause
            facts = {**result.facts, **facts}
        return Score(terms, spans, floored, facts)

    def rebuilt(self, reward: Reward) -> tuple[Any, ...]:
        """How a reward with this function is pickled."""
        return _sum_of, (self.parts, reward.name, {**reward.knobs, **reward.resources})


def _sum_of(parts: Sequence[Reward], name: str, values: Mapping[str, Any]) -> Reward:
    return weighted(parts, name=name).with_(**values)


def weighted(
    rewards: Sequence[Reward | Callable[..., Any]],
    weights: Sequence[float] | None = None,
    *,
    name: str = "weighted",
) -> Reward:
    """Several rewards as one: the sum of all their terms, each times the weight of its reward.

    The weights are the knob `weights`.  What one of them cannot grade is masked for all, since a part of the
    sum would be another reward; credit for stretches of text is that of the first reward which gives it.

    >>> def brief(completions, **columns):
    ...     return [-1.0 * (len(text) > 20) for text in completions]
    >>> both = fx.weighted([fx.load_reward("truthrl").with_(grade=fx.Grader()), brief], [1.0, 0.5])
    >>> dict(both(Example("Capital of Peru?", ("Lima",)), r"It is, I think, \\boxed{Lima}").terms)
    {'truthrl/outcome': 1.0, 'brief': -0.5}

    Args:
        rewards: of factrl, or functions in TRL's form.
        weights: as many, 1 each by default.
        name: what metrics and errors call the sum.

    Raises:
        ConfigError: no rewards, two of one name, or another number of weights.
    """
    parts = [one if isinstance(one, Reward) else from_trl(one) for one in rewards]
    names = [part.name for part in parts]
    if not parts or len({*names}) < len(names):
        raise ConfigError(f"weighted() takes rewards of different names, not {', '.join(names) or 'none'}")
    keys = [{of: _key(parts, part, of) for of in part.resources} for part in parts]
    resources = dict[str, Any]()
    for part, own in zip(parts, keys, strict=True):  # what one of them brings is for all
        resources |= {key: resources.get(key) or part.resources[of] for of, key in own.items()}

    def lacks(example: Example) -> str | None:
        return next((why for part in parts if (why := _lacks(part, example))), None)

    def needs(knobs: Mapping[str, Any]) -> Needs:
        if len(knobs["weights"]) != len(parts):
            raise ConfigError(f"weights={[*knobs['weights']]} are not one for each of {', '.join(names)}")
        pairs = zip(parts, keys, strict=True)
        asked = {key for part, own in pairs for of, key in own.items() if of in part.asked}
        every = [part.needed for part in parts]
        return Needs(
            lacks,
            [key for key in resources if key not in asked],
            searches=any(one.searches for one in every),
            refuted=next((one.refuted for one in every if one.refuted), ""),
        )

    given = MappingProxyType({"weights": tuple(weights or [1.0] * len(parts))})
    total = Reward(_Sum(parts, keys), name, given, MappingProxyType(resources), needs)
    needs(given)
    return total
