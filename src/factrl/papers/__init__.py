"""The shelf: one published reward, one file.

A paper's module is called what the paper is called and holds

* a header: what it is, the paper, the released code, where the two differ and where we differ;
* its `@reward` functions;
* `SETTINGS`: the paper's prompt and training settings, nested as in a recipe;
* `VARIANTS`: name -> reward with its knobs set; the first is the paper's main setting;
* `GOLD`: worked cases that one test walks for all papers and `factrl check` shows;
* `PUBLISHED`: the paper's own numbers, for comparison, as (table, row, metric) -> value.

It may also say, and so may a file of your own:

* `VARIANT_SETTINGS`: variant -> what it sets otherwise than `SETTINGS`, nested alike;
* `ASKS`: variant -> setting, such as `train.beta` -> why only the user can give it; those of "" are those of
  every variant that has none of its own;
* `FORM`: where the answer stands, `boxed`, between `tags` or with a `confidence`; the whole text by default
  (`form_of`);
* `LENGTH`: whether it reads `short` or `long` answers; by default short ones where answers are needed;
* `STAND_IN`: the variant that `factrl stress` tries in place of a main one that lacks weights, and why;
* `WEAKNESSES`: variant -> the hacks of `factrl stress` that are known to pay, with what pays for them; those
  of "" are those of every variant that has no list of its own.

What `factrl study PAPER` trains, and the paper's whole pipeline, is in `factrl/studies/PAPER.toml`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType, TracebackType
from typing import Any, Literal

from factrl.errors import ConfigError, FactrlError, first_line, nearest
from factrl.llm import FakeLLM
from factrl.rewards import Reward
from factrl.rewards.resources import supply
from factrl.types import Claim, Example, Passage, State, Verdict, VerdictLabel
from factrl.verifier import Verifier
from factrl.verifier.claims import SentenceClaims
from factrl.verifier.search import Given

Form = Literal["tags", "boxed", "text", "confidence"]
"""Where a reward looks for the answer: between tags, in a box, in the whole text, or between tags with a
confidence behind it."""
Length = Literal["short", "long"]


@dataclass(frozen=True, slots=True)
class Gold:
    """A worked case: what one variant must make of one completion.

    Attributes:
        why: what the case shows.
        variant: which of the paper's variants.
        replies: what the judge answers, in order; more or fewer calls than replies fail the case.
        state, terms: what must come out; `terms` is ignored for a masked sample.
        verdicts: what a scripted judge says of the claims that a reward verifies, in order; a claim is a
            sentence, and the evidence is the example's.  More or fewer claims than verdicts fail the case.
        spans: (start, end, sign) of the step-wise credit that must come out; None is not looked at.
        given: resource -> object, for resources that a scripted judge does not make.
    """

    why: str
    example: Example
    completion: str
    terms: Mapping[str, float] = field(default_factory=dict)
    variant: str = ""
    replies: tuple[str, ...] = ()
    state: State = "scored"
    verdicts: tuple[VerdictLabel, ...] = ()
    spans: tuple[tuple[int, int, int], ...] | None = None
    given: Mapping[str, Any] = field(default_factory=dict)


def no_answers(example: Example, knobs: Mapping[str, Any] = MappingProxyType({})) -> str | None:
    """What a question lacks whose answer is graded; a false premise is there to be named."""
    return None if example.answers or example.false_premise else "it has no accepted answers"


def paper_names() -> tuple[str, ...]:
    """Names of the papers on the shelf."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load_paper(name: str) -> ModuleType:
    """A paper's module, or the module in a `.py` file of your own, which is run once while it stays as it is.

    Raises:
        ConfigError: no such paper or file.
    """
    if name.endswith(".py"):
        return _run_file(Path(name))
    if name not in paper_names():
        raise ConfigError(
            f"unknown paper {name!r}{nearest(name, paper_names())} (there are: {', '.join(paper_names())}; "
            "a reward of your own is given as my_file.py:function)"
        )
    return importlib.import_module(f"{__name__}.{name}")


def rewards_of(module: ModuleType) -> Mapping[str, Reward]:
    """A paper's variants, the main one first; of a file of your own, every reward in it."""
    if module.__name__.startswith(f"{__name__}."):
        return module.VARIANTS
    return {name: value for name, value in vars(module).items() if isinstance(value, Reward)}


