"""Settings from a TOML file, `key=value` overrides and a paper's defaults.

Layers, later ones win: the reward's knobs, the paper's settings, the file, the overrides.  Every
problem of all layers is reported in one `ConfigError`, one line each, mostly in pydantic's words.
The sections themselves are in `factrl.runs.settings`.
"""

from __future__ import annotations

import datetime
import difflib
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


def load_settings(
    cls: type[S],
    source: Path | str | None = None,
    overrides: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
    knobs: Mapping[str, Knobs] | None = None,
    problems: Sequence[str] = (),
    unused: Callable[[S], Unused] | None = None,
    named: Mapping[str, Any] | None = None,
    where: str = "",
) -> S:
    """Settings of type `cls`, resolved from all layers, or one error that lists every problem.

    Args:
        cls: a pydantic model whose sections are models too, e.g. `RunSettings`.
        source: a TOML file; `recipes/PAPER.toml` is factrl's own where there is no other.
        overrides: `section.key=value`.  Values are TOML; what is not TOML is text.
        defaults: a paper's settings, nested as in TOML.
        knobs: free tables of `cls` and what they may hold, as name -> default: `{"reward": {...}}`.
            The defaults are filled in, so that the resolved settings are complete.
        problems: problems that the caller has already noticed; listed first.
        unused: of the settings, those that the job does not read: an override of one is a problem.  A file
            may be for several jobs, and a paper for several stages: what they have for others is no problem.
        named: what a variant sets that an override names; it wins over the file.
        where: what stands before each problem that pydantic finds.

    >>> from factrl.runs.settings import AskSettings
    >>> overrides = ["model.name=Qwen/Qwen2.5-0.5B", "data.train=questions.jsonl", "sampling.top_p=0.9"]
    >>> load_settings(AskSettings, overrides=overrides).sampling.top_p
    0.9

    Raises:
        ConfigError: one line per problem; a file that cannot be read or parsed at all comes alone.
    """
    keys, free = settable(cls), dict(knobs or {})
    file = {} if source is None else read_toml(_recipe(source))
    values, given, conflicts = _read(keys, file, overrides, defaults, free, named)

    def place(key: str) -> str:
        """Where the value of a key that is wrong stands, unless it is an override."""
        return f" (in {source})" if key not in given and _get(file, key) is not None else ""

    found = [f"{problem}{place(key)}" for key, problem in conflicts]
    for section in {key.split(".")[0] for key in keys if "." in key}:
        values.setdefault(section, {})  # so that what is missing in it is named by its key
    settings = None
    try:
        settings = cls.model_validate(values)
    except ValidationError as error:
        names = [*keys, *(f"{table}.{name}" for table, known in free.items() for name in known)]
        found += [where + line for line in _explain(error.errors(include_url=False), keys, names, place)]
    for table, known in free.items():
        told = values.get(table)
        found += check_knobs(told, known, table) if isinstance(told, Mapping) else []
    if unused is not None and settings is not None and not (problems or found):
        found += _unread(given, unused(settings))
    if problems or found or settings is None:
        raise ConfigError(*dict.fromkeys([*problems, *found]))
    return settings


def _unread(overrides: Mapping[str, Any], unused: Unused) -> Iterator[str]:
    for key, value in overrides.items():
        if why := why_unused(key, unused):
            yield f"{key} = {_short(value)} is not used: {why}"


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
    file = {} if source is None else read_toml(_recipe(source))
    return _get(_read(settable(cls), file, overrides, None, {})[0], key)


