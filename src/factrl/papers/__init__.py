"""Papers: one published reward, one file.

A paper's module is called what the paper is called and holds a header (what it is, the paper, the released
code, where the two differ and where we differ), its `@reward` functions, and `PAPER`, which says all else.
Its settings, with the source of each, are in `factrl/recipes`; what `factrl study PAPER` trains is in
`factrl/studies/PAPER.toml`, and the hacks that are known to pay in `factrl/stress/weaknesses.toml`.

A file of your own may have a `PAPER` too; without one it offers every reward in it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from factrl.errors import ConfigError, first_line, nearest
from factrl.rewards import Reward
from factrl.rewards.trl import from_trl, is_trl
from factrl.runs import recipe_of
from factrl.runs.settings import OWN, RunSettings, TrainSettings
from factrl.types import Example

Form = Literal["tags", "boxed", "text", "confidence"]
"""Where a reward looks for the answer: between tags, in a box, in the whole text, or between tags with a
confidence behind it."""
Length = Literal["short", "long"]
Nested = Mapping[str, Mapping[str, Any]]
"""Settings, nested as in a recipe."""


@dataclass(frozen=True)
class Paper:
    """What a file says of its rewards.

    >>> load_paper("robust").form
    'tags'

    Attributes:
        variants: name -> reward with its knobs set; the first is the main setting.
        terms: names of all terms that its rewards may return.
        form: where the answer stands, where no knob `answer` says it.
        length: whether it reads `short` or `long` answers; by default short ones where answers are needed.
        settings: variant -> what it sets otherwise than the recipe; "" for every variant, without a recipe.
        asks: variant -> setting, such as `train.beta` -> why only the user can give it; those of "" are those
            of every variant that has none of its own.
        stand_in: the variant that `factrl stress` tries in place of a main one that lacks weights, and why.
        weaknesses: variant -> hack that is known to pay -> why, with "" for every variant that has no list.
        about: the text at the top of the file.
    """

    variants: Mapping[str, Reward] = field(default_factory=dict)
    terms: tuple[str, ...] = ()
    form: Form = "text"
    length: Length | None = None
    settings: Mapping[str, Nested] = field(default_factory=dict)
    asks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stand_in: tuple[str, str] | None = None
    weaknesses: Mapping[str, Mapping[str, str]] | None = None
    about: str = ""


def no_answers(example: Example) -> str | None:
    """What a question lacks whose answer is graded; a false premise is there to be named."""
    return None if example.answers or example.false_premise else "it has no accepted answers"


def paper_names() -> tuple[str, ...]:
    """Names of the papers.

    >>> "truthrl" in paper_names()
    True
    """
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load_paper(name: str) -> Paper:
    """A paper, or a `.py` file of your own, which is run once while it stays as it is.

    Raises:
        ConfigError: no such paper or file, or a file without a reward.
    """
    if name.endswith(".py"):
        module = _run_file(Path(name))
    elif name in paper_names():
        module = importlib.import_module(f"{__name__}.{name}")
    else:
        raise ConfigError(
            f"unknown paper {name!r}{nearest(name, paper_names())} (there are: {', '.join(paper_names())}; "
            "a reward of your own is given as my_file.py:function)"
        )
    every = {name: value for name, value in vars(module).items() if isinstance(value, Reward)}
    if not every:  # functions as TRL calls them
        plain = {name: value for name, value in vars(module).items() if is_trl(value)}
        every = {name: from_trl(one) for name, one in plain.items() if one.__module__ == module.__name__}
    paper = getattr(module, "PAPER", Paper(every))
    if not paper.variants:
        raise ConfigError(f"{name} has no reward; decorate a function of it with @factrl.reward")
    return replace(paper, about=(module.__doc__ or "").strip())


def paper_of(spec: str) -> Paper:
    """The paper or file of a reward; one that says nothing where there is none of that name."""
    name = split_spec(spec)[0]
    known = Path(name).is_file() if name.endswith(".py") else name in paper_names()
    return load_paper(name) if known else Paper()


def split_spec(spec: str) -> tuple[str, str]:
    """`truthrl:binary` -> `truthrl` and `binary`; the second is empty when it is not given."""
    name, colon, part = spec.rpartition(":")
    return (name, part) if colon and not spec.endswith(".py") else (spec, "")


def load_reward(spec: str) -> Reward:
    """A reward by name: `truthrl`, `truthrl:binary`, or `my_file.py:function` for one of your own, which may
    also be a plain function in TRL's form.

    >>> load_reward("truthrl:binary").knobs["abstain"]
    -1.0

    Raises:
        ConfigError: unknown paper or variant, missing file, or no such reward in the file.
    """
    name, part = split_spec(spec)
    rewards, own = load_paper(name).variants, name.endswith(".py")
    plain: Any = vars(_run_file(Path(name))).get(part) if own and part not in rewards else None
    if is_trl(plain):
        return from_trl(plain)
    if plain is not None:
        raise ConfigError(
            f"{spec} is a {type(plain).__name__} and no reward; put @fx.reward above a function, or write it "
            f"as TRL calls rewards: {part}(prompts, completions, **columns)"
        )
    if own and not part and len(rewards) > 1:
        raise ConfigError(
            f"{name} has several rewards; name one: {', '.join(f'{name}:{r}' for r in rewards)}"
        )
    if part and part not in rewards:
        what = f"{name} has no reward" if own else f"paper {name!r} has no variant"
        raise ConfigError(f"{what} {part!r}{nearest(part, rewards)} (it has: {', '.join(rewards)})")
    return rewards[part or next(iter(rewards))]


def settings_of(spec: str) -> Nested:
    """The settings that come with a paper's name and variant, nested as in a recipe; a file may have none.

    Of a recipe all do but what it says of its own models, data and machine, and what is yours to give.
    """
    from factrl.runs.config import read_toml, settable

    name, _ = split_spec(spec)
    paper, recipe = load_paper(name), recipe_of(name)
    found: dict[str, dict[str, Any]] = {section: {**v} for section, v in paper.settings.get("", {}).items()}
    fields, usual = settable(RunSettings), TrainSettings.model_fields["micro_batch_size"].default
    for section, values in read_toml(recipe).items() if recipe.is_file() else ():
        if section not in ("paper", "reward", "run"):
            shared = {k: v for k, v in values.items() if OWN not in fields[f"{section}.{k}"].metadata}
            found[section] = {**found.get(section, {}), **shared}
            if values.get("micro_batch_size", 0) > usual:  # a smaller one is for the recipe's own large model
                found[section]["micro_batch_size"] = values["micro_batch_size"]
    for section, values in variant_settings(spec).items():
        found[section] = {**found.get(section, {}), **values}
    return found


def variant_settings(spec: str) -> Nested:
    """What a variant sets otherwise than its recipe, such as its prompt.

    >>> "{evidence}" in variant_settings("truthrl:retrieval")["data"]["prompt"]
    True
    """
    name, part = split_spec(spec)
    return load_paper(name).settings.get(part, {}) if part else {}


def asked_of(spec: str) -> Mapping[str, str]:
    """The settings that the user has to give for a reward, e.g. `train.beta`, and why."""
    asks = paper_of(spec).asks
    return asks.get(split_spec(spec)[1], asks.get("", {}))


def form_of(spec: str, reward: Reward) -> Form:
    """The form in which a reward reads completions: its knob `answer`, else its file's, else text."""
    form = reward.knobs.get("answer")
    if form in ("boxed", "tags", "text", "confidence"):
        return form
    return "text" if reward.knobs.get("thinking") is False else paper_of(spec).form


def length_of(spec: str, reward: Reward) -> Length:
    """Whether a reward looks for one short answer or reads a long one."""
    return paper_of(spec).length or ("short" if reward.needs_answers else "long")


_files: dict[tuple[str, int], ModuleType] = {}  # (path, when it was changed) -> what that user's file made


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
    if (folder := os.path.dirname(version[0])) not in sys.path:
        sys.path.append(folder)  # for the modules beside it; last, so that no file there hides a package
    try:
        file_spec.loader.exec_module(module)
    except SyntaxError as error:
        line = f", line {error.lineno}" if error.lineno else ""
        raise ConfigError(f"{error.filename or path}{line} is not Python: {error.msg}") from error
    except (Exception, SystemExit) as error:
        frames = traceback.walk_tb(error.__traceback__)
        lines = [n for frame, n in frames if os.path.realpath(frame.f_code.co_filename) == version[0]]
        line = f", line {lines[-1]}" if lines else ""
        raise ConfigError(
            f"{path}{line} stops with {type(error).__name__}: {first_line(error)}; mend the file"
        ) from error
    _files[version] = module
    return module
