"""Settings from a TOML file, `key=value` overrides and a paper's defaults.

Layers, later ones win: the reward's knobs, the paper's settings, the file, the overrides.  Every
problem of all layers is reported in one `ConfigError`, one line each, with the place it came from.
The sections themselves are in `factrl.runs.settings`.
"""

from __future__ import annotations

import datetime
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from factrl.errors import ConfigError, nearest
from factrl.runs import RECIPES, located, recipe_of
from factrl.runs.rows import refuse_pipe, without_hint

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

S = TypeVar("S", bound=BaseModel)
Knobs = Mapping[str, Any]
Unused = Mapping[str, str]
"""Section or dotted key that a job does not read -> why."""

_MUST_BE = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
}


def load_settings(
    cls: type[S],
    source: Path | str | None = None,
    overrides: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
    knobs: Mapping[str, Knobs] | None = None,
    problems: Sequence[str] = (),
    unused: Callable[[S], Unused] | None = None,
    defaults_from: str = "paper's settings",
    named: Mapping[str, Any] | None = None,
) -> S:
    """Settings of type `cls`, resolved from all layers, or one error that lists every problem.

    Args:
        cls: a pydantic model whose sections are models too, e.g. `RunSettings`.
        source: a TOML file; `recipes/PAPER.toml` is factrl's own where there is no other.
        overrides: `section.key=value`; the section may be left out where the key is unique.  Values
            are TOML; what is not TOML is text.
        defaults: a paper's settings, nested as in TOML.
        knobs: free tables of `cls` and what they may hold, as name -> default: `{"reward": {...}}`.
            The defaults are filled in, so that the resolved settings are complete.
        problems: problems that the caller has already noticed; listed first.
        unused: of the settings, those that the job does not read: an override of one is a problem.  A file
            may be for several jobs, and a paper for several stages: what they have for others is no problem.
        defaults_from: what a problem with one of the defaults is said to come from.
        named: what a variant sets that an override names; it wins over the file.

    >>> from factrl.runs.settings import AskSettings
    >>> overrides = ["model.name=Qwen/Qwen2.5-0.5B", "data.train=questions.jsonl", "sampling.top_p=0.9"]
    >>> load_settings(AskSettings, overrides=overrides).sampling.top_p
    0.9

    Raises:
        ConfigError: one line per problem; a file that cannot be read or parsed at all comes alone.
    """
    keys = settable(cls)
    free = dict(knobs or {})
    draft = _read(keys, source, overrides, defaults, free, defaults_from, named)
    for section in {key.split(".")[0] for key in keys if "." in key}:
        draft.values.setdefault(section, {})  # so that what is missing in it is named by its key
    settings = None
    try:
        settings = cls.model_validate(draft.values)
    except ValidationError as error:
        where = f"{source}: " if source else ""
        draft.problems += _explain(error.errors(include_url=False), draft, keys, where)
    for table, known in free.items():
        given = draft.values.get(table)
        for name, value in given.items() if isinstance(given, Mapping) else ():
            label = draft.label((table, name))
            draft.problems += [label + line for line in check_knobs({name: value}, known, table)]
    if unused is not None and settings is not None and not (problems or draft.problems):
        draft.problems += _unread(draft.overrides, unused(settings))
    if problems or draft.problems or settings is None:
        raise ConfigError(*dict.fromkeys([*problems, *draft.problems]))
    return settings


def _unread(overrides: Mapping[str, Any], unused: Unused) -> Iterator[str]:
    for key, value in overrides.items():
        if why := why_unused(key, unused):
            yield f"override: {key} = {_short(value)} is not used: {why}"


def why_unused(key: str, unused: Unused) -> str | None:
    """Why a job does not read a key; None where it does.

    >>> why_unused("train.steps", {"train": "nothing is trained"})
    'nothing is trained'
    """
    return unused.get(key) or unused.get(key.partition(".")[0])


