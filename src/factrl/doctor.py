"""What this machine has and lacks for factrl: packages, models, cache, keys and the judge server."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

from factrl import __version__
from factrl.errors import INSTALL, SetupError
from factrl.llm import connect, models, preflight
from factrl.runs.folder import version_of

_FOR_DEVELOPERS = {"dev", "docs", "test"}
_WAL_FIXED = Version("3.51.3")  # https://sqlite.org/wal.html#walresetbug
_TORCH_FIXED = Version("2.10")  # CVE-2026-24747: a weights_only checkpoint can still run code
_VARIABLES = (
    "FACTRL_CACHE",
    "FACTRL_JUDGE_BASE_URL",
    "FACTRL_JUDGE_MODEL",
    "FACTRL_JUDGE_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "SERPER_API_KEY",
    "TAVILY_API_KEY",
    "BRAVE_API_KEY",
    "EXA_API_KEY",
)
_PATIENCE = 5.0  # seconds for the judge server


class Diagnostic(NamedTuple):
    """One thing that was looked at.

    Attributes:
        state: `ok`; `missing`, something optional that is not here; `warning`, it works but can go wrong;
            `wrong`, it has to be changed.
        what: its name.
        detail: what is there, and what to do.
    """

    state: Literal["ok", "missing", "warning", "wrong"]
    what: str
    detail: str


def examine() -> Iterator[Diagnostic]:
    """Everything, the quick things first; only a judge server that is configured is asked anything."""
    yield Diagnostic(
        "ok", "factrl", f"{__version__}, Python {platform.python_version()}, {platform.platform()}"
    )
    try:
        extras: list[str] = metadata.metadata("factrl").get_all("Provides-Extra") or []
        required = metadata.requires("factrl") or []
        for extra in ("", *extras):
            if extra not in _FOR_DEVELOPERS:
                yield extra_finding(extra, required, version_of)
    except metadata.PackageNotFoundError:
        yield Diagnostic(
            "warning", "packages", f"factrl runs from a folder; to install it: {INSTALL.format('')}"
        )
    torch = version_of("torch")
    if torch is not None and Version(torch) < _TORCH_FIXED:
        detail = f"{torch} can run code hidden in a checkpoint; load only your own, or: pip install -U torch"
        yield Diagnostic("warning", "torch", detail)
    yield sqlite(sqlite3.sqlite_version)
    yield cache(models.cache_folder())
    for model in models.MODELS:
        path = models.cached(model.name)
        if path is not None:
            yield Diagnostic("ok", "model", f"{model.name} in {path}")
        else:
            detail = f"{model.name} is not here ({megabytes(model.size)}): factrl doctor --get {model.name}"
            yield Diagnostic("missing", "model", detail)
    yield variables(os.environ)
    if os.environ.get("FACTRL_JUDGE_BASE_URL"):
        try:
            preflight(connect(), timeout=_PATIENCE, max_attempts=1)
            yield Diagnostic("ok", "judge server", "it answers")
        except SetupError as error:
            yield Diagnostic("wrong", "judge server", str(error))


def extra_finding(extra: str, required: Sequence[str], version: Callable[[str], str | None]) -> Diagnostic:
    """Whether what an extra needs is installed, in versions that fit.

    Args:
        extra: empty for the core.
        required: factrl's requirements as its package lists them, e.g. `torch>=2.6; extra == 'train'`.
        version: of an installed package; None when it is not there.
    """
    fitting, problems, lacks = list[str](), list[str](), False
    for one in map(Requirement, required):
        marker = one.marker
        if ("extra ==" in str(marker)) != bool(extra) or (marker and not marker.evaluate({"extra": extra})):
            continue
        here = version(one.name)
        lacks |= here is None
        if here is not None and one.specifier.contains(here, prereleases=True):
            fitting.append(f"{one.name} {here}")
        else:
            problems.append(
                f"{one.name} not installed" if here is None else f"{one.name} {here}, not {one.specifier}"
            )
    what = f"extra {extra}" if extra else "packages"
    if not problems:
        return Diagnostic("ok", what, ", ".join(fitting))
    install = INSTALL.format(f"[{extra}]" if extra else "")
    install = install if extra else install.replace("install", "install --force-reinstall")
    state = ("missing" if lacks else "warning") if extra else "wrong"
    return Diagnostic(state, what, f"{'; '.join(problems)}: {install}")


def sqlite(version: str) -> Diagnostic:
    """SQLite, which keeps the cache."""
    if Version(version) >= _WAL_FIXED:
        return Diagnostic("ok", "SQLite", version)
    detail = (
        f"{version} can damage a file that several processes write at once (WAL reset, fixed in "
        f"{_WAL_FIXED}); of factrl's cache what was in it is then paid for again"
    )
    return Diagnostic("warning", "SQLite", detail)


def cache(folder: Path) -> Diagnostic:
    """The folder of models and verdicts: whether it can be written, and how large it is."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Diagnostic(
            "wrong", "cache", f"{folder} cannot be written; set FACTRL_CACHE to a folder that can"
        )
    if existing != folder:
        return Diagnostic("ok", "cache", f"{folder}, not made yet")
    size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return Diagnostic("ok", "cache", f"{folder}, {megabytes(size)}")


def variables(environment: Mapping[str, str]) -> Diagnostic:
    """Which of factrl's environment variables are set; never to what."""
    given = [name for name in _VARIABLES if environment.get(name)]
    rest = [name for name in _VARIABLES if name not in given]
    parts = [f"{word}: {', '.join(names)}" for word, names in (("set", given), ("not set", rest)) if names]
    return Diagnostic("ok", "environment", "; ".join(parts))


def megabytes(size: int) -> str:
    """A number of bytes as people say it.

    >>> megabytes(2_500_000), megabytes(1_200_000_000)
    ('2.5 MB', '1.2 GB')
    """
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
