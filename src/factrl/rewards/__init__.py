"""Rewards: a function of one example and one completion, and what happens around it.

    @fx.reward
    def brief(example, completion, *, grade, max_words=60):
        label = grade(example.question, completion, example.answers).label
        return {"true": 1.0 * (label == "correct"), "brief": -1.0 * (len(completion.split()) > max_words)}

Keyword-only parameters without a default are *resources* (`grade`, `reason`), supplied by `.with_()`;
those with a default are *knobs*, the same name in Python, TOML and on the command line.  The function
returns named terms, whose sum is the reward, or a `Score` when it also has spans or facts.

An `Unscored` that a reward raises becomes a masked sample in this module and nowhere else, so "could not be
graded" never becomes a number.  Anything else that a reward raises is a bug that stops the run.
"""

from __future__ import annotations

import importlib
import inspect
import math
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from operator import attrgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any, Literal, get_args, get_origin, get_type_hints, overload

from factrl.errors import ConfigError, DataError, FactrlError, NoScore, RewardBug, Unscored, nearest
from factrl.llm.background import Workers, wait_for
from factrl.text import strip_end_tokens
from factrl.types import Completion, Example, Result, Score, Span, plain

THREADS = 256  # samples of one batch that wait for their judges at the same time
SUM = "sum"  # the name under which the sum of the terms is logged, next to the terms

RewardFunction = Callable[..., Any]


@dataclass(frozen=True)
class Needs:
    """What a reward needs beside its resources.

    Attributes:
        lacks: says what an example lacks for it, None when nothing.
        unused: resources that are never asked, for example by a weight of 0, and need not be supplied.
        searches: `verify` is also asked about questions without evidence, for which it needs a search.
        refuted: why it needs the verdict `refuted`, and what gives it; a verifier that never does is refused.
    """

    lacks: Callable[[Example], str | None] | None = None
    unused: Collection[str] = ()
    searches: bool = False
    refuted: str = ""


NeedsOf = Callable[[Mapping[str, Any]], Needs]
"""What a reward needs with these knobs; raises `ConfigError` where they do not fit together."""