def read_setting(cls: type[BaseModel], source: Path | str | None, overrides: Sequence[str], key: str) -> Any:
    """The unchecked value of one key, None when absent: for `paper`, which decides the defaults of the rest.

    Raises:
        ConfigError: the file cannot be read or parsed; other problems are left to `load_settings`.
    """
    value: Any = _read(settable(cls), source, overrides, None, {}).values
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def check_knobs(given: Mapping[str, Any], knobs: Knobs, table: str = "reward") -> list[str]:
    """Problems with the knobs in `given`: unknown names and values of another type than the default's.

    Args:
        given: name -> value.
        knobs: name -> default; a None default accepts anything, a float default also whole numbers.
        table: what the knobs are called under, for the messages.

    >>> check_knobs({"wrong": "-1", "rigth": 1}, {"right": 1.0, "wrong": -1.0})
    ["reward.wrong = '-1' must be a finite number", "unknown knob reward.rigth; did you mean 'right'?"]
    """
    problems = []
    for name, value in given.items():
        if name not in knobs:
            known = nearest(name, knobs) or f"; it has {', '.join(sorted(knobs)) or 'no knobs'}"
            problems.append(f"unknown knob {table}.{name}{known}")
            continue
        wanted = _wanted(value, knobs[name])
        if wanted:
            problems.append(f"{table}.{name} = {_short(value)} must be {wanted}")
    return problems


def dump_toml(settings: BaseModel) -> str:
    """The settings as TOML that `load_settings` reads back unchanged; keys without a value are left out."""
    return tomli_w.dumps(_without_none(settings.model_dump()))


def settable(cls: type[BaseModel]) -> dict[str, FieldInfo]:
    """Every key of `cls` in dotted form, with its type, default and help (`description`)."""
    keys: dict[str, FieldInfo] = {}
    for name, field in cls.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            keys |= {f"{name}.{inner}": value for inner, value in settable(section).items()}
        else:
            keys[name] = field
    return keys


class _Draft:
    """Values merged so far, where each came from, and the problems in them."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.problems: list[str] = []
        self.overrides: dict[str, Any] = {}
        self._origin: dict[tuple[str, ...], str] = {}

    def merge(self, values: Mapping[str, Any], origin: str, at: tuple[str, ...] = ()) -> None:
        target = self.values
        for part in at:
            target = target[part]
        for key, value in values.items():
            path = (*at, key)
            self._origin[path] = origin
            if _too_large(value):
                self.problems.append(f"{origin}{'.'.join(path)} has a whole number of more than 64 bits")
                continue
            if not isinstance(value, Mapping):
                target[key] = value
                continue
            if not isinstance(target.setdefault(key, {}), dict):
                self.problems.append(
                    f"{origin}{'.'.join(path)} is a value elsewhere and cannot be a table here"
                )
                continue
            self.merge(value, origin, path)

    def label(self, path: Sequence[str]) -> str:
        """`recipe.toml: ` for a value that came from there; empty for one that was not given."""
        known = (self._origin.get(tuple(path[:size])) for size in range(len(path), 0, -1))
        return next((origin for origin in known if origin is not None), "")


def _names(keys: Iterable[str], knobs: Mapping[str, Knobs]) -> list[str]:
    return [*keys, *(f"{table}.{name}" for table, known in knobs.items() for name in known)]


def _read(
    keys: Mapping[str, FieldInfo],
    source: Path | str | None,
    overrides: Sequence[str],
    defaults: Mapping[str, Any] | None,
    knobs: Mapping[str, Knobs],
    defaults_from: str = "",
    named: Mapping[str, Any] | None = None,
) -> _Draft:
    draft = _Draft()
    for table, known in knobs.items():
        draft.merge({table: _without_none(known)}, "")
    draft.merge(defaults or {}, f"{defaults_from}: ")
    if source is not None:
        draft.merge(read_toml(_recipe(source)), f"{source}: ")
    draft.merge(named or {}, "variant: ")
    names = _names(keys, knobs)
    for override in overrides:
        try:
            path, value = _parse_override(override, keys, names)
        except ConfigError as error:
            draft.problems.append(f"override: {error}")
            continue
        draft.overrides[".".join(path)] = value
        for part in reversed(path):
            value = {part: value}
        draft.merge(value, "override: ")
    return draft


def _recipe(source: Path | str) -> Path:
    """The file of a recipe; `truthrl` and `small/truthrl` are factrl's own where there is no such file."""
    path, own = located(source), recipe_of(str(source))
    named = len(path.parts) <= 2 and not path.exists() and not path.is_absolute()
    return own if named and own.is_file() else path