def split_spec(spec: str) -> tuple[str, str]:
    """`truthrl:binary` -> `truthrl` and `binary`; the second is empty when it is not given."""
    name, colon, part = spec.rpartition(":")
    return (name, part) if colon and not spec.endswith(".py") else (spec, "")


def load_reward(spec: str) -> Reward:
    """A reward by name: `truthrl`, `truthrl:binary`, or `my_file.py:function` for one of your own.

    Raises:
        ConfigError: unknown paper or variant, missing file, or no such reward in the file.
    """
    name, part = split_spec(spec)
    rewards = rewards_of(load_paper(name))
    return rewards[_chosen(rewards, name, part)]


def settings_of(spec: str) -> Mapping[str, Mapping[str, Any]]:
    """The settings that come with a paper's name and variant, nested as in a recipe; a file may have none."""
    name, part = split_spec(spec)
    module = load_paper(name)
    settings: Mapping[str, Mapping[str, Any]] = getattr(module, "SETTINGS", {})
    own: Mapping[str, Mapping[str, Any]] = getattr(module, "VARIANT_SETTINGS", {}).get(part, {})
    return {section: {**settings.get(section, {}), **own.get(section, {})} for section in {**settings, **own}}


def asked_of(spec: str) -> Mapping[str, str]:
    """The settings that the user has to give for a reward, e.g. `train.beta`, and why."""
    asks: Mapping[str, Mapping[str, str]] = declared(spec, "ASKS", {})
    part = split_spec(spec)[1]
    return asks.get(part, asks.get("", {}))


def declared(spec: str, name: str, default: Any = None) -> Any:
    """What the file of a reward says under `name`, e.g. `FORM`; `default` where it says nothing."""
    paper = split_spec(spec)[0]
    known = Path(paper).is_file() if paper.endswith(".py") else paper in paper_names()
    return getattr(load_paper(paper), name, default) if known else default


def form_of(spec: str, reward: Reward) -> Form:
    """The form in which a reward reads completions: its knob `answer`, else its file's `FORM`, else text."""
    said = reward.knobs.get("answer")
    if said in ("boxed", "tags", "text", "confidence"):
        return said
    if reward.knobs.get("thinking") is False:
        return "text"
    return declared(spec, "FORM", "text")


def length_of(spec: str, reward: Reward) -> Length:
    """Whether a reward looks for one short answer or reads a long one."""
    said: Length | None = declared(spec, "LENGTH")
    return said or ("short" if reward.needs_answers else "long")


def gold_of(spec: str) -> list[tuple[str, Reward, Gold]]:
    """The worked cases of a paper or a file with the variant and the reward each is about.

    When `spec` names a variant, only the cases of that one.  A case that names none is about the paper's
    main one, in a file about the reward that `spec` names.

    Raises:
        ConfigError: as `load_reward`, or there is no such case.
    """
    name, part = split_spec(spec)
    module = load_paper(name)
    rewards = rewards_of(module)
    main = _chosen(rewards, name, part if name.endswith(".py") else "")
    only = _chosen(rewards, name, part) if part else ""
    cases = [(case.variant or main, case) for case in getattr(module, "GOLD", ())]
    cases = [(_chosen(rewards, name, variant), case) for variant, case in cases if only in ("", variant)]
    if not cases:
        raise ConfigError(
            f"{spec} has no worked cases; add to {module.__file__}: "
            "GOLD = (factrl.papers.Gold(why, example, completion, terms),)"
        )
    return [(variant, rewards[variant], case) for variant, case in cases]