def _get(values: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key; None when absent."""
    value: Any = values
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def check_knobs(given: Mapping[str, Any], knobs: Knobs, table: str = "reward") -> list[str]:
    """Problems with the knobs in `given`: unknown names and values of another type than the default's.

    Args:
        given: name -> value.
        knobs: name -> default; a None default accepts anything, a float default also whole numbers.
        table: what the knobs are called under, for the messages.

    >>> check_knobs({"wrong": "-1"}, {"right": 1.0, "wrong": -1.0})
    ["reward.wrong = '-1': input should be a valid number"]
    """
    problems = []
    for name, value in given.items():
        if name not in knobs:
            known = nearest(name, knobs) or f"; it has {', '.join(sorted(knobs)) or 'no knobs'}"
            problems.append(f"unknown knob {table}.{name}{known}")
            continue
        if wanted := _wanted(value, knobs[name]):
            problems.append(f"{table}.{name} = {_short(value)}: {wanted}")
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


_NO_TABLE = "a value, where a table is meant; remove it, or write its keys below [{}]"


def _merge(into: dict[str, Any], values: Mapping[str, Any], at: str = "") -> list[tuple[str, str]]:
    """Put later values over earlier ones; returns the keys with what cannot stand there, and why."""
    problems = list[tuple[str, str]]()
    for key, value in values.items():
        name = f"{at}{key}"
        if _too_large(value):
            problems.append((name, f"{name} has a whole number of more than 64 bits"))
        elif not isinstance(value, Mapping):
            into[key] = value
        elif isinstance(inner := into.setdefault(key, {}), dict):
            problems += _merge(inner, value, f"{name}.")
        else:
            problems.append((name, f"{name} = {_short(inner)}: {_NO_TABLE.format(name)}"))
    return problems


def _read(
    keys: Mapping[str, FieldInfo],
    file: Mapping[str, Any],
    overrides: Sequence[str],
    defaults: Mapping[str, Any] | None,
    knobs: Mapping[str, Knobs],
    named: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]:
    """The merged values, those of the overrides by dotted key, and the problems so far by key."""
    values, given = dict[str, Any](), dict[str, Any]()
    layers = (
        {table: _without_none(known) for table, known in knobs.items()},
        defaults or {},
        file,
        named or {},
    )
    problems = [problem for layer in layers for problem in _merge(values, layer)]
    for override in overrides:
        try:
            path, value = _parse_override(override, keys)
        except ConfigError as error:
            problems.append(("", str(error)))
            continue
        given[".".join(path)] = value
        for part in reversed(path):
            value = {part: value}
        problems += _merge(values, value)
    return values, given, problems


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


def _parse_override(override: str, keys: Mapping[str, FieldInfo]) -> tuple[list[str], Any]:
    key, equals, raw = override.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path):
        raise ConfigError(f"{override!r} is not key=value, e.g. train.steps=100")
    return path, _parse_value(key.strip(), raw, text=_takes_text(path, keys))


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
    keys: Mapping[str, FieldInfo],
    names: Sequence[str],
    place: Callable[[str], str],
) -> list[str]:
    """One line per problem; the alternatives of a union, which pydantic reports one by one, are joined."""
    lines, wanted = list[str](), dict[tuple[str, str], list[str]]()
    for error in errors:
        dotted, value, kind = ".".join(_path_of(error["loc"], keys)), error["input"], error["type"]
        if kind == "missing":
            lines.append(f"{dotted} is required; add it to the recipe or pass {dotted}=...")
        elif kind == "extra_forbidden":
            what = "section" if "." not in dotted and isinstance(value, Mapping) else "key"
            known = {name.split(".")[0] for name in names} if what == "section" else names
            told = _suggest(dotted, known) or "; factrl show --settings lists all"
            lines.append(f"unknown {what} {dotted}{told}{place(dotted)}")
        elif kind == "value_error":
            lines += str(error.get("ctx", {}).get("error", error["msg"])).split("\n")
        else:
            why = _NO_TABLE.format(dotted) if kind in ("model_type", "dict_type") else _in_short(error["msg"])
            wanted.setdefault((dotted, _short(value)), []).append(why)
    for (dotted, value), options in wanted.items():
        told = " or ".join(dict.fromkeys(options))
        close = nearest(value.strip("'"), re.findall(r"'([^']+)'", told))
        lines.append(f"{dotted} = {value}: {told}{close}{place(dotted)}")
    return lines


def _path_of(loc: Sequence[int | str], keys: Mapping[str, FieldInfo]) -> list[str]:
    """The key a pydantic location is about: without list positions and without the branch of a union."""
    path = [str(part) for part in loc if part != "[key]"]
    for size in range(len(path), 0, -1):
        field = keys.get(".".join(path[:size]))
        if field is not None and get_origin(field.annotation) is not dict:
            return path[:size]
    return path


def _in_short(message: str) -> str:
    return message[0].lower() + message[1:]


def _suggest(key: str, names: Iterable[str]) -> str:
    """The known key whose last part is spelled most alike, one in the same section before others."""
    section, _, leaf = key.rpartition(".")
    known = {
        name.rpartition(".")[2]: name for name in sorted(names, key=lambda n: n.startswith(f"{section}."))
    }
    close = [leaf] if leaf in known else difflib.get_close_matches(leaf, known, 1)
    return "".join(f"; did you mean {known[name]!r}?" for name in close)


def _wanted(value: Any, default: Any) -> str:
    """What pydantic says of a value for a knob with this default; empty where it is of its type."""
    if default is None:
        return ""
    kind = list if isinstance(default, (list, tuple)) else type(default)
    adapter = TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))
    try:
        adapter.validate_python([*value] if isinstance(value, tuple) else value)
    except ValidationError as error:
        return _in_short(error.errors()[0]["msg"])
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