@dataclass(frozen=True)
class Reward:
    """A reward function with its knobs set and its resources supplied; made by `@reward`.

    >>> harsh = fx.load_reward("truthrl").with_(wrong=-2.0, grade=fx.Grader())
    >>> result = harsh(Example("Capital of Peru?", ("Lima",)), r"\\boxed{Cusco}")
    >>> result.state, result.value, dict(result.terms)
    ('scored', -2.0, {'outcome': -2.0})

    Attributes:
        name: what metrics and errors call it.
        resources: resource -> object, or None while it is not supplied.
        needs: what it needs with its knobs.
        choices: knob -> the words that it may be, those of its `Literal`.
    """

    fn: RewardFunction
    name: str
    knobs: Mapping[str, Any]
    resources: Mapping[str, Any]
    needs: NeedsOf = field(default=lambda knobs: Needs(), repr=False)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name of the function: in its module, `@reward` has put the reward under that name."""
        rebuilt = getattr(self.fn, "rebuilt", None)
        if rebuilt is not None:
            return rebuilt(self)
        module, name = self.fn.__module__, self.fn.__qualname__
        package = module.partition(".")[0]
        if module != "__main__" and not any(finder.find_spec(package, None) for finder in sys.meta_path):
            raise TypeError(
                f"reward {self.name!r} is in a file that is not on Python's path, so another process cannot "
                "import it; put its folder into PYTHONPATH and import the reward from there"
            )
        return _rebuilt, (module, name, {**self.knobs, **self.resources})

    def __repr__(self) -> str:
        knobs = ", ".join(f"{name}={value!r}" for name, value in self.knobs.items())
        needs = f"; needs {', '.join(self.missing)}" if self.missing else ""
        return f"<Reward {self.name}({knobs}){needs}>"

    def with_(self, **values: Any) -> Reward:
        """The same reward with other knobs or with resources supplied.

        Raises:
            ConfigError: a name that is neither a knob nor a resource of this reward, a knob that is none of
                its choices or does not fit another, or a verifier without a verdict that the reward needs.
        """
        knobs, resources = dict(self.knobs), dict(self.resources)
        for name, value in values.items():
            if name not in knobs and name not in resources:
                known = [*knobs, *resources]
                raise ConfigError(
                    f"reward {self.name!r} has no knob or resource {name!r}{nearest(name, known)} "
                    f"(it has: {', '.join(known) or 'none'})"
                )
            (resources if name in resources else knobs)[name] = value
        for name, (*others, last) in self.choices.items():
            if knobs[name] not in (*others, last):
                raise ConfigError(f"{name}={knobs[name]!r} is not {', '.join(others)} or {last}")
        needed = self.needs(knobs)
        judge: Any = getattr(values.get("verify"), "judge", None)
        if needed.refuted and not getattr(judge, "refutes", True):
            problem = f"the verifier {judge.identity} never says `refuted`"
            raise ConfigError(f"reward {self.name!r}: {problem}; {needed.refuted}")
        return replace(self, knobs=MappingProxyType(knobs), resources=MappingProxyType(resources))

    @property
    def needed(self) -> Needs:
        """What it needs with its knobs as they are."""
        return self.needs(self.knobs)

    @property
    def asked(self) -> tuple[str, ...]:
        """Its resources without those that these knobs make unnecessary."""
        unused = self.needed.unused
        return tuple(name for name in self.resources if name not in unused)

    @property
    def missing(self) -> tuple[str, ...]:
        """Resources that must still be supplied, without those that these knobs make unnecessary."""
        return tuple(name for name in self.asked if self.resources[name] is None)

    @property
    def needs_answers(self) -> bool:
        """Whether a question without accepted answers is of no use to it."""
        if (lacks := self.needed.lacks) is None:
            return "grade" in self.resources
        return lacks(Example("?")) != lacks(Example("?", ("!",)))

    def check_examples(self, examples: Sequence[Example]) -> None:
        """Refuse a dataset that lacks what this reward needs, before anything is paid for.

        Raises:
            DataError: how many rows lack what, and the first of them.
            ConfigError: a knob is missing that it has to be told.
        """
        lacks = self.needed.lacks or (lambda example: None)
        problems = [(e, why) for e in examples if (why := lacks(e))]
        if problems:
            first, why = problems[0]
            raise DataError(
                f"{len(problems)} of {len(examples)} examples cannot be used with reward {self.name!r}; "
                f"the first is {first.id or first.question!r}: {why}"
            )

    def __call__(self, example: Example, completion: str) -> Result:
        """Score one completion: scored, masked or floored, never a default number.

        Raises:
            RewardBug: the reward raised something other than `Unscored`.
            NoScore: it returned no score.
            ConfigError: a resource is missing.
        """
        self._check_supplied()
        completion = _without_end_tokens(completion)
        try:
            try:
                if completion.failed is not None:
                    raise completion.failed
                return self.graded(example, completion)
            except Unscored as error:
                detail = error.detail or str(error)
                with self._no_score(example):
                    return Result("masked", None, cause=error.cause, detail=detail, facts=plain(error.facts))
        except FactrlError:
            raise
        except (Exception, SystemExit) as error:
            raise RewardBug(self._failed(example, error)) from error

    def graded(self, example: Example, completion: str) -> Result:
        """What the function makes of one completion; `verify` takes the example's evidence by itself.

        Raises:
            Unscored: nothing, so that the sample is masked.
            NoScore: something that is no score.
        """
        resources = {**self.resources}
        if example.evidence and resources.get("verify") is not None:
            resources["verify"] = for_example(resources["verify"], example)
        returned = self.fn(example, completion, **resources, **self.knobs)
        if inspect.iscoroutine(returned):
            returned = wait_for(returned)
        with self._no_score(example):
            return result_of(returned, completion)

    @contextmanager
    def _no_score(self, example: Example) -> Iterator[None]:
        """Makes a `NoScore` of the error about a value that it returned or raised."""
        try:
            yield
        except (TypeError, ValueError, OverflowError) as error:
            raise NoScore(self._failed(example, error)) from error

    def _failed(self, example: Example, error: BaseException) -> str:
        sample = example.id or example.question
        return f"reward {self.name!r} failed on example {sample!r} with {type(error).__name__}: {error}"

    def batch(self, examples: Sequence[Example], completions: Sequence[str]) -> list[Result]:
        """Score completions side by side; results in the order given.

        A resource that has `answer_together`, such as a `Verifier`, gets the requests of all samples at once.
        For the resource `group`, the group of a completion is all completions of its question in this batch,
        unless the completion already has a group.

        Raises:
            RewardBug: as for a single call; the first one ends the batch.
        """
        if len(examples) != len(completions):
            raise ValueError(f"{len(examples)} examples but {len(completions)} completions")
        self._check_supplied()
        if not examples:
            return []
        if "group" in self.resources:
            completions = _with_groups(examples, completions)
        threads = min(THREADS, len(examples))
        pool = ThreadPoolExecutor(threads, thread_name_prefix="factrl-reward")
        with Workers(len(examples), threads) as workers:
            shared = {
                name: workers.share(resource)
                for name, resource in self.resources.items()
                if hasattr(resource, "answer_together")
            }
            reward = replace(self, resources=MappingProxyType({**self.resources, **shared}))
            broken = threading.Event()  # set by a bug, which ends the batch

            def work(example: Example, completion: str) -> Result:
                if broken.is_set():
                    raise CancelledError
                try:
                    return reward(example, completion)
                except BaseException:
                    broken.set()
                    raise
                finally:
                    workers.done()

            futures = [pool.submit(work, *pair) for pair in zip(examples, completions, strict=True)]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                bugs = (future.exception() for future in futures if future.done())
                bug = next((bug for bug in bugs if bug and not isinstance(bug, CancelledError)), None)
                if bug is not None:
                    raise bug
                return [future.result() for future in futures]
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _check_supplied(self) -> None:
        if self.missing:
            name = self.missing[0]
            raise ConfigError(
                f"reward {self.name!r} needs the resource {name!r}; supply it with .with_({name}=…)"
            )


def _with_groups(examples: Sequence[Example], completions: Sequence[str]) -> list[Completion]:
    """The completions with their groups: those of one question with the same accepted answers."""
    wrapped = [text if isinstance(text, Completion) else Completion(text) for text in completions]
    groups: dict[tuple[str, tuple[str, ...]], list[Completion]] = {}
    for example, completion in zip(examples, wrapped, strict=True):
        groups.setdefault((example.question, example.answers), []).append(completion)
    for group in groups.values():
        for completion in group if len(group) > 1 else ():
            completion.group = completion.group or tuple(group)
    return wrapped


def _without_end_tokens(completion: str) -> Completion:
    """The completion without the tokens that end its turn."""
    ended = Completion(strip_end_tokens(completion))
    if isinstance(completion, Completion):
        if len(ended) == len(completion):
            return completion
        vars(ended).update(vars(completion))
    return ended


def _rebuilt(module: str, name: str, values: Mapping[str, Any]) -> Reward:
    """The reward that a module has under this name, with these knobs and resources."""
    found = attrgetter(name)(importlib.import_module(module))
    if not isinstance(found, Reward):
        from factrl.rewards.trl import from_trl

        found = from_trl(found)
    return found.with_(**values)


@overload
def reward(fn: RewardFunction, /) -> Reward: ...
@overload
def reward(*, needs: Needs | NeedsOf) -> Callable[[RewardFunction], Reward]: ...
def reward(
    fn: RewardFunction | None = None, /, *, needs: Needs | NeedsOf | None = None
) -> Reward | Callable[[RewardFunction], Reward]:
    """Make a reward of a function `(example, completion, *, resource, knob=default)`.

    >>> @reward
    ... def brief(example, completion, *, most=3):
    ...     return {"brief": -1.0 * (len(completion.split()) > most)}
    >>> brief
    <Reward brief(most=3)>
    >>> brief.with_(most=1)(Example("Capital of Peru?"), "It is Lima.").value
    -1.0

    A knob that may be a few words says so by its type, such as `mode: Literal["strict", "mild"] = "strict"`.

    Args:
        needs: what it needs beside its resources, or a function of the knobs that says it and raises
            `ConfigError` where they do not fit together.

    Raises:
        TypeError: the function does not have that shape.
    """
    if fn is None:
        return partial(reward, needs=needs)  # type: ignore[return-value]  # called with the function
    knobs: dict[str, Any] = {}
    resources: dict[str, Any] = {}
    positional = 0
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional += 1
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            raise TypeError(f"reward {fn.__name__!r}: *{parameter.name} is not a knob; name each one")
        elif parameter.default is parameter.empty:
            resources[parameter.name] = None
        else:
            knobs[parameter.name] = parameter.default
    if positional != 2:
        raise TypeError(
            f"reward {fn.__name__!r} takes {positional} positional parameters; "
            "write def reward(example, completion, *, …)"
        )
    found = needs if needs is not None else Needs()
    needed = found if callable(found) else lambda knobs: found
    return Reward(
        fn, fn.__name__, MappingProxyType(knobs), MappingProxyType(resources), needed, _choices(fn, knobs)
    )


def _choices(fn: RewardFunction, knobs: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """The words of each knob whose type is a `Literal`; a name that is not there says nothing."""
    choices = {}
    for name in filter(fn.__annotations__.__contains__, knobs):
        with suppress(NameError):
            one = SimpleNamespace(__annotations__={name: fn.__annotations__[name]})
            hint = get_type_hints(one, fn.__globals__)[name]
            choices |= {name: get_args(hint)} if get_origin(hint) is Literal else {}
    return choices


def for_example(resource: Callable[..., Any], example: Example) -> Callable[..., Any]:
    """The resource with `example` and its `evidence` filled in, where it has parameters of these names.

    >>> for_example(lambda claims, example: example.topic, Example("?", topic="Curie"))(["a claim"])
    'Curie'
    >>> for_example(len, Example("?"))(["a claim"])
    1
    """
    try:
        takes = inspect.signature(resource).parameters
    except (TypeError, ValueError):  # a function written in C, without a signature
        return resource
    filled = {"example": example, **({"evidence": example.evidence} if example.evidence else {})}
    given = {name: value for name, value in filled.items() if name in takes}
    return partial(resource, **given) if given else resource


def result_of(returned: Any, completion: str) -> Result:
    """What a reward function returned, checked.

    Raises:
        TypeError, ValueError: it is no score of this completion.
    """
    score = returned if isinstance(returned, Score) else Score(returned)
    if not isinstance(score.terms, Mapping):
        raise TypeError(f"it returned {score.terms!r}; return a dict such as {{'correct': 1.0}}")
    if not score.terms:
        raise TypeError("it returned no terms; return a dict such as {'correct': 1.0}")
    for name, value in score.terms.items():
        if not isinstance(name, str):
            raise TypeError(f"the term name {name!r} is not text")
        if name == SUM:
            raise ValueError(f"a term is called {SUM!r}, which the sum of the terms is logged as; rename it")
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            raise ValueError(f"term {name!r} is {value!r}, not a finite number")
    if not isinstance(score.spans, (list, tuple)) or not all(isinstance(one, Span) for one in score.spans):
        raise TypeError(f"its spans are {score.spans!r}; give a list such as [fx.Span(0, 4, 1)]")
    if score.floored is not None and not (isinstance(score.floored, str) and score.floored.strip()):
        raise TypeError(
            f"floored={score.floored!r} is not the cause in one word, such as 'no_answer', or None"
        )
    if not isinstance(score.facts, Mapping):
        raise TypeError(f"its facts are {score.facts!r}; give a dict such as {{'answer': 'Lima'}}")
    for span in score.spans:
        if span.end > len(completion):
            raise ValueError(
                f"span [{span.start}, {span.end}) ends beyond the completion's {len(completion)} characters"
            )
    terms = {name: float(value) for name, value in score.terms.items()}
    try:
        value = math.fsum(terms.values())
    except OverflowError as error:
        raise ValueError(f"the sum of its terms {terms} is not a finite number") from error
    return Result(
        "floored" if score.floored else "scored",
        value,
        terms=terms,
        spans=tuple(score.spans),
        cause=score.floored,
        facts=plain(score.facts),
    )