def check_gold(reward: Reward, case: Gold) -> str:
    """What this reward does otherwise than the case says, with the real grader; empty when nothing.

    Terms must agree to 1e-9, and the judges must be asked exactly what the case has replies and verdicts for.
    """
    judge, claims = FakeLLM(case.replies), _ScriptedJudge(case.verdicts)
    scripted = {
        "verify": Verifier(SentenceClaims(), Given([Passage("…")]), claims, own_subject=False),
        "extract": SentenceClaims(),
        **case.given,
    }
    reward = reward.with_(**{name: value for name, value in scripted.items() if name in reward.missing})
    try:
        result = supply(reward, judge)(case.example, case.completion)
    except FactrlError as error:
        return str(error)
    problems = []
    if result.state != case.state:
        because = f" ({result.cause}: {result.detail})" if result.cause else ""
        problems.append(f"{result.state}{because}, not {case.state}")
    elif result.state != "masked" and not _same_terms(result.terms, case.terms):
        problems.append(f"terms {dict(result.terms)}, not {dict(case.terms)}")
    if len(judge.calls) != len(case.replies):
        problems.append(f"the judge was asked {len(judge.calls)} times, not {len(case.replies)}")
    if claims.asked != len(case.verdicts):
        problems.append(f"{claims.asked} claims were judged, not {len(case.verdicts)}")
    spans = tuple((span.start, span.end, span.sign) for span in result.spans)
    if case.spans is not None and spans != case.spans:
        problems.append(f"spans {spans}, not {case.spans}")
    return "; ".join(problems)


_files: dict[
    tuple[str, int], ModuleType
] = {}  # (path, when it was changed) -> what the file of a user's made


class _ScriptedJudge:
    """Gives the verdicts of a case to claims in the order in which it is asked about them."""

    identity, weak, per_call = "scripted", False, 1_000

    def __init__(self, labels: Sequence[VerdictLabel]) -> None:
        self._labels, self.asked = labels, 0

    async def judge(self, pairs: Sequence[tuple[Claim, Sequence[Passage]]]) -> list[Verdict]:
        start, self.asked = self.asked, self.asked + len(pairs)
        verdicts = []
        for number in range(start, self.asked):
            scripted = number < len(self._labels) and self._labels[number] != "unjudged"
            label = self._labels[number] if scripted else "unjudged"
            verdicts.append(Verdict(label, "scripted", cause=None if scripted else "timeout"))
        return verdicts


def _same_terms(terms: Mapping[str, float], wanted: Mapping[str, float]) -> bool:
    return terms.keys() == wanted.keys() and all(abs(terms[name] - wanted[name]) <= 1e-9 for name in wanted)


def _chosen(rewards: Mapping[str, Reward], name: str, part: str) -> str:
    own = name.endswith(".py")
    if not rewards:
        raise ConfigError(f"{name} has no reward; decorate a function of it with @factrl.reward")
    if own and not part and len(rewards) > 1:
        raise ConfigError(
            f"{name} has several rewards; name one: {', '.join(f'{name}:{r}' for r in rewards)}"
        )
    if part and part not in rewards:
        what = f"{name} has no reward" if own else f"paper {name!r} has no variant"
        raise ConfigError(f"{what} {part!r}{nearest(part, rewards)} (it has: {', '.join(rewards)})")
    return part or next(iter(rewards))


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        around = [other.name for other in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise ConfigError(f"{path} does not exist{nearest(path.name, around)}")
    version = (os.path.realpath(path), path.stat().st_mtime_ns)
    if version in _files:
        return _files[version]
    file_spec = importlib.util.spec_from_file_location(f"factrl_own_{path.stem}", path)
    assert file_spec is not None  # noqa: S101  # for the type checker: a .py path has a spec and a loader
    assert file_spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(file_spec)
    sys.modules[file_spec.name] = module  # dataclasses look their module up there
    with _Running(path):
        file_spec.loader.exec_module(module)
    _files[version] = module
    return module


class _Running:
    """Names the file of the user's, and the line of it, whose code does not run."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, SyntaxError):
            line = f", line {error.lineno}" if error.lineno else ""
            raise ConfigError(f"{error.filename or self._path}{line} is not Python: {error.msg}") from error
        if isinstance(error, (Exception, SystemExit)):
            ours = os.path.realpath(self._path)
            frames = traceback.walk_tb(trace)
            lines = [n for frame, n in frames if os.path.realpath(frame.f_code.co_filename) == ours]
            line = f", line {lines[-1]}" if lines else ""
            raise ConfigError(
                f"{self._path}{line} stops with {type(error).__name__}: {first_line(error)}; mend the file"
            ) from error
