"""Papers: one published reward, one file.

A paper's module is called what the paper is called and holds

* a header: what it is, the paper, the released code, where the two differ and where we differ;
* its `@reward` functions;
* `TERMS`: the names of all terms that its rewards may return;
* `VARIANTS`: name -> reward with its knobs set; the first is the paper's main setting.

Its settings, with the source of each, are in `factrl/recipes`.  It may also say, and so may your own file:

* `SETTINGS`, where there is no recipe of that name: prompt and training settings, nested as in one;
* `VARIANT_SETTINGS`: variant -> what it sets otherwise, nested alike;
* `ASKS`: variant -> setting, such as `train.beta` -> why only the user can give it; those of "" are those of
  every variant that has none of its own;
* `FORM`: where the answer stands, `boxed`, between `tags` or with a `confidence`; the whole text by default
  (`form_of`);
* `LENGTH`: whether it reads `short` or `long` answers; by default short ones where answers are needed;
* `STAND_IN`: the variant that `factrl stress` tries in place of a main one that lacks weights, and why.

What `factrl study PAPER` trains, and the paper's whole pipeline, is in `factrl/studies/PAPER.toml`.  Hacks
that are known to pay are in `factrl/stress/weaknesses.toml`, those of a file of your own in its `WEAKNESSES`:
variant -> hack -> why, with "" for every variant that has no list.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Literal

from factrl.errors import ConfigError, first_line, nearest
from factrl.rewards import Reward
from factrl.rewards.trl import from_trl, is_trl
from factrl.runs import recipe_of
from factrl.runs.settings import TrainSettings
from factrl.types import Example

Form = Literal["tags", "boxed", "text", "confidence"]
"""Where a reward looks for the answer: between tags, in a box, in the whole text, or between tags with a
confidence behind it."""
Length = Literal["short", "long"]


_ALONE = {
    *("model.name", "model.dtype", "model.lora_target_modules", "judge.reward_model"),
    *("data.train", "data.split", "data.eval", "data.eval_split"),
    *("train.micro_batch_size", "train.bf16", "train.use_vllm", "train.optim"),
    *("train.save_steps", "train.eval_steps"),
}
"""What a recipe says of its own models, data and machine; the rest comes with the paper's name too."""


def no_answers(example: Example, knobs: Mapping[str, Any] = MappingProxyType({})) -> str | None:
    """What a question lacks whose answer is graded; a false premise is there to be named."""
    return None if example.answers or example.false_premise else "it has no accepted answers"


def paper_names() -> tuple[str, ...]:
    """Names of the papers.

    >>> "truthrl" in paper_names()
    True
    """
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
    """A paper's variants, the main one first; of a file of your own, every reward in it, and in a file
    without any the functions in TRL's form."""
    if module.__name__.startswith(f"{__name__}."):
        return module.VARIANTS
    own = {name: value for name, value in vars(module).items() if isinstance(value, Reward)}
    plain = {name: value for name, value in vars(module).items() if is_trl(value)}
    return own or {
        name: from_trl(value) for name, value in plain.items() if value.__module__ == module.__name__
    }


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
    module = load_paper(name)
    rewards = rewards_of(module)
    plain: Any = vars(module).get(part) if name.endswith(".py") and part not in rewards else None
    if is_trl(plain):
        return from_trl(plain)
    if inspect.isfunction(plain):
        raise ConfigError(
            f"{spec} is a plain function; put @fx.reward above it, or write it as TRL calls rewards: "
            f"{part}(prompts, completions, **columns)"
        )
    return rewards[_chosen(rewards, name, part)]


def settings_of(spec: str) -> Mapping[str, Mapping[str, Any]]:
    """The settings that come with a paper's name and variant, nested as in a recipe; a file may have none."""
    name, part = split_spec(spec)
    module, recipe = load_paper(name), recipe_of(name)
    settings: Mapping[str, Mapping[str, Any]] = getattr(module, "SETTINGS", {})
    if recipe.is_file():
        from factrl.runs.config import read_toml

        settings = {
            section: {k: v for k, v in values.items() if _comes_by_name(f"{section}.{k}", v)}
            for section, values in read_toml(recipe).items()
            if section not in ("paper", "reward", "run")
        }
    own: Mapping[str, Mapping[str, Any]] = getattr(module, "VARIANT_SETTINGS", {}).get(part, {})
    return {section: {**settings.get(section, {}), **own.get(section, {})} for section in {**settings, **own}}


def _comes_by_name(key: str, value: Any) -> bool:
    if key == "train.micro_batch_size":  # one below the usual is for a recipe's own large model
        return bool(value > TrainSettings.model_fields["micro_batch_size"].default)
    return key not in _ALONE


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
    form = reward.knobs.get("answer")
    if form in ("boxed", "tags", "text", "confidence"):
        return form
    if reward.knobs.get("thinking") is False:
        return "text"
    return declared(spec, "FORM", "text")


def length_of(spec: str, reward: Reward) -> Length:
    """Whether a reward looks for one short answer or reads a long one."""
    length: Length | None = declared(spec, "LENGTH")
    return length or ("short" if reward.needs_answers else "long")


_files: dict[tuple[str, int], ModuleType] = {}  # (path, when it was changed) -> what that user's file made


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