def _nearest_recipe(path: Path) -> str:
    """The end of an error: a file beside one that is missing, or factrl's own recipe of that name."""
    if path.suffix and (own := recipe_of(path.stem)).is_file():
        return f"; did you mean 'recipes/{own.relative_to(RECIPES)}'?"
    if path.parent == RECIPES:
        return nearest(path.stem, [file.parent.name for file in RECIPES.glob("*/recipe.toml")])
    around = [other.name for other in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    return nearest(path.name, around) or nearest(
        str(path), [f"small/{recipe.stem}" for recipe in RECIPES.glob("small/*.toml")]
    )


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file, unchecked.

    Raises:
        ConfigError: it is missing or is not TOML.
        DataError: it is a named pipe.
    """
    refuse_pipe(path)
    try:
        return tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist{_nearest_recipe(path)}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except (ValueError, RecursionError) as error:  # a plain ValueError where a number is too long
        raise ConfigError(f"{path} is not valid TOML: {without_hint(error)}") from error


def _parse_override(
    override: str, keys: Mapping[str, FieldInfo], names: Sequence[str]
) -> tuple[list[str], Any]:
    key, name, raw = _split(override, names)
    path = name.split(".")
    if not all(path):
        raise ConfigError(f"{key!r} has an empty part between its dots")
    return path, _parse_value(key, raw, text=_takes_text(path, keys))


def _split(override: str, names: Sequence[str]) -> tuple[str, str, str]:
    """An override's key as it was given, the name that it stands for, and its value."""
    key, equals, value = override.partition("=")
    key = key.strip()
    if not equals or not key:
        raise ConfigError(f"{override!r} is not key=value, e.g. train.steps=100")
    return key, _resolve(key, names), value


def _resolve(key: str, names: Sequence[str]) -> str:
    """The dotted name behind `key`, which may be the bare last part of a unique name."""
    if "." in key or key in names:
        return key
    meant = [name for name in names if name.startswith(f"{key}.")]
    meant += [name for name in names if name.rpartition(".")[2] == key]
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigError(f"{key} is not the name of one key; write one of {', '.join(meant)}")
    raise ConfigError(f"unknown key {key}{_suggest(key, names)}")


def _parse_value(key: str, raw: str, *, text: bool) -> Any:
    if text and raw[:1] not in ('"', "'"):
        return raw
    try:
        parsed = tomllib.loads(f"value = {raw}")
    except (tomllib.TOMLDecodeError, RecursionError):
        parsed = {}
    except ValueError as error:
        raise ConfigError(f"{key} = {_short(raw)} is no value: {without_hint(error)}") from error
    value = parsed.get("value")
    if len(parsed) == 1 and not isinstance(value, (datetime.date, datetime.time)):
        return value
    if text:
        return raw
    if not raw.strip():
        raise ConfigError(f"{key} has no value after the equals sign")
    if raw.strip()[0] in "[{\"'":
        raise ConfigError(f"{key} = {_short(raw)} is not valid TOML; quote the whole override for the shell")
    return raw


def _takes_text(path: Sequence[str], keys: Mapping[str, FieldInfo]) -> bool:
    """Whether the key holds text and nothing else, so that `revision=1234567` needs no quotes."""
    field = keys.get(".".join(path))
    if field is not None:
        return set(get_args(field.annotation) or [field.annotation]) <= {str, NoneType}
    table = keys.get(".".join(path[:-1]))
    return table is not None and get_args(table.annotation)[1:] == (str,)


def _explain(
    errors: Iterable[ErrorDetails],
    draft: _Draft,
    keys: Mapping[str, FieldInfo],
    source: str,
) -> list[str]:
    """One line per problem; the alternatives of a union, which pydantic reports one by one, are joined."""
    lines: list[str] = []
    wanted: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for error in errors:
        path = _path_of(error["loc"], keys)
        dotted, label, kind = ".".join(path), draft.label(path), error["type"]
        if kind == "missing":
            lines.append(f"{source}{dotted} is required; add it to the recipe or pass {dotted}=...")
        elif kind == "extra_forbidden":
            lines.append(f"{label}{_unknown(dotted, error['input'], list(keys))}")
        elif "[key]" in error["loc"]:
            lines.append(f"{label}unknown key {dotted}{nearest(path[-1], _quoted(error['msg']))}")
        elif kind == "value_error":
            cause = str(error.get("ctx", {}).get("error", error["msg"]))
            lines += [f"{label if dotted in keys else ''}{line}" for line in cause.split("\n")]
        else:
            values.setdefault(dotted, error["input"])
            wanted.setdefault(dotted, []).append(_must_be(error))
    for dotted, options in wanted.items():
        value = values[dotted]
        close = nearest(value, _quoted(" ".join(options))) if isinstance(value, str) else ""
        label = draft.label(dotted.split("."))
        lines.append(
            f"{label}{dotted} = {_short(value)} must be {' or '.join(dict.fromkeys(options))}{close}"
        )
    return lines


def _path_of(loc: Sequence[int | str], keys: Mapping[str, FieldInfo]) -> list[str]:
    """The key a pydantic location is about: without list positions and without the branch of a union."""
    path = [str(part) for part in loc if part != "[key]"]
    for size in range(len(path), 0, -1):
        field = keys.get(".".join(path[:size]))
        if field is not None and get_origin(field.annotation) is not dict:
            return path[:size]
    return path


def _must_be(error: ErrorDetails) -> str:
    return _MUST_BE.get(error["type"]) or re.sub(r"^Input should be (a valid )?", "", error["msg"])


def _quoted(text: str) -> list[str]:
    return re.findall(r"'([^']+)'", text)


def _unknown(dotted: str, value: Any, names: Sequence[str]) -> str:
    sections = {name.split(".")[0] for name in names if "." in name}
    if "." not in dotted and isinstance(value, Mapping):
        return f"unknown section [{dotted}]{nearest(dotted, sections)}"
    return f"unknown key {dotted}{_suggest(dotted, names)}"


def _suggest(key: str, names: Sequence[str]) -> str:
    """The known key whose last part is spelled most alike, one in the same section before others."""
    section, _, leaf = key.rpartition(".")
    known = {
        name.rpartition(".")[2]: name for name in sorted(names, key=lambda n: n.startswith(f"{section}."))
    }
    close = [leaf] if known.get(leaf, key) != key else _quoted(nearest(leaf, known))
    return "".join(f"; did you mean {known[name]!r}?" for name in close)


def _wanted(value: Any, default: Any) -> str:
    """The type of a knob with this default, in words; empty when `value` is of it."""
    if default is None:
        return ""
    kind = list if isinstance(default, (list, tuple)) else type(default)
    adapter = TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))
    try:
        adapter.validate_python([*value] if isinstance(value, tuple) else value)
    except ValidationError as error:
        return _must_be(error.errors()[0])
    return ""


def flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings by dotted name; a tuple as the list that TOML has for it.

    >>> flat({"paper": "truthrl", "train": {"steps": 100}})
    {'paper': 'truthrl', 'train.steps': 100}
    """
    flattened: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flattened |= flat(value, f"{before}{name}.")
        else:
            flattened[before + name] = list(value) if isinstance(value, tuple) else value
    return flattened


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not None
    }


def _too_large(value: Any) -> bool:
    """Whether it is, or holds, a whole number of more than 64 bits."""
    if isinstance(value, (list, tuple)):
        return any(map(_too_large, value))
    return isinstance(value, int) and value.bit_length() > 63


def _short(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
