"""`factrl doctor`: what is here, what is missing, and what is known to go wrong."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from factrl import __version__
from factrl.errors import SetupError
from factrl.llm import connect, preflight
from factrl.llm.models import cache_folder, cached, known
from factrl.text.escape import one_line

from .options import Verbs, add_verb
from .terminal import say

State = Literal["ok", "missing", "warning", "wrong"]
_FOR_DEVELOPERS = {"dev", "docs", "test"}
_WAL_FIXED = (3, 51, 3)  # https://sqlite.org/wal.html#walresetbug
_TORCH_FIXED = (2, 10)  # CVE-2026-24747: a weights_only checkpoint can still run code
_VARIABLES = (
    "FACTRL_CACHE",
    "FACTRL_JUDGE_BASE_URL",
    "FACTRL_JUDGE_MODEL",
    "FACTRL_JUDGE_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "SERPER_API_KEY",
)
_PATIENCE = 5.0  # seconds for the judge server
# As pip writes them: name, bounds, and the markers that factrl's own requirements have.
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?P<wanted>[^;]*)"
    r"(?:;\s*(?:python_version\s*(?P<python>[<>=]+\s*['\"][\d.]+)['\"])?(?:\s*and\s*)?"
    r"(?:extra\s*==\s*['\"](?P<extra>[\w-]+)['\"])?)?\s*"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        state: `ok`; `missing`, something optional that is not here; `warning`, it works but can go wrong;
            `wrong`, it has to be changed.
        what: its name.
        detail: what was found, and what to do.
    """

    state: State
    what: str
    detail: str


def add_verbs(verbs: Verbs) -> None:
    """Add this module's verbs to the command line."""
    parser = add_verb(
        verbs,
        "doctor",
        _doctor,
        about="look at this machine: packages, models, cache, keys and the judge server",
        example=(
            "example:\n  factrl doctor\n"
            "exit code: 0 nothing is wrong, whatever optional parts are missing; 1 otherwise"
        ),
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")


def _doctor(args: argparse.Namespace) -> int:
    findings: list[Finding] = []
    for finding in examine():
        findings.append(finding)
        if not args.json:
            say(f"{finding.state:<9}{one_line(finding.what):<14} {one_line(finding.detail)}")
    if args.json:
        say(json.dumps([asdict(finding) for finding in findings], indent=2))
    return int(any(finding.state == "wrong" for finding in findings))


def examine() -> Iterator[Finding]:
    """Everything, the quick things first; only a judge server that is configured is asked anything."""
    yield Finding("ok", "factrl", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    yield from packages()
    yield from _torch()
    yield sqlite(sqlite3.sqlite_version)
    yield cache(cache_folder())
    yield from _models()
    yield variables(os.environ)
    if os.environ.get("FACTRL_JUDGE_BASE_URL"):
        yield _server()


def packages() -> Iterator[Finding]:
    """The core's requirements and those of every extra that a user may want."""
    try:
        extras: list[str] = metadata.metadata("factrl").get_all("Provides-Extra") or []
        required = metadata.requires("factrl") or []
    except metadata.PackageNotFoundError:
        yield Finding("warning", "packages", "factrl runs from a folder; to install it: pip install factrl")
        return
    for extra in ("", *extras):
        if extra not in _FOR_DEVELOPERS:
            yield extra_finding(extra, required, _version)


def extra_finding(extra: str, required: Sequence[str], version: Callable[[str], str | None]) -> Finding:
    """Whether what an extra needs is installed, in versions that fit.

    Args:
        extra: empty for the core.
        required: factrl's requirements as its package lists them, e.g. `torch>=2.6; extra == 'train'`.
        version: of an installed package; None when it is not there.
    """
    here: list[str] = []
    lacking: list[str] = []
    unfit: list[str] = []
    for line in required:
        match = _REQUIREMENT.fullmatch(line)
        if (
            match is None
            or (match["extra"] or "") != extra
            or not _fits(platform.python_version(), match["python"])
        ):
            continue
        name, wanted = match["name"], match["wanted"]
        found = version(name)
        if found is None:
            lacking.append(name)
        elif _fits(found, wanted):
            here.append(f"{name} {found}")
        else:
            unfit.append(f"{name} {found}, not {wanted}")
    what = f"extra {extra}" if extra else "packages"
    install = f"pip install 'factrl[{extra}]'" if extra else "pip install --force-reinstall factrl"
    if lacking:
        state: State = "missing" if extra else "wrong"
        return Finding(state, what, f"{', '.join(lacking)} not installed: {install}")
    if unfit:
        return Finding("warning" if extra else "wrong", what, f"{'; '.join(unfit)}: {install}")
    return Finding("ok", what, ", ".join(here))


def sqlite(version: str) -> Finding:
    """SQLite, which keeps the cache."""
    if _release(version) >= _WAL_FIXED:
        return Finding("ok", "SQLite", version)
    fixed = ".".join(map(str, _WAL_FIXED))
    told = (
        f"{version} can damage a file that several processes write at once (WAL reset, fixed in {fixed}); "
        "factrl's cache takes a lock against it, so open that file with no other program while factrl runs"
    )
    return Finding("warning", "SQLite", told)


def cache(folder: Path) -> Finding:
    """The folder of models and verdicts: whether it can be written, and how large it is."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return Finding("wrong", "cache", f"{folder} cannot be written; set FACTRL_CACHE to a folder that can")
    if existing != folder:
        return Finding("ok", "cache", f"{folder}, not made yet")
    size = sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return Finding("ok", "cache", f"{folder}, {megabytes(size)}")


def variables(environment: Mapping[str, str]) -> Finding:
    """Which of factrl's environment variables are set; never to what."""
    given = [name for name in _VARIABLES if environment.get(name)]
    rest = [name for name in _VARIABLES if name not in given]
    parts = [f"{word}: {', '.join(names)}" for word, names in (("set", given), ("not set", rest)) if names]
    return Finding("ok", "environment", "; ".join(parts))


def megabytes(size: int) -> str:
    """Bytes as people say them."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _torch() -> Iterator[Finding]:
    version = _version("torch")
    if version is not None and _release(version) < _TORCH_FIXED:
        told = f"{version} can run code hidden in a checkpoint; load only your own, or: pip install -U torch"
        yield Finding("warning", "torch", told)


def _models() -> Iterator[Finding]:
    for model in known():
        path = cached(model.name)
        if path is not None:
            yield Finding("ok", "model", f"{model.name} in {path}")
        else:
            get = f"factrl models get {model.name}"
            yield Finding("missing", "model", f"{model.name} is not here ({megabytes(model.size)}): {get}")


def _server() -> Finding:
    try:
        preflight(connect(), timeout=_PATIENCE, max_attempts=1)
    except SetupError as error:
        return Finding("wrong", "judge server", str(error))
    return Finding("ok", "judge server", "it answers")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    """`2.10.0+cpu` -> (2, 10): numbers without zeros at the end, so that tuples compare as versions do."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def _fits(version: str, wanted: str | None) -> bool:
    """Whether a version lies within bounds such as `<1.17,>=1.16`."""
    found = _release(version)
    bounds = re.findall(r"(>=|<)\s*['\"]?([\d.]+)", wanted or "")
    return all(found >= _release(end) if sign == ">=" else found < _release(end) for sign, end in bounds)
